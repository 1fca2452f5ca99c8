/* SPDX-License-Identifier: MIT */
/*
 * The algorithm `log`: the last N times, exactly. A unit taken at u is free again at u + W;
 * nothing is rounded, so nothing that fits is denied.
 *
 * The times are a multiset in a ring, sorted. Units of one instant share an entry, which holds up
 * to 16 of them, so entries never outnumber units, and units never outnumber N.
 *
 * A booking is an entry in the future, and counts as used from the time at which it is booked. It
 * displaces the oldest units: of those that expire last at its start, W before it. They are removed
 * from the log though they are still live, because they deny only what the booked units deny too.
 * So when the booking is cancelled, they must come back. They do at W before its start: exact for
 * one unit, at most a little too late for a larger cost. Booked units that displaced nothing are
 * marked apart, and leave free units. A booking that has not begun is never displaced, hence
 * nothing can be booked later than one period after now.
 *
 * A charge is recorded whether it fits or not: the log keeps the newest N units and only counts
 * those that they displace. These are no younger than the oldest unit left, and count as used until
 * that one expires; while they do, N others are live, so they deny nothing by themselves. But of
 * units given back, as many as were displaced are still in use by others.
 */
#include "algorithm/algorithm.h"
#include "algorithm/ring.h"

#include <assert.h>
#include <string.h>

#define LOG_COUNT_BITS 4
#define LOG_COUNT_MAX (1u << LOG_COUNT_BITS)
#define LOG_TIME_SHIFT (LOG_COUNT_BITS + 1)

_Static_assert(STINT_NOW_MAX >> (64 - LOG_TIME_SHIFT) == 0, "a time fits beside count and mark");

/* An entry is, from bit 0: the count less one, whether it displaced live units, the time. */
struct log_state {
    uint32_t head;      /* where in entry[] the oldest is */
    uint32_t len;       /* entries in use */
    uint32_t units;     /* in them all */
    uint32_t displaced; /* by charges, and used like the oldest entry's; at most 2^32-1 */
    uint64_t own_ns;    /* the latest time at which units were taken; booked ones are later */
    uint64_t entry[];
};

/*
 * The header as it was read, once: whatever the memory holds, `units` is at least ring.len and at
 * most the limit, and the time one that can be written.
 */
struct log {
    const struct stint_quota *quota;
    struct ring ring;
    uint32_t units, displaced;
    uint64_t own_ns;
};

struct log_run {
    uint64_t at_ns;
    uint32_t units;
    bool displaced; /* booked, in place of units that were still live */
};

static struct log log_unpack(const struct stint_quota *quota, const void *state_bytes)
{
    const struct log_state *state = state_bytes;
    struct log log = {
        .quota = quota,
        .ring = ring_of(state->entry, quota->limit, &state->head, &state->len),
        .units = (uint32_t)min_u64(read_once32(&state->units), quota->limit),
        .own_ns = min_u64(read_once64(&state->own_ns), STINT_NOW_MAX),
    };
    log.ring.len = (uint32_t)min_u64(log.ring.len, log.units);
    log.units = (uint32_t)min_u64(log.units, (uint64_t)log.ring.len * LOG_COUNT_MAX);
    log.displaced = log.units > 0 ? read_once32(&state->displaced) : 0;
    return log;
}

static void log_pack(void *state_bytes, const struct log *log)
{
    assert(log->ring.len <= log->units || log->units == 0);
    struct log_state *state = state_bytes;
    state->head = log->ring.head;
    state->len = log->ring.len;
    state->units = log->units;
    state->displaced = log->displaced;
    state->own_ns = log->own_ns;
}

static struct log_run log_get(const struct log *log, uint32_t at)
{
    uint64_t entry = ring_get(&log->ring, at);
    return (struct log_run){
        .at_ns = entry >> LOG_TIME_SHIFT,
        .units = (uint32_t)(entry & (LOG_COUNT_MAX - 1)) + 1,
        .displaced = entry >> LOG_COUNT_BITS & 1,
    };
}

static void log_set(struct log *log, uint32_t at, struct log_run run)
{
    assert(run.units > 0 && run.units <= LOG_COUNT_MAX && run.at_ns <= STINT_NOW_MAX);
    *ring_at(&log->ring, at) =
        run.at_ns << LOG_TIME_SHIFT | (uint64_t)run.displaced << LOG_COUNT_BITS | (run.units - 1);
}

