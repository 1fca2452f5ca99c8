/* SPDX-License-Identifier: MIT */
/* The results of `stint store check` for servers of memcached. */
#ifndef STINT_CMD_STORE_STORE_MEMCACHED_H
#define STINT_CMD_STORE_STORE_MEMCACHED_H

#include "cmd/store/store.h"

struct memcached_findings {
    /* Address, version, memory_max, latency and remarks; the rest is for Redis. */
    struct store_findings common;
    uint64_t memory_used, evictions, items, item_max, uptime_s;
    bool evicts;   /* if memory is full; else it refuses */
    bool compares; /* values have numbers, and a write with another number is refused */
};

struct memcached_check {
    const struct store_url *url;
    struct upstream_tls *tls; /* NULL: none */
    uint64_t timeout_ns;      /* of connecting, and of each answer */
    unsigned samples;
};

/*
 * Queries each server of the URL: as many findings as it has hosts. STINT_E_GONE: one of them
 * cannot be queried.
 */
int store_memcached_look(const struct memcached_check *check, struct memcached_findings *findings,
                         struct stint_error *error);
bool store_memcached_is_fit(const struct memcached_findings *findings, unsigned n_servers);
/* 0, or -1 if standard output cannot be written. */
int store_memcached_report(const struct store_url *url, const struct memcached_findings *findings,
                           bool is_json);

#endif
