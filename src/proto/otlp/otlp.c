/* SPDX-License-Identifier: MIT */
/* Field numbers are those of opentelemetry-proto 1.x, which are stable. */
#include "proto/otlp/otlp.h"

#include "base/utf8.h"
#include "proto/grpc/wire.h"

#include <assert.h>

enum {
    SPAN_TRACE_ID = 1,
    SPAN_ID,
    SPAN_STATE,
    SPAN_PARENT_ID,
    SPAN_NAME,
    SPAN_KIND,
    SPAN_BEGIN,
    SPAN_END,
    SPAN_ATTRIBUTES,
    SPAN_STATUS = 15,
    SPAN_FLAGS
};
enum { STATUS_MESSAGE = 2, STATUS_CODE };
enum { STATUS_ERROR = 2 };
enum { KEY_VALUE_KEY = 1, KEY_VALUE_VALUE };
enum { VALUE_TEXT = 1, VALUE_NUMBER = 3 };
enum { RESOURCE_ATTRIBUTES = 1 };
enum { SCOPE_NAME = 1, SCOPE_VERSION };
enum { SCOPE_SPANS_SCOPE = 1, SCOPE_SPANS_SPANS };
enum { RESOURCE_SPANS_RESOURCE = 1, RESOURCE_SPANS_SCOPE_SPANS };
enum { REQUEST_RESOURCE_SPANS = 1 };

/* Span.flags above those of the caller: whether the parent is remote is known, and it is. */
#define FLAG_HAS_REMOTE 0x100u
#define FLAG_REMOTE 0x200u

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Collectors reject a request with a text that is not UTF-8: bytes of clients are made valid. */
static void write_text(struct wire_writer *writer, unsigned field, struct span text)
{
    uint8_t clean[3 * OTLP_TEXT_MAX];
    size_t len = 0, most = text.len < OTLP_TEXT_MAX ? text.len : OTLP_TEXT_MAX;
    for (size_t i = 0, n; i<most; i += n> 0 ? n : 1) {
        n = utf8_length(text.ptr + i, text.len - i);
        if (i + n > most)
            break;
        memcpy(clean + len, n > 0 ? text.ptr + i : (const uint8_t *)UTF8_REPLACEMENT,
               n > 0 ? n : sizeof(UTF8_REPLACEMENT) - 1);
        len += n > 0 ? n : sizeof(UTF8_REPLACEMENT) - 1;
    }
    wire_write_bytes(writer, field, span_of(clean, len));
}

/* ---- Spans ----------------------------------------------------------------------------------- */

static void write_attribute(struct wire_writer *writer, const struct otlp_attribute *attribute)
{
    const uint8_t *end = writer->at;
    if (attribute->text.ptr != NULL)
        write_text(writer, VALUE_TEXT, attribute->text);
    else
        wire_write_varint(writer, VALUE_NUMBER, (uint64_t)attribute->number);
    wire_write_head(writer, KEY_VALUE_VALUE, end);
    wire_write_bytes(writer, KEY_VALUE_KEY, span_of_text(attribute->name));
    wire_write_head(writer, SPAN_ATTRIBUTES, end);
}

static void write_status(struct wire_writer *writer, const char *error)
{
    const uint8_t *end = writer->at;
    if (error == NULL)
        return;
    wire_write_number(writer, STATUS_CODE, STATUS_ERROR);
    write_text(writer, STATUS_MESSAGE, span_of_text(error));
    wire_write_head(writer, SPAN_STATUS, end);
}

