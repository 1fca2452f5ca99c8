/* SPDX-License-Identifier: MIT */
/*
 * Writes a protobuf message from its end to its beginning: a nested message is written before the
 * length in front of it, which is then known. The last field is written first.
 */
#ifndef STINT_PROTO_GRPC_WIRE_WRITER_H
#define STINT_PROTO_GRPC_WIRE_WRITER_H

#include "base/span.h"

#define WIRE_VARINT_MAX 10 /* bytes of 64 bits */
#define WIRE_HEAD_MAX 6    /* bytes of a tag and a length, or of a tag and 32 bits */

/* The written bytes begin at `at`. There must be enough free space before it. */
struct wire_writer {
    uint8_t *at;
};

/* For fields 1 to 15. A value of 0 is left out, as in proto3. */
void wire_write_number(struct wire_writer *writer, unsigned field, uint64_t number);
/* An empty value is left out. */
void wire_write_bytes(struct wire_writer *writer, unsigned field, struct span bytes);
/* The prefix of a message that was just written, which ends where the writer was before. */
void wire_write_head(struct wire_writer *writer, unsigned field, const uint8_t *end);

#endif
