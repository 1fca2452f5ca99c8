/* SPDX-License-Identifier: MIT */
/* Places of keys: hashes that are equal in part or in full, and keys at the edges of length. */
#include "unit/test.h"

#include "table/region/owner.h"
#include "table/slot/slots.h"
#include "table/slot/wide.h"
#include "table/table.h"

static const char *const specs[] = {
    "gcra 3/1h",
    "window 3/1h resolution=12",
    "window 3/1h",
    "window 3/1h resolution=100",
    "sliding_counter 3/1h",
    "log 3/1h",
};
#define N_SPECS (N(specs))

static struct stint_table *open_table(void)
{
    const struct stint_table_options options = {
        .keys = 64, .keys16 = 64, .keys_wide = 64, .wide_size = 64, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table;
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    return table;
}

static struct stint_decision take(struct stint_table *table, const struct stint_quota *quota,
                                  struct hash128 hash)
{
    const struct stint_ask ask = {.now_ns = 1000, .cost = 1, .verb = STINT_TAKE};
    return table_ask_hash(table, quota, hash, &ask, NULL, NULL);
}

/* B18: keys whose hashes are wholly equal share one limit: they are denied too much, not too
 * little. */
TEST(test_equal_hashes_share_one_limit)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        struct stint_table *table = open_table();
        struct stint_quota quota;
        unsigned admitted = 0;
        assert_int_equal(stint_quota_parse(&quota, specs[i], NULL), 0);
        for (int n = 0; n < 8; n++)
            admitted += take(table, &quota, (struct hash128){7, 9}).outcome == STINT_ALLOW;
        assert_int_equal(admitted, 3);
        stint_table_close(table);
    }
}

/* Takes the owner word of the key's wide slot. */
static struct seen hold(struct stint_table *table, struct hash128 hash, uint64_t *mine)
{
    const struct slots *slots = &table->slots[CLASS_WIDE];
    const struct home home = slots_home(slots, hash);
    struct seen seen = slots_find(slots, &home);
    struct wide_state *held = seen.state;
    assert_int_equal(owner_take(&held->owner, owner_self(), mine), OWNER_TAKEN);
    return seen;
}

/* Makes the owner one of a process that has ended. */
static void end_owner(const struct seen *seen)
{
    struct wide_state *held = seen->state;
    held->owner ^= UINT64_C(1) << 30;
}

/* The owner holds the state and does not go on: it is stopped, or swapped out. */
TEST(test_a_key_with_a_stuck_owner_is_forgotten)
{
    struct stint_table *table = open_table();
    struct stint_quota quota;
    const struct hash128 hash = {7, 9};
    uint64_t mine;
    assert_int_equal(stint_quota_parse(&quota, "log 3/1h", NULL), 0);
    for (int n = 0; n < 3; n++)
        assert_int_equal(take(table, &quota, hash).outcome, STINT_ALLOW);
    struct wide_state *held = hold(table, hash, &mine).state;
    table_forget(table, &quota, hash);
    for (int n = 0; n < 4; n++)
        assert_int_equal(take(table, &quota, hash).outcome, n < 3 ? STINT_ALLOW : STINT_DENY);
    assert_true(owner_give_back(&held->owner, mine | OWNER_ABANDONED));
    stint_table_close(table);
}

/* A slot that was left to a stuck owner is free once that has ended, though its state was live. */
TEST(test_a_slot_left_to_an_ended_owner_is_free)
{
    struct stint_table *table = open_table();
    struct stint_quota quota;
    const struct hash128 hash = {7, 9};
    uint64_t mine;
    assert_int_equal(stint_quota_parse(&quota, "log 3/1h", NULL), 0);
    assert_int_equal(take(table, &quota, hash).outcome, STINT_ALLOW);
    const struct seen seen = hold(table, hash, &mine);
    table_forget(table, &quota, hash);
    assert_true(seen.at->first == TAG_ABANDONED);
    end_owner(&seen);
    for (int n = 0; n < 4; n++)
        assert_int_equal(take(table, &quota, hash).outcome, n < 3 ? STINT_ALLOW : STINT_DENY);
    const struct home home = slots_home(&table->slots[CLASS_WIDE], hash);
    assert_ptr_equal(slots_find(&table->slots[CLASS_WIDE], &home).at, seen.at);
    stint_table_close(table);
}

/* The repair of what an ended owner left is no loss for a caller whose clock is behind. */
TEST(test_a_repaired_state_stays_for_late_callers)
{
    struct stint_table *table = open_table();
    struct stint_quota quota;
    const struct hash128 hash = {7, 9};
    uint64_t mine;
    assert_int_equal(stint_quota_parse(&quota, "log 3/1h", NULL), 0);
    struct stint_ask ask = {.now_ns = 1000, .cost = 3, .verb = STINT_TAKE};
    struct stint_decision decision = table_ask_hash(table, &quota, hash, &ask, NULL, NULL);
    const struct seen seen = hold(table, hash, &mine);
    end_owner(&seen);
    ask.now_ns += decision.reset_after_ns;
    ask.verb = STINT_PEEK;
    assert_int_equal(table_ask_hash(table, &quota, hash, &ask, NULL, NULL).outcome, STINT_ALLOW);
    ask.now_ns--;
    ask.verb = STINT_TAKE;
    assert_int_equal(table_ask_hash(table, &quota, hash, &ask, NULL, NULL).outcome, STINT_DENY);
    stint_table_close(table);
}

/*
 * An owner is stuck, and other keys have all places of blocks, so that none can stand for its
 * state: who needs that state for another class, or elsewhere, is refused, and does not wait.
 */
