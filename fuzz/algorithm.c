/* SPDX-License-Identifier: MIT */
/*
 * Differential: a quota and a history of asks, decided by the library and by plain slow models.
 *
 * Each decision must be the model's, figure by figure; no window of the exact log may hold more
 * than the bound; every denial of a strict algorithm must have the cause that it states; waits are
 * right to the nanosecond; and what refuses or only looks leaves the bytes alone. Where the model
 * cannot follow (after a refund to groups, a booking, a change of quota) the rest still holds: a
 * window may hold what promise.h says, and no more.
 */
#include "draw.h"
#include "model/model.h"
#include "model/promise.h"

#define STEPS_MAX 400

struct run {
    struct stint_quota quota;
    struct span bytes;
    struct draw_hints hints;
    struct model model;
    struct uses uses;
    bool modelled; /* the model follows */
    bool counted;  /* the exact log tells all that was admitted */
    bool exact;    /* a denial may still be held to the slack */
    bool booked;
    struct promise promise;
    struct uses former;      /* granted before the last change to something unlike */
    uint64_t latest_ns;      /* any now with which units were charged */
    unsigned __int128 level; /* gcra: of the rational bucket, times period */
    uint64_t level_ns;
    bool levelled;
    struct stint_cell8 cell8;
    struct stint_cell16 cell16;
    size_t size;
    _Alignas(16) unsigned char state[WIDE_STATE_MAX];
    _Alignas(16) unsigned char before[WIDE_STATE_MAX];
    _Alignas(16) unsigned char scratch[WIDE_STATE_MAX];
};

static bool same(const struct stint_decision *a, const struct stint_decision *b)
{
    return a->outcome == b->outcome && a->granted == b->granted && a->limit == b->limit &&
           a->remaining == b->remaining && a->retry_after_ns == b->retry_after_ns &&
           a->reset_after_ns == b->reset_after_ns;
}

static struct stint_decision peek(struct run *run, uint64_t now_ns, uint32_t cost)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_PEEK};
    memcpy(run->scratch, run->state, run->size);
    struct stint_decision decision = stint_state_ask(&run->quota, run->state, &ask);
    MUST(memcmp(run->scratch, run->state, run->size) == 0);
    return decision;
}

/* Denied until just before the instant, and allowed then. */
static void check_wait(struct run *run, uint64_t now_ns, uint32_t cost, uint64_t wait_ns)
{
    MUST(wait_ns > 0 && wait_ns < STINT_NEVER_NS);
    uint64_t free_at_ns = now_ns + wait_ns;
    run->hints.free_at_ns = free_at_ns;
    if (free_at_ns > TABLE_LIFE_NS)
        return;
    MUST(peek(run, free_at_ns, cost).outcome == STINT_ALLOW);
    MUST(peek(run, free_at_ns - 1, cost).outcome != STINT_ALLOW);
}

/* Figures that agree with each other, whatever was asked. */
static void check_figures(struct run *run, uint64_t now_ns, const struct stint_decision *decision)
{
    const struct stint_quota *quota = &run->quota;
    MUST(decision->limit == run->hints.capacity && decision->remaining <= decision->limit);
    run->hints.remaining = decision->remaining;
    /* Nothing left may be debt, in which a cost of 0 is denied. */
    MUST(decision->remaining == 0 || peek(run, now_ns, decision->remaining).outcome == STINT_ALLOW);
    if (decision->remaining < UINT32_MAX)
        MUST(peek(run, now_ns, decision->remaining + 1).outcome != STINT_ALLOW);

    uint64_t expires_ns = stint_state_expires_at(quota, run->state);
    MUST(decision->reset_after_ns == (expires_ns > now_ns ? expires_ns - now_ns : 0));
    if (expires_ns > TABLE_LIFE_NS)
        return;
    uint64_t then_ns = expires_ns > now_ns ? expires_ns : now_ns;
    struct stint_decision reborn = peek(run, then_ns, 0);
    MUST(reborn.remaining == reborn.limit && reborn.reset_after_ns == 0);
    if (expires_ns > now_ns && decision->remaining < decision->limit)
        MUST(peek(run, expires_ns - 1, 0).remaining < decision->limit);
}

