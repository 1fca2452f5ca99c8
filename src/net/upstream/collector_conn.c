/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* strdup */
/* llhttp reads the answers. */
#include "net/upstream/collector_conn.h"

#include "base/buf.h"

#include <llhttp/llhttp.h>
#include <stdlib.h>
#include <strings.h>

/* ---- URLs ------------------------------------------------------------------------------------ */

static int refuse(struct stint_error *error, const char *expected)
{
    return err_set(error, STINT_E_SYNTAX, "expected http://HOST[:PORT][/PATH] or https://…: %s",
                   expected);
}

int collector_url_parse(struct collector_url *url, const char *text, struct stint_error *error)
{
    *url = (struct collector_url){.is_tls = strncasecmp(text, "https://", 8) == 0};
    if (!url->is_tls && strncasecmp(text, "http://", 7) != 0)
        return refuse(error, "the scheme is http or https");
    const char *authority = strchr(text, ':') + 3;
    size_t len = strcspn(authority, "/?#");
    const char *path = authority + len;
    for (const char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return refuse(error, "a byte is not allowed in a URL");
    if (memchr(authority, '@', len) != NULL)
        return refuse(error, "a user or a password goes into traces_headers");
    if (strpbrk(path, "?#") != NULL)
        return refuse(error, "a path has no ? and no #");
    if (strlen(path) >= sizeof(url->path))
        return err_set(error, STINT_E_RANGE, "the path has more than %d bytes",
                       COLLECTOR_PATH_SIZE - 1);
    memcpy(url->path, path, strlen(path) + 1);
    if (!store_host_parse(&url->host, span_of(authority, len), COLLECTOR_PORT))
        return refuse(error, "the host is missing or malformed, or the port is not 1 to 65535");
    struct buf buf = buf_of(url->authority, sizeof(url->authority));
    store_host_add(&buf, &url->host);
    return 0;
}

/* ---- The connection -------------------------------------------------------------------------- */

#define LENGTH_MAX 24 /* of a number and two line ends */
#define NAME_MAX_BYTES 16

struct collector_conn {
    struct link link;
    char *head;
    collector_answered *answered;
    void *arg;
    /* The answer. */
    llhttp_t parser;
    size_t read; /* its bytes so far */
    bool has_head, is_complete;
    struct collector_answer answer;
    char name[NAME_MAX_BYTES]; /* of the field that is read; cut */
    size_t name_len;
    bool is_value; /* the value of that field has begun */
    size_t body_len;
    uint8_t body[COLLECTOR_BODY_MAX];
};

static struct collector_conn *of(struct link *link)
{
    return (struct collector_conn *)link;
}

/* ---- Answers: callbacks of llhttp ------------------------------------------------------------ */

static int begin_answer(llhttp_t *parser)
{
    struct collector_conn *conn = parser->data;
    conn->has_head = conn->is_complete = conn->is_value = false;
    conn->answer = (struct collector_answer){0};
    conn->name_len = conn->body_len = 0;
    return 0;
}

static int take_name(llhttp_t *parser, const char *text, size_t len)
{
    struct collector_conn *conn = parser->data;
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
    struct collector_conn *conn = parser->data;
    uint64_t *seconds = &conn->answer.retry_after_s;
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
    struct collector_conn *conn = parser->data;
    conn->has_head = true;
    conn->answer.status = parser->status_code;
    if (conn->answer.retry_after_s > UINT32_MAX)
        conn->answer.retry_after_s = 0;
    return 0;
}

static int take_body(llhttp_t *parser, const char *text, size_t len)
{
    struct collector_conn *conn = parser->data;
    size_t space = sizeof(conn->body) - conn->body_len;
    size_t kept = len < space ? len : space;
    memcpy(conn->body + conn->body_len, text, kept);
    conn->body_len += kept;
    return 0;
}

/* 100 Continue and its kind are followed by the answer. */
static int end_answer(llhttp_t *parser)
{
    struct collector_conn *conn = parser->data;
    conn->answer.body = span_of(conn->body, conn->body_len);
    conn->is_complete = conn->answer.status >= 200;
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

static void await_answer(struct collector_conn *conn)
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

static void finish(struct link *link, bool has_more, uint64_t now_ns)
{
    struct collector_conn *conn = of(link);
    struct collector_answer answer = conn->answer;
    /* A request that was not sent whole must not be followed by another. */
    if (has_more || !link_expects_reply(link) || !llhttp_should_keep_alive(&conn->parser))
        link_give_up(link);
    (void)link_take_first(link);
    await_answer(conn);
    conn->answered(conn->arg, LINK_DONE, &answer, now_ns);
}

static int read_bytes(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct collector_conn *conn = of(link);
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
    struct collector_conn *conn = pending->arg;
    if (outcome == LINK_LOST && conn->has_head)
        (void)llhttp_finish(&conn->parser); /* completes such an answer */
    bool is_ended = conn->is_complete;
    struct collector_answer answer = conn->answer;
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

struct collector_conn *collector_conn_new(const struct collector_conn_options *options)
{
    struct link_options link = options->link;
    struct collector_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->head = strdup(options->head);
    conn->answered = options->answered;
    conn->arg = options->arg;
    link.commands_max = 1;
    link.bytes_max = strlen(options->head) + LENGTH_MAX + options->body_max;
    if (conn->head != NULL && link_init(&conn->link, &codec, &link))
        return conn;
    free(conn->head);
    free(conn);
    return NULL;
}

bool collector_conn_post(struct collector_conn *conn, struct span body, uint64_t now_ns)
{
    struct link *link = &conn->link;
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
