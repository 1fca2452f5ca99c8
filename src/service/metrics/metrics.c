/* SPDX-License-Identifier: MIT */
/* Counting: each worker writes to its own memory. */
#include "service/metrics/metrics_parts.h"

#include "base/wide_int.h"

#include <stdlib.h>

const char *const metrics_frontend_names[METRICS_FRONTENDS] = {"resp", "http", "grpc"};
const char *const metrics_outcome_names[METRICS_OUTCOMES] = {"allow",  "deny",   "never",
                                                             "banned", "shadow", "replaced"};
const char *const metrics_refusal_names[METRICS_REFUSALS] = {"total", "address", "idle", "tls",
                                                             "memory"};
const char *const metrics_error_names[METRICS_ERRORS] = {
    "none", "bad_request", "forbidden", "gone", "conflict", "full", "unavailable"};

struct metrics_worker *metrics_worker(struct metrics *metrics, unsigned worker)
{
    return &metrics->workers[worker];
}

/* Not inline: called once for each chunk. */
static struct series_metrics *make_chunk(struct metrics_worker *worker, uint32_t chunk)
{
    size_t size = METRICS_CHUNK * sizeof(struct series_metrics);
    struct series_metrics *made = aligned_alloc(64, size);
    if (made == NULL)
        return NULL;
    memset(made, 0, size);
    /* release: a thread that sums up sees zeros, not earlier contents of the memory. */
    __atomic_store_n(&worker->chunks[chunk], made, __ATOMIC_RELEASE);
    return made;
}

static struct series_metrics *metrics_of(struct metrics_worker *worker, uint32_t number)
{
    struct series_metrics *chunk = worker->chunks[number / METRICS_CHUNK];
    if (chunk == NULL)
        chunk = make_chunk(worker, number / METRICS_CHUNK);
    return chunk != NULL ? &chunk[number % METRICS_CHUNK] : &worker->spare;
}

static uint32_t number_of(const struct metrics_bound *bound, const struct rule *rule)
{
    return rule != NULL && bound != NULL && rule->index < bound->n ? bound->numbers[rule->index]
                                                                   : SERIES_NO_RULE;
}

static void count_outcome(struct series_metrics *metrics, enum metrics_outcome outcome,
                          uint32_t units)
{
    count_up(&metrics->outcomes[outcome], 1);
    count_up(&metrics->units, units);
}

void metrics_decided(struct metrics_worker *worker, const struct metrics_bound *bound,
                     const struct rule *rule, enum metrics_outcome outcome, uint32_t units)
{
    count_outcome(metrics_of(worker, number_of(bound, rule)), outcome, units);
    count_up(&worker->total.outcomes[outcome], 1);
    count_up(&worker->total.units, units);
}

void metrics_candidate_over(struct metrics_worker *worker, const struct metrics_bound *bound,
                            const struct rule *rule)
{
    count_up(&metrics_of(worker, number_of(bound, rule))->candidate_over, 1);
}

void metrics_detailed(struct metrics_worker *worker, const struct metrics_bound *bound,
                      const struct rule *rule, struct span value, enum metrics_outcome outcome,
                      uint32_t units)
{
    uint32_t number = metrics_detail_number(worker->metrics, number_of(bound, rule), value);
    count_outcome(metrics_of(worker, number), outcome, units);
}

void metrics_asked(struct metrics_worker *worker, enum metrics_frontend frontend, unsigned verb,
                   unsigned error)
{
    struct frontend_metrics *metrics = &worker->frontends[frontend];
    if (verb < REQUEST_VERBS)
        count_up(&metrics->verbs[verb], 1);
    if (error != REPLY_DECIDED && error < METRICS_ERRORS)
        count_up(&metrics->errors[error], 1);
}

void metrics_wrong_secret(struct metrics_worker *worker, enum metrics_frontend frontend)
{
    count_up(&worker->frontends[frontend].wrong_secrets, 1);
}

const char *metrics_frontend_name(enum metrics_frontend frontend)
{
    return metrics_frontend_names[frontend];
}

