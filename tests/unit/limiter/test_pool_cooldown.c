/* SPDX-License-Identifier: MIT */
/* Reports about the keys of a pool: who is cooling down until when, and what lifts it. */
#include "unit/test_pool.h"

#define GRAIN (UINT64_C(1) << 16) /* benches end at its multiples */

static uint64_t cooldown_end(uint64_t ns)
{
    return (ns + GRAIN - 1) / GRAIN * GRAIN;
}

/* A key whose 429 came with a time is left alone for so long, and asking changes nothing. */
TEST(test_a_cooldown_cooldowns)
{
    struct stint_quota quota = quota_of("log 50/1m");
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 2, &quota, 1, NULL);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_COOL, 30 * S, NOW), 0);
    expect(fixture->pool, NOW, "bbb");
    assert_int_equal(report(fixture->pool, "b", STINT_POOL_COOL, 20 * S, NOW), 0);
    uint64_t back_ns = cooldown_end(NOW + 20 * S);
    for (uint64_t now_ns = NOW; now_ns < back_ns - S; now_ns += S)
        assert_int_equal(next(fixture->pool, now_ns, 1).wait_ns, back_ns - now_ns);
    expect_wait(fixture->pool, NOW + 19 * S, 1, back_ns - NOW - 19 * S);
}

/* While it cools, only a longer cooldown moves its end: the same one, said again, does not. */
TEST(test_a_cooldown_is_not_stretched)
{
    struct stint_quota quota = quota_of("log 50/1m");
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 1, &quota, 1, NULL);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_COOL, 60 * S, NOW), 0);
    for (uint64_t now_ns = NOW; now_ns < NOW + 59 * S; now_ns += S) {
        assert_int_equal(report(fixture->pool, "a", STINT_POOL_COOL, 60 * S, now_ns), 0);
        assert_int_equal(report(fixture->pool, "a", STINT_POOL_COOL, 5 * S, now_ns), 0);
        assert_int_equal(report(fixture->pool, "a", STINT_POOL_BACK_OFF, 0, now_ns), 0);
    }
    uint64_t now_ns = NOW + 59 * S;
    assert_int_equal(status_of(fixture->pool, "a", now_ns).returns_after_ns,
                     cooldown_end(NOW + 60 * S) - now_ns);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_COOL, 90 * S, now_ns), 0);
    assert_int_equal(status_of(fixture->pool, "a", now_ns).returns_after_ns,
                     cooldown_end(now_ns + 90 * S) - now_ns);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_OK, 0, now_ns), 0);
    expect(fixture->pool, now_ns, "a");
}

/* 429 without a time: 1 s, 2 s, 4 s, … 1 h, as long as the failures follow each other. */
TEST(test_back_off_doubles_up_to_an_hour)
{
    struct stint_quota quota = quota_of("log 50/1m");
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 1, &quota, 1, NULL);
    uint64_t now_ns = NOW;
    for (unsigned failures = 1; failures <= 40; failures++) {
        uint64_t length_ns = failures > 12 ? HOUR : S << (failures - 1);
        assert_int_equal(report(fixture->pool, "a", STINT_POOL_BACK_OFF, 0, now_ns), 0);
        assert_int_equal(report(fixture->pool, "a", STINT_POOL_BACK_OFF, 0, now_ns), 0);
        struct stint_pool_status status = status_of(fixture->pool, "a", now_ns);
        assert_int_equal(status.standing, STINT_POOL_BACKING_OFF);
        assert_int_equal(status.failures, failures < 30 ? failures : 30);
        assert_int_equal(status.returns_after_ns, cooldown_end(now_ns + length_ns) - now_ns);
        now_ns += status.returns_after_ns;
        assert_int_equal(status_of(fixture->pool, "a", now_ns).standing, STINT_POOL_FREE);
    }
}

/* A failure is remembered for as long again as the key was cooling down for it. */
TEST(test_failures_are_forgotten)
{
    struct stint_quota quota = quota_of("log 50/1m");
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 1, &quota, 1, NULL);
    uint64_t now_ns = cooldown_end(NOW);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(report(fixture->pool, "a", STINT_POOL_BACK_OFF, 0, now_ns), 0);
        now_ns += cooldown_end(S << i);
    }
    assert_int_equal(status_of(fixture->pool, "a", now_ns + 4 * S - 1).failures, 3);
    now_ns += cooldown_end(4 * S) + GRAIN;
    assert_int_equal(status_of(fixture->pool, "a", now_ns).failures, 0);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_BACK_OFF, 0, now_ns), 0);
    assert_int_equal(status_of(fixture->pool, "a", now_ns).failures, 1);
    /* And success forgets them at once. */
    now_ns += cooldown_end(S);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_OK, 0, now_ns), 0);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_BACK_OFF, 0, now_ns), 0);
    assert_int_equal(status_of(fixture->pool, "a", now_ns).failures, 1);
}

/* Who is out stays out, until it is reported well, or removed and added again. */
TEST(test_out_lasts)
{
    struct stint_quota quota = quota_of("log 50/1m");
    struct stint_pool_key a = {.name = "a", .quotas = &quota, .n_quotas = 1};
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 2, &quota, 1, NULL);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_OUT, 0, NOW), 0);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_COOL, S, NOW), 0);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_BACK_OFF, 0, NOW), 0);
    expect(fixture->pool, NOW + 10 * YEAR, "bbb");
    assert_int_equal(status_of(fixture->pool, "a", NOW).standing, STINT_POOL_IS_OUT);
    assert_int_equal(status_of(fixture->pool, "a", NOW).returns_after_ns, STINT_NEVER_NS);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_OK, 0, NOW + 10 * YEAR), 0);
    expect(fixture->pool, NOW + 10 * YEAR, "ab");

    uint64_t now_ns = NOW + 10 * YEAR;
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_OUT, 0, now_ns), 0);
    assert_int_equal(report(fixture->pool, "b", STINT_POOL_OUT, 0, now_ns), 0);
    assert_int_equal(next(fixture->pool, now_ns, 1).wait_ns, STINT_NEVER_NS);
    assert_int_equal(stint_pool_remove(fixture->pool, "a", now_ns, NULL), 0);
    assert_int_equal(stint_pool_add(fixture->pool, &a, now_ns, NULL), 0);
    expect(fixture->pool, now_ns, "aa");
}

