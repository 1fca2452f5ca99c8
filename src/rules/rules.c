/* SPDX-License-Identifier: MIT */
/* A set of rules as a whole: who holds it, and what is in it. */
#include "rules/rules_parts.h"

#include "core/gcra.h"

#include <stdlib.h>

struct rules *rules_ref(struct rules *rules)
{
    /* Whoever calls holds a reference: nothing else has to be seen before this one counts. */
    atomic_fetch_add_explicit(&rules->references, 1, memory_order_relaxed);
    return rules;
}

void rules_unref(struct rules *rules)
{
    /* Release: what this holder read is read before another frees. Acquire: for that other. */
    if (rules == NULL || atomic_fetch_sub_explicit(&rules->references, 1, memory_order_acq_rel) > 1)
        return;
    places_free(&rules->places);
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
