/* SPDX-License-Identifier: MIT */
/* One stream of HTTP/2 for each socket: nghttp2 has the frames, and this file what they mean. */
#include "xds/ads_client.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "proto/grpc/grpc.h"
#include "rules/yaml/diagnostics.h"

#include <nghttp2/nghttp2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METHOD "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
#define OUTPUT_MAX (256 << 10) /* unsent bytes, above which the peer does not read */
#define FIXED_FIELDS 7
#define FIELDS_MAX (FIXED_FIELDS + 32)
#define STATUS_TEXT_MAX 128

struct ads_client {
    struct link link; /* first */
    struct ads_client_options options;
    nghttp2_session *session;
    int32_t stream_id;
    uint64_t stream; /* counts them */
    bool has_settings;
    char version[DISCOVERY_TEXT_MAX + 1]; /* accepted last; on this stream, or before */
    size_t version_len;
    /* Output: requests that nghttp2 has not read yet. */
    struct wire_bytes requests;
    size_t requests_read;
    /* Input: a response with its prefix, and what was received ahead of the next. */
    struct wire_bytes in;
    size_t unconsumed; /* bytes for which the peer's window was not opened again */
    struct ads_response response;
    bool has_response; /* not taken yet */
    bool is_waiting;   /* for the answer to a response */
    uint64_t next_ns;  /* no response is handed over before */
    /* What the peer costs. */
    size_t field_bytes, n_frames;
    uint64_t frames_since_ns, message_since_ns, heard_ns;
    uint64_t ping_ends_ns; /* STINT_NEVER_NS: none was sent */
    char status[STATUS_TEXT_MAX];
    uint64_t now_ns;
};

static int fail(struct ads_client *client, const char *format, ...) ERR_PRINTF(2, 3);

/* The connection is given up; the first reason counts. Always a negative code. */
static int fail(struct ads_client *client, const char *format, ...)
{
    char text[STINT_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (client->link.state != LINK_GIVEN_UP)
        err_set(&client->link.fault, STINT_E_GONE, "%s", text);
    link_give_up(&client->link);
    return STINT_E_GONE;
}

/* ---- Output ---------------------------------------------------------------------------------- */

/* What nghttp2 wants to send becomes the link's output. */
static int pump(struct ads_client *client)
{
    struct link *link = &client->link;
    const uint8_t *bytes;
    ssize_t len;
    while ((len = nghttp2_session_mem_send(client->session, &bytes)) > 0) {
        bool is_kept = link->state == LINK_READY
                           ? link_write(link, span_of(bytes, (size_t)len))
                           : wire_bytes_reserve(&link->greeting, (size_t)len, OUTPUT_MAX);
        if (!is_kept)
            return fail(client, "the control plane does not read what it is sent");
        if (link->state != LINK_READY)
            wire_bytes_add(&link->greeting, span_of(bytes, (size_t)len));
    }
    return len < 0 ? fail(client, "HTTP/2: %s", nghttp2_strerror((int)len)) : 0;
}

static ssize_t read_requests(nghttp2_session *session, int32_t id, uint8_t *to, size_t size,
                             uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct ads_client *client = source->ptr;
    size_t left = client->requests.len - client->requests_read;
    size_t len = left < size ? left : size;
    (void)session, (void)id, (void)arg, (void)flags;
    if (len == 0)
        return NGHTTP2_ERR_DEFERRED;
    memcpy(to, client->requests.ptr + client->requests_read, len);
    client->requests_read += len;
    if (client->requests_read == client->requests.len)
        client->requests.len = client->requests_read = 0;
    return (ssize_t)len;
}

static int add_request(struct ads_client *client, const struct discovery_request *request)
{
    size_t size = discovery_request_size(request);
    uint8_t prefix[GRPC_PREFIX];
    if (!wire_bytes_reserve(&client->requests, size + GRPC_PREFIX, OUTPUT_MAX))
        return fail(client, "no memory for a request to the control plane");
    uint8_t *bytes = malloc(size);
    if (bytes == NULL)
        return fail(client, "no memory for a request to the control plane");
    struct span written = discovery_request_write(request, bytes, size);
    grpc_frame_write(prefix, false, written.len);
    wire_bytes_add(&client->requests, span_of(prefix, GRPC_PREFIX));
    wire_bytes_add(&client->requests, written);
    free(bytes);
    /* It may not wait for data: then there is nothing to resume. */
    (void)nghttp2_session_resume_data(client->session, client->stream_id);
    return 0;
}

static nghttp2_nv field(struct span name, struct span value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name.ptr, (uint8_t *)(uintptr_t)value.ptr, name.len,
                        value.len, NGHTTP2_NV_FLAG_NONE};
}

