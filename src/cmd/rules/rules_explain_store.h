/* SPDX-License-Identifier: MIT */
/*
 * `stint rules explain --store`: the state of a request's rules in a shared store, and the names of
 * their keys there, for use with redis-cli.
 */
#ifndef STINT_CMD_RULES_RULES_EXPLAIN_STORE_H
#define STINT_CMD_RULES_RULES_EXPLAIN_STORE_H

#include "cmd/rules/rules_explain.h"
#include "cmd/rules/rules_given.h"
#include "cmd/store/store_word.h"

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

/* Peeks; fills the request with it first. STINT_E_GONE: the store did not answer. */
int explain_store_peek(struct explain_store *store, struct evaluation *evaluation,
                       const struct evaluation_ask *ask, uint64_t now_ns,
                       struct stint_decision *decision, struct stint_error *error);
/* Finds the keys of the states that were peeked. They live as long as the store. */
int explain_store_look(struct explain_store *store, const struct evaluation *evaluation,
                       struct stint_error *error);
const struct explained_key *explain_store_keys(const struct explain_store *store);
uint64_t explain_store_now_ns(const struct explain_store *store);

#endif