/* The first entry later than at_ns; len if none is. */
static uint32_t log_after(const struct log *log, uint64_t at_ns)
{
    return ring_before(&log->ring, at_ns + 1, LOG_TIME_SHIFT);
}

static void log_insert(struct log *log, struct log_run run)
{
    uint32_t at = log_after(log, run.at_ns);
    log->units += run.units;
    assert(log->units <= log->quota->limit && log->ring.len + run.units <= log->quota->limit);
    if (at > 0 && run.units > 0) {
        struct log_run same = log_get(log, at - 1);
        if (same.at_ns == run.at_ns && same.displaced == run.displaced) {
            uint32_t added = (uint32_t)min_u64(LOG_COUNT_MAX - same.units, run.units);
            same.units += added;
            run.units -= added;
            log_set(log, at - 1, same);
        }
    }
    while (run.units > 0) {
        struct log_run part = run;
        part.units = (uint32_t)min_u64(LOG_COUNT_MAX, run.units);
        ring_open(&log->ring, at);
        log_set(log, at, part);
        run.units -= part.units;
    }
}

/*
 * Keeps units at least as many as entries, whatever others have written into the entries: so there
 * is an entry for each unit that is free.
 */
static void log_keep(struct log *log)
{
    log->ring.len = (uint32_t)min_u64(log->ring.len, log->units);
}

/* Removes up to run.units from the entries with its time and mark; returns how many. */
static uint32_t log_remove(struct log *log, struct log_run run)
{
    uint32_t left = (uint32_t)min_u64(run.units, log->units), wanted = left;
    for (uint32_t at = log_after(log, run.at_ns); at > 0 && left > 0; at--) {
        struct log_run found = log_get(log, at - 1);
        if (found.at_ns != run.at_ns)
            break;
        if (found.displaced != run.displaced)
            continue;
        uint32_t removed = (uint32_t)min_u64(found.units, left);
        left -= removed;
        log->units -= removed;
        found.units -= removed;
        if (found.units > 0)
            log_set(log, at - 1, found);
        else
            ring_remove(&log->ring, at - 1, 1);
    }
    log_keep(log);
    return wanted - left;
}

/* Removes units from the oldest entries, which hold at least as many. */
static void log_remove_oldest(struct log *log, uint32_t units)
{
    assert(units <= log->units);
    log->units -= units;
    while (units > 0 && log->ring.len > 0) {
        struct log_run oldest = log_get(log, 0);
        if (oldest.units > units) {
            oldest.units -= units;
            log_set(log, 0, oldest);
            break;
        }
        units -= oldest.units;
        ring_remove(&log->ring, 0, 1);
    }
    log_keep(log);
}

/* Units that have expired at this time; each is visited once more, when it is removed. */
static uint32_t log_expired(const struct log *log, uint64_t at_ns)
{
    if (log->ring.len == 0)
        return 0;
    if (log_get(log, log->ring.len - 1).at_ns + log->quota->period_ns <= at_ns)
        return log->units;
    uint32_t units = 0;
    for (uint32_t at = 0; at + 1 < log->ring.len; at++) {
        struct log_run run = log_get(log, at);
        if (run.at_ns + log->quota->period_ns > at_ns)
            break;
        units += run.units;
    }
    return (uint32_t)min_u64(units, log->units);
}

/* When the units-th oldest of the entries expires, or the first entry. */
static uint64_t log_expiry_ns(const struct log *log, uint32_t units)
{
    assert(units <= log->units && log->units > 0);
    for (uint32_t at = 0;; at++) {
        struct log_run run = log_get(log, at);
        if (run.units >= units || at + 1 >= log->ring.len)
            return run.at_ns + log->quota->period_ns;
        units -= run.units;
    }
}

static uint64_t log_last_expiry_ns(const struct log *log)
{
    if (log->ring.len == 0)
        return log->own_ns;
    return log_get(log, log->ring.len - 1).at_ns + log->quota->period_ns;
}

/* The state as a decision sees it. */
struct log_view {
    uint64_t at_ns;     /* the effective time */
    uint32_t expired;   /* units in entries */
    uint32_t empty;     /* units for which entries are free */
    uint32_t displaced; /* those that still count */
    uint32_t free;
};

