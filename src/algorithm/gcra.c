/* SPDX-License-Identifier: MIT */
/*
 * gcra: the theoretical arrival time (TAT) of a key in one word, in ticks of 1/32 ns since now = 0.
 * A TAT that is not later than now equals no state.
 *
 * T, the interval between units, is rounded up to a tick, so the rate never exceeds limit/period.
 * A unit is allowed while the TAT after it is no further after now than capacity = burst * T; the
 * trial value is compared with that, never with now, and the TAT is raised to now, never to now
 * less the capacity: both of these would admit more than `burst` at once.
 *
 * A refund gives back n*T less the time since the grant, because that much has flowed back by
 * itself. With a >= g the TAT before a grant of n units at g, and C the time charged since, the TAT
 * is a + n*T + C as long as the key has not been idle, and the refund leaves a + C + (now - g):
 * no less than a + C, what it would be without the grant, and no less than now + C, what it would
 * be had all later uses come only now. If the key has been idle since, then now >= a + n*T, and the
 * refund is nothing. So no refund admits what would not have been admitted without the grant. The
 * state gets the time back to the tick; the units reported are whole ones, rounded down.
 *
 * That requires a now no earlier than any charge since the grant, and a grant under this very
 * quota. A TAT records neither: a refund that comes d late gains up to d, and one of units that
 * another quota granted up to all of them. A TAT more than the capacity after now does not change.
 *
 * No TAT denies everything until an instant and is new then: gcra_fill() keeps debt instead, and
 * admits what a key with that TAT may have.
 */
#include "algorithm/gcra.h"

#include <assert.h>

#define LOSS_MAX_RECIPROCAL 1000 /* a rate may be too low by 0.1 % */

static uint64_t ticks_of_ns(uint64_t ns)
{
    return ns <= STINT_NOW_MAX ? ns << GCRA_TICKS_PER_NS_LOG2 : UINT64_MAX;
}

static uint64_t ticks_of_units(const struct stint_quota *quota, uint64_t units)
{
    assert(quota->derived.interval_ticks > 0);
    struct wide ticks = wide_mul(units, quota->derived.interval_ticks);
    return ticks.hi == 0 ? ticks.lo : UINT64_MAX;
}

static struct stint_decision answer(const struct stint_quota *quota, uint64_t tat,
                                    uint64_t now_ticks, uint32_t granted)
{
    assert(quota->derived.interval_ticks > 0);
    struct stint_decision decision;
    gcra_answer(quota, tat, now_ticks, granted, &decision);
    return decision;
}

static uint32_t charge(const struct stint_quota *quota, uint64_t *state, uint64_t now_ticks,
                       uint32_t cost)
{
    assert(now_ticks != UINT64_MAX);
    uint64_t capacity = quota->derived.capacity_ticks;
    uint64_t base = max_u64(*state, now_ticks);
    uint64_t deepest = add_sat(add_sat(now_ticks, capacity), capacity);
    uint64_t units = min_u64(cost, gcra_whole_units(quota, sub_floor(deepest, base)));
    assert(units <= cost);
    if (units > 0)
        *state = base + units * quota->derived.interval_ticks;
    return (uint32_t)units;
}

/*
 * The refusal of a cost that does not fit now; wait_max_ns is the wait after which it fits. A cost
 * above the burst, or a time above STINT_NOW_MAX, never fits.
 */
static struct stint_decision refusal(const struct stint_quota *quota, uint64_t state,
                                     uint64_t now_ticks, uint32_t cost, uint64_t wait_max_ns)
{
    assert(quota->derived.capacity_ticks > 0);
    struct stint_decision stands = answer(quota, state, now_ticks, 0);
    uint64_t tat = add_sat(max_u64(state, now_ticks), ticks_of_units(quota, cost));
    if (cost > quota->burst || tat == UINT64_MAX)
        return algorithm_refuse(stands, STINT_NEVER_NS);
    uint64_t over = sub_floor(tat - now_ticks, quota->derived.capacity_ticks);
    return algorithm_refuse(stands, gcra_ns_up(over) - wait_max_ns);
}

static struct stint_decision refuse_take(const struct stint_quota *quota, uint64_t *state,
                                         const struct stint_ask *ask)
{
    assert(ask->verb == STINT_TAKE || ask->verb == STINT_PEEK);
    uint64_t now_ticks = ticks_of_ns(ask->now_ns);
    bool in_debt = sub_floor(*state, now_ticks) > quota->derived.capacity_ticks;
    if (ask->cost == 0 && !in_debt) /* takes nothing: denied in debt alone */
        return answer(quota, *state, now_ticks, 0);
    if (quota->count_denied && ask->verb == STINT_TAKE && ask->cost <= quota->burst)
        charge(quota, state, now_ticks, ask->cost);
    return refusal(quota, *state, now_ticks, ask->cost, 0);
}

