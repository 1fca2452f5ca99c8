/* SPDX-License-Identifier: MIT */
/* Memory that is allocated piece by piece and freed as a whole. */
#ifndef STINT_RULES_ARENA_H
#define STINT_RULES_ARENA_H

#include "base/span.h"

struct arena_chunk;

/* Zeroed is empty. */
struct arena {
    struct arena_chunk *chunks;
    size_t left; /* bytes not yet taken in the newest chunk */
};

/* Zeroed memory, aligned for every type; NULL: no memory. */
void *arena_take(struct arena *arena, size_t size);
/* A copy with a zero byte at its end. */
char *arena_text(struct arena *arena, struct span text);
void arena_free(struct arena *arena);

#endif
