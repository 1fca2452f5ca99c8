/* SPDX-License-Identifier: MIT */
/* Memory and names for rules that are being read. */
#include "rules/rules_make.h"

#include <stdlib.h>

#define ITEMS_MIN 16

struct rules *rules_new(const uint64_t secret[2])
{
    struct rules *rules = calloc(1, sizeof(*rules));
    if (rules == NULL)
        return NULL;
    atomic_init(&rules->references, 1);
    memcpy(rules->places.secret, secret, sizeof(rules->places.secret));
    return rules;
}

/* Grows for one more item; the items, or NULL and nothing has changed. */
static void *with_space(void *items, size_t n_items, size_t *items_max, size_t item_size)
{
    if (n_items < *items_max)
        return items;
    size_t more = *items_max == 0 ? ITEMS_MIN : 2 * *items_max;
    void *moved = more > SIZE_MAX / item_size ? NULL : realloc(items, more * item_size);
    if (moved != NULL)
        *items_max = more;
    return moved;
}

bool rules_add_domain(struct rules *rules, const char *name)
{
    const char **domains =
        with_space(rules->domains, rules->n_domains, &rules->domains_max, sizeof(*domains));
    if (domains == NULL)
        return false;
    rules->domains = domains;
    rules->domains[rules->n_domains++] = name;
    return true;
}

struct rule *rules_add_rule(struct rules *rules)
{
    if (rules->n_rules >= RULE_NONE)
        return NULL;
    struct rule *all = with_space(rules->rules, rules->n_rules, &rules->rules_max, sizeof(*all));
    if (all == NULL)
        return NULL;
    rules->rules = all;
    struct rule *rule = &all[rules->n_rules];
    memset(rule, 0, sizeof(*rule));
    rule->index = (uint32_t)rules->n_rules++;
    return rule;
}

/* ---- Identities ------------------------------------------------------------------------------ */

enum id_part { ID_DOMAIN = 1, ID_KEY, ID_VALUE, ID_NO_VALUE, ID_NAME, ID_SHADOW };

/* Each part is hashed with the hash before it, so differently split texts differ. */
static struct hash128 join(struct hash128 before, enum id_part part, struct span text)
{
    const uint64_t secret[2] = {before.lo, before.hi};
    return siphash13_128(secret, part, text.ptr, text.len);
}

struct hash128 rule_id_of_domain(struct span domain)
{
    /* Public on purpose: processes that share a table must agree. */
    static const struct hash128 begin = {UINT64_C(0x73746e74207275), UINT64_C(0x6c65206964)};
    return join(begin, ID_DOMAIN, domain);
}

struct hash128 rule_id_below(struct hash128 above, struct span key, struct span value,
                             bool has_value)
{
    return join(join(above, ID_KEY, key), has_value ? ID_VALUE : ID_NO_VALUE, value);
}

struct hash128 rule_id_named(struct hash128 entry, struct span name, bool is_shadow)
{
    struct hash128 named = join(entry, ID_NAME, name);
    return is_shadow ? join(named, ID_SHADOW, span_of(NULL, 0)) : named;
}

uint64_t rule_id_short(struct hash128 named)
{
    return named.lo != 0 ? named.lo : 1;
}
