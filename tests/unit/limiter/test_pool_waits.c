/* SPDX-License-Identifier: MIT */
/*
 * The state of each key of a pool, and what a pool remembers of keys that are used up: every key is
 * back when its own quota says so, and every answer is the one that asking all keys would give.
 */
#define _GNU_SOURCE
#include "unit/test_pool.h"

#include "base/splitmix.h"

static const char *const specs[] = {
    "window 5/10m",
    "window 5/10m resolution=12",
    "log 5/10m",
    "gcra 5/10m",
    "buckets 5/10m time_slack=1m",
    "fixed_window 5/10m",
    "sliding_counter 5/10m",
};

/* A pool's key is back when a key of the table is that was used at the same instants. */
TEST(test_a_key_is_back_when_its_own_quota_says_so)
{
    for (size_t i = 0; i < N(specs); i++)
        for (uint32_t keys = 1; keys <= 5; keys += 2) {
            struct stint_table *table = open_table(64);
            struct stint_quota quota = quota_of(specs[i]);
            struct stint_pool *pool = pool_of(table, STINT_ROUND_ROBIN, keys, &quota, 1, NULL);
            uint64_t now_ns = NOW + 123456789;
            for (uint32_t taken = 0; taken < 5 * keys; taken++, now_ns += 7 * S / keys) {
                struct stint_pool_answer answer = next(pool, now_ns, 1);
                assert_non_null(answer.name);
                assert_int_equal(answer.name[0], 'a' + (int)(taken % keys));
                assert_int_equal(stint_take(table, &quota, answer.name, 1, 1, now_ns).outcome,
                                 STINT_ALLOW);
            }
            struct stint_decision alone = stint_take(table, &quota, "a", 1, 1, now_ns);
            assert_int_equal(alone.outcome, STINT_DENY);
            assert_int_equal(status_of(pool, "a", now_ns).returns_after_ns, alone.retry_after_ns);
            expect_wait(pool, now_ns, 1, alone.retry_after_ns);
            stint_pool_close(pool);
            stint_table_close(table);
        }
    (void)fixture;
}

TEST(test_what_returns_ends_a_wait)
{
    struct stint_quota quota = quota_of("log 2/10m");
    struct stint_pool *other;
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    other = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abcabc--");
    expect(other, NOW + S, "--");
    /* By one process, seen by both. */
    assert_int_equal(stint_pool_give_back(other, "b", 1, NOW, NOW + S, NULL), 0);
    expect(fixture->pool, NOW + S, "b--");
    assert_int_equal(stint_pool_give_back(fixture->pool, "c", 1, NOW, NOW + S, NULL), 0);
    expect(other, NOW + S, "c--");
    /* A bench that lasts longer than the key's own wait, and one that is lifted. */
    uint64_t wait_ns = next(other, NOW + 2 * S, 1).wait_ns;
    assert_int_equal(wait_ns, 10 * MINUTE - 2 * S);
    for (const char *name = "abc"; *name != '\0'; name++)
        report(fixture->pool, (const char[]){*name, '\0'}, STINT_POOL_COOL, HOUR, NOW + 2 * S);
    assert_in_range(next(other, NOW + 2 * S, 1).wait_ns, HOUR, HOUR + MS);
    report(fixture->pool, "c", STINT_POOL_OK, 0, NOW + 3 * S);
    assert_int_equal(next(other, NOW + 3 * S, 1).wait_ns, 10 * MINUTE - 3 * S);
    /* A key more, and one less. */
    struct stint_pool_key d = {.name = "d", .quotas = &quota, .n_quotas = 1};
    assert_int_equal(stint_pool_add(other, &d, NOW + 3 * S, NULL), 0);
    expect(other, NOW + 3 * S, "dd-");
    assert_int_equal(stint_pool_remove(other, "c", NOW + 3 * S, NULL), 0);
    assert_int_equal(next(other, NOW + 4 * S, 1).wait_ns, 10 * MINUTE - S);
    stint_pool_close(other);
}

/* ---- Against all keys asked one by one ------------------------------------------------------- */

struct seen {
    uint64_t wait_ns;
    bool is_free[5];
};

static bool see(const struct stint_pool_status *status, void *arg)
{
    struct seen *seen = arg;
    if (status->returns_after_ns < seen->wait_ns)
        seen->wait_ns = status->returns_after_ns;
    seen->is_free[status->name[0] - 'a'] = status->returns_after_ns == 0;
    return true;
}

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return (splitmix_next(&seed) >> 33) % n;
}

static void disturb(struct stint_pool *pool, const struct stint_quota *quota, uint64_t now_ns)
{
    const char name[2] = {(char)('a' + below(5)), '\0'};
    struct stint_pool_key key = {.name = name, .quotas = quota, .n_quotas = 1};
    switch (below(8)) {
    case 0:
        report(pool, name, STINT_POOL_COOL, (1 + below(600)) * S, now_ns);
        break;
    case 1:
        report(pool, name, STINT_POOL_OK, 0, now_ns);
        break;
    case 2:
        report(pool, name, below(16) == 0 ? STINT_POOL_OUT : STINT_POOL_BACK_OFF, 0, now_ns);
        break;
    case 3:
        if (stint_pool_remove(pool, name, now_ns, NULL) == 0 && below(2) == 0)
            break;
        stint_pool_add(pool, &key, now_ns, NULL);
        break;
    default:
        stint_pool_give_back(pool, name, 1 + (uint32_t)below(2), now_ns, now_ns, NULL);
    }
}

static void check_against_all(const char *spec, int order)
{
    struct stint_quota quota = quota_of(spec);
    struct stint_table *table = open_table(64);
    struct stint_pool *pools[2];
    unsigned n_given = 0;
    uint64_t now_ns = NOW;
    for (int i = 0; i < 2; i++)
        pools[i] = pool_of(table, order, 5, &quota, 1, NULL);
    for (int step = 0; step < 1500; step++) {
        struct stint_pool *pool = pools[below(2)];
        struct seen seen = {.wait_ns = STINT_NEVER_NS};
        now_ns += below(4) == 0 ? below(40 * S) : 0;
        if (below(30) == 0)
            disturb(pool, &quota, now_ns);
        stint_pool_each(pool, now_ns, see, &seen);
        struct stint_pool_answer answer = next(pool, now_ns, 1);
        assert_int_equal(answer.name != NULL, seen.wait_ns == 0);
        assert_int_equal(answer.wait_ns, seen.wait_ns);
        if (answer.name != NULL)
            assert_true(seen.is_free[answer.name[0] - 'a']);
        else if (answer.wait_ns != STINT_NEVER_NS)
            assert_int_equal(answer.decision.retry_after_ns, answer.wait_ns);
        n_given += answer.name != NULL;
    }
    assert_in_range(n_given, 20, 1480);
    for (int i = 0; i < 2; i++)
        stint_pool_close(pools[i]);
    stint_table_close(table);
}

TEST(test_every_answer_is_that_of_all_keys)
{
    seed = 1;
    for (size_t i = 0; i < N(specs); i++)
        for (int order = STINT_ROUND_ROBIN; order <= STINT_LEAST_USED; order++)
            check_against_all(specs[i], order);
}
