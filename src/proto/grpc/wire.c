/* SPDX-License-Identifier: MIT */
/* Tags, numbers and bytes of protobuf. */
#include "proto/grpc/wire.h"

#include <stdbool.h>

/* ---- Reading --------------------------------------------------------------------------------- */

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

static inline bool read_64bit(struct span *rest, uint64_t *bits)
{
    const uint8_t *at = rest->ptr;
    if (!skip(rest, 8))
        return false;
    *bits = 0;
    for (int i = 7; i >= 0; i--)
        *bits = *bits << 8 | at[i];
    return true;
}

static inline bool read_value(struct span *rest, unsigned type, struct wire_value *value)
{
    uint64_t len;
    switch (type) {
    case WIRE_VARINT:
        return read_varint(rest, WIRE_VARINT_MAX, &value->varint);
    case WIRE_64BIT:
        return read_64bit(rest, &value->varint);
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

/* ---- Writing --------------------------------------------------------------------------------- */

/* Only for field numbers whose tag is one byte. */
inline void wire_write_tag(struct wire_writer *writer, unsigned field, enum wire_type type)
{
    *--writer->at = (uint8_t)(field << 3 | type);
}

static inline void write_varint(struct wire_writer *writer, uint64_t number)
{
    unsigned n = 1;
    for (uint64_t rest = number >> 7; rest > 0; rest >>= 7)
        n++;
    uint8_t *at = writer->at -= n;
    for (; number > 127; number >>= 7)
        *at++ = (uint8_t)(number | 128);
    *at = (uint8_t)number;
}

inline void wire_write_raw(struct wire_writer *writer, struct span bytes)
{
    writer->at -= bytes.len;
    if (bytes.len > 0)
        memcpy(writer->at, bytes.ptr, bytes.len);
}

void wire_write_double(struct wire_writer *writer, unsigned field, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    for (int shift = 56; shift >= 0; shift -= 8)
        *--writer->at = (uint8_t)(bits >> shift);
    wire_write_tag(writer, field, WIRE_64BIT);
}

void wire_write_number(struct wire_writer *writer, unsigned field, uint64_t number)
{
    if (number == 0)
        return;
    write_varint(writer, number);
    wire_write_tag(writer, field, WIRE_VARINT);
}

void wire_write_head(struct wire_writer *writer, unsigned field, const uint8_t *end)
{
    write_varint(writer, (uint64_t)(end - writer->at));
    wire_write_tag(writer, field, WIRE_BYTES);
}

void wire_write_bytes(struct wire_writer *writer, unsigned field, struct span bytes)
{
    const uint8_t *end = writer->at;
    if (bytes.len == 0)
        return;
    wire_write_raw(writer, bytes);
    wire_write_head(writer, field, end);
}
