/* SPDX-License-Identifier: MIT */
/*
 * A table file comes back with flipped bits. Opening it and going on never crashes, hangs or reads
 * past anything (the sanitizers look on), and no state is from a time that never was. What is not
 * damaged is never taken to be.
 */
#define _GNU_SOURCE
#include "store/region.h"

#include "asking.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* One thread: under a sanitizer of threads each round takes thirty times as long for nothing. */
#ifdef __SANITIZE_THREAD__
#define ROUNDS 600
#else
#define ROUNDS 6000
#endif
#define KEYS 24
#define TICKETS 16
#define START (YEAR / 2)
#define STEP (700 * MS)

static const char *const specs[] = {
    "window 20/1m resolution=12",
    "window 23/1s resolution=10",
    "window 20/1m",
    "window 1000/1h resolution=16",
    "gcra 20/1m burst=7",
    "fixed_window 20/1m",
    "fixed_window 20/1mo align=calendar",
    "fixed_window 7/10s align=first_use",
    "sliding_counter 20/1m",
    "buckets 20/1m time_slack=6s count_slack=5",
    "buckets 9/1m count_slack=2",
    "log 20/1m",
    "concurrency 6 lease=30s",
};
#define N_SPECS (sizeof(specs) / sizeof(specs[0]))

static struct stint_quota quotas[N_SPECS], wider[N_SPECS];
static char path[64], copy_path[80];

/* What a program keeps of a table between two openings. */
struct user {
    struct stint_table *table;
    uint64_t now_ns, seed;
    struct stint_ticket tickets[TICKETS];
};

static uint64_t draw(struct user *user, uint64_t below)
{
    return next_random(&user->seed) % below;
}

static int open_table(struct user *user, bool read_only, struct stint_error *error)
{
    struct stint_table_options options = {
        .path = path,
        .keys = 48,
        .keys16 = 48,
        .keys_wide = 48,
        .wide_size = 400,
        .tickets = 32,
        .blocks = 16,
        .quotas = 48,
        .hash_key = {1, 2},
        .epoch_ns = INT64_C(1700000000) * (int64_t)S,
        .clock = STINT_CLOCK_VIRTUAL,
        .read_only = read_only,
        .must_exist = read_only,
    };
    return stint_table_open(&user->table, &options, error);
}

static struct stint_item item_of(struct user *user, char *key, size_t key_size)
{
    size_t which = (size_t)draw(user, N_SPECS);
    const struct stint_quota *quota = draw(user, 8) == 0 ? &wider[which] : &quotas[which];
    int key_len = snprintf(key, key_size, "%llu", (unsigned long long)draw(user, KEYS));
    return (struct stint_item){quota, key, (size_t)key_len, (uint32_t)draw(user, 6)};
}

static void use_ticket(struct user *user, const struct stint_item *items, size_t n_items)
{
    struct stint_ticket *ticket = &user->tickets[draw(user, TICKETS)];
    switch (draw(user, 5)) {
    case 0:
        stint_reserve(user->table, items, n_items, MINUTE, user->now_ns, ticket);
        break;
    case 1:
        stint_book(user->table, items, 1, draw(user, 2 * MINUTE), user->now_ns, ticket);
        break;
    case 2:
        stint_settle(user->table, *ticket, (uint32_t)draw(user, 9), user->now_ns, NULL);
        break;
    case 3:
        stint_cancel(user->table, *ticket, user->now_ns, NULL);
        break;
    default:
        stint_renew(user->table, *ticket, user->now_ns);
    }
}

static void use_once(struct user *user)
{
    char keys[2][24];
    struct stint_item items[2] = {item_of(user, keys[0], sizeof(keys[0])),
                                  item_of(user, keys[1], sizeof(keys[1]))};
    const struct stint_item *one = &items[0];
    size_t which =
        (size_t)(one->quota >= wider && one->quota < wider + N_SPECS ? one->quota - wider
                                                                     : one->quota - quotas);
    struct stint_table *table = user->table;
    uint64_t now_ns = user->now_ns;
    switch (draw(user, 12)) {
    case 0:
        stint_take_all(table, items, 2, now_ns);
        break;
    case 1:
        stint_take_upto(table, items, 2, now_ns);
        break;
    case 2:
        stint_charge(table, items, 2, now_ns);
        break;
    case 3:
        stint_refund(table, items, 1, now_ns - draw(user, MINUTE), now_ns);
        break;
    case 4:
    case 5:
        use_ticket(user, items, 2);
        break;
    case 6:
        if (draw(user, 4) == 0)
            stint_reset(table, one->quota, one->key, one->key_len, now_ns);
        break;
    case 7:
        if (draw(user, 8) == 0)
            stint_block(table, one->key, one->key_len, now_ns + draw(user, MINUTE), now_ns);
        break;
    case 8:
        stint_set_quota(table, &quotas[which], &wider[which], one->key, one->key_len, now_ns);
        break;
    default:
        stint_take(table, one->quota, one->key, one->key_len, one->cost, now_ns);
    }
}

