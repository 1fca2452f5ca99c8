/* SPDX-License-Identifier: MIT */
/* OTLP over gRPC: one call of TraceService for each request. */
#include "net/upstream/collector_conn.h"

#include "base/buf.h"
#include "proto/grpc/grpc.h"
#include "rpc/grpc_link.h"

#include <stdlib.h>

#define METHOD "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#define CONTROL_MAX 65536 /* unsent bytes beside a request */

struct collector_grpc {
    struct grpc_link grpc; /* first */
    collector_answered *answered;
    void *arg;
};

static struct collector_grpc *of(struct link *link)
{
    return (struct collector_grpc *)(void *)link;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/*
 * As OTLP has it: of a request that was too much only where the collector says when to come back.
 * A call that ends without a status was not taken, or lost on its way.
 */
static enum collector_verdict verdict_of(const struct grpc_end *end)
{
    switch (end->status) {
    case GRPC_OK:
        return COLLECTOR_ACCEPTS;
    case GRPC_CANCELLED:
    case GRPC_DEADLINE_EXCEEDED:
    case GRPC_ABORTED:
    case GRPC_OUT_OF_RANGE:
    case GRPC_UNAVAILABLE:
    case GRPC_DATA_LOSS:
        return COLLECTOR_MAY_LATER;
    case GRPC_RESOURCE_EXHAUSTED:
        return end->retry_ns > 0 ? COLLECTOR_MAY_LATER : COLLECTOR_REFUSES;
    case -1:
        return end->http_status == 0 || end->http_status == 200 ||
                       collector_status_may_pass(end->http_status)
                   ? COLLECTOR_MAY_LATER
                   : COLLECTOR_REFUSES;
    default:
        return COLLECTOR_REFUSES;
    }
}

static void finish(struct collector_grpc *conn, uint64_t now_ns)
{
    const struct grpc_end *end = &conn->grpc.end;
    struct collector_answer answer = {.verdict = verdict_of(end), .retry_ns = end->retry_ns};
    struct buf reason = buf_of(answer.reason, sizeof(answer.reason));
    struct grpc_frame frame;
    struct stint_error error;
    struct span received = span_of(conn->grpc.in.ptr, conn->grpc.in.len);
    if (answer.verdict != COLLECTOR_ACCEPTS)
        buf_add(&reason, "it %s%s",
                end->text[0] != '\0' ? "answers" : "ends a call without a status", end->text);
    else if (grpc_frame_read(received, COLLECTOR_BODY_MAX, &frame, &error) > 0 &&
             !frame.is_compressed)
        answer.body = frame.message;
    conn->grpc.has_ended = false;
    (void)link_take_first(&conn->grpc.link);
    conn->answered(conn->arg, LINK_DONE, &answer, now_ns);
}

/* ---- The codec ------------------------------------------------------------------------------- */

static bool begin(struct link *link)
{
    return grpc_link_begin(&of(link)->grpc) && grpc_link_flush(&of(link)->grpc) == 0;
}

/*
 * Before and after what is sent: nghttp2 resets the stream for a frame that must not come, and
 * sending that closes it.
 */
static int finish_and_flush(struct collector_grpc *conn, uint64_t now_ns)
{
    for (;;) {
        if (conn->grpc.has_ended && conn->grpc.link.n_pending > 0)
            finish(conn, now_ns);
        int code = grpc_link_flush(&conn->grpc);
        if (code != 0 || !conn->grpc.has_ended || conn->grpc.link.n_pending == 0)
            return code;
    }
}

/* The window is not opened during a call: it bounds the answer. */
static int read_bytes(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct collector_grpc *conn = of(link);
    int code = grpc_link_read(&conn->grpc, bytes, now_ns);
    if (code == 0 && conn->grpc.in.len >= COLLECTOR_ANSWER_MAX)
        code = grpc_link_fail(&conn->grpc, "the collector has sent a response of more than 64 KiB");
    return code == 0 ? finish_and_flush(conn, now_ns) : code;
}

static void end(const struct link_pending *pending, enum link_outcome outcome, uint64_t now_ns)
{
    struct collector_grpc *conn = pending->arg;
    conn->answered(conn->arg, outcome, NULL, now_ns);
}

static void free_grpc(struct link *link)
{
    grpc_link_clear(&of(link)->grpc);
}

static const struct link_codec codec = {
    .server = "the collector",
    .begin = begin,
    .read = read_bytes,
    .end = end,
    .be_late = link_give_up_late,
    .free = free_grpc,
};

struct link *collector_grpc_new(const struct collector_conn_options *options)
{
    struct collector_grpc *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    struct link_options link = options->link;
    const struct grpc_link_options grpc = {
        .method = METHOD,
        .authority = options->url->authority,
        .is_tls = options->url->is_tls,
        .headers = options->headers,
        .n_headers = options->n_headers,
        .window = COLLECTOR_ANSWER_MAX,
        .output_max = options->body_max + GRPC_PREFIX,
    };
    conn->answered = options->answered;
    conn->arg = options->arg;
    link.commands_max = 2; /* with one pending, bytes of HTTP/2 can still be written */
    link.bytes_max = options->body_max + CONTROL_MAX;
    if (grpc_link_init(&conn->grpc, &codec, &link, &grpc))
        return &conn->grpc.link;
    free(conn);
    return NULL;
}

bool collector_grpc_post(struct link *link, struct span body, uint64_t now_ns)
{
    struct collector_grpc *conn = of(link);
    if (!link_is_ready(link) || link->n_pending > 0)
        return false;
    if (!grpc_link_call(&conn->grpc) || !grpc_link_send(&conn->grpc, body, true)) {
        grpc_link_fail(&conn->grpc, "no memory for a request to the collector");
        return false;
    }
    if (grpc_link_flush(&conn->grpc) != 0)
        return false;
    link_append(link, &(struct link_pending){.arg = conn,
                                             .deadline_ns = now_ns + link->options.reply_ns,
                                             .begin = UINT64_MAX,
                                             .end = link_end(link)});
    return true;
}