struct span otlp_span_write(uint8_t space[OTLP_SPAN_SIZE], const struct otlp_span *span)
{
    assert(span->n_attributes <= OTLP_ATTRIBUTES_MAX && span->state.len <= TRACE_STATE_MAX);
    const uint8_t *end = space + OTLP_SPAN_SIZE;
    struct wire_writer writer = {space + OTLP_SPAN_SIZE};
    bool is_remote = span->parent_id != NULL && span->is_parent_remote;
    wire_write_fixed32(&writer, SPAN_FLAGS,
                       span->flags | FLAG_HAS_REMOTE | (is_remote ? FLAG_REMOTE : 0));
    write_status(&writer, span->error);
    for (size_t i = span->n_attributes; i-- > 0;)
        write_attribute(&writer, &span->attributes[i]);
    wire_write_fixed64(&writer, SPAN_END, span->end_ns);
    wire_write_fixed64(&writer, SPAN_BEGIN, span->begin_ns);
    wire_write_number(&writer, SPAN_KIND, span->kind);
    write_text(&writer, SPAN_NAME, span->name);
    if (span->parent_id != NULL)
        wire_write_bytes(&writer, SPAN_PARENT_ID, span_of(span->parent_id, TRACE_SPAN_ID_LEN));
    wire_write_bytes(&writer, SPAN_STATE, span->state);
    wire_write_bytes(&writer, SPAN_ID, span_of(span->id, TRACE_SPAN_ID_LEN));
    wire_write_bytes(&writer, SPAN_TRACE_ID, span_of(span->trace_id, TRACE_ID_LEN));
    wire_write_head(&writer, SCOPE_SPANS_SPANS, end);
    assert(writer.at >= space);
    return span_of(writer.at, (size_t)(end - writer.at));
}

/* ---- Requests -------------------------------------------------------------------------------- */

struct span otlp_resource_write(uint8_t space[OTLP_RESOURCE_SIZE],
                                const struct otlp_resource_attribute *attributes, size_t n)
{
    assert(n <= OTLP_RESOURCE_ATTRIBUTES_MAX);
    const uint8_t *end = space + OTLP_RESOURCE_SIZE;
    struct wire_writer writer = {space + OTLP_RESOURCE_SIZE};
    for (size_t i = n; i-- > 0;) {
        const uint8_t *end_of_one = writer.at;
        wire_write_bytes(&writer, VALUE_TEXT, attributes[i].value);
        wire_write_head(&writer, KEY_VALUE_VALUE, end_of_one);
        wire_write_bytes(&writer, KEY_VALUE_KEY, attributes[i].name);
        wire_write_head(&writer, RESOURCE_ATTRIBUTES, end_of_one);
    }
    wire_write_head(&writer, RESOURCE_SPANS_RESOURCE, end);
    assert(writer.at >= space);
    return span_of(writer.at, (size_t)(end - writer.at));
}

struct span otlp_request_write(struct span resource, const char *version, struct span spans)
{
    const uint8_t *end = span_end(spans);
    struct wire_writer writer = {(uint8_t *)(uintptr_t)spans.ptr};
    wire_write_bytes(&writer, SCOPE_VERSION, span_of_text(version));
    wire_write_bytes(&writer, SCOPE_NAME, span_of_text("stint"));
    wire_write_head(&writer, SCOPE_SPANS_SCOPE, spans.ptr);
    wire_write_head(&writer, RESOURCE_SPANS_SCOPE_SPANS, end);
    wire_write_raw(&writer, resource);
    wire_write_head(&writer, REQUEST_RESOURCE_SPANS, end);
    return span_of(writer.at, (size_t)(end - writer.at));
}

int otlp_response_read(struct otlp_response *response, struct span bytes, struct stint_error *error)
{
    enum { PARTIAL_SUCCESS = 1, PARTIAL_REFUSED = 1, PARTIAL_MESSAGE };
    static const struct wire_message whole = {1, {[PARTIAL_SUCCESS] = WIRE_BYTES}};
    static const struct wire_message partial = {
        2, {[PARTIAL_REFUSED] = WIRE_VARINT, [PARTIAL_MESSAGE] = WIRE_BYTES}};
    struct wire_value value;
    int field;
    *response = (struct otlp_response){0};
    while ((field = wire_read(&whole, &bytes, &value)) == PARTIAL_SUCCESS) {
        struct span rest = value.bytes;
        while ((field = wire_read(&partial, &rest, &value)) > 0)
            if (field == PARTIAL_REFUSED)
                response->refused = value.varint;
            else
                response->message = value.bytes;
        if (field < 0)
            break;
    }
    return field == 0 ? 0
                      : err_set(error, STINT_E_SYNTAX,
                                "the collector's answer is no ExportTraceServiceResponse");
}
