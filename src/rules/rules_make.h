/* SPDX-License-Identifier: MIT */
/*
 * The parts of a set of rules, and how it grows while its files are read. NULL, false or TRIE_NONE:
 * out of memory.
 */
#ifndef STINT_RULES_RULES_MAKE_H
#define STINT_RULES_RULES_MAKE_H

#include "rules/arena.h"
#include "rules/rules.h"
#include "rules/trie.h"

#include <stdatomic.h>

struct rules {
    atomic_uint references;
    struct rule *rules;
    size_t n_rules, rules_max;
    const char **domains;
    size_t n_domains, domains_max;
    struct trie trie;
    uint8_t default_algorithm;
    struct arena texts; /* every string that a rule or a domain has */
};

/* An empty set with one reference. The secret is for the trie. */
struct rules *rules_new(const uint64_t secret[2]);
bool rules_add_domain(struct rules *rules, const char *name);
/* A rule that is all zero but for its index. Rules move: valid until the next is added. */
struct rule *rules_add_rule(struct rules *rules);

/*
 * Builds a rule's identity: the same in every process and after every reload. Begins with a domain
 * and adds each entry on the way down; an entry without a value differs from an empty value.
 */
struct hash128 rule_id_of_domain(struct span domain);
struct hash128 rule_id_below(struct hash128 above, struct span key, struct span value,
                             bool has_value);
/* The identity itself; that of the candidate beside it where `is_shadow`. */
struct hash128 rule_id_named(struct hash128 entry, struct span name, bool is_shadow);
/* The half of it that identifies rules: never 0. */
uint64_t rule_id_short(struct hash128 named);

#endif
