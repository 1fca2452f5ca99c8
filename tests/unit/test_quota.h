/* SPDX-License-Identifier: MIT */
/* Quotas from SPECs, requests of one caller-owned state, tables, and items of their lists. */
#ifndef STINT_TESTS_TEST_QUOTA_H
#define STINT_TESTS_TEST_QUOTA_H

#include "base/splitmix.h"
#include "unit/test.h"

#include "stint.h"

#define US UINT64_C(1000)
#define MS (1000 * US)
#define S (1000 * MS)
#define MINUTE (60 * S)
#define DAY (86400 * S)
#define YEAR (365 * DAY)

static inline struct stint_quota quota_of(const char *spec)
{
    struct stint_quota quota;
    struct stint_error error;
    if (stint_quota_parse(&quota, spec, &error) != STINT_OK)
        fail_msg("%s: %s", spec, error.message);
    return quota;
}

static inline struct stint_table *must_open_table(const struct stint_table_options *options)
{
    struct stint_table *table;
    struct stint_error error;
    if (stint_table_open(&table, options, &error) != 0)
        fail_msg("%s", error.message);
    return table;
}

static inline struct stint_item item(const struct stint_quota *quota, const char *key,
                                     uint32_t cost)
{
    return (struct stint_item){quota, key, strlen(key), cost};
}

/* Room for a state of 16 bytes or less. */
struct small_state {
    _Alignas(16) uint64_t word[2];
};

static inline struct stint_decision ask_at(const struct stint_quota *quota,
                                           struct small_state *state, uint64_t at_ns,
                                           struct stint_ask ask)
{
    ask.at_ns = at_ns;
    assert_true(stint_state_size(quota) <= sizeof(*state));
    return stint_state_ask(quota, state, &ask);
}

static inline struct stint_decision take(const struct stint_quota *quota, struct small_state *state,
                                         uint64_t now_ns, uint32_t cost)
{
    return ask_at(quota, state, 0, (struct stint_ask){.now_ns = now_ns, .cost = cost});
}

static inline struct stint_decision peek(const struct stint_quota *quota,
                                         const struct small_state *state, uint64_t now_ns,
                                         uint32_t cost)
{
    struct small_state copy = *state;
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_PEEK};
    struct stint_decision decision = ask_at(quota, &copy, 0, ask);
    assert_memory_equal(&copy, state, sizeof(copy));
    return decision;
}

static inline struct stint_decision
charge(const struct stint_quota *quota, struct small_state *state, uint64_t now_ns, uint32_t cost)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_CHARGE};
    return ask_at(quota, state, 0, ask);
}

static inline struct stint_decision refund(const struct stint_quota *quota,
                                           struct small_state *state, uint64_t now_ns,
                                           uint32_t cost, uint64_t granted_at_ns)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_REFUND};
    return ask_at(quota, state, granted_at_ns, ask);
}

/* How many single units are allowed one after the other at one instant. */
static inline uint32_t drain(const struct stint_quota *quota, struct small_state *state,
                             uint64_t now_ns)
{
    uint32_t units = 0;
    while (take(quota, state, now_ns, 1).outcome == STINT_ALLOW)
        units++;
    return units;
}

/* Denied until just before the promised instant, allowed at it, and unchanged by the refusal. */
static inline void assert_wait_is_exact(const struct stint_quota *quota,
                                        const struct small_state *state, uint64_t now_ns,
                                        uint32_t cost)
{
    struct stint_decision decision = peek(quota, state, now_ns, cost);
    if (decision.outcome != STINT_DENY)
        return;
    assert_true(decision.retry_after_ns > 0);
    uint64_t then_ns = now_ns + decision.retry_after_ns;
    if (then_ns > STINT_NOW_MAX)
        return;
    assert_int_equal(peek(quota, state, then_ns, cost).outcome, STINT_ALLOW);
    assert_int_equal(peek(quota, state, then_ns - 1, cost).outcome, STINT_DENY);
}

static inline void assert_same_decision(const struct stint_decision *a,
                                        const struct stint_decision *b)
{
    assert_int_equal(a->outcome, b->outcome);
    assert_int_equal(a->stored, b->stored);
    assert_int_equal(a->granted, b->granted);
    assert_int_equal(a->remaining, b->remaining);
    assert_int_equal(a->limit, b->limit);
    assert_int_equal(a->retry_after_ns, b->retry_after_ns);
    assert_int_equal(a->reset_after_ns, b->reset_after_ns);
}

static inline uint64_t next_random(uint64_t *seed)
{
    return splitmix_next(seed) >> 20;
}

#endif