static size_t fields_of(const struct ads_client *client, nghttp2_nv fields[FIELDS_MAX])
{
    const struct ads_client_options *options = &client->options;
    const char *const fixed[FIXED_FIELDS][2] = {
        {":method", "POST"},
        {":scheme", options->is_tls ? "https" : "http"},
        {":authority", options->authority},
        {":path", METHOD},
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

/* ---- Responses ------------------------------------------------------------------------------- */

/* The peer may send as many bytes again as were read. */
static void open_window(struct ads_client *client)
{
    if (client->unconsumed > 0)
        nghttp2_session_consume(client->session, client->stream_id, client->unconsumed);
    client->unconsumed = 0;
}

/* Moves a whole message out, and leaves what follows it. */
static int hand_over(struct ads_client *client, struct span message, size_t used)
{
    struct ads_response *response = &client->response;
    struct wire_bytes rest = {NULL, 0, 0};
    struct stint_error error;
    struct span after = span_of(client->in.ptr + used, client->in.len - used);
    if (discovery_response_read(message, &response->parts, &error) != 0)
        return fail(client, "the control plane's response: %s", error.message);
    if (!wire_bytes_reserve(&rest, after.len + 1, ADS_WINDOW + ADS_MESSAGE_MAX))
        return fail(client, "no memory for a response");
    wire_bytes_add(&rest, after);
    response->bytes = client->in.ptr;
    response->message = message;
    response->stream = client->stream;
    client->in = rest;
    client->has_response = client->is_waiting = true;
    client->options.received(client->options.arg);
    return 0;
}

/* Hands over the next response, if it is there and none is pending. */
static int read_response(struct ads_client *client)
{
    struct grpc_frame frame;
    struct stint_error error;
    if (client->is_waiting || client->next_ns > client->now_ns)
        return 0;
    int used =
        grpc_frame_read(span_of(client->in.ptr, client->in.len), ADS_MESSAGE_MAX, &frame, &error);
    if (used < 0)
        return fail(client, "the control plane's response: %s", error.message);
    if (used == 0) {
        open_window(client);
        return 0;
    }
    if (frame.is_compressed)
        return fail(client, "the control plane's response is compressed, which was not offered");
    return hand_over(client, frame.message, (size_t)used);
}

/* ---- Callbacks of nghttp2 -------------------------------------------------------------------- */

static int count_frame(struct ads_client *client)
{
    if (client->now_ns - client->frames_since_ns >= ADS_FRAMES_NS) {
        client->frames_since_ns = client->now_ns;
        client->n_frames = 0;
    }
    if (++client->n_frames <= ADS_FRAMES_MAX)
        return 0;
    fail(client, "the control plane sends more than %d frames without content in %u s",
         ADS_FRAMES_MAX, (unsigned)(ADS_FRAMES_NS / NS_PER_S));
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *arg)
{
    (void)session;
    return head->type != NGHTTP2_DATA || head->length == 0 ? count_frame(arg) : 0;
}

static int begin_fields(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct ads_client *client = arg;
    (void)session, (void)frame;
    client->field_bytes = 0;
    return 0;
}

static int take_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                      size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                      void *arg)
{
    struct ads_client *client = arg;
    struct span key = span_of(name, name_len), content = span_of(value, value_len);
    uint64_t number;
    struct buf status = {client->status, sizeof(client->status), strlen(client->status)};
    (void)session, (void)frame, (void)flags;
    client->field_bytes += name_len + value_len;
    if (client->field_bytes > ADS_HEADER_MAX) {
        fail(client, "the control plane's header fields have more than %d bytes", ADS_HEADER_MAX);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (span_equals(key, ":status") && !span_equals(content, "200"))
        buf_add(&status, " HTTP status %s;", quoted_text(content).text);
    else if (span_equals(key, "grpc-status") && resp_number_read(content, INT32_MAX, &number))
        buf_add(&status, " %s", grpc_status_name((int)number));
    else if (span_equals(key, "grpc-message"))
        buf_add(&status, " \"%s\"", quoted_text(content).text);
    return 0;
}

static int take_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                     size_t len, void *arg)
{
    struct ads_client *client = arg;
    (void)session, (void)flags, (void)id;
    if (!wire_bytes_reserve(&client->in, len, ADS_MESSAGE_MAX + GRPC_PREFIX + ADS_WINDOW)) {
        fail(client, "no memory for the control plane's response");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (client->in.len == 0)
        client->message_since_ns = client->now_ns;
    wire_bytes_add(&client->in, span_of(bytes, len));
    client->unconsumed += len;
    return read_response(client) == 0 ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void end_stream(struct ads_client *client, const char *code)
{
    bool is_said = client->status[0] != '\0' || code != NULL;
    fail(client, "the control plane has ended the stream%s%s%s%s", is_said ? ":" : "",
         client->status, code != NULL ? " " : "", code != NULL ? code : "");
}

/* Its side of the stream may end while ours is open: then nghttp2 does not close it. */
static int take_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct ads_client *client = arg;
    const nghttp2_frame_hd *head = &frame->hd;
    bool has_end = head->type == NGHTTP2_HEADERS || head->type == NGHTTP2_DATA;
    (void)session;
    if (head->type == NGHTTP2_SETTINGS && (head->flags & NGHTTP2_FLAG_ACK) == 0)
        client->has_settings = true;
    else if (head->type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        fail(client, "the control plane ends the connection: %s",
             nghttp2_http2_strerror(frame->goaway.error_code));
    else if (has_end && (head->flags & NGHTTP2_FLAG_END_STREAM) != 0)
        end_stream(client, NULL);
    return 0;
}

static int close_stream(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct ads_client *client = arg;
    (void)session;
    if (id == client->stream_id)
        end_stream(client, code != NGHTTP2_NO_ERROR ? nghttp2_http2_strerror(code) : NULL);
    return 0;
}

/* ---- A connection ---------------------------------------------------------------------------- */

static bool new_session(struct ads_client *client)
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
        is_made = nghttp2_session_client_new2(&client->session, callbacks, client, option) == 0;
        nghttp2_option_del(option);
    }
    nghttp2_session_callbacks_del(callbacks);
    return is_made;
}

static bool open_stream(struct ads_client *client)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, ADS_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, ADS_HEADER_MAX},
    };
    nghttp2_nv fields[FIELDS_MAX];
    nghttp2_data_provider provider = {.source = {.ptr = client}, .read_callback = read_requests};
    if (nghttp2_submit_settings(client->session, NGHTTP2_FLAG_NONE, settings,
                                sizeof(settings) / sizeof(settings[0])) != 0 ||
        nghttp2_session_set_local_window_size(client->session, NGHTTP2_FLAG_NONE, 0, ADS_WINDOW) !=
            0)
        return false;
    client->stream_id = nghttp2_submit_request(client->session, NULL, fields,
                                               fields_of(client, fields), &provider, NULL);
    return client->stream_id > 0;
}

