/* SPDX-License-Identifier: MIT */
/* Shared by the files of the backend over memcached only. */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_PARTS_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_PARTS_H

#include "backend/memcached/memcached_backend.h"
#include "backend/memcached/memcached_cells.h"
#include "backend/memcached/memcached_clock.h"

enum phase {
    PHASE_ONLY,    /* the requested verb, and no later phase */
    PHASE_LOOKING, /* at all keys of a list */
    PHASE_TAKING,
    PHASE_UNDOING,
};

/* One key of a request; equal items are merged. */
struct part {
    struct cell_ask ask;
    struct work *work;
    struct stint_quota quota;
    struct memcached_key key;
    unsigned server;
    uint32_t cost;   /* the sum over equal ones */
    uint32_t kept;   /* of a ticket that is never settled, the same; or STINT_KEEP_ALL */
    uint32_t times;  /* how many were equal */
    uint8_t index;   /* the first of them */
    uint8_t outcome; /* enum cell_outcome of the last phase */
    bool is_waiting;
    struct stint_decision decision;
};

/* One request in progress. */
struct work {
    struct work *next, *previous;
    struct store *store;
    struct backend_op *op; /* NULL: cancelled */
    uint64_t at_ns, now_ns, deadline_ns;
    uint64_t decided_ns; /* the earliest of its decisions */
    enum phase phase;
    uint8_t verb; /* enum backend_verb */
    bool is_virtual, has_failed, is_ticket;
    uint8_t id[BACKEND_ID_LEN];  /* of the ticket */
    uint64_t ticket_ns;          /* for which it is good */
    uint32_t most, each, failed; /* take_upto */
    size_t n_items, n_parts, n_waiting;
    uint8_t part_of[STINT_ITEMS_MAX];
    struct part parts[];
};

struct store {
    struct backend shared;
    struct memcached_backend_options options;
    char prefix[MEMCACHED_PREFIX_MAX]; /* escaped */
    size_t prefix_len;
    unsigned n_servers;
    struct cells *cells;
    struct memcached_clock clock;
    struct memcached_metrics metrics;
    struct stint_error fault;
    struct work *first;
    size_t n_works;
    uint64_t earliest_ns; /* no work's deadline is earlier */
    bool is_ending;
};

/* Begins: with a peek at all keys, or with the verb itself. */
void work_start(struct work *work, uint64_t now_ns);
/* Answers the caller with a failure. */
void work_fail(struct work *work, enum backend_error fault, const char *why, uint64_t now_ns);
/* Its deadline has passed: answers with what is known. */
void work_be_late(struct work *work, uint64_t now_ns);
/* A list that is being taken goes on to its end, and is taken back if need be. */
bool work_must_go_on(const struct work *work);
/* Forgets what it waits for, and frees it. */
void work_end(struct work *work);

/* The verbs on a ticket, at each of its keys by itself. */
static inline bool closes_ticket(uint8_t verb)
{
    return verb == BACKEND_SETTLE || verb == BACKEND_CANCEL || verb == BACKEND_EXPIRE;
}

/* As in an answer. Servers beyond the 64th share a bit with one of the first. */
static inline uint64_t part_server(const struct part *part)
{
    return UINT64_C(1) << part->server % 64;
}

#endif
