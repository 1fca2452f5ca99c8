/* SPDX-License-Identifier: MIT */
/*
 * The tree of entries, flat: every place of it is found by the place above, its key and its value
 * in one hash table. A place is one cache line where its key and value are short, so that a step
 * down costs the same however many values there are: a slot of the table, and the line.
 */
#ifndef STINT_RULES_PLACES_H
#define STINT_RULES_PLACES_H

#include "base/siphash.h"
#include "base/span.h"

#include <stdbool.h>

#define PLACE_SIZE 64
#define PLACE_NONE 0 /* no place has this number */
#define RULE_NONE UINT32_MAX

enum place_kind {
    PLACE_DOMAIN = 1, /* its key is the name; above it is PLACE_NONE */
    PLACE_BARE,       /* a key without a value, and what holds the wildcards of the key together */
    PLACE_EXACT,
    PLACE_WILDCARD,
};

struct place {
    uint64_t id;   /* of the rule */
    uint32_t rule; /* its index; RULE_NONE where no limit stands here */
    uint32_t above;
    uint32_t wildcard;      /* bare: the first of the key, wildcard: the next; or PLACE_NONE */
    uint32_t last_wildcard; /* bare */
    uint32_t file, line;    /* where it stands; the file's number */
    uint16_t key_len, value_len;
    uint8_t kind;   /* enum place_kind */
    bool is_entry;  /* of a file; a bare place may only hold wildcards together */
    bool has_below; /* entries below it */
    bool is_shared; /* share_threshold */
    uint8_t text[]; /* the key, then the value */
};

struct place_slot;

/* Zeroed is empty, but for the secret. */
struct places {
    uint64_t secret[2];
    uint8_t *lines; /* PLACE_SIZE bytes each; a place's number is that of its first line */
    uint32_t n_lines, lines_max;
    struct place_slot *slots;
    uint32_t n_slots, n_places; /* n_slots is a power of two, or 0 */
    size_t value_max;           /* no exact value is longer */
};

/* What a place is looked for by. Keys and values have at most UINT16_MAX bytes. */
struct place_name {
    uint32_t above;
    enum place_kind kind;
    struct span key, value; /* no value: domains and bare places */
};

static inline struct place *places_at(const struct places *places, uint32_t number)
{
    return (struct place *)(void *)(places->lines + (size_t)number * PLACE_SIZE);
}

static inline struct span place_key(const struct place *place)
{
    return span_of(place->text, place->key_len);
}

static inline struct span place_value(const struct place *place)
{
    return span_of(place->text + place->key_len, place->value_len);
}

/* The hash that all names of one key at one level begin with. */
struct hash128 places_hash_key(const struct places *places, uint32_t above, struct span key);
/* The number of a place, or PLACE_NONE. `key_hash` is of places_hash_key(). */
uint32_t places_find(const struct places *places, struct hash128 key_hash,
                     const struct place_name *name);
/*
 * Makes a place that is not there yet: PLACE_NONE where memory does not suffice. Places move: what
 * places_at() gave is valid until the next call.
 */
uint32_t places_add(struct places *places, const struct place_name *name);
/* All places in the order in which they were made: the first comes after PLACE_NONE. */
uint32_t places_next(const struct places *places, uint32_t number);
void places_free(struct places *places);

#endif
