/* SPDX-License-Identifier: MIT */
/* A hash table in sets of WAYS: a key is in its own set or not in the table. */
#include "backend/front/denials.h"

#include <stdlib.h>

#define WAYS 8

struct entry {
    uint64_t tag;         /* the half of the hash that does not choose the set */
    struct denial denial; /* all zero: the slot is free */
};

struct set {
    struct entry entries[WAYS];
};

struct denials {
    uint64_t secret[2];
    size_t n_sets;
    struct set *sets;
    uint32_t *drops; /* of each set */
};

struct denials *denials_new(size_t entries, const uint64_t secret[2])
{
    struct denials *denials = calloc(1, sizeof(*denials));
    if (denials == NULL)
        return NULL;
    memcpy(denials->secret, secret, sizeof(denials->secret));
    denials->n_sets = entries / WAYS + (entries % WAYS != 0);
    denials->n_sets += denials->n_sets == 0;
    denials->sets = calloc(denials->n_sets, sizeof(*denials->sets));
    denials->drops = calloc(denials->n_sets, sizeof(*denials->drops));
    if (denials->sets == NULL || denials->drops == NULL) {
        denials_free(denials);
        return NULL;
    }
    return denials;
}

void denials_free(struct denials *denials)
{
    if (denials == NULL)
        return;
    free(denials->sets);
    free(denials->drops);
    free(denials);
}

/* The name includes the quota's parameters: under another quota it is another key. */
struct denial_name denials_name(const struct denials *denials, const struct backend_item *item)
{
    const uint64_t *params = item->quota->derived.params_hash;
    uint64_t rule =
        siphash13_128(denials->secret, params[0] ^ item->is_values, item->name.ptr, item->name.len)
            .lo;
    struct denial_name name = {
        .hash = siphash13_128(denials->secret, rule ^ params[1], item->key.ptr, item->key.len)};
    name.set = name.hash.lo % denials->n_sets;
    name.drops = denials->drops[name.set];
    return name;
}

static struct entry *entry_of(const struct denials *denials, const struct denial_name *name)
{
    struct set *set = &denials->sets[name->set];
    for (size_t i = 0; i < WAYS; i++)
        if (set->entries[i].tag == name->hash.hi && set->entries[i].denial.ends_ns > 0)
            return &set->entries[i];
    return NULL;
}

struct denial *denials_find(const struct denials *denials, const struct denial_name *name,
                            uint64_t now_ns)
{
    struct entry *entry = entry_of(denials, name);
    return entry != NULL && now_ns < entry->denial.ends_ns ? &entry->denial : NULL;
}

/* A free slot, or one that has expired, goes before all others. */
static struct entry *first_to_go(struct set *set)
{
    struct entry *first = &set->entries[0];
    for (size_t i = 1; i < WAYS; i++)
        if (set->entries[i].denial.ends_ns < first->denial.ends_ns)
            first = &set->entries[i];
    return first;
}

void denials_put(struct denials *denials, const struct denial_name *name,
                 const struct denial *denial, uint64_t now_ns)
{
    struct set *set = &denials->sets[name->set];
    if (denials->drops[name->set] != name->drops || denial->ends_ns <= now_ns)
        return;
    struct entry *place = entry_of(denials, name);
    if (place == NULL)
        place = first_to_go(set);
    *place = (struct entry){name->hash.hi, *denial};
}

void denials_drop(struct denials *denials, const struct denial_name *name)
{
    struct entry *entry = entry_of(denials, name);
    denials->drops[name->set]++;
    if (entry != NULL)
        *entry = (struct entry){.tag = 0};
}
