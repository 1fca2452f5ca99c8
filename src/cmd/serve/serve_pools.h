/* SPDX-License-Identifier: MIT */
/*
 * The section `pools` of a server's config file: which pools of keys it has from the start. It
 * holds names alone, never what a key's secret is.
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
    struct fault_place place;
    struct span name;
    struct configured_quotas quotas; /* none: those of its pool */
    uint32_t weight;
};

struct configured_pool {
    struct fault_place place;
    struct span name;
    struct span store;               /* its name; empty: the table */
    uint8_t order;                   /* enum stint_pool_order */
    struct configured_quotas quotas; /* of keys that have none of their own */
    struct configured_key *keys;
    size_t n_keys;
    const char *keys_file; /* more keys, a NAME on each line; NULL: none */
};

/* Zeroed is none. Everything points into the arena that the section was read with. */
struct configured_pools {
    const char *path; /* of the config file, for faults */
    struct configured_pool *pools;
    size_t n_pools;
};

extern const char *const configured_pool_orders[]; /* by enum stint_pool_order */

/* Faults go to the source; where there is one, what was read is not to be used. */
void configured_pools_read(struct configured_pools *pools, struct arena *arena,
                           const struct source *source, const struct yaml_value *section);

/*
 * Reads the files of keys and makes the pools. The first that cannot be made is told with its place
 * in the config file: STINT_E_SYNTAX, or as pools_define().
 */
int configured_pools_define(const struct configured_pools *configured, struct pools *pools,
                            uint64_t now_ns, struct stint_error *error);
/* The same without making any, for what can be known before. */
int configured_pools_check(const struct configured_pools *configured, struct pools *pools,
                           struct stint_error *error);

/* Whether a pool is there that is not configured: one that is left out stays until a restart. */
bool configured_pools_lack(const struct configured_pools *configured, const struct pools *pools);

#endif
