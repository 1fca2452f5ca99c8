/* SPDX-License-Identifier: MIT */
/* One request: its target, fields and body gathered, asked at the door, and the answer sent. */
#define _GNU_SOURCE
#include "io/http_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Fields ---------------------------------------------------------------------------------- */

struct search {
    const char *name;
    size_t name_len, nth;
    struct span found;
};

static enum MHD_Result look_at_field(void *arg, enum MHD_ValueKind kind, const char *key,
                                     size_t key_len, const char *value, size_t value_len)
{
    struct search *search = arg;
    (void)kind;
    if (key_len != search->name_len || strncasecmp(key, search->name, key_len) != 0)
        return MHD_YES;
    if (search->nth-- > 0)
        return MHD_YES;
    search->found = span_of(value != NULL ? value : "", value_len);
    return MHD_NO;
}

static struct span find_field(const void *arg, const char *name, size_t nth)
{
    /* libmicrohttpd has no const in its functions that only read. */
    struct MHD_Connection *connection = (struct MHD_Connection *)(uintptr_t)arg;
    struct search search = {name, strlen(name), nth, {NULL, 0}};
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, look_at_field, &search);
    return search.found;
}

/* ---- Its beginning and end ------------------------------------------------------------------- */

static struct http_visit *visit_new(struct http *http)
{
    struct http_visit *visit = http->visits;
    if (visit == NULL)
        return calloc(1, sizeof(*visit));
    http->visits = visit->next;
    http->n_visits--;
    return visit;
}

static void visit_free(struct http_visit *visit)
{
    free(visit->body);
    free(visit);
}

void http_visits_free(struct http *http)
{
    while (http->visits != NULL) {
        struct http_visit *visit = http->visits;
        http->visits = visit->next;
        visit_free(visit);
    }
}

/* The target is taken down now: libmicrohttpd cuts it into pieces where it stands. */
void *http_visit_begin(void *arg, const char *uri, struct MHD_Connection *connection)
{
    struct http *http = arg;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_visit *visit = visit_new(http);
    if (visit == NULL)
        return NULL;
    visit->peer = info->socket_context;
    visit->target_len = uri != NULL ? strlen(uri) : 0;
    visit->target =
        visit->target_len < sizeof(visit->room) ? visit->room : malloc(visit->target_len + 1);
    if (visit->target == NULL) {
        visit_free(visit);
        return NULL;
    }
    if (visit->target_len > 0)
        memcpy(visit->target, uri, visit->target_len);
    visit->body_len = 0;
    visit->asked_ns = 0;
    visit->errand = NULL;
    visit->has_begun = visit->is_too_large = visit->is_urgent = false;
    http_peer_enter(visit->peer, PEER_READING);
    return visit;
}

void http_visit_end(void *arg, struct MHD_Connection *connection, void **con_cls,
                    enum MHD_RequestTerminationCode why)
{
    struct http *http = arg;
    struct http_visit *visit = *con_cls;
    (void)connection;
    (void)why;
    if (visit == NULL)
        return;
    due_set(&http->dues, &visit->due, STINT_NEVER_NS);
    service_drop(http->options.door.service, visit->errand);
    visit->errand = NULL;
    http_peer_enter(visit->peer, PEER_IDLE);
    if (visit->target != visit->room)
        free(visit->target);
    *con_cls = NULL;
    if (http->n_visits >= VISITS_KEPT || visit->body_size > VISIT_BODY_KEPT) {
        visit_free(visit);
        return;
    }
    visit->next = http->visits;
    http->visits = visit;
    http->n_visits++;
}

/* ---- Its body -------------------------------------------------------------------------------- */

static bool make_room(struct http_visit *visit, size_t len)
{
    if (len <= visit->body_size)
        return true;
    size_t size = visit->body_size > 0 ? visit->body_size : 512;
    while (size < len)
        size *= 2;
    char *body = realloc(visit->body, size);
    if (body == NULL)
        return false;
    visit->body = body;
    visit->body_size = size;
    return true;
}

/* What is too long is read to its end, within the time there is for it, and forgotten. */
static enum MHD_Result take_body(struct http_visit *visit, const char *bytes, size_t *len)
{
    size_t most = visit->peer->http->limits.body_bytes;
    if (*len > most - visit->body_len)
        visit->is_too_large = true;
    if (visit->is_too_large) {
        visit->body_len = 0;
    } else {
        if (!make_room(visit, visit->body_len + *len))
            return MHD_NO;
        memcpy(visit->body + visit->body_len, bytes, *len);
        visit->body_len += *len;
    }
    *len = 0;
    return MHD_YES;
}

