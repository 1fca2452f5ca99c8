/* SPDX-License-Identifier: MIT */
/* One block, and separate pieces where it is too small; the next block is as large as both. */
#include "proto/grpc/rls_arena.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>

#define BLOCK_FIRST ((size_t)16 << 10)
#define ALIGNMENT alignof(max_align_t)

struct rls_arena_piece {
    struct rls_arena_piece *next;
    alignas(max_align_t) uint8_t bytes[];
};

static void free_pieces(struct rls_arena *arena)
{
    while (arena->pieces != NULL) {
        struct rls_arena_piece *next = arena->pieces->next;
        free(arena->pieces);
        arena->pieces = next;
    }
}

static bool block_of(struct rls_arena *arena, size_t size)
{
    free(arena->block);
    arena->block = malloc(size);
    arena->size = arena->block != NULL ? size : 0;
    return arena->block != NULL;
}

bool rls_arena_begin(struct rls_arena *arena, size_t max)
{
    size_t needed = arena->pieces != NULL ? arena->taken : 0;
    free_pieces(arena);
    arena->used = 0;
    arena->taken = 0;
    arena->max = max;
    if (arena->block == NULL)
        return block_of(arena, BLOCK_FIRST);
    return needed <= arena->size || needed > RLS_ARENA_KEPT || block_of(arena, needed);
}

void *rls_arena_take(struct rls_arena *arena, size_t size)
{
    size_t left = arena->max - arena->taken;
    size_t space = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (space < size || space > left)
        return NULL;
    if (space <= arena->size - arena->used) {
        void *bytes = arena->block + arena->used;
        arena->used += space;
        arena->taken += space;
        return bytes;
    }
    struct rls_arena_piece *piece = malloc(sizeof(*piece) + space);
    if (piece == NULL)
        return NULL;
    piece->next = arena->pieces;
    arena->pieces = piece;
    arena->taken += space;
    return piece->bytes;
}

void rls_arena_deinit(struct rls_arena *arena)
{
    free_pieces(arena);
    free(arena->block);
    *arena = (struct rls_arena){0};
}
