/* SPDX-License-Identifier: MIT */
/*
 * Lists of (quota, key, cost): equal ones add up, one decision comes out of many, and a list that
 * is refused leaves the table as it found it.
 */
#include "unit/test_quota.h"

#include "limiter/list.h"

#define NOW (1000 * MINUTE) /* where aligned windows begin, too */

/* One for every algorithm, all of the same limit. */
static const char *const specs[] = {
    "gcra 20/1m",
    "fixed_window 20/1m",
    "window 20/1m resolution=12",
    "window 20/1m resolution=100",
    "window 20/1m",
    "sliding_counter 20/1m",
    "log 20/1m",
    "buckets 20/1m time_slack=6s",
    "concurrency 20 lease=1m",
};
#define N_SPECS N(specs)

static struct stint_quota quotas[N_SPECS];

struct fixture {
    struct stint_table *table;
};

static struct fixture fixture[1];

SETUP
{
    const struct stint_table_options options = {.keys = 64,
                                                .keys16 = 64,
                                                .keys_wide = 64,
                                                .wide_size = 256,
                                                .tickets = 4,
                                                .clock = STINT_CLOCK_VIRTUAL};
    assert_int_equal(stint_table_open(&fixture->table, &options, NULL), 0);
    for (size_t i = 0; i < N_SPECS; i++)
        quotas[i] = quota_of(specs[i]);
}

TEARDOWN
{
    stint_table_close(fixture->table);
}

static uint32_t remaining(struct stint_table *table, const struct stint_quota *quota,
                          const char *key)
{
    const struct stint_item asked = item(quota, key, 0);
    return stint_peek(table, &asked, 1, NOW).remaining;
}

static void take_one(struct stint_table *table, const struct stint_quota *quota, const char *key,
                     uint32_t cost)
{
    const struct stint_item taken = item(quota, key, cost);
    assert_int_equal(stint_take_all(table, &taken, 1, NOW).outcome, STINT_ALLOW);
}

/* All bits of all states: everything behind the tickets. The words that say who is at work on a
 * wide state count up with each look at it, and are no part of it. */
struct bits {
    uint8_t *bytes;
    size_t size;
};

static struct bits bits_of(const struct stint_table *table)
{
    const struct region_fixed *fixed = &table->region.header->fixed;
    uint64_t offset = fixed->classes[CLASS_8].offset;
    struct bits bits = {.size = fixed->bytes - offset};
    bits.bytes = malloc(bits.size);
    assert_non_null(bits.bytes);
    memcpy(bits.bytes, region_at(&table->region, offset), bits.size);
    const struct slots *wide = &table->slots[CLASS_WIDE];
    uint8_t *copies = bits.bytes + (fixed->classes[CLASS_WIDE].offset - offset);
    for (uint64_t slot = 0; slot < wide->sets * WAYS; slot++)
        memset(slots_state(wide, copies + slot / WAYS * wide->set_size, slot % WAYS), 0,
               sizeof(uint64_t));
    return bits;
}

static void assert_bits_and_free(const struct stint_table *table, struct bits before)
{
    struct bits after = bits_of(table);
    assert_memory_equal(after.bytes, before.bytes, before.size);
    free(after.bytes);
    free(before.bytes);
}

/* ---- Merging --------------------------------------------------------------------------------- */

/* Parts stand in the order of the request, equal ones at the place of the first. */
TEST(test_parts_keep_the_order_of_the_request)
{
    const struct stint_item items[] = {
        item(&quotas[1], "b", 1), item(&quotas[0], "a", 2),  item(&quotas[1], "b", 4),
        item(&quotas[1], "a", 8), item(&quotas[0], "a", 16), item(&quotas[1], "b", 32),
    };
    const struct {
        uint32_t index, cost, times;
    } expected[] = {{0, 37, 3}, {1, 18, 2}, {3, 8, 1}};
    struct list list;
    assert_true(list_init(&list, fixture->table, items, N(items), NOW));
    assert_int_equal(list.n_parts, N(expected));
    for (size_t i = 0; i < N(expected); i++) {
        assert_int_equal(list.parts[i].index, expected[i].index);
        assert_int_equal(list.parts[i].cost, expected[i].cost);
        assert_int_equal(list.parts[i].times, expected[i].times);
        assert_ptr_equal(list.parts[i].quota, items[expected[i].index].quota);
        assert_ptr_equal(list.parts[i].key, items[expected[i].index].key);
    }
}

