/* SPDX-License-Identifier: MIT */
/* What a store answers: connections to its servers, and the findings of `stint store check`. */
#ifndef STINT_CMD_STORE_STORE_H
#define STINT_CMD_STORE_STORE_H

#include "backend/url.h"
#include "backend/wire/redis_conn.h"
#include "cmd/store/store_word.h"

/* ---- Findings ---- */

#define STORE_REMARKS_MAX 16
#define STORE_REMARK_SIZE 320
#define STORE_WORD_MAX 64
#define STORE_ADDRESS_SIZE (STORE_HOST_SIZE + 16)
#define STORE_SAMPLES_MAX 100000

/* A remark: an error that makes the store unusable, or a warning. */
struct store_remark {
    bool is_fault;
    char text[STORE_REMARK_SIZE];
};

struct store_latency {
    uint64_t median_ns, p90_ns, p99_ns, max_ns;
    unsigned n;
};

struct store_cluster {
    unsigned masters, replicas, slots_served;
};

struct store_sentinels {
    unsigned sentinels, quorum;
};

struct store_memcached {
    uint64_t memory_used, evictions, items, item_max, uptime_s;
    bool evicts;   /* if memory is full; else it refuses */
    bool compares; /* values have numbers, and a write with another number is refused */
};

/* "": not known. */
struct store_findings {
    uint64_t memory_max;     /* bytes; 0: no limit */
    int64_t ahead_ns;        /* its clock, minus the local clock */
    uint64_t ahead_error_ns; /* its uncertainty */
    struct store_latency latency;
    struct store_memcached memcached; /* with address, version, memory_max and latency */
    struct store_cluster cluster;     /* of a cluster, else zero */
    struct store_sentinels sentinels; /* if sentinels were queried, else zero */
    unsigned n_remarks, replicas;
    bool is_valkey, runs_scripts, has_time;
    char node[STORE_ADDRESS_SIZE]; /* the server of the remarks; "": the only one */
    char address[STORE_ADDRESS_SIZE];
    char version[STORE_WORD_MAX], mode[STORE_WORD_MAX], role[STORE_WORD_MAX];
    char policy[STORE_WORD_MAX]; /* of eviction */
    char append_only[STORE_WORD_MAX], snapshots[STORE_WORD_MAX * 2];
    struct store_remark remarks[STORE_REMARKS_MAX];
};

/*
 * Connects to the first server of the URL that answers, follows a sentinel to its master, and
 * queries everything, in a cluster of all its nodes; of memcached, each server of the URL, which
 * has findings of its own. `samples`: round trips to measure. STINT_E_GONE with a message that
 * gives the reason why there is no connection.
 */
int store_look(const struct store_given *given, unsigned samples, struct store_findings *findings,
               struct stint_error *error);

/* ---- The server that has a key ----
 *
 * The one of a URL, the master that sentinels watch, or the master of a cluster that serves its
 * slot.
 */

#define STORE_NODE_NO_SLOT (-1)

struct store_nodes;

/* STINT_E_GONE: none of its servers can be queried. Not for memcached. */
int store_nodes_open(struct store_nodes **nodes, const struct store_given *given,
                     struct stint_error *error);
void store_nodes_close(struct store_nodes *nodes); /* NULL is fine */

/*
 * Connects to the server of the key. *address is "host:port", or the path of a socket, valid until
 * the next call; *slot that of the key in a cluster, or STORE_NODE_NO_SLOT.
 */
int store_nodes_find(struct store_nodes *nodes, struct span key, const char **address, int *slot,
                     struct stint_error *error);

/*
 * A command for the server found last, or the first one: words end with NULL. `read` gets the
 * reply, or the server's error. STINT_E_GONE: none.
 */
int store_nodes_ask(struct store_nodes *nodes, const char *const *words,
                    void (*read)(void *arg, const struct redis_reply *reply), void *arg,
                    struct stint_error *error);

#endif
