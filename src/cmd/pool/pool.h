/* SPDX-License-Identifier: MIT */
/*
 * What `stint pool` and its verbs share: the options, and the session (a table with a pool in it).
 */
#ifndef STINT_CMD_POOL_POOL_H
#define STINT_CMD_POOL_POOL_H

#include "cmd/lib/gnuplot.h"
#include "cmd/pool/pool_keys.h"

enum pool_verb {
    POOL_NEXT = 0,
    POOL_REPORT,
    POOL_GIVE_BACK,
    POOL_STATUS,
    POOL_ADD,
    POOL_REMOVE,
    POOL_VERBS
};

#define POOL_WORDS_MAX 3

struct pool_options {
    enum pool_verb verb;
    const char *state;
    const char *keys;
    const char *pool; /* its name */
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    size_t n_quotas;
    const char **quota_for; /* NAME=SPEC */
    const char **weight;    /* NAME=N */
    size_t n_quota_for, n_weight;
    enum stint_pool_order order;
    uint64_t space; /* keys; 0 = by the number of keys */
    uint32_t cost;
    bool has_now, has_status, probe, secret, both, wait, json, verbose;
    uint64_t now_ns;                 /* virtual time */
    uint64_t wait_max_ns;            /* STINT_NEVER_NS: no limit */
    uint64_t granted_at_ns;          /* STINT_NEVER_NS: not given */
    enum stint_pool_outcome outcome; /* the words of `report` */
    uint64_t cool_ns;                /* for STINT_POOL_COOL */
    unsigned status;                 /* of HTTP, instead of a word; 0: no answer was received */
    const char *retry_after;         /* NULL or empty: there was none */
    struct gnuplot plot;
    const char *words[POOL_WORDS_MAX]; /* arguments that are no options */
    size_t n_words;
};

/* ---- The session ---- */

struct pool_session {
    const struct pool_options *options;
    struct pool_keys keys;
    struct stint_pool_key *all; /* with their quotas and weights; behind them the key of `add` */
    struct stint_quota (*own)[STINT_POOL_QUOTAS_MAX]; /* of keys that --quota-for names */
    size_t n_own;
    struct stint_table *table;
    struct stint_pool *pool;
    bool bad_usage; /* an error is in the command line */
};

/* ---- The verbs ---- */

/* By enum pool_verb. Each returns its exit code after it has reported errors. */
extern int (*const pool_verbs[])(const struct pool_session *session);
/* The words of `report`, by enum stint_pool_outcome, up to NULL. */
extern const char *const pool_outcome_names[];

/*
 * Reads Retry-After: seconds, or a date in any of the forms of RFC 9110. `wall_ns` is the time
 * since 1970. A date in the past gives 0.
 */
int pool_after_read(const char *text, int64_t wall_ns, uint64_t *after_ns,
                    struct stint_error *error);

#endif
