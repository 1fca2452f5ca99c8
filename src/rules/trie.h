/* SPDX-License-Identifier: MIT */
/*
 * The tree of entries, flat: domains, the keys at each level, the values of each key. One hash
 * table finds every node by its parent and its own text, and a node with a short text is small: a
 * step down costs the same however many values there are.
 */
#ifndef STINT_RULES_TRIE_H
#define STINT_RULES_TRIE_H

#include "base/siphash.h"
#include "base/span.h"

#include <stdbool.h>

#define TRIE_UNIT_SIZE 32
#define TRIE_NONE 0 /* no node has this number */
#define RULE_NONE UINT32_MAX

enum trie_kind {
    TRIE_DOMAIN = 1, /* its parent is TRIE_NONE */
    TRIE_KEY,        /* parent: a domain, or any entry */
    TRIE_VALUE,      /* parent: its key */
    TRIE_WILDCARD,   /* the same */
};

struct trie_node {
    uint64_t id;   /* of the rule */
    uint32_t rule; /* its index; RULE_NONE where there is no limit here. Of a domain: its own */
    uint32_t above;
    /*
     * The wildcards of a key, in a ring: the key has the last, each has the next, the last has the
     * first. TRIE_NONE where a key has none.
     */
    uint32_t wildcard;
    uint16_t text_len;
    uint8_t kind;       /* enum trie_kind */
    bool is_entry : 1;  /* a key may only hold its values together */
    bool has_below : 1; /* entries below it, not values of a key */
    bool is_shared : 1; /* share_threshold */
    uint8_t text[];
};

/* Zeroed is empty, but for the secret. */
struct trie {
    uint64_t secret[2];
    uint8_t *units; /* TRIE_UNIT_SIZE bytes each; a node's number is that of its first unit */
    uint32_t n_units, units_max;
    uint32_t *slots;
    uint32_t n_slots, n_nodes; /* n_slots is a power of two, or 0 */
    size_t value_max;          /* no value is longer */
};

/* The lookup key of a node. The text has at most UINT16_MAX bytes. */
struct trie_name {
    uint32_t above;
    enum trie_kind kind;
    struct span text;
};

static inline struct trie_node *trie_at(const struct trie *trie, uint32_t number)
{
    return (struct trie_node *)(void *)(trie->units + (size_t)number * TRIE_UNIT_SIZE);
}

static inline struct span trie_text(const struct trie_node *node)
{
    return span_of(node->text, node->text_len);
}

/* The number of a node, or TRIE_NONE. */
uint32_t trie_find(const struct trie *trie, const struct trie_name *name);
/*
 * Makes a node that does not exist yet: TRIE_NONE without memory, or where there are 2^24 units
 * already. Nodes move: a pointer from trie_at() is valid until the next call.
 */
uint32_t trie_add(struct trie *trie, const struct trie_name *name);
/* All nodes in the order in which they were made: the first comes after TRIE_NONE. */
uint32_t trie_next(const struct trie *trie, uint32_t number);
void trie_free(struct trie *trie);

/* ---- Patterns in which each `*` stands for any bytes, also none ---- */

bool wildcard_is(struct span pattern); /* has a `*` */
bool wildcard_matches(struct span pattern, struct span text);

#endif
