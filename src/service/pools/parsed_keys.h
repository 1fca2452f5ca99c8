/* SPDX-License-Identifier: MIT */
/* The keys of a pool as a definition gives them: names and SPECs, checked and parsed. */
#ifndef STINT_SERVICE_POOLS_PARSED_KEYS_H
#define STINT_SERVICE_POOLS_PARSED_KEYS_H

#include "base/siphash.h"
#include "service/pools/pools.h"

/* A copy of a name: the library takes a terminated text. */
struct pools_name {
    char text[STINT_POOL_NAME_MAX + 1];
};

/* The checks of a name that the library does not make. `whose` is "pool" or "key". */
int pools_name_copy(struct pools_name *name, struct span from, const char *whose,
                    struct stint_error *error);

struct parsed_key {
    struct pools_name name;
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    struct stint_pool_key key; /* points to the name and the quotas */
};

/* table: the one that will keep the key; NULL: a store, which checks all keys together. */
int parsed_key_read(struct parsed_key *parsed, const struct pools_key *from,
                    struct stint_table *table, struct stint_error *error);
void parsed_key_copy(struct parsed_key *to, const struct parsed_key *from);

/* The code of a key that cannot be used, which is not in conflict with the keys of the pool:
 * STINT_E_SYNTAX instead of STINT_E_MISMATCH. */
int parsed_key_fault(int code, struct stint_error *error);

struct parsed_keys {
    struct parsed_key *all;
    struct parsed_key **by_name; /* sorted */
    size_t n;
};

/* All keys of a definition; two of the same name: STINT_E_MISMATCH. */
int parsed_keys_read(struct parsed_keys *keys, const struct pools_definition *definition,
                     struct stint_table *table, struct stint_error *error);
void parsed_keys_free(struct parsed_keys *keys);

/* NULL: there is none. */
const struct parsed_key *parsed_keys_find(const struct parsed_keys *keys, const char *name);

/* A hash of all names, quotas and weights, in whatever order they were given. */
struct hash128 parsed_keys_mark(const struct parsed_keys *keys);

#endif
