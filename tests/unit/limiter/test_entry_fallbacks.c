/* SPDX-License-Identifier: MIT */
/*
 * More gcra quotas than a table has entries. A table whose entries are all in use decides as one
 * with an entry for each of them; where a state's quota has to be known, it errs to the safe side.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/table.h"

#define RULE 77
#define RATES 300u
#define KEYS 12u
#define STEPS 200000u

static struct stint_table_options with_quotas(uint32_t quotas)
{
    return (struct stint_table_options){.keys = 1000,
                                        .keys16 = 1000,
                                        .tickets = 16,
                                        .blocks = 16,
                                        .quotas = quotas,
                                        .hash_key = {3, 5},
                                        .clock = STINT_CLOCK_VIRTUAL};
}

static struct stint_table *open_with(uint32_t quotas)
{
    const struct stint_table_options options = with_quotas(quotas);
    return must_open_table(&options);
}

/* A table without a free entry: others have them. */
static struct stint_table *open_used_up(void)
{
    struct stint_table *table = open_with(2);
    const struct stint_quota first = quota_of("window 1/1s"), second = quota_of("window 1/2s");
    assert_int_equal(stint_table_accepts(table, &first, NULL), 0);
    assert_int_equal(stint_table_accepts(table, &second, NULL), 0);
    return table;
}

static struct stint_quota gcra(uint32_t limit, uint64_t period_ns, uint32_t burst)
{
    struct stint_quota quota = {.algorithm = STINT_GCRA,
                                .limit = limit,
                                .period_ns = period_ns,
                                .burst = burst,
                                .rule = RULE};
    assert_int_equal(stint_quota_check(&quota, NULL), 0);
    return quota;
}

/* Rates from one a year to 500,000 a second, bursts from a unit to thousands. */
static void make_rates(struct stint_quota *rates)
{
    uint64_t seed = 1;
    for (uint32_t i = 0; i < RATES; i++) {
        uint64_t period_ns = MS << next_random(&seed) % 24;
        uint32_t limit = 1 + (uint32_t)(next_random(&seed) % 500);
        rates[i] = gcra(limit, period_ns, 1 + (uint32_t)(next_random(&seed) % 3000));
        rates[i].count_denied = next_random(&seed) % 8 == 0;
        assert_int_equal(stint_quota_check(&rates[i], NULL), 0);
    }
}

static struct stint_ask random_ask(uint64_t *seed, uint64_t now_ns)
{
    static const uint8_t verbs[] = {STINT_TAKE, STINT_TAKE,   STINT_TAKE,   STINT_TAKE_UPTO,
                                    STINT_PEEK, STINT_CHARGE, STINT_REFUND, STINT_BOOK};
    return (struct stint_ask){.now_ns = now_ns,
                              .at_ns = next_random(seed) % (10 * S),
                              .cost = (uint32_t)(next_random(seed) % 12),
                              .verb = verbs[next_random(seed) % sizeof(verbs)]};
}

SETUP
{
    name_path();
}

TEARDOWN
{
    remove_file();
}

/* Every key is asked under all rates in turn, as the keys of CL.THROTTLE may be. */
TEST(test_decisions_are_those_of_a_table_with_entries)
{
    static struct stint_quota rates[RATES];
    struct stint_table *tables[] = {open_with(2 * RATES), open_used_up()};
    uint64_t seed = 2, now_ns = S;
    uint32_t allowed = 0, denied = 0;
    make_rates(rates);
    for (uint32_t i = 0; i < STEPS; i++) {
        const struct stint_quota *quota = &rates[next_random(&seed) % RATES];
        char key = (char)('a' + next_random(&seed) % KEYS);
        now_ns += next_random(&seed) % (3 * S);
        struct stint_ask ask = random_ask(&seed, now_ns);
        struct stint_decision decisions[2];
        for (size_t t = 0; t < 2; t++)
            decisions[t] = ask.verb == STINT_TAKE
                               ? stint_take(tables[t], quota, &key, 1, ask.cost, now_ns)
                               : table_ask(tables[t], quota, &key, 1, &ask, NULL, NULL);
        assert_same_decision(&decisions[0], &decisions[1]);
        allowed += decisions[0].outcome == STINT_ALLOW;
        denied += decisions[0].outcome == STINT_DENY;
    }
    assert_true(allowed > STEPS / 10 && denied > STEPS / 10);
    assert_int_equal(tables[1]->region.header->quotas, 2);
    stint_table_close(tables[0]);
    stint_table_close(tables[1]);
}