/* Forgets the last connection. A response that was taken may still be answered, without effect. */
static void reset(struct ads_client *client)
{
    nghttp2_session_del(client->session);
    client->session = NULL;
    if (client->has_response)
        ads_response_free(&client->response);
    client->has_response = client->is_waiting = client->has_settings = false;
    free(client->in.ptr); /* it may be as large as a response */
    client->in = (struct wire_bytes){.ptr = NULL};
    client->unconsumed = 0;
    client->requests.len = client->requests_read = 0;
    client->n_frames = client->field_bytes = 0;
    client->status[0] = '\0';
    client->ping_ends_ns = STINT_NEVER_NS;
    client->stream++;
}

static bool begin(struct link *link)
{
    struct ads_client *client = (void *)link;
    const struct discovery_request subscription = {.node = client->options.node};
    reset(client);
    return new_session(client) && open_stream(client) && add_request(client, &subscription) == 0 &&
           pump(client) == 0;
}

/* ---- Time ------------------------------------------------------------------------------------ */

static bool is_receiving(const struct ads_client *client)
{
    return client->in.len > 0 && !client->is_waiting;
}

static uint64_t message_ends_ns(const struct ads_client *client)
{
    return is_receiving(client)
               ? max_u64(client->message_since_ns, client->next_ns) + ADS_MESSAGE_NS
               : STINT_NEVER_NS;
}

static void arm(struct ads_client *client)
{
    bool is_held = !client->is_waiting && client->unconsumed > 0 &&
                   client->next_ns > client->now_ns; /* else the peer's window would stay shut */
    uint64_t ping_ns = client->ping_ends_ns != STINT_NEVER_NS ? client->ping_ends_ns
                                                              : client->heard_ns + ADS_SILENCE_NS;
    if (!link_is_ready(&client->link)) {
        client->link.earliest_ns = STINT_NEVER_NS;
        return;
    }
    client->link.earliest_ns = min_u64(min_u64(ping_ns, message_ends_ns(client)),
                                       is_held ? client->next_ns : STINT_NEVER_NS);
}

static void look_for_peer(struct ads_client *client)
{
    if (client->ping_ends_ns <= client->now_ns) {
        fail(client, "the control plane has not answered a PING within %u s",
             (unsigned)(ADS_PING_NS / NS_PER_S));
    } else if (client->ping_ends_ns == STINT_NEVER_NS &&
               client->heard_ns + ADS_SILENCE_NS <= client->now_ns) {
        client->ping_ends_ns = client->now_ns + ADS_PING_NS;
        nghttp2_submit_ping(client->session, NGHTTP2_FLAG_NONE, NULL);
    }
}

