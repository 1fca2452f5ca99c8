/* SPDX-License-Identifier: MIT */
/*
 * A pool of equal keys in one pair of words: that it is one, what makes it change over to a state
 * for each key, and that no unit is lost on the way.
 */
#define _GNU_SOURCE
#include "unit/pooling.h"

#include "limiter/pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIVE "window 5/1m" /* three keys: 15 in any minute */
#define GRACE (S + MS)     /* skew_max and a step of the mark */

static enum turns_phase phase_of(const struct stint_pool *pool)
{
    return turns_look(&pool->turns).phase;
}

static uint64_t live_states(const struct stint_table *table, uint64_t now_ns)
{
    struct stint_table_info info;
    stint_table_info(table, now_ns, &info);
    return info.live[0] + info.live[1] + info.live[2];
}

/* What is left of each key, the pool asked until it has none. */
static void expect_left(struct stint_pool *pool, uint64_t now_ns, unsigned a, unsigned b,
                        unsigned c)
{
    unsigned left[3] = {0, 0, 0}, n = 0;
    for (struct stint_pool_answer answer; (answer = next(pool, now_ns, 1)).name != NULL; n++) {
        assert_true(n < 1000);
        left[answer.name[0] - 'a']++;
    }
    assert_int_equal(left[0], a);
    assert_int_equal(left[1], b);
    assert_int_equal(left[2], c);
}

/* All units go out by turns, the wait is exact, and no key has a state of its own. */
static void test_equal_keys_share_one_pair(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abcabc");
    struct stint_pool_answer answer = next(fixture->pool, NOW + S, 1);
    assert_string_equal(answer.name, "a");
    assert_int_equal(answer.decision.limit, 5);
    assert_int_equal(answer.decision.remaining, 2);
    assert_int_equal(answer.granted_at_ns, NOW + S);
    expect(fixture->pool, NOW + S, "bcabcabc-");
    struct stint_pool_answer none = next(fixture->pool, NOW + 2 * S, 1);
    assert_int_equal(none.decision.limit, 5);
    assert_int_equal(none.decision.remaining, 0);
    expect_wait(fixture->pool, NOW + 2 * S, 1, none.wait_ns);
    assert_int_equal(phase_of(fixture->pool), TURNS_LIVE);
    assert_int_equal(live_states(fixture->table, NOW + 2 * S), 0);
}

/* The order in which a list was made does not matter: it is the same pool, and the same turn. */
static void test_the_order_of_a_list_does_not_matter(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    struct stint_pool *twin;
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    assert_int_equal(stint_pool_open(&twin, fixture->table, NULL, NULL), 0);
    for (const char *const *name = (const char *const[]){"c", "b", "a", NULL}; *name; name++) {
        struct stint_pool_key key = {.name = *name, .quotas = &quota, .n_quotas = 1};
        assert_int_equal(stint_pool_add(twin, &key, NOW, NULL), 0);
    }
    for (int i = 0; i < 15; i++) {
        const char name[2] = {"abc"[i % 3], '\0'};
        expect(i % 2 == 0 ? fixture->pool : twin, NOW, name);
    }
    expect(twin, NOW, "-");
    assert_int_equal(phase_of(twin), TURNS_LIVE);
    stint_pool_close(twin);
}

/* Status says what each key will still be given, and when one is next. */
static void test_status_shares_out_what_is_left(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    for (unsigned taken = 0; taken <= 15; taken++) {
        for (unsigned i = 0; i < 3; i++) {
            const char name[2] = {(char)('a' + i), '\0'};
            struct stint_pool_status status = status_of(fixture->pool, name, NOW);
            unsigned used = taken / 3 + (i < taken % 3);
            assert_int_equal(status.decision.remaining, 5 - used);
            assert_int_equal(status.decision.limit, 5);
            assert_int_equal(status.standing, used < 5 ? STINT_POOL_FREE : STINT_POOL_USED_UP);
            assert_int_equal(status.returns_after_ns == 0, used < 5);
        }
        assert_int_equal(next(fixture->pool, NOW, 1).name == NULL, taken == 15);
    }
    assert_int_equal(phase_of(fixture->pool), TURNS_LIVE);
}

/* One key needs no pair: it has its state. */
static void test_one_key_has_its_own_state(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 1, &quota, 1, NULL);
    expect(fixture->pool, NOW, "aaaaa-");
    expect_wait(fixture->pool, NOW, 1, next(fixture->pool, NOW, 1).wait_ns);
    assert_int_equal(phase_of(fixture->pool), TURNS_PER_KEY);
}

