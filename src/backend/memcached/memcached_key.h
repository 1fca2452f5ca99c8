/* SPDX-License-Identifier: MIT */
/*
 * Names of states in memcached: those of store_key(), though the braces do not keep keys together
 * here. A name that is too long becomes PREFIX#HASH. Also which of several servers has a key: the
 * one that scores highest with it, so that the others' keys stay when one leaves the list.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_KEY_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_KEY_H

#include "backend/url.h"
#include "backend/wire/memcached_conn.h"
#include "decide/backend.h"

#define MEMCACHED_DIGEST_LEN 32
#define MEMCACHED_PREFIX_MAX 128 /* escaped */

struct memcached_key {
    char text[MEMCACHED_KEY_MAX];
    size_t len;
};

/* SHA-256: two names that share a hash would share a state, and callers choose their keys. */
typedef void memcached_digest(void *arg, struct span bytes, uint8_t out[MEMCACHED_DIGEST_LEN]);

/* The prefix is escaped already. False: no memory. */
bool memcached_key_write(struct memcached_key *key, struct span prefix,
                         const struct backend_item *item, memcached_digest *digest, void *arg);

/* Of the URL's hosts, from 0; 0 for a socket. */
unsigned memcached_key_server(const struct store_url *url, struct span key);

#endif
