/* SPDX-License-Identifier: MIT */
/*
 * What a full table forgets under `evict`, against an oracle: every unit that was granted is kept
 * by the test, every state is looked at before and after each decision, and what is missing after
 * it is what the table has counted.
 */
#include "unit/test_quota.h"

#include "net/log/log.h"
#include "table/table.h"

#include <unistd.h>

#define KEYS 60u
#define USES_MAX 40000u
#define STEPS 6000

/* One for every algorithm that has units to forget, all of the same limit and period. */
static const char *const specs[] = {
    "gcra 12/10s",
    "fixed_window 12/10s",
    "window 12/10s resolution=12",
    "window 12/10s",
    "sliding_counter 12/10s",
    "log 12/10s",
    "buckets 12/10s time_slack=1s",
    "buckets 12/10s time_slack=1s count_slack=3",
};

/* Bunches of more than a unit; a burst that is not the limit. */
static const char *const more_specs[] = {
    "window 1200/10s",
    "window 1200/10s resolution=12",
    "gcra 1200/10s burst=480",
    "buckets 120/10s time_slack=1s count_slack=30",
};

static struct stint_table *open_table(uint64_t keys)
{
    const struct stint_table_options options = {.keys = keys,
                                                .keys16 = keys,
                                                .keys_wide = keys,
                                                .wide_size = 512,
                                                .hash_key = {7, 11},
                                                .skew_max_ns = 1,
                                                .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table;
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    table_set_when_full(table, STINT_FULL_EVICT);
    return table;
}

static struct stint_table_info info_of(const struct stint_table *table, uint64_t now_ns)
{
    struct stint_table_info info;
    stint_table_info(table, now_ns, &info);
    return info;
}

static struct stint_decision take_key(struct stint_table *table, const struct stint_quota *quota,
                                      uint32_t key, uint32_t cost, uint64_t now_ns)
{
    return stint_take(table, quota, &key, sizeof(key), cost, now_ns);
}

/* ---- The oracle ------------------------------------------------------------------------------ */

struct use {
    uint64_t at_ns;
    uint32_t key, units;
};

struct world {
    struct stint_table *table;
    struct stint_quota quota;
    struct use uses[USES_MAX], losses[USES_MAX]; /* granted to a key; forgotten of a key */
    size_t n_uses, n_losses;
    uint64_t most;     /* without forgetting */
    uint32_t capacity; /* the most that a state can hold */
};

static uint64_t sum_since(const struct use *uses, size_t n, uint32_t key, uint64_t after_ns)
{
    uint64_t units = 0;
    for (size_t i = n; i-- > 0 && uses[i].at_ns > after_ns;)
        units += uses[i].key == key ? uses[i].units : 0;
    return units;
}

/* Units that each key's state holds; -1 where it has none. */
static void look(struct world *world, uint64_t now_ns, int64_t held[KEYS])
{
    for (uint32_t key = 0; key < KEYS; key++) {
        struct stint_entry entry;
        int code = stint_find(world->table, &world->quota, &key, sizeof(key), now_ns, &entry);
        held[key] = code == 0 ? (int64_t)entry.decision.limit - entry.decision.remaining : -1;
    }
}

/* At most one state has gone; what it held was counted, and it was not denying. */
static void find_victim(struct world *world, const int64_t before[KEYS], uint32_t taker,
                        uint64_t now_ns, uint64_t forgotten_units)
{
    int64_t after[KEYS];
    uint64_t missing = 0;
    look(world, now_ns, after);
    for (uint32_t key = 0; key < KEYS; key++) {
        if (key == taker || before[key] < 0 || after[key] >= 0)
            continue;
        assert_int_equal(missing, 0);
        assert_true(before[key] < world->capacity);
        missing = (uint64_t)before[key];
        world->losses[world->n_losses++] = (struct use){now_ns, key, (uint32_t)missing};
    }
    assert_int_equal(forgotten_units, missing);
}

static void step(struct world *world, uint64_t now_ns, uint64_t *seed)
{
    int64_t before[KEYS];
    bool is_favourite = next_random(seed) % 3 == 0;
    uint32_t key = (uint32_t)(next_random(seed) % (is_favourite ? 4 : KEYS));
    uint32_t cost = (1 + (uint32_t)(next_random(seed) % 4)) * world->capacity / 12;
    /* Without counting what lives, as stint_table_info() does: this is done after each decision. */
    const struct region_counters *counters = table_counters(world->table);
    uint64_t counted = counters->forgotten_units;
    look(world, now_ns, before);
    struct stint_decision decision = take_key(world->table, &world->quota, key, cost, now_ns);
    counted = counters->forgotten_units - counted;
    find_victim(world, before, key, now_ns, counted);
    if (before[key] == world->capacity)
        assert_int_equal(decision.outcome, STINT_DENY);
    if (decision.outcome != STINT_ALLOW)
        return;
    world->uses[world->n_uses++] = (struct use){now_ns, key, decision.granted};
    uint64_t after_ns = now_ns - world->quota.period_ns;
    uint64_t used = sum_since(world->uses, world->n_uses, key, after_ns);
    uint64_t lost = sum_since(world->losses, world->n_losses, key, after_ns);
    assert_true(used <= world->most + lost);
}

static void hold_to_the_oracle(const char *spec, uint64_t seed)
{
    static struct world world;
    uint64_t now_ns = 1000 * S, over = 0;
    world = (struct world){.table = open_table(12), .quota = quota_of(spec)};
    world.most = stint_max_in_any_window(&world.quota);
    world.capacity = most_units(&world.quota);
    for (unsigned n = 0; n < STEPS; n++) {
        now_ns += next_random(&seed) % (40 * MS);
        step(&world, now_ns, &seed);
        uint64_t after_ns = now_ns - world.quota.period_ns;
        for (uint32_t key = 0; key < 4; key++)
            over += sum_since(world.uses, world.n_uses, key, after_ns) > world.quota.limit;
    }
    struct stint_table_info info = info_of(world.table, now_ns);
    print_message("%-44s %5zu uses, %4zu evictions of %5llu units\n", spec, world.n_uses,
                  world.n_losses, (unsigned long long)info.forgotten_units);
    /* Also of states that are over, but not yet for callers whose clocks are late. */
    assert_true(info.evictions_evict >= world.n_losses);
    assert_true(world.n_losses > 100);
    assert_true(over > 0); /* the oracle sees that the limit alone does not hold */
    stint_table_close(world.table);
}

/* In any window a key has at most what its quota admits, and what was forgotten of it then. */
TEST(test_the_bound_is_n_and_what_was_forgotten)
{
    for (size_t i = 0; i < N(specs); i += REPEATS(1, 2))
        hold_to_the_oracle(specs[i], i);
    for (size_t i = 0; i < N(more_specs); i += REPEATS(1, 2))
        hold_to_the_oracle(more_specs[i], i);
}

/* ---- Who goes -------------------------------------------------------------------------------- */

/* Of the keys that share their slots, the one of the least share; of all sizes of limits. */
TEST(test_the_least_share_goes)
{
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_table *table = open_table(1);
        struct stint_quota quota = quota_of(specs[i]);
        const struct stint_table_info empty = info_of(table, S);
        uint32_t size_class = quota.derived.state_size == 8    ? 0
                              : quota.derived.state_size == 16 ? 1
                                                               : 2;
        uint32_t n = (uint32_t)empty.slots[size_class];
        for (uint32_t key = 0; key < n; key++) /* 11 units, 2, 3, … */
            take_key(table, &quota, key, key == 0 ? 11 : 2 + key % 8, 1000 * S);
        take_key(table, &quota, 1000, 1, 1000 * S);
        assert_int_equal(info_of(table, 1000 * S).evictions_evict, 1);
        assert_int_equal(info_of(table, 1000 * S).forgotten_units, n > 8 ? 2 : 3);
        take_key(table, &quota, 1001, 12, 1000 * S); /* it is the last one that goes again */
        assert_int_equal(info_of(table, 1000 * S).forgotten_units, n > 8 ? 3 : 4);
        stint_table_close(table);
    }
}

