/* SPDX-License-Identifier: MIT */
/*
 * sliding_counter: the units of this window, and those of the one before, weighted by how much of
 * it the last period still covers:
 *
 *     previous * (W - elapsed) / W + current + cost <= N
 *
 * compared as integers scaled by W, so that rounding admits nothing and denies nothing. Only
 * admitted units are counted: a limiter that also counts refused requests starves frequent callers.
 * The weight decreases with the time elapsed; the reverse would admit 2N across an edge.
 *
 * The state is (number of the window, previous, current); windows are multiples of W since now = 0.
 * Counts have bits for 2N, because charges may go N into debt. A window later than now counts as
 * just begun: the state's time never goes back.
 */
#include "algorithm/counter.h"

#include <assert.h>

#define STATE_BITS (128 - WORD16_STORE_BITS)

/* A state unpacked and brought to an instant. */
struct sliding {
    const struct stint_quota *quota;
    uint64_t number, previous, current;
    uint64_t now_ns, elapsed_ns;
};

/* The number's low bits are above `current` in lo, its high bits above `previous` in hi. */
static struct word16 pack(const struct sliding *sliding)
{
    unsigned count_bits = sliding->quota->derived.count_bits;
    assert(count_bits > 0 && count_bits < 64);
    return (struct word16){
        .lo = sliding->number << count_bits | sliding->current,
        .hi = sliding->number >> (64 - count_bits) << count_bits | sliding->previous,
    };
}

static struct sliding unpack(const struct stint_quota *quota, const struct word16 *state)
{
    unsigned count_bits = quota->derived.count_bits, low_bits = 64 - count_bits;
    uint64_t count_mask = ~(UINT64_MAX << count_bits);
    return (struct sliding){
        .quota = quota,
        .number = state->hi >> count_bits << low_bits | state->lo >> count_bits,
        .previous = state->hi & count_mask,
        .current = state->lo & count_mask,
    };
}

static uint64_t number_max(const struct stint_quota *quota)
{
    assert(2u * quota->derived.count_bits < STATE_BITS);
    unsigned bits = STATE_BITS - 2u * quota->derived.count_bits;
    return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

static uint64_t number_at(const struct stint_quota *quota, uint64_t at_ns)
{
    uint64_t number = mul_hi(at_ns, quota->derived.reciprocal); /* exact or one too low */
    number += at_ns - number * quota->period_ns >= quota->period_ns;
    assert(at_ns - number * quota->period_ns < quota->period_ns);
    return number;
}

static struct sliding at(const struct stint_quota *quota, const struct word16 *state,
                         uint64_t now_ns)
{
    struct sliding sliding = unpack(quota, state);
    uint64_t number = number_at(quota, now_ns);
    sliding.now_ns = now_ns;
    if (number < sliding.number)
        return sliding;
    if (number > sliding.number) {
        sliding.previous = number == sliding.number + 1 ? sliding.current : 0;
        sliding.current = 0;
        sliding.number = number;
    }
    sliding.elapsed_ns = now_ns - number * quota->period_ns;
    return sliding;
}

/* The estimate rounded up to a unit: whole costs fit under it exactly when they fit unrounded. */
static uint64_t used(const void *state)
{
    const struct sliding *sliding = state;
    uint64_t period_ns = sliding->quota->period_ns;
    assert(sliding->elapsed_ns < period_ns);
    if (sliding->previous == 0)
        return sliding->current;
    return sliding->current +
           mul_div_up(sliding->previous, period_ns - sliding->elapsed_ns, period_ns);
}

static uint64_t expires_at(const struct sliding *sliding)
{
    uint64_t windows = sliding->current > 0 ? 2 : sliding->previous > 0;
    return (sliding->number + windows) * sliding->quota->period_ns;
}

static uint64_t reset_ns(const void *state)
{
    const struct sliding *sliding = state;
    return sub_floor(expires_at(sliding), sliding->now_ns);
}

/*
 * How long into a window `previous` units must fade until the cost fits; the whole period means not
 * within this window.
 */
static uint64_t fade_ns(const struct stint_quota *quota, uint64_t previous, uint64_t space)
{
    if (previous <= space)
        return 0;
    return quota->period_ns - mul_div(space, quota->period_ns, previous);
}

/*
 * Until the cost fits if no other request comes: in this window, once enough of the last has faded;
 * else in the next one, once enough of this has; else in the one after, when all is gone.
 */
static uint64_t wait_ns(const void *state, uint32_t cost)
{
    const struct sliding *sliding = state;
    const struct stint_quota *quota = sliding->quota;
    assert(cost <= quota->limit);
    uint64_t start_ns = sliding->number * quota->period_ns, faded_ns = quota->period_ns;
    if (sliding->current + cost <= quota->limit)
        faded_ns = fade_ns(quota, sliding->previous, quota->limit - cost - sliding->current);
    if (faded_ns == quota->period_ns)
        faded_ns += fade_ns(quota, sliding->current, quota->limit - cost);
    return start_ns + faded_ns - sliding->now_ns;
}

static bool add(void *state, uint64_t units)
{
    struct sliding *sliding = state;
    if (sliding->number > number_max(sliding->quota))
        return false;
    sliding->current += units;
    return true;
}

/*
 * Each counter belongs to a known window, so units go back to the one of their grant. A grant by a
 * caller whose clock is behind was counted in a later window than its time; the earlier one then
 * loses units, which frees no more than the right one would.
 */
static uint64_t refund(void *state, const struct stint_ask *ask)
{
    struct sliding *sliding = state;
    uint64_t granted_in = number_at(sliding->quota, min_u64(ask->at_ns, ask->now_ns));
    if (granted_in + 1 < sliding->number)
        return 0;
    uint64_t *counter = granted_in >= sliding->number ? &sliding->current : &sliding->previous;
    uint64_t units = min_u64(ask->cost, *counter);
    *counter -= units;
    return units;
}

static const struct counter sliding_counter = {used, add, refund, wait_ns, reset_ns};

static struct stint_decision sliding_counter_ask(const struct stint_quota *quota, void *words,
                                                 const struct stint_ask *ask)
{
    struct word16 *state = words;
    struct sliding sliding = at(quota, state, ask->now_ns);
    uint64_t before = sliding.current + sliding.previous;
    struct stint_decision decision = counter_ask(&sliding_counter, quota, &sliding, ask);
    if (sliding.current + sliding.previous != before && ask->verb != STINT_PEEK)
        *state = pack(&sliding);
    return decision;
}

static uint64_t sliding_counter_expires_at(const struct stint_quota *quota, const void *state)
{
    struct sliding sliding = unpack(quota, state);
    return expires_at(&sliding);
}

/*
 * Denies one unit until the given instant. If `previous` can be so many that they have not faded to
 * N - 1 before then, the state expires with the window of that instant; else it is `current` that
 * is full until the window's end, and fades in the one after.
 */
static void sliding_counter_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    struct word16 *words = state;
    *words = (struct word16){0, 0};
    if (until_ns == 0 || quota->limit == 0)
        return;
    uint64_t last_ns = min_u64(until_ns - 1, STINT_NOW_MAX);
    struct sliding full = {.quota = quota,
                           .number = min_u64(number_at(quota, last_ns), number_max(quota))};
    uint64_t left_ns = quota->period_ns - (last_ns - number_at(quota, last_ns) * quota->period_ns);
    uint64_t previous = add_sat(mul_div(quota->limit - 1, quota->period_ns, left_ns), 1);
    if (previous <= 2 * (uint64_t)quota->limit)
        full.previous = previous;
    else
        full.current = quota->limit;
    *words = pack(&full);
}

