/* SPDX-License-Identifier: MIT */
/* Calls that change nothing: of a table that was opened read-only, and at times out of range. */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/table.h"

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

/* ---- Times ----------------------------------------------------------------------------------- */

static struct stint_item asked(size_t quota)
{
    return item(&fixture->quotas[quota], "k", 1);
}

static int code_of(struct stint_decision decision)
{
    assert_int_equal(decision.granted, 0);
    assert_int_equal(decision.retry_after_ns, STINT_NEVER_NS);
    return decision.outcome;
}

static int take_at(size_t quota, uint64_t now_ns)
{
    return code_of(stint_take(fixture->table, &fixture->quotas[quota], "k", 1, 1, now_ns));
}

static int take_batch_at(size_t quota, uint64_t now_ns)
{
    const struct stint_item items[] = {asked(quota)};
    struct stint_decision decision;
    stint_take_batch(fixture->table, items, &decision, 1, now_ns);
    return code_of(decision);
}

static int take_all_at(size_t quota, uint64_t now_ns)
{
    const struct stint_item items[] = {asked(quota), asked((quota + 1) % N(specs))};
    return code_of(stint_take_all(fixture->table, items, 2, now_ns));
}

static int take_upto_at(size_t quota, uint64_t now_ns)
{
    const struct stint_item items[] = {asked(quota), asked((quota + 1) % N(specs))};
    return code_of(stint_take_upto(fixture->table, items, 2, now_ns));
}

static int peek_at(size_t quota, uint64_t now_ns)
{
    const struct stint_item items[] = {asked(quota)};
    return code_of(stint_peek(fixture->table, items, 1, now_ns));
}

static int charge_at(size_t quota, uint64_t now_ns)
{
    const struct stint_item items[] = {asked(quota)};
    return code_of(stint_charge(fixture->table, items, 1, now_ns));
}

static int refund_at(size_t quota, uint64_t now_ns)
{
    const struct stint_item items[] = {asked(quota)};
    return code_of(stint_refund(fixture->table, items, 1, NOW, now_ns));
}

static int reserve_at(size_t quota, uint64_t now_ns)
{
    const struct stint_item items[] = {asked(quota)};
    struct stint_ticket ticket;
    return code_of(stint_reserve(fixture->table, items, 1, MINUTE, now_ns, &ticket));
}

static int book_at(size_t quota, uint64_t now_ns)
{
    const struct stint_item items[] = {asked(quota)};
    struct stint_ticket ticket;
    return code_of(stint_book(fixture->table, items, 1, MINUTE, now_ns, &ticket));
}

static int settle_at(size_t quota, uint64_t now_ns)
{
    return stint_settle(fixture->table, fixture->tickets[quota], 1, now_ns, NULL);
}

static int cancel_at(size_t quota, uint64_t now_ns)
{
    return stint_cancel(fixture->table, fixture->tickets[quota], now_ns, NULL);
}

static int renew_at(size_t quota, uint64_t now_ns)
{
    return stint_renew(fixture->table, fixture->tickets[quota], now_ns);
}

static int block_at(size_t quota, uint64_t now_ns)
{
    (void)quota;
    return stint_block(fixture->table, "k", 1, STINT_NOW_MAX, now_ns);
}

static int set_quota_at(size_t quota, uint64_t now_ns)
{
    return stint_set_quota(fixture->table, &fixture->quotas[quota],
                           &fixture->quotas[(quota + 1) % N(specs)], "k", 1, now_ns);
}

static int count_at(size_t quota, uint64_t now_ns)
{
    struct stint_counter counter;
    return stint_count(fixture->table, "k", 1, (int64_t)quota, MINUTE, now_ns, &counter, NULL);
}

static int expire_at(size_t quota, uint64_t now_ns)
{
    (void)quota;
    return (int)stint_expire(fixture->table, now_ns, 1);
}

static int set_now_at(size_t quota, uint64_t now_ns)
{
    (void)quota;
    stint_table_set_now(fixture->table, now_ns);
    return 0;
}

static const struct {
    int (*call)(size_t quota, uint64_t now_ns);
    int code;
} calls[] = {
    {take_at, STINT_NEVER},
    {take_batch_at, STINT_NEVER},
    {take_all_at, STINT_NEVER},
    {take_upto_at, STINT_NEVER},
    {peek_at, STINT_NEVER},
    {charge_at, STINT_NEVER},
    {refund_at, STINT_NEVER},
    {reserve_at, STINT_NEVER},
    {book_at, STINT_NEVER},
    {settle_at, STINT_E_RANGE},
    {cancel_at, STINT_E_RANGE},
    {renew_at, STINT_E_RANGE},
    {block_at, STINT_E_RANGE},
    {set_quota_at, STINT_E_RANGE},
    {count_at, STINT_E_RANGE},
    {expire_at, 0},
    {set_now_at, 0},
};

/* No call at a time out of range changes a byte of the table. */
TEST(test_a_time_out_of_range_changes_nothing)
{
    static const uint64_t times[] = {STINT_NOW_MAX + 1, UINT64_MAX};
    stint_table_close(fixture->table);
    fixture->table = open_table(false);
    for (size_t i = 0; i < N(specs); i++) { /* tickets without an end */
        const struct stint_item items[] = {asked(i)};
        stint_reserve(fixture->table, items, 1, UINT64_MAX, NOW, &fixture->tickets[i]);
    }
    const size_t size = fixture->table->region.fixed.bytes;
    void *before = malloc(size);
    memcpy(before, fixture->table->region.header, size);
    for (size_t i = 0; i < N(calls); i++) {
        for (size_t quota = 0; quota < N(specs); quota++) {
            for (size_t t = 0; t < N(times); t++)
                assert_int_equal(calls[i].call(quota, times[t]), calls[i].code);
            assert_memory_equal(fixture->table->region.header, before, size);
        }
    }
    free(before);
}

/* A peek and a counter that is read leave the mark: callers with earlier times decide as before. */
TEST(test_a_later_peek_changes_nothing)
{
    stint_table_close(fixture->table);
    fixture->table = open_table(false);
    const uint64_t later_ns = NOW + 2 * 60 * MINUTE;
    const struct stint_item items[] = {asked(0), asked(1), asked(2), asked(3),
                                       item(&fixture->quotas[1], "new", 1)};
    struct stint_counter counter;
    const struct region_header before = *fixture->table->region.header;
    for (size_t i = 0; i < N(items); i++)
        assert_int_equal(stint_peek(fixture->table, &items[i], 1, later_ns).outcome, STINT_ALLOW);
    assert_int_equal(stint_peek(fixture->table, items, N(items), later_ns).outcome, STINT_ALLOW);
    assert_int_equal(stint_count(fixture->table, "k", 1, 0, 0, later_ns, &counter, NULL), 0);
    assert_memory_equal(fixture->table->region.header, &before, sizeof(before));
    const struct stint_item whole = item(&fixture->quotas[1], "k", 20);
    assert_int_equal(stint_take_all(fixture->table, &whole, 1, NOW).outcome, STINT_DENY);
}