/* Where all deny nothing is left to forget: the new key waits, and for as long as it is said to. */
TEST(test_keys_that_are_denied_stay)
{
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_table *table = open_table(1);
        struct stint_quota quota = quota_of(specs[i]);
        for (uint32_t key = 0; key < 100; key++)
            take_key(table, &quota, key, 12, 1000 * S);
        struct stint_decision waits = take_key(table, &quota, 1000, 1, 1000 * S);
        assert_int_equal(waits.outcome, STINT_DENY);
        assert_true(waits.retry_after_ns > 0 && waits.retry_after_ns <= 40 * S);
        assert_int_equal(info_of(table, 1000 * S).forgotten_units, 0);
        assert_true(info_of(table, 1000 * S).evictions_inherit > 80);
        for (uint32_t key = 0; key < 4; key++)
            assert_int_equal(take_key(table, &quota, key, 1, 1000 * S).outcome, STINT_DENY);
        waits = take_key(table, &quota, 1000, 1, 1000 * S + waits.retry_after_ns);
        assert_int_equal(waits.outcome, STINT_ALLOW);
        stint_table_close(table);
    }
}

/* A key with a last unit left is not denied yet, and has more to lose than any other. */
TEST(test_the_last_unit_counts)
{
    struct stint_table *table = open_table(1);
    struct stint_quota quota = quota_of("gcra 2/10s");
    for (uint32_t key = 0; key < 8; key++)
        take_key(table, &quota, key, 1, 1000 * S);
    assert_int_equal(take_key(table, &quota, 8, 1, 1000 * S).outcome, STINT_ALLOW);
    assert_int_equal(info_of(table, 1000 * S).forgotten_units, 1);
    stint_table_close(table);
}