/* A state that was filled for a period is in the window after that of now. */
static bool sliding_counter_is_valid(const struct stint_quota *quota, const void *state,
                                     uint64_t now_ns)
{
    assert(now_ns <= STINT_NOW_MAX);
    const struct word16 *words = state;
    struct sliding sliding = unpack(quota, words);
    struct word16 packed = pack(&sliding); /* differs if the number has too many bits */
    uint64_t most = 2 * (uint64_t)quota->limit;
    return packed.lo == words->lo && packed.hi == words->hi && sliding.previous <= most &&
           sliding.current <= most && sliding.number <= number_at(quota, now_ns) + 1;
}

static size_t sliding_counter_held(const struct stint_quota *quota, const void *state,
                                   uint64_t now_ns, struct held_run *runs)
{
    struct sliding sliding = at(quota, state, now_ns);
    uint64_t start_ns = sliding.number * quota->period_ns;
    size_t n_runs = 0;
    if (sliding.previous > 0)
        runs[n_runs++] =
            (struct held_run){.at_ns = sub_floor(start_ns, 1), .units = sliding.previous};
    if (sliding.current > 0)
        runs[n_runs++] =
            (struct held_run){.at_ns = max_u64(now_ns, start_ns), .units = sliding.current};
    return n_runs;
}

static uint64_t sliding_counter_own_ns(const struct stint_quota *quota, const void *state)
{
    return unpack(quota, state).number * quota->period_ns;
}

static void sliding_counter_pass(const struct stint_quota *quota, void *state, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX);
    struct word16 *words = state;
    struct sliding sliding = at(quota, words, at_ns);
    if (sliding.number <= number_max(quota))
        *words = pack(&sliding);
}

static int sliding_counter_check(struct stint_quota *quota, struct stint_error *error)
{
    unsigned count_bits = bit_length(2 * (uint64_t)quota->limit | 1);
    quota->derived.count_bits = (uint8_t)count_bits;
    quota->derived.state_size = 16;
    /* A wait can be two windows long, and must end in one that has a number. */
    if (TABLE_LIFE_NS / quota->period_ns + 2 > number_max(quota))
        return err_set(error, STINT_E_RANGE,
                       "beside two counts up to %u, 16 bytes cannot number the windows of %llu ns "
                       "of 8 years; a longer period or a lower limit can",
                       (unsigned)quota->limit, (unsigned long long)quota->period_ns);
    return STINT_OK;
}

const struct algorithm algorithm_sliding_counter = {
    .name = "sliding_counter",
    .check = sliding_counter_check,
    .ask = sliding_counter_ask,
    .expires_at = sliding_counter_expires_at,
    .fill = sliding_counter_fill,
    .is_valid = sliding_counter_is_valid,
    .held = sliding_counter_held,
    .own_ns = sliding_counter_own_ns,
    .pass = sliding_counter_pass,
};
