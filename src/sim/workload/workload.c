/* SPDX-License-Identifier: MIT */
/*
 * Puts a workload's requests into the order of time: a stream that does not react to decisions, and
 * a heap of the requests that clients will make because of their last decision.
 */
#include "sim/workload/workload.h"

#include "algorithm/calendar.h"
#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Whole nanoseconds; what is too long for any run is as long as one. */
static uint64_t bounded_ns(double ns)
{
    return ns < 0x1p62 ? (uint64_t)ns : UINT64_C(1) << 62;
}

/* ---- Adversaries ----------------------------------------------------------------------------- */

/*
 * Each one uses the weak times of its algorithm. A plan is a list of steps; in each the adversary
 * requests single units from a time on, again at once when it is allowed, and at the promised time
 * if it is denied, until the step is over. Between two plans it idles for two periods and more, so
 * that every plan starts with a state that was never used.
 */
#define CLOCK_STEP_ONE_IN 8
#define CLOCK_IDLE_ONE_IN 64

static void add_step(struct workload *workload, uint64_t from_ns, uint64_t until_ns, uint32_t units)
{
    struct workload_plan *plan = &workload->plan;
    assert(plan->n_steps < WORKLOAD_STEPS_MAX);
    plan->steps[plan->n_steps++] = (struct workload_step){from_ns, until_ns, units};
}

/* The first edge after a time at which a fixed window begins. */
static uint64_t edge_after(const struct stint_quota *quota, uint64_t at_ns)
{
    int64_t wall_ns = quota->epoch_ns + (int64_t)at_ns;
    if (quota->algorithm != STINT_FIXED_WINDOW || quota->align == STINT_ALIGN_FIRST_USE)
        return (at_ns / quota->period_ns + 1) * quota->period_ns;
    if (quota->align == STINT_ALIGN_EPOCH) {
        int64_t period_ns = (int64_t)quota->period_ns, since_ns = wall_ns % period_ns;
        return at_ns + (uint64_t)(period_ns - (since_ns < 0 ? since_ns + period_ns : since_ns));
    }
    struct calendar_window window =
        calendar_window_of((enum stint_align)quota->align, quota->utc_offset_s, wall_ns);
    return at_ns + (uint64_t)(window.end_ns - wall_ns);
}

/* The time slack of the quota, or a tenth of its period if it has none. */
static uint64_t slack_ns(const struct stint_quota *quota)
{
    if (quota->algorithm == STINT_WINDOW)
        return mul_div_up(quota->period_ns, 1, quota->resolution);
    if (quota->algorithm == STINT_BUCKETS && quota->time_slack_ns > 0)
        return quota->time_slack_ns;
    return quota->period_ns / 10 + 1;
}

/* All there is at the last time of a window, and on from the first of the next one. */
static void plan_edge(struct workload *workload, uint64_t from_ns)
{
    uint64_t edge_ns = edge_after(&workload->quota, from_ns);
    uint64_t period_ns = workload->quota.period_ns;
    add_step(workload, edge_ns - 1, edge_ns, 0);
    add_step(workload, edge_ns, edge_ns + 2 * period_ns, 0);
}

/*
 * One unit opens a bucket, the rest comes at the bucket's last time: an algorithm that frees a
 * bucket a period after it was opened frees the rest too early.
 */
static void plan_late_bucket(struct workload *workload, uint64_t from_ns)
{
    const struct stint_quota *quota = &workload->quota;
    uint64_t late_ns = from_ns + slack_ns(quota) - 1, period_ns = quota->period_ns;
    add_step(workload, from_ns, late_ns, 1);
    add_step(workload, late_ns, late_ns + 1, 0);
    add_step(workload, from_ns + period_ns, from_ns + 3 * period_ns, 0);
}