TEST(test_without_a_place_for_a_block_a_stuck_owner_refuses)
{
    struct stint_table *table = open_table();
    struct stint_quota quota, small;
    const struct hash128 hash = {7, 9}, other = {8, 10};
    uint64_t mine;
    assert_int_equal(stint_quota_parse(&quota, "log 3/1h", NULL), 0);
    assert_int_equal(stint_quota_parse(&small, "window 3/1h", NULL), 0);
    quota.rule = small.rule = 77;
    assert_int_equal(take(table, &quota, hash).outcome, STINT_ALLOW);
    const struct seen seen = hold(table, hash, &mine);
    for (uint64_t i = 0; i < 20000; i++)
        table_block(table, table_block_hash(table, &i, sizeof(i)), 1000 + NS_PER_S, 1000);
    assert_int_equal(table_block(table, hash, 2000, 1000), STINT_E_FULL);
    const struct stint_decision decision = take(table, &small, hash);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_true(decision.retry_after_ns > 0);
    assert_int_equal(table_carry(table, &quota, hash, &small, other, 1000), CARRY_REFUSED);
    assert_true(owner_give_back(&((struct wide_state *)seen.state)->owner, mine));
    for (int n = 0; n < 3; n++)
        assert_int_equal(take(table, &small, hash).outcome, n < 2 ? STINT_ALLOW : STINT_DENY);
    stint_table_close(table);
}

/* B18: equal places with other tags, and equal tags in other places, are other keys. */
TEST(test_partly_equal_hashes_are_apart)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        struct stint_table *table = open_table();
        struct stint_quota quota;
        assert_int_equal(stint_quota_parse(&quota, specs[i], NULL), 0);
        const uint64_t far = UINT64_C(0xe000000060000000);
        const struct hash128 keys[] = {{1 << 16, 0}, {2 << 16, 0}, {3 << 16, 0}, {1 << 16, far}};
        for (size_t key = 0; key < 4; key++)
            for (int n = 0; n < 4; n++)
                assert_int_equal(take(table, &quota, keys[key]).outcome,
                                 n < 3 ? STINT_ALLOW : STINT_DENY);
        stint_table_close(table);
    }
}

/* A tag of zero bits would look like an empty slot; it has a place like any other. */
TEST(test_a_tag_of_zero_is_a_key)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        struct stint_table *table = open_table();
        struct stint_quota quota;
        assert_int_equal(stint_quota_parse(&quota, specs[i], NULL), 0);
        for (int n = 0; n < 5; n++)
            assert_int_equal(take(table, &quota, (struct hash128){0, 0}).outcome,
                             n < 3 ? STINT_ALLOW : STINT_DENY);
        stint_table_close(table);
    }
}

/* B18: bytes are bytes: NUL, a common prefix of 64 KiB, the empty key; longer ones are refused. */
TEST(test_keys_of_every_length)
{
    struct stint_table *table = open_table();
    struct stint_quota quota;
    char *key = calloc(1, STINT_KEY_MAX + 1);
    assert_non_null(key);
    assert_int_equal(stint_quota_parse(&quota, "window 1/1h", NULL), 0);
    const size_t lengths[] = {0, 1, 2, 7, 8, 9, STINT_KEY_MAX - 1, STINT_KEY_MAX};
    for (size_t i = 0; i < N(lengths); i++) {
        assert_int_equal(stint_take(table, &quota, key, lengths[i], 1, 5).outcome, STINT_ALLOW);
        assert_int_equal(stint_take(table, &quota, key, lengths[i], 1, 5).outcome, STINT_DENY);
    }
    key[STINT_KEY_MAX - 1] = 1;
    assert_int_equal(stint_take(table, &quota, key, STINT_KEY_MAX, 1, 5).outcome, STINT_ALLOW);
    assert_int_equal(stint_take(table, &quota, key, STINT_KEY_MAX + 1, 1, 5).outcome, STINT_NEVER);
    struct stint_error error;
    assert_int_equal(table_accepts(table, &quota, STINT_KEY_MAX + 1, &error), STINT_E_RANGE);
    free(key);
    stint_table_close(table);
}

/* How many of the keys 1 … n, all of the same two sets, have a state in the table, dead or alive.
 */
static unsigned count_kept(struct stint_table *table, uint64_t n)
{
    const struct slots *slots = &table->slots[CLASS_8];
    unsigned kept = 0;
    for (uint64_t key = 1; key <= n; key++) {
        struct home home = slots_home(slots, (struct hash128){key << 16, 0});
        kept += slots_find(slots, &home).at != NULL;
    }
    return kept;
}

/* A key that comes back after its state has died is spared a new key's way: while there are slots
 * that nobody has used, no other takes its place; then the longest dead give way. */
TEST(test_the_expired_are_left_alone_while_there_is_space)
{
    struct stint_table *table = open_table();
    struct stint_quota quota;
    const uint64_t hour_ns = UINT64_C(3600) * 1000000000;
    assert_int_equal(stint_quota_parse(&quota, "gcra 3/1h", NULL), 0);
    for (uint64_t key = 1; key <= 2 * WAYS; key++) {
        const struct stint_ask ask = {.now_ns = key * 2 * hour_ns, .cost = 1, .verb = STINT_TAKE};
        table_ask_hash(table, &quota, (struct hash128){key << 16, 0}, &ask, NULL, NULL);
        assert_int_equal(count_kept(table, key), key);
    }
    for (uint64_t key = 2 * WAYS + 1; key <= 3 * WAYS; key++) {
        const struct stint_ask ask = {.now_ns = key * 2 * hour_ns, .cost = 1, .verb = STINT_TAKE};
        table_ask_hash(table, &quota, (struct hash128){key << 16, 0}, &ask, NULL, NULL);
        assert_int_equal(count_kept(table, key), 2 * WAYS);
        assert_int_equal(count_kept(table, key - 2 * WAYS), 0);
    }
    stint_table_close(table);
}
