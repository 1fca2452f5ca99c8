/* SPDX-License-Identifier: MIT */
/*
 * A protobuf message from its end to its beginning: a nested message is written before the length
 * in front of it, which is then known. Fields go in backwards, the last one first.
 */
#ifndef STINT_PROTO_GRPC_WIRE_WRITER_H
#define STINT_PROTO_GRPC_WIRE_WRITER_H

#include "base/span.h"

#define WIRE_VARINT_MAX 10 /* bytes of 64 bits */
#define WIRE_HEAD_MAX 6    /* bytes of a tag and a length, or of a tag and 32 bits */

/* What was written begins at `at`. Room for all that is written must stand before it. */
struct wire_writer {
    uint8_t *at;
};

/* For fields 1 to 15. Absent where it is 0, as in proto3. */
void wire_write_number(struct wire_writer *writer, unsigned field, uint64_t number);
/* Absent where it is empty. */
void wire_write_bytes(struct wire_writer *writer, unsigned field, struct span bytes);
/* In front of a message that was just written: it ends where the writer was then. */
void wire_write_head(struct wire_writer *writer, unsigned field, const uint8_t *end);

#endif