/* The same on the slots of `window`, and a request just before, at and after every edge. */
static void plan_slot_edge(struct workload *workload, uint64_t from_ns)
{
    const struct stint_quota *quota = &workload->quota;
    uint64_t slots = quota->algorithm == STINT_WINDOW ? quota->resolution : 10;
    uint64_t first = mul_div(from_ns, slots, quota->period_ns) + 1;
    uint64_t edge_ns = mul_div_up(first, quota->period_ns, slots);
    uint64_t last_ns = mul_div_up(first + 1, quota->period_ns, slots) - 1;
    add_step(workload, edge_ns, last_ns, 1);
    add_step(workload, last_ns, last_ns + 1, 0);
    for (uint64_t slot = first + 1; slot <= first + slots + 3; slot++) {
        uint64_t at_ns = mul_div_up(slot, quota->period_ns, slots);
        for (uint64_t ns = at_ns - 1; ns <= at_ns + 1; ns++)
            add_step(workload, ns, ns + 1, 0);
    }
}

static void make_plan(struct workload *workload)
{
    struct workload_plan *plan = &workload->plan;
    uint64_t period_ns = workload->quota.period_ns;
    uint64_t from_ns =
        plan->ask_ns + 2 * period_ns + random_below(&workload->clients, 2 * period_ns);
    plan->n_steps = plan->step = 0;
    switch (workload->spec.kind) {
    case WORKLOAD_EDGE:
        plan_edge(workload, from_ns);
        break;
    case WORKLOAD_LATE_BUCKET:
        plan_late_bucket(workload, from_ns);
        break;
    case WORKLOAD_SLOT_EDGE:
        plan_slot_edge(workload, from_ns);
        break;
    case WORKLOAD_IDLE_BURST:
        add_step(workload, from_ns, from_ns + 2 * period_ns, 0);
        break;
    default: /* clock_steps: requests without pause; what changes is the clock of the caller */
        /* Not so early that the clock would be before 0. */
        from_ns = max_u64(from_ns, workload->spec.step_ns);
        add_step(workload, from_ns, from_ns + 20 * period_ns, 0);
    }
    plan->ask_ns = plan->steps[0].from_ns;
    plan->admitted = 0;
    plan->as_promised = false;
}

static void next_step(struct workload *workload)
{
    struct workload_plan *plan = &workload->plan;
    plan->admitted = 0;
    plan->as_promised = false;
    if (++plan->step == plan->n_steps)
        make_plan(workload);
    else
        plan->ask_ns = max_u64(plan->ask_ns, plan->steps[plan->step].from_ns);
}

/* The offset of the caller's clock, ahead (or behind, modulo 2^64). */
static uint64_t clock_error_ns(struct workload *workload)
{
    if (workload->spec.kind != WORKLOAD_CLOCK_STEPS)
        return 0;
    if (random_below(&workload->clients, CLOCK_STEP_ONE_IN) == 0) {
        uint64_t step_ns = workload->spec.step_ns;
        workload->plan.clock_error_ns = random_below(&workload->clients, 2 * step_ns + 1) - step_ns;
        workload->plan.as_promised = false;
    }
    return workload->plan.clock_error_ns;
}

static bool plan_next(struct workload *workload, struct sim_event *event)
{
    struct workload_plan *plan = &workload->plan;
    if (plan->ask_ns >= workload->end_ns)
        return false;
    uint64_t at_ns = min_u64(plan->ask_ns + clock_error_ns(workload), STINT_NOW_MAX);
    *event = (struct sim_event){
        .at_ns = at_ns, .cost = 1, .stamp = plan->stamp, .as_promised = plan->as_promised};
    return true;
}

static void plan_note(struct workload *workload, const struct sim_event *event,
                      const struct stint_decision *decision)
{
    struct workload_plan *plan = &workload->plan;
    const struct workload_step *step = &plan->steps[plan->step];
    plan->stamp = event->stamp;
    plan->as_promised = false;
    if (decision->outcome == STINT_ALLOW) {
        if (++plan->admitted == step->units)
            next_step(workload);
        return;
    }
    plan->ask_ns = add_sat(plan->ask_ns, decision->retry_after_ns);
    plan->as_promised = true;
    bool idles = workload->spec.kind == WORKLOAD_CLOCK_STEPS &&
                 random_below(&workload->clients, CLOCK_IDLE_ONE_IN) == 0;
    if (idles) {
        plan->ask_ns += random_below(&workload->clients, 2 * workload->quota.period_ns);
        plan->as_promised = false;
    }
    if (plan->ask_ns < step->until_ns)
        return;
    plan->ask_ns = min_u64(plan->ask_ns, max_u64(step->until_ns, step->from_ns));
    next_step(workload);
}

