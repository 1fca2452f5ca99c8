/* SPDX-License-Identifier: MIT */
/*
 * One of the properties, PROPERTY, for a checker of C programs: any value is one that it can think
 * of.
 */
#include "properties.h"

uint64_t nondet_u64(void);
uint32_t nondet_u32(void);
void __ESBMC_assume(_Bool condition);

void assume(bool condition)
{
    __ESBMC_assume(condition);
}

static bool is_checked; /* the quota */

/* ---- Quotients ------------------------------------------------------------------------------- */

/*
 * A quotient by a reciprocal is the high half of a product of 128 bits; two of these are more than
 * a solver can decide. So run_esbmc.py takes the functions below out of the code: a prototype is
 * left of each, and the code itself is whole_NAME(). Once the quota is checked, each gives any
 * number that its contract allows. proof_quotients() and quotients.py prove the contracts.
 */

/* Whether q is floor(n / d), or one less. */
static bool is_quotient(uint64_t q, uint64_t n, uint64_t d, bool is_exact)
{
    return q <= UINT64_MAX / d && q * d <= n && n - q * d < (is_exact ? d : 2 * d);
}

static uint64_t any_quotient(uint64_t n, uint64_t d, bool is_exact)
{
    uint64_t q = nondet_u64();
    assume(q <= UINT64_MAX / d && q * d <= n);
    assume(n - q * d < (is_exact ? d : 2 * d));
    return q;
}

/* UINT64_MAX / d gives the quotient or one less; one more than it, the quotient up to 2^64 / d. */
static uint64_t mul_hi(uint64_t n, uint64_t reciprocal)
{
    uint64_t d = quota.algorithm == STINT_GCRA ? quota.derived.interval_ticks : quota.period_ns;
    if (!is_checked)
        return whole_mul_hi(n, reciprocal);
    if (reciprocal == UINT64_MAX / d)
        return any_quotient(n, d, false);
    assert(quota.algorithm == STINT_WINDOW);
    d = quota.resolution;
    bool is_up = reciprocal == UINT64_MAX / d + 1;
    assert((is_up && n <= UINT64_MAX / d) || reciprocal == UINT64_MAX / d);
    return any_quotient(n, d, is_up);
}

#ifdef FOR_gcra
static uint64_t gcra_whole_units(const struct stint_quota *of, uint64_t ticks)
{
    return any_quotient(ticks, of->derived.interval_ticks, true);
}

static void proof_quotients(void)
{
    uint64_t ticks = nondet_u64();
    assert(is_quotient(whole_gcra_whole_units(&quota, ticks), ticks, quota.derived.interval_ticks,
                       true));
}
#endif

#ifdef FOR_sliding_counter
static uint64_t number_at(const struct stint_quota *of, uint64_t at_ns)
{
    return any_quotient(at_ns, of->period_ns, true);
}

static void proof_quotients(void)
{
    uint64_t at_ns = nondet_u64();
    assert(is_quotient(whole_number_at(&quota, at_ns), at_ns, quota.period_ns, true));
}

/*
 * A share x of whole w: up = ceil(units * x / w) and down = floor(units * w / of). They are linked:
 * ceil(p * x / w) > s exactly if p * x > s * w, exactly if x > floor(s * w / p).
 */
#define SHARES 3
struct up {
    uint64_t units, part, up;
} ups[SHARES];
struct down {
    uint64_t units, of, down;
} downs[SHARES];

static void link(const struct up *up, const struct down *down)
{
    assume(up->units != down->of || up->units == 0 ||
           (up->up > down->units) == (down->down < up->part));
}

static uint64_t mul_div_up(uint64_t units, uint64_t part, uint64_t whole)
{
    if (!is_checked)
        return whole_mul_div_up(units, part, whole);
    assert(part <= whole && whole == quota.period_ns);
    for (int i = 0; i < SHARES; i++)
        if (units == ups[i].units && part == ups[i].part)
            return ups[i].up;
    struct up up = {units, part, nondet_u64()};
    assume(up.up <= units && (part < whole || up.up == units));
    assume((up.up == 0) == (units == 0 || part == 0));
    for (int i = 0; i < SHARES; i++)
        link(&up, &downs[i]);
    ups[2] = ups[1];
    ups[1] = ups[0];
    ups[0] = up;
    return up.up;
}

static uint64_t mul_div(uint64_t units, uint64_t whole, uint64_t of)
{
    if (!is_checked)
        return whole_mul_div(units, whole, of);
    assert(units < of && whole == quota.period_ns);
    for (int i = 0; i < SHARES; i++)
        if (units == downs[i].units && of == downs[i].of)
            return downs[i].down;
    struct down down = {units, of, nondet_u64()};
    assume(down.down < whole && (units > 0 || down.down == 0));
    for (int i = 0; i < SHARES; i++)
        link(&ups[i], &down);
    downs[2] = downs[1];
    downs[1] = downs[0];
    downs[0] = down;
    return down.down;
}
#endif

#ifdef FOR_window
static bool is_slot(uint64_t slot, uint64_t time_ns)
{
    return is_quotient(slot, time_ns * quota.resolution, quota.period_ns, true);
}

static bool is_start(uint64_t start_ns, uint64_t slot)
{
    uint64_t scaled = slot * quota.period_ns, end = start_ns * quota.resolution;
    return start_ns <= UINT64_MAX / quota.resolution && end >= scaled &&
           end - scaled < quota.resolution;
}

static uint64_t window_slot_of(const struct stint_quota *of, const struct window *window,
                               uint64_t time_ns)
{
    uint64_t slot = nondet_u64();
    assert(window->longer == NULL && time_ns <= STINT_NOW_MAX && of == &quota);
    assume(is_slot(slot, time_ns));
    return slot;
}

static uint64_t window_slot_start(const struct stint_quota *of, const struct window *window,
                                  uint64_t slot)
{
    uint64_t start_ns = nondet_u64();
    assert(window->longer == NULL && slot <= UINT64_MAX / of->period_ns - 1);
    assume(is_start(start_ns, slot));
    return start_ns;
}

static void proof_quotients(void)
{
    uint64_t time_ns = nondet_u64(), slot = nondet_u64();
    struct window window = {.longer = NULL};
    assume(time_ns <= STINT_NOW_MAX && slot <= UINT64_MAX / quota.period_ns - 1);
    assert(is_slot(whole_window_slot_of(&quota, &window, time_ns), time_ns));
    assert(is_start(whole_window_slot_start(&quota, &window, slot), slot));
}
#endif

/* ---- Inputs ---------------------------------------------------------------------------------- */

void any_words(struct state *state)
{
    for (unsigned i = 0; i < STATE_WORDS; i++)
        state->word[i] = nondet_u64();
}

uint64_t any_latest(void)
{
    uint64_t latest_ns = nondet_u64();
    assume(latest_ns <= STINT_NOW_MAX);
    return latest_ns;
}

uint64_t any_time(uint64_t latest_ns)
{
    uint64_t time_ns = nondet_u64();
    assume(time_ns <= latest_ns);
    return time_ns;
}

uint32_t any_cost(void)
{
    return nondet_u32();
}

uint64_t any_grant(void)
{
    return nondet_u64();
}

uint64_t any_wait(void)
{
    uint64_t wait_ns = nondet_u64();
    assume(wait_ns <= BOOK_WAIT_MAX_NS);
    return wait_ns;
}

int main(void)
{
    check_quota();
    is_checked = true;
    JOIN(proof_, PROPERTY)();
    return 0;
}
