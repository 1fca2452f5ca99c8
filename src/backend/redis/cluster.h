/* SPDX-License-Identifier: MIT */
/*
 * Which node of a cluster has which key: the map of slots, from CLUSTER SLOTS and from redirects of
 * nodes.
 */
#ifndef STINT_BACKEND_REDIS_CLUSTER_H
#define STINT_BACKEND_REDIS_CLUSTER_H

#include "backend/url.h"
#include "backend/wire/redis_conn.h"

#define CLUSTER_SLOTS 16384
#define CLUSTER_MASTERS_MAX 1024

/* Zeroed: without any master. */
struct cluster {
    unsigned n_masters, n_replicas, n_slots_served;
    struct store_host masters[CLUSTER_MASTERS_MAX];
    uint16_t of_slot[CLUSTER_SLOTS]; /* index of the master, from 1; 0: none */
};

/* The slot of a key: of the text in its first braces, unless that is empty. */
unsigned cluster_slot_of(struct span key);

/*
 * Replaces the map by the reply to CLUSTER SLOTS. A node that does not know its own name is the one
 * that sent the reply. An invalid reply leaves no map.
 */
int cluster_read(struct cluster *cluster, const struct redis_reply *reply,
                 const struct store_host *asked, struct stint_error *error);

/* A node in a reply of `asked`: an empty or unknown name means that one. False: an invalid name. */
bool cluster_host(struct store_host *host, struct span name, uint16_t port,
                  const struct store_host *asked);

/*
 * One slot has moved, by a MOVED reply of `asked`; the rest of the map is then old, too. False: the
 * new master is unknown.
 */
bool cluster_move(struct cluster *cluster, const struct redis_redirect *redirect,
                  const struct store_host *asked);

/* NULL: no master has it. */
const struct store_host *cluster_master(const struct cluster *cluster, unsigned slot);

bool cluster_has_master(const struct cluster *cluster, const struct store_host *host);

#endif