/* When a strict algorithm may deny: docs/semantics.md, 4.1. */
static bool is_justified(const struct run *run, uint64_t now_ns, uint64_t cost)
{
    const struct stint_quota *quota = &run->quota;
    uint64_t at_ns = uses_effective(&run->uses, now_ns), limit = quota->limit;
    uint64_t in_period = uses_within(&run->uses, at_ns, (struct uses_length){quota->period_ns, 1});
    if (quota->algorithm == STINT_LOG)
        return in_period + cost > limit;
    if (quota->algorithm == STINT_WINDOW) {
        uint64_t slots = quota->resolution, bunch = (limit + slots - 1) / slots;
        struct uses_length longer = {(unsigned __int128)(slots + 1) * quota->period_ns, slots};
        return uses_within(&run->uses, at_ns, longer) + cost > limit - bunch + 1;
    }
    struct uses_length longer = {quota->period_ns + quota->time_slack_ns, 1};
    bool by_time =
        quota->time_slack_ns == 0 || uses_within(&run->uses, at_ns, longer) + cost > limit;
    bool by_count = quota->count_slack == 0 || in_period + cost > limit - quota->count_slack + 1;
    return by_time && by_count;
}

static void check_denial(struct run *run, const struct stint_ask *ask,
                         const struct stint_decision *decision)
{
    uint32_t cost = ask->verb == STINT_TAKE_UPTO && ask->cost > 1 ? 1 : ask->cost;
    MUST(decision->granted == 0);
    check_wait(run, ask->now_ns, cost, decision->retry_after_ns);
    if (stint_is_strict(&run->quota) && run->exact)
        MUST(is_justified(run, ask->now_ns, cost));
}

/* A bucket of the exact rate, fed with what was admitted, never overflows: T is rounded up. */
static void check_level(struct run *run, uint64_t at_ns, uint64_t units)
{
    unsigned __int128 period_ns = run->quota.period_ns;
    unsigned __int128 leaked = (unsigned __int128)(at_ns - run->level_ns) * run->quota.limit;
    run->level = run->level > leaked ? run->level - leaked : 0;
    run->level += units * period_ns;
    run->level_ns = at_ns;
    MUST(run->level <= run->quota.burst * period_ns);
}

/* Records what was admitted, and counts. */
static void count_admitted(struct run *run, uint64_t now_ns, uint64_t units)
{
    if (units == 0 || !run->counted)
        return;
    if (uses_is_full(&run->uses)) {
        run->counted = run->exact = false;
        return;
    }
    uint64_t at_ns = uses_add(&run->uses, now_ns, units);
    /* No use is later than this one, but a place that was booked. */
    MUST(promise_is_kept(&run->promise, &run->uses, at_ns, run->quota.period_ns));
    if (run->quota.algorithm == STINT_GCRA && run->levelled)
        check_level(run, at_ns, units);
}

/* A gcra cost that would fit only when time has passed what a state can say, and so never does. */
static bool is_past_the_end(const struct run *run, const struct stint_ask *ask,
                            const struct stint_decision *decision)
{
    uint32_t cost = ask->verb == STINT_TAKE_UPTO && ask->cost > 1 ? 1 : ask->cost;
    unsigned __int128 refill_ns = (unsigned __int128)cost * run->quota.period_ns / run->quota.limit;
    return run->quota.algorithm == STINT_GCRA && decision->outcome == STINT_NEVER &&
           ask->now_ns + decision->reset_after_ns + refill_ns > TABLE_LIFE_NS;
}

static void check_model(struct run *run, const struct stint_ask *ask,
                        const struct stint_decision *decision)
{
    if (ask->verb >= STINT_BOOK ||
        (ask->verb == STINT_REFUND && run->model.algorithm->refund == NULL))
        run->modelled = false;
    if (!run->modelled)
        return;
    struct stint_decision owed = model_ask(&run->model, ask, decision);
    if (ask->verb == STINT_CHARGE)
        owed.outcome = decision->outcome;
    if (owed.outcome == STINT_DENY && is_past_the_end(run, ask, decision)) {
        owed.outcome = STINT_NEVER;
        owed.retry_after_ns = STINT_NEVER_NS;
    }
    draw_show("  owed", ask, &owed);
    MUST(same(&owed, decision));
}

