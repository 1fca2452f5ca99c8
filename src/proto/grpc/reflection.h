/* SPDX-License-Identifier: MIT */
/*
 * grpc.reflection v1 and v1alpha, which differ only in their names: the services, and the
 * descriptions of their messages, which are compiled from src/proto/grpc/messages/ into the
 * program.
 */
#ifndef STINT_PROTO_GRPC_REFLECTION_H
#define STINT_PROTO_GRPC_REFLECTION_H

#include "base/span.h"
#include "stint.h"

/* Bytes of a request: names are shorter, and answers repeat it. */
#define REFLECTION_REQUEST_MAX 16384

/*
 * The answer to one ServerReflectionRequest; the protocol's errors (unknown file, unknown symbol)
 * are answers, too. It is in *space until the next one: where that is NULL, memory for every answer
 * is allocated, which the caller frees. STINT_E_SYNTAX for an invalid message, STINT_E_RANGE for
 * one that is too long, STINT_E_SYSTEM without memory.
 */
int reflection_answer(struct span message, uint8_t **space, struct span *answer,
                      struct stint_error *error);

#endif