/* ---- Costs and keys -------------------------------------------------------------------------- */

#define MEAN_COST_DRAWS 4096

enum stream { STREAM_ARRIVALS, STREAM_KEYS, STREAM_COSTS, STREAM_CLIENTS, STREAM_MEAN_COST };

static uint32_t whole_cost(double cost, uint32_t most)
{
    if (!(cost >= 1.0))
        return 1;
    return cost >= (double)most ? most : (uint32_t)cost;
}

static uint32_t draw_cost(struct workload *workload, struct random *random)
{
    const struct workload_spec *spec = &workload->spec;
    switch (spec->costs) {
    case WORKLOAD_LOGNORMAL:
        return whole_cost(spec->cost_a * random_exp(spec->cost_b * random_normal(random)) + 0.5,
                          spec->cost_max);
    case WORKLOAD_PARETO:
        return whole_cost(spec->cost_a * random_pareto(random, spec->cost_b), spec->cost_max);
    case WORKLOAD_UNIFORM:
        return whole_cost(spec->cost_a + (double)random_below(
                                             random, (uint64_t)(spec->cost_b - spec->cost_a) + 1),
                          spec->cost_max);
    default:
        return whole_cost(spec->cost_a, spec->cost_max);
    }
}

/* Measured, as truncated and rounded costs have no mean that is simple to write down. */
static double mean_cost(struct workload *workload)
{
    struct random random;
    double sum = 0;
    if (workload->spec.costs == WORKLOAD_CONSTANT)
        return (double)draw_cost(workload, NULL);
    random_init(&random, 0, STREAM_MEAN_COST);
    for (int i = 0; i < MEAN_COST_DRAWS; i++)
        sum += (double)draw_cost(workload, &random);
    return sum / MEAN_COST_DRAWS;
}

/* A slot that clients share by their number. */
static uint64_t client_key(const struct workload *workload, uint32_t client)
{
    return client % workload->spec.keys;
}

/* ---- The stream: processes, herds and logs --------------------------------------------------- */

#define GAP_MAX_NS 0x1p62

/* Moves the next arrival by a gap; a fraction of a nanosecond is added to the next gap. */
static void advance(struct workload *workload, double gap_ns)
{
    double sum_ns = workload->fraction_ns + gap_ns;
    if (!(sum_ns < GAP_MAX_NS)) {
        workload->arrives = false;
        return;
    }
    int64_t whole_ns = (int64_t)sum_ns; /* signed: that is one instruction each way */
    workload->fraction_ns = sum_ns - (double)whole_ns;
    workload->arrival_ns += (uint64_t)whole_ns;
}

/* ---- Two rates in turn ---- */

static double phase_length_ns(struct workload *workload)
{
    const struct workload_spec *spec = &workload->spec;
    double mean_ns = (double)(workload->is_high ? spec->on_ns : spec->off_ns);
    if (spec->kind == WORKLOAD_MMPP)
        return mean_ns * random_exponential(&workload->arrivals);
    /* The mean of Pareto's distribution from x on is x alpha / (alpha - 1). */
    return mean_ns * (spec->alpha - 1) / spec->alpha *
           random_pareto(&workload->arrivals, spec->alpha);
}

static void begin_phase(struct workload *workload, bool is_high)
{
    workload->is_high = is_high;
    double length_ns = phase_length_ns(workload);
    workload->phase_ends_ns = workload->arrival_ns + bounded_ns(length_ns) + 1;
}

/* The rate of a phase, so that the mean over all phases is the one requested. */
static double phase_rate(const struct workload *workload)
{
    const struct workload_spec *spec = &workload->spec;
    double on = (double)spec->on_ns, off = (double)spec->off_ns;
    bool silent = spec->kind == WORKLOAD_ONOFF;
    double low = silent ? 0 : spec->rate * (on + off) / (spec->ratio * on + off);
    double high = silent ? spec->rate * (on + off) / on : low * spec->ratio;
    return (workload->is_high ? high : low) / 1e9;
}

