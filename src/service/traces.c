/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
/* Sampling, attributes, and one ring of bytes for each worker: one thread writes, one reads. */
#include "service/traces.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/splitmix.h"
#include "base/wide_int.h"
#include "decide/backend.h"
#include "proto/otlp/otlp.h"
#include "service/metrics/metrics_parts.h"
#include "service/server_clock.h"

#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <time.h>

#define IDS_SIZE 1024       /* random bytes that are fetched together */
#define OPEN_SPANS_MAX 1024 /* of a worker: those of requests that wait for stores */

/* An open span. */
struct trace_span {
    struct tracer *tracer;
    struct trace_span *next_free;
    struct trace_operation operation;
    uint64_t begin_ns;
    uint64_t wall_less_io_ns;
    uint8_t trace_id[TRACE_ID_LEN], id[TRACE_SPAN_ID_LEN], parent_id[TRACE_SPAN_ID_LEN];
    bool has_parent;
    uint8_t flags;
    uint16_t state_len;
    char state[TRACE_STATE_MAX];
};

/*
 * A ring of bytes, and what its writer has beside it. Positions count all bytes since the start.
 * The reader's come last: on another cache line than the writer's.
 */
struct tracer {
    uint8_t *bytes;
    uint64_t written;   /* stored with release by the worker */
    uint64_t n_written; /* spans: the same, before `written` */
    struct traces *traces;
    uint64_t random; /* of the samples */
    size_t ids_used;
    struct trace_span *free_spans;
    size_t n_open;
    uint8_t ids[IDS_SIZE];
    uint8_t space[OTLP_SPAN_SIZE];
    uint64_t taken; /* stored with release by the reader */
    uint64_t n_taken;
};

struct traces {
    struct traces_options options;
    const struct server_clock *clock;
    struct metrics *metrics;
    void (*half_full)(void *arg);
    void *arg;
    unsigned workers;
    struct tracer **tracers;
};

/* ---- Making and freeing ---------------------------------------------------------------------- */

static void free_tracer(struct tracer *tracer)
{
    if (tracer == NULL)
        return;
    assert(tracer->n_open == 0);
    while (tracer->free_spans != NULL) {
        struct trace_span *span = tracer->free_spans;
        tracer->free_spans = span->next_free;
        free(span);
    }
    free(tracer->bytes);
    free(tracer);
}

static struct tracer *tracer_new(struct traces *traces)
{
    struct tracer *tracer = calloc(1, sizeof(*tracer));
    if (tracer == NULL)
        return NULL;
    tracer->traces = traces;
    tracer->ids_used = IDS_SIZE;
    tracer->bytes = malloc(traces->options.ring_size);
    if (tracer->bytes != NULL &&
        gnutls_rnd(GNUTLS_RND_NONCE, &tracer->random, sizeof(tracer->random)) == 0)
        return tracer;
    free_tracer(tracer);
    return NULL;
}

struct traces *traces_new(const struct traces_options *options, unsigned workers,
                          const struct server_clock *clock, struct metrics *metrics)
{
    struct traces *traces = calloc(1, sizeof(*traces));
    if (traces == NULL)
        return NULL;
    traces->options = *options;
    if (traces->options.ring_size == 0)
        traces->options.ring_size = TRACES_RING_SIZE;
    assert((traces->options.ring_size & (traces->options.ring_size - 1)) == 0);
    assert(options->ratio <= TRACES_RATIO_ALL);
    traces->clock = clock;
    traces->metrics = metrics;
    metrics_have_spans(metrics);
    traces->workers = workers;
    traces->tracers = calloc(workers, sizeof(struct tracer *));
    bool is_made = traces->tracers != NULL;
    for (unsigned i = 0; is_made && i < workers; i++) {
        traces->tracers[i] = tracer_new(traces);
        is_made = traces->tracers[i] != NULL;
    }
    if (is_made)
        return traces;
    traces_free(traces);
    return NULL;
}

void traces_free(struct traces *traces)
{
    if (traces == NULL)
        return;
    for (unsigned i = 0; traces->tracers != NULL && i < traces->workers; i++)
        free_tracer(traces->tracers[i]);
    free(traces->tracers);
    free(traces);
}

void traces_on_half_full(struct traces *traces, void (*half_full)(void *arg), void *arg)
{
    traces->half_full = half_full;
    traces->arg = arg;
}

struct tracer *traces_tracer(struct traces *traces, unsigned worker)
{
    assert(traces == NULL || worker < traces->workers);
    return traces != NULL ? traces->tracers[worker] : NULL;
}