/* Cells are the same algorithm on words, and a plain take has a shorter way: all decide alike. */
static void check_cells(struct run *run, const struct stint_ask *ask,
                        const struct stint_decision *decision)
{
    struct stint_decision other;
    if (run->size == sizeof(run->cell8)) {
        other = ask->verb == STINT_TAKE
                    ? stint_cell8_take(&run->quota, &run->cell8, ask->now_ns, ask->cost)
                    : stint_cell8_ask(&run->quota, &run->cell8, ask);
        MUST(memcmp(&run->cell8, run->state, run->size) == 0);
    } else if (run->size == sizeof(run->cell16)) {
        other = ask->verb == STINT_TAKE
                    ? stint_cell16_take(&run->quota, &run->cell16, ask->now_ns, ask->cost)
                    : stint_cell16_ask(&run->quota, &run->cell16, ask);
        MUST(memcmp(&run->cell16, run->state, run->size) == 0);
    } else {
        return;
    }
    MUST(same(&other, decision));
}

/* Whether the bytes must be what they were. */
static bool leaves_state(const struct run *run, const struct stint_ask *ask,
                         const struct stint_decision *decision)
{
    if (ask->verb == STINT_PEEK || ask->cost == 0)
        return true;
    bool is_counted = run->quota.count_denied && ask->cost <= run->hints.capacity;
    if (ask->verb == STINT_TAKE && is_counted)
        return false;
    return decision->outcome != STINT_ALLOW;
}

static void check_take(struct run *run, const struct stint_ask *ask,
                       const struct stint_decision *decision, const struct stint_decision *foretold)
{
    if (ask->verb == STINT_TAKE && !run->quota.count_denied)
        MUST(same(foretold, decision));
    if (decision->outcome == STINT_ALLOW) {
        MUST(ask->verb == STINT_TAKE_UPTO ? decision->granted <= ask->cost
                                          : decision->granted == ask->cost);
        MUST(decision->retry_after_ns == 0);
        MUST(decision->granted == ask->cost || decision->remaining == 0);
    } else if (decision->outcome == STINT_NEVER) {
        MUST(ask->cost > run->hints.capacity || is_past_the_end(run, ask, decision));
        MUST(decision->retry_after_ns == STINT_NEVER_NS);
    } else {
        check_denial(run, ask, decision);
    }
}

/* A counter's own time moves with whatever it counts, also what the log of uses does not hold. */
static void follow_charge(struct run *run, uint64_t now_ns)
{
    uint8_t algorithm = run->quota.algorithm;
    run->latest_ns = now_ns > run->latest_ns ? now_ns : run->latest_ns;
    if (algorithm == STINT_FIXED_WINDOW || algorithm == STINT_SLIDING_COUNTER)
        run->uses.clock_ns = uses_effective(&run->uses, now_ns);
}

/* One ask of any verb, and all that must hold after it. */
static struct stint_decision ask_and_check(struct run *run, const struct stint_ask *ask)
{
    struct stint_decision foretold = peek(run, ask->now_ns, ask->cost);
    uint32_t free = peek(run, ask->now_ns, 0).remaining;
    memcpy(run->before, run->state, run->size);
    struct stint_decision decision = stint_state_ask(&run->quota, run->state, ask);
    draw_show("ask", ask, &decision);
    if (leaves_state(run, ask, &decision))
        MUST(memcmp(run->before, run->state, run->size) == 0);
    MUST(decision.granted <= ask->cost);
    check_cells(run, ask, &decision);
    check_model(run, ask, &decision);
    if (ask->verb <= STINT_PEEK)
        check_take(run, ask, &decision, &foretold);
    bool is_charged = ask->verb != STINT_REFUND && ask->verb != STINT_UNBOOK &&
                      memcmp(run->before, run->state, run->size) != 0;
    if (is_charged)
        follow_charge(run, ask->now_ns);
    /* A charge need not fit: then the units displaced are not among those that the bound is for. */
    bool counts = ask->verb == STINT_CHARGE && stint_is_strict(&run->quota);
    if (ask->verb <= STINT_TAKE_UPTO || (counts && ask->cost <= free))
        count_admitted(run, ask->now_ns, decision.granted);
    else if (counts)
        run->exact = false;
    if (ask->verb != STINT_PEEK && decision.outcome != STINT_NEVER)
        check_figures(run, ask->now_ns, &decision);
    return decision;
}

