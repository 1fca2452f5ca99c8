/* SPDX-License-Identifier: MIT */
/* Open addressing, at most half full, so that few slots are looked at and those lie side by side.
 */
#include "rules/places.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#define SLOTS_MIN 16
#define LINES_MIN 16

struct place_slot {
    uint32_t tag;    /* bits of the hash that do not choose the slot */
    uint32_t number; /* of the place; PLACE_NONE: free */
};

struct hash128 places_hash_key(const struct places *places, uint32_t above, struct span key)
{
    return siphash13_128(places->secret, above, key.ptr, key.len);
}

/* The value goes on where the key ended; the kinds are kept apart by what they go on from. */
static struct hash128 hash_name(const struct places *places, struct hash128 key_hash,
                                const struct place_name *name)
{
    if (name->kind != PLACE_EXACT && name->kind != PLACE_WILDCARD)
        return key_hash;
    uint64_t tweak = name->kind == PLACE_EXACT ? key_hash.lo : key_hash.hi;
    return siphash13_128(places->secret, tweak, name->value.ptr, name->value.len);
}

static bool is_text(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static bool is_named(const struct place *place, const struct place_name *name)
{
    return place->kind == name->kind && place->above == name->above &&
           is_text(place_key(place), name->key) && is_text(place_value(place), name->value);
}

uint32_t places_find(const struct places *places, struct hash128 key_hash,
                     const struct place_name *name)
{
    if (places->n_slots == 0 || (name->kind == PLACE_EXACT && name->value.len > places->value_max))
        return PLACE_NONE;
    struct hash128 hash = hash_name(places, key_hash, name);
    uint32_t mask = places->n_slots - 1;
    for (uint32_t at = (uint32_t)hash.lo & mask;; at = (at + 1) & mask) {
        struct place_slot slot = places->slots[at];
        if (slot.number == PLACE_NONE)
            return PLACE_NONE;
        if (slot.tag == (uint32_t)hash.hi && is_named(places_at(places, slot.number), name))
            return slot.number;
    }
}

static void enter(struct places *places, struct hash128 hash, uint32_t number)
{
    uint32_t mask = places->n_slots - 1, at = (uint32_t)hash.lo & mask;
    while (places->slots[at].number != PLACE_NONE)
        at = (at + 1) & mask;
    places->slots[at] = (struct place_slot){(uint32_t)hash.hi, number};
}

static uint32_t lines_of(size_t text_len)
{
    return (uint32_t)((offsetof(struct place, text) + text_len + PLACE_SIZE - 1) / PLACE_SIZE);
}

uint32_t places_next(const struct places *places, uint32_t number)
{
    uint32_t next = 1;
    if (number != PLACE_NONE) {
        const struct place *place = places_at(places, number);
        next = number + lines_of((size_t)place->key_len + place->value_len);
    }
    return next < places->n_lines ? next : PLACE_NONE;
}

static struct hash128 hash_again(const struct places *places, const struct place *place)
{
    struct place_name name = {place->above, place->kind, place_key(place), place_value(place)};
    return hash_name(places, places_hash_key(places, name.above, name.key), &name);
}

static bool grow_slots(struct places *places)
{
    if (places->n_slots > UINT32_MAX / 2)
        return false;
    uint32_t n_slots = places->n_slots == 0 ? SLOTS_MIN : 2 * places->n_slots;
    struct place_slot *slots = calloc(n_slots, sizeof(*slots));
    if (slots == NULL)
        return false;
    free(places->slots);
    places->slots = slots;
    places->n_slots = n_slots;
    for (uint32_t number = places_next(places, PLACE_NONE); number != PLACE_NONE;
         number = places_next(places, number))
        enter(places, hash_again(places, places_at(places, number)), number);
    return true;
}

static bool grow_lines(struct places *places, uint32_t n_lines)
{
    uint64_t lines_max = places->lines_max == 0 ? LINES_MIN : places->lines_max;
    while (lines_max < (uint64_t)places->n_lines + n_lines)
        lines_max *= 2;
    uint8_t *lines =
        lines_max > UINT32_MAX ? NULL : aligned_alloc(PLACE_SIZE, lines_max * PLACE_SIZE);
    if (lines == NULL)
        return false;
    if (places->lines != NULL)
        memcpy(lines, places->lines, (size_t)places->n_lines * PLACE_SIZE);
    free(places->lines);
    places->lines = lines;
    places->lines_max = (uint32_t)lines_max;
    if (places->n_lines == 0)
        places->n_lines = 1; /* number 0 is PLACE_NONE */
    return true;
}

uint32_t places_add(struct places *places, const struct place_name *name)
{
    uint32_t n_lines = lines_of(name->key.len + name->value.len);
    assert(name->key.len <= UINT16_MAX && name->value.len <= UINT16_MAX);
    if (places->n_lines + (uint64_t)n_lines > places->lines_max && !grow_lines(places, n_lines))
        return PLACE_NONE;
    if (places->n_places >= places->n_slots / 2 && !grow_slots(places))
        return PLACE_NONE;
    uint32_t number = places->n_lines;
    struct place *place = places_at(places, number);
    memset(place, 0, (size_t)n_lines * PLACE_SIZE);
    place->kind = (uint8_t)name->kind;
    place->above = name->above;
    place->rule = RULE_NONE;
    place->key_len = (uint16_t)name->key.len;
    place->value_len = (uint16_t)name->value.len;
    memcpy(place->text, name->key.ptr, name->key.len);
    if (name->value.len > 0)
        memcpy(place->text + name->key.len, name->value.ptr, name->value.len);
    if (name->kind == PLACE_EXACT && name->value.len > places->value_max)
        places->value_max = name->value.len;
    places->n_lines += n_lines;
    places->n_places++;
    enter(places, hash_again(places, place), number);
    return number;
}

void places_free(struct places *places)
{
    free(places->lines);
    free(places->slots);
    *places = (struct places){0};
}