unsigned traces_workers(const struct traces *traces)
{
    return traces->workers;
}

size_t traces_ring_size(const struct traces *traces)
{
    return traces->options.ring_size;
}

/* ---- Rings ----------------------------------------------------------------------------------- */

/* Around the end of the ring. */
static void copy_in(struct tracer *tracer, size_t size, struct span bytes)
{
    size_t start = tracer->written & (size - 1);
    size_t first = size - start < bytes.len ? size - start : bytes.len;
    memcpy(tracer->bytes + start, bytes.ptr, first);
    memcpy(tracer->bytes, bytes.ptr + first, bytes.len - first);
}

/* The span, or a drop that is counted. */
static void put(struct tracer *tracer, struct span bytes)
{
    struct traces *traces = tracer->traces;
    size_t size = traces->options.ring_size;
    size_t used = (size_t)(tracer->written - __atomic_load_n(&tracer->taken, __ATOMIC_ACQUIRE));
    if (bytes.len > size - used) {
        metrics_spans(traces->metrics, METRICS_SPANS_DROPPED, 1);
        return;
    }
    copy_in(tracer, size, bytes);
    __atomic_store_n(&tracer->n_written, tracer->n_written + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&tracer->written, tracer->written + bytes.len, __ATOMIC_RELEASE);
    bool is_half_full = used <= size / 2 && used + bytes.len > size / 2;
    if (is_half_full && traces->half_full != NULL)
        traces->half_full(traces->arg);
}

size_t traces_take(struct traces *traces, unsigned worker, uint8_t *out, uint64_t *n)
{
    struct tracer *tracer = traces->tracers[worker];
    size_t size = traces->options.ring_size;
    uint64_t written = __atomic_load_n(&tracer->written, __ATOMIC_ACQUIRE);
    /* At least that of `written`; a span more is counted early. */
    uint64_t n_written = __atomic_load_n(&tracer->n_written, __ATOMIC_RELAXED);
    size_t len = (size_t)(written - tracer->taken), start = tracer->taken & (size - 1);
    size_t first = size - start < len ? size - start : len;
    if (len == 0)
        return 0;
    memcpy(out, tracer->bytes + start, first);
    memcpy(out + first, tracer->bytes, len - first);
    *n += n_written - tracer->n_taken;
    tracer->n_taken = n_written;
    __atomic_store_n(&tracer->taken, written, __ATOMIC_RELEASE);
    return len;
}

bool traces_wait(const struct traces *traces)
{
    for (unsigned i = 0; i < traces->workers; i++) {
        const struct tracer *tracer = traces->tracers[i];
        if (__atomic_load_n(&tracer->written, __ATOMIC_ACQUIRE) != tracer->taken)
            return true;
    }
    return false;
}

/* ---- Identities and samples ------------------------------------------------------------------ */

/* No id is all zero. False: the system has no random bytes now. */
static bool make_id(struct tracer *tracer, uint8_t *id, size_t len)
{
    if (tracer->ids_used + len > IDS_SIZE) {
        if (gnutls_rnd(GNUTLS_RND_NONCE, tracer->ids, IDS_SIZE) != 0)
            return false;
        tracer->ids_used = 0;
    }
    memcpy(id, tracer->ids + tracer->ids_used, len);
    tracer->ids_used += len;
    id[len - 1] |= id[0] == 0;
    return true;
}

/* The last bytes of a trace's id: all programs that sample by it with one ratio agree. */
static uint64_t chance_of(const struct trace_context *context)
{
    uint64_t chance = 0;
    for (size_t i = TRACE_ID_LEN - 8; i < TRACE_ID_LEN; i++)
        chance = chance << 8 | context->trace_id[i];
    return chance;
}

static bool is_sampled(struct tracer *tracer, const struct trace_context *context)
{
    const struct traces_options *options = &tracer->traces->options;
    bool has_context = context != NULL && context->is_valid;
    if (has_context && options->follows_caller)
        return (context->flags & TRACE_FLAG_SAMPLED) != 0;
    uint64_t chance = has_context ? chance_of(context) : splitmix_next(&tracer->random);
    /* 63 bits of it, as a fraction of one. */
    uint64_t share = (uint64_t)(((unsigned __int128)(chance >> 1) * TRACES_RATIO_ALL) >> 63);
    return share < options->ratio;
}

/* ---- Time ------------------------------------------------------------------------------------ */

/*
 * What is added to I/O time for the time since 1970, modulo 2^64. It is read once for a span and
 * those below it, so that steps of the clock, and the time between two readings, do not show.
 */