/* Units of gcra that a time is worth, at most a burst. */
static uint64_t units_of(const struct stint_quota *quota, uint64_t time_ns)
{
    unsigned __int128 period = (unsigned __int128)quota->period_ns * 32;
    unsigned __int128 interval = (period + quota->limit - 1) / quota->limit;
    unsigned __int128 units = ((unsigned __int128)time_ns * 32 + interval - 1) / interval;
    return units < quota->burst ? (uint64_t)units : quota->burst;
}

/*
 * What the header concedes. No state knows under which quota a unit was granted, nor when another
 * one was in force; and one TAT does not know when it was last used.
 */
static void concede(struct run *run, const struct stint_ask *ask, uint32_t granted, bool is_former)
{
    const struct stint_quota *quota = &run->quota;
    uint64_t units = is_former ? granted : 0, burst_ns = 0;
    if (quota->algorithm == STINT_GCRA) {
        burst_ns = (uint64_t)((unsigned __int128)quota->period_ns * quota->burst / quota->limit);
        if (is_former && granted < ask->cost)
            units++; /* part of one */
        if (ask->now_ns < run->latest_ns)
            units += units_of(quota, run->latest_ns - ask->now_ns);
    }
    if (units == 0)
        return;
    uint64_t at_ns = uses_effective(&run->uses, ask->now_ns);
    uint64_t until_ns = at_ns + 3 * quota->period_ns + 2 * burst_ns;
    promise_gain(&run->promise, (struct promise_gain){run->uses.clock_ns, until_ns, units});
}

/* Gives back, in part or whole, a use that was made under this quota or one before. */
static void refund(struct run *run, uint64_t now_ns)
{
    struct uses *uses = &run->uses, *former = &run->former;
    if (uses->n + former->n == 0 || !run->counted)
        return;
    uint8_t pick = bytes_u8(&run->bytes), part = bytes_u8(&run->bytes);
    size_t back = pick % (uses->n + former->n);
    struct use *use = back < uses->n ? &uses->use[uses->n - 1 - back]
                                     : &former->use[former->n - 1 - (back - uses->n)];
    bool is_log = run->quota.algorithm == STINT_LOG, is_former = use->era != uses->era;
    bool is_to_come = use->booked && use->at_ns > uses->clock_ns;
    uint64_t units = use->units - (part < 128 || is_to_come ? 0 : use->units * (part % 128) / 128);
    if (units == 0)
        return;
    struct stint_ask ask = {.now_ns = now_ns,
                            .at_ns = is_log ? use->at_ns : use->now_ns,
                            .cost = (uint32_t)units,
                            .verb = is_to_come ? STINT_UNBOOK : STINT_REFUND};
    struct stint_decision decision = ask_and_check(run, &ask);
    MUST(decision.outcome == STINT_ALLOW);
    concede(run, &ask, decision.granted, is_former);
    use->units -= run->quota.algorithm == STINT_GCRA ? units : decision.granted;
    run->exact = run->exact && is_log;
    run->levelled = false;
    /* Giving back, some have also moved on to the slot, or the window, of now. */
    if (decision.granted > 0 && run->quota.algorithm == STINT_WINDOW)
        uses->clock_ns = uses_effective(uses, now_ns);
    if (decision.granted > 0 && run->quota.algorithm == STINT_SLIDING_COUNTER)
        uses->clock_ns = uses_effective(uses, now_ns - now_ns % run->quota.period_ns);
}