/* If all cool, the nearest to recover may be tried; while one of them is not cooling down, none is.
 */
TEST(test_a_probe_tries_the_nearest)
{
    struct stint_quota quota = quota_of("log 2/1m");
    struct stint_pool_ask ask = {.now_ns = NOW, .cost = 1, .probe = true};
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_COOL, 30 * S, NOW), 0);
    assert_int_equal(report(fixture->pool, "b", STINT_POOL_COOL, 20 * S, NOW), 0);
    struct stint_pool_answer answer = stint_pool_next(fixture->pool, &ask);
    assert_string_equal(answer.name, "c");
    assert_false(answer.probe);
    expect(fixture->pool, NOW, "c");
    /* c is used up, not cooling: the way is to wait, not to try. */
    assert_null(stint_pool_next(fixture->pool, &ask).name);
    assert_int_equal(report(fixture->pool, "c", STINT_POOL_OUT, 0, NOW), 0);
    answer = stint_pool_next(fixture->pool, &ask);
    assert_string_equal(answer.name, "b");
    assert_true(answer.probe);
    assert_int_equal(report(fixture->pool, "b", STINT_POOL_COOL, 20 * S, NOW + S), 0);
    assert_int_equal(status_of(fixture->pool, "b", NOW + S).returns_after_ns,
                     cooldown_end(NOW + 20 * S) - NOW - S);
    /* Probes are charged: b has two, then a is the nearest that has room, then nobody. */
    assert_string_equal(stint_pool_next(fixture->pool, &ask).name, "b");
    assert_string_equal(stint_pool_next(fixture->pool, &ask).name, "a");
    assert_string_equal(stint_pool_next(fixture->pool, &ask).name, "a");
    assert_null(stint_pool_next(fixture->pool, &ask).name);
    ask.probe = false;
    assert_null(stint_pool_next(fixture->pool, &ask).name);
}

/* A wait that was known before a probe is for the end of the cooldown; the probe took a unit. */
TEST(test_a_probe_makes_the_wait_longer)
{
    struct stint_quota quota = quota_of("log 2/1m");
    struct stint_pool_ask ask = {.now_ns = NOW, .cost = 1};
    fixture->pool = pool_of(fixture->table, STINT_FILL_FIRST, 1, &quota, 1, NULL);
    assert_string_equal(stint_pool_next(fixture->pool, &ask).name, "a");
    assert_int_equal(report(fixture->pool, "a", STINT_POOL_COOL, 10 * S, NOW), 0);
    ask.now_ns = NOW + S;
    assert_in_range(stint_pool_next(fixture->pool, &ask).wait_ns, 9 * S, 10 * S);
    ask.probe = true;
    ask.now_ns = NOW + 2 * S;
    assert_true(stint_pool_next(fixture->pool, &ask).probe);
    ask.probe = false;
    ask.now_ns = NOW + 3 * S;
    assert_int_equal(stint_pool_next(fixture->pool, &ask).wait_ns, 57 * S);
    ask.now_ns = NOW + MINUTE - 1;
    assert_null(stint_pool_next(fixture->pool, &ask).name);
    ask.now_ns = NOW + MINUTE;
    assert_string_equal(stint_pool_next(fixture->pool, &ask).name, "a");
}

/* When there is no place for one more bench, the report says so, and the key goes on. */
TEST(test_cooldowns_may_be_full)
{
    struct stint_table *table = open_table(1);
    struct stint_quota quota = quota_of("log 1/1m");
    struct stint_error error;
    unsigned cooling_down = 0, refused = 0;
    (void)fixture;
    fixture->pool = NULL;
    struct stint_pool *pool;
    assert_int_equal(stint_pool_open(&pool, table, NULL, NULL), 0);
    for (unsigned i = 0; i < 40; i++) {
        const char name[3] = {(char)('A' + i / 10), (char)('0' + i % 10), '\0'};
        struct stint_pool_key key = {.name = name, .quotas = &quota, .n_quotas = 1};
        assert_int_equal(stint_pool_add(pool, &key, NOW, NULL), 0);
        int code = stint_pool_report(pool, name, STINT_POOL_COOL, HOUR, NOW, &error);
        cooling_down += code == 0;
        refused += code == STINT_E_FULL;
    }
    assert_in_range(cooling_down, 1, 16);
    assert_int_equal(cooling_down + refused, 40);
    assert_non_null(strstr(error.message, "blocks"));
    unsigned free_keys = 0;
    while (next(pool, NOW, 1).name != NULL)
        free_keys++;
    assert_int_equal(free_keys, refused);
    /* Over, they make room: nobody has to lift them. */
    assert_int_equal(report(pool, "A0", STINT_POOL_COOL, HOUR, NOW + 3 * HOUR), 0);
    struct stint_table_info info;
    stint_table_info(table, NOW + 3 * HOUR, &info);
    assert_int_equal(info.blocked, 0); /* benches are no blocks */
    stint_pool_close(pool);
    stint_table_close(table);
}
