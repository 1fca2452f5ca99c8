/* SPDX-License-Identifier: MIT */
/* One call for each stream: nghttp2 has the frames. */
#include "rpc/grpc_link.h"

#include "base/buf.h"
#include "proto/grpc/grpc.h"
#include "rules/yaml/diagnostics.h"

#include <nghttp2/nghttp2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define FIXED_FIELDS 7
#define FIELDS_MAX (FIXED_FIELDS + GRPC_LINK_HEADERS_MAX)

static const char *peer_of(const struct grpc_link *grpc)
{
    return grpc->link.codec->server;
}

int grpc_link_fail(struct grpc_link *grpc, const char *format, ...)
{
    char text[STINT_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (grpc->link.state != LINK_GIVEN_UP)
        err_set(&grpc->link.fault, STINT_E_GONE, "%s", text);
    link_give_up(&grpc->link);
    return STINT_E_GONE;
}

/* ---- Header fields --------------------------------------------------------------------------- */

/* Fields that HTTP/2 forbids, and those that this client or one of HTTP/1 writes itself. */
static bool is_reserved(struct span name)
{
    static const char *const reserved[] = {
        "connection", "content-length",   "content-type", "host",
        "keep-alive", "proxy-connection", "te",           "upgrade",
        "user-agent", "transfer-encoding"};
    static const char prefix[] = "grpc-";
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (span_equals(name, reserved[i]))
            return true;
    return name.len >= sizeof(prefix) - 1 && memcmp(name.ptr, prefix, sizeof(prefix) - 1) == 0;
}

bool grpc_link_takes_header(const char *header)
{
    /* RFC 9110, 5.6.2, without capitals: RFC 9113, 8.2. */
    static const char marks[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";
    struct span name = span_of(header, strspn(header, marks));
    if (name.len == 0 || header[name.len] != ':' || is_reserved(name))
        return false;
    for (const char *c = header + name.len + 1; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return true;
}

/* ---- Output ---------------------------------------------------------------------------------- */

int grpc_link_flush(struct grpc_link *grpc)
{
    struct link *link = &grpc->link;
    const uint8_t *bytes;
    ssize_t len;
    while ((len = nghttp2_session_mem_send(grpc->session, &bytes)) > 0) {
        bool is_kept = link->state == LINK_READY ? link_write(link, span_of(bytes, (size_t)len))
                                                 : wire_bytes_reserve(&link->greeting, (size_t)len,
                                                                      grpc->options.output_max);
        if (!is_kept)
            return grpc_link_fail(grpc, "%s does not read what it is sent", peer_of(grpc));
        if (link->state != LINK_READY)
            wire_bytes_add(&link->greeting, span_of(bytes, (size_t)len));
    }
    if (len < 0)
        return grpc_link_fail(grpc, "HTTP/2: %s", nghttp2_strerror((int)len));
    if (grpc->has_goaway && grpc->stream_id == 0)
        return grpc_link_fail(grpc, "%s has ended the connection", peer_of(grpc));
    if (!nghttp2_session_want_read(grpc->session))
        return grpc_link_fail(grpc, "%s's HTTP/2 is malformed", peer_of(grpc));
    return 0;
}

static ssize_t read_messages(nghttp2_session *session, int32_t id, uint8_t *to, size_t size,
                             uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct grpc_link *grpc = source->ptr;
    size_t left = grpc->out.len - grpc->out_read;
    size_t len = left < size ? left : size;
    (void)session, (void)id, (void)arg;
    if (len == 0 && !grpc->is_last)
        return NGHTTP2_ERR_DEFERRED;
    if (len > 0)
        memcpy(to, grpc->out.ptr + grpc->out_read, len);
    grpc->out_read += len;
    if (grpc->out_read == grpc->out.len) {
        grpc->out.len = grpc->out_read = 0;
        *flags |= grpc->is_last ? NGHTTP2_DATA_FLAG_EOF : NGHTTP2_DATA_FLAG_NONE;
    }
    return (ssize_t)len;
}

bool grpc_link_send(struct grpc_link *grpc, struct span message, bool is_last)
{
    uint8_t prefix[GRPC_PREFIX];
    assert(grpc->stream_id > 0 && !grpc->is_last);
    if (!wire_bytes_reserve(&grpc->out, message.len + GRPC_PREFIX, grpc->options.output_max))
        return false;
    grpc_frame_write(prefix, false, message.len);
    wire_bytes_add(&grpc->out, span_of(prefix, GRPC_PREFIX));
    wire_bytes_add(&grpc->out, message);
    grpc->is_last = is_last;
    /* It may not wait for data: then there is nothing to resume. */
    (void)nghttp2_session_resume_data(grpc->session, grpc->stream_id);
    return true;
}

static nghttp2_nv field(struct span name, struct span value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name.ptr, (uint8_t *)(uintptr_t)value.ptr, name.len,
                        value.len, NGHTTP2_NV_FLAG_NONE};
}

static size_t fields_of(const struct grpc_link_options *options, nghttp2_nv fields[FIELDS_MAX])
{
    const char *const fixed[FIXED_FIELDS][2] = {
        {":method", "POST"},
        {":scheme", options->is_tls ? "https" : "http"},
        {":authority", options->authority},
        {":path", options->method},
        {"content-type", "application/grpc"},
        {"te", "trailers"},
        {"user-agent", "stint"},
    };
    size_t n = 0;
    for (; n < FIXED_FIELDS; n++)
        fields[n] = field(span_of_text(fixed[n][0]), span_of_text(fixed[n][1]));
    for (size_t i = 0; i < options->n_headers && n < FIELDS_MAX; i++) {
        struct span name = span_of_text(options->headers[i]);
        name.len = strcspn(options->headers[i], ":");
        struct span value = span_after(span_of_text(options->headers[i]), name.len + 1);
        fields[n++] = field(name, value);
    }
    return n;
}

bool grpc_link_call(struct grpc_link *grpc)
{
    nghttp2_nv fields[FIELDS_MAX];
    const nghttp2_data_provider provider = {.source = {.ptr = grpc},
                                            .read_callback = read_messages};
    assert(grpc->stream_id == 0);
    if (nghttp2_session_check_request_allowed(grpc->session) == 0)
        return false;
    grpc_link_open_window(grpc); /* of the call before */
    grpc->n_frames = 0;
    grpc->out.len = grpc->out_read = grpc->in.len = 0;
    grpc->has_ended = grpc->is_last = false;
    grpc->end = (struct grpc_end){.status = -1};
    int32_t id = nghttp2_submit_request(grpc->session, NULL, fields,
                                        fields_of(&grpc->options, fields), &provider, NULL);
    grpc->stream_id = id > 0 ? id : 0;
    return id > 0;
}

void grpc_link_open_window(struct grpc_link *grpc)
{
    if (grpc->stream_id > 0)
        nghttp2_session_consume(grpc->session, grpc->stream_id, grpc->unconsumed);
    else
        nghttp2_session_consume_connection(grpc->session, grpc->unconsumed);
    grpc->unconsumed = 0;
}

void grpc_link_ping(struct grpc_link *grpc)
{
    nghttp2_submit_ping(grpc->session, NGHTTP2_FLAG_NONE, NULL);
}

/* ---- Callbacks of nghttp2 -------------------------------------------------------------------- */

static int count_frame(struct grpc_link *grpc)
{
    if (grpc->now_ns - grpc->frames_since_ns >= GRPC_LINK_FRAMES_NS) {
        grpc->frames_since_ns = grpc->now_ns;
        grpc->n_frames = 0;
    }
    if (++grpc->n_frames <= GRPC_LINK_FRAMES_MAX)
        return 0;
    grpc_link_fail(grpc, "%s sends more than %d frames without content in %u s", peer_of(grpc),
                   GRPC_LINK_FRAMES_MAX, (unsigned)(GRPC_LINK_FRAMES_NS / NS_PER_S));
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *arg)
{
    (void)session;
    return head->type != NGHTTP2_DATA || head->length == 0 ? count_frame(arg) : 0;
}

static int begin_fields(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_link *grpc = arg;
    (void)session, (void)frame;
    grpc->field_bytes = 0;
    return 0;
}

static void take_status(struct grpc_end *end, struct span name, struct span value)
{
    struct buf text = {end->text, sizeof(end->text), strlen(end->text)};
    uint64_t number = 0;
    bool is_number = resp_number_read(value, INT32_MAX, &number);
    if (span_equals(name, ":status") && is_number) {
        end->http_status = (unsigned)number;
        if (number != 200)
            buf_add(&text, " HTTP status %u", end->http_status);
    } else if (span_equals(name, "grpc-status") && is_number) {
        end->status = (int)number;
        buf_add(&text, " %s", grpc_status_name(end->status));
    } else if (span_equals(name, "grpc-message")) {
        buf_add(&text, " \"%s\"", quoted_text(value).text);
    } else if (span_equals(name, "grpc-status-details-bin")) {
        (void)grpc_retry_info_read(value, &end->retry_ns);
    }
}

static int take_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                      size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                      void *arg)
{
    struct grpc_link *grpc = arg;
    (void)session, (void)flags;
    grpc->field_bytes += name_len + value_len;
    if (grpc->field_bytes > GRPC_LINK_HEADER_MAX) {
        grpc_link_fail(grpc, "%s's header fields have more than %d bytes", peer_of(grpc),
                       GRPC_LINK_HEADER_MAX);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (frame->hd.stream_id == grpc->stream_id)
        take_status(&grpc->end, span_of(name, name_len), span_of(value, value_len));
    return 0;
}

/* The windows bound what may come. */
static int take_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                     size_t len, void *arg)
{
    struct grpc_link *grpc = arg;
    (void)flags;
    if (id != grpc->stream_id)
        return nghttp2_session_consume_connection(session, len);
    grpc->unconsumed += len;
    if (!wire_bytes_reserve(&grpc->in, len, SIZE_MAX)) {
        grpc_link_fail(grpc, "no memory for a message of %s", peer_of(grpc));
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    wire_bytes_add(&grpc->in, span_of(bytes, len));
    return 0;
}

static void end_call(struct grpc_link *grpc, uint32_t code)
{
    struct buf text = {grpc->end.text, sizeof(grpc->end.text), strlen(grpc->end.text)};
    if (code != NGHTTP2_NO_ERROR)
        buf_add(&text, " %s", nghttp2_http2_strerror(code));
    grpc->stream_id = 0;
    grpc->has_ended = true;
}

/*
 * The peer's side of the stream may end while ours is open: then nghttp2 does not close it, and
 * the peer needs nothing more of it.
 */
static int take_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_link *grpc = arg;
    const nghttp2_frame_hd *head = &frame->hd;
    bool has_end = head->type == NGHTTP2_HEADERS || head->type == NGHTTP2_DATA;
    if (head->type == NGHTTP2_SETTINGS && (head->flags & NGHTTP2_FLAG_ACK) == 0)
        grpc->has_settings = true;
    else if (head->type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        grpc_link_fail(grpc, "%s ends the connection: %s", peer_of(grpc),
                       nghttp2_http2_strerror(frame->goaway.error_code));
    else if (head->type == NGHTTP2_GOAWAY)
        grpc->has_goaway = true;
    else if (has_end && (head->flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
             head->stream_id == grpc->stream_id) {
        if (nghttp2_session_get_stream_local_close(session, head->stream_id) == 0)
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, head->stream_id, NGHTTP2_CANCEL);
        end_call(grpc, NGHTTP2_NO_ERROR);
    }
    return 0;
}

static int close_stream(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct grpc_link *grpc = arg;
    (void)session;
    if (id == grpc->stream_id)
        end_call(grpc, code);
    return 0;
}

/* ---- A connection ---------------------------------------------------------------------------- */

static bool new_session(struct grpc_link *grpc)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return false;
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_fields);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, take_field);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, take_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, take_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, close_stream);
    bool is_made = nghttp2_option_new(&option) == 0;
    if (is_made) {
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_max_reserved_remote_streams(option, 0);
        is_made = nghttp2_session_client_new2(&grpc->session, callbacks, grpc, option) == 0;
        nghttp2_option_del(option);
    }
    nghttp2_session_callbacks_del(callbacks);
    return is_made;
}