/* Both have the same capacity or a larger one, within a factor of two; the units are never fewer.
 */
TEST(test_a_fallback_is_no_smaller_than_its_quota)
{
    static struct stint_quota rates[RATES];
    struct stint_table *table = open_used_up();
    make_rates(rates);
    for (uint32_t i = 0; i < RATES; i++) {
        uint32_t id = intern_id(&table->intern, &rates[i]);
        const struct stint_quota *fallback = intern_quota(&table->intern, id);
        uint64_t capacity = rates[i].derived.capacity_ticks;
        assert_true(intern_is_fallback(&table->intern, id));
        assert_ptr_equal(intern_algorithm(&table->intern, id, &rates[i]), &rates[i]);
        assert_true(fallback->derived.capacity_ticks >= capacity);
        assert_true(fallback->derived.capacity_ticks / 2 < capacity ||
                    fallback->derived.capacity_ticks == 32768);
        assert_true(fallback->derived.capacity_ticks / fallback->derived.interval_ticks >=
                    rates[i].burst);
        assert_int_equal(fallback->when_full, STINT_FULL_INHERIT);
    }
    stint_table_close(table);
}

/* What a stand-in cannot stand for is refused: other algorithms, and bursts of more than 2^30. */
TEST(test_what_needs_an_entry_is_refused)
{
    struct stint_table *table = open_used_up();
    const struct stint_quota refused[] = {
        quota_of("window 3/1s"),
        quota_of("fixed_window 3/1s"),
        quota_of("log 3/1s"),
        quota_of("concurrency 3 lease=1s"),
        quota_of("sliding_counter 3/1s"),
        quota_of("gcra 1073741825/1d"),
    };
    const struct stint_quota stored = quota_of("gcra 1073741824/1d");
    struct stint_ticket ticket;
    struct stint_error error;
    for (size_t i = 0; i < N(refused); i++) {
        assert_int_equal(table_stores(table, &refused[i], &error), STINT_E_FULL);
        assert_non_null(strstr(error.message, "all 2 places"));
        assert_int_equal(stint_take(table, &refused[i], "k", 1, 1, S).outcome, STINT_NEVER);
    }
    assert_int_equal(table_stores(table, &stored, &error), 0);
    /* A ticket names its quotas by their entries. */
    const struct stint_item item = {&stored, "k", 1, 1};
    assert_int_equal(stint_table_accepts(table, &stored, &error), STINT_E_FULL);
    struct stint_decision decision = stint_reserve(table, &item, 1, S, S, &ticket);
    assert_int_equal(decision.outcome, STINT_NEVER);
    assert_int_equal(stint_take(table, &stored, "k", 1, 1, S).remaining, (1 << 30) - 1);
    stint_table_close(table);
}

/* Under another algorithm the same key has no fewer units in use than it has. */
TEST(test_a_change_of_the_algorithm_forgets_nothing)
{
    static const char *const others[] = {"window 5000/1h", "fixed_window 5000/1h",
                                         "sliding_counter 5000/1h"};
    for (size_t i = 0; i < N(others); i++) {
        struct stint_quota before = gcra(4000, 60 * MINUTE, 4000), after = quota_of(others[i]);
        struct stint_table *table = open_with(2);
        const struct stint_quota other = quota_of("window 1/1s");
        after.rule = RULE;
        assert_int_equal(stint_table_accepts(table, &other, NULL), 0);
        assert_int_equal(stint_table_accepts(table, &after, NULL), 0);
        assert_int_equal(stint_take(table, &before, "k", 1, 3000, S).outcome, STINT_ALLOW);
        assert_int_equal(stint_take(table, &after, "k", 1, 2001, S).outcome, STINT_DENY);
        assert_int_equal(stint_take(table, &after, "new", 3, 5000, S).outcome, STINT_ALLOW);
        stint_table_close(table);
    }
}