static uint64_t wall_less_io(const struct tracer *tracer)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec -
           server_clock_io_now(tracer->traces->clock);
}

/* ---- Open spans ------------------------------------------------------------------------------ */

static struct trace_span *take_span(struct tracer *tracer)
{
    struct trace_span *span = tracer->free_spans;
    if (span != NULL)
        tracer->free_spans = span->next_free;
    else if (tracer->n_open < OPEN_SPANS_MAX)
        span = malloc(sizeof(*span));
    if (span == NULL) {
        metrics_spans(tracer->traces->metrics, METRICS_SPANS_DROPPED, 1);
        return NULL;
    }
    tracer->n_open++;
    return span;
}

void trace_forget(struct trace_span *span)
{
    if (span == NULL)
        return;
    struct tracer *tracer = span->tracer;
    assert(tracer->n_open > 0);
    tracer->n_open--;
    span->next_free = tracer->free_spans;
    tracer->free_spans = span;
}

static void continue_trace(struct trace_span *span, const struct trace_context *context)
{
    struct span state = trace_context_state_of(context);
    memcpy(span->trace_id, context->trace_id, TRACE_ID_LEN);
    memcpy(span->parent_id, context->span_id, TRACE_SPAN_ID_LEN);
    span->has_parent = true;
    span->flags = context->flags;
    span->state_len = (uint16_t)state.len;
    memcpy(span->state, state.ptr, state.len);
}

struct trace_span *tracer_begin(struct tracer *tracer, const struct trace_operation *operation,
                                const struct trace_context *context, uint64_t begin_ns)
{
    if (tracer == NULL || !is_sampled(tracer, context))
        return NULL;
    struct trace_span *span = take_span(tracer);
    if (span == NULL)
        return NULL;
    span->tracer = tracer;
    span->operation = *operation;
    span->begin_ns = begin_ns;
    span->wall_less_io_ns = wall_less_io(tracer);
    span->has_parent = false;
    span->flags = TRACE_FLAG_RANDOM;
    span->state_len = 0;
    bool has_ids = make_id(tracer, span->id, TRACE_SPAN_ID_LEN);
    if (context != NULL && context->is_valid)
        continue_trace(span, context);
    else
        has_ids = has_ids && make_id(tracer, span->trace_id, TRACE_ID_LEN);
    span->flags |= TRACE_FLAG_SAMPLED;
    if (has_ids)
        return span;
    trace_forget(span);
    return NULL;
}

/* ---- Ended spans ----------------------------------------------------------------------------- */

struct attributes {
    struct otlp_attribute all[OTLP_ATTRIBUTES_MAX];
    size_t n;
};

static void add_text(struct attributes *attributes, const char *name, struct span text)
{
    assert(attributes->n < OTLP_ATTRIBUTES_MAX);
    if (text.len > 0)
        attributes->all[attributes->n++] = (struct otlp_attribute){.name = name, .text = text};
}

static void add_number(struct attributes *attributes, const char *name, int64_t number)
{
    assert(attributes->n < OTLP_ATTRIBUTES_MAX);
    attributes->all[attributes->n++] = (struct otlp_attribute){.name = name, .number = number};
}

/* "/package.Service/Method": names without the first slash, as the conventions for gRPC say. */
static void add_grpc(struct attributes *attributes, const char *path, int status)
{
    const char *method = strrchr(path, '/');
    add_text(attributes, "rpc.system", span_of_text("grpc"));
    add_text(attributes, "rpc.service", span_of(path + 1, (size_t)(method - path - 1)));
    add_text(attributes, "rpc.method", span_of_text(method + 1));
    if (status >= 0)
        add_number(attributes, "rpc.grpc.status_code", status);
}

static void add_http(struct attributes *attributes, const struct trace_operation *operation,
                     int status)
{
    add_text(attributes, "http.request.method", span_of_text(operation->method));
    add_text(attributes, "http.route", span_of_text(operation->name));
    if (status >= 0)
        add_number(attributes, "http.response.status_code", status);
}

static void add_resp(struct attributes *attributes, const char *command)
{
    add_text(attributes, "rpc.system", span_of_text("resp"));
    add_text(attributes, "rpc.method", span_of_text(command));
}

static const char *outcome_of(const struct reply *reply)
{
    return reply->error != REPLY_DECIDED ? metrics_error_names[reply->error]
                                         : outcome_names[reply->decision.outcome];
}