static void book(struct run *run, uint64_t now_ns, uint32_t cost)
{
    uint8_t pick = bytes_u8(&run->bytes);
    uint64_t wait_max_ns = run->hints.period_ns / 64 * pick;
    struct stint_ask ask = {
        .now_ns = now_ns, .at_ns = wait_max_ns, .cost = cost, .verb = STINT_BOOK};
    struct stint_decision decision = ask_and_check(run, &ask);
    run->exact = false;
    if (decision.outcome != STINT_ALLOW) {
        MUST(decision.granted == 0);
        return;
    }
    MUST(decision.granted == cost && decision.retry_after_ns <= wait_max_ns);
    if (cost > 0 && run->quota.algorithm == STINT_LOG)
        run->uses.clock_ns = uses_effective(&run->uses, now_ns);
    uint64_t start_ns = now_ns + decision.retry_after_ns;
    if (pick % 4 == 3 && decision.retry_after_ns > 0) {
        struct stint_ask unbook = {
            .now_ns = now_ns, .at_ns = start_ns, .cost = cost, .verb = STINT_UNBOOK};
        decision = ask_and_check(run, &unbook);
        MUST(decision.outcome == STINT_ALLOW && decision.granted == cost);
        run->levelled = false;
        return;
    }
    if (cost == 0 || !run->counted)
        return;
    if (uses_is_full(&run->uses)) {
        run->counted = false;
        return;
    }
    run->booked = true;
    run->levelled = false;
    if (decision.retry_after_ns == 0) {
        uses_add(&run->uses, now_ns, cost);
    } else {
        /* A late caller's place may be over by now. */
        uses_add_booked(&run->uses, uses_effective(&run->uses, start_ns), cost);
    }
    MUST(promise_is_kept(&run->promise, &run->uses, 0, run->quota.period_ns));
}

/* A state that denies until an instant, and is then new. */
static void check_fill(struct run *run, uint64_t now_ns)
{
    const struct stint_quota *quota = &run->quota;
    uint64_t until_ns = now_ns + 1 + bytes_u16(&run->bytes) * (run->hints.period_ns / 4096);
    if (until_ns > TABLE_LIFE_NS)
        return;
    memcpy(run->before, run->state, run->size);
    stint_state_fill(quota, run->state, until_ns);
    uint64_t expires_ns = stint_state_expires_at(quota, run->state);
    MUST(expires_ns >= until_ns && expires_ns - until_ns <= 2 * run->hints.period_ns);
    if (quota->algorithm == STINT_GCRA)
        MUST(expires_ns == until_ns);
    else
        for (int i = 0; i < 3; i++) {
            uint64_t at_ns = i == 0 ? until_ns - 1 : until_ns - until_ns / 2 * (uint64_t)i;
            MUST(at_ns >= until_ns || peek(run, at_ns, 1).outcome == STINT_DENY);
        }
    if (expires_ns <= TABLE_LIFE_NS)
        MUST(peek(run, expires_ns, 0).remaining == run->hints.capacity);
    stint_state_fill(quota, run->state, 0);
    MUST(stint_state_expires_at(quota, run->state) == 0);
    memcpy(run->state, run->before, run->size);
}

static void use_quota(struct run *run)
{
    run->hints.period_ns = run->quota.period_ns;
    run->hints.capacity = run->quota.algorithm == STINT_GCRA ? run->quota.burst : run->quota.limit;
    run->size = stint_state_size(&run->quota);
    memcpy(&run->cell8, run->state, sizeof(run->cell8));
    memcpy(&run->cell16, run->state, sizeof(run->cell16));
}

/* A state of time 0 that has given everything back is one that was never used. */
static bool was_used(const struct uses *uses)
{
    struct uses_length ever = {STINT_NEVER_NS, 1};
    return uses->n > 0 && (uses->clock_ns > 0 || uses_within(uses, STINT_NOW_MAX, ever) > 0);
}

/* A quota unlike the one before promises something of windows that begin now. */
static void follow_change(struct run *run, const struct stint_quota *from, uint64_t at_ns)
{
    const struct stint_quota *to = &run->quota;
    struct uses *uses = &run->uses;
    bool keeps_time = was_used(uses);
    uses->era++;
    if (keeps_time && from->algorithm == to->algorithm && from->period_ns == to->period_ns &&
        from->align == to->align && from->utc_offset_s == to->utc_offset_s &&
        from->epoch_ns == to->epoch_ns) {
        at_ns = uses_effective(uses, at_ns);
        uses->clock_ns = at_ns;
        promise_change(&run->promise, at_ns, model_bound(to), to->algorithm == STINT_GCRA);
        return;
    }
    uses->clock_ns = keeps_time ? at_ns : 0;
    if (uses->n > 0)
        run->former = *uses;
    uses->n = 0;
    promise_init(&run->promise, model_bound(to));
}