static void be_late(struct link *link, uint64_t now_ns)
{
    struct ads_client *client = (void *)link;
    client->now_ns = now_ns;
    link->earliest_ns = STINT_NEVER_NS;
    if (link->state != LINK_READY)
        return;
    look_for_peer(client);
    if (message_ends_ns(client) <= now_ns)
        fail(client, "the control plane has not sent the rest of a response within %u s",
             (unsigned)(ADS_MESSAGE_NS / NS_PER_S));
    if (link->state == LINK_READY && read_response(client) == 0)
        pump(client);
    arm(client);
}

/* ---- The link -------------------------------------------------------------------------------- */

static int read_bytes(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct ads_client *client = (void *)link;
    client->now_ns = client->heard_ns = now_ns;
    client->ping_ends_ns = STINT_NEVER_NS;
    ssize_t done = nghttp2_session_mem_recv(client->session, bytes.ptr, bytes.len);
    if (done < 0)
        return fail(client, "the control plane's HTTP/2: %s", nghttp2_strerror((int)done));
    if (link->state == LINK_GIVEN_UP)
        return STINT_E_GONE;
    /* Nothing of the greeting may be left, as link_be_ready() clears it. */
    if (link->state == LINK_GREETING && client->has_settings &&
        link->greeting_sent == link->greeting.len)
        link_be_ready(link);
    /* A response that had to wait: these bytes may have come before the timer. */
    int code = read_response(client);
    if (code == 0)
        code = pump(client);
    if (code == 0 && !nghttp2_session_want_read(client->session))
        return fail(client, "the control plane's HTTP/2 is malformed");
    arm(client);
    return code;
}

static void free_client(struct link *link)
{
    struct ads_client *client = (void *)link;
    reset(client);
    free(client->requests.ptr);
}

static const struct link_codec codec = {
    .server = "the control plane",
    .begin = begin,
    .read = read_bytes,
    .be_late = be_late,
    .free = free_client,
};

struct ads_client *ads_client_new(const struct ads_client_options *options)
{
    struct ads_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return NULL;
    struct link_options link = options->link;
    link.commands_max = 1; /* it has none */
    link.bytes_max = OUTPUT_MAX;
    client->options = *options;
    client->ping_ends_ns = STINT_NEVER_NS;
    if (link_init(&client->link, &codec, &link))
        return client;
    free(client);
    return NULL;
}

bool ads_client_take(struct ads_client *client, struct ads_response *response)
{
    if (!client->has_response)
        return false;
    client->has_response = false;
    *response = client->response;
    client->response = (struct ads_response){.bytes = NULL};
    return true;
}

/* protobuf refuses other text, and a message may quote a peer's bytes, or be cut in a character. */
static const char *utf8_text(char text[STINT_ERROR_MAX], const char *refusal)
{
    struct buf buf = buf_of(text, STINT_ERROR_MAX);
    buf_add(&buf, "%s", refusal);
    size_t len = strlen(text), step;
    for (size_t i = 0; i < len; i += step) {
        step = utf8_length((const uint8_t *)text + i, len - i);
        if (step == 0) {
            text[i] = '?';
            step = 1;
        }
    }
    return text;
}

void ads_client_answer(struct ads_client *client, const struct ads_response *response,
                       const char *refusal, uint64_t now_ns)
{
    char text[STINT_ERROR_MAX];
    const struct discovery_response *parts = &response->parts;
    if (refusal == NULL) {
        assert(parts->version.len <= DISCOVERY_TEXT_MAX);
        if (parts->version.len > 0)
            memcpy(client->version, parts->version.ptr, parts->version.len);
        client->version_len = parts->version.len;
    }
    if (response->stream != client->stream || !client->is_waiting)
        return;
    client->is_waiting = false;
    client->now_ns = client->message_since_ns = now_ns;
    client->next_ns = now_ns + (refusal == NULL ? ADS_ACCEPTED_NS : ADS_REFUSED_NS);
    if (!link_is_ready(&client->link))
        return;
    const struct discovery_request request = {
        .node = client->options.node,
        .version = span_of(client->version, client->version_len),
        .nonce = parts->nonce,
        .refusal = refusal != NULL ? utf8_text(text, refusal) : NULL,
    };
    if (add_request(client, &request) == 0)
        pump(client);
    arm(client);
}

void ads_response_free(struct ads_response *response)
{
    free(response->bytes);
    *response = (struct ads_response){.bytes = NULL};
}