/* Whether such a state denies is not known, so it stays where others are forgotten. */
TEST(test_a_full_table_keeps_them)
{
    struct stint_quota drained = gcra(1, 60 * MINUTE, 1), light = gcra(3, 60 * MINUTE, 3);
    struct stint_table *table = open_with(1);
    struct stint_table_info info;
    table_set_when_full(table, STINT_FULL_EVICT);
    assert_int_equal(stint_table_accepts(table, &light, NULL), 0);
    assert_int_equal(stint_take(table, &drained, "k", 1, 1, S).outcome, STINT_ALLOW);
    for (uint32_t i = 0; i < 20000; i++)
        stint_take(table, &light, &i, sizeof(i), 1, S);
    stint_table_info(table, S, &info);
    assert_true(info.evictions_evict > 15000);
    assert_int_equal(stint_take(table, &drained, "k", 1, 1, S).outcome, STINT_DENY);
    stint_table_close(table);
}

/* States mean the same to another process that has the file open, and after it was closed. */
TEST(test_states_outlive_a_reopening)
{
    struct stint_table_options options = with_quotas(1);
    const struct stint_quota first = quota_of("window 1/1s");
    struct stint_quota slow = gcra(10, 60 * MINUTE, 10);
    struct stint_entry entry;
    struct stint_table_info info;
    options.path = path;
    struct stint_table *one = must_open_table(&options), *two = must_open_table(&options);
    assert_int_equal(stint_table_accepts(one, &first, NULL), 0);
    assert_int_equal(stint_take(one, &slow, "k", 1, 4, S).outcome, STINT_ALLOW);
    assert_int_equal(stint_take(two, &slow, "k", 1, 3, S).remaining, 3);
    stint_table_close(one);
    stint_table_close(two);
    one = must_open_table(&options);
    stint_table_info(one, S, &info);
    assert_int_equal(info.states_damaged, 0);
    assert_int_equal(stint_find(one, &slow, "k", 1, S, &entry), 0);
    assert_int_equal(entry.decision.remaining, 3);
    assert_int_equal(entry.quota.limit, 10);
    assert_int_equal(stint_take(one, &slow, "k", 1, 4, S).outcome, STINT_DENY);
    assert_int_equal(stint_take(one, &slow, "k", 1, 3, S).outcome, STINT_ALLOW);
    stint_table_close(one);
}

/* After a boot before which nobody closed the table: full for one capacity, at most for two. */
TEST(test_after_a_crash_they_are_full)
{
    struct stint_table_options options = with_quotas(1);
    const struct stint_quota first = quota_of("window 1/1s");
    struct stint_quota slow = gcra(10, 60 * MINUTE, 10);
    options.path = path;
    options.clock = STINT_CLOCK_REAL;
    struct stint_table *table = must_open_table(&options);
    assert_int_equal(stint_table_accepts(table, &first, NULL), 0);
    stint_take(table, &slow, "k", 1, 1, stint_now(table));
    stint_table_close(table);
    struct region_header header = read_header();
    header.clean = 0;
    header.boot_id ^= 2;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
    close(fd);
    table = must_open_table(&options);
    assert_true(table->filled);
    uint64_t now_ns = stint_now(table);
    struct stint_decision decision = stint_take(table, &slow, "k", 1, 1, now_ns);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_true(decision.reset_after_ns >= 60 * MINUTE);
    assert_true(decision.reset_after_ns <= 120 * MINUTE + 4 * S);
    stint_table_close(table);
}

/* Requests use up what is theirs; then a reload still has its quarter, whatever its algorithms. */
TEST(test_rules_find_an_entry_after_requests_used_theirs)
{
    struct stint_table *table = open_with(40);
    uint32_t stored = 0, kept = 0;
    table_reserve_quotas(table);
    for (uint32_t i = 1; i <= 200; i++) {
        struct stint_quota quota = {
            .algorithm = STINT_FIXED_WINDOW, .limit = i, .period_ns = MINUTE};
        assert_int_equal(stint_quota_check(&quota, NULL), 0);
        stored += table_stores(table, &quota, NULL) == 0;
        stint_take(table, &quota, "k", 1, 1, S); /* which interns nothing, either */
    }
    for (uint32_t i = 1; i <= 200; i++) {
        struct stint_quota rule = {.limit = i, .period_ns = 2 * MINUTE};
        assert_int_equal(stint_quota_check(&rule, NULL), 0);
        bool is_kept = table_keeps(table, &rule, NULL) == 0;
        kept += is_kept;
        rule.rule = i;
        assert_int_equal(stint_take(table, &rule, "k", 1, 1, S).outcome,
                         is_kept ? STINT_ALLOW : STINT_NEVER);
    }
    assert_int_equal(stored, 30);
    assert_int_equal(kept, 10);
    stint_table_close(table);
}
