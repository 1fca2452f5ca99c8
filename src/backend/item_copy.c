/* SPDX-License-Identifier: MIT */
/* The block has the items, their quotas, their rules, and then all bytes. */
#include "backend/item_copy.h"

#include <stdlib.h>

static struct span keep(uint8_t **at, struct span span)
{
    struct span kept = span_of(*at, span.len);
    if (span.len > 0)
        memcpy(*at, span.ptr, span.len);
    *at += span.len;
    return kept;
}

static struct span domain_of(const struct backend_item *item)
{
    const char *domain = item->rule != NULL ? item->rule->domain : NULL;
    return domain != NULL ? span_of(domain, strlen(domain) + 1) : span_of(NULL, 0);
}

/* A candidate stays one: its quota is that of its rule. */
static void copy_rule(struct backend_item *copy, struct rule *rule, uint8_t **at)
{
    struct span domain = domain_of(copy);
    bool is_candidate = copy->quota == &copy->rule->shadow;
    *rule = (struct rule){.store = copy->rule->store, .shadow = *copy->quota};
    rule->store.label = rule->store.name = rule->store.shadow_name = NULL;
    if (domain.len > 0)
        rule->domain = (const char *)keep(at, domain).ptr;
    if (is_candidate)
        copy->quota = &rule->shadow;
    copy->rule = rule;
}

struct backend_item *item_copy(const struct backend_item *items, size_t n_items)
{
    size_t size = n_items * (sizeof(*items) + sizeof(struct stint_quota) + sizeof(struct rule)) + 1;
    for (size_t i = 0; i < n_items; i++)
        size += items[i].name.len + items[i].key.len + domain_of(&items[i]).len;
    struct backend_item *copies = malloc(size);
    if (copies == NULL)
        return NULL;
    struct rule *rules = (void *)(copies + n_items);
    struct stint_quota *quotas = (void *)(rules + n_items);
    uint8_t *at = (void *)(quotas + n_items);
    for (size_t i = 0; i < n_items; i++) {
        struct backend_item *copy = &copies[i];
        *copy = items[i];
        copy->name = keep(&at, items[i].name);
        copy->key = keep(&at, items[i].key);
        if (copy->rule != NULL)
            copy_rule(copy, &rules[i], &at);
        if (copy->quota != &rules[i].shadow) {
            quotas[i] = *items[i].quota;
            copy->quota = &quotas[i];
        }
    }
    return copies;
}

static bool spans_are_equal(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool item_is_same(const struct backend_item *a, const struct backend_item *b)
{
    return memcmp(a->quota->derived.params_hash, b->quota->derived.params_hash,
                  sizeof(a->quota->derived.params_hash)) == 0 &&
           spans_are_equal(a->name, b->name) && spans_are_equal(a->key, b->key);
}