/* Equal is what has one state: the same rule or parameters, and the same bytes of key. */
TEST(test_only_what_has_one_state_is_equal)
{
    struct stint_quota copy = quotas[0], ruled = quotas[0], other = quotas[0];
    struct list list;
    ruled.rule = 5;
    other.rule = 5;
    other.limit = 21;
    other.burst = 0;
    assert_int_equal(stint_quota_check(&other, NULL), 0);
    const struct stint_item items[] = {
        item(&quotas[0], "a", 1), item(&copy, "a", 1), /* equal, by another pointer */
        item(&ruled, "a", 1),                          /* the same parameters, another rule */
        item(&other, "a", 1),                          /* the same rule, other parameters */
        {&quotas[0], "a", 2, 1},                       /* a longer key: the NUL counts */
    };
    assert_true(list_init(&list, fixture->table, items, N(items), NOW));
    assert_int_equal(list.n_parts, 4);
    assert_int_equal(list.parts[0].times, 2);
}

/* What fits one by one and not together is refused together: denied now, or never. */
TEST(test_equal_ones_add_up)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        const struct stint_item eleven = item(&quotas[i], "key", 11);
        const struct stint_item nine = item(&quotas[i], "key", 9), two = item(&quotas[i], "key", 2);
        const struct stint_item fits[] = {eleven, nine}, never[] = {eleven, nine, two};
        struct bits before = bits_of(fixture->table);
        assert_int_equal(stint_take_all(fixture->table, never, 3, NOW).outcome, STINT_NEVER);
        assert_bits_and_free(fixture->table, before);
        assert_int_equal(stint_take_all(fixture->table, fits, 2, NOW).outcome, STINT_ALLOW);
        assert_int_equal(remaining(fixture->table, &quotas[i], "key"), 0);
        take_one(fixture->table, &quotas[i], "other", 11);
        const struct stint_item then[] = {item(&quotas[i], "other", 5),
                                          item(&quotas[i], "other", 5)};
        assert_int_equal(stint_take_all(fixture->table, then, 1, NOW).outcome, STINT_ALLOW);
        assert_int_equal(stint_take_all(fixture->table, then, 2, NOW).outcome, STINT_DENY);
        assert_int_equal(remaining(fixture->table, &quotas[i], "other"), 4);
    }
}

/* ---- A take in two steps --------------------------------------------------------------------- */

/* Whether a list finds the slots of its keys, as the second time, or not, as the first. */
TEST(test_a_list_decides_like_single_takes)
{
    struct stint_item items[2 * N_SPECS];
    for (size_t i = 0; i < N_SPECS; i++) {
        items[2 * i] = item(&quotas[i], "list a", 3);
        items[2 * i + 1] = item(&quotas[i], "list b", 5);
    }
    for (uint32_t times = 1; times <= 2; times++) {
        struct list list;
        assert_true(list_init(&list, fixture->table, items, N(items), NOW));
        assert_int_equal(list_take(&list).outcome, STINT_ALLOW);
        for (size_t i = 0; i < N(items); i++) {
            const char *key = i % 2 == 0 ? "single a" : "single b";
            const struct stint_item single = item(items[i].quota, key, items[i].cost);
            struct stint_decision expected = stint_take_all(fixture->table, &single, 1, NOW);
            assert_memory_equal(&list.parts[i].decision, &expected, sizeof(expected));
            assert_int_equal(remaining(fixture->table, items[i].quota, items[i].key),
                             20 - times * items[i].cost);
        }
    }
}

/* What another caller has charged since is not overwritten; the plan after that charges, once. */
TEST(test_a_plan_that_is_late_charges_nothing)
{
    for (size_t i = 0; quotas[i].algorithm != STINT_LOG; i++) {
        if (table_class(&quotas[i]) == CLASS_WIDE) /* has no plan */
            continue;
        struct stint_decision decision;
        struct taking taking;
        struct undo plan;
        const struct hash128 hash = table_hash(fixture->table, &quotas[i], "key", 3);
        take_one(fixture->table, &quotas[i], "key", 1);
        assert_true(table_set_out(&taking, fixture->table, &quotas[i], hash));
        assert_true(table_plan(&taking, 2, NOW, &plan, &decision));
        take_one(fixture->table, &quotas[i], "key", 4);
        assert_false(table_carry_out(&plan));
        assert_int_equal(remaining(fixture->table, &quotas[i], "key"), 15);
        assert_true(table_plan(&taking, 2, NOW, &plan, &decision));
        assert_int_equal(remaining(fixture->table, &quotas[i], "key"), 15);
        assert_true(table_carry_out(&plan));
        assert_false(table_carry_out(&plan));
        assert_int_equal(remaining(fixture->table, &quotas[i], "key"), 13);
        assert_true(table_undo(&plan));
        assert_int_equal(remaining(fixture->table, &quotas[i], "key"), 15);
    }
}

