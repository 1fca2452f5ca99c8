/* SPDX-License-Identifier: MIT */
/*
 * Memory for the messages of one response: taken piece by piece, given back as a whole. What was
 * needed once is there the next time without asking the system.
 */
#ifndef STINT_PROTO_GRPC_RLS_ARENA_H
#define STINT_PROTO_GRPC_RLS_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RLS_ARENA_KEPT ((size_t)256 << 10) /* bytes that stay for the next time */

struct rls_arena_piece;

struct rls_arena {
    uint8_t *block;
    size_t size, used;
    struct rls_arena_piece *pieces; /* what did not fit the block */
    size_t taken, max;              /* since begin; more than max is refused */
};

/* Zeroed is empty. Forgets all that was taken. False: no memory. */
bool rls_arena_begin(struct rls_arena *arena, size_t max);
/* Aligned for every type, not zeroed. NULL: more than max, or no memory. */
void *rls_arena_take(struct rls_arena *arena, size_t size);
void rls_arena_deinit(struct rls_arena *arena);

#endif
