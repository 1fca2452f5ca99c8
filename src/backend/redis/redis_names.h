/* SPDX-License-Identifier: MIT */
/*
 * The keys of one request, their slots, and which of them one script decides together. The memory
 * is used again by the next request.
 */
#ifndef STINT_BACKEND_REDIS_REDIS_NAMES_H
#define STINT_BACKEND_REDIS_REDIS_NAMES_H

#include "backend/redis/router.h"
#include "decide/backend.h"

/* Zero it; free `text` at the end. */
struct redis_names {
    uint8_t *text;
    size_t size, len, leases_at;
};

/* One item. */
struct redis_named {
    size_t at, len, tag_len; /* its key in names->text */
    uint64_t server;         /* router_server_bit() */
    unsigned slot;
    uint8_t part; /* the items of a part are decided by one script */
    uint8_t turn; /* of its part among those of its slot: each has an id of its own */
    bool is_leased;
};

bool redis_names_reserve(struct redis_names *names, size_t size);
/* Names all items; the prefix is escaped. The length of all; 0: no memory. */
size_t redis_names_write(struct redis_names *names, struct span prefix,
                         const struct backend_request *ask, struct redis_named *named);
/*
 * Finds slots, servers and parts, which are numbered as they come; returns how many parts. A part
 * is the items of a slot, but a script takes a key under one quota only: under a second one, as an
 * override makes it, the key is in a second part.
 */
size_t redis_names_parts(const struct redis_names *names, struct router *router,
                         const struct backend_request *ask, struct redis_named *named,
                         uint64_t *servers, uint64_t now_ns);
struct span redis_names_key(const struct redis_names *names, const struct redis_named *named);
/* The id of a part. */
void redis_names_part_id(uint8_t own[BACKEND_ID_LEN], const uint8_t id[BACKEND_ID_LEN],
                         uint8_t turn);
/* The key of the part's id beside that of a state, until the next is made. */
struct span redis_names_id(struct redis_names *names, const struct redis_named *named,
                           const uint8_t id[BACKEND_ID_LEN]);
/* The key of the leases beside a state, until the next is made. */
struct span redis_names_leases(struct redis_names *names, struct span state);

#endif
