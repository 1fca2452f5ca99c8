/* SPDX-License-Identifier: MIT */
/* A set of rules as a whole: its references and its content. */
#include "rules/rules_parts.h"

#include "algorithm/gcra.h"

#include <stdlib.h>

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
    trie_free(&rules->places);
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
