/* SPDX-License-Identifier: MIT */
/*
 * The fields of a protobuf message one by one, as spans into it: nothing is copied, and nested
 * messages are not read. It rejects the same messages as protobuf-c.
 */
#ifndef STINT_PROTO_GRPC_WIRE_READER_H
#define STINT_PROTO_GRPC_WIRE_READER_H

#include "base/span.h"

#define WIRE_KNOWN_MAX 4

enum wire_type { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_BYTES = 2, WIRE_32BIT = 5 };

/* A message whose fields 1 to n_known are known, each with one type. */
struct wire_message {
    uint32_t n_known;
    uint8_t types[1 + WIRE_KNOWN_MAX]; /* by number */
};

struct wire_value {
    uint64_t varint;   /* of WIRE_VARINT, modulo 2^64 */
    struct span bytes; /* of WIRE_BYTES: text, bytes or a message */
};

/*
 * Skips unknown fields. > 0: the number of a known one with its value, and *rest is the rest after
 * it. 0: the message has ended. < 0: it is malformed: a number or a length without end, a field
 * that extends past the message, a group, an unknown type, the number 0, or a known field of
 * another type than its own.
 */
int wire_read(const struct wire_message *message, struct span *rest, struct wire_value *value);

#endif