static struct log_view log_view(const struct log *log, uint64_t now_ns)
{
    assert(log->units <= log->quota->limit);
    struct log_view view = {.at_ns = max_u64(now_ns, log->own_ns)};
    view.expired = log_expired(log, view.at_ns);
    view.empty = log->quota->limit - (log->units - view.expired);
    view.displaced = view.expired == 0 ? log->displaced : 0;
    view.free = (uint32_t)sub_floor(view.empty, view.displaced);
    return view;
}

static struct stint_decision log_answer(const struct log *log, uint64_t now_ns, uint32_t granted)
{
    return algorithm_allow(log->quota, granted, log_view(log, now_ns).free,
                           sub_floor(log_last_expiry_ns(log), now_ns));
}

/* Until a cost fits that is not free now. */
static uint64_t log_wait_ns(const struct log *log, const struct stint_ask *ask, uint32_t cost)
{
    assert(cost > 0);
    uint32_t limit = log->quota->limit;
    if (cost > limit)
        return STINT_NEVER_NS;
    /* All units less those that may stay must expire; displaced ones do so with the oldest. */
    return log_expiry_ns(log, (uint32_t)sub_floor(log->units, limit - cost)) - ask->now_ns;
}

static void log_take(struct log *log, const struct log_view *view, uint32_t units)
{
    assert(units > 0 && units <= log->quota->limit);
    log_remove_oldest(log, view->expired);
    log_insert(log, (struct log_run){.at_ns = view->at_ns, .units = units});
    log->own_ns = view->at_ns;
    log->displaced = view->displaced;
}

/*
 * Records units whether they fit or not. Bookings that have not begun are newer than what is
 * charged now, and stay.
 */
static void log_charge(struct log *log, uint64_t now_ns, uint32_t cost)
{
    assert(cost > 0);
    struct log_view view = log_view(log, now_ns);
    uint32_t booked = 0;
    for (uint32_t at = log_after(log, view.at_ns); at < log->ring.len; at++)
        booked += log_get(log, at).units;
    uint32_t newest = (uint32_t)min_u64(cost, sub_floor(log->quota->limit, booked));
    uint32_t pushed = (uint32_t)sub_floor(newest, view.empty);
    uint64_t displaced = (uint64_t)view.displaced + pushed + (cost - newest);
    log_remove_oldest(log, (uint32_t)min_u64(view.expired + pushed, log->units));
    log_insert(log, (struct log_run){.at_ns = view.at_ns, .units = newest});
    log->own_ns = view.at_ns;
    log->displaced = (uint32_t)min_u64(displaced, UINT32_MAX);
}

/*
 * Gives back displaced units, if the units of this time can be among them; returns how many. Among
 * units of the oldest entry's time it does not matter which, but displaced ones must be first.
 */
static uint32_t log_remove_displaced(struct log *log, const struct log_view *view,
                                     struct log_run run)
{
    if (view->displaced == 0 || run.at_ns > log_get(log, 0).at_ns)
        return 0;
    uint32_t removed = (uint32_t)min_u64(run.units, log->displaced);
    log->displaced -= removed;
    return removed;
}

static struct stint_decision log_refund(struct log *log, const struct stint_ask *ask)
{
    assert(ask->verb == STINT_REFUND);
    struct log_view view = log_view(log, ask->now_ns);
    uint32_t left = ask->cost;
    if (ask->at_ns != STINT_NEVER_NS) {
        if (ask->at_ns > view.at_ns || ask->at_ns + log->quota->period_ns <= view.at_ns)
            left = 0;
        uint32_t alive = left;
        left -= log_remove_displaced(log, &view, (struct log_run){ask->at_ns, left, false});
        left -= log_remove(log, (struct log_run){ask->at_ns, left, false});
        /* Booked units whose time has come are normal units. */
        left -= log_remove(log, (struct log_run){ask->at_ns, left, true});
        return log_answer(log, ask->now_ns, alive - left);
    }
    for (uint32_t at = log_after(log, view.at_ns); at > 0 && left > 0; at--) {
        struct log_run run = log_get(log, at - 1);
        if (run.at_ns + log->quota->period_ns <= view.at_ns)
            break;
        left -= log_remove_displaced(log, &view, (struct log_run){run.at_ns, left, false});
        run.units = (uint32_t)min_u64(run.units, left);
        left -= log_remove(log, run);
    }
    return log_answer(log, ask->now_ns, ask->cost - left);
}

