/* SPDX-License-Identifier: MIT */
/* Memory that is taken piece by piece and given back as a whole. */
#ifndef STINT_RULES_ARENA_H
#define STINT_RULES_ARENA_H

#include "base/span.h"

struct arena_chunk;

/* Zeroed is empty. */
struct arena {
    struct arena_chunk *chunks;
    size_t left; /* bytes not yet taken in the newest chunk */
};

/* Zeroed memory, aligned for every type; NULL where there is none. */
void *arena_take(struct arena *arena, size_t size);
/* A copy with a terminator behind it. */
char *arena_text(struct arena *arena, struct span text);
void arena_free(struct arena *arena);

#endif
