/* SPDX-License-Identifier: MIT */
/* The scan passes a head to llhttp up to its last byte, and the following bytes as its body. */
#include "proto/http/http_reader.h"

#include "proto/http/http_target.h"

#include <assert.h>
#include <stdlib.h>

#define NO_NAME "a field has no name" /* llhttp accepts it */
#define BODY_TOO_LONG "the body is longer than http_body_size"

/* A chunk's line end, a size of four digits and the line end after its data. */
#define CHUNK_LINE_BYTES 8

enum reader_state { READER_BEGINS, READER_HEAD, READER_BODY, READER_REFUSED };

/* States of the scan within a line. */
enum line_state { LINE_EMPTY, LINE_TEXT, LINE_CR, LINE_EMPTY_CR };

/* ---- A request ------------------------------------------------------------------------------- */

/* The header before each field's name and value in the request's text. */
struct field_head {
    uint32_t name_len, value_len;
};

void http_request_deinit(struct http_request *request)
{
    byte_queue_deinit(&request->text);
}

void http_request_clear(struct http_request *request, size_t size_kept)
{
    struct byte_queue text = request->text;
    byte_queue_clear(&text, size_kept);
    *request = (struct http_request){.next = request->next, .text = text};
}

static struct field_head field_head_at(const struct http_request *request, size_t at)
{
    struct field_head head;
    memcpy(&head, request->text.bytes + at, sizeof(head));
    return head;
}

/* One bit of 64, by length and first letter: most names that are looked up match no field. */
static inline uint64_t name_bit(struct span name)
{
    return UINT64_C(1) << ((name.len * 8 + (name.len > 0 ? name.ptr[0] | 0x20u : 0)) % 64);
}

/* Most names are absent, and are rejected before this point. */
__attribute__((noinline)) static struct span find_nth(const struct http_request *request,
                                                      struct span name, size_t nth)
{
    for (size_t at = request->target_len; at < request->body_at;) {
        struct field_head head = field_head_at(request, at);
        const uint8_t *text = request->text.bytes + at + sizeof(head);
        at += sizeof(head) + head.name_len + head.value_len;
        if (http_is_same(span_of(text, head.name_len), name) && nth-- == 0)
            return span_of(text + head.name_len, head.value_len);
    }
    return span_of(NULL, 0);
}

/* The value of the nth field (from 0) of that name, in any case; a NULL ptr: not so many. */
static struct span field_of(const void *arg, struct span name, size_t nth)
{
    const struct http_request *request = arg;
    uint64_t bits = nth == 0 ? request->name_bits : request->repeated_bits;
    return (bits & name_bit(name)) != 0 ? find_nth(request, name, nth) : span_of(NULL, 0);
}

void http_request_message(const struct http_request *request, struct http_message *message)
{
    const uint8_t *text = request->text.bytes;
    size_t body_len = request->text.end - request->body_at;
    message->method = span_of_text(llhttp_method_name((llhttp_method_t)request->method));
    message->target = span_of(text, request->target_len);
    message->body = body_len > 0 ? span_of(text + request->body_at, body_len) : span_of(NULL, 0);
    message->field = field_of;
    message->field_arg = request;
}

/* ---- Callbacks of llhttp --------------------------------------------------------------------- */

static struct http_reader *reader_of(llhttp_t *parser)
{
    return (struct http_reader *)parser;
}

/* For a callback's return: llhttp stops at an error. */
static int refuse(struct http_reader *reader, unsigned status, const char *detail)
{
    reader->status = (uint16_t)status;
    reader->detail = detail;
    return -1;
}

static int append(struct http_reader *reader, const char *bytes, size_t len)
{
    return byte_queue_append(&reader->request->text, span_of(bytes, len))
               ? 0
               : refuse(reader, 503, "no memory for the request");
}

static int on_url(llhttp_t *parser, const char *bytes, size_t len)
{
    struct http_reader *reader = reader_of(parser);
    reader->request->target_len += (uint32_t)len;
    return append(reader, bytes, len);
}

