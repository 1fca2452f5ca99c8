/* SPDX-License-Identifier: MIT */
/*
 * A plain slow model of what every strict limiter owes, and a run of random requests against it.
 *
 * The model is the list of all uses with their exact effective times, those of charges that did not
 * fit among them. It knows nothing of slots, bunches or buckets: it counts. What it checks at each
 * step stands above strict_step().
 */
#ifndef STINT_TESTS_STRICT_MODEL_H
#define STINT_TESTS_STRICT_MODEL_H

#include "unit/test.h"

#include "algorithm/algorithm.h"

#define STRICT_USES_MAX 4096

struct strict_use {
    uint64_t now_ns; /* as the caller gave it */
    uint64_t at_ns;  /* the effective time */
    uint64_t units;  /* not refunded */
};

struct strict_model {
    const struct stint_quota *quota;
    uint64_t latest_ns; /* of all uses */
    bool displaces;     /* a charge has displaced units since there were none */
    size_t n;
    struct strict_use uses[STRICT_USES_MAX];
};

/* An algorithm under test. */
struct strict_subject {
    const struct algorithm *algorithm;
    /* Whether the slack of this algorithm explains why a cost is denied. */
    bool (*justified)(const struct strict_model *model, uint64_t cost, uint64_t at_ns);
    bool refund_ages; /* the state's own time comes forward with a refund, not only with a use */
    bool exact;       /* refunds take the very units named: a denial is justified after them too */
};

#define STRICT_CHARGE_MAX 3 /* limits */

struct strict_options {
    uint64_t seed;
    uint32_t steps;
    bool refunds;
    bool stale; /* callers whose clocks are behind */
};

struct strict_run {
    const struct strict_subject *subject;
    const struct strict_options *options;
    struct strict_model model;
    uint64_t random, now_ns, hint_ns;
    uint32_t remaining, denials;
    size_t size;
    _Alignas(16) unsigned char state[WIDE_STATE_MAX];
    _Alignas(16) unsigned char before[WIDE_STATE_MAX];
};

static inline uint64_t strict_random(uint64_t *seed)
{
    uint64_t mixed = (*seed += UINT64_C(0x9E3779B97F4A7C15));
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

/* 0 … below - 1; 0 for 0. */
static inline uint64_t strict_below(uint64_t *seed, uint64_t below)
{
    return below == 0 ? 0 : strict_random(seed) % below;
}

/* Units of uses less than `length_ns` before an instant, or at it. */
static inline uint64_t strict_used(const struct strict_model *model, uint64_t at_ns,
                                   uint64_t length_ns)
{
    uint64_t units = 0;
    for (size_t i = 0; i < model->n; i++)
        if (model->uses[i].at_ns + length_ns > at_ns)
            units += model->uses[i].units;
    return units;
}

static inline void strict_forget_old(struct strict_model *model)
{
    size_t kept = 0;
    for (size_t i = 0; i < model->n; i++)
        if (model->uses[i].units > 0 &&
            model->uses[i].at_ns + 3 * model->quota->period_ns > model->latest_ns)
            model->uses[kept++] = model->uses[i];
    model->n = kept;
}

static inline void strict_add(struct strict_model *model, uint64_t now_ns, uint64_t units)
{
    uint64_t at_ns = max_u64(now_ns, model->latest_ns);
    model->latest_ns = at_ns;
    struct strict_use *last = model->n > 0 ? &model->uses[model->n - 1] : NULL;
    if (last != NULL && last->at_ns == at_ns && last->now_ns == now_ns) {
        last->units += units;
        return;
    }
    if (model->n == STRICT_USES_MAX)
        strict_forget_old(model);
    assert_true(model->n < STRICT_USES_MAX);
    model->uses[model->n++] = (struct strict_use){now_ns, at_ns, units};
}

static inline void strict_assert_same(struct stint_decision a, struct stint_decision b)
{
    assert_int_equal(a.outcome, b.outcome);
    assert_int_equal(a.granted, b.granted);
    assert_int_equal(a.limit, b.limit);
    assert_int_equal(a.remaining, b.remaining);
    assert_true(a.retry_after_ns == b.retry_after_ns);
    assert_true(a.reset_after_ns == b.reset_after_ns);
}

static inline struct stint_decision strict_peek(struct strict_run *run, uint64_t now_ns,
                                                uint32_t cost)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_PEEK};
    memcpy(run->before, run->state, run->size);
    struct stint_decision decision =
        run->subject->algorithm->ask(run->model.quota, run->state, &ask);
    assert_memory_equal(run->before, run->state, run->size);
    return decision;
}

