/* SPDX-License-Identifier: MIT */
/*
 * Open addressing. A slot has four bytes, so that the slots of 100,000 places stay in a processor's
 * second cache, and what is fetched from afar is the place alone.
 *
 * A value is put where its text alone says, if there is a free slot nearby: so its place can be
 * fetched while the key above it is still looked for. All else, and values whose text too many
 * others have, stands where the text and what is above it say.
 */
#include "rules/places.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#define SLOTS_MIN 16
#define UNITS_MIN 32
#define UNITS_MAX (1u << PLACES_NUMBER_BITS)
#define ALIGNMENT 64

_Static_assert(offsetof(struct place, text) == 24, "a short text fits beside what is of a place");

/* Four fifths full at most: beyond, searches for what is not there grow long. */
static bool is_crowded(const struct places *places)
{
    return (uint64_t)places->n_places * 5 >= (uint64_t)places->n_slots * 4;
}

struct hash128 places_hash(const struct places *places, enum place_kind kind, struct span text)
{
    return siphash13_128(places->secret, (uint64_t)kind, text.ptr, text.len);
}

/* The hash, which is secret, with what is above. */
static uint64_t mix(struct hash128 hash, uint32_t above)
{
    uint64_t mixed =
        (hash.hi ^ above * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    return mixed ^ mixed >> 32;
}

/* The number of a place, PLACE_NONE for a free slot, under four bits of either hash. */
static uint32_t slot_of(struct hash128 hash, uint64_t mixed, uint32_t number)
{
    uint32_t tag = places_text_tag(hash) << 4 | (uint32_t)(mixed >> 60);
    return tag << PLACES_NUMBER_BITS | number;
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

/* What is found in the n slots from `at` on, before the first that is free. */
struct look {
    uint32_t number; /* PLACE_NONE: not there */
    bool met_free;
};

static struct look look(const struct places *places, const struct place_name *name, uint32_t tag,
                        uint32_t at, uint32_t n)
{
    uint32_t mask = places->n_slots - 1;
    for (; n > 0; n--, at++) {
        uint32_t slot = places->slots[at & mask], number = places_slot_number(slot);
        if (number == PLACE_NONE)
            return (struct look){PLACE_NONE, true};
        if (slot == (tag | number) && is_named(places_at(places, number), name))
            return (struct look){number, false};
    }
    return (struct look){PLACE_NONE, false};
}

uint32_t places_find_hashed(const struct places *places, const struct place_name *name,
                            struct hash128 hash)
{
    if (places->n_slots == 0 || (name->kind == PLACE_VALUE && name->text.len > places->value_max))
        return PLACE_NONE;
    uint64_t mixed = mix(hash, name->above);
    uint32_t tag = slot_of(hash, mixed, PLACE_NONE);
    struct look found = {PLACE_NONE, false};
    if (name->kind == PLACE_VALUE)
        found = look(places, name, tag, (uint32_t)hash.lo, PLACES_NEAR);
    /* Nothing goes elsewhere while a slot nearby is free, and none gets free. */
    if (found.number == PLACE_NONE && !found.met_free)
        found = look(places, name, tag, (uint32_t)mixed, places->n_slots);
    return found.number;
}

uint32_t places_find(const struct places *places, const struct place_name *name)
{
    return places_find_hashed(places, name, places_hash(places, name->kind, name->text));
}

/* The first of the n slots from `at` on that is free; NULL: none of them. */
static uint32_t *find_free(struct places *places, uint32_t at, uint32_t n)
{
    uint32_t mask = places->n_slots - 1;
    for (; n > 0; n--, at++)
        if (places->slots[at & mask] == PLACE_NONE)
            return &places->slots[at & mask];
    return NULL;
}

static void enter(struct places *places, const struct place_name *name, uint32_t number)
{
    struct hash128 hash = places_hash(places, name->kind, name->text);
    uint64_t mixed = mix(hash, name->above);
    uint32_t *slot = NULL;
    if (name->kind == PLACE_VALUE)
        slot = find_free(places, (uint32_t)hash.lo, PLACES_NEAR);
    if (slot == NULL)
        slot = find_free(places, (uint32_t)mixed, places->n_slots);
    assert(slot != NULL);
    *slot = slot_of(hash, mixed, number);
}

static uint32_t units_of(size_t text_len)
{
    return (uint32_t)((offsetof(struct place, text) + text_len + PLACE_SIZE - 1) / PLACE_SIZE);
}

uint32_t places_next(const struct places *places, uint32_t number)
{
    uint32_t next = 1;
    if (number != PLACE_NONE)
        next = number + units_of(places_at(places, number)->text_len);
    return next < places->n_units ? next : PLACE_NONE;
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
    for (uint32_t number = places_next(places, PLACE_NONE); number != PLACE_NONE;
         number = places_next(places, number)) {
        struct place_name name = name_of(places_at(places, number));
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
        places->n_units = 1; /* number 0 is PLACE_NONE */
    return true;
}

static void write_place(struct places *places, uint32_t number, const struct place_name *name)
{
    struct place *place = places_at(places, number);
    memset(place, 0, (size_t)units_of(name->text.len) * PLACE_SIZE);
    place->kind = (uint8_t)name->kind;
    place->above = name->above;
    place->rule = RULE_NONE;
    place->text_len = (uint16_t)name->text.len;
    if (name->text.len > 0)
        memcpy(place->text, name->text.ptr, name->text.len);
}

uint32_t places_add(struct places *places, const struct place_name *name)
{
    uint32_t n_units = units_of(name->text.len);
    assert(name->text.len <= UINT16_MAX);
    if (places->n_units + n_units > places->units_max && !grow_units(places, n_units))
        return PLACE_NONE;
    if (is_crowded(places) && !grow_slots(places))
        return PLACE_NONE;
    uint32_t number = places->n_units;
    write_place(places, number, name);
    if (name->kind == PLACE_VALUE && name->text.len > places->value_max)
        places->value_max = name->text.len;
    places->n_units += n_units;
    places->n_places++;
    enter(places, name, number);
    return number;
}

void places_free(struct places *places)
{
    free(places->units);
    free(places->slots);
    *places = (struct places){0};
}