static void count_field(struct http_reader *reader, size_t name_len, size_t value_len)
{
    struct field_head head = field_head_at(reader->request, reader->field_at);
    head.name_len += (uint32_t)name_len;
    head.value_len += (uint32_t)value_len;
    memcpy(reader->request->text.bytes + reader->field_at, &head, sizeof(head));
}

/* Fields after a body (trailers) are read and dropped: they must not change the head. */
static int on_field_name(llhttp_t *parser, const char *bytes, size_t len)
{
    static const struct field_head nothing;
    struct http_reader *reader = reader_of(parser);
    if (reader->is_head_whole)
        return 0;
    if (!reader->is_field_open) {
        reader->field_at = (uint32_t)reader->request->text.end;
        reader->is_field_open = true;
        if (append(reader, (const char *)&nothing, sizeof(nothing)) != 0)
            return -1;
    }
    count_field(reader, len, 0);
    return append(reader, bytes, len);
}

static int on_field_value(llhttp_t *parser, const char *bytes, size_t len)
{
    struct http_reader *reader = reader_of(parser);
    if (reader->is_head_whole)
        return 0;
    if (!reader->is_field_open)
        return refuse(reader, 400, NO_NAME);
    count_field(reader, 0, len);
    return append(reader, bytes, len);
}

/* Spaces after a value are not part of it. */
static int on_field_end(llhttp_t *parser)
{
    struct http_reader *reader = reader_of(parser);
    if (reader->is_head_whole)
        return 0;
    struct byte_queue *text = &reader->request->text;
    struct field_head head = {0};
    if (reader->is_field_open)
        head = field_head_at(reader->request, reader->field_at);
    if (head.name_len == 0)
        return refuse(reader, 400, NO_NAME);
    while (head.value_len > 0 &&
           (text->bytes[text->end - 1] == ' ' || text->bytes[text->end - 1] == '\t')) {
        head.value_len--;
        text->end--;
    }
    memcpy(text->bytes + reader->field_at, &head, sizeof(head));
    const uint8_t *name = text->bytes + reader->field_at + sizeof(head);
    uint64_t bit = name_bit(span_of(name, head.name_len));
    reader->request->repeated_bits |= reader->request->name_bits & bit;
    reader->request->name_bits |= bit;
    reader->is_field_open = false;
    return 0;
}

/* ---- Checks of a head ------------------------------------------------------------------------ */

/* What a request line has besides its method and its target. */
#define REST_OF_LINE "  HTTP/1.1\r\n"

/* RFC 3986's characters of a host and a port, including brackets and colons at any position. */
static bool is_host(struct span host)
{
    static const char marks[] = "_~!$&'()*+,;=%[]";
    for (size_t i = 0; i < host.len; i++) {
        uint8_t c = host.ptr[i], letter = c | 0x20;
        bool is_plain = (c >= '0' && c <= '9') || (letter >= 'a' && letter <= 'z') || c == '.' ||
                        c == ':' || c == '-';
        if (!is_plain && memchr(marks, c, sizeof(marks) - 1) == NULL)
            return false;
    }
    return true;
}

static int check_host(struct http_reader *reader)
{
    const struct http_request *request = reader->request;
    struct span host = field_of(request, span_of_text("Host"), 0);
    if (host.ptr == NULL)
        return request->minor == 0 ? 0 : refuse(reader, 400, "expected a Host field");
    if (field_of(request, span_of_text("Host"), 1).ptr != NULL)
        return refuse(reader, 400, "expected one Host field");
    return is_host(host) ? 0 : refuse(reader, 400, "the Host field is no host and port");
}

