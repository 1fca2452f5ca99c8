/* SPDX-License-Identifier: MIT */
/*
 * Open addressing. A slot has four bytes, so that the slots of 100,000 nodes fit in a processor's
 * second-level cache; only the node itself comes from memory. The slots of one search are adjacent.
 */
#define _GNU_SOURCE /* memmem */
#include "rules/trie.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#define SLOTS_MIN 16
#define UNITS_MIN 32
#define NUMBER_BITS 24
#define UNITS_MAX (1u << NUMBER_BITS)
#define ALIGNMENT 64

_Static_assert(offsetof(struct place, text) == 24, "a short text fits beside the fields of a node");

/* The number of a node, TRIE_NONE for a free slot, under hash bits that did not choose the slot. */
static uint32_t slot_of(struct hash128 hash, uint32_t number)
{
    return (uint32_t)(hash.hi << NUMBER_BITS) | number;
}

static uint32_t slot_number(uint32_t slot)
{
    return slot & (UNITS_MAX - 1);
}

/* Four fifths full at most: beyond that, searches for missing nodes grow long. */
static bool is_crowded(const struct places *places)
{
    return (uint64_t)places->n_places * 5 >= (uint64_t)places->n_slots * 4;
}

static struct hash128 hash_name(const struct places *places, const struct place_name *name)
{
    uint64_t tweak = (uint64_t)name->above << 8 | (uint8_t)name->kind;
    return siphash13_128(places->secret, tweak, name->text.ptr, name->text.len);
}

static struct place_name name_of(const struct place *place)
{
    return (struct place_name){place->above, place->kind, place_text(place)};
}

static bool is_named(const struct place *place, const struct place_name *name)
{
    return place->kind == name->kind && place->above == name->above &&
           place->text_len == name->text.len &&
           (name->text.len == 0 || memcmp(place->text, name->text.ptr, name->text.len) == 0);
}

uint32_t trie_find(const struct places *places, const struct place_name *name)
{
    if (places->n_slots == 0 || (name->kind == TRIE_VALUE && name->text.len > places->value_max))
        return TRIE_NONE;
    struct hash128 hash = hash_name(places, name);
    uint32_t mask = places->n_slots - 1;
    for (uint32_t at = (uint32_t)hash.lo & mask;; at = (at + 1) & mask) {
        uint32_t number = slot_number(places->slots[at]);
        if (number == TRIE_NONE)
            return TRIE_NONE;
        if (places->slots[at] == slot_of(hash, number) && is_named(trie_at(places, number), name))
            return number;
    }
}

static void enter(struct places *places, const struct place_name *name, uint32_t number)
{
    struct hash128 hash = hash_name(places, name);
    uint32_t mask = places->n_slots - 1, at = (uint32_t)hash.lo & mask;
    while (places->slots[at] != TRIE_NONE)
        at = (at + 1) & mask;
    places->slots[at] = slot_of(hash, number);
}

static uint32_t units_of(size_t text_len)
{
    return (uint32_t)((offsetof(struct place, text) + text_len + PLACE_SIZE - 1) / PLACE_SIZE);
}

uint32_t trie_next(const struct places *places, uint32_t number)
{
    uint32_t next = 1;
    if (number != TRIE_NONE)
        next = number + units_of(trie_at(places, number)->text_len);
    return next < places->n_units ? next : TRIE_NONE;
}

static bool grow_slots(struct places *places)
{
    uint32_t n_slots = places->n_slots == 0 ? SLOTS_MIN : 2 * places->n_slots;
    uint32_t *slots = calloc(n_slots, sizeof(*slots));
    if (slots == NULL)
        return false;
    free(places->slots);
    places->slots = slots;
    places->n_slots = n_slots;
    for (uint32_t number = trie_next(places, TRIE_NONE); number != TRIE_NONE;
         number = trie_next(places, number)) {
        struct place_name name = name_of(trie_at(places, number));
        enter(places, &name, number);
    }
    return true;
}

