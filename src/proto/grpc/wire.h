/* SPDX-License-Identifier: MIT */
/*
 * protobuf without a copy. Reading gives the fields of a message one by one, as spans into it;
 * nested messages are not read, and the same messages are rejected as by protobuf-c. Writing goes
 * from the end of a message to its beginning: a nested message is written before the length in
 * front of it, which is then known. The last field is written first.
 */
#ifndef STINT_PROTO_GRPC_WIRE_H
#define STINT_PROTO_GRPC_WIRE_H

#include "base/span.h"

#define WIRE_KNOWN_MAX 8

enum wire_type { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_BYTES = 2, WIRE_32BIT = 5 };

/* A message whose fields 1 to n_known are known, each with one type. */
struct wire_message {
    uint32_t n_known;
    uint8_t types[1 + WIRE_KNOWN_MAX]; /* by number */
};

struct wire_value {
    uint64_t varint;   /* of WIRE_VARINT, modulo 2^64; of WIRE_64BIT its bits */
    struct span bytes; /* of WIRE_BYTES: text, bytes or a message */
};

/*
 * Skips unknown fields. > 0: the number of a known one with its value, and *rest is the rest after
 * it. 0: the message has ended. < 0: it is malformed: a number or a length without end, a field
 * that extends past the message, a group, an unknown type, the number 0, or a known field of
 * another type than its own.
 */
int wire_read(const struct wire_message *message, struct span *rest, struct wire_value *value);

/* ---- Writing --------------------------------------------------------------------------------- */

#define WIRE_VARINT_MAX 10 /* bytes of 64 bits */
#define WIRE_HEAD_MAX 6    /* bytes of a tag and a length, or of a tag and 32 bits */

/* The written bytes begin at `at`. There must be enough free space before it. */
struct wire_writer {
    uint8_t *at;
};

/* A number without a tag. */
static inline void wire_write_bare(struct wire_writer *writer, uint64_t number)
{
    unsigned n = 1;
    for (uint64_t rest = number >> 7; rest > 0; rest >>= 7)
        n++;
    uint8_t *at = writer->at -= n;
    for (; number > 127; number >>= 7)
        *at++ = (uint8_t)(number | 128);
    *at = (uint8_t)number;
}

/* All that writes a tag is for fields 1 to 15, unless it says otherwise: the tag is one byte. */
static inline void wire_write_tag(struct wire_writer *writer, unsigned field, enum wire_type type)
{
    *--writer->at = (uint8_t)(field << 3 | type);
}

/* Also 0. */
static inline void wire_write_varint(struct wire_writer *writer, unsigned field, uint64_t number)
{
    wire_write_bare(writer, number);
    wire_write_tag(writer, field, WIRE_VARINT);
}

/* A value of 0 is left out, as in proto3. */
static inline void wire_write_number(struct wire_writer *writer, unsigned field, uint64_t number)
{
    if (number != 0)
        wire_write_varint(writer, field, number);
}

/* The prefix of a message that was just written, which ends where the writer was before. */
static inline void wire_write_head(struct wire_writer *writer, unsigned field, const uint8_t *end)
{
    wire_write_bare(writer, (uint64_t)(end - writer->at));
    wire_write_tag(writer, field, WIRE_BYTES);
}

/* An empty value is left out. */
void wire_write_bytes(struct wire_writer *writer, unsigned field, struct span bytes);
void wire_write_double(struct wire_writer *writer, unsigned field, double number);    /* also 0 */
void wire_write_fixed64(struct wire_writer *writer, unsigned field, uint64_t number); /* also 0 */
/* For fields up to 2047; also 0. */
void wire_write_fixed32(struct wire_writer *writer, unsigned field, uint32_t number);
/* Bytes without a tag. */
void wire_write_raw(struct wire_writer *writer, struct span bytes);

#endif
