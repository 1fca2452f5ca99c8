/* SPDX-License-Identifier: MIT */
/* Shared by the files of the backend over Redis: requests in progress, and their parts by slot. */
#ifndef STINT_BACKEND_REDIS_REDIS_BACKEND_PARTS_H
#define STINT_BACKEND_REDIS_REDIS_BACKEND_PARTS_H

#include "backend/redis/pool_backend.h"
#include "backend/redis/redis_backend.h"
#include "backend/script/script.h"

struct job;

enum part_state { PART_DUE, PART_DECIDED, PART_FAILED, PART_LOST, PART_CONFLICT, PART_GONE };

/* The items of one slot: one script, all or nothing. */
struct part {
    struct job *job;
    struct router_ask *ask; /* while it is in progress */
    enum part_state state;
    bool is_replayed;
    unsigned slot;
    uint64_t server; /* router_server_bit() */
    size_t n_items;
    struct span head; /* of its keys, up to the tag's brace */
    struct stint_decision sum;
    uint64_t now_ns; /* by the store's clock */
    struct script_holder holders[STINT_ITEMS_MAX];
    size_t n_holders;
};

/* An item of a request of several parts, which may have to be given back. */
struct job_item {
    struct stint_quota quota;
    struct span key;
    uint32_t cost;
    uint8_t part;
};

/* One request. With a single part no items are kept: there is nothing to give back. */
struct job {
    struct job *next; /* of those that are free */
    struct redis_backend *store;
    struct backend_op *op; /* NULL: cancelled */
    uint64_t offset_ns;    /* from the router's clock to the caller's */
    uint8_t verb;
    bool is_virtual, has_id;
    uint64_t now_ns; /* where is_virtual */
    uint8_t id[BACKEND_ID_LEN];
    struct script_id id_words; /* without the key, which differs in each part */
    const char *error;         /* why a part was not decided */
    enum backend_error fault;
    size_t n_items, n_parts, n_due;
    struct job_item *items; /* NULL: a single part */
    struct part *parts;
    struct part only;
};

struct redis_backend {
    struct backend store;
    struct router *router;
    struct dialer *dialer;
    char prefix[3 * REDIS_STORE_PREFIX_MAX + 1];
    size_t prefix_len;
    struct stint_error refusal; /* of the last invalid request */
    struct job *free_jobs;
    size_t n_pending;   /* requests, and returns of units */
    uint64_t offset_ns; /* of the last request */
    uint8_t *names;     /* of the keys of one request */
    size_t names_size, names_len, leases_at;
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

/* ---- redis_backend.c ------------------------------------------------------------------------- */

/* Why a command was not done, or not certainly. */
enum backend_error redis_backend_error_of(enum link_outcome outcome);
const char *redis_backend_reason(const struct redis_backend *store, enum link_outcome outcome,
                                 const struct redis_reply *reply);

/* ---- redis_backend_return.c ------------------------------------------------------------------ */

/* Gives back what a part of the request was granted beyond `kept` units of each item. */
void part_return(struct part *part, uint32_t kept, uint64_t now_ns);

#endif