static struct stint_decision log_book(struct log *log, const struct stint_ask *ask)
{
    assert(ask->verb == STINT_BOOK);
    struct log_view view = log_view(log, ask->now_ns);
    uint64_t wait_max_ns = min_u64(ask->at_ns, log->quota->period_ns);
    if (ask->cost <= view.free) {
        if (ask->cost > 0)
            log_take(log, &view, ask->cost);
        return log_answer(log, ask->now_ns, ask->cost);
    }
    struct stint_decision decision = log_answer(log, ask->now_ns, 0);
    uint64_t wait_ns = log_wait_ns(log, ask, ask->cost);
    if (wait_ns == STINT_NEVER_NS || ask->now_ns + wait_ns > STINT_NOW_MAX)
        return algorithm_refuse(decision, wait_ns);
    if (wait_ns > wait_max_ns)
        return algorithm_refuse(decision, wait_ns - wait_max_ns);

    uint64_t start_ns = ask->now_ns + wait_ns;
    uint32_t displaced = (uint32_t)sub_floor(ask->cost, view.empty);
    log_remove_oldest(log, view.expired + displaced);
    log_insert(log, (struct log_run){start_ns, displaced, true});
    log_insert(log, (struct log_run){start_ns, ask->cost - displaced, false});
    log->own_ns = view.at_ns;
    log->displaced = view.displaced;
    decision = log_answer(log, ask->now_ns, ask->cost);
    decision.retry_after_ns = wait_ns;
    return decision;
}

static struct stint_decision log_unbook(struct log *log, const struct stint_ask *ask)
{
    assert(ask->verb == STINT_UNBOOK);
    struct log_view view = log_view(log, ask->now_ns);
    if (ask->at_ns <= view.at_ns)
        return log_answer(log, ask->now_ns, 0);
    uint32_t free = log_remove(log, (struct log_run){ask->at_ns, ask->cost, false});
    uint32_t displaced = log_remove(log, (struct log_run){ask->at_ns, ask->cost - free, true});
    uint64_t before_ns = min_u64(sub_floor(ask->at_ns, log->quota->period_ns), STINT_NOW_MAX);
    if (view.displaced > 0 && log->ring.len > 0) /* their time is that of the oldest */
        before_ns = max_u64(before_ns, log_get(log, 0).at_ns);
    log_insert(log, (struct log_run){before_ns, displaced, false});
    if (log->ring.len == 0 || log_get(log, 0).at_ns > view.at_ns) {
        /* Entries are free again for units that the booking displaced. */
        uint32_t units = (uint32_t)min_u64(log->displaced, log->quota->limit - log->units);
        log->displaced -= units;
        log_insert(log, (struct log_run){.at_ns = log->own_ns, .units = units});
    }
    return log_answer(log, ask->now_ns, free + displaced);
}

static struct stint_decision log_decide(struct log *log, const struct stint_ask *ask)
{
    bool whole = ask->verb == STINT_TAKE || ask->verb == STINT_PEEK;
    if (ask->verb == STINT_CHARGE && ask->cost > 0) {
        log_charge(log, ask->now_ns, ask->cost);
        return log_answer(log, ask->now_ns, (uint32_t)min_u64(ask->cost, log->quota->limit));
    }
    struct log_view view = log_view(log, ask->now_ns);
    uint32_t granted = ask->cost <= view.free ? ask->cost : whole ? 0 : view.free;
    uint64_t expiry_ns = log_last_expiry_ns(log);
    if (granted > 0)
        expiry_ns = max_u64(expiry_ns, view.at_ns + log->quota->period_ns);
    struct stint_decision decision = algorithm_allow(log->quota, granted, view.free - granted,
                                                     sub_floor(expiry_ns, ask->now_ns));
    if (granted == 0 && ask->cost > 0)
        return algorithm_refuse(decision, log_wait_ns(log, ask, whole ? ask->cost : 1));
    if (granted > 0 && ask->verb != STINT_PEEK)
        log_take(log, &view, granted);
    return decision;
}

