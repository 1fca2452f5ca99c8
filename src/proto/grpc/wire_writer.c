/* SPDX-License-Identifier: MIT */
/* Tags, numbers and bytes, written backwards. */
#include "proto/grpc/wire_writer.h"

#include "proto/grpc/wire_reader.h"

/* Only for field numbers whose tag is one byte. */
static inline void write_tag(struct wire_writer *writer, unsigned field, enum wire_type type)
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

void wire_write_number(struct wire_writer *writer, unsigned field, uint64_t number)
{
    if (number == 0)
        return;
    write_varint(writer, number);
    write_tag(writer, field, WIRE_VARINT);
}

void wire_write_head(struct wire_writer *writer, unsigned field, const uint8_t *end)
{
    write_varint(writer, (uint64_t)(end - writer->at));
    write_tag(writer, field, WIRE_BYTES);
}

void wire_write_bytes(struct wire_writer *writer, unsigned field, struct span bytes)
{
    const uint8_t *end = writer->at;
    if (bytes.len == 0)
        return;
    writer->at -= bytes.len;
    memcpy(writer->at, bytes.ptr, bytes.len);
    wire_write_head(writer, field, end);
}