/* One unit of an exponential clock that runs as fast as the rate of the phase. */
static void next_modulated(struct workload *workload)
{
    double left = random_exponential(&workload->arrivals);
    while (workload->arrival_ns < workload->end_ns) {
        double rate = phase_rate(workload);
        double phase_left_ns = (double)(workload->phase_ends_ns - workload->arrival_ns);
        if (left < rate * phase_left_ns) {
            advance(workload, left / rate);
            return;
        }
        left -= rate * phase_left_ns;
        workload->arrival_ns = workload->phase_ends_ns;
        begin_phase(workload, !workload->is_high);
    }
}

/* Drawn at the day's highest rate, and kept in proportion to the rate of the hour. */
static void next_diurnal(struct workload *workload)
{
    const struct workload_spec *spec = &workload->spec;
    double gap_ns = workload->mean_gap_ns / (1 + spec->depth);
    while (workload->arrives && workload->arrival_ns < workload->end_ns) {
        advance(workload, gap_ns * random_exponential(&workload->arrivals));
        double day_ns = (double)spec->day_ns;
        double part = (double)(workload->arrival_ns % spec->day_ns) / day_ns;
        double share = (1 + spec->depth * random_sine(part)) / (1 + spec->depth);
        if (random_unit(&workload->arrivals) <= share)
            return;
    }
}

/* All clients at once, or within the jitter: the least of the remaining uniform times. */
static void next_herd(struct workload *workload)
{
    const struct workload_spec *spec = &workload->spec;
    uint64_t herd_ns = workload->phase_ends_ns;
    if (++workload->herd_next == spec->clients) {
        workload->herd_next = 0;
        workload->fraction_ns = 0;
        workload->phase_ends_ns = herd_ns = add_sat(herd_ns, spec->every_ns);
    }
    workload->arrival_ns = herd_ns;
    if (spec->jitter_ns == 0)
        return;
    double left = (double)(spec->clients - workload->herd_next);
    double step = random_exp(random_log(random_unit(&workload->arrivals)) / left);
    /* Here `fraction_ns` is the part of the jitter that is over. */
    workload->fraction_ns = 1 - (1 - workload->fraction_ns) * step;
    workload->arrival_ns =
        add_sat(herd_ns, (uint64_t)(workload->fraction_ns * (double)spec->jitter_ns));
}

/* ---- Logs ---- */

static uint64_t scaled_ns(const struct workload *workload, size_t entry)
{
    uint64_t first_ns = workload->entries[0].at_ns, at_ns = workload->entries[entry].at_ns;
    uint64_t since_ns = at_ns - first_ns;
    if (workload->spec.scale != 1)
        since_ns = bounded_ns((double)since_ns / workload->spec.scale);
    return add_sat(first_ns - workload->entries_epoch_ns, since_ns);
}

static void next_entry(struct workload *workload)
{
    workload->entry++;
    workload->arrives = workload->entry < workload->n_entries;
    if (workload->arrives)
        workload->arrival_ns = scaled_ns(workload, workload->entry);
}

/* ---- Keys ---- */

/* A key's lifetime is memoryless, so a slot without requests meanwhile needs no updates. */
static uint32_t owner_of(struct workload *workload, uint32_t place, uint64_t at_ns)
{
    struct workload_owner *owner = &workload->owners[place];
    if (at_ns >= owner->until_ns) {
        double life_ns = (double)workload->spec.churn_ns * random_exponential(&workload->clients);
        owner->number += owner->until_ns > 0;
        owner->until_ns = at_ns + bounded_ns(life_ns) + 1;
    }
    return owner->number;
}

static inline uint64_t draw_key(struct workload *workload, uint64_t at_ns)
{
    uint32_t place = 0;
    if (workload->zipf.n_ranks > 0)
        place = random_zipf_next(&workload->zipf, &workload->keys);
    else if (workload->spec.keys > 1)
        place = (uint32_t)random_below(&workload->keys, workload->spec.keys);
    if (workload->owners == NULL)
        return place;
    return (uint64_t)owner_of(workload, place, at_ns) << 32 | place;
}