static void add_decision(struct attributes *attributes, const struct request *request,
                         const struct reply *reply)
{
    const struct stint_decision *decision = &reply->decision;
    add_text(attributes, "stint.domain", request->domain);
    add_text(attributes, "stint.outcome", span_of_text(outcome_of(reply)));
    if (reply->error != REPLY_DECIDED || decision->binding >= reply->n_statuses)
        return;
    const struct target *binding = &reply->statuses[decision->binding];
    if (reply_quota(binding) == NULL)
        return;
    if (binding->rule != NULL)
        add_text(attributes, "stint.rule", span_of_text(binding->rule->path));
    add_number(attributes, "stint.limit", decision->limit);
    add_number(attributes, "stint.remaining", decision->remaining);
}

static struct span name_of(const struct trace_operation *operation, char space[OTLP_TEXT_MAX])
{
    if (operation->frontend != METRICS_HTTP)
        return span_of_text(operation->name + (operation->frontend == METRICS_GRPC));
    bool is_known = operation->method[0] != '_';
    struct buf buf = buf_of(space, OTLP_TEXT_MAX);
    buf_add(&buf, "%s %s", is_known ? operation->method : "HTTP", operation->name);
    return span_of_text(space);
}

/* An abandoned request has no status: -1. */
void trace_end(struct trace_span *span, const struct trace_end *end)
{
    if (span == NULL)
        return;
    const struct trace_operation *operation = &span->operation;
    struct attributes attributes = {.n = 0};
    char name[OTLP_TEXT_MAX];
    if (operation->frontend == METRICS_GRPC)
        add_grpc(&attributes, operation->name, end->status);
    else if (operation->frontend == METRICS_HTTP)
        add_http(&attributes, operation, end->status);
    else
        add_resp(&attributes, operation->name);
    if (end->request != NULL)
        add_decision(&attributes, end->request, end->reply);
    const struct otlp_span ended = {
        .trace_id = span->trace_id,
        .id = span->id,
        .parent_id = span->has_parent ? span->parent_id : NULL,
        .is_parent_remote = true,
        .flags = span->flags,
        .state = span_of(span->state, span->state_len),
        .name = name_of(operation, name),
        .kind = OTLP_SERVER,
        .begin_ns = span->wall_less_io_ns + span->begin_ns,
        .end_ns = span->wall_less_io_ns + server_clock_io_now(span->tracer->traces->clock),
        .attributes = attributes.all,
        .n_attributes = attributes.n,
        .error = end->has_failed ? end->error : NULL,
    };
    put(span->tracer, otlp_span_write(span->tracer->space, &ended));
    trace_forget(span);
}

void trace_abandon(struct trace_span *span)
{
    trace_end(span, &(struct trace_end){
                        .status = -1,
                        .has_failed = true,
                        .error = "the client did not wait for the reply, or the server ended",
                    });
}

void trace_store(const struct trace_span *parent, const struct trace_store_request *asked)
{
    struct tracer *tracer = parent->tracer;
    struct attributes attributes = {.n = 0};
    uint8_t id[TRACE_SPAN_ID_LEN];
    char name[OTLP_TEXT_MAX];
    struct buf buf = buf_of(name, sizeof(name));
    const struct backend_answer *answer = asked->answer;
    bool has_failed = answer->outcome == BACKEND_FAILED;
    if (!make_id(tracer, id, sizeof(id)))
        return;
    buf_add(&buf, "%s %s", request_verbs[asked->verb].name, asked->store);
    if (asked->system != NULL)
        add_text(&attributes, "db.system.name", span_of_text(asked->system));
    add_text(&attributes, "db.operation.name", span_of_text(request_verbs[asked->verb].name));
    add_text(&attributes, "stint.store", span_of_text(asked->store));
    if (has_failed)
        add_text(&attributes, "error.type", span_of_text(metrics_store_error_names[answer->fault]));
    const struct otlp_span ended = {
        .trace_id = parent->trace_id,
        .id = id,
        .parent_id = parent->id,
        .flags = parent->flags,
        .state = span_of(parent->state, parent->state_len),
        .name = span_of_text(name),
        .kind = OTLP_CLIENT,
        .begin_ns = parent->wall_less_io_ns + asked->begin_ns,
        .end_ns = parent->wall_less_io_ns + asked->end_ns,
        .attributes = attributes.all,
        .n_attributes = attributes.n,
        .error = !has_failed             ? NULL
                 : answer->error != NULL ? answer->error
                                         : "the store is unavailable",
    };
    put(tracer, otlp_span_write(tracer->space, &ended));
}

const char *trace_http_method(struct span method)
{
    static const char *const known[] = {"GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (span_equals(method, known[i]))
            return known[i];
    return "_OTHER";
}
