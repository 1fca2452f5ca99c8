/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* types of uv.h */
/*
 * A batch is all that waits in the ring of one worker. Each round has a batch of each worker, and
 * begins twice a second or when a ring is half full: smaller batches would only cost more.
 */
#include "net/upstream/trace_exporter.h"

#include "base/buf.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <stdlib.h>
#include <uv.h>

#define TICK_MS 500
#define PAUSE_FIRST_NS NS_PER_S /* before a request is repeated, doubled each time */
#define PAUSE_MAX_NS (30 * NS_PER_S)
#define GIVE_UP_NS NS_PER_MIN /* since a batch was first sent */
#define REASON_SIZE 400
#define HANDLES 2

struct trace_exporter {
    struct trace_exporter_options options;
    struct collector_conn conn;
    struct upstream *upstream;
    uv_timer_t tick;
    uv_async_t message; /* a worker's ring is half full, or a drain may be done */
    unsigned n_open_handles;
    unsigned worker; /* whose turn it was last */
    unsigned turns;  /* left in this round */
    struct span resource;
    uint8_t *memory; /* of the resource, and of a batch: space for its head, then its spans */
    uint8_t *spans;
    size_t spans_len; /* 0: there is no batch */
    uint64_t n_spans;
    struct span request; /* of the batch */
    bool is_sending;
    uint64_t first_ns, retry_ns, pause_ns; /* of the batch */
    bool was_ready;
    bool is_failing; /* as reported in the log */
    /* The drain. NULL: not yet, or it is done. */
    void (*done)(void *arg);
    void *done_arg;
    uint64_t drain_ends_ns;
};

static void count(struct trace_exporter *exporter, enum metrics_span outcome, uint64_t n)
{
    if (n > 0)
        metrics_spans(exporter->options.metrics, outcome, n);
}

/* ---- The log: one line when it begins to fail, one when it works again ----------------------- */

static void report_failure(struct trace_exporter *exporter, const char *reason)
{
    if (!exporter->is_failing)
        log_line(exporter->options.log, LOG_TRACES_FAIL,
                 LOG_TEXT("collector", exporter->options.collector->url.authority),
                 LOG_TEXT("reason", reason));
    exporter->is_failing = true;
}

static void report_success(struct trace_exporter *exporter)
{
    if (exporter->is_failing)
        log_line(exporter->options.log, LOG_TRACES_SENT,
                 LOG_TEXT("collector", exporter->options.collector->url.authority));
    exporter->is_failing = false;
}

/* ---- Batches --------------------------------------------------------------------------------- */

static void pump_within(struct trace_exporter *exporter);

static void end_batch(struct trace_exporter *exporter, enum metrics_span outcome)
{
    count(exporter, outcome, exporter->n_spans);
    exporter->spans_len = 0;
    exporter->n_spans = 0;
}

static void begin_round(struct trace_exporter *exporter)
{
    exporter->turns = traces_workers(exporter->options.traces);
}

static bool take_batch(struct trace_exporter *exporter, uint64_t now_ns)
{
    struct traces *traces = exporter->options.traces;
    for (; exporter->turns > 0 && exporter->spans_len == 0; exporter->turns--) {
        exporter->worker = (exporter->worker + 1) % traces_workers(traces);
        exporter->spans_len =
            traces_take(traces, exporter->worker, exporter->spans, &exporter->n_spans);
    }
    if (exporter->spans_len == 0)
        return false;
    exporter->request = otlp_request_write(exporter->resource, STINT_VERSION,
                                           span_of(exporter->spans, exporter->spans_len));
    exporter->first_ns = now_ns;
    exporter->retry_ns = 0;
    exporter->pause_ns = PAUSE_FIRST_NS;
    return true;
}

/* A failure that may pass. */
static void put_off(struct trace_exporter *exporter, const char *reason, uint64_t wanted_ns,
                    uint64_t now_ns)
{
    report_failure(exporter, reason);
    uint64_t pause_ns = min_u64(max_u64(exporter->pause_ns, wanted_ns), PAUSE_MAX_NS);
    exporter->retry_ns = now_ns + pause_ns;
    exporter->pause_ns = min_u64(2 * exporter->pause_ns, PAUSE_MAX_NS);
    if (exporter->retry_ns - exporter->first_ns > GIVE_UP_NS)
        end_batch(exporter, METRICS_SPANS_LOST);
}