/* ---- Whose word counts ----------------------------------------------------------------------- */

/* What a quota says of itself is stronger than what the table was told. */
TEST(test_a_quotas_own_choice_is_stronger)
{
    static const struct {
        const char *spec;
        uint8_t otherwise, becomes;
    } cases[] = {
        {"window 5/1h", STINT_FULL_DEFAULT, STINT_FULL_INHERIT},
        {"gcra 5/1h", STINT_FULL_DEFAULT, STINT_FULL_EVICT},
        {"concurrency 5 lease=1h", STINT_FULL_DEFAULT, STINT_FULL_INHERIT},
        {"window 5/1h", STINT_FULL_EVICT, STINT_FULL_EVICT},
        {"window 5/1h when_full=inherit", STINT_FULL_EVICT, STINT_FULL_INHERIT},
        {"log 5/1h", STINT_FULL_EVICT, STINT_FULL_EVICT},
        {"log 5/1h when_full=deny", STINT_FULL_EVICT, STINT_FULL_DENY},
        {"gcra 5/1h", STINT_FULL_INHERIT, STINT_FULL_INHERIT},
        {"gcra 5/1h when_full=evict", STINT_FULL_INHERIT, STINT_FULL_EVICT},
        {"gcra 5/1h", STINT_FULL_ALLOW, STINT_FULL_ALLOW},
        /* Holders hold on whether the table knows it or not. */
        {"concurrency 5 lease=1h", STINT_FULL_EVICT, STINT_FULL_INHERIT},
        {"concurrency 5 lease=1h when_full=evict", STINT_FULL_DENY, STINT_FULL_INHERIT},
        {"concurrency 5 lease=1h", STINT_FULL_DENY, STINT_FULL_DENY},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_quota quota = quota_of(cases[i].spec);
        assert_int_equal(algorithm_when_full(&quota, cases[i].otherwise), cases[i].becomes);
    }
}

