/* SPDX-License-Identifier: MIT */
/* Reads a protobuf message field by field: a tag, and its value. */
#include "proto/grpc/wire_reader.h"

#include <stdbool.h>

#define VARINT_MAX 10 /* bytes of 64 bits */
#define TAG_MAX 5
#define LENGTH_MAX 5

static bool read_long_varint(struct span *rest, size_t max, uint64_t *number)
{
    uint64_t value = 0;
    if (max > rest->len)
        max = rest->len;
    for (size_t i = 0; i < max; i++) {
        value |= (uint64_t)(rest->ptr[i] & 127) << 7 * i;
        if (rest->ptr[i] > 127)
            continue;
        *number = value;
        *rest = span_of(rest->ptr + i + 1, rest->len - i - 1);
        return true;
    }
    return false;
}

/* Nearly all varints, tags and lengths above all, have one byte. */
static inline bool read_varint(struct span *rest, size_t max, uint64_t *number)
{
    if (rest->len == 0 || *rest->ptr > 127)
        return read_long_varint(rest, max, number);
    *number = *rest->ptr;
    *rest = span_of(rest->ptr + 1, rest->len - 1);
    return true;
}

static inline bool skip(struct span *rest, size_t len)
{
    if (rest->len < len)
        return false;
    *rest = span_of(rest->ptr + len, rest->len - len);
    return true;
}

static inline bool read_value(struct span *rest, unsigned type, struct wire_value *value)
{
    uint64_t len;
    switch (type) {
    case WIRE_VARINT:
        return read_varint(rest, VARINT_MAX, &value->varint);
    case WIRE_64BIT:
        return skip(rest, 8);
    case WIRE_BYTES:
        if (!read_varint(rest, LENGTH_MAX, &len))
            return false;
        value->bytes = span_of(rest->ptr, len);
        return skip(rest, len);
    case WIRE_32BIT:
        return skip(rest, 4);
    default:
        return false;
    }
}

int wire_read(const struct wire_message *message, struct span *rest, struct wire_value *value)
{
    while (rest->len > 0) {
        uint64_t tag;
        if (!read_varint(rest, TAG_MAX, &tag) || !read_value(rest, tag & 7, value))
            return -1;
        uint64_t number = tag >> 3;
        if (number <= message->n_known)
            return number > 0 && message->types[number] == (tag & 7) ? (int)number : -1;
    }
    return 0;
}
