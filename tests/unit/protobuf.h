/* SPDX-License-Identifier: MIT */
/*
 * Protobuf by hand, for tests that speak it with a server: what the server's own reader and writer
 * take for granted is not taken for granted here.
 */
#ifndef STINT_TESTS_PROTOBUF_H
#define STINT_TESTS_PROTOBUF_H

#include "wire/request.h"

#define PB_MAX 4096

struct pb {
    uint8_t bytes[PB_MAX];
    size_t len;
};

static inline void pb_varint(struct pb *pb, uint64_t number)
{
    do {
        assert_true(pb->len < PB_MAX);
        pb->bytes[pb->len++] = (uint8_t)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
        number >>= 7;
    } while (number > 0);
}

static inline void pb_number(struct pb *pb, unsigned field, uint64_t number)
{
    pb_varint(pb, field << 3);
    pb_varint(pb, number);
}

static inline void pb_bytes(struct pb *pb, unsigned field, struct span bytes)
{
    pb_varint(pb, field << 3 | 2);
    pb_varint(pb, bytes.len);
    assert_true(bytes.len <= PB_MAX - pb->len);
    if (bytes.len > 0)
        memcpy(pb->bytes + pb->len, bytes.ptr, bytes.len);
    pb->len += bytes.len;
}

static inline struct span pb_span(const struct pb *pb)
{
    return span_of(pb->bytes, pb->len);
}

/* A RateLimitRequest. A cost of 0 cannot be said of the whole, so each descriptor says it. */
static inline struct span pb_request(struct pb *message, const struct request *request)
{
    message->len = 0;
    pb_bytes(message, 1, request->domain);
    for (size_t i = 0; i < request->n_descriptors; i++) {
        const struct descriptor *from = &request->descriptors[i];
        struct pb descriptor = {.len = 0};
        for (size_t k = 0; k < from->n_entries; k++) {
            struct pb entry = {.len = 0};
            pb_bytes(&entry, 1, from->entries[k].key);
            pb_bytes(&entry, 2, from->entries[k].value);
            pb_bytes(&descriptor, 1, pb_span(&entry));
        }
        if (request->cost == 0) {
            struct pb none = {.len = 0};
            pb_bytes(&descriptor, 3, pb_span(&none));
        }
        pb_bytes(message, 2, pb_span(&descriptor));
    }
    if (request->cost > 0)
        pb_number(message, 3, request->cost);
    return pb_span(message);
}

/* One field off the front of a message; false at its end. What is no protobuf fails the test. */
struct pb_field {
    unsigned number, type;
    uint64_t value;
    struct span bytes;
};

static inline uint64_t pb_next_varint(struct span *rest)
{
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(rest->len > 0 && shift < 64);
        uint8_t byte = *rest->ptr;
        *rest = span_of(rest->ptr + 1, rest->len - 1);
        number |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return number;
    }
}

static inline bool pb_next(struct span *rest, struct pb_field *field)
{
    if (rest->len == 0)
        return false;
    uint64_t tag = pb_next_varint(rest);
    *field = (struct pb_field){.number = (unsigned)(tag >> 3), .type = (unsigned)(tag & 7)};
    field->value = pb_next_varint(rest);
    assert_true(field->type == 0 || field->type == 2);
    if (field->type == 2) {
        assert_true(field->value <= rest->len);
        field->bytes = span_of(rest->ptr, (size_t)field->value);
        *rest = span_of(rest->ptr + field->value, rest->len - (size_t)field->value);
    }
    return true;
}

/* The last of that number, or 0. */
static inline uint64_t pb_find(struct span message, unsigned number)
{
    struct pb_field field;
    uint64_t value = 0;
    while (pb_next(&message, &field))
        if (field.number == number && field.type == 0)
            value = field.value;
    return value;
}

#endif