/* ---- Its answer ------------------------------------------------------------------------------ */

static enum MHD_Result send_answer(struct http_visit *visit, const struct http_answer *answer)
{
    static const uint8_t nothing = 0;
    struct span body = answer->body.len > 0 ? answer->body : span_of(&nothing, 0);
    struct MHD_Response *response = MHD_create_response_from_buffer(
        body.len, (void *)(uintptr_t)body.ptr,
        answer->is_lasting || body.len == 0 ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    enum MHD_Result result = MHD_YES;
    for (size_t i = 0; i < answer->n_fields && result == MHD_YES; i++)
        result = MHD_add_response_header(response, answer->fields[i].name, answer->fields[i].value);
    if (result == MHD_YES && answer->ends_connection)
        result = MHD_add_response_header(response, "Connection", "close");
    if (result == MHD_YES)
        result = MHD_queue_response(visit->peer->connection, answer->status, response);
    MHD_destroy_response(response);
    http_peer_enter(visit->peer, PEER_ANSWERING);
    return result;
}

static enum MHD_Result refuse(struct http_visit *visit, unsigned status, const char *detail)
{
    struct http_answer answer;
    http_door_refuse(visit->peer->http->door, status, detail, &answer);
    return send_answer(visit, &answer);
}

/* Sends the answer, or waits for one; what cannot wait is asked again at once, so that it ends. */
static enum MHD_Result ask_door(struct http_visit *visit, struct http_message *message,
                                uint64_t now_ns)
{
    struct http_door *door = visit->peer->http->door;
    struct http_answer answer;
    for (;;) {
        http_door_ask(door, message, visit->asked_ns, now_ns, &answer);
        if (answer.errand != NULL) {
            if (http_await(visit, answer.errand))
                return MHD_YES;
            message->is_last = true;
        } else if (answer.again_at_ns != 0) {
            if (http_suspend(visit, answer.again_at_ns))
                return MHD_YES;
            message->is_urgent = visit->is_urgent = true;
        } else
            return send_answer(visit, &answer);
        message->errand = answer.errand;
    }
}

static enum MHD_Result ask(struct http_visit *visit)
{
    struct http_peer *peer = visit->peer;
    struct http *http = peer->http;
    uint64_t now_ns = stint_now(http->table);
    struct http_message message = {
        .method = span_of_text(visit->method),
        .target = span_of(visit->target, visit->target_len),
        .body = span_of(visit->body, visit->body_len),
        .peer = span_of(peer->address, peer->address_len),
        .is_urgent = visit->is_urgent,
        .is_last = http->is_closing,
        .errand = visit->errand,
        .field = find_field,
        .field_arg = peer->connection,
    };
    if (visit->asked_ns == 0)
        visit->asked_ns = now_ns;
    visit->errand = NULL;
    struct timing timing = timing_begin(&http->turn, http->metrics);
    enum MHD_Result result = ask_door(visit, &message, now_ns);
    timing_end(&timing, http->metrics);
    return result;
}

static bool says_too_large(struct MHD_Connection *connection, size_t most)
{
    struct span length = find_field(connection, "Content-Length", 0);
    return length.ptr != NULL && strtoull((const char *)length.ptr, NULL, 10) > most;
}

/*
 * All fields are there, and none of the body. What is answered already here ends its connection, as
 * libmicrohttpd does not know how the rest of the request should be skipped.
 */
static enum MHD_Result begin_body(struct http_visit *visit, struct MHD_Connection *connection)
{
    const struct http_limits *limits = &visit->peer->http->limits;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    visit->has_begun = true;
    if (info != NULL && info->header_size > limits->header_bytes)
        return refuse(visit, 431, "the request's line and fields are too long");
    if (says_too_large(connection, limits->body_bytes))
        return refuse(visit, 413, "the body is too long");
    return MHD_YES;
}

enum MHD_Result http_visit_go_on(void *arg, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_len, void **con_cls)
{
    struct http_visit *visit = *con_cls;
    (void)arg;
    (void)url;
    (void)version;
    if (visit == NULL)
        return MHD_NO; /* no memory for it */
    visit->method = method;
    if (!visit->has_begun)
        return begin_body(visit, connection);
    if (*upload_len > 0)
        return take_body(visit, upload, upload_len);
    return visit->is_too_large ? refuse(visit, 413, "the body is too long") : ask(visit);
}