/* Where the units of all keys do not fit 8 bytes, or the slots of both would not fall together, or
 * the pool is not one of equal keys by turns, each has a state from the start. */
static void test_not_every_pool_fits_a_pair(void **state)
{
    struct fixture *fixture = *state;
    static const uint32_t weights[] = {2, 2, 1};
    unsigned pairs = 0, others = 0;
    for (uint32_t limit = 1; limit <= 1u << 30; limit *= 2) {
        struct stint_quota each = {.limit = limit, .period_ns = MINUTE}, all;
        assert_int_equal(stint_quota_check(&each, NULL), 0);
        bool fits = turns_quota(&each, 3, &all);
        pairs += fits;
        others += !fits;
        if (fits) {
            assert_int_equal(stint_state_size(&all), 8);
            assert_int_equal(all.limit, 3 * limit);
            assert_int_equal(each.resolution % all.resolution, 0);
        }
    }
    assert_true(pairs >= 8 && others >= 8);

    const struct {
        const char *spec, *name;
        int order;
        const uint32_t *weights;
    } cases[] = {
        {"window 1000000/1m", "p1", STINT_ROUND_ROBIN, NULL},
        {"window 5/1m resolution=23", "p2", STINT_ROUND_ROBIN, NULL},
        {"window 5/1m resolution=16", "p3", STINT_ROUND_ROBIN, NULL},
        {"log 5/1m", "p4", STINT_ROUND_ROBIN, NULL},
        {FIVE, "p5", STINT_FILL_FIRST, NULL},
        {FIVE, "p6", STINT_LEAST_USED, NULL},
        {FIVE, "p7", STINT_ROUND_ROBIN, weights},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_quota quota = quota_of(cases[i].spec);
        const struct stint_pool_options options = {.name = cases[i].name,
                                                   .order = (uint8_t)cases[i].order};
        struct stint_pool *pool;
        assert_int_equal(stint_pool_open(&pool, fixture->table, &options, NULL), 0);
        for (unsigned k = 0; k < 3; k++) {
            const char name[2] = {(char)('a' + k), '\0'};
            struct stint_pool_key key = {.name = name,
                                         .quotas = &quota,
                                         .n_quotas = 1,
                                         .weight = cases[i].weights ? cases[i].weights[k] : 7};
            assert_int_equal(stint_pool_add(pool, &key, NOW, NULL), 0);
        }
        if (quota.limit == 5)
            expect_left(pool, NOW, 5, 5, 5);
        else
            expect(pool, NOW, "abca");
        assert_int_equal(phase_of(pool), TURNS_PER_KEY);
        stint_pool_close(pool);
    }
}

/* ---- Changing over --------------------------------------------------------------------------- */

/* A benched key: after 4 grants each key is charged with 2, the most that any has. */
static void test_a_bench_changes_over(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abca");
    assert_int_equal(report(fixture->pool, "b", STINT_POOL_OK, 0, NOW), 0);
    assert_int_equal(phase_of(fixture->pool), TURNS_LIVE);
    assert_int_equal(report(fixture->pool, "b", STINT_POOL_COOL, 10 * S, NOW), 0);
    assert_int_equal(phase_of(fixture->pool), TURNS_PER_KEY);
    expect_left(fixture->pool, NOW, 3, 0, 3);
    expect_left(fixture->pool, NOW + 11 * S, 0, 3, 0);
    expect_left(fixture->pool, NOW + 3 * MINUTE, 5, 5, 5);
}

/* A cost of 2 changes over, but not one that no key can ever serve, and not one of 0. */
static void test_a_cost_of_2_changes_over(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abc");
    assert_int_equal(next(fixture->pool, NOW, 6).wait_ns, STINT_NEVER_NS);
    assert_string_equal(next(fixture->pool, NOW, 0).name, "a");
    assert_int_equal(phase_of(fixture->pool), TURNS_LIVE);
    assert_non_null(next(fixture->pool, NOW, 2).name);
    assert_int_equal(phase_of(fixture->pool), TURNS_PER_KEY);
    expect_left(fixture->pool, NOW, 2, 4, 4);
}

