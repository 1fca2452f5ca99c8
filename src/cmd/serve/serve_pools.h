/* SPDX-License-Identifier: MIT */
/*
 * The section `pools` of a server's config file: the pools of keys that it has from the start. It
 * contains names only, never the secret of a key.
 */
#ifndef STINT_CMD_SERVE_SERVE_POOLS_H
#define STINT_CMD_SERVE_SERVE_POOLS_H

#include "rules/yaml/schema.h"
#include "service/pools.h"

struct configured_quotas {
    struct span *specs;
    size_t n_specs;
};

struct configured_key {
    struct source_position position;
    struct span name;
    struct configured_quotas quotas; /* none: those of its pool */
    uint32_t weight;
};

struct configured_pool {
    struct source_position position;
    struct span name;
    struct span store;               /* its name; empty: the table */
    uint8_t order;                   /* enum stint_pool_order */
    struct configured_quotas quotas; /* of keys that have none of their own */
    struct configured_key *keys;
    size_t n_keys;
    const char *keys_file; /* more keys, a NAME on each line; NULL: none */
};

/* All zero is none. Everything points into the arena of the section. */
struct configured_pools {
    const char *path; /* of the config file, for diagnostics */
    struct configured_pool *pools;
    size_t n_pools;
};

extern const char *const configured_pool_orders[]; /* by enum stint_pool_order */

/* Errors are added to the source; if there is one, the result must not be used. */
void configured_pools_read(struct configured_pools *pools, struct arena *arena,
                           const struct source *source, const struct yaml_value *section);

/*
 * Reads the files of keys and creates the pools. The first error is returned with its position in
 * the config file: STINT_E_SYNTAX, or as pools_define().
 */
int configured_pools_define(const struct configured_pools *configured, struct pools *pools,
                            uint64_t now_ns, struct stint_error *error);
/* The same without creating any, for errors that can be found before. */
int configured_pools_check(const struct configured_pools *configured, struct pools *pools,
                           struct stint_error *error);

/* Whether the table has a pool that is not configured: such a pool stays until a restart. */
bool configured_pools_lack(const struct configured_pools *configured, const struct pools *pools);

#endif