static void fill_entry(const struct workload *workload, struct sim_event *event)
{
    const struct event_entry *entry = &workload->entries[workload->entry];
    event->key = entry->key;
    event->cost = entry->cost;
    event->client = entry->key;
}

static inline void fill_drawn(struct workload *workload, struct sim_event *event)
{
    event->key = draw_key(workload, event->at_ns);
    event->client = sim_event_place(event);
    event->cost = workload->cost;
    if (event->cost == 0)
        event->cost = draw_cost(workload, &workload->costs);
}

static void fill_herd(struct workload *workload, struct sim_event *event)
{
    event->client = workload->herd_next;
    event->key = client_key(workload, event->client);
    event->cost = draw_cost(workload, &workload->costs);
}

/* ---- All ---- */

__attribute__((noinline)) static void find_next_slow(struct workload *workload)
{
    switch (workload->spec.kind) {
    case WORKLOAD_DIURNAL:
        next_diurnal(workload);
        break;
    case WORKLOAD_HERD:
        next_herd(workload);
        break;
    case WORKLOAD_LOG:
        next_entry(workload);
        break;
    default:
        next_modulated(workload);
    }
}

static inline void find_next(struct workload *workload)
{
    if (workload->spec.kind == WORKLOAD_POISSON)
        advance(workload, workload->mean_gap_ns * random_exponential(&workload->arrivals));
    else
        find_next_slow(workload);
    workload->arrives = workload->arrives && workload->arrival_ns < workload->end_ns;
}

static void stream_begin(struct workload *workload)
{
    const struct workload_spec *spec = &workload->spec;
    workload->arrives = true;
    workload->mean_gap_ns = spec->rate > 0 ? 1e9 / spec->rate : GAP_MAX_NS;
    if (spec->kind == WORKLOAD_LOG) {
        workload->arrives = workload->n_entries > 0;
        workload->arrival_ns = workload->arrives ? scaled_ns(workload, 0) : 0;
        workload->arrives = workload->arrives && workload->arrival_ns < workload->end_ns;
        return;
    }
    if (spec->kind == WORKLOAD_HERD) {
        workload->herd_next = UINT32_MAX; /* the step before the first client's */
        workload->phase_ends_ns = 0;
    } else if (spec->kind != WORKLOAD_POISSON && spec->kind != WORKLOAD_DIURNAL) {
        double on = (double)spec->on_ns, off = (double)spec->off_ns;
        begin_phase(workload, random_unit(&workload->arrivals) * (on + off) <= on);
    }
    find_next(workload);
}

/* Up to n_max requests from the one at arrival_ns on; returns how many. */
static size_t stream_take(struct workload *workload, struct sim_event *events, size_t n_max)
{
    enum workload_kind kind = workload->spec.kind;
    size_t n = 0;
    for (; n < n_max && workload->arrives; n++) {
        events[n] = (struct sim_event){.at_ns = workload->arrival_ns};
        if (kind == WORKLOAD_LOG)
            fill_entry(workload, &events[n]);
        else if (kind == WORKLOAD_HERD)
            fill_herd(workload, &events[n]);
        else
            fill_drawn(workload, &events[n]);
        find_next(workload);
    }
    return n;
}

/* ---- The requests, in the order of time ------------------------------------------------------ */

#define BACKOFF_DOUBLINGS_MAX 10
#define FLOOD_KEYS_PER_PERIOD 1000
#define REQUESTS_PER_CYCLE_MIN 1e-3

static bool follows_plan(enum workload_kind kind)
{
    return workload_is_adversary(kind) && kind != WORKLOAD_FLOOD;
}

/* Clients that send their next request after they were allowed. */
static bool is_closed(enum workload_kind kind)
{
    return kind == WORKLOAD_GREEDY || kind == WORKLOAD_CLOSED;
}

uint32_t workload_places(const struct workload *workload)
{
    if (workload->spec.kind == WORKLOAD_FLOOD)
        return 2; /* the victim, and all the others one after the other */
    return workload->spec.keys;
}

