/* SPDX-License-Identifier: MIT */
/* The short path of a take: it finds what is there, and decides as the long one does. */
#include "unit/test.h"
#include "unit/test_quota.h"

#include "base/ns.h"
#include "table/table.h"

#define KEYS 6
#define OFTEN 400

static struct stint_table *open_virtual(void)
{
    const struct stint_table_options options = {.keys = 600,
                                                .keys16 = 600,
                                                .keys_wide = 64,
                                                .clock = STINT_CLOCK_VIRTUAL,
                                                .hash_key = {1, 2}};
    return must_open_table(&options);
}

/* By the path that a take of a quota with `initial`, or of a blocked table, goes. */
static struct stint_decision take_long(struct stint_table *table, const struct stint_quota *quota,
                                       uint64_t key, uint32_t cost, uint64_t now_ns)
{
    const struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    return table_ask(table, quota, &key, sizeof(key), &ask, NULL, NULL);
}

/* A block is over before the units of the key are free: the wait is that of both. */
TEST(test_a_blocked_key_waits_for_its_units_too)
{
    static const char *const specs[] = {"gcra 5/1m", "window 5/1m", "log 5/1m"};
    for (size_t i = 0; i < N(specs); i++) {
        const struct stint_quota quota = quota_of(specs[i]);
        struct stint_table *table = open_virtual();
        stint_take(table, &quota, "k", 1, 5, NS_PER_S);
        table_block(table, table_block_hash(table, "k", 1), 3 * NS_PER_S, NS_PER_S);
        struct stint_decision denied = stint_take(table, &quota, "k", 1, 5, 2 * NS_PER_S);
        uint64_t wait_ns = denied.retry_after_ns;
        assert_int_equal(denied.outcome, STINT_DENY);
        assert_true(wait_ns >= 59 * NS_PER_S && denied.reset_after_ns >= wait_ns);
        const struct stint_ask before = {
            .now_ns = 2 * NS_PER_S + wait_ns - 1, .cost = 5, .verb = STINT_PEEK};
        assert_int_equal(table_ask(table, &quota, "k", 1, &before, NULL, NULL).outcome, STINT_DENY);
        denied = stint_take(table, &quota, "k", 1, 5, 2 * NS_PER_S + wait_ns);
        assert_int_equal(denied.outcome, STINT_ALLOW);
        stint_table_close(table);
    }
}

/* Three tables that get the same requests; the clock of the third is set to their time. */
TEST(test_all_ways_of_taking_decide_alike)
{
    static const char *const specs[] = {
        "gcra 5/1s",
        "gcra 5/1s count_denied=true",
        "gcra 0/1s",
        "fixed_window 5/1s",
        "window 5/1s",
        "window 5/1s resolution=100",
        "window 200/1s",
        "sliding_counter 5/1s",
        "buckets 5/1s time_slack=100ms",
        "log 5/1s",
    };
    for (size_t i = 0; i < N(specs); i++) {
        const struct stint_quota quota = quota_of(specs[i]);
        struct stint_table *with_time = open_virtual(), *longer = open_virtual(),
                           *with_clock = open_virtual();
        uint64_t now_ns = NS_PER_S, seed = 1;
        for (unsigned n = 0; n < OFTEN; n++) {
            uint64_t key = next_random(&seed) % KEYS;
            uint32_t cost = (uint32_t)(next_random(&seed) % 4);
            now_ns += next_random(&seed) % (NS_PER_S / 16);
            stint_table_set_now(with_clock, now_ns);
            struct stint_decision expected = take_long(longer, &quota, key, cost, now_ns);
            struct stint_decision first =
                stint_take(with_time, &quota, &key, sizeof(key), cost, now_ns);
            struct stint_decision second =
                stint_take_now(with_clock, &quota, &key, sizeof(key), cost);
            assert_same_decision(&first, &expected);
            assert_same_decision(&second, &expected);
        }
        stint_table_close(with_time);
        stint_table_close(longer);
        stint_table_close(with_clock);
    }
}

/* A block, and a time that is not the effective one, are not for the short path. */
TEST(test_a_block_is_seen_by_all_ways_of_taking)
{
    const struct stint_quota quota = quota_of("gcra 5/1s");
    struct stint_table *table = open_virtual();
    stint_table_set_now(table, NS_PER_S);
    assert_int_equal(stint_take_now(table, &quota, "a", 1, 1).outcome, STINT_ALLOW);
    const struct hash128 hash = table_block_hash(table, "a", 1);
    assert_int_equal(table_block(table, hash, 3 * NS_PER_S, NS_PER_S), 0);
    struct stint_decision decision = stint_take_now(table, &quota, "a", 1, 1);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_int_equal(decision.retry_after_ns, 2 * NS_PER_S);
    assert_int_equal(stint_take_now(table, &quota, "b", 1, 1).outcome, STINT_ALLOW);
    stint_table_set_now(table, 3 * NS_PER_S);
    assert_int_equal(stint_take_now(table, &quota, "a", 1, 1).outcome, STINT_ALLOW);
    stint_table_close(table);
}

TEST(test_a_key_that_is_too_long_is_never_taken)
{
    static const char key[STINT_KEY_MAX + 1];
    const struct stint_quota quota = quota_of("gcra 5/1s");
    struct stint_table *table = open_virtual();
    assert_int_equal(stint_take_now(table, &quota, key, STINT_KEY_MAX, 1).outcome, STINT_ALLOW);
    assert_int_equal(stint_take_now(table, &quota, key, sizeof(key), 1).outcome, STINT_NEVER);
    stint_table_close(table);
}

/* Whichever of its places a key has: in each half of its sets, and in each way. */
TEST(test_a_key_is_found_in_every_way)
{
    static const char *const specs[] = {"gcra 5/1s", "window 5/1s"};
    for (size_t i = 0; i < N(specs); i++) {
        const struct stint_quota quota = quota_of(specs[i]);
        struct stint_table *table = open_virtual();
        const struct slots *slots = &table->slots[table_class(&quota)];
        unsigned near_ways = 0, far_ways = 0;
        for (uint64_t key = 0; key < slots->sets * WAYS * 3 / 4; key++) {
            stint_take(table, &quota, &key, sizeof(key), 1, NS_PER_S);
            const struct hash128 hash = table_hash(table, &quota, &key, sizeof(key));
            const struct home home = slots_home(slots, hash);
            const struct seen seen = slots_find(slots, &home);
            assert_non_null(seen.at);
            assert_ptr_equal(slots_find_exact(slots, hash, seen.pair.first), seen.at);
            const struct near near = slots_near(slots, hash, slots_tag(hash));
            const struct pair *at = slots_find_near(&near, seen.pair.first);
            for (unsigned way = 0; way < PAIR_SETS * WAYS; way++) {
                if (slots_pair(slots, home.set[way / WAYS], way % WAYS) != seen.at)
                    continue;
                bool is_near = (way ^ slots_first_way(home.tag)) % WAYS < HALF_WAYS;
                *(is_near ? &near_ways : &far_ways) |= 1U << way;
                assert_ptr_equal(at, is_near ? seen.at : NULL);
            }
        }
        assert_int_equal(near_ways, (1U << PAIR_SETS * WAYS) - 1);
        assert_int_not_equal(far_ways, 0);
        stint_table_close(table);
    }
}