/* ---- What is no request ---------------------------------------------------------------------- */

/* STINT_ITEMS_MAX different ones are charged, one more is NEVER, and so is none; equal ones count.
 */
TEST(test_a_list_has_one_item_and_at_most_so_many)
{
    struct stint_item items[STINT_ITEMS_MAX + 1];
    char keys[STINT_ITEMS_MAX + 1][2];
    struct list list;
    for (size_t i = 0; i < N(items); i++) {
        keys[i][0] = (char)('A' + i);
        keys[i][1] = '\0';
        items[i] = item(&quotas[0], keys[i], 1);
    }
    assert_false(list_init(&list, fixture->table, items, 0, NOW));
    assert_false(list_init(&list, fixture->table, items, N(items), NOW));
    assert_int_equal(stint_take_all(fixture->table, items, N(items), NOW).outcome, STINT_NEVER);
    items[STINT_ITEMS_MAX] = items[0];
    assert_int_equal(stint_take_all(fixture->table, items, N(items), NOW).outcome, STINT_NEVER);
    for (size_t i = 0; i < STINT_ITEMS_MAX; i++)
        assert_int_equal(remaining(fixture->table, &quotas[0], keys[i]), 20);
    assert_int_equal(stint_take_all(fixture->table, items, STINT_ITEMS_MAX, NOW).outcome,
                     STINT_ALLOW);
    for (size_t i = 0; i < STINT_ITEMS_MAX; i++)
        assert_int_equal(remaining(fixture->table, &quotas[0], keys[i]), 19);
}

/* One item that cannot be asked for makes the whole list NEVER, and charges nothing before it. */
TEST(test_one_impossible_item_makes_the_list_never)
{
    struct stint_quota unchecked = quotas[0];
    char *long_key = calloc(1, STINT_KEY_MAX + 1);
    assert_non_null(long_key);
    unchecked.derived.checked = 0;
    const struct stint_item impossible[][2] = {
        {{&quotas[0], long_key, STINT_KEY_MAX + 1, 1}, item(&quotas[0], "b", 1)},
        {item(&unchecked, "a", 1), item(&quotas[0], "b", 1)},
        {item(&quotas[0], "a", UINT32_MAX), item(&quotas[0], "a", 1)}, /* the sum overflows */
    };
    struct bits before = bits_of(fixture->table);
    for (size_t i = 0; i < N(impossible); i++) {
        struct stint_item items[] = {item(&quotas[1], "x", 1), impossible[i][0], impossible[i][1]};
        struct list list;
        struct stint_decision decision = stint_take_all(fixture->table, items, 3, NOW);
        assert_false(list_init(&list, fixture->table, items, 3, NOW));
        assert_int_equal(decision.outcome, STINT_NEVER);
        assert_int_equal(decision.retry_after_ns, STINT_NEVER_NS);
    }
    assert_bits_and_free(fixture->table, before);
    free(long_key);
}

/* ---- One decision out of many ---------------------------------------------------------------- */

/* Sums decisions as if the parts had been answered so, in the order given. */
static struct stint_decision sum_of(const struct stint_decision *decisions, size_t n)
{
    struct list list = {.n_parts = n};
    for (size_t i = 0; i < n; i++) {
        list.parts[i].decision = decisions[i];
        list.parts[i].index = (uint8_t)(10 + i);
    }
    return list_sum(&list);
}

/* NEVER comes before DENY, and DENY before ALLOW, wherever in the list they stand. */
TEST(test_the_worst_outcome_is_the_lists)
{
    const struct stint_decision decisions[] = {
        {.outcome = STINT_ALLOW, .limit = 10, .remaining = 0, .granted = 3},
        {.outcome = STINT_DENY, .limit = 10, .remaining = 2, .retry_after_ns = 7, .granted = 9},
        {.outcome = STINT_NEVER, .limit = 10, .remaining = 9, .retry_after_ns = STINT_NEVER_NS},
    };
    for (size_t a = 0; a < 3; a++) {
        for (size_t b = 0; b < 3; b++) {
            const struct stint_decision pair[] = {decisions[a], decisions[b]};
            struct stint_decision sum = sum_of(pair, 2);
            size_t worst = a > b ? a : b;
            assert_int_equal(sum.outcome, decisions[worst].outcome);
            assert_int_equal(sum.remaining, decisions[worst].remaining);
            assert_int_equal(sum.binding, a >= b ? 10 : 11);
            assert_true(sum.retry_after_ns == decisions[worst].retry_after_ns);
            assert_int_equal(sum.granted, worst == 0 ? 3 : 0);
        }
    }
}

