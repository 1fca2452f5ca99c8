/* SPDX-License-Identifier: MIT */
/* The next request of the stream, and its key: processes, herds and logs. */
#include "sim/workload/workload_parts.h"

#include "base/ns.h"
#include "base/wide_int.h"

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
    workload->phase_ends_ns = workload->arrival_ns + workload_ns(length_ns) + 1;
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
        since_ns = workload_ns((double)since_ns / workload->spec.scale);
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
        owner->until_ns = at_ns + workload_ns(life_ns) + 1;
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
        event->cost = workload_draw_cost(workload, &workload->costs);
}

static void fill_herd(struct workload *workload, struct sim_event *event)
{
    event->client = workload->herd_next;
    event->key = workload_client_key(workload, event->client);
    event->cost = workload_draw_cost(workload, &workload->costs);
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

void workload_stream_begin(struct workload *workload)
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

size_t workload_stream_take(struct workload *workload, struct sim_event *events, size_t n_max)
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
