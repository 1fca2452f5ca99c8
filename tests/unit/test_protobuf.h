/* SPDX-License-Identifier: MIT */
/*
 * Protobuf by hand, for tests of what a library reads and writes: fields are put together and taken
 * apart by their published numbers alone.
 */
#ifndef STINT_TESTS_TEST_PROTOBUF_H
#define STINT_TESTS_TEST_PROTOBUF_H

#include "unit/test_quota.h"

#include "decide/request.h"

#define WIRE_MAX 4096

struct wire {
    uint8_t bytes[WIRE_MAX];
    size_t len;
};

static inline struct span wired(const struct wire *wire)
{
    return span_of(wire->bytes, wire->len);
}

static inline void wire_bytes(struct wire *wire, struct span bytes)
{
    assert_true(bytes.len <= WIRE_MAX - wire->len);
    memcpy(wire->bytes + wire->len, bytes.ptr, bytes.len);
    wire->len += bytes.len;
}

static inline void wire_varint(struct wire *wire, uint64_t number)
{
    do {
        uint8_t byte = (uint8_t)((number & 127) | (number > 127 ? 128 : 0));
        wire_bytes(wire, span_of(&byte, 1));
        number >>= 7;
    } while (number > 0);
}

static inline void wire_number(struct wire *wire, unsigned field, uint64_t number)
{
    wire_varint(wire, field << 3);
    wire_varint(wire, number);
}

static inline void wire_span(struct wire *wire, unsigned field, struct span bytes)
{
    wire_varint(wire, field << 3 | 2);
    wire_varint(wire, bytes.len);
    wire_bytes(wire, bytes);
}

static inline void wire_text(struct wire *wire, unsigned field, const char *text)
{
    wire_span(wire, field, span_of_text(text));
}

static inline void wire_message(struct wire *wire, unsigned field, const struct wire *message)
{
    wire_span(wire, field, wired(message));
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* One field: its number, and its value or its bytes. */
struct wire_field {
    unsigned field;
    uint64_t number;
    struct span bytes;
    double real;
};

static inline uint64_t unwire_varint(struct span *rest)
{
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(rest->len > 0 && shift < 64);
        uint8_t byte = *rest->ptr;
        *rest = span_of(rest->ptr + 1, rest->len - 1);
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return number;
    }
}

/* The next field off the front; false at the end. */
static inline bool unwire(struct span *rest, struct wire_field *field)
{
    if (rest->len == 0)
        return false;
    uint64_t tag = unwire_varint(rest);
    *field = (struct wire_field){.field = (unsigned)(tag >> 3)};
    if ((tag & 7) == 0) {
        field->number = unwire_varint(rest);
        return true;
    }
    size_t len = (tag & 7) == 1 ? sizeof(double) : (tag & 7) == 5 ? 4 : unwire_varint(rest);
    assert_true(((tag & 7) <= 2 || (tag & 7) == 5) && len <= rest->len);
    field->bytes = span_of(rest->ptr, len);
    if ((tag & 7) == 1)
        memcpy(&field->real, rest->ptr, sizeof(double));
    *rest = span_of(rest->ptr + len, rest->len - len);
    return true;
}

/* The nth field of that number, from 0; false where there are not so many. */
static inline bool wire_has(struct span message, unsigned number, size_t nth,
                            struct wire_field *found)
{
    while (unwire(&message, found))
        if (found->field == number && nth-- == 0)
            return true;
    *found = (struct wire_field){.bytes = span_of("", 0)};
    return false;
}

/* 0 and empty where it is left out, as proto3 has it. */
static inline uint64_t wire_number_of(struct span message, unsigned field)
{
    struct wire_field found;
    wire_has(message, field, 0, &found);
    return found.number;
}

static inline struct span wire_bytes_of(struct span message, unsigned field, size_t nth)
{
    struct wire_field found;
    wire_has(message, field, nth, &found);
    return found.bytes;
}

static inline size_t wire_count(struct span message, unsigned field)
{
    struct wire_field found;
    size_t n = 0;
    while (wire_has(message, field, n, &found))
        n++;
    return n;
}

/* ---- Envoy's messages ------------------------------------------------------------------------ */

/* A descriptor of "key=value key=value", without its other fields. */
static inline struct wire wire_descriptor(const char *text)
{
    struct wire descriptor = {.len = 0};
    while (*text != '\0') {
        struct wire entry = {.len = 0};
        size_t len = strcspn(text, " "), key_len = strcspn(text, "= ");
        wire_span(&entry, 1, span_of(text, key_len));
        if (key_len < len)
            wire_span(&entry, 2, span_of(text + key_len + 1, len - key_len - 1));
        wire_message(&descriptor, 1, &entry);
        text += len + (text[len] == ' ');
    }
    return descriptor;
}

static inline void wire_hits(struct wire *descriptor, uint64_t hits)
{
    struct wire value = {.len = 0};
    wire_number(&value, 1, hits);
    wire_message(descriptor, 3, &value);
}

/* A request of descriptors in text: "key=value; key=value". */
static inline struct wire wire_request(const char *domain, const char *text)
{
    struct wire request = {.len = 0};
    wire_text(&request, 1, domain);
    while (*text != '\0') {
        char one[256];
        size_t len = strcspn(text, ";");
        assert_true(len < sizeof(one));
        memcpy(one, text, len);
        one[len] = '\0';
        struct wire descriptor = wire_descriptor(one);
        wire_message(&request, 2, &descriptor);
        text += len;
        text += strspn(text, "; ");
    }
    return request;
}

/* The same of a request. A cost of 0 cannot be said of the whole, so each descriptor says it. */
static inline struct span wire_of_request(struct wire *message, const struct request *request)
{
    message->len = 0;
    wire_span(message, 1, request->domain);
    for (size_t i = 0; i < request->n_descriptors; i++) {
        const struct descriptor *from = &request->descriptors[i];
        struct wire descriptor = {.len = 0};
        for (size_t k = 0; k < from->n_entries; k++) {
            struct wire entry = {.len = 0};
            wire_span(&entry, 1, from->entries[k].key);
            wire_span(&entry, 2, from->entries[k].value);
            wire_message(&descriptor, 1, &entry);
        }
        if (from->has_hits)
            wire_hits(&descriptor, from->hits);
        else if (request->cost == 0)
            wire_span(&descriptor, 3, span_of("", 0));
        if (from->is_refund)
            wire_number(&descriptor, 4, 1);
        wire_message(message, 2, &descriptor);
    }
    if (request->cost > 0)
        wire_number(message, 3, request->cost);
    return wired(message);
}

#endif
