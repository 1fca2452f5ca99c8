/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* strncasecmp */
/* OTLP over HTTP: one POST for each request. llhttp reads the answers. */
#include "net/upstream/collector_conn.h"

#include "base/buf.h"

#include <llhttp/llhttp.h>
#include <stdlib.h>
#include <strings.h>

/* ---- The connection -------------------------------------------------------------------------- */

#define LENGTH_MAX 24 /* of a number and two line ends */
#define NAME_MAX_BYTES 16

struct collector_http {
    struct link link; /* first */
    char *head;       /* the request's line and fields, up to the value of Content-Length */
    collector_answered *answered;
    void *arg;
    /* The answer. */
    llhttp_t parser;
    size_t read; /* its bytes so far */
    bool has_head, is_complete;
    unsigned status;
    uint64_t retry_after_s;    /* 0: it did not say */
    char name[NAME_MAX_BYTES]; /* of the field that is read; cut */
    size_t name_len;
    bool is_value; /* the value of that field has begun */
    size_t body_len;
    uint8_t body[COLLECTOR_BODY_MAX];
};

static struct collector_http *of(struct link *link)
{
    return (struct collector_http *)link;
}

/* ---- Answers: callbacks of llhttp ------------------------------------------------------------ */

static int begin_answer(llhttp_t *parser)
{
    struct collector_http *conn = parser->data;
    conn->has_head = conn->is_complete = conn->is_value = false;
    conn->status = 0;
    conn->retry_after_s = 0;
    conn->name_len = conn->body_len = 0;
    return 0;
}

static int take_name(llhttp_t *parser, const char *text, size_t len)
{
    struct collector_http *conn = parser->data;
    if (conn->is_value)
        conn->name_len = 0;
    conn->is_value = false;
    for (size_t i = 0; i < len && conn->name_len < NAME_MAX_BYTES; i++)
        conn->name[conn->name_len++] = text[i];
    return 0;
}

/* Retry-After in seconds; a date counts as none. The value may come in pieces. */
static int take_value(llhttp_t *parser, const char *text, size_t len)
{
    static const char name[] = "retry-after";
    struct collector_http *conn = parser->data;
    uint64_t *seconds = &conn->retry_after_s;
    conn->is_value = true;
    if (conn->name_len != sizeof(name) - 1 || strncasecmp(conn->name, name, conn->name_len) != 0)
        return 0;
    for (size_t i = 0; i < len; i++) {
        bool is_digit = text[i] >= '0' && text[i] <= '9' && *seconds <= UINT32_MAX;
        *seconds = is_digit ? 10 * *seconds + (uint64_t)(text[i] - '0') : UINT64_MAX;
    }
    return 0;
}

static int end_head(llhttp_t *parser)
{
    struct collector_http *conn = parser->data;
    conn->has_head = true;
    conn->status = parser->status_code;
    if (conn->retry_after_s > UINT32_MAX)
        conn->retry_after_s = 0;
    return 0;
}

static int take_body(llhttp_t *parser, const char *text, size_t len)
{
    struct collector_http *conn = parser->data;
    size_t space = sizeof(conn->body) - conn->body_len;
    size_t kept = len < space ? len : space;
    memcpy(conn->body + conn->body_len, text, kept);
    conn->body_len += kept;
    return 0;
}

/* 100 Continue and its kind are followed by the answer. */
static int end_answer(llhttp_t *parser)
{
    struct collector_http *conn = parser->data;
    conn->is_complete = conn->status >= 200;
    return conn->is_complete ? HPE_PAUSED : 0;
}

static const llhttp_settings_t settings = {
    .on_message_begin = begin_answer,
    .on_header_field = take_name,
    .on_header_value = take_value,
    .on_headers_complete = end_head,
    .on_body = take_body,
    .on_message_complete = end_answer,
};

static void await_answer(struct collector_http *conn)
{
    llhttp_init(&conn->parser, HTTP_RESPONSE, &settings);
    conn->parser.data = conn;
    conn->read = 0;
    begin_answer(&conn->parser);
}

/* ---- Answers: the codec ---------------------------------------------------------------------- */

/* There is no greeting. */
static bool begin(struct link *link)
{
    await_answer(of(link));
    link_be_ready(link);
    return true;
}

static int fail(struct link *link, const char *why)
{
    of(link)->has_head = false; /* what has come is no answer */
    return err_set(&link->fault, STINT_E_SYNTAX, "the collector %s", why);
}

static struct collector_answer answer_of(const struct collector_http *conn)
{
    struct collector_answer answer = {.retry_ns = conn->retry_after_s * NS_PER_S,
                                      .body = span_of(conn->body, conn->body_len)};
    struct buf reason = buf_of(answer.reason, sizeof(answer.reason));
    if (conn->status < 300)
        return answer;
    answer.verdict =
        collector_status_may_pass(conn->status) ? COLLECTOR_MAY_LATER : COLLECTOR_REFUSES;
    buf_add(&reason, "it answers with status %u", conn->status);
    return answer;
}

