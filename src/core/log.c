/* SPDX-License-Identifier: MIT */
/*
 * The law of `log`: the last N times, exactly. A unit taken at u is free again at u + W; nothing is
 * rounded, so nothing is denied that had room.
 *
 * The times are a multiset in a ring, sorted. Units of one instant share an entry, which holds up
 * to 16 of them, so entries never outnumber units, and units never outnumber N.
 *
 * A booked place is an entry in the future, and counts as used from the moment it is booked. It
 * takes the places of the oldest units: of those that die last at its start, W before it. They
 * leave the log though they still live, because they deny nothing any more that the booked units do
 * not deny too. So when it is cancelled, they must come back. They do at W before its start: exact
 * for one unit, at most a little too late for a cost above that. Booked units that took a free
 * place instead are marked apart, and leave a free place. A place that is itself still to come is
 * never displaced, hence nothing can be booked further ahead than one period.
 */
#include "core/law.h"

#include <assert.h>
#include <string.h>

#define LOG_COUNT_BITS 4
#define LOG_COUNT_MAX (1u << LOG_COUNT_BITS)
#define LOG_TIME_SHIFT (LOG_COUNT_BITS + 1)

_Static_assert(STINT_NOW_MAX >> (64 - LOG_TIME_SHIFT) == 0, "a time fits beside count and mark");

/* An entry is, from bit 0: the count less one, whether it displaced living units, the time. */
struct log_state {
    uint32_t head;   /* where in entry[] the oldest is */
    uint32_t len;    /* entries in use */
    uint32_t units;  /* in them all */
    uint32_t unused; /* zero */
    uint64_t own_ns; /* the latest time at which units were taken; booked ones are later */
    uint64_t entry[];
};

struct log_run {
    uint64_t at_ns;
    uint32_t units;
    bool displaced; /* booked, in the places of units that still lived */
};

static uint32_t log_index(const struct stint_quota *quota, const struct log_state *state,
                          uint32_t at)
{
    uint32_t index = state->head + at; /* both at most the limit, which is small */
    return index >= quota->limit ? index - quota->limit : index;
}

static struct log_run log_get(const struct stint_quota *quota, const struct log_state *state,
                              uint32_t at)
{
    uint64_t entry = state->entry[log_index(quota, state, at)];
    return (struct log_run){
        .at_ns = entry >> LOG_TIME_SHIFT,
        .units = (uint32_t)(entry & (LOG_COUNT_MAX - 1)) + 1,
        .displaced = entry >> LOG_COUNT_BITS & 1,
    };
}

static void log_set(const struct stint_quota *quota, struct log_state *state, uint32_t at,
                    struct log_run run)
{
    assert(run.units > 0 && run.units <= LOG_COUNT_MAX && run.at_ns <= STINT_NOW_MAX);
    state->entry[log_index(quota, state, at)] =
        run.at_ns << LOG_TIME_SHIFT | (uint64_t)run.displaced << LOG_COUNT_BITS | (run.units - 1);
}

