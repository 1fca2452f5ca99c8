/* SPDX-License-Identifier: MIT */
/* nghttp2's callbacks: find the call of a frame, and count its cost. */
#include "frontend/grpc/grpc_parts.h"

/* A header this many times larger than the limit is an attack, not a mistake. */
#define BOMB 4

static struct grpc_call *find_call(struct grpc_conn *conn, int32_t id)
{
    if (conn->recent == NULL || conn->recent->id != id)
        conn->recent = nghttp2_session_get_stream_user_data(conn->session, id);
    return conn->recent;
}

static bool is_cheap(const nghttp2_frame_hd *head)
{
    if (head->type == NGHTTP2_DATA)
        return head->length == 0 && (head->flags & NGHTTP2_FLAG_END_STREAM) == 0;
    return head->type != NGHTTP2_HEADERS;
}

static int begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *arg)
{
    struct grpc_conn *conn = arg;
    (void)session;
    conn->has_begun = true;
    if (is_cheap(head))
        grpc_abuse_count(conn);
    return 0;
}

static int invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *arg)
{
    struct grpc_conn *conn = arg;
    (void)session, (void)frame, (void)code;
    grpc_count_malformed(conn->frontend);
    grpc_abuse_count(conn);
    return 0;
}

static int begin_fields(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_conn *conn = arg;
    conn->field_bytes = 0;
    conn->current = NULL;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *call = grpc_call_new(conn, frame->hd.stream_id);
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    conn->current = conn->recent = call;
    return 0;
}

static int take_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                      size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                      void *arg)
{
    struct grpc_conn *conn = arg;
    size_t limit = conn->frontend->limits.header_bytes;
    (void)session, (void)frame, (void)flags;
    /* RFC 9113, 6.5.2: the size of a field is that of its name and value, and 32. */
    conn->field_bytes += name_len + value_len + 32;
    if (conn->field_bytes > BOMB * limit)
        grpc_abuse_end(conn);
    if (conn->current == NULL)
        return 0;
    if (conn->field_bytes > limit)
        conn->current->said |= GRPC_SAID_TOO_MUCH;
    else
        grpc_fields_take(conn->current, span_of(name, name_len), span_of(value, value_len));
    return 0;
}

static int take_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                     size_t len, void *arg)
{
    struct grpc_call *call = find_call(arg, id);
    (void)session;
    if (call != NULL)
        grpc_call_data(call, span_of(bytes, len), (flags & NGHTTP2_FLAG_END_STREAM) != 0);
    return 0;
}

static void end_of_call(struct grpc_conn *conn, const nghttp2_frame *frame)
{
    struct grpc_call *call = find_call(conn, frame->hd.stream_id);
    if (call != NULL)
        grpc_call_end(call);
}

static void take_fields(struct grpc_conn *conn, const nghttp2_frame *frame)
{
    struct grpc_call *call = conn->current;
    bool is_last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    conn->current = NULL;
    if (call != NULL) {
        call->is_at_end = is_last;
        grpc_fields_end(call);
    }
    if (is_last)
        end_of_call(conn, frame);
}

static int take_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_conn *conn = arg;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_DATA:
        if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
            end_of_call(conn, frame);
        else if (frame->hd.length > 0 && frame->hd.length == frame->data.padlen)
            grpc_abuse_count(conn); /* empty, despite its length */
        break;
    case NGHTTP2_HEADERS:
        take_fields(conn, frame);
        break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && conn->leaving == GRPC_NOTICED)
            grpc_leave_now(conn);
        break;
    case NGHTTP2_GOAWAY:
        /* The peer makes no more calls: there is nothing to wait for. */
        if (conn->leaving == GRPC_NOTICED)
            grpc_leave_now(conn);
        conn->is_left = true;
        break;
    default:
        break;
    }
    return 0;
}

/* A whole answer was sent: tells the peer to stop the rest of its request. */
static int sent_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_conn *conn = arg;
    if (!conn->answers_early || frame->hd.type != NGHTTP2_HEADERS ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    const struct grpc_call *call = find_call(conn, frame->hd.stream_id);
    if (call != NULL && !call->is_at_end)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_NO_ERROR);
    return 0;
}

static int close_stream(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct grpc_call *call = find_call(arg, id);
    (void)session, (void)code;
    if (call != NULL)
        grpc_call_free(call);
    return 0;
}

bool grpc_session_prepare(struct grpc_frontend *frontend)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options;
    if (nghttp2_session_callbacks_new(&frontend->callbacks) != 0 ||
        nghttp2_option_new(&frontend->options_of_session) != 0)
        return false;
    callbacks = frontend->callbacks;
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, begin_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, invalid_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_fields);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, take_field);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, take_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, take_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, sent_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, close_stream);
    options = frontend->options_of_session;
    nghttp2_option_set_no_closed_streams(options, 1);
    nghttp2_option_set_max_reserved_remote_streams(options, 0);
    /* The frontend enforces both limits itself; nghttp2 must not do it first. */
    nghttp2_option_set_max_outbound_ack(options, 2 * frontend->limits.idle_frames + 16);
    nghttp2_option_set_stream_reset_rate_limit(options, UINT64_MAX, UINT64_MAX);
    return true;
}

bool grpc_session_open(struct grpc_conn *conn)
{
    const struct grpc_frontend *frontend = conn->frontend;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)frontend->limits.streams},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)frontend->limits.header_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    if (nghttp2_session_server_new2(&conn->session, frontend->callbacks, conn,
                                    frontend->options_of_session) != 0)
        return false;
    return nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0,
                                                 GRPC_WINDOW) == 0;
}

/* Writes GOAWAY for a session that must not be used any more. */
static void send_goaway(struct grpc_conn *conn, uint8_t code)
{
    const uint8_t frame[17] = {0, 0, 8, NGHTTP2_GOAWAY, [16] = code};
    if (!conn->has_begun ||
        !grpc_bytes_reserve(conn, &conn->out, &conn->buffer_bytes, sizeof(frame)))
        return;
    memcpy(conn->out.ptr + conn->out.len, frame, sizeof(frame));
    conn->out.len += sizeof(frame);
}

void grpc_session_feed(struct grpc_conn *conn, struct span bytes)
{
    ssize_t done = nghttp2_session_mem_recv(conn->session, bytes.ptr, bytes.len);
    if (conn->lender != NULL)
        grpc_call_keep_borrowed(conn->lender);
    if (done >= 0)
        return;
    grpc_count_malformed(conn->frontend);
    send_goaway(conn, done == NGHTTP2_ERR_FLOODED || done == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS
                          ? NGHTTP2_ENHANCE_YOUR_CALM
                          : NGHTTP2_INTERNAL_ERROR);
    conn->is_broken = true;
    conn->is_over = true;
}