static struct stint_decision take(const struct stint_quota *quota, uint64_t *state,
                                  const struct stint_ask *ask)
{
    struct stint_decision decision;
    if (gcra_take_plain(quota, state, ask->now_ns, ask->cost, &decision))
        return decision;
    return refuse_take(quota, state, ask);
}

static struct stint_decision take_upto(const struct stint_quota *quota, uint64_t *state,
                                       const struct stint_ask *ask)
{
    assert(ask->verb == STINT_TAKE_UPTO);
    uint64_t now_ticks = ticks_of_ns(ask->now_ns);
    uint32_t remaining = answer(quota, *state, now_ticks, 0).remaining;
    if (remaining == 0 && ask->cost > 0)
        return refusal(quota, *state, now_ticks, 1, 0);
    struct stint_ask less = {.now_ns = ask->now_ns,
                             .cost = ask->cost < remaining ? ask->cost : remaining};
    return take(quota, state, &less);
}

/*
 * While a booking has not begun, the TAT is more than the capacity after now, and lowering it would
 * give to others the time that is booked. Only the latest booking can be given back then: no other
 * comes after it. A debt looks the same, and there a refund is harmless: a table knows whether
 * anything is booked in it, and passes that by the verb. For a caller-owned state this is not
 * known, so one in debt gives nothing back.
 */
static bool can_give_back(const struct stint_quota *quota, uint64_t state,
                          const struct stint_ask *ask)
{
    assert(ask->verb == STINT_REFUND || ask->verb == ALGORITHM_REFUND_BOOKED ||
           ask->verb == STINT_UNBOOK);
    uint64_t now_ticks = ticks_of_ns(ask->now_ns);
    uint64_t start_ticks = sub_floor(state, quota->derived.capacity_ticks);
    if (start_ticks <= now_ticks || ask->verb == STINT_REFUND)
        return true;
    return ask->verb == STINT_UNBOOK && ask->at_ns == gcra_ns_up(start_ticks);
}

static struct stint_decision refund(const struct stint_quota *quota, uint64_t *state,
                                    const struct stint_ask *ask)
{
    uint64_t now_ticks = ticks_of_ns(ask->now_ns);
    if (!can_give_back(quota, *state, ask))
        return answer(quota, *state, now_ticks, 0);
    uint64_t flowed_back = ticks_of_ns(sub_floor(ask->now_ns, ask->at_ns));
    uint64_t back = sub_floor(ticks_of_units(quota, ask->cost), flowed_back);
    back = min_u64(back, sub_floor(*state, now_ticks));
    assert(back <= *state);
    *state -= back;
    uint64_t units = min_u64(gcra_whole_units(quota, back), ask->cost);
    return answer(quota, *state, now_ticks, (uint32_t)units);
}

static struct stint_decision book(const struct stint_quota *quota, uint64_t *state,
                                  const struct stint_ask *ask)
{
    assert(ask->verb == STINT_BOOK);
    uint64_t now_ticks = ticks_of_ns(ask->now_ns);
    struct stint_decision decision = refusal(quota, *state, now_ticks, ask->cost, 0);
    if (decision.outcome == STINT_NEVER)
        return decision;
    uint64_t start_after_ns = decision.retry_after_ns;
    if (start_after_ns > ask->at_ns)
        return refusal(quota, *state, now_ticks, ask->cost, ask->at_ns);
    if (ask->cost > 0)
        *state = max_u64(*state, now_ticks) + ticks_of_units(quota, ask->cost);
    decision = answer(quota, *state, now_ticks, ask->cost);
    decision.retry_after_ns = start_after_ns;
    return decision;
}

static struct stint_decision ask_slow(const struct stint_quota *quota, uint64_t *state,
                                      const struct stint_ask *ask)
{
    assert(ask->verb != STINT_TAKE);
    uint64_t scratch = *state;
    switch (ask->verb) {
    case STINT_TAKE_UPTO:
        return take_upto(quota, state, ask);
    case STINT_PEEK:
        return take(quota, &scratch, ask);
    case STINT_CHARGE: {
        uint64_t now_ticks = ticks_of_ns(ask->now_ns);
        uint32_t charged = charge(quota, state, now_ticks, ask->cost);
        return answer(quota, *state, now_ticks, charged);
    }
    case STINT_REFUND:
    case ALGORITHM_REFUND_BOOKED:
    case STINT_UNBOOK: /* a booking that has not begun is later than now: all comes back */
        return refund(quota, state, ask);
    default:
        assert(ask->verb == STINT_BOOK);
        return book(quota, state, ask);
    }
}

