/* SPDX-License-Identifier: MIT */
/* One rule under quotas whose states differ in size: where its key stands, moves, and is left. */
#define _GNU_SOURCE
#include "unit/test.h"

#include "table/slot/rule.h"
#include "table/table.h"

#include "base/wide_int.h"

#include <unistd.h>

#define NOW (UINT64_C(1000) * NS_PER_S)
#define LIMIT 3
static const struct hash128 hash = {7, 9};

/* Algorithms that lose no unit to the grain of their slots when a key goes there and back at one
 * time. */
static const char *const specs[] = {
    "fixed_window 3/1h",          "window 3/1h resolution=12", "window 3/1h",
    "window 3/1h resolution=100", "sliding_counter 3/1h",      "log 3/1h",
    "buckets 3/1h time_slack=6m",
};
#define N_SPECS (N(specs))

struct pair_of_quotas {
    struct stint_table *table;
    struct stint_quota from, to;
};

static struct stint_quota ruled(const char *spec)
{
    struct stint_quota quota;
    assert_int_equal(stint_quota_parse(&quota, spec, NULL), 0);
    quota.rule = 77;
    return quota;
}

static struct stint_table *open_at(const char *path)
{
    const struct stint_table_options options = {.path = path,
                                                .keys = 16,
                                                .keys16 = 16,
                                                .keys_wide = 16,
                                                .wide_size = 2048,
                                                .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table;
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    return table;
}

/* Runs a test on two quotas of every two classes. */
static void with_every_two(void (*test)(struct pair_of_quotas *two))
{
    for (size_t i = 0; i < N_SPECS; i++) {
        for (size_t j = 0; j < N_SPECS; j++) {
            struct pair_of_quotas two = {.from = ruled(specs[i]), .to = ruled(specs[j])};
            if (table_class(&two.from) == table_class(&two.to))
                continue;
            two.table = open_at(NULL);
            test(&two);
            stint_table_close(two.table);
        }
    }
}

static struct stint_decision ask(struct stint_table *table, const struct stint_quota *quota,
                                 uint8_t verb, uint32_t cost, uint64_t now_ns)
{
    const struct stint_ask ask = {.now_ns = now_ns, .at_ns = now_ns, .cost = cost, .verb = verb};
    return table_ask_hash(table, quota, hash, &ask, NULL, NULL);
}

static struct stint_decision take(struct stint_table *table, const struct stint_quota *quota,
                                  uint32_t cost, uint64_t now_ns)
{
    return ask(table, quota, STINT_TAKE, cost, now_ns);
}

static struct seen find(const struct pair_of_quotas *two, const struct stint_quota *quota)
{
    const struct slots *slots = &two->table->slots[table_class(quota)];
    struct home home = slots_home(slots, hash);
    return slots_find(slots, &home);
}

/* Freezes the key's slot as a mover does who is killed then; returns until when its units live. */
static uint64_t freeze(struct pair_of_quotas *two, const struct stint_quota *quota)
{
    struct asking asking = entry_looking(two->table, table_class(quota), NOW);
    struct seen seen = find(two, quota);
    struct entry_state state;
    asking.hash = hash;
    asking.home = slots_home(asking.slots, hash);
    assert_true(entry_read(&asking, &seen, &state));
    uint64_t until_ns = algorithm_expires_at(state.quota, &state.as);
    assert_true(asking.slots->ops->freeze(&asking, &seen, &state, until_ns));
    return until_ns;
}

static unsigned slots_in_use(const struct pair_of_quotas *two)
{
    unsigned n = 0;
    for (int class = CLASS_8; class <= CLASS_WIDE; class ++) {
        const struct slots *slots = &two->table->slots[class];
        for (uint64_t slot = 0; slot < slots->sets * WAYS; slot++) {
            uint8_t *set = slots->base + slot / WAYS * slots->set_size;
            n += slots_see(slots, set, (unsigned)(slot % WAYS)).pair.first != 0;
        }
    }
    return n;
}

static void move_there_and_back(struct pair_of_quotas *two)
{
    assert_int_equal(take(two->table, &two->from, 1, NOW).outcome, STINT_ALLOW);
    assert_int_equal(take(two->table, &two->to, 1, NOW).outcome, STINT_ALLOW);
    assert_null(find(two, &two->from).at);
    assert_int_equal(take(two->table, &two->from, 1, NOW).outcome, STINT_ALLOW);
    assert_null(find(two, &two->to).at);
    assert_int_equal(take(two->table, &two->to, 1, NOW).outcome, STINT_DENY);
    assert_int_equal(slots_in_use(two), 1);
}

/* A booked place in a cell that its caller owns: no other refund frees it before it begins. */
TEST(test_a_refund_of_a_cell_leaves_booked_places_alone)
{
    struct stint_quota quota = ruled("gcra 2/2s burst=1");
    struct stint_cell8 cell = {0};
    assert_int_equal(stint_cell8_take(&quota, &cell, 0, 1).granted, 1);
    struct stint_ask book = {.cost = 1, .at_ns = 10 * NS_PER_S, .verb = STINT_BOOK};
    assert_int_equal(stint_cell8_ask(&quota, &cell, &book).retry_after_ns, NS_PER_S);
    const struct stint_cell8 before = cell;
    struct stint_ask back = {.cost = 1, .verb = STINT_REFUND};
    assert_int_equal(stint_cell8_ask(&quota, &cell, &back).granted, 0);
    assert_int_equal(cell.word, before.word);
}

/* A grant takes the key with it, and leaves nothing behind. */
TEST(test_the_key_stands_where_it_was_granted_last)
{
    with_every_two(move_there_and_back);
}

static void refuse_and_look(struct pair_of_quotas *two)
{
    assert_int_equal(take(two->table, &two->from, 2, NOW).outcome, STINT_ALLOW);
    struct seen before = find(two, &two->from);
    struct stint_decision peek = ask(two->table, &two->to, STINT_PEEK, 1, NOW);
    assert_int_equal(peek.outcome, STINT_ALLOW);
    assert_int_equal(peek.remaining, 0);
    assert_int_equal(ask(two->table, &two->to, STINT_TAKE, 0, NOW).remaining, 1);
    assert_int_equal(take(two->table, &two->to, 2, NOW).outcome, STINT_DENY);
    assert_int_equal(take(two->table, &two->to, LIMIT + 1, NOW).outcome, STINT_NEVER);
    struct seen after = find(two, &two->from);
    assert_ptr_equal(after.at, before.at);
    assert_true(pair_equals(after.pair, before.pair));
    assert_int_equal(slots_in_use(two), 1);
}

/* What takes nothing moves nothing, and is decided by the units that stand elsewhere. */
TEST(test_a_refusal_leaves_the_key_where_it_is)
{
    with_every_two(refuse_and_look);
}

/* Two quotas of one class: the second has forgotten what the first still counts. */
static const char *const same_class[][2] = {
    {"log 2/1m", "log 5/1s"},
    {"log 2/1m", "window 5/1s resolution=40"},
    {"window 2/1m resolution=100", "log 5/1s"},
    {"buckets 2/1m count_slack=1", "log 5/1s"},
    {"window 2/1m", "window 5/1s"},
    {"window 2/1m resolution=12", "window 5/1s resolution=12"},
    {"fixed_window 2/1m align=first_use", "gcra 5/1s"},
};

/* A peek takes nothing, and neither does a list that is refused: the first quota still counts. */
TEST(test_a_peek_in_the_same_class_leaves_the_state)
{
    for (size_t i = 0; i < N(same_class); i++) {
        struct pair_of_quotas two = {open_at(NULL), ruled(same_class[i][0]),
                                     ruled(same_class[i][1])};
        assert_int_equal(table_class(&two.from), table_class(&two.to));
        assert_int_equal(take(two.table, &two.from, 2, NOW).outcome, STINT_ALLOW);
        for (uint64_t now_ns = NOW; now_ns <= NOW + 2 * NS_PER_S; now_ns += NS_PER_S)
            assert_int_equal(ask(two.table, &two.to, STINT_PEEK, 1, now_ns).outcome, STINT_ALLOW);
        assert_int_equal(take(two.table, &two.from, 1, NOW + 2 * NS_PER_S).outcome, STINT_DENY);
        stint_table_close(two.table);
    }
}

/*
 * A slot ends later than now, and the oldest one comes back exactly then. A change of algorithm
 * must date neither at its end.
 */
TEST(test_the_oldest_slot_is_carried)
{
    static const char *const others[] = {"log 100/1m",
                                         "buckets 100/1m time_slack=6s",
                                         "buckets 100/1m count_slack=5",
                                         "window 100/1m resolution=40",
                                         "window 100/1m resolution=12",
                                         "window 100/1m"};
    const uint64_t first_ns = 102400 * NS_PER_MS, now_ns = 160100 * NS_PER_MS;
    for (size_t i = 0; i < N(others) * N(others); i++) {
        struct pair_of_quotas two = {open_at(NULL), ruled(others[i / N(others)]),
                                     ruled(others[i % N(others)])};
        assert_int_equal(take(two.table, &two.from, 99, first_ns).outcome, STINT_ALLOW);
        assert_int_equal(take(two.table, &two.from, 1, now_ns).outcome, STINT_ALLOW);
        assert_int_equal(take(two.table, &two.to, 1, now_ns).outcome, STINT_DENY);
        stint_table_close(two.table);
    }
}

/* An algorithm that cannot say all the units that the other holds must not be given them. */
TEST(test_more_units_than_the_limit_stay)
{
    struct pair_of_quotas two = {open_at(NULL), ruled("window 9/1h"), ruled("log 4/1h")};
    assert_int_equal(take(two.table, &two.from, 8, NOW).outcome, STINT_ALLOW);
    assert_int_equal(take(two.table, &two.to, 1, NOW).outcome, STINT_DENY);
    assert_int_equal(ask(two.table, &two.to, STINT_CHARGE, 1, NOW).granted, 0);
    assert_int_equal(ask(two.table, &two.to, STINT_REFUND, 1, NOW).granted, 0);
    assert_int_equal(ask(two.table, &two.to, STINT_BOOK, 1, NOW).outcome, STINT_DENY);
    assert_int_equal(take(two.table, &two.from, 2, NOW).outcome, STINT_DENY);
    assert_int_equal(take(two.table, &two.from, 1, NOW).outcome, STINT_ALLOW);
    stint_table_close(two.table);
}

static void refund_elsewhere(struct pair_of_quotas *two)
{
    take(two->table, &two->from, LIMIT, NOW);
    uint32_t back = ask(two->table, &two->to, STINT_REFUND, 2, NOW).granted;
    /* A unit from a slot that ends later than now was not granted now, as far as the other knows.
     */
    bool has_slots = two->from.algorithm == STINT_WINDOW || two->to.algorithm == STINT_WINDOW;
    assert_true(back == 2 || (has_slots && back < 2));
    if (back > 0)
        assert_int_equal(take(two->table, &two->from, back, NOW).outcome, STINT_ALLOW);
    assert_int_equal(take(two->table, &two->to, 1, NOW).outcome, STINT_DENY);
    assert_int_equal(take(two->table, &two->from, 1, NOW).outcome, STINT_DENY);
}

/* What was granted under one quota can be given back under the other, and is there for both. */
TEST(test_units_come_back_from_the_other_class)
{
    with_every_two(refund_elsewhere);
}

static void outlive(struct pair_of_quotas *two)
{
    uint64_t later_ns = NOW + 3 * UINT64_C(3600) * NS_PER_S;
    take(two->table, &two->from, LIMIT, NOW);
    assert_int_equal(take(two->table, &two->to, LIMIT, later_ns).outcome, STINT_ALLOW);
    assert_int_equal(take(two->table, &two->from, 1, later_ns).outcome, STINT_DENY);
    assert_int_equal(slots_in_use(two), 1);
}

/* A state that is dead in another class is nothing to wait for. */
TEST(test_a_expired_state_elsewhere_goes)
{
    with_every_two(outlive);
}

static void come_late(struct pair_of_quotas *two)
{
    uint64_t over_ns = NOW + take(two->table, &two->from, LIMIT, NOW).reset_after_ns;
    assert_int_equal(ask(two->table, &two->to, STINT_PEEK, LIMIT, over_ns).outcome, STINT_ALLOW);
    assert_int_equal(take(two->table, &two->to, 0, over_ns).outcome, STINT_ALLOW);
    assert_int_equal(take(two->table, &two->to, LIMIT + 1, over_ns).outcome, STINT_NEVER);
    assert_int_equal(take(two->table, &two->from, LIMIT, over_ns - 1).outcome, STINT_DENY);
    assert_int_equal(take(two->table, &two->to, LIMIT, over_ns).outcome, STINT_ALLOW);
    assert_int_equal(take(two->table, &two->from, 1, over_ns - 1).outcome, STINT_DENY);
    assert_int_equal(slots_in_use(two), 1);
}

/* A state that is seen to have expired stays for a caller whose clock is behind. */
TEST(test_an_expired_state_elsewhere_stays_for_late_callers)
{
    with_every_two(come_late);
}

/* In a class that is full, a key whose state elsewhere has expired is as any new key. */
TEST(test_an_expired_state_elsewhere_is_none_in_a_full_class)
{
    const uint64_t later_ns = NOW + 3 * UINT64_C(3600) * NS_PER_S;
    static const char *const full[] = {"window 3/1h when_full=inherit",
                                       "window 3/1h when_full=deny", "window 3/1h when_full=allow"};
    for (size_t i = 0; i < N(full); i++) {
        struct pair_of_quotas two = {open_at(NULL), ruled("window 3/1h resolution=12"),
                                     ruled(full[i])};
        struct stint_ask one = {.now_ns = later_ns, .cost = 1, .verb = STINT_TAKE};
        struct stint_decision other;
        take(two.table, &two.from, LIMIT, NOW);
        for (uint64_t key = 1; key < 400; key++) {
            const struct hash128 new_hash = {key << 32 | key << 20, hash.hi + key};
            other = table_ask_hash(two.table, &two.to, new_hash, &one, NULL, NULL);
        }
        assert_int_equal(other.stored, 0);
        struct stint_decision decision = take(two.table, &two.to, 1, later_ns);
        assert_int_equal(decision.outcome, other.outcome);
        assert_int_equal(decision.stored, 0);
        assert_int_equal(decision.retry_after_ns, other.retry_after_ns);
        stint_table_close(two.table);
    }
}

static void deny_until_over(struct pair_of_quotas *two, uint64_t until_ns)
{
    uint64_t over_ns = until_ns + table_grace_ns(two->table) + NS_PER_S;
    const struct stint_quota *quotas[] = {&two->to, &two->from};
    for (size_t i = 0; i < 2; i++) {
        struct stint_decision denied = take(two->table, quotas[i], 1, NOW);
        assert_int_equal(denied.outcome, STINT_DENY);
        assert_in_range(denied.retry_after_ns, until_ns - NOW, over_ns - NOW);
        assert_int_equal(take(two->table, quotas[i], LIMIT + 1, NOW).outcome, STINT_NEVER);
    }
    assert_int_equal(take(two->table, &two->to, LIMIT, over_ns).outcome, STINT_ALLOW);
    assert_int_equal(take(two->table, &two->from, 1, over_ns).outcome, STINT_DENY);
    assert_int_equal(slots_in_use(two), 1);
}

static void die_with_it_frozen(struct pair_of_quotas *two)
{
    take(two->table, &two->from, 1, NOW);
    deny_until_over(two, freeze(two, &two->from));
}

/* Killed before the units had arrived: full until they are over, and no longer. */
TEST(test_a_expired_mover_leaves_a_full_key_for_a_time)
{
    with_every_two(die_with_it_frozen);
}

/* The same over a restart of all who used the table. */
TEST(test_a_frozen_slot_is_kept_in_a_file)
{
    char path[] = "/tmp/test_rule.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < N_SPECS; i++) {
        struct pair_of_quotas two = {.from = ruled(specs[i]),
                                     .to = ruled(specs[(i + 2) % N_SPECS])};
        unlink(path);
        two.table = open_at(path);
        take(two.table, &two.from, 1, NOW);
        uint64_t until_ns = freeze(&two, &two.from);
        stint_table_set_now(two.table, NOW);
        stint_table_close(two.table);
        two.table = open_at(path);
        struct stint_table_info info;
        stint_table_info(two.table, NOW, &info);
        assert_int_equal(info.states_damaged, 0);
        deny_until_over(&two, until_ns);
        stint_table_close(two.table);
    }
    unlink(path);
}

