/* SPDX-License-Identifier: MIT */
/* Which requests are sampled, and the rings in which their spans wait. */
#define _GNU_SOURCE
#include "unit/test_protobuf.h"

#include "proto/otlp/otlp.h"
#include "service/server_clock.h"
#include "service/traces.h"

#include <pthread.h>

#define RING 4096
#define MANY 4000

static struct stint_table *table;
static struct server_clock server_clock;
static struct metrics *metrics;
static struct traces *traces;
static struct tracer *tracer;
static unsigned n_wakes;
static const struct trace_operation operation = {METRICS_RESP, NULL, "stint.take"};

static void wake(void *arg)
{
    assert_null(arg);
    n_wakes++;
}

static void open_with(uint64_t ratio, bool follows, size_t ring_size)
{
    traces =
        traces_new(&(struct traces_options){ratio, follows, ring_size}, 2, &server_clock, metrics);
    assert_non_null(traces);
    traces_on_half_full(traces, wake, NULL);
    tracer = traces_tracer(traces, 0);
}

SETUP
{
    table =
        must_open_table(&(struct stint_table_options){.keys = 64, .clock = STINT_CLOCK_VIRTUAL});
    server_clock_init(&server_clock, table, true);
    metrics = metrics_new(2);
    assert_non_null(metrics);
    n_wakes = 0;
}

TEARDOWN
{
    traces_free(traces);
    metrics_free(metrics);
    server_clock_deinit(&server_clock);
    stint_table_close(table);
    traces = NULL;
}

static struct trace_context context_of(const char *parent)
{
    struct trace_context context = {.is_valid = false};
    trace_context_parent(&context, span_of_text(parent));
    assert_true(context.is_valid);
    return context;
}

static bool is_sampled(const struct trace_context *context)
{
    struct trace_span *span =
        tracer_begin(tracer, &operation, context, server_clock_io_now(&server_clock));
    trace_forget(span);
    return span != NULL;
}

static void end_one(void)
{
    trace_end(tracer_begin(tracer, &operation, NULL, server_clock_io_now(&server_clock)),
              &(struct trace_end){.status = 0});
}

static uint64_t counted(const char *outcome)
{
    struct page page = {0};
    char line[128];
    uint64_t n;
    metrics_write(metrics, &(struct metrics_facts){.now_ns = 1}, METRICS_PROMETHEUS, &page);
    snprintf(line, sizeof(line), "stint_trace_spans_total{outcome=\"%s\"} ", outcome);
    const char *at = strstr(page.text, line);
    assert_non_null(at);
    n = strtoull(at + strlen(line), NULL, 10);
    page_free(&page);
    return n;
}

/* ---- Samples --------------------------------------------------------------------------------- */

TEST(without_traces_nothing_is_sampled)
{
    assert_null(traces_tracer(NULL, 1));
    assert_null(tracer_begin(NULL, &operation, NULL, 0));
    trace_end(NULL, NULL);
    trace_abandon(NULL);
    trace_forget(NULL);
}

TEST(the_share_of_samples_is_the_ratio)
{
    unsigned n = 0;
    open_with(TRACES_RATIO_ALL / 10, true, RING);
    for (unsigned i = 0; i < 100000; i++)
        n += is_sampled(NULL);
    assert_in_range(n, 9400, 10600); /* six standard deviations on each side */
}

TEST(all_and_none_are_exact)
{
    open_with(TRACES_RATIO_ALL, false, RING);
    for (unsigned i = 0; i < MANY; i++)
        assert_true(is_sampled(NULL));
    traces_free(traces);
    open_with(0, false, RING);
    for (unsigned i = 0; i < MANY; i++)
        assert_false(is_sampled(NULL));
}

TEST(the_decision_of_the_caller_is_followed)
{
    struct trace_context yes =
        context_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    struct trace_context no = context_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    open_with(0, true, RING);
    assert_true(is_sampled(&yes));
    assert_false(is_sampled(&no));
    traces_free(traces);
    open_with(TRACES_RATIO_ALL, true, RING);
    assert_false(is_sampled(&no));
}

/* As TraceIdRatioBased of OpenTelemetry: by the last 63 bits of the trace's id. */
TEST(without_it_the_id_of_the_trace_decides)
{
    struct trace_context low =
        context_of("00-ffffffffffffffff0ccccccccccccccc-b7ad6b7169203331-00");
    struct trace_context high =
        context_of("00-00000000000000001fffffffffffffff-b7ad6b7169203331-01");
    open_with(TRACES_RATIO_ALL / 10, false, RING);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(is_sampled(&low));
        assert_false(is_sampled(&high));
    }
}

