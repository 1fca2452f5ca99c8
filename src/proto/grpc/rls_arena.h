/* SPDX-License-Identifier: MIT */
/*
 * Memory for the messages of one response: allocated in pieces, freed as a whole. The next response
 * reuses it without a call to the system.
 */
#ifndef STINT_PROTO_GRPC_RLS_ARENA_H
#define STINT_PROTO_GRPC_RLS_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RLS_ARENA_KEPT ((size_t)256 << 10) /* bytes that are kept for the next response */

struct rls_arena_piece;

struct rls_arena {
    uint8_t *block;
    size_t size, used;
    struct rls_arena_piece *pieces; /* pieces that did not fit the block */
    size_t taken, max;              /* since begin; more than max fails */
};

/* Zeroed is empty. Frees all pieces. False: no memory. */
bool rls_arena_begin(struct rls_arena *arena, size_t max);
/* Aligned for every type, not zeroed. NULL: more than max, or no memory. */
void *rls_arena_take(struct rls_arena *arena, size_t size);
void rls_arena_deinit(struct rls_arena *arena);

#endif