/* A unit given back changes over; a name that is not there, and no unit at all, do not. */
static void test_giving_back_changes_over(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    uint32_t given_back = 7;
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abca");
    assert_int_equal(stint_pool_give_back(fixture->pool, "a", 0, NOW, NOW, &given_back), 0);
    assert_int_equal(given_back, 0);
    assert_int_equal(stint_pool_give_back(fixture->pool, "x", 1, NOW, NOW, NULL), STINT_E_GONE);
    assert_int_equal(phase_of(fixture->pool), TURNS_LIVE);
    assert_int_equal(stint_pool_give_back(fixture->pool, "a", 1, NOW, NOW, &given_back), 0);
    assert_int_equal(phase_of(fixture->pool), TURNS_PER_KEY);
    expect_left(fixture->pool, NOW, 3 + given_back, 3, 3);
}

/* A key that comes or goes changes over, and one that comes back finds what it was charged with. */
static void test_a_changed_list_changes_over(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    struct stint_pool_key c = {.name = "c", .quotas = &quota, .n_quotas = 1};
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abca");
    assert_int_equal(stint_pool_remove(fixture->pool, "c", NOW, NULL), 0);
    assert_int_equal(phase_of(fixture->pool), TURNS_PER_KEY);
    expect_left(fixture->pool, NOW, 3, 3, 0);
    assert_int_equal(stint_pool_add(fixture->pool, &c, NOW, NULL), 0);
    expect_left(fixture->pool, NOW, 0, 0, 3);
}

/* While nothing was taken, or all is free again, a list may change and stay a pair. */
static void test_an_unused_list_may_change(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    struct stint_pool_key c = {.name = "c", .quotas = &quota, .n_quotas = 1};
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 2, &quota, 1, NULL);
    expect(fixture->pool, NOW, "aba");
    uint64_t later_ns = NOW + MINUTE + 5 * S + GRACE;
    assert_int_equal(stint_pool_add(fixture->pool, &c, later_ns, NULL), 0);
    expect_left(fixture->pool, later_ns, 5, 5, 5);
    assert_int_equal(phase_of(fixture->pool), TURNS_LIVE);
    assert_int_equal(stint_pool_remove(fixture->pool, "c", later_ns + HOUR, NULL), 0);
    expect_left(fixture->pool, later_ns + HOUR, 5, 5, 0);
    assert_int_equal(phase_of(fixture->pool), TURNS_LIVE);
}

/* Units that have long been returned are not charged: the change-over of a dead pair is free. */
static void test_only_live_units_are_carried(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abcabca");
    expect(fixture->pool, NOW + 40 * S, "b");
    /* The seven are free again, the one is not. */
    assert_int_equal(report(fixture->pool, "c", STINT_POOL_OUT, 0, NOW + 70 * S), 0);
    expect_left(fixture->pool, NOW + 70 * S, 4, 4, 0);
}

/*
 * Who changes over may come with a later time than who asks next. At the later one all units are
 * free again; at the earlier one they are not, and so they were charged.
 */
static void test_a_late_caller_after_a_change_gets_nothing_for_it(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    uint64_t used_ns = NOW + 5 * S - MS; /* the end of a slot of the pair */
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, used_ns, "abcabcabcabcabc-");
    assert_int_equal(report(fixture->pool, "c", STINT_POOL_OUT, 0, NOW + 65 * S), 0);
    assert_int_equal(phase_of(fixture->pool), TURNS_PER_KEY);
    expect_left(fixture->pool, NOW + 64 * S + 10 * MS, 0, 0, 0);
}

/*
 * A process with another list cannot know whom to charge: nothing is granted, for nobody, until all
 * units are free again. Then both go on, each key with its own state.
 */
