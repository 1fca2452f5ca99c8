/* SPDX-License-Identifier: MIT */
/*
 * fixed_window: one counter per window, in one word. Windows lie on the wall clock (multiples of
 * the period, or a calendar), or begin with the first use of the key.
 *
 * The word is (mark, count). The count has bits for 2N, because charges may go N into debt; a debt
 * ends with its window. The mark is when the window ends, in grains: a power of two of nanoseconds,
 * at most a thousandth of the period; a quarter of it on the wall clock, beside counts that leave
 * no more bits. The mark is the end instead of the start because the start may lie before now = 0.
 *
 *   on the wall clock  mark = floor(end / grain). Windows are longer than a grain, so the mark
 *                      tells them apart, and the exact end is the one edge within that grain. If
 *                      there is none (a filled state, or a table that was reopened with another
 *                      wall clock), the window ends where the grain begins; under a coarse grain,
 *                      at the edge after it.
 *   first use          mark = start in grains + ceil(period / grain), the start being the use
 *                      rounded up to a grain. The exact end is start + period.
 *
 * A window that is later than now is the window of now: the state's time never goes back.
 */
#include "algorithm/calendar.h"
#include "algorithm/counter.h"

#include <assert.h>

#define GRAINS_PER_PERIOD 1000  /* less is coarse */
#define GRAINS_PER_PERIOD_MIN 4 /* on the wall clock, where the grain rounds no end */
#define WINDOW_LONGEST_NS(period_ns) ((period_ns) + 3 * NS_PER_DAY) /* a month, a leap year */
#define FILL_LAST_NS (STINT_NOW_MAX + 1)                            /* after every valid now */
#define MARK_LAST_NS (2 * STINT_NOW_MAX)                            /* no window ends later */

_Static_assert(STINT_NOW_MAX + WINDOW_LONGEST_NS(PERIOD_MAX_NS) < MARK_LAST_NS, "of a true state");

/* A state unpacked at an instant: not `live` means never used. */
struct fixed {
    const struct stint_quota *quota;
    uint64_t now_ns, mark, end_ns, count;
    bool live;
};

static uint64_t mark_max(const struct stint_quota *quota)
{
    assert(quota->derived.count_bits < 64);
    return UINT64_MAX >> quota->derived.count_bits;
}

static bool is_first_use(const struct stint_quota *quota)
{
    return quota->align == STINT_ALIGN_FIRST_USE;
}

static uint64_t grains_up(const struct stint_quota *quota, uint64_t ns)
{
    assert(quota->derived.grain_ns > 0);
    unsigned shift = bit_length(quota->derived.grain_ns) - 1;
    return (ns >> shift) + ((ns & (quota->derived.grain_ns - 1)) != 0);
}

/* floor(wall mod period): the reciprocal's quotient is exact or one too low. */
static uint64_t since_edge(const struct stint_quota *quota, int64_t wall_ns)
{
    assert(quota->period_ns > 0);
    uint64_t period_ns = quota->period_ns;
    if (wall_ns < 0) {
        uint64_t until_edge = (uint64_t)-wall_ns % period_ns;
        return until_edge == 0 ? 0 : period_ns - until_edge;
    }
    uint64_t wall = (uint64_t)wall_ns;
    uint64_t rest = wall - mul_hi(wall, quota->derived.reciprocal) * period_ns;
    rest = rest >= period_ns ? rest - period_ns : rest;
    assert(rest < period_ns);
    return rest;
}

/* How long the window of an instant has lasted, and will last; on the wall clock. */
struct fixed_span {
    uint64_t since_ns, until_ns;
};

static struct fixed_span span_around(const struct stint_quota *quota, uint64_t at_ns)
{
    int64_t wall_ns = quota->epoch_ns + (int64_t)at_ns;
    if (quota->align == STINT_ALIGN_EPOCH) {
        uint64_t since_ns = since_edge(quota, wall_ns);
        return (struct fixed_span){since_ns, quota->period_ns - since_ns};
    }
    struct calendar_window window =
        calendar_window_of((enum stint_align)quota->align, quota->utc_offset_s, wall_ns);
    return (struct fixed_span){(uint64_t)(wall_ns - window.begin_ns),
                               (uint64_t)(window.end_ns - wall_ns)};
}

/* The first edge at or after an instant. */
static uint64_t edge_from(const struct stint_quota *quota, uint64_t at_ns)
{
    struct fixed_span span = span_around(quota, at_ns);
    return span.since_ns == 0 ? at_ns : at_ns + span.until_ns;
}

