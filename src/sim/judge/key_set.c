/* SPDX-License-Identifier: MIT */
/* Open addressing with linear probing at no more than half fill; bytes are in large chunks. */
#include "sim/judge/key_set.h"

#include "base/siphash.h"

#include <assert.h>
#include <stdlib.h>

#define PLACES_FIRST 1024u
#define CHUNK_SIZE (1024u * 1024u)

void key_set_init(struct key_set *set, const uint64_t secret[2])
{
    *set = (struct key_set){.secret = {secret[0], secret[1]}};
}

void key_set_deinit(struct key_set *set)
{
    for (size_t i = 0; i < set->n_chunks; i++)
        free(set->chunks[i]);
    free(set->chunks);
    free(set->names);
    free(set->places);
    *set = (struct key_set){0};
}

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "out of memory for the names of the keys");
}

/* A tag holds the hash bits that choose among up to 2^32 slots, so growing hashes nothing. */
static void put(struct key_set_place *places, size_t n_places, struct key_set_place entry)
{
    size_t at = entry.tag & (n_places - 1);
    while (places[at].number_1 != 0)
        at = (at + 1) & (n_places - 1);
    places[at] = entry;
}

static int grow_places(struct key_set *set, struct stint_error *error)
{
    size_t n_places = set->n_places == 0 ? PLACES_FIRST : set->n_places * 2;
    struct key_set_place *places = calloc(n_places, sizeof(*places));
    if (places == NULL)
        return no_memory(error);
    for (size_t i = 0; i < set->n_places; i++)
        if (set->places[i].number_1 != 0)
            put(places, n_places, set->places[i]);
    free(set->places);
    set->places = places;
    set->n_places = n_places;
    return 0;
}

static int grow_names(struct key_set *set, struct stint_error *error)
{
    uint32_t size = set->names_size == 0 ? PLACES_FIRST : set->names_size * 2;
    struct span *names = realloc(set->names, size * sizeof(*names));
    if (names == NULL)
        return no_memory(error);
    set->names = names;
    set->names_size = size;
    return 0;
}

/* Begins a chunk; a key that is longer than a chunk gets one of its own size. */
static int grow_chunks(struct key_set *set, size_t len, struct stint_error *error)
{
    if (set->n_chunks == set->chunks_size) {
        size_t size = set->chunks_size == 0 ? 16 : set->chunks_size * 2;
        uint8_t **chunks = realloc(set->chunks, size * sizeof(*chunks));
        if (chunks == NULL)
            return no_memory(error);
        set->chunks = chunks;
        set->chunks_size = size;
    }
    size_t chunk_size = len > CHUNK_SIZE ? len : CHUNK_SIZE;
    uint8_t *chunk = malloc(chunk_size);
    if (chunk == NULL)
        return no_memory(error);
    set->chunks[set->n_chunks++] = chunk;
    set->chunk_next = chunk;
    set->chunk_left = chunk_size;
    return 0;
}

static int add_new(struct key_set *set, struct span key, uint32_t tag, struct stint_error *error)
{
    int code = 0;
    if (set->n_keys == KEY_SET_MAX)
        return err_set(error, STINT_E_FULL, "more than %u different keys", KEY_SET_MAX);
    if (set->n_keys == set->names_size)
        code = grow_names(set, error);
    if (code == 0 && key.len > set->chunk_left)
        code = grow_chunks(set, key.len, error);
    if (code != 0)
        return code;
    if (key.len > 0)
        memcpy(set->chunk_next, key.ptr, key.len);
    set->names[set->n_keys++] = span_of(set->chunk_next, key.len);
    if (key.len > 0) {
        set->chunk_next += key.len;
        set->chunk_left -= key.len;
    }
    put(set->places, set->n_places, (struct key_set_place){tag, set->n_keys});
    return 0;
}

int key_set_add(struct key_set *set, struct span key, uint32_t *number, struct stint_error *error)
{
    if ((size_t)set->n_keys * 2 >= set->n_places) {
        int code = grow_places(set, error);
        if (code != 0)
            return code;
    }
    uint32_t tag = (uint32_t)siphash13_128(set->secret, 0, key.ptr, key.len).lo;
    size_t mask = set->n_places - 1;
    for (size_t at = tag & mask; set->places[at].number_1 != 0; at = (at + 1) & mask) {
        uint32_t candidate = set->places[at].number_1 - 1;
        if (set->places[at].tag == tag && set->names[candidate].len == key.len &&
            memcmp(set->names[candidate].ptr, key.ptr, key.len) == 0) {
            *number = candidate;
            return 0;
        }
    }
    *number = set->n_keys;
    return add_new(set, key, tag, error);
}

struct span key_set_name(const struct key_set *set, uint32_t number)
{
    assert(number < set->n_keys);
    return set->names[number];
}