/* An answer that is no protobuf counts as one without a message: the status says that all is well.
 */
static void accept_batch(struct trace_exporter *exporter, const struct collector_answer *answer)
{
    struct otlp_response response;
    struct stint_error error;
    char reason[REASON_SIZE];
    if (otlp_response_read(&response, answer->body, &error) != 0)
        response = (struct otlp_response){0};
    uint64_t refused = min_u64(response.refused, exporter->n_spans);
    exporter->n_spans -= refused;
    count(exporter, METRICS_SPANS_REFUSED, refused);
    end_batch(exporter, METRICS_SPANS_SENT);
    if (refused == 0) {
        report_success(exporter);
        return;
    }
    struct buf buf = buf_of(reason, sizeof(reason));
    buf_add(&buf, "it refuses spans: %.*s",
            response.message.len < 200 ? (int)response.message.len : 200,
            (const char *)response.message.ptr);
    report_failure(exporter, reason);
}

static void take_answer(struct trace_exporter *exporter, const struct collector_answer *answer,
                        uint64_t now_ns)
{
    if (answer->verdict == COLLECTOR_ACCEPTS) {
        accept_batch(exporter, answer);
    } else if (answer->verdict == COLLECTOR_MAY_LATER) {
        put_off(exporter, answer->reason, answer->retry_ns, now_ns);
    } else {
        report_failure(exporter, answer->reason);
        end_batch(exporter, METRICS_SPANS_REFUSED);
    }
}

