/* SPDX-License-Identifier: MIT */
/* Framing, statuses, methods and deadlines of gRPC over HTTP/2. */
#include "proto/grpc/grpc.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/number.h"
#include "base/wide_int.h"
#include "proto/grpc/wire.h"

#include <assert.h>
#include <string.h>

const char *grpc_status_name(int status)
{
    static const char *const names[] = {
        [GRPC_OK] = "OK",
        [GRPC_CANCELLED] = "CANCELLED",
        [GRPC_UNKNOWN] = "UNKNOWN",
        [GRPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [GRPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
        [GRPC_NOT_FOUND] = "NOT_FOUND",
        [GRPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
        [GRPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
        [GRPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
        [GRPC_ABORTED] = "ABORTED",
        [GRPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
        [GRPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
        [GRPC_INTERNAL] = "INTERNAL",
        [GRPC_UNAVAILABLE] = "UNAVAILABLE",
        [GRPC_DATA_LOSS] = "DATA_LOSS",
        [GRPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
    };
    bool is_known = status >= 0 && status < (int)(sizeof(names) / sizeof(names[0]));
    return is_known && names[status] != NULL ? names[status] : "";
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

/* 99,999,999 hours exceed 64 bits of nanoseconds: treated as no deadline. */
bool grpc_timeout_read(struct span text, uint64_t *timeout_ns)
{
    static const uint64_t units_ns['u' + 1] = {
        ['H'] = NS_PER_HOUR, ['M'] = NS_PER_MIN, ['S'] = NS_PER_S,
        ['m'] = NS_PER_MS,   ['u'] = NS_PER_US,  ['n'] = 1,
    };
    uint64_t number;
    if (text.len < 2 || text.ptr[text.len - 1] >= sizeof(units_ns) / sizeof(units_ns[0]) ||
        !resp_number_read(span_of(text.ptr, text.len - 1), 99999999, &number) || text.len > 9)
        return false;
    uint64_t unit_ns = units_ns[text.ptr[text.len - 1]];
    if (unit_ns == 0)
        return false;
    *timeout_ns = number > UINT64_MAX / unit_ns ? UINT64_MAX : number * unit_ns;
    return true;
}

/* ---- Statuses as text ------------------------------------------------------------------------ */

size_t grpc_message_write(char *text, size_t size, struct span message)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = 0;
    for (size_t i = 0; i < message.len; i++) {
        uint8_t byte = message.ptr[i];
        bool is_plain = byte >= ' ' && byte <= '~' && byte != '%';
        if (size - len < (is_plain ? 1 : 3))
            break;
        if (is_plain) {
            text[len++] = (char)byte;
            continue;
        }
        text[len++] = '%';
        text[len++] = digits[byte >> 4];
        text[len++] = digits[byte & 15];
    }
    return len;
}

/* ---- Frames ---------------------------------------------------------------------------------- */

int grpc_frame_read(struct span bytes, size_t max, struct grpc_frame *frame,
                    struct stint_error *error)
{
    if (bytes.len > 0 && bytes.ptr[0] > 1)
        return err_set(error, STINT_E_SYNTAX,
                       "expected a message that begins with 0, or 1 if it is compressed, not %u",
                       bytes.ptr[0]);
    if (bytes.len < GRPC_PREFIX)
        return 0;
    size_t len = (size_t)bytes.ptr[1] << 24 | (size_t)bytes.ptr[2] << 16 |
                 (size_t)bytes.ptr[3] << 8 | bytes.ptr[4];
    if (len > max || len > INT32_MAX - GRPC_PREFIX)
        return err_set(error, STINT_E_RANGE, "expected a message of at most %zu bytes, not %zu",
                       max, len);
    if (bytes.len - GRPC_PREFIX < len)
        return 0;
    frame->is_compressed = bytes.ptr[0] == 1;
    frame->message = span_of(bytes.ptr + GRPC_PREFIX, len);
    return (int)(GRPC_PREFIX + len);
}

void grpc_frame_write(uint8_t prefix[GRPC_PREFIX], bool is_compressed, size_t len)
{
    prefix[0] = is_compressed;
    for (int i = 0; i < 4; i++)
        prefix[1 + i] = (uint8_t)(len >> (24 - 8 * i));
}

/* ---- Names of encodings ---------------------------------------------------------------------- */

enum grpc_encoding grpc_encoding_of(struct span name)
{
    if (span_equals(name, "identity"))
        return GRPC_IDENTITY;
    return span_equals(name, "gzip") ? GRPC_GZIP : GRPC_ENCODING_UNKNOWN;
}

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t';
}

bool grpc_accepts_gzip(struct span list)
{
    for (size_t i = 0; i < list.len;) {
        size_t start = i, end;
        while (i < list.len && list.ptr[i] != ',')
            i++;
        for (end = i; end > start && is_space(list.ptr[end - 1]); end--)
            continue;
        while (start < end && is_space(list.ptr[start]))
            start++;
        if (grpc_encoding_of(span_of(list.ptr + start, end - start)) == GRPC_GZIP)
            return true;
        i++; /* the comma */
    }
    return false;
}

/* ---- Details of a status --------------------------------------------------------------------- */

/* -1: no digit of base64. */
static int base64_digit(uint8_t c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* With or without padding, as gRPC allows; bytes after a wrong digit are lost. */
static struct span base64_read(struct span text, uint8_t bytes[GRPC_DETAILS_MAX])
{
    uint32_t word = 0;
    size_t len = 0;
    for (size_t i = 0; i < text.len && base64_digit(text.ptr[i]) >= 0; i++) {
        word = word << 6 | (uint32_t)base64_digit(text.ptr[i]);
        if (i % 4 > 0)
            bytes[len++] = (uint8_t)(word >> (6 - 2 * (i % 4)));
    }
    return span_of(bytes, len);
}

/* The last value of a field; false: it is absent, or the message is malformed. */
static bool read_field(const struct wire_message *shape, struct span message, int wanted,
                       struct wire_value *value)
{
    struct wire_value found;
    bool is_there = false;
    int field;
    while ((field = wire_read(shape, &message, &found)) > 0)
        if (field == wanted) {
            *value = found;
            is_there = true;
        }
    return field == 0 && is_there;
}

/* google.protobuf.Any of google.rpc.RetryInfo. */
static bool read_retry_info(struct span any, uint64_t *delay_ns)
{
    enum { ANY_TYPE = 1, ANY_VALUE, RETRY_DELAY = 1, SECONDS = 1, NANOS };
    static const struct wire_message texts = {2, {0, WIRE_BYTES, WIRE_BYTES}};
    static const struct wire_message retry_info = {1, {0, WIRE_BYTES}};
    static const struct wire_message duration = {2, {0, WIRE_VARINT, WIRE_VARINT}};
    struct wire_value type = {0}, value = {0}, delay = {0}, seconds = {0}, nanos = {0};
    if (!read_field(&texts, any, ANY_TYPE, &type) || !read_field(&texts, any, ANY_VALUE, &value) ||
        !span_equals(type.bytes, "type.googleapis.com/google.rpc.RetryInfo") ||
        !read_field(&retry_info, value.bytes, RETRY_DELAY, &delay))
        return false;
    (void)read_field(&duration, delay.bytes, SECONDS, &seconds);
    (void)read_field(&duration, delay.bytes, NANOS, &nanos);
    if (seconds.varint > UINT32_MAX || nanos.varint >= NS_PER_S) /* also negative ones */
        return false;
    *delay_ns = max_u64(seconds.varint * NS_PER_S + nanos.varint, 1);
    return true;
}

bool grpc_retry_info_read(struct span base64, uint64_t *delay_ns)
{
    enum { DETAILS = 3 };
    static const struct wire_message status = {3, {0, WIRE_VARINT, WIRE_BYTES, WIRE_BYTES}};
    uint8_t bytes[GRPC_DETAILS_MAX];
    if (base64.len > sizeof(bytes))
        return false;
    struct span message = base64_read(base64, bytes);
    struct wire_value value;
    for (int field; (field = wire_read(&status, &message, &value)) > 0;)
        if (field == DETAILS && read_retry_info(value.bytes, delay_ns))
            return true;
    return false;
}

/* ---- Health ---------------------------------------------------------------------------------- */

/* Health: one state for the whole server, under each of its service names. */

static const char *const services[] = {
    "",
    "envoy.service.ratelimit.v3.RateLimitService",
    "kuadrant.service.ratelimit.v1.RateLimitService",
    "ratelimit",
};
#define N_SERVICES (sizeof(services) / sizeof(services[0]))

bool health_knows(struct span service)
{
    for (size_t i = 0; i < N_SERVICES; i++)
        if (span_equals(service, services[i]))
            return true;
    return false;
}

/* ---- Messages -------------------------------------------------------------------------------- */

int health_read(struct span message, struct span *service, struct stint_error *error)
{
    static const struct wire_message request = {1, {[1] = WIRE_BYTES}};
    struct wire_value value;
    int field;
    *service = span_of("", 0);
    while ((field = wire_read(&request, &message, &value)) > 0)
        *service = value.bytes;
    return field == 0 ? 0
                      : err_set(error, STINT_E_SYNTAX, "expected a HealthCheckRequest in protobuf");
}

static struct span written(const uint8_t bytes[HEALTH_MESSAGE_MAX],
                           const struct wire_writer *writer)
{
    assert(writer->at >= bytes);
    return span_of(writer->at, (size_t)(bytes + HEALTH_MESSAGE_MAX - writer->at));
}

struct span health_write(uint8_t bytes[HEALTH_MESSAGE_MAX], enum health_status status)
{
    struct wire_writer writer = {bytes + HEALTH_MESSAGE_MAX};
    wire_write_number(&writer, 1, status);
    return written(bytes, &writer);
}

struct span health_write_list(uint8_t bytes[HEALTH_MESSAGE_MAX], enum health_status status)
{
    enum { KEY = 1, VALUE };
    struct wire_writer writer = {bytes + HEALTH_MESSAGE_MAX};
    for (size_t i = 0; i < N_SERVICES; i++) {
        const uint8_t *end = writer.at;
        wire_write_number(&writer, 1, status);
        wire_write_head(&writer, VALUE, end);
        wire_write_bytes(&writer, KEY, span_of_text(services[i]));
        wire_write_head(&writer, 1, end);
    }
    return written(bytes, &writer);
}

/* ---- Frames of HTTP/2 ------------------------------------------------------------------------ */

enum { TYPE_DATA = 0, TYPE_HEADERS = 1, TYPE_CONTINUATION = 9, FLAG_END_HEADERS = 4 };

bool http2_frames_are_open(const struct http2_frames *frames)
{
    bool is_preface = frames->preface_len > 0 && frames->preface_len < HTTP2_PREFACE;
    return is_preface || frames->head_len > 0 || frames->is_in_block;
}

static void begin_payload(struct http2_frames *frames)
{
    const uint8_t *head = frames->head;
    frames->left = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
    if (head[3] == TYPE_HEADERS || head[3] == TYPE_CONTINUATION)
        frames->is_in_block = (head[4] & FLAG_END_HEADERS) == 0;
}

/* Takes the bytes up to the end of one part (preface, head or payload); returns their number. */
static size_t take_part(struct http2_frames *frames, struct span bytes)
{
    size_t len;
    if (frames->preface_len < HTTP2_PREFACE) {
        len = min_u64(bytes.len, HTTP2_PREFACE - (size_t)frames->preface_len);
        frames->preface_len += (uint8_t)len;
        return len;
    }
    if (frames->head_len < HTTP2_FRAME_HEAD) {
        len = min_u64(bytes.len, HTTP2_FRAME_HEAD - (size_t)frames->head_len);
        memcpy(frames->head + frames->head_len, bytes.ptr, len);
        frames->head_len += (uint8_t)len;
        if (frames->head_len == HTTP2_FRAME_HEAD)
            begin_payload(frames);
    } else {
        len = min_u64(bytes.len, frames->left);
        frames->left -= (uint32_t)len;
    }
    if (frames->head_len == HTTP2_FRAME_HEAD && frames->left == 0)
        frames->head_len = 0;
    return len;
}

static bool take_all(struct http2_frames *frames, struct span bytes)
{
    bool was_closed = !http2_frames_are_open(frames);
    while (bytes.len > 0) {
        bytes = span_after(bytes, take_part(frames, bytes));
        was_closed |= !http2_frames_are_open(frames);
    }
    return was_closed;
}

/* Of the payload that is still to come. */
static size_t data_left(const struct http2_frames *frames)
{
    bool is_data = frames->head_len == HTTP2_FRAME_HEAD && frames->head[3] == TYPE_DATA;
    return is_data ? frames->left : 0;
}

bool http2_frames_take(struct http2_frames *frames, struct span bytes, size_t *len)
{
    size_t more_max = *len;
    *len = min_u64(*len, bytes.len);
    bool was_closed = take_all(frames, span_of(bytes.ptr, *len));
    struct span more = span_after(bytes, *len);
    size_t left = data_left(frames);
    if (left == 0 || left > more.len || left > more_max)
        return was_closed;
    *len += left;
    return take_all(frames, span_of(more.ptr, left)) || was_closed;
}