/* llhttp accepts more blanks than one, a fragment, and an empty authority. */
static int check_line(struct http_reader *reader)
{
    const struct http_request *request = reader->request;
    struct span target = span_of(request->text.bytes, request->target_len);
    size_t method_len = strlen(llhttp_method_name((llhttp_method_t)request->method));
    if (reader->line_len != method_len + target.len + sizeof(REST_OF_LINE) - 1)
        return refuse(reader, 400, "expected one blank between method, target and version");
    if (memchr(target.ptr, '#', target.len) != NULL)
        return refuse(reader, 400, "the target has a fragment: expected it without \"#\"");
    struct span authority = http_target_authority(target);
    if (authority.ptr != NULL &&
        (authority.len == 0 || authority.ptr[0] == ':' || !is_host(authority)))
        return refuse(reader, 400, "the target has no host, or one that is invalid");
    return 0;
}

static int check_transfer(struct http_reader *reader)
{
    struct span coding = field_of(reader->request, span_of_text("Transfer-Encoding"), 0);
    if (coding.ptr == NULL)
        return 0;
    if (field_of(reader->request, span_of_text("Content-Length"), 0).ptr != NULL)
        return refuse(reader, 400, "expected Content-Length or Transfer-Encoding, not both");
    if (reader->request->minor == 0)
        return refuse(reader, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (!http_is_same(coding, span_of_text("chunked")) ||
        field_of(reader->request, span_of_text("Transfer-Encoding"), 1).ptr != NULL)
        return refuse(reader, 501, "expected Transfer-Encoding: chunked, and no other");
    return 0;
}

static int check_expectation(struct http_reader *reader)
{
    struct span expected = field_of(reader->request, span_of_text("Expect"), 0);
    if (expected.ptr == NULL || reader->request->minor == 0)
        return 0;
    if (!http_is_same(expected, span_of_text("100-continue")))
        return refuse(reader, 417, "expected Expect: 100-continue, or none");
    reader->request->wants_continue = true;
    return 0;
}

static int on_head(llhttp_t *parser)
{
    struct http_reader *reader = reader_of(parser);
    struct http_request *request = reader->request;
    reader->is_head_whole = true;
    request->body_at = (uint32_t)request->text.end;
    request->method = parser->method;
    request->minor = parser->http_minor;
    request->keeps_alive = llhttp_should_keep_alive(parser);
    if (parser->http_major != 1 || parser->http_minor > 1)
        return refuse(reader, 505, "expected HTTP/1.1 or HTTP/1.0");
    if (parser->method == HTTP_CONNECT)
        return refuse(reader, 501, "CONNECT is not supported");
    if (check_line(reader) != 0 || check_host(reader) != 0 || check_transfer(reader) != 0 ||
        check_expectation(reader) != 0)
        return -1;
    if (parser->content_length > reader->limits->body_bytes)
        return refuse(reader, 413, BODY_TOO_LONG);
    parser->upgrade = 0; /* the upgrade is not accepted */
    return 0;
}

/* ---- A body ---------------------------------------------------------------------------------- */

static int on_body(llhttp_t *parser, const char *bytes, size_t len)
{
    struct http_reader *reader = reader_of(parser);
    size_t body_len = reader->request->text.end - reader->request->body_at;
    if (len > reader->limits->body_bytes - body_len)
        return refuse(reader, 413, BODY_TOO_LONG);
    return append(reader, bytes, len);
}

/* A chunk that cannot fit is rejected before its data comes. */
static int on_chunk(llhttp_t *parser)
{
    struct http_reader *reader = reader_of(parser);
    size_t body_len = reader->request->text.end - reader->request->body_at;
    reader->extra_bytes -= CHUNK_LINE_BYTES;
    if (parser->content_length > reader->limits->body_bytes - body_len)
        return refuse(reader, 413, BODY_TOO_LONG);
    return 0;
}

static int on_whole(llhttp_t *parser)
{
    reader_of(parser)->is_whole = true;
    return HPE_PAUSED;
}

/* ---- Line ends ------------------------------------------------------------------------------- */

/*
 * One line's bytes, up to and including its LF if it has come. Returns how many of them are valid
 * in a head. *fault is the reason why the next one is not: a single CR or LF, or a line that
 * continues the field before it.
 */
static size_t scan_line(struct http_reader *reader, const char *line, size_t len, bool has_end,
                        const char **fault)
{
    bool is_start = reader->line == LINE_EMPTY;
    bool was_cr = reader->line == LINE_CR || reader->line == LINE_EMPTY_CR;
    size_t text_len = has_end ? len - 1 : len;
    const char *cr = text_len > 0 ? memchr(line, '\r', text_len) : NULL;
    size_t plain_len = cr != NULL ? (size_t)(cr - line) : text_len;
    bool ends_in_cr = cr != NULL || (was_cr && text_len == 0);
    if (is_start && reader->has_begun && (*line == ' ' || *line == '\t')) {
        *fault = "a field's value continues in a second line";
        return 0;
    }
    *fault = "expected CR LF at the end of each line";
    if (was_cr && text_len > 0)
        return 0;
    if (cr != NULL && plain_len + 1 < text_len)
        return plain_len + 1;
    if (has_end && !ends_in_cr)
        return len - 1;
    *fault = NULL;
    if (plain_len == 0 && (is_start || reader->line == LINE_EMPTY_CR))
        reader->line = LINE_EMPTY_CR;
    else
        reader->line = ends_in_cr ? LINE_CR : LINE_TEXT;
    return len;
}

/* The common case: a complete line, not empty, with its only CR before its LF. Changes nothing. */
static bool is_plain_line(const struct http_reader *reader, const char *line, size_t len)
{
    return reader->line == LINE_EMPTY && len > 2 && line[len - 2] == '\r' && *line != ' ' &&
           *line != '\t' && memchr(line, '\r', len - 2) == NULL;
}

/* Bytes of the request line, or of an empty line before it. */
static void count_line(struct http_reader *reader, size_t len)
{
    if (!reader->has_begun)
        reader->line_len += (uint32_t)len;
}

/*
 * How many of these bytes belong to the head; *is_end if its last byte is among them. Empty lines
 * before the request line are part of it, and count.
 */
static size_t scan_head(struct http_reader *reader, struct span bytes, bool *is_end,
                        const char **fault)
{
    const char *text = (const char *)bytes.ptr;
    size_t at = 0;
    *is_end = false;
    *fault = NULL;
    while (at < bytes.len && !*is_end) {
        const char *lf = memchr(text + at, '\n', bytes.len - at);
        size_t len = lf != NULL ? (size_t)(lf - (text + at)) + 1 : bytes.len - at;
        if (lf != NULL && is_plain_line(reader, text + at, len)) {
            at += len;
            count_line(reader, len);
            reader->has_begun = true;
            continue;
        }
        len = scan_line(reader, text + at, len, lf != NULL, fault);
        at += len;
        count_line(reader, len);
        if (*fault != NULL || lf == NULL)
            break;
        bool was_empty = reader->line == LINE_EMPTY_CR;
        *is_end = was_empty && reader->has_begun;
        reader->has_begun |= !was_empty;
        reader->line_len = reader->has_begun ? reader->line_len : 0;
        reader->line = LINE_EMPTY;
    }
    return at;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_field_name,
    .on_header_value = on_field_value,
    .on_header_value_complete = on_field_end,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_chunk_header = on_chunk,
    .on_message_complete = on_whole,
};

void http_reader_init(struct http_reader *reader, const struct http_reader_limits *limits)
{
    *reader = (struct http_reader){.limits = limits};
    llhttp_init(&reader->parser, HTTP_REQUEST, &settings);
}

static enum http_event end_refused(struct http_reader *reader)
{
    reader->state = READER_REFUSED;
    return HTTP_EVENT_REFUSED;
}

/* Passes these bytes to llhttp; returns how many it used. An error sets a status. */
static size_t execute(struct http_reader *reader, struct span bytes)
{
    llhttp_errno_t code = llhttp_execute(&reader->parser, (const char *)bytes.ptr, bytes.len);
    if (code == HPE_OK)
        return bytes.len;
    size_t used = (size_t)(llhttp_get_error_pos(&reader->parser) - (const char *)bytes.ptr);
    if (code == HPE_PAUSED && reader->is_whole)
        llhttp_resume(&reader->parser);
    else if (reader->status == 0 && code == HPE_INVALID_METHOD)
        refuse(reader, 501, "the method is not known");
    else if (reader->status == 0 && (code == HPE_INVALID_VERSION || code == HPE_PAUSED_H2_UPGRADE))
        refuse(reader, 505, "expected HTTP/1.1 or HTTP/1.0");
    else if (reader->status == 0)
        refuse(reader, 400, llhttp_get_error_reason(&reader->parser));
    assert(used <= bytes.len);
    return used;
}

/* An error is found at the same byte, however a head is split into pieces. */
static enum http_event read_head(struct http_reader *reader, struct span bytes, size_t *used)
{
    bool is_end;
    const char *fault;
    size_t left = reader->limits->head_bytes - reader->head_bytes;
    bytes.len = bytes.len < left ? bytes.len : left;
    size_t len = scan_head(reader, bytes, &is_end, &fault);
    reader->head_bytes += len;
    *used = execute(reader, span_of(bytes.ptr, len));
    if (reader->status == 0 && fault != NULL)
        refuse(reader, 400, fault);
    else if (reader->status == 0 && (*used != len || reader->is_head_whole != is_end))
        refuse(reader, 400, "the request line or a field is invalid");
    else if (reader->status == 0 && !is_end && reader->head_bytes == reader->limits->head_bytes)
        refuse(reader, reader->has_begun ? 431 : 414,
               "line and fields are longer than http_header_size");
    if (reader->status != 0)
        return end_refused(reader);
    if (!is_end)
        return HTTP_EVENT_NONE;
    reader->state = READER_BODY;
    return reader->is_whole ? HTTP_EVENT_MESSAGE : HTTP_EVENT_HEAD;
}

static enum http_event read_body(struct http_reader *reader, struct span bytes, size_t *used)
{
    size_t body_end = reader->request->text.end;
    *used = execute(reader, bytes);
    reader->extra_bytes += (ptrdiff_t)*used - (ptrdiff_t)(reader->request->text.end - body_end);
    if (reader->status == 0 && reader->extra_bytes > (ptrdiff_t)reader->limits->head_bytes)
        refuse(reader, 431, "chunk lines and trailers are longer than http_header_size");
    if (reader->status != 0)
        return end_refused(reader);
    return reader->is_whole ? HTTP_EVENT_MESSAGE : HTTP_EVENT_NONE;
}

static void begin(struct http_reader *reader)
{
    reader->state = READER_HEAD;
    reader->line = LINE_EMPTY;
    reader->extra_bytes = 0;
    reader->line_len = 0;
    reader->parser.method = 0; /* a request without one is not a HEAD like the one before it */
    reader->has_begun = reader->is_field_open = reader->is_head_whole = reader->is_whole = false;
}

enum http_event http_reader_read(struct http_reader *reader, struct span bytes, size_t *used)
{
    enum http_event event = HTTP_EVENT_NONE;
    assert(reader->request != NULL && reader->state != READER_REFUSED);
    *used = 0;
    if (bytes.len == 0)
        return HTTP_EVENT_NONE;
    if (reader->state == READER_BEGINS)
        begin(reader);
    event = reader->state == READER_HEAD ? read_head(reader, bytes, used)
                                         : read_body(reader, bytes, used);
    if (event == HTTP_EVENT_MESSAGE) {
        reader->state = READER_BEGINS;
        reader->head_bytes = 0;
    }
    return event;
}

bool http_reader_is_within(const struct http_reader *reader)
{
    return (reader->state == READER_HEAD || reader->state == READER_BODY) &&
           (reader->has_begun || reader->line == LINE_TEXT || reader->line == LINE_CR);
}
