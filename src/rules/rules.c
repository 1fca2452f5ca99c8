/* SPDX-License-Identifier: MIT */
/* A set of rules: its references, and the match. */
#include "rules/rules_make.h"

#include "algorithm/gcra.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/ns.h"

#include <assert.h>
#include <stdlib.h>

#define LENGTH_SIZE 4 /* bytes of a length in a key */

struct rules *rules_ref(struct rules *rules)
{
    /* The caller holds a reference, so relaxed order suffices. */
    atomic_fetch_add_explicit(&rules->references, 1, memory_order_relaxed);
    return rules;
}

void rules_unref(struct rules *rules)
{
    /* Release: this thread's reads come before another thread frees. Acquire: for that thread. */
    if (rules == NULL || atomic_fetch_sub_explicit(&rules->references, 1, memory_order_acq_rel) > 1)
        return;
    trie_free(&rules->trie);
    arena_free(&rules->texts);
    free(rules->domains);
    free(rules->rules);
    free(rules);
}

size_t rules_count(const struct rules *rules)
{
    return rules->n_rules;
}

const struct rule *rules_at(const struct rules *rules, size_t index)
{
    return index < rules->n_rules ? &rules->rules[index] : NULL;
}

const char *rules_domain(const struct rules *rules, size_t index)
{
    return index < rules->n_domains ? rules->domains[index] : NULL;
}

size_t rules_n_domains(const struct rules *rules)
{
    return rules->n_domains;
}

uint8_t rules_default_algorithm(const struct rules *rules)
{
    return rules->default_algorithm;
}

struct rule_position rule_position(const struct rule *rule)
{
    struct rule_position position = {""};
    struct buf text = buf_of(position.text, sizeof(position.text));
    buf_add(&text, "%s", rule->file);
    if (rule->line > 0)
        buf_add(&text, ":%u", (unsigned)rule->line);
    return position;
}

uint64_t rule_unit_ns(int unit)
{
    static const uint64_t lengths_ns[RULE_WEEK + 1] = {
        [RULE_SECOND] = NS_PER_S,  [RULE_MINUTE] = NS_PER_MIN,     [RULE_HOUR] = NS_PER_HOUR,
        [RULE_DAY] = NS_PER_DAY,   [RULE_MONTH] = 30 * NS_PER_DAY, [RULE_YEAR] = NS_PER_YEAR,
        [RULE_WEEK] = NS_PER_WEEK,
    };
    return unit >= RULE_UNIT_NONE && unit <= RULE_WEEK ? lengths_ns[unit] : 0;
}

uint64_t rule_counts_for_ns(const struct stint_quota *quota)
{
    switch (quota->algorithm) {
    case STINT_GCRA:
        return gcra_ns_up(quota->derived.capacity_ticks);
    case STINT_CONCURRENCY:
        return quota->lease_ns;
    default:
        return quota->period_ns;
    }
}

uint64_t rule_full_locally_ns(const struct stint_quota *quota, const struct rule_store *store)
{
    bool is_leased = store != NULL && store->lease != RULE_LEASE_NONE;
    uint64_t term_ns = is_leased ? store->lease_term_ns : 0;
    return ns_on_fast_clock(add_sat(rule_counts_for_ns(quota), term_ns));
}

/* ---- Matching: one step down the tree for each entry ----------------------------------------- */

static uint32_t find_domain(const struct trie *trie, struct span domain)
{
    const struct trie_name name = {TRIE_NONE, TRIE_DOMAIN, domain};
    return trie_find(trie, &name);
}

size_t rules_find_domain(const struct rules *rules, struct span domain)
{
    uint32_t number = find_domain(&rules->trie, domain);
    return number != TRIE_NONE ? trie_at(&rules->trie, number)->rule : SIZE_MAX;
}

static uint32_t find_wildcard(const struct trie *trie, uint32_t key, struct span value)
{
    uint32_t last = trie_at(trie, key)->wildcard, at = last;
    if (last == TRIE_NONE)
        return TRIE_NONE;
    do {
        at = trie_at(trie, at)->wildcard;
        if (wildcard_matches(trie_text(trie_at(trie, at)), value))
            return at;
    } while (at != last);
    return TRIE_NONE;
}