/* Of those with the outcome, the one with the least share of its limit left binds; of equals the
 * first. Its figures are the list's, but the wait is the longest of all. */
TEST(test_the_least_share_binds)
{
    const struct stint_decision decisions[] = {
        {STINT_DENY, 0, 1, 0, 0, 5, 1, 5, 50},      /* a fifth */
        {STINT_DENY, 0, 1, 0, 0, 1000, 100, 3, 70}, /* a tenth: binds */
        {STINT_DENY, 0, 1, 0, 0, 20, 2, 9, 90},     /* a tenth, too, but later */
        {STINT_ALLOW, 0, 1, 0, 1, 10, 0, 0, 99},    /* nothing, but allowed */
    };
    struct stint_decision sum = sum_of(decisions, N(decisions));
    assert_int_equal(sum.binding, 11);
    assert_int_equal(sum.limit, 1000);
    assert_int_equal(sum.remaining, 100);
    assert_int_equal(sum.reset_after_ns, 70);
    assert_int_equal(sum.retry_after_ns, 9);
    /* Shares of great limits are told apart, and a limit of 0 has nothing left. */
    const struct stint_decision great[] = {{.limit = UINT32_MAX, .remaining = UINT32_MAX - 1},
                                           {.limit = UINT32_MAX, .remaining = UINT32_MAX - 2}};
    assert_int_equal(sum_of(great, 2).binding, 11);
    const struct stint_decision nothing[] = {{.limit = 10, .remaining = 1}, {.limit = 0}};
    assert_int_equal(sum_of(nothing, 2).binding, 11);
}

/* A list is kept by the table only if all of it is; no wait goes with what is allowed. */
TEST(test_one_part_without_a_place_is_told)
{
    struct stint_decision decisions[] = {{.stored = 1, .limit = 10, .remaining = 1, .granted = 4},
                                         {.stored = 0, .limit = 10, .remaining = 9, .granted = 4},
                                         {.stored = 1, .limit = 10, .remaining = 9, .granted = 4}};
    assert_int_equal(sum_of(decisions, 3).stored, 0);
    assert_int_equal(sum_of(decisions, 3).granted, 4);
    decisions[1].stored = 1;
    decisions[2].retry_after_ns = 5; /* as a booking that starts later says */
    assert_int_equal(sum_of(decisions, 3).stored, 1);
    assert_int_equal(sum_of(decisions, 3).retry_after_ns, 0);
}

/* The index that binds is one of the request, not one of what was left after merging. */
TEST(test_binding_is_an_index_of_the_request)
{
    const struct stint_item items[] = {
        item(&quotas[0], "a", 1), item(&quotas[0], "a", 1), item(&quotas[1], "b", 0),
        item(&quotas[2], "c", 5), item(&quotas[0], "a", 1),
    };
    struct stint_decision decision = stint_take_all(fixture->table, items, N(items), NOW);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_int_equal(decision.binding, 3);
    assert_int_equal(decision.remaining, 15);
}

/* ---- All or nothing -------------------------------------------------------------------------- */

/* A list of which the last denies changes no bit of any state, used before or new. */
TEST(test_a_refused_list_leaves_every_bit)
{
    for (size_t i = 0; i < N_SPECS; i++)
        take_one(fixture->table, &quotas[i], "used", 3);
    take_one(fixture->table, &quotas[0], "full", 20);
    struct bits before = bits_of(fixture->table);
    for (size_t i = 0; i < N_SPECS; i++) {
        const struct stint_item items[] = {item(&quotas[i], "used", 2), item(&quotas[i], "new", 2),
                                           item(&quotas[0], "full", 1)};
        struct stint_decision decision = stint_take_all(fixture->table, items, 3, NOW);
        assert_int_equal(decision.outcome, STINT_DENY);
        assert_int_equal(decision.binding, 2);
        assert_int_equal(decision.granted, 0);
    }
    assert_bits_and_free(fixture->table, before);
}

