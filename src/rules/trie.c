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

_Static_assert(offsetof(struct trie_node, text) == 24,
               "a short text fits beside the fields of a node");

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
static bool is_crowded(const struct trie *trie)
{
    return (uint64_t)trie->n_nodes * 5 >= (uint64_t)trie->n_slots * 4;
}

static struct hash128 hash_name(const struct trie *trie, const struct trie_name *name)
{
    uint64_t tweak = (uint64_t)name->above << 8 | (uint8_t)name->kind;
    return siphash13_128(trie->secret, tweak, name->text.ptr, name->text.len);
}

static struct trie_name name_of(const struct trie_node *node)
{
    return (struct trie_name){node->above, node->kind, trie_text(node)};
}

static bool is_named(const struct trie_node *node, const struct trie_name *name)
{
    return node->kind == name->kind && node->above == name->above &&
           node->text_len == name->text.len &&
           (name->text.len == 0 || memcmp(node->text, name->text.ptr, name->text.len) == 0);
}

uint32_t trie_find(const struct trie *trie, const struct trie_name *name)
{
    if (trie->n_slots == 0 || (name->kind == TRIE_VALUE && name->text.len > trie->value_max))
        return TRIE_NONE;
    struct hash128 hash = hash_name(trie, name);
    uint32_t mask = trie->n_slots - 1;
    for (uint32_t at = (uint32_t)hash.lo & mask;; at = (at + 1) & mask) {
        uint32_t number = slot_number(trie->slots[at]);
        if (number == TRIE_NONE)
            return TRIE_NONE;
        if (trie->slots[at] == slot_of(hash, number) && is_named(trie_at(trie, number), name))
            return number;
    }
}

static void enter(struct trie *trie, const struct trie_name *name, uint32_t number)
{
    struct hash128 hash = hash_name(trie, name);
    uint32_t mask = trie->n_slots - 1, at = (uint32_t)hash.lo & mask;
    while (trie->slots[at] != TRIE_NONE)
        at = (at + 1) & mask;
    trie->slots[at] = slot_of(hash, number);
}

static uint32_t units_of(size_t text_len)
{
    return (uint32_t)((offsetof(struct trie_node, text) + text_len + TRIE_UNIT_SIZE - 1) /
                      TRIE_UNIT_SIZE);
}

uint32_t trie_next(const struct trie *trie, uint32_t number)
{
    uint32_t next = 1;
    if (number != TRIE_NONE)
        next = number + units_of(trie_at(trie, number)->text_len);
    return next < trie->n_units ? next : TRIE_NONE;
}

static bool grow_slots(struct trie *trie)
{
    uint32_t n_slots = trie->n_slots == 0 ? SLOTS_MIN : 2 * trie->n_slots;
    uint32_t *slots = calloc(n_slots, sizeof(*slots));
    if (slots == NULL)
        return false;
    free(trie->slots);
    trie->slots = slots;
    trie->n_slots = n_slots;
    for (uint32_t number = trie_next(trie, TRIE_NONE); number != TRIE_NONE;
         number = trie_next(trie, number)) {
        struct trie_name name = name_of(trie_at(trie, number));
        enter(trie, &name, number);
    }
    return true;
}

static bool grow_units(struct trie *trie, uint32_t n_more)
{
    uint64_t units_max = trie->units_max == 0 ? UNITS_MIN : trie->units_max;
    while (units_max < (uint64_t)trie->n_units + n_more + 1)
        units_max *= 2;
    uint8_t *units =
        units_max > UNITS_MAX ? NULL : aligned_alloc(ALIGNMENT, units_max * TRIE_UNIT_SIZE);
    if (units == NULL)
        return false;
    if (trie->units != NULL)
        memcpy(units, trie->units, (size_t)trie->n_units * TRIE_UNIT_SIZE);
    free(trie->units);
    trie->units = units;
    trie->units_max = (uint32_t)units_max;
    if (trie->n_units == 0)
        trie->n_units = 1; /* number 0 is TRIE_NONE */
    return true;
}

static void write_place(struct trie *trie, uint32_t number, const struct trie_name *name)
{
    struct trie_node *node = trie_at(trie, number);
    memset(node, 0, (size_t)units_of(name->text.len) * TRIE_UNIT_SIZE);
    node->kind = (uint8_t)name->kind;
    node->above = name->above;
    node->rule = RULE_NONE;
    node->text_len = (uint16_t)name->text.len;
    if (name->text.len > 0)
        memcpy(node->text, name->text.ptr, name->text.len);
}

uint32_t trie_add(struct trie *trie, const struct trie_name *name)
{
    uint32_t n_units = units_of(name->text.len);
    assert(name->text.len <= UINT16_MAX);
    if (trie->n_units + n_units > trie->units_max && !grow_units(trie, n_units))
        return TRIE_NONE;
    if (is_crowded(trie) && !grow_slots(trie))
        return TRIE_NONE;
    uint32_t number = trie->n_units;
    write_place(trie, number, name);
    if (name->kind == TRIE_VALUE && name->text.len > trie->value_max)
        trie->value_max = name->text.len;
    trie->n_units += n_units;
    trie->n_nodes++;
    enter(trie, name, number);
    return number;
}

void trie_free(struct trie *trie)
{
    free(trie->units);
    free(trie->slots);
    *trie = (struct trie){0};
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