static uint64_t end_of_mark(const struct stint_quota *quota, uint64_t mark)
{
    assert(quota->derived.grain_ns > 0);
    uint64_t grain_ns = quota->derived.grain_ns;
    uint64_t mark_last = MARK_LAST_NS >> (bit_length(grain_ns) - 1);
    uint64_t mark_ns = min_u64(mark, mark_last) * grain_ns; /* the memory may be damaged */
    if (is_first_use(quota))
        return mark_ns - (grains_up(quota, quota->period_ns) * grain_ns - quota->period_ns);
    uint64_t edge_ns = edge_from(quota, mark_ns);
    bool is_coarse = grain_ns > quota->period_ns / GRAINS_PER_PERIOD;
    return edge_ns < mark_ns + grain_ns || is_coarse ? edge_ns : mark_ns;
}

static struct fixed unpack(const struct stint_quota *quota, const void *state, uint64_t now_ns)
{
    uint64_t word = *(const uint64_t *)state;
    struct fixed fixed = {
        .quota = quota, .now_ns = now_ns, .mark = word >> quota->derived.count_bits};
    if (word == 0)
        return fixed;
    fixed.end_ns = end_of_mark(quota, fixed.mark);
    fixed.live = now_ns < fixed.end_ns;
    if (fixed.live)
        fixed.count = word & ~(UINT64_MAX << quota->derived.count_bits);
    return fixed;
}

/*
 * Opens the window of now where none is live; false if its mark cannot be represented. A first use
 * in the grain in which the window before ended begins a grain later: so a grain belongs to one
 * window alone, and the time of a refund identifies its window.
 */
static bool open_window(struct fixed *fixed)
{
    assert(!fixed->live && fixed->now_ns <= STINT_NOW_MAX);
    const struct stint_quota *quota = fixed->quota;
    uint64_t grain_ns = quota->derived.grain_ns, end_ns, mark;
    if (is_first_use(quota)) {
        uint64_t start = grains_up(quota, fixed->now_ns);
        if (grain_ns > 1 && fixed->end_ns > 0 && grains_up(quota, fixed->end_ns) >= start)
            start++;
        mark = start + grains_up(quota, quota->period_ns);
        end_ns = start * grain_ns + quota->period_ns;
    } else {
        end_ns = fixed->now_ns + span_around(quota, fixed->now_ns).until_ns;
        mark = end_ns >> (bit_length(grain_ns) - 1);
    }
    assert(end_ns > fixed->now_ns);
    if (mark > mark_max(quota))
        return false;
    fixed->mark = mark;
    fixed->end_ns = end_ns;
    fixed->live = true;
    return true;
}

static uint64_t pack(const struct fixed *fixed)
{
    assert(fixed->mark <= mark_max(fixed->quota));
    return fixed->mark << fixed->quota->derived.count_bits | fixed->count;
}

/* A first use may be rounded up to a grain; a window may have begun before now = 0. */
static uint64_t begin_of(const struct fixed *fixed)
{
    assert(fixed->end_ns > 0);
    const struct stint_quota *quota = fixed->quota;
    if (is_first_use(quota))
        return sub_floor(fixed->end_ns - quota->period_ns + 1, quota->derived.grain_ns);
    uint64_t last_ns = fixed->end_ns - 1;
    return sub_floor(last_ns, span_around(quota, last_ns).since_ns);
}

static uint64_t used(const void *state)
{
    const struct fixed *fixed = state;
    return fixed->count;
}

static bool add(void *state, uint64_t units)
{
    struct fixed *fixed = state;
    if (!fixed->live && !open_window(fixed))
        return false;
    fixed->count += units;
    return true;
}

/* Units come back only to the window in which they were granted; earlier windows are forgotten. */
static uint64_t refund(void *state, const struct stint_ask *ask)
{
    struct fixed *fixed = state;
    uint64_t units = min_u64(ask->cost, fixed->count);
    if (units == 0 || ask->at_ns < begin_of(fixed))
        return 0;
    assert(units <= fixed->count && fixed->live);
    fixed->count -= units;
    return units;
}

static uint64_t reset_ns(const void *state)
{
    const struct fixed *fixed = state;
    return fixed->live ? fixed->end_ns - fixed->now_ns : 0;
}

static uint64_t wait_ns(const void *state, uint32_t cost)
{
    (void)cost; /* all units come back at once */
    return reset_ns(state);
}

static const struct counter fixed_counter = {used, add, refund, wait_ns, reset_ns};

static struct stint_decision fixed_window_ask(const struct stint_quota *quota, void *bytes,
                                              const struct stint_ask *ask)
{
    struct fixed fixed = unpack(quota, bytes, ask->now_ns);
    uint64_t before = fixed.count;
    struct stint_decision decision = counter_ask(&fixed_counter, quota, &fixed, ask);
    if (fixed.count != before && ask->verb != STINT_PEEK)
        *(uint64_t *)bytes = pack(&fixed);
    return decision;
}