/* The first entry later than at_ns; len if none is. */
static uint32_t log_after(const struct stint_quota *quota, const struct log_state *state,
                          uint64_t at_ns)
{
    uint32_t low = 0, high = state->len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (log_get(quota, state, mid).at_ns <= at_ns)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Makes room for one entry at `at`, or closes its gap, by moving the shorter side. */
static void log_open_gap(const struct stint_quota *quota, struct log_state *state, uint32_t at)
{
    assert(state->len < quota->limit);
    uint32_t len = state->len++;
    if (at >= len / 2) {
        for (uint32_t to = len; to > at; to--)
            log_set(quota, state, to, log_get(quota, state, to - 1));
        return;
    }
    state->head = state->head == 0 ? quota->limit - 1 : state->head - 1;
    for (uint32_t to = 0; to < at; to++)
        log_set(quota, state, to, log_get(quota, state, to + 1));
}

static void log_close_gap(const struct stint_quota *quota, struct log_state *state, uint32_t at)
{
    uint32_t len = state->len--;
    if (at >= len / 2) {
        for (uint32_t to = at; to + 1 < len; to++)
            log_set(quota, state, to, log_get(quota, state, to + 1));
        return;
    }
    for (uint32_t to = at; to > 0; to--)
        log_set(quota, state, to, log_get(quota, state, to - 1));
    state->head = log_index(quota, state, 1);
}

static void log_insert(const struct stint_quota *quota, struct log_state *state, struct log_run run)
{
    uint32_t at = log_after(quota, state, run.at_ns);
    state->units += run.units;
    assert(state->units <= quota->limit);
    if (at > 0 && run.units > 0) {
        struct log_run same = log_get(quota, state, at - 1);
        if (same.at_ns == run.at_ns && same.displaced == run.displaced) {
            uint32_t added = (uint32_t)min_u64(LOG_COUNT_MAX - same.units, run.units);
            same.units += added;
            run.units -= added;
            log_set(quota, state, at - 1, same);
        }
    }
    while (run.units > 0) {
        struct log_run part = run;
        part.units = (uint32_t)min_u64(LOG_COUNT_MAX, run.units);
        log_open_gap(quota, state, at);
        log_set(quota, state, at, part);
        run.units -= part.units;
    }
}

/* Takes up to run.units out of the entries with its time and mark; returns how many. */
static uint32_t log_remove(const struct stint_quota *quota, struct log_state *state,
                           struct log_run run)
{
    uint32_t left = run.units;
    for (uint32_t at = log_after(quota, state, run.at_ns); at > 0 && left > 0; at--) {
        struct log_run found = log_get(quota, state, at - 1);
        if (found.at_ns != run.at_ns)
            break;
        if (found.displaced != run.displaced)
            continue;
        uint32_t removed = (uint32_t)min_u64(found.units, left);
        left -= removed;
        state->units -= removed;
        found.units -= removed;
        if (found.units > 0)
            log_set(quota, state, at - 1, found);
        else
            log_close_gap(quota, state, at - 1);
    }
    return run.units - left;
}

/* Takes units off the oldest entries, which are known to hold as many. */
static void log_remove_oldest(const struct stint_quota *quota, struct log_state *state,
                              uint32_t units)
{
    assert(units <= state->units);
    state->units -= units;
    while (units > 0) {
        struct log_run oldest = log_get(quota, state, 0);
        if (oldest.units > units) {
            oldest.units -= units;
            log_set(quota, state, 0, oldest);
            return;
        }
        units -= oldest.units;
        state->head = log_index(quota, state, 1);
        state->len--;
    }
}

/* Units that are dead at this time; each is walked over once more, when they are taken off. */
static uint32_t log_dead(const struct stint_quota *quota, const struct log_state *state,
                         uint64_t at_ns)
{
    if (state->len == 0)
        return 0;
    if (log_get(quota, state, state->len - 1).at_ns + quota->period_ns <= at_ns)
        return state->units;
    uint32_t units = 0;
    for (uint32_t at = 0;; at++) {
        struct log_run run = log_get(quota, state, at);
        if (run.at_ns + quota->period_ns > at_ns)
            return units;
        units += run.units;
    }
}

/* When the units-th oldest dies. */
static uint64_t log_death_ns(const struct stint_quota *quota, const struct log_state *state,
                             uint32_t units)
{
    assert(units > 0 && units <= state->units);
    for (uint32_t at = 0;; at++) {
        struct log_run run = log_get(quota, state, at);
        if (run.units >= units)
            return run.at_ns + quota->period_ns;
        units -= run.units;
    }
}

/* What an ask finds. */
struct log_view {
    uint64_t at_ns; /* the effective time */
    uint32_t dead, free;
};

static struct log_view log_view(const struct stint_quota *quota, const struct log_state *state,
                                uint64_t now_ns)
{
    struct log_view view = {.at_ns = max_u64(now_ns, state->own_ns)};
    view.dead = log_dead(quota, state, view.at_ns);
    view.free = quota->limit - (state->units - view.dead);
    return view;
}

static struct stint_decision log_answer(const struct stint_quota *quota,
                                        const struct log_state *state, uint64_t now_ns,
                                        uint32_t granted)
{
    return (struct stint_decision){
        .outcome = STINT_ALLOW,
        .granted = granted,
        .limit = quota->limit,
        .remaining = log_view(quota, state, now_ns).free,
        .reset_after_ns = sub_floor(log_dies_at(quota, state), now_ns),
    };
}

/* The answer to a cost that is not free now; wait_max_ns is the wait that would do. */
static struct stint_decision log_refuse(const struct stint_quota *quota,
                                        const struct log_state *state, const struct stint_ask *ask,
                                        uint32_t cost, uint64_t wait_max_ns)
{
    struct stint_decision decision = log_answer(quota, state, ask->now_ns, 0);
    decision.outcome = STINT_NEVER;
    decision.retry_after_ns = STINT_NEVER_NS;
    if (cost > quota->limit)
        return decision;
    /* All units less those that may stay have to die. */
    uint64_t at_ns = log_death_ns(quota, state, state->units - (quota->limit - cost));
    decision.outcome = STINT_DENY;
    decision.retry_after_ns = at_ns - ask->now_ns - wait_max_ns;
    return decision;
}

static void log_take(const struct stint_quota *quota, struct log_state *state,
                     const struct log_view *view, uint32_t units)
{
    log_remove_oldest(quota, state, view->dead);
    log_insert(quota, state, (struct log_run){.at_ns = view->at_ns, .units = units});
    state->own_ns = view->at_ns;
}

static struct stint_decision log_refund(const struct stint_quota *quota, struct log_state *state,
                                        const struct stint_ask *ask)
{
    struct log_view view = log_view(quota, state, ask->now_ns);
    uint32_t left = ask->cost;
    if (ask->at_ns != STINT_NEVER_NS) {
        bool alive = ask->at_ns <= view.at_ns && ask->at_ns + quota->period_ns > view.at_ns;
        struct log_run exact = {.at_ns = ask->at_ns, .units = alive ? left : 0};
        left -= log_remove(quota, state, exact);
        /* Booked units whose time has come are units like others. */
        exact = (struct log_run){.at_ns = ask->at_ns, .units = alive ? left : 0, .displaced = true};
        left -= log_remove(quota, state, exact);
        return log_answer(quota, state, ask->now_ns, ask->cost - left);
    }
    for (uint32_t at = log_after(quota, state, view.at_ns); at > 0 && left > 0; at--) {
        struct log_run run = log_get(quota, state, at - 1);
        if (run.at_ns + quota->period_ns <= view.at_ns)
            break;
        run.units = (uint32_t)min_u64(run.units, left);
        left -= log_remove(quota, state, run);
    }
    return log_answer(quota, state, ask->now_ns, ask->cost - left);
}

static struct stint_decision log_book(const struct stint_quota *quota, struct log_state *state,
                                      const struct stint_ask *ask)
{
    struct log_view view = log_view(quota, state, ask->now_ns);
    uint64_t wait_max_ns = min_u64(ask->at_ns, quota->period_ns);
    if (ask->cost <= view.free) {
        if (ask->cost > 0)
            log_take(quota, state, &view, ask->cost);
        return log_answer(quota, state, ask->now_ns, ask->cost);
    }
    struct stint_decision decision = log_refuse(quota, state, ask, ask->cost, 0);
    uint64_t wait_ns = decision.retry_after_ns;
    if (decision.outcome == STINT_NEVER || ask->now_ns + wait_ns > STINT_NOW_MAX)
        return decision;
    if (wait_ns > wait_max_ns)
        return log_refuse(quota, state, ask, ask->cost, wait_max_ns);

    uint64_t start_ns = ask->now_ns + wait_ns;
    uint32_t displaced = ask->cost - view.free;
    log_remove_oldest(quota, state, view.dead + displaced);
    log_insert(quota, state, (struct log_run){start_ns, displaced, true});
    log_insert(quota, state, (struct log_run){start_ns, view.free, false});
    state->own_ns = view.at_ns;
    decision = log_answer(quota, state, ask->now_ns, ask->cost);
    decision.retry_after_ns = wait_ns;
    return decision;
}

static struct stint_decision log_unbook(const struct stint_quota *quota, struct log_state *state,
                                        const struct stint_ask *ask)
{
    struct log_view view = log_view(quota, state, ask->now_ns);
    if (ask->at_ns <= view.at_ns)
        return log_answer(quota, state, ask->now_ns, 0);
    uint32_t free = log_remove(quota, state, (struct log_run){ask->at_ns, ask->cost, false});
    uint32_t displaced =
        log_remove(quota, state, (struct log_run){ask->at_ns, ask->cost - free, true});
    uint64_t before_ns = ask->at_ns - quota->period_ns;
    log_insert(quota, state, (struct log_run){before_ns, displaced, false});
    return log_answer(quota, state, ask->now_ns, free + displaced);
}

struct stint_decision log_ask(const struct stint_quota *quota, void *state_bytes,
                              const struct stint_ask *ask)
{
    struct log_state *state = state_bytes;
    bool whole = ask->verb == STINT_TAKE || ask->verb == STINT_PEEK;
    switch (ask->verb) {
    case STINT_REFUND:
        return log_refund(quota, state, ask);
    case STINT_BOOK:
        return log_book(quota, state, ask);
    case STINT_UNBOOK:
        return log_unbook(quota, state, ask);
    default:
        break;
    }
    struct log_view view = log_view(quota, state, ask->now_ns);
    uint32_t granted = ask->cost <= view.free ? ask->cost : whole ? 0 : view.free;
    if (granted == 0 && ask->cost > 0 && ask->verb != STINT_CHARGE)
        return log_refuse(quota, state, ask, whole ? ask->cost : 1, 0);
    if (granted == 0 || ask->verb != STINT_PEEK) {
        if (granted > 0)
            log_take(quota, state, &view, granted);
        return log_answer(quota, state, ask->now_ns, granted);
    }
    struct stint_decision decision = log_answer(quota, state, ask->now_ns, granted);
    uint64_t dies_at_ns = max_u64(log_dies_at(quota, state), view.at_ns + quota->period_ns);
    decision.remaining = view.free - granted;
    decision.reset_after_ns = dies_at_ns - ask->now_ns;
    return decision;
}

uint64_t log_dies_at(const struct stint_quota *quota, const void *state_bytes)
{
    const struct log_state *state = state_bytes;
    if (state->len == 0)
        return state->own_ns;
    return log_get(quota, state, state->len - 1).at_ns + quota->period_ns;
}

/* All N, W before; an instant that no now can reach is as good as the last one. */
void log_fill(const struct stint_quota *quota, void *state_bytes, uint64_t until_ns)
{
    struct log_state *state = state_bytes;
    memset(state_bytes, 0, quota->derived.state_size);
    if (until_ns == 0)
        return;
    uint64_t at_ns = min_u64(sub_floor(until_ns, quota->period_ns), STINT_NOW_MAX);
    log_insert(quota, state, (struct log_run){.at_ns = at_ns, .units = quota->limit});
    state->own_ns = at_ns;
}

/*
 * Sorted times, of which those that are later than the latest use were booked, at most a period
 * ahead; and as many units as they say. What displaced others started a period after them.
 */
bool log_is_valid(const struct stint_quota *quota, const void *state_bytes, uint64_t now_ns)
{
    const struct log_state *state = state_bytes;
    if (state->head >= quota->limit || state->len > quota->limit || state->units > quota->limit ||
        state->unused != 0 || state->own_ns > now_ns)
        return false;
    uint64_t last_ns = min_u64(state->own_ns + quota->period_ns, STINT_NOW_MAX), before_ns = 0;
    uint64_t units = 0;
    for (uint32_t at = 0; at < state->len; at++) {
        struct log_run run = log_get(quota, state, at);
        if (run.at_ns < before_ns || run.at_ns > last_ns ||
            (run.displaced && run.at_ns < quota->period_ns))
            return false;
        before_ns = run.at_ns;
        units += run.units;
    }
    return units == state->units;
}

size_t log_held(const struct stint_quota *quota, const void *state_bytes, uint64_t now_ns,
                struct held_run *runs)
{
    const struct log_state *state = state_bytes;
    struct log_view view = log_view(quota, state, now_ns);
    uint32_t first = 0;
    if (view.at_ns >= quota->period_ns)
        first = log_after(quota, state, view.at_ns - quota->period_ns);
    uint32_t n_alive = state->len - first;
    uint32_t per_run = (n_alive + HELD_RUNS_MAX - 1) / HELD_RUNS_MAX;
    size_t n_runs = 0;
    uint64_t units = 0;
    for (uint32_t at = 0; at < n_alive; at++) {
        struct log_run run = log_get(quota, state, first + at);
        units += run.units;
        if ((at + 1) % per_run != 0 && at + 1 < n_alive)
            continue;
        runs[n_runs++] = (struct held_run){run.at_ns, units};
        units = 0;
    }
    return n_runs;
}

uint64_t log_own_ns(const struct stint_quota *quota, const void *state_bytes)
{
    const struct log_state *state = state_bytes;
    (void)quota;
    return state->own_ns;
}

void log_pass(const struct stint_quota *quota, void *state_bytes, uint64_t at_ns)
{
    struct log_state *state = state_bytes;
    (void)quota;
    state->own_ns = max_u64(state->own_ns, at_ns);
}

int log_check(struct stint_quota *quota, struct stint_error *error)
{
    uint64_t size = sizeof(struct log_state) + UINT64_C(8) * max_u64(quota->limit, 1);
    if (size > LOG_STATE_MAX)
        return err_set(error, STINT_E_RANGE,
                       "log: %u times take %llu bytes, expected at most %d: a limit of %u",
                       (unsigned)quota->limit, (unsigned long long)size, LOG_STATE_MAX,
                       (unsigned)((LOG_STATE_MAX - sizeof(struct log_state)) / 8));
    quota->derived.state_size = (uint32_t)size;
    return STINT_OK;
}
