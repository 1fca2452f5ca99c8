/* SPDX-License-Identifier: MIT */
/* The results of `stint store check`, and how they are printed. */
#ifndef STINT_CMD_STORE_STORE_H
#define STINT_CMD_STORE_STORE_H

#include "cmd/store/store_session.h"

#include <jansson.h>

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

/* Queries everything. STINT_E_GONE: the connection ended meanwhile. */
int store_look(struct store_session *session, const struct store_url *url, unsigned samples,
               struct store_findings *findings, struct stint_error *error);

/* Loads a script and runs it with that key. */
int store_try_scripts(struct store_session *session, const char *key,
                      struct store_findings *findings, struct stint_error *error);

/* Gets the other nodes from a node of a cluster, and tries scripts on each of its masters. */
int store_look_around(struct store_session *session, const struct store_session_options *options,
                      struct store_findings *findings, struct stint_error *error);
struct cluster;
/* Gets the owners of slots from the node `asked` of a cluster; free with cluster_free(). */
int store_read_map(struct store_session *session, const struct store_host *asked,
                   struct cluster **map, struct stint_error *error);
/* Gets the master from a sentinel. STINT_E_GONE: it knows none of that name. */
int store_find_master(struct store_session *session, const char *name, struct store_host *master,
                      struct store_findings *findings, struct stint_error *error);
/* "host:port", or "[address]:port". Returns `text`. */
const char *store_address(const struct store_host *host, char *text, size_t size);

/* Sorts the samples; there must be at least one. */
struct store_latency store_latency_of(uint64_t *took_ns, unsigned samples);

/* Parts of reports. */
void store_print_latency(const struct store_latency *latency);
void store_print_remarks(const struct store_findings *findings);
json_t *store_latency_json(const struct store_latency *latency);
json_t *store_remarks_json(const struct store_findings *findings, bool is_fault);

/* 0, or -1 if standard output cannot be written. */
int store_report(const struct store_url *url, const struct store_findings *findings, bool is_json);

#endif
