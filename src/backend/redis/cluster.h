/* SPDX-License-Identifier: MIT */
/*
 * Which node of a cluster has which key: the map of slots, out of CLUSTER SLOTS and of what nodes
 * tell who ask at the wrong one.
 */
#ifndef STINT_BACKEND_REDIS_CLUSTER_H
#define STINT_BACKEND_REDIS_CLUSTER_H

#include "backend/url.h"
#include "backend/wire/redis_reply.h"

#define CLUSTER_SLOTS 16384
#define CLUSTER_MASTERS_MAX 1024

struct cluster {
    struct store_host *masters; /* of CLUSTER_MASTERS_MAX */
    unsigned n_masters, n_replicas, n_slots_served;
    uint16_t of_slot[CLUSTER_SLOTS]; /* place of the master, from 1; 0: nobody */
};

/* The slot of a key: of what is in its first braces, unless that is nothing. */
unsigned cluster_slot_of(struct span key);

struct cluster *cluster_new(void);          /* without any master. NULL: no memory */
void cluster_free(struct cluster *cluster); /* NULL is fine */

/*
 * Takes the reply to CLUSTER SLOTS in place of what was known. A node that does not know its own
 * name is the one that was asked. Where the reply cannot be meant, nothing has changed.
 */
int cluster_read(struct cluster *cluster, const struct redis_reply *reply,
                 const struct store_host *asked, struct stint_error *error);

/*
 * One slot has moved, as a MOVED of `asked` says; the rest of the map is old then, too. False: it
 * cannot be known where to.
 */
bool cluster_move(struct cluster *cluster, const struct redis_redirect *redirect,
                  const struct store_host *asked);

/* NULL: nobody serves it. */
const struct store_host *cluster_master(const struct cluster *cluster, unsigned slot);

#endif