static inline uint64_t strict_at(const struct strict_run *run, uint64_t now_ns)
{
    return max_u64(now_ns, run->model.latest_ns);
}

/*
 * A cost that is denied has a cause. The very units that a refund names are gone where they are
 * recorded; those that were displaced are not.
 */
static inline void strict_check_cause(struct strict_run *run, uint64_t at_ns, uint64_t cost)
{
    bool is_exact = run->subject->exact && !run->model.displaces;
    if (!run->options->refunds || is_exact)
        assert_true(run->subject->justified(&run->model, cost, at_ns));
}

/* At any later time, what was used in the period until then is recorded, and not much more. */
static inline void strict_check_recorded(struct strict_run *run, uint64_t at_ns)
{
    const struct stint_quota *quota = run->model.quota;
    if (at_ns > STINT_NOW_MAX)
        return;
    uint32_t remaining = strict_peek(run, at_ns, 0).remaining;
    uint64_t used = strict_used(&run->model, at_ns, quota->period_ns);
    assert_true(remaining <= sub_floor(quota->limit, used));
    if (remaining < quota->limit)
        strict_check_cause(run, at_ns, (uint64_t)remaining + 1);
}

static inline void strict_check_denial(struct strict_run *run, uint64_t now_ns, uint32_t cost,
                                       struct stint_decision decision)
{
    run->denials++;
    assert_int_equal(decision.granted, 0);
    assert_true(decision.retry_after_ns > 0);
    strict_check_cause(run, strict_at(run, now_ns), cost);
    uint64_t free_ns = now_ns + decision.retry_after_ns;
    run->hint_ns = free_ns;
    if (free_ns > STINT_NOW_MAX)
        return;
    assert_int_equal(strict_peek(run, free_ns, cost).outcome, STINT_ALLOW);
    assert_int_equal(strict_peek(run, free_ns - 1, cost).outcome, STINT_DENY);
}

/* Figures that have to agree with each other and with the model, whatever was asked. */
static inline void strict_check_metrics(struct strict_run *run, uint64_t now_ns,
                                        struct stint_decision decision)
{
    const struct stint_quota *quota = run->model.quota;
    uint64_t at_ns = strict_at(run, now_ns);
    assert_int_equal(decision.limit, quota->limit);
    assert_int_equal(decision.remaining, strict_peek(run, now_ns, 0).remaining);
    run->remaining = decision.remaining;
    strict_check_recorded(run, at_ns);
    strict_check_recorded(run, at_ns + strict_below(&run->random, quota->period_ns));
    assert_int_equal(strict_peek(run, now_ns, decision.remaining).outcome, STINT_ALLOW);
    if (decision.remaining < UINT32_MAX)
        assert_int_not_equal(strict_peek(run, now_ns, decision.remaining + 1).outcome, STINT_ALLOW);

    uint64_t expires_ns = run->subject->algorithm->expires_at(quota, run->state);
    assert_true(decision.reset_after_ns == sub_floor(expires_ns, now_ns));
    if (expires_ns <= STINT_NOW_MAX) {
        struct stint_decision reborn = strict_peek(run, max_u64(expires_ns, now_ns), quota->limit);
        assert_int_equal(reborn.outcome, STINT_ALLOW);
        if (expires_ns > now_ns && decision.remaining < quota->limit)
            assert_int_equal(strict_peek(run, expires_ns - 1, quota->limit).outcome, STINT_DENY);
    }
}

