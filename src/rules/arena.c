/* SPDX-License-Identifier: MIT */
/* Chunks grow with the total so far, so that large sets need few of them. */
#include "rules/arena.h"

#include <stdalign.h>
#include <stdlib.h>

#define CHUNK_MIN 4096
#define CHUNK_MAX ((size_t)1 << 20)
#define ALIGNMENT alignof(max_align_t)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size;
    alignas(max_align_t) uint8_t bytes[];
};

static size_t size_of_next(const struct arena *arena, size_t size)
{
    size_t next = arena->chunks == NULL ? CHUNK_MIN : 2 * arena->chunks->size;
    if (next > CHUNK_MAX)
        next = CHUNK_MAX;
    return next < size ? size : next;
}

void *arena_take(struct arena *arena, size_t size)
{
    if (size > SIZE_MAX / 4)
        return NULL;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (arena->chunks == NULL || size > arena->left) {
        size_t chunk_size = size_of_next(arena, size);
        struct arena_chunk *chunk = calloc(1, sizeof(*chunk) + chunk_size);
        if (chunk == NULL)
            return NULL;
        chunk->next = arena->chunks;
        chunk->size = chunk_size;
        arena->chunks = chunk;
        arena->left = chunk_size;
    }
    struct arena_chunk *chunk = arena->chunks;
    void *taken = chunk->bytes + (chunk->size - arena->left);
    arena->left -= size;
    return taken;
}

char *arena_text(struct arena *arena, struct span text)
{
    char *copy = arena_take(arena, text.len + 1);
    if (copy != NULL && text.len > 0)
        memcpy(copy, text.ptr, text.len);
    return copy;
}

void arena_free(struct arena *arena)
{
    while (arena->chunks != NULL) {
        struct arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
    arena->left = 0;
}
