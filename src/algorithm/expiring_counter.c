/* SPDX-License-Identifier: MIT */
/*
 * counter: how much was counted, and until when it counts. The first amount sets when the counter
 * expires; later ones add and do not move that. An expired counter equals one that never was.
 *
 * The state is (instant of expiry, count): 60 bits reach 10 years past STINT_NOW_MAX to the
 * nanosecond, and 52 bits are left for the count, which JSON and Lua represent exactly. A count
 * that would exceed them stays at the largest. At 0 the counter keeps its expiry.
 *
 * There is no limit, so nothing is denied: the verbs that ask whether a cost fits are NEVER.
 * `remaining` is how far the count is from UINT32_MAX, by which a full table chooses what it
 * evicts.
 */
#include "algorithm/expiring_counter.h"

#include "base/limits.h"

#include <assert.h>

#define COUNT_BITS 52
#define COUNT_HI_BITS (64 - WORD16_STORE_BITS)
#define COUNT_LO_BITS (COUNT_BITS - COUNT_HI_BITS)
#define COUNT_HI_MASK ((UINT64_C(1) << COUNT_HI_BITS) - 1)
#define EXPIRY_MAX_NS (UINT64_MAX >> COUNT_LO_BITS)

_Static_assert(STINT_COUNT_MAX >> (COUNT_BITS - 1) == 1, "of stint.h");
_Static_assert(STINT_COUNT_EXPIRY_MAX_NS == PERIOD_MAX_NS, "of stint.h");
_Static_assert(STINT_NOW_MAX + PERIOD_MAX_NS <= EXPIRY_MAX_NS, "every expiry can be kept");

static struct word16 pack(struct counter_value value)
{
    assert(value.count <= STINT_COUNT_MAX && value.expires_at_ns <= EXPIRY_MAX_NS);
    return (struct word16){
        .lo = value.expires_at_ns << COUNT_LO_BITS | value.count >> COUNT_HI_BITS,
        .hi = value.count & COUNT_HI_MASK,
    };
}

static struct counter_value unpack(const struct word16 *state)
{
    return (struct counter_value){
        .count = (state->lo & ((1u << COUNT_LO_BITS) - 1)) << COUNT_HI_BITS |
                 (state->hi & COUNT_HI_MASK),
        .expires_at_ns = state->lo >> COUNT_LO_BITS,
    };
}

struct counter_value counter_at(const struct word16 *state, uint64_t now_ns)
{
    struct counter_value value = unpack(state);
    return value.expires_at_ns > now_ns ? value : (struct counter_value){0, 0};
}

static struct stint_decision stands(const struct stint_quota *quota,
                                    const struct counter_value *value, uint64_t moved,
                                    uint64_t now_ns)
{
    assert(moved <= UINT32_MAX);
    return algorithm_allow(quota, (uint32_t)moved, (uint32_t)sub_floor(quota->limit, value->count),
                           sub_floor(value->expires_at_ns, now_ns));
}

static struct stint_decision expiring_counter_ask(const struct stint_quota *quota, void *words,
                                                  const struct stint_ask *ask)
{
    struct word16 *state = words;
    struct counter_value value = counter_at(state, ask->now_ns);
    uint64_t moved = 0;
    bool is_new = value.expires_at_ns == 0;
    switch (ask->verb) {
    case STINT_PEEK:
        break;
    case STINT_CHARGE:
        if (is_new && (ask->at_ns == 0 || ask->at_ns > PERIOD_MAX_NS))
            return algorithm_never(quota->limit);
        if (is_new && ask->cost > 0)
            value.expires_at_ns = ask->now_ns + ask->at_ns;
        moved = min_u64(ask->cost, STINT_COUNT_MAX - value.count);
        value.count += moved;
        break;
    case STINT_REFUND:
        moved = min_u64(ask->cost, value.count);
        value.count -= moved;
        break;
    default:
        return algorithm_never(quota->limit);
    }
    if (moved > 0)
        *state = pack(value);
    return stands(quota, &value, moved, ask->now_ns);
}

static uint64_t expiring_counter_expires_at(const struct stint_quota *quota, const void *state)
{
    (void)quota;
    return unpack(state).expires_at_ns;
}

static void expiring_counter_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    (void)quota;
    struct word16 *words = state;
    struct counter_value full = {STINT_COUNT_MAX, min_u64(until_ns, EXPIRY_MAX_NS)};
    *words = until_ns > 0 ? pack(full) : (struct word16){0, 0};
}

static bool expiring_counter_is_valid(const struct stint_quota *quota, const void *state,
                                      uint64_t now_ns)
{
    (void)quota;
    uint64_t expires_at_ns = unpack(state).expires_at_ns;
    return expires_at_ns > 0 && expires_at_ns <= now_ns + PERIOD_MAX_NS;
}

static size_t expiring_counter_held(const struct stint_quota *quota, const void *state,
                                    uint64_t now_ns, struct held_run *runs)
{
    (void)quota;
    struct counter_value value = counter_at(state, now_ns);
    runs[0] = (struct held_run){.at_ns = now_ns, .units = value.count};
    return value.count > 0;
}

/* The parameters come from shared memory, too: only those of counter_quota() are right. */
static int expiring_counter_check(struct stint_quota *quota, struct stint_error *error)
{
    if (quota->limit != COUNTER_LIMIT || quota->period_ns != COUNTER_PERIOD_NS ||
        quota->when_full != STINT_FULL_DEFAULT || quota->initial_set)
        return err_set(error, STINT_E_MISMATCH, "a counter has no parameters");
    quota->derived.state_size = sizeof(struct word16);
    return STINT_OK;
}

struct stint_ask counter_ask_of(int64_t amount, uint64_t expiry_ns, uint64_t now_ns)
{
    assert(amount >= -(int64_t)UINT32_MAX && amount <= (int64_t)UINT32_MAX);
    return (struct stint_ask){
        .now_ns = now_ns,
        .at_ns = amount > 0 ? expiry_ns : 0,
        .cost = (uint32_t)(amount < 0 ? -amount : amount),
        .verb = amount > 0   ? STINT_CHARGE
                : amount < 0 ? STINT_REFUND
                             : STINT_PEEK,
    };
}

int counter_check_ask(size_t key_len, int64_t amount, uint64_t expiry_ns, struct stint_error *error)
{
    if (key_len > STINT_KEY_MAX)
        return err_set(error, STINT_E_RANGE, "the key has %zu bytes; at most %d are allowed",
                       key_len, STINT_KEY_MAX);
    if (amount < -(int64_t)UNIT_COUNT_MAX || amount > (int64_t)UNIT_COUNT_MAX)
        return err_set(error, STINT_E_RANGE,
                       "an amount of %lld is not within -" UNIT_COUNT_MAX_TEXT
                       " and " UNIT_COUNT_MAX_TEXT "; " UNITS_ADVICE,
                       (long long)amount);
    if (amount > 0 && (expiry_ns == 0 || expiry_ns > PERIOD_MAX_NS))
        return err_set(error, STINT_E_RANGE,
                       "an expiry of %llu ns is not within 1 ns and 10 years (3650d)",
                       (unsigned long long)expiry_ns);
    return STINT_OK;
}

const struct algorithm algorithm_expiring_counter = {
    .name = "counter",
    .check = expiring_counter_check,
    .ask = expiring_counter_ask,
    .expires_at = expiring_counter_expires_at,
    .fill = expiring_counter_fill,
    .is_valid = expiring_counter_is_valid,
    .held = expiring_counter_held,
};
