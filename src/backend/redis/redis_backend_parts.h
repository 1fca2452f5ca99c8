/* SPDX-License-Identifier: MIT */
/* Shared by the files of the backend over Redis: requests, and key pools. */
#ifndef STINT_BACKEND_REDIS_REDIS_BACKEND_PARTS_H
#define STINT_BACKEND_REDIS_REDIS_BACKEND_PARTS_H

#include "backend/redis/pool_backend.h"
#include "backend/redis/redis_backend.h"
#include "backend/redis/redis_names.h"
#include "backend/script/script.h"

struct redis_backend {
    struct backend store;
    struct router *router;
    struct dialer *dialer;
    char prefix[3 * REDIS_STORE_PREFIX_MAX + 1];
    size_t prefix_len;
    struct stint_error refusal; /* of the last invalid request */
    struct job *free_jobs;      /* requests whose memory is kept */
    size_t n_pending;           /* requests, and returns of units */
    uint64_t offset_ns;         /* of the last request */
    struct redis_names names;   /* of the request in preparation */
    void (*drained)(void *arg); /* NULL: no caller waits for that */
    void *drained_arg;
    bool is_ending;
    struct script_command command; /* of the request in preparation */
    struct backend_pools pools;
    struct pool_command pool_command;
    char plain_prefix[REDIS_STORE_PREFIX_MAX + 1]; /* not escaped */
};

/* Reports to a waiting caller that nothing is in progress any more. */
static inline void redis_backend_settle(struct redis_backend *store)
{
    if (store->n_pending > 0 || store->drained == NULL)
        return;
    void (*drained)(void *arg) = store->drained;
    store->drained = NULL;
    drained(store->drained_arg);
}

/* Why a command was not done, or not certainly: the message, and for metrics. */
const char *redis_backend_reason(const struct redis_backend *store, enum link_outcome outcome,
                                 const struct redis_reply *reply, uint8_t *fault);

#endif
