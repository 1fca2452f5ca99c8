/* SPDX-License-Identifier: MIT */
/* What a store answers: connections to its servers, and the findings of `stint store check`. */
#ifndef STINT_CMD_STORE_STORE_H
#define STINT_CMD_STORE_STORE_H

#include "backend/url.h"
#include "backend/wire/redis_conn.h"
#include "cmd/store/store_word.h"
#include "net/upstream/upstream.h"

#include <jansson.h>

/* ---- A connection for one command after the other; a loop runs until the reply arrives ---- */

struct store_session;

struct store_session_options {
    const struct store_url *url;   /* user, database and Unix socket */
    const struct store_host *host; /* one of the URL's, or another; NULL: the Unix socket */
    unsigned database;
    struct upstream_tls *tls; /* NULL: none. Borrowed */
    uint64_t timeout_ns;      /* of connecting, and of each answer */
};

/* STINT_E_GONE with a message that gives the reason why there is no connection. */
int store_session_open(struct store_session **session, const struct store_session_options *options,
                       struct stint_error *error);
void store_session_close(struct store_session *session); /* NULL is fine */
const struct redis_server *store_session_server(const struct store_session *session);

/* Words end with NULL. `read` gets the reply, or the server's error. STINT_E_GONE: none. */
int store_session_ask(struct store_session *session, const char *const *words,
                      void (*read)(void *arg, const struct redis_reply *reply), void *arg,
                      struct stint_error *error);
/* The duration of the last reply. */
uint64_t store_session_took_ns(const struct store_session *session);

/* ---- Findings ---- */

#define STORE_REMARKS_MAX 16
#define STORE_REMARK_SIZE 320
#define STORE_WORD_MAX 64
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

/* "": not known. */
struct store_findings {
    char node[STORE_HOST_SIZE + 16]; /* the server of the remarks; "": the only one */
    char address[STORE_HOST_SIZE + 16];
    char version[STORE_WORD_MAX], mode[STORE_WORD_MAX], role[STORE_WORD_MAX];
    bool is_valkey;
    bool runs_scripts;
    char policy[STORE_WORD_MAX]; /* of eviction */
    uint64_t memory_max;         /* bytes; 0: no limit */
    char append_only[STORE_WORD_MAX], snapshots[STORE_WORD_MAX * 2];
    unsigned replicas;
    bool has_time;
    int64_t ahead_ns;        /* its clock, minus the local clock */
    uint64_t ahead_error_ns; /* its uncertainty */
    struct store_latency latency;
    struct store_cluster cluster;     /* of a cluster, else zero */
    struct store_sentinels sentinels; /* if sentinels were queried, else zero */
    struct store_remark remarks[STORE_REMARKS_MAX];
    unsigned n_remarks;
};

void store_fault(struct store_findings *findings, const char *format, ...) ERR_PRINTF(2, 3);
void store_warn(struct store_findings *findings, const char *format, ...) ERR_PRINTF(2, 3);
bool store_is_fit(const struct store_findings *findings);

/* What is asked, of Redis or of memcached. */
struct store_check {
    const struct store_url *url;
    struct upstream_tls *tls; /* NULL: none */
    uint64_t timeout_ns;      /* of connecting, and of each answer */
    unsigned samples;         /* round trips to measure */
};

/*
 * Connects to the first server of the URL that answers, follows a sentinel to its master, and
 * queries everything, in a cluster of all its nodes. Not for memcached.
 */
int store_look(const struct store_check *check, struct store_findings *findings,
               struct stint_error *error);

/* "host:port", or "[address]:port". Returns `text`. */
const char *store_address(const struct store_host *host, char *text, size_t size);

/* Sorts the samples; there must be at least one. */
struct store_latency store_latency_of(uint64_t *took_ns, unsigned samples);

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

/* The session with the server of the key; valid until the next call. */
int store_nodes_find(struct store_nodes *nodes, struct span key, struct store_session **session,
                     struct stint_error *error);
/* The server found last: "host:port", or the path of a socket. */
const char *store_nodes_address(const struct store_nodes *nodes);
/* The slot of its key in a cluster, or STORE_NODE_NO_SLOT. */
int store_nodes_slot(const struct store_nodes *nodes);

#endif