/* What is held is what is not free; and no run is earlier than the uses it stands for. */
static inline void strict_check_held(struct strict_run *run, uint64_t now_ns)
{
    struct held_run runs[HELD_RUNS_MAX];
    size_t n_runs = run->subject->algorithm->held(run->model.quota, run->state, now_ns, runs);
    assert_true(n_runs <= HELD_RUNS_MAX);
    uint64_t held = 0, at_ns = strict_at(run, now_ns);
    for (size_t i = 0; i < n_runs; i++) {
        held += runs[i].units;
        assert_true(i == 0 || runs[i - 1].at_ns <= runs[i].at_ns);
    }
    uint64_t limit = run->model.quota->limit;
    assert_true(min_u64(held, limit) == limit - strict_peek(run, now_ns, 0).remaining);
    for (size_t u = 0; u < run->model.n; u++) {
        uint64_t from_ns = run->model.uses[u].at_ns, owed = 0, kept = 0;
        if (from_ns + run->model.quota->period_ns <= at_ns)
            continue;
        for (size_t v = 0; v < run->model.n; v++)
            owed += run->model.uses[v].at_ns >= from_ns ? run->model.uses[v].units : 0;
        for (size_t i = 0; i < n_runs; i++)
            kept += runs[i].at_ns >= from_ns ? runs[i].units : 0;
        assert_true(kept >= min_u64(owed, limit));
    }
}

static inline uint32_t strict_pick_cost(struct strict_run *run)
{
    uint32_t limit = run->model.quota->limit;
    switch (strict_below(&run->random, 12)) {
    case 0:
        return (uint32_t)strict_below(&run->random, 5);
    case 1:
        return (uint32_t)strict_below(&run->random, limit / 10 + 2);
    case 2:
        return (uint32_t)strict_below(&run->random, (uint64_t)limit + 1);
    case 3:
        return run->remaining;
    case 4:
        return strict_below(&run->random, 4) == 0 && limit < UINT32_MAX ? limit + 1 : 1;
    case 5:
        return limit / 24 + 1;
    default:
        return 1;
    }
}

/* A charge need not fit. */
static inline uint32_t strict_pick_charge(struct strict_run *run)
{
    uint64_t limit = run->model.quota->limit;
    if (strict_below(&run->random, 4) > 0)
        return strict_pick_cost(run);
    return (uint32_t)min_u64(strict_below(&run->random, STRICT_CHARGE_MAX * limit + 1), UINT32_MAX);
}

static inline void strict_advance(struct strict_run *run)
{
    uint64_t period_ns = run->model.quota->period_ns, *random = &run->random;
    uint64_t step_ns = 0;
    switch (strict_below(random, 16)) {
    case 0:
    case 1:
    case 2:
        break;
    case 3:
        step_ns = strict_below(random, 4);
        break;
    case 4:
    case 5:
    case 6:
        step_ns = strict_below(random, 3 * (period_ns / max_u64(run->model.quota->limit, 1)) + 2);
        break;
    case 7:
    case 8:
    case 9:
        step_ns = strict_below(random, period_ns / 6);
        break;
    case 10:
    case 11:
        step_ns = sub_floor(run->hint_ns, run->now_ns);
        break;
    case 12:
        step_ns = sub_floor(run->hint_ns, run->now_ns + 1);
        break;
    case 13:
        step_ns = strict_below(random, period_ns);
        break;
    case 14:
        step_ns = period_ns / 24 + strict_below(random, 3);
        break;
    default:
        step_ns = strict_below(random, 8) == 0 ? strict_below(random, 4 * period_ns) : 0;
    }
    run->now_ns += step_ns;
}

static inline void strict_refund(struct strict_run *run, uint64_t now_ns)
{
    struct strict_model *model = &run->model;
    if (model->n == 0)
        return;
    size_t recent = min_u64(model->n, 1 + strict_below(&run->random, 40));
    struct strict_use *use = &model->uses[model->n - 1 - strict_below(&run->random, recent)];
    uint64_t units = min_u64(use->units, 1 + strict_below(&run->random, use->units));
    if (units == 0)
        return;
    struct stint_ask ask = {.now_ns = now_ns,
                            .at_ns = run->subject->exact ? use->at_ns : use->now_ns,
                            .cost = (uint32_t)units,
                            .verb = STINT_REFUND};
    memcpy(run->before, run->state, run->size);
    struct stint_decision decision = run->subject->algorithm->ask(model->quota, run->state, &ask);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_true(decision.granted <= units);
    if (decision.granted == 0)
        assert_memory_equal(run->before, run->state, run->size);
    if (run->subject->exact && !model->displaces)
        assert_int_equal(decision.granted,
                         use->at_ns + model->quota->period_ns > strict_at(run, now_ns) ? units : 0);
    use->units -= decision.granted;
    if (decision.granted > 0 && run->subject->refund_ages)
        model->latest_ns = strict_at(run, now_ns);
    strict_check_metrics(run, now_ns, decision);
}

