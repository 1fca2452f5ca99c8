/* SPDX-License-Identifier: MIT */
/* Walks down the tree of entries, one step for each entry of a descriptor. */
#include "rules/rules_parts.h"
#include "rules/wildcard.h"

#include "base/err.h"

#include <assert.h>

#define LENGTH_SIZE 4 /* bytes of a length in a key */

static uint32_t find_domain(const struct places *places, struct span domain)
{
    const struct place_name name = {TRIE_NONE, TRIE_DOMAIN, domain};
    return trie_find(places, &name);
}

size_t rules_find_domain(const struct rules *rules, struct span domain)
{
    uint32_t number = find_domain(&rules->places, domain);
    return number != TRIE_NONE ? trie_at(&rules->places, number)->rule : SIZE_MAX;
}

static uint32_t find_wildcard(const struct places *places, uint32_t key, struct span value)
{
    uint32_t last = trie_at(places, key)->wildcard, at = last;
    if (last == TRIE_NONE)
        return TRIE_NONE;
    do {
        at = trie_at(places, at)->wildcard;
        if (wildcard_matches(place_text(trie_at(places, at)), value))
            return at;
    } while (at != last);
    return TRIE_NONE;
}

/* The exact value, then wildcards in the order of the file, then the bare key. */
static uint32_t step(const struct places *places, uint32_t above,
                     const struct descriptor_entry *entry)
{
    const struct place_name key_name = {above, TRIE_KEY, entry->key};
    uint32_t key = trie_find(places, &key_name);
    if (key == TRIE_NONE)
        return TRIE_NONE;
    const struct place_name value_name = {key, TRIE_VALUE, entry->value};
    uint32_t found = trie_find(places, &value_name);
    if (found == TRIE_NONE)
        found = find_wildcard(places, key, entry->value);
    if (found != TRIE_NONE)
        return found;
    return trie_at(places, key)->is_entry ? key : TRIE_NONE;
}

/* Big-endian, so that a key is the same wherever it is made; compilers make one store of these. */
static inline void write_u32(uint8_t *at, uint32_t number)
{
    at[0] = (uint8_t)(number >> 24);
    at[1] = (uint8_t)(number >> 16);
    at[2] = (uint8_t)(number >> 8);
    at[3] = (uint8_t)number;
}

static inline void write_u64(uint8_t *at, uint64_t number)
{
    write_u32(at, (uint32_t)(number >> 32));
    write_u32(at + 4, (uint32_t)number);
}

/* The trie nodes that a descriptor's entries matched. */
struct path {
    const struct place *places[ENTRIES_MAX];
};

/* The key's text for an entry: its value, or the pattern that all matching ones share. */
static struct span counted_value(const struct path *path, const struct descriptor *descriptor,
                                 size_t i)
{
    const struct place *place = path->places[i];
    return place->is_shared ? place_text(place) : descriptor->entries[i].value;
}

static size_t key_length(const struct path *path, const struct descriptor *descriptor)
{
    size_t len = sizeof(uint64_t);
    for (size_t i = 0; i < descriptor->n_entries; i++)
        len += LENGTH_SIZE + counted_value(path, descriptor, i).len;
    return len;
}

static void write_key(uint8_t *key, const struct path *path, const struct descriptor *descriptor)
{
    write_u64(key, path->places[descriptor->n_entries - 1]->id);
    key += sizeof(uint64_t);
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        struct span value = counted_value(path, descriptor, i);
        write_u32(key, (uint32_t)value.len);
        key += LENGTH_SIZE;
        if (value.len > 0)
            memcpy(key, value.ptr, value.len);
        key += value.len;
    }
}

/* The walk ends at the first entry without a match: a level that did match is final. */
static bool walk(const struct places *places, uint32_t domain, const struct descriptor *descriptor,
                 struct path *path)
{
    uint32_t at = domain;
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        if (!trie_at(places, at)->has_below)
            return false;
        at = step(places, at, &descriptor->entries[i]);
        if (at == TRIE_NONE)
            return false;
        path->places[i] = trie_at(places, at);
    }
    return trie_at(places, at)->rule != RULE_NONE;
}

int rules_match(const struct rules *rules, struct span domain, const struct descriptor *descriptor,
                uint8_t *key, size_t key_size, struct rule_match *match, struct stint_error *error)
{
    struct path path;
    assert(descriptor->n_entries > 0 && descriptor->n_entries <= ENTRIES_MAX);
    *match = (struct rule_match){0};
    uint32_t at = find_domain(&rules->places, domain);
    if (at == TRIE_NONE || !walk(&rules->places, at, descriptor, &path))
        return STINT_OK;
    size_t key_len = key_length(&path, descriptor);
    if (key_len > key_size)
        return err_set(error, STINT_E_RANGE,
                       "the values of a descriptor need a key of %zu bytes; it has at most %zu",
                       key_len, key_size);
    write_key(key, &path, descriptor);
    match->rule = &rules->rules[path.places[descriptor->n_entries - 1]->rule];
    match->key_len = key_len;
    return STINT_OK;
}
