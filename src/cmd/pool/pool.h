/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint pool` and their shared types: the options, the session (a table with a pool
 * in it), and the verbs, one file each.
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

/* "next" and so on, by enum pool_verb; ends with NULL. */
extern const char *const pool_verb_names[];

/* argv[0] is "stint pool VERB". Exits if the command line is wrong. */
void pool_options_parse(struct pool_options *options, enum pool_verb verb, int argc, char **argv);
void pool_options_deinit(struct pool_options *options);
/* Refuses options that contradict each other, as argp_error() does. */
void pool_options_check(struct argp_state *state, struct pool_options *options);
/* Prints the verbs and the options of all of them. */
void pool_options_help(void);

/* ---- The session ---- */

/* A quota that --quota-for gives to one key. */
struct pool_own_quota {
    size_t key; /* its index; n_keys for the one that `add` adds */
    struct stint_quota quota;
};

struct pool_session {
    const struct pool_options *options;
    struct pool_keys keys;
    struct pool_own_quota *own;
    size_t n_own;
    uint32_t *weights; /* by index, and one more for the key of `add`; 0 = 1 */
    struct stint_table *table;
    struct stint_pool *pool;
    bool bad_usage; /* an error is in the command line */
};

/* Opens all of it. Call pool_session_close() after an error, too. */
int pool_session_open(struct pool_session *session, const struct pool_options *options,
                      struct stint_error *error);
void pool_session_close(struct pool_session *session);
/* The table's time: virtual, or that of its clock. */
uint64_t pool_session_now(const struct pool_session *session);
/* Finds the key; false for a name that the pool does not have. */
bool pool_session_status(const struct pool_session *session, const char *name,
                         struct stint_pool_status *status);
/* Adds a key that --keys does not contain, with the quotas and the weight of the options. */
int pool_session_add(struct pool_session *session, const char *name, struct stint_error *error);

/* ---- Quotas and weights of keys ---- */

/* Reads --quota-for and --weight; refuses keys without a quota, and a cost above all quotas. */
int pool_own_read(struct pool_session *session, struct stint_error *error);
/* Writes the quotas of a key by its index, up to STINT_POOL_QUOTAS_MAX: its own, or all's. */
int pool_own_quotas(const struct pool_session *session, size_t key, struct stint_quota *quotas,
                    size_t *n_quotas, struct stint_error *error);

/* ---- The verbs. Each returns its exit code after it has reported errors ---- */

int pool_next(struct pool_session *session);
int pool_report(struct pool_session *session);
int pool_give_back(struct pool_session *session);
int pool_status(struct pool_session *session);
int pool_add(struct pool_session *session);
int pool_remove(struct pool_session *session);

/* Names of a key's states, as status prints them and --json has them. */
extern const char *const pool_standing_names[];

/* Whether messages for people are to be printed on standard error. */
bool pool_is_chatty(const struct pool_options *options);

#endif