static void reset(struct grpc_link *grpc)
{
    nghttp2_session_del(grpc->session);
    grpc->session = NULL;
    grpc->has_settings = grpc->has_goaway = grpc->has_ended = false;
    grpc->stream_id = 0;
    free(grpc->in.ptr); /* it may be as large as a message */
    grpc->in = (struct wire_bytes){.ptr = NULL};
    grpc->unconsumed = 0;
    grpc->n_frames = grpc->field_bytes = 0;
}

bool grpc_link_begin(struct grpc_link *grpc)
{
    const uint32_t window = grpc->options.window;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_LINK_HEADER_MAX},
    };
    reset(grpc);
    return new_session(grpc) &&
           nghttp2_submit_settings(grpc->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(grpc->session, NGHTTP2_FLAG_NONE, 0,
                                                 (int32_t)window) == 0;
}

int grpc_link_read(struct grpc_link *grpc, struct span bytes, uint64_t now_ns)
{
    struct link *link = &grpc->link;
    grpc->now_ns = now_ns;
    ssize_t done = nghttp2_session_mem_recv(grpc->session, bytes.ptr, bytes.len);
    if (done < 0)
        return grpc_link_fail(grpc, "%s's HTTP/2: %s", peer_of(grpc), nghttp2_strerror((int)done));
    if (link->state == LINK_GIVEN_UP)
        return STINT_E_GONE;
    /* Nothing of the greeting may be left, as link_be_ready() clears it. */
    if (link->state == LINK_GREETING && grpc->has_settings && !grpc->has_ended &&
        link->greeting_sent == link->greeting.len)
        link_be_ready(link);
    return 0;
}

/* ---- Start and end --------------------------------------------------------------------------- */

bool grpc_link_init(struct grpc_link *grpc, const struct link_codec *codec,
                    const struct link_options *link, const struct grpc_link_options *options)
{
    grpc->options = *options;
    return link_init(&grpc->link, codec, link);
}

void grpc_link_clear(struct grpc_link *grpc)
{
    reset(grpc);
    free(grpc->out.ptr);
}