static void crash_with_it_frozen(struct pair_of_quotas *two)
{
    take(two->table, &two->from, 1, NOW);
    uint64_t until_ns = freeze(two, &two->from);
    stint_table_set_now(two->table, NOW);
    two->table->region.alone = true; /* its memory is this process's */
    table_repair(two->table, true);
    struct stint_decision denied = take(two->table, &two->to, 1, NOW);
    assert_int_equal(denied.outcome, STINT_DENY);
    assert_true(denied.retry_after_ns >= until_ns - NOW);
    uint64_t over_ns = NOW + denied.retry_after_ns + table_grace_ns(two->table) + NS_PER_S;
    stint_table_set_now(two->table, over_ns);
    table_repair(two->table, false);
    assert_int_equal(slots_in_use(two), 0);
    assert_int_equal(take(two->table, &two->to, LIMIT, over_ns).outcome, STINT_ALLOW);
}

/* After a crash the longest of all quotas may have been meant; the next repair frees the slot. */
TEST(test_a_frozen_slot_is_full_after_a_crash)
{
    with_every_two(crash_with_it_frozen);
}

static void die_after_arrival(struct pair_of_quotas *two)
{
    take(two->table, &two->from, 1, NOW);
    freeze(two, &two->from);
    struct seen left = find(two, &two->from);
    struct pair state = {0, 0};
    if (table_class(&two->from) == CLASS_16)
        state = *(struct pair *)left.state;
    *left.at = (struct pair){0, left.pair.second};
    assert_int_equal(take(two->table, &two->to, 1, NOW).outcome, STINT_ALLOW);
    *left.at = left.pair; /* which its mover had no time to withdraw */
    if (table_class(&two->from) == CLASS_16)
        *(struct pair *)left.state = state;
    assert_int_equal(take(two->table, &two->to, 1, NOW).outcome, STINT_ALLOW);
    struct stint_decision decision = take(two->table, &two->from, 1, NOW);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_int_equal(decision.remaining, 0);
    assert_int_equal(slots_in_use(two), 1);
}

/* Killed after the units had arrived: nobody notices. */
TEST(test_a_frozen_slot_beside_a_valid_one_is_nothing)
{
    with_every_two(die_after_arrival);
}

static void reset_frozen(struct pair_of_quotas *two)
{
    take(two->table, &two->from, LIMIT, NOW);
    table_forget(two->table, &two->to, hash);
    assert_int_equal(take(two->table, &two->from, LIMIT, NOW).outcome, STINT_ALLOW);
    freeze(two, &two->from);
    table_forget(two->table, &two->to, hash);
    assert_int_equal(take(two->table, &two->to, LIMIT, NOW).outcome, STINT_ALLOW);
}

/* A reset forgets the rule's state wherever it is, also on its way. */
TEST(test_a_reset_reaches_every_class)
{
    with_every_two(reset_frozen);
}