static struct stint_decision log_ask(const struct stint_quota *quota, void *state_bytes,
                                     const struct stint_ask *ask)
{
    assert(ask->now_ns <= STINT_NOW_MAX && quota->limit > 0);
    struct log log = log_unpack(quota, state_bytes);
    struct stint_decision decision = ask->verb == STINT_REFUND   ? log_refund(&log, ask)
                                     : ask->verb == STINT_BOOK   ? log_book(&log, ask)
                                     : ask->verb == STINT_UNBOOK ? log_unbook(&log, ask)
                                                                 : log_decide(&log, ask);
    if (decision.granted > 0 && ask->verb != STINT_PEEK)
        log_pack(state_bytes, &log);
    return decision;
}

static uint64_t log_expires_at(const struct stint_quota *quota, const void *state_bytes)
{
    struct log log = log_unpack(quota, state_bytes);
    return log_last_expiry_ns(&log);
}

/* All N, W before; an instant above STINT_NOW_MAX is the same as that. */
static void log_fill(const struct stint_quota *quota, void *state_bytes, uint64_t until_ns)
{
    memset(state_bytes, 0, quota->derived.state_size);
    if (until_ns == 0)
        return;
    uint64_t at_ns = min_u64(sub_floor(until_ns, quota->period_ns), STINT_NOW_MAX);
    struct log log = log_unpack(quota, state_bytes);
    log.own_ns = at_ns;
    log_insert(&log, (struct log_run){.at_ns = at_ns, .units = quota->limit});
    log_pack(state_bytes, &log);
}

/*
 * Sorted times, of which those later than the latest use were booked, at most a period after it;
 * and as many units as they hold. Those that displaced others started a period after them.
 */
static bool log_is_valid(const struct stint_quota *quota, const void *state_bytes, uint64_t now_ns)
{
    assert(now_ns <= STINT_NOW_MAX);
    const struct log_state *state = state_bytes;
    struct log log = log_unpack(quota, state_bytes);
    if (state->head != log.ring.head || state->len != log.ring.len || state->units != log.units ||
        state->displaced != log.displaced || state->own_ns != log.own_ns || log.own_ns > now_ns)
        return false;
    uint64_t last_ns = min_u64(log.own_ns + quota->period_ns, STINT_NOW_MAX), before_ns = 0;
    uint64_t units = 0;
    for (uint32_t at = 0; at < log.ring.len; at++) {
        struct log_run run = log_get(&log, at);
        if (run.at_ns < before_ns || run.at_ns > last_ns ||
            (run.displaced && run.at_ns < quota->period_ns))
            return false;
        before_ns = run.at_ns;
        units += run.units;
    }
    return units == log.units;
}

static size_t log_held(const struct stint_quota *quota, const void *state_bytes, uint64_t now_ns,
                       struct held_run *runs)
{
    struct log log = log_unpack(quota, state_bytes);
    struct log_view view = log_view(&log, now_ns);
    uint32_t first = 0;
    if (view.at_ns >= quota->period_ns)
        first = log_after(&log, view.at_ns - quota->period_ns);
    uint32_t n_alive = log.ring.len - first;
    uint32_t per_run = (n_alive + HELD_RUNS_MAX - 1) / HELD_RUNS_MAX;
    size_t n_runs = 0;
    uint64_t units = view.displaced;
    for (uint32_t at = 0; at < n_alive; at++) {
        struct log_run run = log_get(&log, first + at);
        units += run.units;
        if ((at + 1) % per_run != 0 && at + 1 < n_alive)
            continue;
        runs[n_runs++] = (struct held_run){run.at_ns, units};
        units = 0;
    }
    return n_runs;
}

static uint64_t log_own_ns(const struct stint_quota *quota, const void *state_bytes)
{
    return log_unpack(quota, state_bytes).own_ns;
}

static void log_pass(const struct stint_quota *quota, void *state_bytes, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX);
    struct log_state *state = state_bytes;
    (void)quota;
    state->own_ns = max_u64(state->own_ns, at_ns);
}

static int log_check(struct stint_quota *quota, struct stint_error *error)
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

const struct algorithm algorithm_log = {
    .name = "log",
    .check = log_check,
    .ask = log_ask,
    .expires_at = log_expires_at,
    .fill = log_fill,
    .is_valid = log_is_valid,
    .held = log_held,
    .own_ns = log_own_ns,
    .pass = log_pass,
};