static void use(struct user *user, int times)
{
    while (times-- > 0) {
        user->now_ns += draw(user, STEP);
        use_once(user);
    }
    stint_table_set_now(user->table, user->now_ns);
}

/* Nothing is left from a later time than the table knows of, or than a quota may reach ahead. */
struct seen_states {
    uint64_t latest_ns, live;
};

static bool see(const struct stint_entry *entry, void *arg)
{
    struct seen_states *seen = arg;
    seen->live++;
    assert_true(entry->dies_at_ns <= seen->latest_ns + 3 * entry->quota.period_ns + YEAR);
    return true;
}

static struct stint_table_info look_at_all(struct user *user)
{
    struct stint_table_info info;
    struct stint_entry entry;
    char key[24];
    stint_table_info(user->table, user->now_ns, &info);
    uint64_t table_ns = stint_now(user->table);
    struct seen_states seen = {.latest_ns = 10 * YEAR + user->now_ns + info.mark_ns};
    seen.latest_ns += table_ns < STINT_NOW_MAX ? table_ns : STINT_NOW_MAX;
    stint_table_each(user->table, user->now_ns, see, &seen);
    for (int i = 0; i < 8; i++) {
        struct stint_item item = item_of(user, key, sizeof(key));
        stint_find(user->table, item.quota, item.key, item.key_len, user->now_ns, &entry);
    }
    return info;
}

static void make_path(void)
{
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, sizeof(path), "%s/stint-damaged-%ld", folder, (long)getpid());
    snprintf(copy_path, sizeof(copy_path), "%s.copy", path);
}

static int set_up(void **unused)
{
    (void)unused;
    make_path();
    for (size_t i = 0; i < N_SPECS; i++) {
        quotas[i] = quota_of(specs[i]);
        wider[i] = quotas[i];
        wider[i].limit++;
        assert_int_equal(stint_quota_check(&wider[i], NULL), STINT_OK);
    }
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    unlink(path);
    unlink(copy_path);
    return 0;
}

/* However a table is used and left, no state of it is taken to be damaged when it is opened. */
static void test_what_was_left_whole_is_never_taken_to_be_damaged(void **unused)
{
    struct user user = {.now_ns = START, .seed = 5};
    struct stint_error error;
    uint64_t live = 0;
    (void)unused;
    for (int round = 0; round < 400; round++) {
        assert_int_equal(open_table(&user, false, &error), 0);
        struct stint_table_info info = look_at_all(&user);
        assert_int_equal(info.states_damaged, 0);
        live += info.live[0] + info.live[1] + info.live[2];
        use(&user, round == 0 ? 2000 : 100);
        if (round % 50 == 49)
            assert_int_equal(stint_table_snapshot(user.table, copy_path, &error), 0);
        stint_table_close(user.table);
        if (round % 50 == 49)
            assert_int_equal(rename(copy_path, path), 0);
        assert_int_equal(open_table(&user, true, &error), 0);
        struct stint_table_info seen = look_at_all(&user);
        assert_int_equal(seen.states_damaged, 0);
        stint_table_close(user.table);
    }
    assert_true(live > 400 * 40);
    unlink(path);
}

/* One part of a region, chosen so that every part gets as many flips as every other. */
static void part_of(const struct region_fixed *fixed, uint64_t which, uint64_t *first,
                    uint64_t *size)
{
    const struct class_layout *layout = &fixed->classes[which % CLASSES];
    *first = layout->offset;
    *size = layout->sets * layout->set_size;
    if (which == CLASSES) {
        *first = offsetof(struct region_header, fixed_checksum) + 8;
        *size = sizeof(struct region_header) - *first;
    } else if (which == CLASSES + 1) {
        *first = fixed->quotas_offset;
        *size = 40 * (sizeof(struct stint_quota) + 8);
    } else if (which == CLASSES + 2) {
        *first = fixed->tickets_offset;
        *size = (uint64_t)fixed->tickets_max * TICKET_SIZE;
    }
}

static void flip_bits(struct user *user, uint8_t *bytes)
{
    struct region_fixed fixed;
    memcpy(&fixed, bytes, sizeof(fixed));
    uint64_t flips = UINT64_C(1) << draw(user, 8);
    while (flips-- > 0) {
        uint64_t first, size;
        uint64_t which = draw(user, 24); /* the header seldom: it may forbid to open at all */
        part_of(&fixed, which < CLASSES + 3 ? which : which % CLASSES, &first, &size);
        bytes[first + draw(user, size)] ^= (uint8_t)(1u << draw(user, 8));
    }
}

static uint8_t *map_file(size_t *size)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    *size = (size_t)status.st_size;
    uint8_t *at = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    close(fd);
    return at;
}

