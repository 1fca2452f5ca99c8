/* SPDX-License-Identifier: MIT */
/*
 * Connects to the server that has a key: the one of a URL, the master that sentinels watch, or the
 * master of a cluster that serves its slot.
 */
#ifndef STINT_CMD_STORE_STORE_NODE_H
#define STINT_CMD_STORE_STORE_NODE_H

#include "cmd/store/store_given.h"
#include "cmd/store/store_session.h"

#define STORE_NODE_NO_SLOT (-1)

struct store_nodes;

/* STINT_E_GONE: none of its servers can be queried. Not for memcached. */
int store_nodes_open(struct store_nodes **nodes, const struct store_given *given,
                     struct stint_error *error);
void store_nodes_close(struct store_nodes *nodes); /* NULL is fine */

/* The session with the server of the key; valid until the next call. */
int store_nodes_find(struct store_nodes *nodes, struct span key, struct store_session **session,
                     struct stint_error *error);
/* The server found last: "host:port", or the path of a socket. */
const char *store_nodes_address(const struct store_nodes *nodes);
/* The slot of its key in a cluster, or STORE_NODE_NO_SLOT. */
int store_nodes_slot(const struct store_nodes *nodes);

#endif