uint32_t workload_clients(const struct workload *workload)
{
    bool has_clients = is_closed(workload->spec.kind) || workload->spec.kind == WORKLOAD_HERD;
    return has_clients ? workload->spec.clients : 0;
}

bool workload_listens(const struct workload *workload)
{
    return workload->spec.retry != WORKLOAD_GIVE_UP || is_closed(workload->spec.kind);
}

/* ---- Requests that wait ---- */

static bool is_earlier(const struct workload_waiting *a, const struct workload_waiting *b)
{
    return a->event.at_ns < b->event.at_ns ||
           (a->event.at_ns == b->event.at_ns && a->order < b->order);
}

static bool grow_waiting(struct workload *workload)
{
    size_t size = workload->waiting_size == 0 ? 64 : workload->waiting_size * 2;
    struct workload_waiting *waiting =
        size > WORKLOAD_WAITING_MAX ? NULL : realloc(workload->waiting, size * sizeof(*waiting));
    if (waiting == NULL)
        return false;
    workload->waiting = waiting;
    workload->waiting_size = size;
    return true;
}

/* The request will be made at its time; one that is too late for the run is dropped. */
static void add_waiting(struct workload *workload, const struct sim_event *event)
{
    if (event->at_ns >= workload->end_ns)
        return;
    if (workload->n_waiting == workload->waiting_size && !grow_waiting(workload)) {
        workload->dropped++;
        return;
    }
    struct workload_waiting entry = {*event, workload->order++}, *heap = workload->waiting;
    size_t at = workload->n_waiting++;
    for (; at > 0 && is_earlier(&entry, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

static void take_waiting(struct workload *workload, struct sim_event *event)
{
    struct workload_waiting *heap = workload->waiting;
    *event = heap[0].event;
    struct workload_waiting last = heap[--workload->n_waiting];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= workload->n_waiting)
            break;
        if (child + 1 < workload->n_waiting && is_earlier(&heap[child + 1], &heap[child]))
            child++;
        if (!is_earlier(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
}

/* ---- The next requests of clients ---- */

static uint64_t think_ns(struct workload *workload)
{
    double mean_ns = (double)workload->spec.think_ns;
    return mean_ns > 0 ? bounded_ns(mean_ns * random_exponential(&workload->clients)) + 1 : 0;
}

static void begin_anew(struct workload *workload, const struct sim_event *event, uint64_t wait_ns)
{
    struct sim_event next = {
        .at_ns = add_sat(event->at_ns, wait_ns), .key = event->key, .client = event->client};
    next.cost = draw_cost(workload, &workload->costs);
    add_waiting(workload, &next);
}

static uint64_t retry_wait_ns(struct workload *workload, const struct sim_event *event,
                              const struct stint_decision *decision)
{
    const struct workload_spec *spec = &workload->spec;
    if (spec->retry == WORKLOAD_OBEY)
        return decision->retry_after_ns;
    if (spec->retry == WORKLOAD_IGNORE)
        return spec->again_ns;
    unsigned doublings =
        event->tries < BACKOFF_DOUBLINGS_MAX ? event->tries : BACKOFF_DOUBLINGS_MAX;
    double most_ns = (double)spec->backoff_ns * (double)(1u << doublings);
    return bounded_ns(most_ns * random_unit(&workload->clients)) + 1;
}

/* One key after the other, each requested once. */
static void flood_on(struct workload *workload, const struct sim_event *event)
{
    uint64_t gap_ns = workload->quota.period_ns / FLOOD_KEYS_PER_PERIOD + 1;
    struct sim_event next = {.client = event->client, .cost = 1};
    next.at_ns = event->at_ns + gap_ns + random_below(&workload->clients, gap_ns);
    next.key = event->key + (UINT64_C(1) << 32);
    add_waiting(workload, &next);
}

static void tell_client(struct workload *workload, const struct sim_event *event,
                        const struct stint_decision *decision)
{
    const struct workload_spec *spec = &workload->spec;
    bool tries_on = decision->outcome == STINT_DENY && spec->retry != WORKLOAD_GIVE_UP &&
                    (spec->tries == 0 || event->tries < spec->tries);
    if (tries_on) {
        struct sim_event next = *event;
        next.at_ns = add_sat(event->at_ns, retry_wait_ns(workload, event, decision));
        next.tries = (uint16_t)(next.tries + (next.tries < UINT16_MAX));
        next.as_promised = spec->retry == WORKLOAD_OBEY;
        add_waiting(workload, &next);
        return;
    }
    if (!is_closed(spec->kind) && spec->kind != WORKLOAD_FLOOD)
        return;
    /* A greedy client that can never be served must not repeat its request for ever at one time. */
    bool hopeless = decision->outcome != STINT_ALLOW && spec->think_ns == 0;
    begin_anew(workload, event, hopeless ? workload->quota.period_ns : think_ns(workload));
}

void workload_tell(struct workload *workload, const struct sim_event *event,
                   const struct stint_decision *decision)
{
    if (follows_plan(workload->spec.kind))
        plan_note(workload, event, decision);
    else if (workload->spec.kind == WORKLOAD_FLOOD && event->client == 1)
        flood_on(workload, event);
    else
        tell_client(workload, event, decision);
}

/* ---- Start and end ---- */

bool workload_next(struct workload *workload, struct sim_event *event)
{
    if (workload->n_waiting > 0 &&
        !(workload->arrives && workload->arrival_ns <= workload->waiting[0].event.at_ns)) {
        take_waiting(workload, event);
        return true;
    }
    if (workload->arrives)
        return stream_take(workload, event, 1) > 0;
    return follows_plan(workload->spec.kind) && plan_next(workload, event);
}

size_t workload_next_many(struct workload *workload, struct sim_event *events, size_t n_max)
{
    assert(n_max <= 1 || !workload_listens(workload));
    size_t n = workload->n_waiting == 0 ? stream_take(workload, events, n_max) : 0;
    while (n < n_max && workload_next(workload, &events[n]))
        n++;
    return n;
}

void workload_lend(struct workload *workload, const struct event_list *events, uint64_t epoch_ns)
{
    uint32_t keys = 0;
    for (size_t i = 0; i < events->n_entries; i++)
        if (events->entries[i].key >= keys)
            keys = events->entries[i].key + 1;
    workload->spec.keys = keys > 0 ? keys : 1;
    workload->entries = events->entries;
    workload->n_entries = events->n_entries;
    workload->entries_epoch_ns = epoch_ns;
}

/* Defaults from the quota, for what the text did not set. */
static void settle_defaults(struct workload *workload)
{
    struct workload_spec *spec = &workload->spec;
    const struct stint_quota *quota = &workload->quota;
    bool is_onoff = spec->kind == WORKLOAD_ONOFF || spec->kind == WORKLOAD_MMPP;
    if (spec->on_ns == 0)
        spec->on_ns = quota->period_ns;
    if (spec->off_ns == 0)
        spec->off_ns = is_onoff ? 3 * spec->on_ns : 0;
    if (spec->day_ns == 0)
        spec->day_ns = 20 * quota->period_ns;
    if (spec->every_ns == 0)
        spec->every_ns = quota->period_ns;
    if (spec->step_ns == 0)
        spec->step_ns = quota->period_ns / 2;
    if (spec->clients == 0)
        spec->clients = spec->kind == WORKLOAD_GREEDY ? spec->keys : 100;
    if (spec->kind == WORKLOAD_CLOSED && spec->think_ns == 0)
        spec->think_ns = quota->period_ns / 10;
    if (spec->tries == 0 && !is_closed(spec->kind) && !workload_is_adversary(spec->kind))
        spec->tries = 5;
    if (spec->rate == 0)
        spec->rate = spec->load * quota->limit / ((double)quota->period_ns / 1e9) * spec->keys /
                     mean_cost(workload);
}

static int herds_mix(const struct workload_spec *spec, struct stint_error *error)
{
    char jitter[64], every[64];
    struct buf buf = buf_of(jitter, sizeof(jitter));
    spec_format_duration(&buf, spec->jitter_ns);
    buf = buf_of(every, sizeof(every));
    spec_format_duration(&buf, spec->every_ns);
    return err_set(error, STINT_E_MISMATCH,
                   "jitter=%s is longer than every=%s (by default the period of the quota), so "
                   "that herds mix",
                   jitter, every);
}

/* Relations between times are checked once all are settled. */
static int check_times(const struct workload_spec *spec, struct stint_error *error)
{
    if (spec->kind == WORKLOAD_HERD && spec->jitter_ns > spec->every_ns)
        return herds_mix(spec, error);
    /* Limits the gap, so that a stream finds its next request soon. */
    double cycle_s = ((double)spec->on_ns + (double)spec->off_ns) / 1e9;
    bool has_phases = spec->kind == WORKLOAD_ONOFF || spec->kind == WORKLOAD_MMPP;
    if (!has_phases || spec->rate == 0 || cycle_s * spec->rate >= REQUESTS_PER_CYCLE_MIN)
        return 0;
    return err_set(error, STINT_E_RANGE,
                   "on and off are so short that fewer than one in %d of these times has a request",
                   (int)(1 / REQUESTS_PER_CYCLE_MIN));
}

int workload_settle(struct workload *workload, const struct stint_quota *quota,
                    struct stint_error *error)
{
    assert(quota->derived.checked);
    workload->quota = *quota;
    settle_defaults(workload);
    return check_times(&workload->spec, error);
}

static int allocate(struct workload *workload, struct stint_error *error)
{
    const struct workload_spec *spec = &workload->spec;
    bool draws_keys = workload->has_arrivals && spec->kind != WORKLOAD_LOG;
    int code = 0;
    if (draws_keys && spec->zipf > 0 && spec->keys > 1)
        code = random_zipf_init(&workload->zipf, spec->keys, spec->zipf, error);
    if (code != 0 || spec->churn_ns == 0)
        return code;
    workload->owners = calloc(spec->keys, sizeof(*workload->owners));
    return workload->owners != NULL
               ? 0
               : err_set(error, STINT_E_SYSTEM, "out of memory for %u keys", spec->keys);
}

/* Each client's first request; greedy ones come at once, the others after a think time. */
static void send_clients(struct workload *workload)
{
    const struct workload_spec *spec = &workload->spec;
    bool floods = spec->kind == WORKLOAD_FLOOD;
    uint32_t n_clients = floods ? 2 : spec->clients;
    for (uint32_t client = 0; client < n_clients; client++) {
        struct sim_event event = {.at_ns = think_ns(workload), .client = client, .cost = 1};
        event.key = floods ? client : client_key(workload, client);
        if (!floods)
            event.cost = draw_cost(workload, &workload->costs);
        add_waiting(workload, &event);
    }
}

int workload_begin(struct workload *workload, const struct workload_terms *terms,
                   struct stint_error *error)
{
    const struct workload_spec *spec = &workload->spec;
    workload->end_ns = terms->end_ns;
    random_init(&workload->arrivals, terms->seed, STREAM_ARRIVALS);
    random_init(&workload->keys, terms->seed, STREAM_KEYS);
    random_init(&workload->costs, terms->seed, STREAM_COSTS);
    random_init(&workload->clients, terms->seed, STREAM_CLIENTS);
    int code = workload_settle(workload, terms->quota, error);
    if (spec->costs == WORKLOAD_CONSTANT)
        workload->cost = draw_cost(workload, NULL);
    workload->has_arrivals = !is_closed(spec->kind) && !workload_is_adversary(spec->kind);
    if (code == 0)
        code = allocate(workload, error);
    if (code != 0)
        return code;
    workload->quota.epoch_ns = terms->epoch_ns;
    if (workload->has_arrivals)
        stream_begin(workload);
    else if (follows_plan(spec->kind))
        make_plan(workload);
    else
        send_clients(workload);
    return 0;
}

void workload_end(struct workload *workload)
{
    random_zipf_deinit(&workload->zipf);
    free(workload->owners);
    free(workload->waiting);
    memset(workload, 0, sizeof(*workload));
}