/* The victim's quota decides whether it may go, whatever the one says that wants its slot. */
TEST(test_a_strict_state_goes_only_if_its_own_quota_lets_it)
{
    struct stint_table *table = open_table(1);
    struct stint_quota keeps = quota_of("window 5/1h when_full=inherit");
    struct stint_quota open = quota_of("window 5/1h");
    for (uint32_t key = 0; key < 100; key++)
        take_key(table, &keeps, key, 1, 1000 * S);
    assert_int_equal(take_key(table, &open, 500, 1, 1000 * S).outcome, STINT_DENY);
    assert_int_equal(info_of(table, 1000 * S).forgotten_units, 0);
    table_set_when_full(table, STINT_FULL_INHERIT);
    stint_table_close(table);

    table = open_table(1);
    for (uint32_t key = 0; key < 100; key++)
        assert_int_equal(take_key(table, &open, key, 1, 1000 * S).outcome, STINT_ALLOW);
    assert_int_equal(take_key(table, &keeps, 500, 1, 1000 * S).outcome, STINT_ALLOW);
    uint64_t forgotten = info_of(table, 1000 * S).forgotten_units;
    assert_true(forgotten > 80);
    table_set_when_full(table, STINT_FULL_DENY); /* at once, for the states that are there */
    assert_int_equal(take_key(table, &open, 501, 1, 1000 * S).outcome, STINT_DENY);
    assert_int_equal(info_of(table, 1000 * S).forgotten_units, forgotten);
    assert_true(info_of(table, 1000 * S).full_denied == 1);
    stint_table_close(table);
}

/* Somebody who uses half of a quota and floods to be forgotten has what is counted, and no more. */
TEST(test_a_flood_to_be_forgotten_is_counted)
{
    struct stint_table *table = open_table(1);
    struct stint_quota quota = quota_of("window 12/1h");
    uint64_t used = 0, rounds = 50;
    for (uint32_t round = 0; round < rounds; round++) {
        for (unsigned units = 0; units < 6; units++)
            used += take_key(table, &quota, 0, 1, 1000 * S).granted;
        for (uint32_t key = 1; key < 40;
             key++) /* keys with more debt, so that the first one goes */
            take_key(table, &quota, 1000 * (round + 1) + key, 7, 1000 * S);
    }
    assert_true(used > 12);
    assert_true(used <= 12 + info_of(table, 1000 * S).forgotten_units);
    stint_table_close(table);
}

/* ---- The log --------------------------------------------------------------------------------- */

static void evict_some(struct stint_table *table, const struct stint_quota *quota, uint32_t first)
{
    for (uint32_t key = first; key < first + 100; key++)
        take_key(table, quota, key, 1, 1000 * S);
}

/* At once, then once a minute at most, and each line counts from the one before it. */
TEST(test_the_log_says_it_once_a_minute)
{
    struct stint_table *table = open_table(1);
    struct stint_quota quota = quota_of("window 12/1h");
    struct eviction_report report;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = log_new(ends[1], LOG_FORMAT_TEXT, LOG_LEVEL_WARN);
    evict_some(table, &quota, 0);
    eviction_report_init(&report, table); /* what a file remembers is no news */
    eviction_report(&report, table, 1000 * S, log);
    evict_some(table, &quota, 100);
    for (uint64_t second = 1001; second < 1061; second++) {
        eviction_report(&report, table, second * S, log);
        evict_some(table, &quota, 200);
    }
    eviction_report(&report, table, 1061 * S, log);
    eviction_report(&report, table, 1300 * S, log);
    log_free(log);
    close(ends[1]);
    char text[4096] = "";
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    close(ends[0]);
    const char *first = strstr(text, "evictions=100 units=100\n");
    assert_non_null(first);
    const char *second = strstr(first + 1, "evictions=");
    assert_non_null(second);
    assert_null(strstr(second + 1, "evictions="));
    stint_table_close(table);
}