/* Opens a damaged file as its readers and users would; false if it is refused. */
static bool go_on(struct user *user, uint64_t *damaged)
{
    struct stint_error error;
    int code = open_table(user, true, &error);
    if (code == 0) {
        look_at_all(user);
        stint_table_close(user->table);
    }
    if (open_table(user, false, &error) != 0) {
        assert_int_equal(error.code, STINT_E_CORRUPT);
        return false;
    }
    assert_int_equal(code, 0);
    struct stint_table_info before = look_at_all(user);
    use(user, 60);
    look_at_all(user);
    stint_table_close(user->table);

    /* What was mended is whole. */
    assert_int_equal(open_table(user, false, &error), 0);
    struct stint_table_info after = look_at_all(user);
    assert_int_equal(after.states_damaged, before.states_damaged);
    if (draw(user, 16) == 0)
        stint_table_snapshot(user->table, copy_path, &error);
    stint_table_close(user->table);
    *damaged += before.states_damaged < 100000 ? before.states_damaged : 0;
    return true;
}

static void test_a_damaged_file_is_refused_or_mended(void **unused)
{
    struct user whole = {.now_ns = START, .seed = 7};
    struct stint_error error;
    uint64_t opened = 0, damaged = 0;
    size_t size;
    (void)unused;
    assert_int_equal(open_table(&whole, false, &error), 0);
    use(&whole, 3000);
    stint_table_close(whole.table);
    uint8_t *bytes = map_file(&size), *pristine = malloc(size);
    assert_non_null(pristine);
    memcpy(pristine, bytes, size);
    for (int round = 0; round < ROUNDS; round++) {
        struct user user = whole;
        user.seed = (uint64_t)round + 11;
        memcpy(bytes, pristine, size);
        flip_bits(&user, bytes);
        opened += go_on(&user, &damaged);
    }
    munmap(bytes, size);
    free(pristine);
    assert_true(opened > ROUNDS / 2);
    assert_true(damaged > opened);
}

/* A damaged state is full for a period, and then as new. */
static void test_a_damaged_state_is_full_for_a_period(void **unused)
{
    static const size_t strict[] = {0, 2, 9, 11}; /* all per minute */
    enum { N_STRICT = sizeof(strict) / sizeof(strict[0]) };
    struct stint_error error;
    struct user user = {.now_ns = START, .seed = 1};
    (void)unused;
    unlink(path);
    assert_int_equal(open_table(&user, false, &error), 0);
    for (size_t i = 0; i < N_STRICT; i++)
        assert_int_equal(stint_take(user.table, &quotas[strict[i]], "k", 1, 1, START).outcome,
                         STINT_ALLOW);
    stint_table_close(user.table);

    size_t size;
    uint8_t *bytes = map_file(&size);
    const struct region_fixed *fixed = (const void *)bytes;
    for (int class = 0; class <= CLASS_WIDE; class ++) {
        const struct class_layout *layout = &fixed->classes[class];
        for (uint64_t slot = 0; slot < layout->sets * WAYS; slot++) {
            uint64_t way = slot % WAYS, half = way / HALF_WAYS;
            uint8_t *set = bytes + layout->offset + slot / WAYS * layout->set_size;
            struct pair *pair =
                (struct pair *)(void *)(set + half * layout->half_size) + way % HALF_WAYS;
            uint8_t *state = set + layout->state_offset + half * layout->state_half +
                             way % HALF_WAYS * (size_t)layout->state_stride;
            if (pair->first == 0)
                continue;
            if (class == CLASS_8)
                pair->second ^= 2; /* a bar becomes a star */
            else
                state[class == CLASS_16 ? 0 : 16] ^= 0xfe;
        }
    }
    munmap(bytes, size);

    assert_int_equal(open_table(&user, false, &error), 0);
    uint64_t last_ns = 0;
    for (size_t i = 0; i < N_STRICT; i++) {
        const struct stint_quota *quota = &quotas[strict[i]];
        struct stint_decision full = stint_take(user.table, quota, "k", 1, 1, START + 1);
        assert_int_equal(full.outcome, STINT_DENY);
        assert_true(full.retry_after_ns > MINUTE - 10 * MS);
        assert_true(full.retry_after_ns < MINUTE * 5 / 4);
        last_ns = full.retry_after_ns > last_ns ? full.retry_after_ns : last_ns;
    }
    for (size_t i = 0; i < N_STRICT; i++) {
        const struct stint_quota *quota = &quotas[strict[i]];
        struct stint_decision new =
            stint_take(user.table, quota, "k", 1, quota->limit, START + 1 + last_ns);
        assert_int_equal(new.outcome, STINT_ALLOW);
    }
    struct stint_table_info info = look_at_all(&user);
    assert_int_equal(info.states_damaged, N_STRICT);
    stint_table_close(user.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_left_whole_is_never_taken_to_be_damaged),
        cmocka_unit_test(test_a_damaged_file_is_refused_or_mended),
        cmocka_unit_test(test_a_damaged_state_is_full_for_a_period),
    };
    /* A loop without end is a failure, too: of its own time, however busy the machine is. */
    setrlimit(RLIMIT_CPU, &(struct rlimit){250, 260});
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