static uint32_t remaining_at(struct stint_table *table, const struct stint_quota *quota,
                             uint64_t now_ns)
{
    const struct stint_item asked = item(quota, "key", 0);
    return stint_peek(table, &asked, 1, now_ns).remaining;
}

/* A charge that nobody touched since is taken back bit by bit, where states are of 16 bytes or
 * less, so that older units stay where they are; of the wider ones as many units are free again. */
TEST(test_undo_is_bit_identical)
{
    const uint64_t later_ns = NOW + 20 * S;
    for (size_t i = 0; i < N_SPECS; i++)
        take_one(fixture->table, &quotas[i], "key", 3);
    for (size_t i = 0; i < N_SPECS; i++) {
        const struct stint_item asked = item(&quotas[i], "key", 5);
        uint32_t before = remaining_at(fixture->table, &quotas[i], later_ns);
        struct bits bits = bits_of(fixture->table);
        struct list list;
        assert_true(list_init(&list, fixture->table, &asked, 1, later_ns));
        assert_int_equal(list_ask_part(&list, 0, STINT_TAKE, 0).outcome, STINT_ALLOW);
        assert_int_equal(remaining_at(fixture->table, &quotas[i], later_ns), before - 5);
        list_take_back(&list, 1, STINT_REFUND);
        assert_int_equal(remaining_at(fixture->table, &quotas[i], later_ns), before);
        if (stint_state_size(&quotas[i]) <= 16)
            assert_bits_and_free(fixture->table, bits);
        else
            free(bits.bytes);
    }
    struct stint_table_info info;
    stint_table_info(fixture->table, NOW, &info);
    assert_int_equal(info.undo_kept_units, 0);
}

/* Where another has taken units meanwhile, his stay taken: what the list had comes back as a
 * refund. Of gcra, to which two units have flowed back in the six seconds, three of the five do;
 * the two are counted. */
TEST(test_undo_after_another_gives_back_and_counts)
{
    uint64_t kept = 0;
    for (size_t i = 0; i < N_SPECS; i++) {
        const uint64_t now_ns = NOW + i * 10 * MINUTE, later_ns = now_ns + 6 * S;
        const struct stint_item asked = item(&quotas[i], "key", 5);
        const struct stint_item others = item(&quotas[i], "key", 1);
        struct stint_table_info info;
        struct list list;
        assert_true(list_init(&list, fixture->table, &asked, 1, now_ns));
        assert_int_equal(list_ask_part(&list, 0, STINT_TAKE, 0).outcome, STINT_ALLOW);
        assert_int_equal(stint_take_all(fixture->table, &others, 1, later_ns).outcome, STINT_ALLOW);
        list_take_back(&list, 1, STINT_REFUND);
        assert_int_equal(remaining_at(fixture->table, &quotas[i], later_ns), 19);
        stint_table_info(fixture->table, later_ns, &info);
        assert_int_equal(info.undo_kept_units - kept, quotas[i].algorithm == STINT_GCRA ? 2 : 0);
        kept = info.undo_kept_units;
    }
}

/* A caller whose clock is behind the state's charges a log at the state's own time: that charge is
 * taken back, not one at the caller's. */
TEST(test_undo_names_the_time_of_the_charge)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        const uint64_t later_ns = NOW + i * 10 * MINUTE + 500, now_ns = later_ns - 100;
        const struct stint_item one = item(&quotas[i], "key", 1);
        struct list list;
        assert_int_equal(stint_take_all(fixture->table, &one, 1, later_ns).outcome, STINT_ALLOW);
        assert_true(list_init(&list, fixture->table, &one, 1, now_ns));
        assert_int_equal(list_ask_part(&list, 0, STINT_TAKE, 0).outcome, STINT_ALLOW);
        list_take_back(&list, 1, STINT_REFUND);
        assert_int_equal(remaining_at(fixture->table, &quotas[i], later_ns), 19);
    }
    struct stint_table_info info;
    stint_table_info(fixture->table, NOW, &info);
    assert_int_equal(info.undo_kept_units, 0);
}

/* Each of two quotas that share a state allows its part, but not after the other: the list is
 * refused, and its refusal is not charged. */
