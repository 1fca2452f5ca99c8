/* SPDX-License-Identifier: MIT */
/* Every verb on a table that was opened read-only: nothing is decided, and nothing written. */
#define _GNU_SOURCE
#include "unit/region_file.h"

#define NOW (10 * MINUTE)

static const char *const specs[] = {"gcra 20/1h", "window 20/1h", "log 20/1h",
                                    "concurrency 20 lease=1h"};

struct fixture {
    struct stint_table *table;
    struct stint_quota quotas[N(specs)];
    struct stint_ticket tickets[N(specs)];
};

static struct fixture fixture[1];

static struct stint_table *open_table(bool read_only)
{
    struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    options.keys_wide = 16;
    options.wide_size = 512;
    options.read_only = read_only;
    return must_open_table(&options);
}

/* A state and an open ticket of each quota, and a blocked key. */
SETUP
{
    name_path();
    fixture->table = open_table(false);
    for (size_t i = 0; i < N(specs); i++) {
        fixture->quotas[i] = quota_of(specs[i]);
        const struct stint_item asked = item(&fixture->quotas[i], "k", 5);
        assert_int_equal(
            stint_reserve(fixture->table, &asked, 1, MINUTE, NOW, &fixture->tickets[i]).outcome,
            STINT_ALLOW);
    }
    assert_int_equal(stint_block(fixture->table, "b", 1, 2 * NOW, NOW), 0);
    stint_table_close(fixture->table);
    fixture->table = open_table(true);
}

TEARDOWN
{
    stint_table_close(fixture->table);
    remove_file();
}

static void assert_never(struct stint_decision decision)
{
    assert_int_equal(decision.outcome, STINT_NEVER);
    assert_int_equal(decision.granted, 0);
}

TEST(test_no_verb_decides)
{
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota *quota = &fixture->quotas[i];
        const struct stint_item items[] = {item(quota, "k", 1), item(quota, "new", 1)};
        struct stint_decision decisions[N(items)];
        struct stint_ticket ticket;
        assert_never(stint_take(fixture->table, quota, "k", 1, 1, NOW));
        assert_never(stint_take_now(fixture->table, quota, "k", 1, 1));
        stint_take_batch(fixture->table, items, decisions, N(items), NOW);
        for (size_t at = 0; at < N(items); at++)
            assert_never(decisions[at]);
        assert_never(stint_take_all(fixture->table, items, N(items), NOW));
        assert_never(stint_take_upto(fixture->table, items, N(items), NOW));
        assert_never(stint_peek(fixture->table, items, 1, NOW));
        assert_never(stint_charge(fixture->table, items, 1, NOW));
        assert_never(stint_refund(fixture->table, items, 1, NOW, NOW));
        assert_never(stint_reserve(fixture->table, items, 1, 0, NOW, &ticket));
        assert_never(stint_book(fixture->table, items, 1, MINUTE, NOW, &ticket));
        assert_int_equal(stint_table_accepts(fixture->table, quota, NULL), STINT_E_MISMATCH);
    }
}

TEST(test_nothing_is_changed)
{
    struct stint_entry entry;
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota *quota = &fixture->quotas[i];
        struct stint_ticket ticket = fixture->tickets[i];
        assert_int_equal(stint_settle(fixture->table, ticket, 1, NOW, NULL), STINT_E_MISMATCH);
        assert_int_equal(stint_cancel(fixture->table, ticket, NOW, NULL), STINT_E_MISMATCH);
        assert_int_equal(stint_renew(fixture->table, ticket, NOW), STINT_E_MISMATCH);
        assert_int_equal(stint_set_quota(fixture->table, quota, quota, "k", 1, NOW),
                         STINT_E_MISMATCH);
        stint_reset(fixture->table, quota, "k", 1, NOW);
        stint_reset(fixture->table, quota, "b", 1, NOW);
        assert_int_equal(stint_find(fixture->table, quota, "k", 1, NOW, &entry), 0);
        assert_int_equal(entry.decision.remaining, 15);
    }
    assert_int_equal(stint_block(fixture->table, "k", 1, 2 * NOW, NOW), STINT_E_MISMATCH);
    assert_int_equal(stint_expire(fixture->table, 2 * NOW, 100), 0);
    uint64_t now_ns = stint_now(fixture->table);
    stint_table_set_now(fixture->table, now_ns + MINUTE);
    assert_int_equal(stint_now(fixture->table), now_ns);
}