/* Goes on under another quota. */
static void convert(struct run *run, uint64_t now_ns)
{
    struct stint_quota to, from = run->quota;
    uint8_t how = bytes_u8(&run->bytes);
    int algorithm = how % 2 == 0 ? from.algorithm : 1 + how / 2 % STINT_SLIDING_COUNTER;
    if (!draw_quota(&run->bytes, &to, algorithm))
        return;
    if (algorithm == from.algorithm && how % 4 == 0) {
        uint32_t limit = to.limit;
        to = from;
        to.limit = limit;
        to.burst = from.burst == from.limit ? 0 : from.burst;
        if (to.count_slack > limit)
            to.count_slack = limit;
        if (stint_quota_check(&to, NULL) != STINT_OK)
            return;
    }
    if (to.limit == 0)
        return;
    /* Who changes is as late as anybody; but for a state that knows the time exactly. */
    bool knows_time = from.algorithm == STINT_LOG || from.algorithm == STINT_BUCKETS;
    uint64_t at_ns = knows_time ? now_ns : uses_effective(&run->uses, now_ns);
    if (from.algorithm == STINT_GCRA && at_ns < run->latest_ns)
        at_ns = run->latest_ns;
    memset(run->scratch, 0xa5, sizeof(run->scratch));
    stint_state_convert(&from, run->state, &to, run->scratch, at_ns);
    if (memcmp(&from, &to, sizeof(to)) == 0) { /* no change at all */
        MUST(memcmp(run->scratch, run->state, run->size) == 0);
        return;
    }
    memcpy(run->state, run->scratch, stint_state_size(&to));
    run->quota = to;
    use_quota(run);
    draw_show_quota(&run->quota);
    run->modelled = run->exact = run->levelled = false;
    run->counted = run->counted && !run->booked;
    run->latest_ns = at_ns > run->latest_ns ? at_ns : run->latest_ns;
    follow_change(run, &from, at_ns);
}

static void step(struct run *run)
{
    bool stale;
    uint8_t verb = bytes_u8(&run->bytes);
    uint64_t now_ns = draw_now(&run->bytes, &run->hints, &stale);
    uint32_t cost = draw_cost(&run->bytes, &run->hints);
    if (!stale)
        run->hints.now_ns = now_ns;
    if (now_ns > TABLE_LIFE_NS)
        return;
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    bool can_book = run->quota.algorithm == STINT_GCRA || run->quota.algorithm == STINT_LOG;
    switch (verb % 16) {
    case 0:
        refund(run, now_ns);
        break;
    case 1:
        if (can_book)
            book(run, now_ns, cost);
        break;
    case 2:
        check_fill(run, now_ns);
        break;
    case 3:
        if (verb >= 128)
            convert(run, now_ns);
        break;
    case 4:
        ask.verb = STINT_CHARGE;
        ask_and_check(run, &ask);
        break;
    case 5:
    case 6:
        ask.verb = STINT_TAKE_UPTO;
        ask_and_check(run, &ask);
        break;
    case 7:
        ask.verb = STINT_PEEK;
        ask_and_check(run, &ask);
        break;
    default:
        ask_and_check(run, &ask);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run run;
    run.bytes = span_of(data, size);
    int algorithm = 1 + bytes_u8(&run.bytes) % STINT_SLIDING_COUNTER;
    if (!draw_quota(&run.bytes, &run.quota, algorithm) || run.quota.limit == 0)
        return 0;
    MUST(stint_max_in_any_window(&run.quota) == model_bound(&run.quota));
    memset(run.state, 0, stint_state_size(&run.quota));
    run.uses.n = run.former.n = 0;
    run.uses.era = 0;
    run.uses.clock_ns = run.level_ns = run.latest_ns = 0;
    run.level = 0;
    run.modelled = run.counted = run.exact = run.levelled = true;
    run.booked = false;
    promise_init(&run.promise, model_bound(&run.quota));
    use_quota(&run);
    draw_show_quota(&run.quota);
    model_init(&run.model, &run.quota);
    run.hints.now_ns = bytes_number(&run.bytes, 7) % TABLE_LIFE_NS;
    run.hints.free_at_ns = 0;
    run.hints.remaining = run.hints.capacity;
    for (int i = 0; i < STEPS_MAX && run.bytes.len > 0; i++)
        step(&run);
    return 0;
}