static struct stint_decision gcra_ask(const struct stint_quota *quota, void *state,
                                      const struct stint_ask *ask)
{
    assert(ask->now_ns <= STINT_NOW_MAX && quota->limit > 0);
    if (ask->verb == STINT_TAKE)
        return take(quota, state, ask);
    return ask_slow(quota, state, ask);
}

static uint64_t gcra_expires_at(const struct stint_quota *quota, const void *state)
{
    const uint64_t *tat = state;
    (void)quota;
    return gcra_ns_up(*tat);
}

static void gcra_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    uint64_t *tat = state;
    (void)quota;
    *tat = ticks_of_ns(until_ns);
}

/* A key may owe two capacities; one, if its last booking is at the latest possible time. */
static bool gcra_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns)
{
    assert(now_ns <= STINT_NOW_MAX);
    const uint64_t *tat = state;
    uint64_t capacity = quota->derived.capacity_ticks;
    uint64_t owed = add_sat(capacity, max_u64(capacity, ticks_of_ns(BOOK_WAIT_MAX_NS)));
    return *tat <= add_sat(ticks_of_ns(now_ns), owed);
}

static size_t gcra_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                        struct held_run *runs)
{
    const uint64_t *tat = state;
    uint64_t ahead = sub_floor(*tat, ticks_of_ns(now_ns));
    if (ahead == 0 || quota->limit == 0)
        return 0;
    uint64_t units = gcra_whole_units(quota, ahead);
    units += units * quota->derived.interval_ticks < ahead;
    runs[0] = (struct held_run){.at_ns = now_ns, .units = units};
    return 1;
}

static void gcra_pass(const struct stint_quota *quota, void *state, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX);
    uint64_t *tat = state;
    (void)quota;
    *tat = max_u64(*tat, ticks_of_ns(at_ns));
}

/* The share is rounded up: one that is refused is above the accepted one. */
static int too_slow(const struct stint_quota *quota, uint64_t loss_ticks, uint64_t period_ticks,
                    struct stint_error *error)
{
    uint64_t scaled = loss_ticks * 10000;
    uint64_t hundredths = scaled / period_ticks + (scaled % period_ticks != 0);
    return err_set(error, STINT_E_RANGE,
                   "gcra keeps time in 1/32 ns, in which %u per %llu ns would run %llu.%02llu %% "
                   "slow; at most 0.1 %% is accepted",
                   (unsigned)quota->limit, (unsigned long long)quota->period_ns,
                   (unsigned long long)(hundredths / 100), (unsigned long long)(hundredths % 100));
}

static int gcra_check(struct stint_quota *quota, struct stint_error *error)
{
    struct stint_derived *derived = &quota->derived;
    if (quota->limit == 0 && quota->burst > 0)
        return err_set(error, STINT_E_MISMATCH, "burst %u needs a limit above 0",
                       (unsigned)quota->burst);
    if (quota->burst == 0)
        quota->burst = quota->limit;
    derived->state_size = 8;
    if (quota->limit == 0)
        return STINT_OK;
    uint64_t period_ticks = quota->period_ns << GCRA_TICKS_PER_NS_LOG2;
    uint64_t interval = period_ticks / quota->limit + (period_ticks % quota->limit != 0);
    uint64_t loss_ticks = interval * quota->limit - period_ticks;
    if (loss_ticks > period_ticks / LOSS_MAX_RECIPROCAL)
        return too_slow(quota, loss_ticks, period_ticks, error);
    struct wide capacity = wide_mul(interval, quota->burst);
    uint64_t capacity_max = UINT64_MAX - ticks_of_ns(TABLE_LIFE_NS);
    if (capacity.hi > 0 || capacity.lo > capacity_max)
        return err_set(error, STINT_E_RANGE,
                       "a burst of %u takes longer than %llu days to refill at this rate, so its "
                       "times could overflow within 8 years",
                       (unsigned)quota->burst,
                       (unsigned long long)((capacity_max >> GCRA_TICKS_PER_NS_LOG2) / NS_PER_DAY));
    derived->interval_ticks = interval;
    derived->capacity_ticks = capacity.lo;
    assert(interval > 0 && derived->capacity_ticks >= interval);
    derived->reciprocal = UINT64_MAX / interval;
    return STINT_OK;
}

const struct algorithm algorithm_gcra = {
    .name = "gcra",
    .check = gcra_check,
    .ask = gcra_ask,
    .expires_at = gcra_expires_at,
    .fill = gcra_fill,
    .is_valid = gcra_is_valid,
    .held = gcra_held,
    .pass = gcra_pass,
};