/*
 * One request: a take is what a peek foretold; a refusal leaves the bytes alone, is justified by
 * the slack, and its wait is right to the nanosecond; remaining can be taken and no more; no take
 * brings a window above the limit; and of what was used in any last part of the period, all is
 * recorded, or the whole limit is.
 */
static inline void strict_step(struct strict_run *run)
{
    const struct stint_quota *quota = run->model.quota;
    uint64_t now_ns = run->now_ns;
    if (run->options->stale && strict_below(&run->random, 8) == 0)
        now_ns = sub_floor(now_ns, strict_below(&run->random, quota->period_ns / 2));
    uint64_t dice = strict_below(&run->random, 20);
    if (run->options->refunds && dice < 4) {
        strict_refund(run, now_ns);
        return;
    }
    struct stint_ask ask = {.now_ns = now_ns, .cost = strict_pick_cost(run)};
    ask.verb = dice == 4 ? STINT_CHARGE : dice < 7 ? STINT_TAKE_UPTO : STINT_TAKE;
    if (ask.verb == STINT_CHARGE)
        ask.cost = strict_pick_charge(run);
    struct stint_decision foretold = strict_peek(run, now_ns, ask.cost);
    uint32_t free = strict_peek(run, now_ns, 0).remaining;
    if (free == quota->limit)
        run->model.displaces = false;
    memcpy(run->before, run->state, run->size);
    struct stint_decision decision = run->subject->algorithm->ask(quota, run->state, &ask);

    if (ask.verb == STINT_TAKE)
        strict_assert_same(foretold, decision);
    else
        assert_int_equal(decision.granted,
                         min_u64(ask.verb == STINT_CHARGE ? quota->limit : free, ask.cost));
    if (ask.verb == STINT_CHARGE && ask.cost > free)
        run->model.displaces = true;
    if (decision.granted > 0)
        strict_add(&run->model, now_ns, ask.verb == STINT_CHARGE ? ask.cost : decision.granted);
    else
        assert_memory_equal(run->before, run->state, run->size);
    if (decision.outcome == STINT_ALLOW) {
        assert_true(ask.verb != STINT_TAKE || decision.granted == ask.cost);
        assert_true(decision.retry_after_ns == 0);
    } else if (decision.outcome == STINT_NEVER) {
        assert_true(ask.cost > quota->limit);
        assert_true(decision.retry_after_ns == STINT_NEVER_NS);
    } else {
        strict_check_denial(run, now_ns, ask.verb == STINT_TAKE ? ask.cost : 1, decision);
    }
    strict_check_metrics(run, now_ns, decision);
    if (!run->options->refunds && strict_below(&run->random, 16) == 0)
        strict_check_held(run, now_ns);
}

/* Returns how many requests were denied, so that a test can see that it tested something. */
static inline uint32_t strict_run(const struct strict_subject *subject,
                                  const struct stint_quota *quota,
                                  const struct strict_options *options)
{
    struct strict_run *run = calloc(1, sizeof(*run));
    assert_non_null(run);
    run->subject = subject;
    run->options = options;
    run->random = options->seed;
    run->model.quota = quota;
    run->size = quota->derived.state_size;
    run->remaining = quota->limit;
    uint64_t span_ns = STINT_NOW_MAX - min_u64(STINT_NOW_MAX / 10 * 9, quota->period_ns * 2000);
    run->now_ns = strict_below(&run->random, 3) == 0 ? 0 : strict_below(&run->random, span_ns);
    for (uint32_t step = 0; step < options->steps; step++) {
        strict_advance(run);
        if (run->now_ns > STINT_NOW_MAX)
            break;
        strict_step(run);
    }
    uint32_t denials = run->denials;
    free(run);
    return denials;
}

#endif