void metrics_malformed(struct metrics_worker *worker, enum metrics_frontend frontend)
{
    count_up(&worker->frontends[frontend].malformed, 1);
}

void metrics_unmatched(struct metrics_worker *worker, const struct metrics_bound *bound,
                       size_t domain, uint64_t n)
{
    count_up(&worker->total.events[METRICS_UNMATCHED], n);
    if (bound == NULL || domain >= bound->n_domains)
        count_up(&worker->total.events[METRICS_DOMAIN_UNKNOWN], n);
    else
        count_up(&metrics_of(worker, bound->numbers[bound->n + domain])->units, n);
}

void metrics_event(struct metrics_worker *worker, enum metrics_event event, uint64_t times)
{
    count_up(&worker->total.events[event], times);
}

void metrics_opened(struct metrics_worker *worker, enum metrics_frontend frontend)
{
    count_up(&worker->frontends[frontend].opened, 1);
}

void metrics_closed(struct metrics_worker *worker, enum metrics_frontend frontend)
{
    count_up(&worker->frontends[frontend].closed, 1);
}

void metrics_refused(struct metrics_worker *worker, enum metrics_frontend frontend,
                     enum metrics_refusal why)
{
    count_up(&worker->frontends[frontend].refused[why], 1);
}

void metrics_bytes(struct metrics_worker *worker, enum metrics_frontend frontend, uint64_t in,
                   uint64_t out)
{
    count_up(&worker->frontends[frontend].bytes_in, in);
    count_up(&worker->frontends[frontend].bytes_out, out);
}

uint64_t metrics_decisions(const struct metrics_worker *worker)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < METRICS_OUTCOMES; i++)
        sum += worker->total.outcomes[i];
    return sum;
}

static unsigned bucket_of(uint64_t each_ns)
{
    /* The least i with each_ns <= METRICS_BUCKET_NS << i. */
    unsigned bucket = bit_length((each_ns > 0 ? each_ns - 1 : 0) / METRICS_BUCKET_NS);
    return bucket < METRICS_BUCKETS ? bucket : METRICS_BUCKETS - 1;
}

void metrics_took(struct metrics_worker *worker, uint64_t duration_ns, uint32_t times)
{
    if (times == 0)
        return;
    count_up(&worker->total.buckets[bucket_of(duration_ns / times)], times);
    count_up(&worker->total.duration_ns, duration_ns);
}

/* ---- Summing --------------------------------------------------------------------------------- */

/* Adds up structs that contain only uint64_t counters. */
static void add_metrics(void *sum, const void *metrics, size_t size)
{
    uint64_t *to = sum;
    const uint64_t *from = metrics;
    for (size_t i = 0; i < size / sizeof(*to); i++)
        to[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

struct series_metrics metrics_sum_series(const struct metrics *metrics, uint32_t number)
{
    struct series_metrics sum = {.units = 0};
    for (unsigned i = 0; i < metrics->n_workers; i++) {
        /* acquire: pairs with the release of make_chunk(). */
        const struct series_metrics *chunk =
            __atomic_load_n(&metrics->workers[i].chunks[number / METRICS_CHUNK], __ATOMIC_ACQUIRE);
        if (chunk != NULL)
            add_metrics(&sum, &chunk[number % METRICS_CHUNK], sizeof(sum));
    }
    return sum;
}

struct frontend_metrics metrics_sum_frontend(const struct metrics *metrics, unsigned frontend)
{
    struct frontend_metrics sum = {.malformed = 0};
    for (unsigned i = 0; i < metrics->n_workers; i++)
        add_metrics(&sum, &metrics->workers[i].frontends[frontend], sizeof(sum));
    return sum;
}

struct total_metrics metrics_sum_total(const struct metrics *metrics)
{
    struct total_metrics sum = {.units = 0};
    for (unsigned i = 0; i < metrics->n_workers; i++)
        add_metrics(&sum, &metrics->workers[i].total, sizeof(sum));
    return sum;
}
