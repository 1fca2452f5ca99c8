/* SPDX-License-Identifier: MIT */
/* The size of a head is computed before it is written: one reservation, and no checks after it. */
#include "proto/http/http_writer.h"

#include "base/number.h"
#include "proto/http/http_reply.h"

#include <assert.h>
#include <string.h>

struct field_len {
    size_t name, value;
};

static uint8_t *put(uint8_t *at, const char *text, size_t len)
{
    memcpy(at, text, len);
    return at + len;
}

#define put_literal(at, literal) put(at, "" literal, sizeof(literal) - 1)

static uint8_t *put_text(uint8_t *at, const char *text)
{
    return put(at, text, strlen(text));
}

static uint8_t *put_field(uint8_t *at, const struct http_answer_field *field,
                          const struct field_len *len)
{
    at = put(at, field->name, len->name);
    at = put_literal(at, ": ");
    at = put(at, field->value, len->value);
    return put_literal(at, "\r\n");
}

/* An upper bound of the head's size. Measures the fields. */
static size_t head_size(const struct http_answer *answer, const struct http_framing *framing,
                        struct field_len lens[HTTP_ANSWER_FIELDS_MAX])
{
    size_t size = 256; /* status line, Date, Content-Length, Connection */
    for (size_t i = 0; i < answer->n_fields; i++) {
        const struct http_answer_field *field = &answer->fields[i];
        lens[i] = (struct field_len){strlen(field->name), strlen(field->value)};
        size += lens[i].name + lens[i].value + 4;
    }
    return size + (framing->date != NULL ? strlen(framing->date) : 0);
}

bool http_writer_answer(struct byte_queue *out, const struct http_answer *answer,
                        const struct http_framing *framing)
{
    assert(answer->status >= 200 && answer->status <= 599);
    struct field_len lens[HTTP_ANSWER_FIELDS_MAX];
    size_t size = head_size(answer, framing, lens);
    size_t body_len = framing->is_head ? 0 : answer->body.len;
    uint8_t *start = byte_queue_reserve(out, size + body_len), *at = start;
    if (start == NULL)
        return false;
    at = put_literal(at, "HTTP/1.1 ");
    at = resp_number_write(at, answer->status);
    at = put_literal(at, " ");
    at = put_text(at, http_status_name(answer->status));
    at = put_literal(at, "\r\n");
    if (framing->date != NULL) {
        at = put_literal(at, "Date: ");
        at = put_text(at, framing->date);
        at = put_literal(at, "\r\n");
    }
    for (size_t i = 0; i < answer->n_fields; i++)
        at = put_field(at, &answer->fields[i], &lens[i]);
    if (answer->status != 204) {
        at = put_literal(at, "Content-Length: ");
        at = resp_number_write(at, answer->body.len);
        at = put_literal(at, "\r\n");
    }
    if (framing->ends_connection)
        at = put_literal(at, "Connection: close\r\n");
    else if (framing->names_keep_alive)
        at = put_literal(at, "Connection: keep-alive\r\n");
    at = put_literal(at, "\r\n");
    assert((size_t)(at - start) <= size);
    if (body_len > 0)
        at = put(at, (const char *)answer->body.ptr, body_len);
    out->end += (size_t)(at - start);
    return true;
}

bool http_writer_continue(struct byte_queue *out)
{
    return byte_queue_append(out, span_of_text("HTTP/1.1 100 Continue\r\n\r\n"));
}