static bool grow_units(struct places *places, uint32_t n_more)
{
    uint64_t units_max = places->units_max == 0 ? UNITS_MIN : places->units_max;
    while (units_max < (uint64_t)places->n_units + n_more + 1)
        units_max *= 2;
    uint8_t *units =
        units_max > UNITS_MAX ? NULL : aligned_alloc(ALIGNMENT, units_max * PLACE_SIZE);
    if (units == NULL)
        return false;
    if (places->units != NULL)
        memcpy(units, places->units, (size_t)places->n_units * PLACE_SIZE);
    free(places->units);
    places->units = units;
    places->units_max = (uint32_t)units_max;
    if (places->n_units == 0)
        places->n_units = 1; /* number 0 is TRIE_NONE */
    return true;
}

static void write_place(struct places *places, uint32_t number, const struct place_name *name)
{
    struct place *place = trie_at(places, number);
    memset(place, 0, (size_t)units_of(name->text.len) * PLACE_SIZE);
    place->kind = (uint8_t)name->kind;
    place->above = name->above;
    place->rule = RULE_NONE;
    place->text_len = (uint16_t)name->text.len;
    if (name->text.len > 0)
        memcpy(place->text, name->text.ptr, name->text.len);
}

uint32_t trie_add(struct places *places, const struct place_name *name)
{
    uint32_t n_units = units_of(name->text.len);
    assert(name->text.len <= UINT16_MAX);
    if (places->n_units + n_units > places->units_max && !grow_units(places, n_units))
        return TRIE_NONE;
    if (is_crowded(places) && !grow_slots(places))
        return TRIE_NONE;
    uint32_t number = places->n_units;
    write_place(places, number, name);
    if (name->kind == TRIE_VALUE && name->text.len > places->value_max)
        places->value_max = name->text.len;
    places->n_units += n_units;
    places->n_places++;
    enter(places, name, number);
    return number;
}

void trie_free(struct places *places)
{
    free(places->units);
    free(places->slots);
    *places = (struct places){0};
}

/* ---- Patterns -------------------------------------------------------------------------------- */

/*
 * The text before the first `*` must begin the value, the text after the last must end it. Each
 * piece between them matches at its first occurrence: a later one would leave less for the next
 * pieces. So there is no backtracking, and the time grows linearly with text and pattern.
 */

static const uint8_t *star_in(struct span pattern)
{
    return pattern.len == 0 ? NULL : memchr(pattern.ptr, '*', pattern.len);
}

bool wildcard_is(struct span pattern)
{
    return star_in(pattern) != NULL;
}

static bool is_at(const uint8_t *text, struct span piece)
{
    return piece.len == 0 || memcmp(text, piece.ptr, piece.len) == 0;
}

static struct span without(struct span text, size_t len)
{
    return span_of(text.ptr + len, text.len - len);
}

/* Finds the piece and returns what follows it; false if it is missing. */
static bool skip_to_piece(struct span *text, struct span piece)
{
    if (piece.len == 0)
        return true;
    if (piece.len > text->len)
        return false;
    const uint8_t *at = memmem(text->ptr, text->len, piece.ptr, piece.len);
    if (at == NULL)
        return false;
    *text = without(*text, (size_t)(at - text->ptr) + piece.len);
    return true;
}

bool wildcard_matches(struct span pattern, struct span text)
{
    const uint8_t *star = star_in(pattern);
    if (star == NULL)
        return text.len == pattern.len && is_at(text.ptr, pattern);
    struct span begin = span_of(pattern.ptr, (size_t)(star - pattern.ptr));
    if (begin.len > text.len || !is_at(text.ptr, begin))
        return false;
    text = without(text, begin.len);
    for (pattern = without(pattern, begin.len + 1); (star = star_in(pattern)) != NULL;) {
        struct span piece = span_of(pattern.ptr, (size_t)(star - pattern.ptr));
        if (!skip_to_piece(&text, piece))
            return false;
        pattern = without(pattern, piece.len + 1);
    }
    return pattern.len <= text.len && is_at(text.ptr + (text.len - pattern.len), pattern);
}