static bool span_is(struct span text, struct span other)
{
    return text.len == other.len && (text.len == 0 || memcmp(text.ptr, other.ptr, text.len) == 0);
}

/*
 * The exact value, then wildcards in the order of the file, then the bare key. Descriptors of one
 * request often begin alike: what the one before has found at this level needs no search.
 */
static uint32_t step(const struct trie *trie, uint32_t above, const struct descriptor_entry *entry,
                     struct rules_step *last)
{
    bool is_same_key = last->above == above && span_is(last->entry.key, entry->key);
    if (is_same_key && span_is(last->entry.value, entry->value))
        return last->found;
    const struct trie_name key_name = {above, TRIE_KEY, entry->key};
    uint32_t key = is_same_key ? last->key : trie_find(trie, &key_name), found = TRIE_NONE;
    if (key != TRIE_NONE) {
        const struct trie_name value_name = {key, TRIE_VALUE, entry->value};
        found = trie_find(trie, &value_name);
        if (found == TRIE_NONE)
            found = find_wildcard(trie, key, entry->value);
        if (found == TRIE_NONE && trie_at(trie, key)->is_entry)
            found = key;
    }
    *last = (struct rules_step){*entry, above, key, found};
    return found;
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

size_t rules_write_key(uint8_t *key, size_t size, uint64_t id, const struct span *texts, size_t n)
{
    size_t len = sizeof(id);
    for (size_t i = 0; i < n; i++)
        len += LENGTH_SIZE + texts[i].len;
    if (len > size)
        return len;
    write_u64(key, id);
    key += sizeof(id);
    for (size_t i = 0; i < n; i++) {
        write_u32(key, (uint32_t)texts[i].len);
        key += LENGTH_SIZE;
        if (texts[i].len > 0)
            memcpy(key, texts[i].ptr, texts[i].len);
        key += texts[i].len;
    }
    return len;
}

void rules_walk_begin(struct rules_walk *walk, const struct rules *rules, struct span domain)
{
    walk->rules = rules;
    walk->domain = find_domain(&rules->trie, domain);
    walk->n_levels = 0;
}

/*
 * The node with the limit, or NULL. The walk ends at the first entry without a match: a level that
 * did match is final. `texts` gets the text of each entry for the key: its value, or the pattern
 * that all matching ones share.
 */
static const struct trie_node *go_down(struct rules_walk *walk, const struct descriptor *descriptor,
                                       struct span *texts)
{
    const struct trie *trie = &walk->rules->trie;
    uint32_t at = walk->domain;
    if (at == TRIE_NONE)
        return NULL;
    const struct trie_node *node = trie_at(trie, at);
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        if (!node->has_below)
            return NULL;
        if (i == walk->n_levels)
            walk->levels[walk->n_levels++].above = TRIE_NONE;
        at = step(trie, at, &descriptor->entries[i], &walk->levels[i]);
        if (at == TRIE_NONE)
            return NULL;
        node = trie_at(trie, at);
        texts[i] = node->is_shared ? trie_text(node) : descriptor->entries[i].value;
    }
    return node->rule != RULE_NONE ? node : NULL;
}

int rules_match(struct rules_walk *walk, const struct descriptor *descriptor, uint8_t *key,
                size_t key_size, struct rule_match *match, struct stint_error *error)
{
    struct span texts[ENTRIES_MAX];
    assert(descriptor->n_entries > 0 && descriptor->n_entries <= ENTRIES_MAX);
    *match = (struct rule_match){0};
    const struct trie_node *node = go_down(walk, descriptor, texts);
    if (node == NULL)
        return STINT_OK;
    size_t key_len = rules_write_key(key, key_size, node->id, texts, descriptor->n_entries);
    if (key_len > key_size)
        return err_set(error, STINT_E_RANGE,
                       "the values of a descriptor need a key of %zu bytes; it has at most %zu",
                       key_len, key_size);
    match->rule = &walk->rules->rules[node->rule];
    match->key_len = key_len;
    return STINT_OK;
}
