/* SPDX-License-Identifier: MIT */
/*
 * All of the properties in a small world: every valid state whose times lie in a stretch of a few
 * periods, every now of that stretch, every cost. Four stretches: in the middle of a table's life,
 * before its end, at the beginning of time, and at its end. Compiled with, besides what
 * subject.h needs:
 *
 *   PARTS      of a period: times are the first and the last nanosecond of each
 *   SPAN       parts in a stretch
 *   STRETCHES  4, or 1: only that in the middle
 *
 * usage: search [PROPERTY]
 */
#include "properties.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Choices --------------------------------------------------------------------------------- */

/*
 * A property is run once for each sequence of choices: choose(n) returns 0 to n - 1. The next run
 * repeats all choices of the last one but the last that has a next value.
 */
#define DEPTH_MAX 128
static struct choice {
    unsigned value, n;
} choices[DEPTH_MAX];
static unsigned n_choices, n_made, changed; /* the first choice that differs from the last run */
static jmp_buf is_refused;

static unsigned choose(unsigned n)
{
    assert(n > 0 && n_made < DEPTH_MAX);
    if (n_made == n_choices)
        choices[n_choices++] = (struct choice){0, n};
    assert(choices[n_made].n == n);
    return choices[n_made++].value;
}

static bool choose_next(void)
{
    n_choices = n_made;
    n_made = 0;
    while (n_choices > 0 && choices[n_choices - 1].value + 1 == choices[n_choices - 1].n)
        n_choices--;
    if (n_choices == 0)
        return false;
    changed = n_choices - 1;
    choices[changed].value++;
    return true;
}

/* Ends this run: the choices so far are no case of the property. */
void assume(bool condition)
{
    if (!condition)
        longjmp(is_refused, 1);
}

#define ANY_OF(values) (values)[choose(sizeof(values) / sizeof((values)[0]))]

/* ---- Inputs ---------------------------------------------------------------------------------- */

#define TIMES_MAX (2 * SPAN)
static uint64_t times[TIMES_MAX], begin_ns;
static unsigned n_times;

static void add_time(uint64_t time_ns)
{
    if (n_times == 0 || time_ns > times[n_times - 1])
        times[n_times++] = time_ns;
}

static uint64_t part_start(uint64_t part)
{
    return begin_ns + (part * quota.period_ns + PARTS - 1) / PARTS;
}

/* The stretch of time that begins with that period. */
static void set_times(uint64_t period)
{
    begin_ns = period * quota.period_ns;
    n_times = 0;
    for (uint64_t part = 0; part < SPAN; part++) {
        add_time(part_start(part));
        add_time(part_start(part + 1) - 1);
    }
}

uint64_t any_latest(void)
{
    return times[n_times - 1];
}

uint64_t any_time(uint64_t latest_ns)
{
    assert(latest_ns == times[n_times - 1]);
    return times[choose(n_times)];
}

/* All units, where they are few. */
static uint64_t any_units(uint64_t few, uint64_t most)
{
    const uint64_t many[] = {0, 1, most / 2 - 1, most / 2, most / 2 + 1, most - 1, most};
    return most <= few ? choose((unsigned)most + 1) : ANY_OF(many);
}

uint32_t any_cost(void)
{
    uint32_t all = most_units(&quota), more = choose(3);
    return more == 2 ? UINT32_MAX : more == 1 ? all + 1 : (uint32_t)any_units(32, all);
}

/* Also before the stretch. */
uint64_t any_grant(void)
{
    unsigned part = choose(PARTS + SPAN + 3);
    if (part < PARTS + 2)
        return sub_floor(begin_ns, part_start(PARTS + 2 - part) - begin_ns);
    return part == PARTS + SPAN + 2 ? STINT_NEVER_NS : part_start(part - PARTS - 2);
}

uint64_t any_wait(void)
{
    if (quota.algorithm != STINT_GCRA) /* the others have no bookings */
        return BOOK_WAIT_MAX_NS;
    unsigned at = choose(n_times + 1);
    return at == n_times ? BOOK_WAIT_MAX_NS : times[at] - begin_ns;
}

/* ---- States ---------------------------------------------------------------------------------- */

#ifdef FOR_gcra
/* Every tick of the stretch and as far after it as a key may owe; and around the last booking. */
static void make_words(struct state *state)
{
    uint64_t first = begin_ns << GCRA_TICKS_PER_NS_LOG2;
    uint64_t last = times[n_times - 1] << GCRA_TICKS_PER_NS_LOG2;
    uint64_t booked = (BOOK_WAIT_MAX_NS << GCRA_TICKS_PER_NS_LOG2) + quota.derived.capacity_ticks;
    unsigned n = (unsigned)(last - first + 2 * quota.derived.capacity_ticks), tick = choose(n + 5);
    state->word[0] = tick <= n ? first + tick : add_sat(last, booked) - (tick - n - 1);
}
#endif

#ifdef FOR_fixed_window
/* Windows that end around the times of the stretch, and one after. */
static void make_words(struct state *state)
{
    state->word[0] = 0;
    if (choose(2) == 0)
        return; /* never used */
    uint64_t end_ns = times[choose(n_times)] + (choose(2) == 0 ? 0 : quota.period_ns);
    uint64_t mark = (end_ns >> (bit_length(quota.derived.grain_ns) - 1)) + choose(2);
    uint64_t count = any_units(16, 2 * (uint64_t)quota.limit + 1);
    assume(mark <= mark_max(&quota));
    state->word[0] = mark << quota.derived.count_bits | count;
}
#endif

