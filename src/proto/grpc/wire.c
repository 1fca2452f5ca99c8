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

static int read_any(const struct wire_message *message, struct span *rest, struct wire_value *value)
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

/* Nearly all fields are known bytes with a tag and a length of one byte. */
int wire_read(const struct wire_message *message, struct span *rest, struct wire_value *value)
{
    const uint8_t *at = rest->ptr;
    if (rest->len < 2 || at[1] > 127 || at[1] > rest->len - 2 || (at[0] & 7) != WIRE_BYTES)
        return read_any(message, rest, value);
    unsigned number = at[0] >> 3;
    if (number - 1 >= message->n_known || message->types[number] != WIRE_BYTES)
        return read_any(message, rest, value);
    value->bytes = span_of(at + 2, at[1]);
    *rest = span_of(at + 2 + at[1], rest->len - 2 - at[1]);
    return (int)number;
}

/* ---- Writing --------------------------------------------------------------------------------- */

inline void wire_write_raw(struct wire_writer *writer, struct span bytes)
{
    writer->at -= bytes.len;
    if (bytes.len > 0)
        memcpy(writer->at, bytes.ptr, bytes.len);
}

/* The lowest byte comes first. */
static inline void write_fixed(struct wire_writer *writer, uint64_t number, int n_bytes)
{
    for (int shift = 8 * (n_bytes - 1); shift >= 0; shift -= 8)
        *--writer->at = (uint8_t)(number >> shift);
}

void wire_write_fixed64(struct wire_writer *writer, unsigned field, uint64_t number)
{
    write_fixed(writer, number, 8);
    wire_write_tag(writer, field, WIRE_64BIT);
}

void wire_write_fixed32(struct wire_writer *writer, unsigned field, uint32_t number)
{
    write_fixed(writer, number, 4);
    wire_write_bare(writer, field << 3 | WIRE_32BIT);
}

void wire_write_double(struct wire_writer *writer, unsigned field, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    wire_write_fixed64(writer, field, bits);
}

void wire_write_bytes(struct wire_writer *writer, unsigned field, struct span bytes)
{
    const uint8_t *end = writer->at;
    if (bytes.len == 0)
        return;
    wire_write_raw(writer, bytes);
    wire_write_head(writer, field, end);
}
