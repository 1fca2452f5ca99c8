/* SPDX-License-Identifier: MIT */
/*
 * Gives each different key a number, 0, 1, 2 …, and keeps its bytes. Memory grows with the number
 * of keys and their length; only reports need it, the limiter does not.
 */
#ifndef STINT_SIM_JUDGE_KEY_SET_H
#define STINT_SIM_JUDGE_KEY_SET_H

#include "base/err.h"
#include "base/span.h"

#define KEY_SET_MAX UINT32_C(0x7fffffff)

struct key_set_place {
    uint32_t tag;      /* half of the key's hash */
    uint32_t number_1; /* the key's number plus one; 0 = a free slot */
};

struct key_set {
    uint64_t secret[2];
    struct key_set_place *places;
    size_t n_places; /* a power of two */
    struct span *names;
    uint32_t n_keys, names_size;
    uint8_t **chunks; /* where the bytes of the names are */
    size_t n_chunks, chunks_size, chunk_left;
    uint8_t *chunk_next;
};

/* `secret` should be random, so that the writer of a log cannot choose keys that collide. */
void key_set_init(struct key_set *set, const uint64_t secret[2]);
void key_set_deinit(struct key_set *set);

/* Finds the key's number, or gives it the next one. 0 or a negative code. */
int key_set_add(struct key_set *set, struct span key, uint32_t *number, struct stint_error *error);

/* Borrowed until key_set_deinit(). */
struct span key_set_name(const struct key_set *set, uint32_t number);

#endif