/* Why no request may follow on this connection, or NULL. */
static const char *last_because(struct link *link, bool has_more)
{
    if (has_more)
        return "has sent more than its response";
    if (!link_expects_reply(link)) /* what is left of the request would be read as another */
        return "has answered before the request was sent";
    return llhttp_should_keep_alive(&of(link)->parser) ? NULL
                                                       : "ends a connection with its response";
}

static void finish(struct link *link, bool has_more, uint64_t now_ns)
{
    struct collector_http *conn = of(link);
    const struct collector_answer answer = answer_of(conn);
    const char *why = last_because(link, has_more);
    if (why != NULL) {
        (void)fail(link, why);
        link_give_up(link);
    }
    (void)link_take_first(link);
    await_answer(conn);
    conn->answered(conn->arg, LINK_DONE, &answer, now_ns);
}

static int read_bytes(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct collector_http *conn = of(link);
    if (link->n_pending == 0)
        return fail(link, "has sent bytes without a request");
    conn->read += bytes.len;
    llhttp_errno_t code = llhttp_execute(&conn->parser, (const char *)bytes.ptr, bytes.len);
    if (code == HPE_PAUSED && conn->is_complete) {
        const char *end = llhttp_get_error_pos(&conn->parser);
        finish(link, end != (const char *)bytes.ptr + bytes.len, now_ns);
        return 0;
    }
    if (code != HPE_OK)
        return fail(link, "has sent no HTTP response");
    if (conn->read > COLLECTOR_ANSWER_MAX)
        return fail(link, "has sent a response of more than 64 KiB");
    return 0;
}

/* An answer without a length ends with the connection. */
static void end(const struct link_pending *pending, enum link_outcome outcome, uint64_t now_ns)
{
    struct collector_http *conn = pending->arg;
    if (outcome == LINK_LOST && conn->has_head)
        (void)llhttp_finish(&conn->parser); /* completes such an answer */
    bool is_ended = conn->is_complete;
    const struct collector_answer answer = answer_of(conn);
    await_answer(conn);
    if (is_ended)
        conn->answered(conn->arg, LINK_DONE, &answer, now_ns);
    else
        conn->answered(conn->arg, outcome, NULL, now_ns);
}

static void free_head(struct link *link)
{
    free(of(link)->head);
}

static const struct link_codec codec = {
    .server = "the collector",
    .begin = begin,
    .read = read_bytes,
    .end = end,
    .be_late = link_give_up_late,
    .free = free_head,
};

static bool write_head(struct collector_http *conn, const struct collector_conn_options *options)
{
    size_t size = sizeof(*options->url) + 256;
    for (size_t i = 0; i < options->n_headers; i++)
        size += strlen(options->headers[i]) + 3;
    conn->head = malloc(size);
    if (conn->head == NULL)
        return false;
    struct buf buf = buf_of(conn->head, size);
    buf_add(&buf,
            "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: stint/" STINT_VERSION
            "\r\nContent-Type: application/x-protobuf\r\n",
            options->url->path, options->url->authority);
    for (size_t i = 0; i < options->n_headers; i++) {
        const char *header = options->headers[i];
        int name_len = (int)strcspn(header, ":");
        buf_add(&buf, "%.*s: %s\r\n", name_len, header, header + name_len + 1);
    }
    buf_add(&buf, "Content-Length: ");
    assert(buf.len < size);
    return true;
}

struct link *collector_http_new(const struct collector_conn_options *options)
{
    struct link_options link = options->link;
    struct collector_http *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->answered = options->answered;
    conn->arg = options->arg;
    link.commands_max = 1;
    if (write_head(conn, options)) {
        link.bytes_max = strlen(conn->head) + LENGTH_MAX + options->body_max;
        if (link_init(&conn->link, &codec, &link))
            return &conn->link;
    }
    free(conn->head);
    free(conn);
    return NULL;
}

bool collector_http_post(struct link *link, struct span body, uint64_t now_ns)
{
    struct collector_http *conn = of(link);
    if (!link_reserve(link, strlen(conn->head) + LENGTH_MAX + body.len))
        return false;
    uint64_t begin_at = link_end(link);
    wire_bytes_add_number(&link->bytes, conn->head, body.len);
    wire_bytes_add_text(&link->bytes, "\r\n\r\n");
    wire_bytes_add(&link->bytes, body);
    link_append(link, &(struct link_pending){.arg = conn,
                                             .deadline_ns = now_ns + link->options.reply_ns,
                                             .begin = begin_at,
                                             .end = link_end(link)});
    return true;
}