TEST(a_span_continues_the_trace_of_its_caller)
{
    uint8_t out[RING];
    uint64_t n = 0;
    struct trace_context context =
        context_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    trace_context_state(&context, span_of_text("a=b"));
    open_with(0, true, RING);
    uint64_t begin_ns = server_clock_io_now(&server_clock);
    struct trace_span *span = tracer_begin(tracer, &operation, &context, begin_ns);
    trace_end(span, &(struct trace_end){.status = 0});
    size_t len = traces_take(traces, 0, out, &n);
    struct span message = wire_bytes_of(span_of(out, len), 2, 0);
    assert_memory_equal(wire_bytes_of(message, 1, 0).ptr, context.trace_id, TRACE_ID_LEN);
    assert_memory_equal(wire_bytes_of(message, 4, 0).ptr, context.span_id, TRACE_SPAN_ID_LEN);
    assert_true(span_equals(wire_bytes_of(message, 3, 0), "a=b"));
    uint64_t begin, end;
    memcpy(&begin, wire_bytes_of(message, 7, 0).ptr, 8);
    memcpy(&end, wire_bytes_of(message, 8, 0).ptr, 8);
    assert_true(begin <= end && begin > UINT64_C(1500000000) * S && n == 1);
}

TEST(ids_differ)
{
    static uint8_t out[1 << 16];
    uint64_t n = 0;
    open_with(TRACES_RATIO_ALL, true, sizeof(out));
    for (unsigned i = 0; i < 200; i++) /* more than one batch of random bytes */
        end_one();
    struct span all = span_of(out, traces_take(traces, 0, out, &n));
    assert_int_equal(wire_count(all, 2), 200);
    for (size_t i = 0; i < 200; i++)
        for (size_t j = 0; j < i; j++) {
            struct span one = wire_bytes_of(all, 2, i), other = wire_bytes_of(all, 2, j);
            assert_memory_not_equal(wire_bytes_of(one, 1, 0).ptr, wire_bytes_of(other, 1, 0).ptr,
                                    16);
            assert_memory_not_equal(wire_bytes_of(one, 2, 0).ptr, wire_bytes_of(other, 2, 0).ptr,
                                    8);
        }
}

/* ---- Rings ----------------------------------------------------------------------------------- */

TEST(a_full_ring_drops_and_counts)
{
    uint8_t out[RING];
    uint64_t n = 0;
    open_with(TRACES_RATIO_ALL, true, RING);
    for (unsigned i = 0; i < 100; i++)
        end_one();
    assert_int_equal(n_wakes, 1);
    assert_true(traces_wait(traces));
    assert_int_equal(traces_take(traces, 1, out, &n), 0);
    struct span all = span_of(out, traces_take(traces, 0, out, &n));
    assert_false(traces_wait(traces));
    assert_int_equal(wire_count(all, 2), n);
    assert_in_range(n, 10, 99);
    assert_int_equal(n + counted("dropped"), 100);
}

TEST(spans_pass_around_the_end_of_a_ring)
{
    uint8_t out[RING];
    open_with(TRACES_RATIO_ALL, true, RING);
    for (unsigned i = 0; i < MANY; i++) {
        uint64_t n = 0;
        unsigned times = 1 + i % 7;
        for (unsigned j = 0; j < times; j++)
            end_one();
        struct span all = span_of(out, traces_take(traces, 0, out, &n));
        assert_int_equal(n, times);
        assert_int_equal(wire_count(all, 2), times);
        assert_true(
            span_equals(wire_bytes_of(wire_bytes_of(all, 2, times - 1), 5, 0), "stint.take"));
    }
    assert_int_equal(counted("dropped"), 0);
}

static bool is_over;

static void *write_many(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 20 * MANY; i++)
        end_one();
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    return NULL;
}

/* One thread writes, another takes: each span arrives whole, or is counted as dropped. */
TEST(threads_lose_no_span)
{
    uint8_t out[RING];
    uint64_t n = 0, n_seen = 0;
    pthread_t thread;
    bool was_over;
    open_with(TRACES_RATIO_ALL, true, RING);
    is_over = false;
    assert_int_equal(pthread_create(&thread, NULL, write_many, NULL), 0);
    do {
        was_over = __atomic_load_n(&is_over, __ATOMIC_ACQUIRE);
        struct span all = span_of(out, traces_take(traces, 0, out, &n));
        size_t n_taken = wire_count(all, 2);
        for (size_t i = 0; i < n_taken; i++)
            assert_true(span_equals(wire_bytes_of(wire_bytes_of(all, 2, i), 5, 0), "stint.take"));
        n_seen += n_taken;
    } while (!was_over);
    pthread_join(thread, NULL);
    assert_int_equal(n_seen, n);
    assert_int_equal(n_seen + counted("dropped"), 20 * MANY);
    assert_true(n_seen > 0);
}

TEST(open_spans_are_bounded)
{
    static struct trace_span *spans[2000];
    size_t n = 0;
    open_with(TRACES_RATIO_ALL, true, RING);
    for (size_t i = 0; i < N(spans); i++)
        n += (spans[i] = tracer_begin(tracer, &operation, NULL, 0)) != NULL;
    assert_int_equal(n, 1024);
    assert_int_equal(counted("dropped"), N(spans) - n);
    for (size_t i = 0; i < N(spans); i++)
        trace_forget(spans[i]);
    assert_true(is_sampled(NULL));
}