TEST(test_a_refused_list_is_not_counted)
{
    static const char *const pairs[][2] = {
        {"gcra 20/1h", "gcra 20/1h burst=10 count_denied=true"},
        {"fixed_window 20/1h", "fixed_window 10/1h count_denied=true"},
        {"sliding_counter 20/1h", "sliding_counter 10/1h count_denied=true"},
    };
    for (size_t i = 0; i < N(pairs); i++) {
        struct stint_quota other = quota_of(pairs[i][0]), counts = quota_of(pairs[i][1]);
        counts.rule = other.rule = 7 + i;
        const struct stint_item items[] = {item(&other, "key", 16), item(&counts, "key", 9)};
        for (int turn = 0; turn < 2; turn++) {
            struct stint_decision decision = turn == 0
                                                 ? stint_take_all(fixture->table, items, 2, NOW)
                                                 : stint_take_upto(fixture->table, items, 2, NOW);
            assert_int_equal(decision.outcome, turn == 0 ? STINT_DENY : STINT_ALLOW);
            assert_int_equal(remaining(fixture->table, &other, "key"), 20 - 2 * decision.granted);
        }
    }
}

/* A full table that allows a new key charges it nothing, and so keeps nothing of it. */
TEST(test_undo_of_what_was_not_stored_counts_nothing)
{
    const struct stint_table_options options = {
        .keys = 1, .keys16 = 1, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_quota quota = quota_of("gcra 20/1m when_full=allow");
    struct stint_table *table = must_open_table(&options);
    struct stint_table_info info;
    struct list list;
    for (char key[2] = "A"; key[0] < 'A' + WAYS; key[0]++)
        take_one(table, &quota, key, 1);
    const struct stint_item asked = item(&quota, "y", 5);
    assert_true(list_init(&list, table, &asked, 1, NOW));
    struct stint_decision decision = list_ask_part(&list, 0, STINT_TAKE, 0);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_int_equal(decision.stored, 0);
    list_take_back(&list, 1, STINT_REFUND);
    stint_table_info(table, NOW, &info);
    assert_int_equal(info.undo_kept_units, 0);
    stint_table_close(table);
}

/* A list whose keys stand in each other's way is charged whole or not at all: two new keys ask for
 * the last free place, each finds it free, and one of them gets it. */
TEST(test_a_list_in_its_own_way_is_not_charged)
{
    const struct stint_table_options options = {
        .keys = 1, .keys16 = 1, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_quota quota = quota_of("gcra 20/1m when_full=deny");
    struct stint_table *table;
    char key[2] = "A";
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    for (; key[0] < 'A' + WAYS - 1; key[0]++)
        take_one(table, &quota, key, 1);
    const struct stint_item items[] = {item(&quota, "y", 5), item(&quota, "z", 5)};
    for (int turn = 0; turn < 2; turn++) {
        struct stint_decision decision = turn == 0 ? stint_take_all(table, items, 2, NOW)
                                                   : stint_take_upto(table, items, 2, NOW);
        assert_int_equal(decision.outcome, STINT_DENY);
        assert_int_equal(decision.granted, 0);
        assert_int_equal(decision.stored, 0);
        assert_int_equal(remaining(table, &quota, "y"), 20);
    }
    assert_int_equal(stint_take_all(table, items, 1, NOW).outcome, STINT_ALLOW);
    stint_table_close(table);
}

/* Best effort grants every quota the same: what the tightest has, shared among equal items. */
TEST(test_best_effort_grants_the_same_to_all)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        take_one(fixture->table, &quotas[i], "key", 3);
        const struct stint_item items[] = {item(&quotas[i], "key", 19), item(&quotas[i], "key", 20),
                                           item(&quotas[i], "key", 20),
                                           item(&quotas[0], specs[i], 20)};
        struct list list;
        assert_true(list_init(&list, fixture->table, items, 4, NOW));
        struct stint_decision decision = list_take_upto(&list, 2);
        assert_int_equal(decision.granted, 2);
        decision = stint_take_upto(fixture->table, items, 4, NOW);
        assert_int_equal(decision.outcome, STINT_ALLOW);
        assert_int_equal(decision.granted, 3); /* 17 were left, 6 are gone: 3 for each of three */
        assert_int_equal(remaining(fixture->table, &quotas[i], "key"), 2);
        assert_int_equal(remaining(fixture->table, &quotas[0], specs[i]), 15);
        struct bits before = bits_of(fixture->table);
        decision = stint_take_upto(fixture->table, items, 4, NOW); /* 2 is none for each of 3 */
        assert_int_equal(decision.outcome, STINT_DENY);
        assert_int_equal(decision.granted, 0);
        assert_int_equal(decision.binding, 0);
        assert_bits_and_free(fixture->table, before);
    }
}