#ifdef FOR_sliding_counter
static void make_words(struct state *state)
{
    uint64_t most = 2 * (uint64_t)quota.limit + 1;
    struct sliding sliding = {.quota = &quota,
                              .number = begin_ns / quota.period_ns + choose(SPAN / PARTS + 2)};
    sliding.previous = any_units(16, most);
    sliding.current = any_units(16, most);
    assume(sliding.number <= number_max(&quota));
    struct word16 words = pack(&sliding);
    memcpy(state, &words, sizeof(words));
}
#endif

#ifdef FOR_window
/* Never used, or every string of bars and stars in one slot, with times before and after. */
static void make_words(struct state *state)
{
    memset(state, 0, sizeof(*state));
    if (choose(2) == 0)
        return;
    struct bits256 longer = {{0}};
    struct window window = {.longer = quota.derived.state_size > 16 ? &longer : NULL};
    window.slot = window_slot_of(&quota, &window, times[n_times / 6]);
    assume(window.slot >> window_displaced_at(&quota) == 0);
    uint32_t bars = window_bars(&quota), left = quota.derived.bunches;
    window_string_renew(&window, bars, 0);
    for (uint32_t bar = 0; bar < bars; bar++) {
        uint32_t stars = choose(left + 1);
        if (bar > 0)
            window_string_pass(&window, bars, 1);
        if (stars > 0)
            window_string_append(&window, stars);
        left -= stars;
    }
    uint32_t most = window_displaced_max(&quota);
    const uint32_t displaced[] = {0, 1, most};
    window.rest = choose(quota.derived.bunch);
    window.place = choose(quota.derived.place_bits == 0 ? 1 : quota.derived.bunches + 1);
    window.displaced = left > 0 ? 0 : ANY_OF(displaced);
    window_store(&quota, state, &window);
}
#endif

#ifdef FOR_buckets
/*
 * Every number of buckets, each later than the one before it, as is_valid() demands. The oldest is
 * at the beginning of the stretch, or later.
 */
static void make_words(struct state *state)
{
    const uint32_t displaced[] = {0, 1, quota.limit, UINT32_MAX - 1, UINT32_MAX};
    memset(state, 0, sizeof(*state));
    struct buckets buckets = buckets_unpack(&quota, state);
    buckets.n = choose(quota.derived.max_buckets + 1);
    buckets.closed = buckets.n > 0 && choose(2) == 1;
    buckets.base_ns = times[choose(2) * n_times / 3];
    buckets.first_ns = buckets.base_ns;
    if (buckets.n != 1 || buckets.closed || quota.time_slack_ns > 0)
        buckets.first_ns = times[choose(n_times)];
    uint64_t since_ns = 0;
    for (uint32_t at = 0; at < buckets.n; at++) {
        since_ns += at == 0 ? 0 : choose((unsigned)(quota.period_ns - since_ns));
        uint64_t units = 1 + choose(buckets_size(&quota));
        buckets_set(&buckets, at, (struct held_run){buckets.base_ns + since_ns, units});
    }
    if (buckets.n > 0)
        buckets.displaced = ANY_OF(displaced);
    buckets_pack(&buckets);
}
#endif

/* Made once for all runs that differ in later choices. */
void any_words(struct state *state)
{
    static struct state made;
    static unsigned first, end;
    if (n_made == first && end > first && changed >= end) {
        n_made = end;
        *state = made;
        return;
    }
    first = n_made;
    end = 0;
    make_words(&made);
    end = n_made;
    *state = made;
}

/* ---- The search ------------------------------------------------------------------------------ */

#define NO_CASES 2 /* exit code: a search of nothing finds nothing */
#define PROPERTY(name) #name, proof_##name
static const struct property {
    const char *name;
    void (*run)(void);
} properties[] = {
    {PROPERTY(take)},   {PROPERTY(peek)},   {PROPERTY(wait)}, {PROPERTY(remaining)},
    {PROPERTY(charge)}, {PROPERTY(refund)}, {PROPERTY(look)}, {PROPERTY(take_upto)},
    {PROPERTY(book)},   {PROPERTY(unbook)}, {PROPERTY(pass)},
};

static uint64_t search(const struct property *property)
{
    static uint64_t n_cases; /* setjmp keeps no local one */
    n_cases = 0;
    changed = 0;
    do {
        if (setjmp(is_refused) == 0) {
            property->run();
            n_cases++;
        }
    } while (choose_next());
    return n_cases;
}

int main(int argc, char **argv)
{
    uint64_t n_all = 0;
    check_quota();
    const uint64_t span_ns = SPAN * quota.period_ns / PARTS;
    const uint64_t begins[4] = {TABLE_LIFE_NS / 3, TABLE_LIFE_NS - span_ns, 0,
                                STINT_NOW_MAX - span_ns};
    for (size_t p = 0; p < sizeof(properties) / sizeof(properties[0]); p++) {
        uint64_t n = 0;
        if (argc > 1 && strcmp(argv[1], properties[p].name) != 0)
            continue;
        for (size_t i = 0; i < STRETCHES; i++) {
            set_times(begins[i] / quota.period_ns);
            n += search(&properties[p]);
        }
        printf("%s: %llu cases\n", properties[p].name, (unsigned long long)n);
        n_all += n;
    }
    printf("%llu cases hold\n", (unsigned long long)n_all);
    return n_all > 0 ? 0 : NO_CASES;
}
