/* SPDX-License-Identifier: MIT */
/*
 * `stint rules explain --store`: the state of a request's rules in a shared store, and the names of
 * their keys there, for use with redis-cli.
 */
#ifndef STINT_CMD_RULES_RULES_EXPLAIN_STORE_H
#define STINT_CMD_RULES_RULES_EXPLAIN_STORE_H

#include "backend/url.h"
#include "cmd/rules/rules_files.h"
#include "cmd/store/store_word.h"
#include "decide/evaluation.h"

#include <jansson.h>

#define EXPLAINED_BYTES_MAX 4096 /* of a state that are shown */
#define EXPLAINED_NO_TTL (-1)

/* The keys that one rule may have. */
enum { EXPLAINED_STATE, EXPLAINED_SHADOW, EXPLAINED_LEASES, EXPLAINED_KEYS };

/* A state in a shared store. */
struct explained_key {
    char *name;                      /* NULL: there is none */
    char node[STORE_HOST_SIZE + 16]; /* the server that has it */
    int slot;                        /* in a cluster; below 0: no cluster */
    bool is_looked_at, exists;
    uint8_t *bytes;
    size_t len, n_shown;
    int64_t ttl_ms; /* EXPLAINED_NO_TTL; below that: just expired */
    char fault[200];
};

struct explain_store;

struct explain_store_options {
    const struct store_given *given;
    const char *prefix; /* of its keys. NULL: "stint:" */
};

/*
 * Loads the rules again, with this store instead of every store that they name, and as the default.
 * False: an error has been reported.
 */
bool explain_store_load(const struct rules_args *args, struct rules_loaded *loaded);

/* STINT_E_GONE: it cannot be queried. */
int explain_store_open(struct explain_store **store, const struct explain_store_options *options,
                       struct stint_error *error);
void explain_store_close(struct explain_store *store); /* NULL is fine */

/*
 * Fills the request, peeks, and finds the keys of the states that were peeked. STINT_E_GONE: the
 * store did not answer.
 */
int explain_store_ask(struct explain_store *store, struct evaluation *evaluation,
                      const struct evaluation_ask *ask, struct stint_decision *decision,
                      struct stint_error *error);
/* They live as long as the store. */
const struct explained_key *explain_store_keys(const struct explain_store *store);

#endif