static void test_another_list_shuts_the_pool(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    struct stint_pool *other = pool_of(fixture->table, STINT_ROUND_ROBIN, 2, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abcab");
    struct stint_pool_answer none = next(other, NOW, 1);
    assert_null(none.name);
    assert_int_equal(phase_of(other), TURNS_SHUT);
    assert_in_range(none.wait_ns, MINUTE, MINUTE + GRACE + MS);
    assert_int_equal(next(fixture->pool, NOW + S, 1).wait_ns, none.wait_ns - S);
    assert_int_equal(next(fixture->pool, NOW + S, 6).wait_ns, STINT_NEVER_NS);
    struct stint_pool_status status = status_of(fixture->pool, "c", NOW + S);
    assert_int_equal(status.standing, STINT_POOL_USED_UP);
    assert_int_equal(status.returns_after_ns, none.wait_ns - S);
    expect(fixture->pool, NOW + none.wait_ns - 1, "-");
    uint64_t later_ns = NOW + none.wait_ns;
    expect(other, later_ns, "ab");
    expect_left(fixture->pool, later_ns, 4, 4, 5);
    assert_int_equal(phase_of(other), TURNS_PER_KEY);
    stint_pool_close(other);
}

/* A pair of another list whose units are all free again may be taken over at once. */
static void test_a_dead_pair_is_taken_over(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    struct stint_pool *other = pool_of(fixture->table, STINT_ROUND_ROBIN, 2, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abcab");
    uint64_t dead_ns = NOW + MINUTE + 5 * S + GRACE;
    expect_left(other, dead_ns, 5, 5, 0);
    assert_int_equal(phase_of(other), TURNS_LIVE);
    assert_int_equal(phase_of(fixture->pool), TURNS_OTHER);
    stint_pool_close(other);
}

/* The same keys under another order: they are known, and so they are charged and go on. */
static void test_another_order_changes_over(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    struct stint_pool *other = pool_of(fixture->table, STINT_FILL_FIRST, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abca");
    expect(other, NOW, "aaab");
    assert_int_equal(phase_of(other), TURNS_PER_KEY);
    expect_left(fixture->pool, NOW, 0, 2, 3);
    stint_pool_close(other);
}

/* ---- Where there is no room ------------------------------------------------------------------ */

/* If a key's state finds no place, the pool is shut instead of forgetting what was used. */
static void test_no_place_for_states_shuts_the_pool(void **state)
{
    struct fixture *fixture = *state;
    struct stint_quota quota = quota_of(FIVE), filler = quota_of("window 1/1h");
    const struct stint_table_options options = {.keys16 = 1, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table;
    (void)fixture;
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    struct stint_pool *pool = pool_of(table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(pool, NOW, "abca");
    for (uint32_t key = 0; key < 64; key++)
        stint_take(table, &filler, &key, sizeof(key), 1, NOW);
    assert_int_equal(report(pool, "b", STINT_POOL_COOL, S, NOW), 0);
    assert_int_equal(phase_of(pool), TURNS_SHUT);
    expect(pool, NOW + MINUTE, "-");
    stint_pool_close(pool);
    stint_table_close(table);
}

/* If the quota of all keys finds no place among the table's, each key has its own state. */
static void test_no_place_for_the_quota_is_no_harm(void **state)
{
    struct stint_quota quota = quota_of(FIVE);
    const struct stint_table_options options = {.quotas = 1, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table;
    (void)state;
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    struct stint_pool *pool = pool_of(table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect_left(pool, NOW, 5, 5, 5);
    assert_int_equal(phase_of(pool), TURNS_PER_KEY);
    stint_pool_close(pool);
    stint_table_close(table);
}

/* ---- Files ----------------------------------------------------------------------------------- */

struct file {
    char path[64];
    struct stint_table *table;
    struct stint_pool *pool;
};

static void open_file(struct file *file, bool read_only)
{
    const struct stint_table_options options = {.path = file->path,
                                                .keys = 64,
                                                .keys16 = 64,
                                                .hash_key = {5, 6},
                                                .clock = STINT_CLOCK_VIRTUAL,
                                                .read_only = read_only};
    struct stint_quota quota = quota_of(FIVE);
    struct stint_error error;
    if (stint_table_open(&file->table, &options, &error) != 0)
        fail_msg("%s", error.sentence);
    if (!read_only)
        file->pool = pool_of(file->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
}

static void close_file(struct file *file)
{
    stint_pool_close(file->pool);
    stint_table_close(file->table);
    file->pool = NULL;
}

static void make_file(struct file *file, const char *what)
{
    *file = (struct file){.pool = NULL};
    snprintf(file->path, sizeof(file->path), "/dev/shm/stint-pool-%s-%ld", what, (long)getpid());
    unlink(file->path);
    open_file(file, false);
}

/* Flips one bit of the pool's record in a closed file. */
static void flip(struct file *file, size_t byte, unsigned bit)
{
    struct region_header header;
    unsigned char word;
    int fd = open(file->path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
    off_t at = (off_t)(header.fixed.pools_offset + byte);
    assert_int_equal(pread(fd, &word, 1, at), 1);
    word ^= (unsigned char)(1u << bit);
    assert_int_equal(pwrite(fd, &word, 1, at), 1);
    close(fd);
}

/* A pair is in the file, in a copy of it, and goes on from there. */
static void test_a_pair_outlives_its_processes(void **state)
{
    struct file file;
    char copy[80];
    (void)state;
    make_file(&file, "outlives");
    expect(file.pool, NOW, "abcab");
    stint_table_set_now(file.table, NOW);
    snprintf(copy, sizeof(copy), "%s.copy", file.path);
    assert_int_equal(stint_table_snapshot(file.table, copy, NULL), 0);
    close_file(&file);
    open_file(&file, false);
    expect(file.pool, NOW, "cabcabcabc-");
    assert_int_equal(phase_of(file.pool), TURNS_LIVE);
    close_file(&file);
    unlink(file.path);
    memcpy(file.path, copy, sizeof(file.path));
    open_file(&file, false);
    expect(file.pool, NOW, "cabcabcabc-");
    assert_int_equal(report(file.pool, "a", STINT_POOL_OUT, 0, NOW), 0);
    close_file(&file);
    open_file(&file, true);
    assert_int_equal(stint_pool_open(&file.pool, file.table, NULL, NULL), STINT_E_MISMATCH);
    close_file(&file);
    open_file(&file, false);
    assert_int_equal(phase_of(file.pool), TURNS_PER_KEY);
    expect_left(file.pool, NOW + 2 * MINUTE, 0, 5, 5);
    assert_int_equal(status_of(file.pool, "a", NOW + 2 * MINUTE).standing, STINT_POOL_IS_OUT);
    close_file(&file);
    unlink(file.path);
}

/*
 * Any bit of the record may flip: then no more is granted than the pair had left, and where the
 * damage shows, nothing for one period. What was used before is never granted once more.
 */
static void test_a_damaged_record_grants_nothing_more(void **state)
{
    struct file file;
    unsigned shut = 0, damaged = 0;
    (void)state;
    make_file(&file, "damaged");
    stint_table_set_now(file.table, NOW);
    expect(file.pool, NOW, "abcabcabcabcabc-");
    close_file(&file);
    for (unsigned bit = 0; bit < 8 * 40; bit++) {
        struct stint_table_info info;
        struct file original = file;
        char copy[80];
        snprintf(copy, sizeof(copy), "%s.%u", original.path, bit);
        open_file(&file, false);
        assert_int_equal(stint_table_snapshot(file.table, copy, NULL), 0);
        close_file(&file);
        memcpy(file.path, copy, sizeof(file.path));
        flip(&file, bit / 8, bit % 8);
        open_file(&file, false);
        stint_table_info(file.table, NOW, &info);
        bool tells = info.states_damaged > 0;
        damaged += tells;
        unsigned granted = 0;
        for (int i = 0; i < 40; i++)
            granted += next(file.pool, NOW, 1).name != NULL;
        shut += phase_of(file.pool) == TURNS_SHUT;
        /* A flip that leaves a possible window may leave one that holds less: bits of its string,
           of what is left of a bunch, and of its time. It is no other pool's, and no other phase.
         */
        bool in_window = bit >= 128 && bit < 192;
        if (!in_window && granted > 0)
            fail_msg("bit %u: %u granted", bit, granted);
        assert_true(granted <= 15);
        close_file(&file);
        unlink(file.path);
        file = original;
    }
    assert_true(damaged >= 128 + 64); /* the name, its check, at the least */
    assert_true(shut >= 128 + 64);
    unlink(file.path);
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        STORY(test_equal_keys_share_one_pair),
        STORY(test_the_order_of_a_list_does_not_matter),
        STORY(test_status_shares_out_what_is_left),
        STORY(test_one_key_has_its_own_state),
        STORY(test_not_every_pool_fits_a_pair),
        STORY(test_a_bench_changes_over),
        STORY(test_a_cost_of_2_changes_over),
        STORY(test_giving_back_changes_over),
        STORY(test_a_changed_list_changes_over),
        STORY(test_an_unused_list_may_change),
        STORY(test_only_live_units_are_carried),
        STORY(test_a_late_caller_after_a_change_gets_nothing_for_it),
        STORY(test_another_list_shuts_the_pool),
        STORY(test_a_dead_pair_is_taken_over),
        STORY(test_another_order_changes_over),
        STORY(test_no_place_for_states_shuts_the_pool),
        STORY(test_no_place_for_the_quota_is_no_harm),
        STORY(test_a_pair_outlives_its_processes),
        STORY(test_a_damaged_record_grants_nothing_more),
    };
    return cmocka_run_group_tests_name("pool turns", tests, NULL, NULL);
}