static void on_answer(void *arg, enum link_outcome outcome, const struct collector_answer *answer,
                      uint64_t now_ns)
{
    struct trace_exporter *exporter = arg;
    if (!exporter->is_sending)
        return;
    exporter->is_sending = false;
    if (outcome == LINK_DONE)
        take_answer(exporter, answer, now_ns);
    else
        put_off(exporter, link_fault(exporter->conn.link), 0, now_ns);
    pump_within(exporter);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static void end_drain(struct trace_exporter *exporter)
{
    void (*done)(void *arg) = exporter->done;
    exporter->done = NULL;
    if (done != NULL)
        done(exporter->done_arg);
}

/* A drain ends with the first failure: the server does not wait for a collector to come back. */
static void check_drain(struct trace_exporter *exporter, uint64_t now_ns)
{
    const struct link *link = exporter->conn.link;
    bool is_empty = exporter->spans_len == 0 && !traces_wait(exporter->options.traces);
    bool has_failed =
        !exporter->is_sending && (exporter->retry_ns > now_ns || link->state == LINK_UNAVAILABLE);
    if (exporter->done != NULL && (is_empty || has_failed || exporter->drain_ends_ns <= now_ns))
        end_drain(exporter);
}

/* Spans stay in their rings until they can be sent. */
static void pump(struct trace_exporter *exporter)
{
    uint64_t now_ns = uv_hrtime();
    if (!exporter->is_sending && link_is_ready(exporter->conn.link) &&
        (exporter->spans_len > 0 || take_batch(exporter, now_ns)) && exporter->retry_ns <= now_ns) {
        exporter->is_sending = collector_conn_post(&exporter->conn, exporter->request, now_ns);
        upstream_asked(exporter->upstream);
    }
}

/* The upstream must not be closed in its own callbacks: the end of a drain is a later call's. */
static void pump_within(struct trace_exporter *exporter)
{
    pump(exporter);
    if (exporter->done != NULL)
        uv_async_send(&exporter->message);
}

static void pump_and_check(struct trace_exporter *exporter)
{
    begin_round(exporter);
    pump(exporter);
    check_drain(exporter, uv_hrtime());
}

/* The socket is ready, or was lost. A collector may close a connection that is idle. */
static void on_changed(void *arg, uint64_t now_ns)
{
    struct trace_exporter *exporter = arg;
    const struct link *link = exporter->conn.link;
    bool is_ready = link_is_ready(link), was_ready = exporter->was_ready;
    (void)now_ns;
    exporter->was_ready = is_ready;
    if (!is_ready && !was_ready)
        report_failure(exporter, link_fault(link));
    pump_within(exporter);
}

static void on_tick(uv_timer_t *tick)
{
    pump_and_check(tick->data);
}

static void on_message(uv_async_t *message)
{
    pump_and_check(message->data);
}

/* From a worker's thread. */
static void wake(void *arg)
{
    struct trace_exporter *exporter = arg;
    uv_async_send(&exporter->message);
}

void trace_exporter_drain(struct trace_exporter *exporter, void (*done)(void *arg), void *arg)
{
    exporter->done = done;
    exporter->done_arg = arg;
    exporter->drain_ends_ns = uv_hrtime() + TRACE_DRAIN_NS;
    pump_and_check(exporter);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static bool make_memory(struct trace_exporter *exporter)
{
    const struct trace_collector *collector = exporter->options.collector;
    size_t spans_size = traces_ring_size(exporter->options.traces);
    exporter->memory = malloc(2 * OTLP_RESOURCE_SIZE + OTLP_HEAD_MAX + spans_size);
    if (exporter->memory == NULL)
        return false;
    exporter->resource =
        otlp_resource_write(exporter->memory, collector->attributes, collector->n_attributes);
    exporter->spans = exporter->memory + 2 * OTLP_RESOURCE_SIZE + OTLP_HEAD_MAX;
    return true;
}

static bool open_conn(struct trace_exporter *exporter)
{
    const struct trace_collector *collector = exporter->options.collector;
    const struct collector_conn_options options = {
        .url = &collector->url,
        .headers = collector->headers,
        .n_headers = collector->n_headers,
        .body_max = OTLP_RESOURCE_SIZE + OTLP_HEAD_MAX + traces_ring_size(exporter->options.traces),
        .link = {.connect_ns = collector->timeout_ns,
                 .reply_ns = collector->timeout_ns,
                 .backoff_first_ns = PAUSE_FIRST_NS,
                 .backoff_max_ns = PAUSE_MAX_NS,
                 .seed = uv_hrtime()},
        .answered = on_answer,
        .arg = exporter,
    };
    if (!collector_conn_open(&exporter->conn, &options))
        return false;
    exporter->upstream = upstream_new(&(struct upstream_options){
        .loop = exporter->options.loop,
        .host = collector->url.host,
        .tls = collector->tls,
        .protocol = collector->url.is_grpc ? "h2" : NULL,
        .link = exporter->conn.link,
        .changed = on_changed,
        .arg = exporter,
    });
    if (exporter->upstream == NULL)
        link_free(exporter->conn.link, uv_hrtime());
    return exporter->upstream != NULL;
}

struct trace_exporter *trace_exporter_new(const struct trace_exporter_options *options)
{
    struct trace_exporter *exporter = calloc(1, sizeof(*exporter));
    if (exporter == NULL)
        return NULL;
    exporter->options = *options;
    if (!make_memory(exporter) || !open_conn(exporter)) {
        free(exporter->memory);
        free(exporter);
        return NULL;
    }
    uv_timer_init(options->loop, &exporter->tick);
    uv_async_init(options->loop, &exporter->message, on_message);
    exporter->tick.data = exporter->message.data = exporter;
    exporter->n_open_handles = HANDLES;
    uv_timer_start(&exporter->tick, on_tick, TICK_MS, TICK_MS);
    traces_on_half_full(options->traces, wake, exporter);
    return exporter;
}

static void on_closed(uv_handle_t *handle)
{
    struct trace_exporter *exporter = handle->data;
    if (--exporter->n_open_handles > 0)
        return;
    free(exporter->memory);
    free(exporter);
}

/* Takes what is left, to count it. */
static void lose_all(struct trace_exporter *exporter)
{
    exporter->is_sending = false;
    end_batch(exporter, METRICS_SPANS_LOST);
    while (traces_wait(exporter->options.traces)) {
        begin_round(exporter);
        if (take_batch(exporter, 0))
            end_batch(exporter, METRICS_SPANS_LOST);
    }
}

void trace_exporter_close(struct trace_exporter *exporter)
{
    if (exporter == NULL)
        return;
    exporter->done = NULL;
    lose_all(exporter);
    upstream_close(exporter->upstream);
    uv_close((uv_handle_t *)&exporter->tick, on_closed);
    uv_close((uv_handle_t *)&exporter->message, on_closed);
}
