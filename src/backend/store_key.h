/* SPDX-License-Identifier: MIT */
/*
 * The names of states in a shared store: PREFIX{TAG}ALGORITHM:RULE:KEY; the rule decides which part
 * of the key is in the braces. Values are joined by commas, and a comma in one is escaped, so that
 * two lists of values never share a name.
 */
#ifndef STINT_BACKEND_STORE_KEY_H
#define STINT_BACKEND_STORE_KEY_H

#include "backend/url.h"
#include "backend/wire/memcached_conn.h"
#include "decide/backend.h"

/* The escaping there: a byte that is no letter, digit or one of -._~/@+=:* becomes %XX. */
size_t store_key_escape(struct span text, char *out, size_t size);

/*
 * Returns the length; if that is more than `size`, what was written is incomplete. The prefix is
 * escaped already. *tag_len: of the bytes at the front that end with the tag's brace.
 */
size_t store_key(const struct backend_item *item, struct span prefix, char *out, size_t size,
                 size_t *tag_len);

/* The key of an id beside a state, in its slot: HEAD is the state's key up to the tag's brace. */
#define STORE_ID_KEY_MORE (3 + 2 * BACKEND_ID_LEN)
size_t store_id_key(struct span head, const uint8_t id[BACKEND_ID_LEN], char *out, size_t size);

/* ---- memcached ------------------------------------------------------------------------------- */

/*
 * Names of states in memcached: those of store_key(), though the braces do not keep keys together
 * here. A name that is too long becomes PREFIX#HASH. Also which of several servers has a key: the
 * one that scores highest with it, so that the others' keys stay when one leaves the list.
 */

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