static uint64_t fixed_window_expires_at(const struct stint_quota *quota, const void *state)
{
    return unpack(quota, state, 0).end_ns;
}

static void fixed_window_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    uint64_t *word = state, mark;
    *word = 0;
    if (until_ns == 0)
        return;
    until_ns = min_u64(until_ns, FILL_LAST_NS);
    if (is_first_use(quota)) {
        uint64_t period = grains_up(quota, quota->period_ns);
        mark = grains_up(quota, until_ns + period * quota->derived.grain_ns - quota->period_ns);
    } else if (edge_from(quota, until_ns) == until_ns) {
        mark = until_ns >> (bit_length(quota->derived.grain_ns) - 1);
    } else {
        mark = grains_up(quota, until_ns);
    }
    *word = min_u64(mark, mark_max(quota)) << quota->derived.count_bits | quota->limit;
}

/*
 * A window that is open at now ends within its longest length; its mark is at most two grains
 * later, and one that began with its first use ends no earlier than its period after time 0.
 */
static bool fixed_window_is_valid(const struct stint_quota *quota, const void *state,
                                  uint64_t now_ns)
{
    assert(now_ns <= STINT_NOW_MAX);
    const uint64_t *word = state;
    uint64_t grain_ns = quota->derived.grain_ns, mark = *word >> quota->derived.count_bits;
    uint64_t whole_ns = is_first_use(quota) ? grains_up(quota, quota->period_ns) * grain_ns
                                            : WINDOW_LONGEST_NS(quota->period_ns);
    uint64_t first_ns = is_first_use(quota) ? whole_ns - quota->period_ns : 0;
    uint64_t last_ns = now_ns + whole_ns + 2 * grain_ns;
    uint64_t count = *word & ~(UINT64_MAX << quota->derived.count_bits);
    return count <= 2 * (uint64_t)quota->limit && mark <= last_ns >> (bit_length(grain_ns) - 1) &&
           mark * grain_ns >= first_ns;
}

static size_t fixed_window_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                                struct held_run *runs)
{
    struct fixed fixed = unpack(quota, state, now_ns);
    if (fixed.count == 0)
        return 0;
    runs[0] = (struct held_run){.at_ns = now_ns, .units = fixed.count};
    return 1;
}

static uint64_t fixed_window_own_ns(const struct stint_quota *quota, const void *state)
{
    struct fixed fixed = unpack(quota, state, 0);
    return fixed.end_ns == 0 ? 0 : begin_of(&fixed);
}

/* The window at at_ns is open, and empty. */
static void fixed_window_pass(const struct stint_quota *quota, void *state, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX);
    struct fixed fixed = unpack(quota, state, at_ns);
    if (!fixed.live && open_window(&fixed))
        *(uint64_t *)state = pack(&fixed);
}

static int fixed_window_check(struct stint_quota *quota, struct stint_error *error)
{
    struct stint_derived *derived = &quota->derived;
    /* A caller that must wait late in the table's life finds a window after the wait. */
    uint64_t last_end_ns = TABLE_LIFE_NS + 2 * WINDOW_LONGEST_NS(quota->period_ns);
    unsigned count_bits = bit_length(2 * (uint64_t)quota->limit | 1);
    unsigned end_bits = bit_length(last_end_ns), mark_bits = 64 - count_bits;
    derived->count_bits = (uint8_t)count_bits;
    derived->grain_ns = UINT64_C(1) << (end_bits > mark_bits ? end_bits - mark_bits : 0);
    derived->state_size = 8;
    uint64_t grains_min = is_first_use(quota) ? GRAINS_PER_PERIOD : GRAINS_PER_PERIOD_MIN;
    if (derived->grain_ns > quota->period_ns / grains_min)
        return err_set(error, STINT_E_RANGE,
                       "beside a count up to %u, 8 bytes keep the time of a fixed window only to "
                       "%llu ns; the period would have to be at least %llu ns",
                       (unsigned)quota->limit, (unsigned long long)derived->grain_ns,
                       (unsigned long long)(derived->grain_ns * grains_min));
    return STINT_OK;
}

const struct algorithm algorithm_fixed_window = {
    .name = "fixed_window",
    .check = fixed_window_check,
    .ask = fixed_window_ask,
    .expires_at = fixed_window_expires_at,
    .fill = fixed_window_fill,
    .is_valid = fixed_window_is_valid,
    .held = fixed_window_held,
    .own_ns = fixed_window_own_ns,
    .pass = fixed_window_pass,
};
