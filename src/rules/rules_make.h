/* SPDX-License-Identifier: MIT */
/* The parts of a set of rules. */
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

#endif
