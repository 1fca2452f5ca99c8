/* SPDX-License-Identifier: MIT */
/*
 * The settings of shared stores, in the form that a server needs. A store is written [NAME=]URL or
 * [NAME=]@FILE, with the URL in the first line of the file; without a name it is `default`, which
 * is used by all rules that name none.
 */
#ifndef STINT_CMD_SERVE_SERVE_STORES_H
#define STINT_CMD_SERVE_SERVE_STORES_H

#include "cmd/serve/serve_settings.h"
#include "decide/evaluation.h"
#include "net/upstream/backends.h"
#include "rules/yaml/rules_load.h"

#define STORE_NAME_SIZE 33 /* zero included */

_Static_assert(STORES_MAX == RULES_STORES_MAX, "every store that there may be can be named");

struct serve_store_names {
    char texts[STORES_MAX][STORE_NAME_SIZE];
    const char *names[STORES_MAX];
    size_t n_names;
    size_t default_store; /* from 1; 0: there is none */
};

/*
 * The stores for loading rules, which borrow the names. STINT_E_MISMATCH for a name that is there
 * twice, STINT_E_RANGE for too many stores.
 */
int serve_store_rules(const struct serve_settings *settings, struct serve_store_names *names,
                      struct rules_load_options *options, struct stint_error *error);

/* Everything that follows from settings alone; the same for all workers. */
struct serve_stores {
    struct serve_store_names names;
    struct store_config configs[STORES_MAX]; /* names.n_names of them */
    const char *systems[STORES_MAX];
    struct upstream_tls *tls;
    struct evaluation_stores evaluation; /* except `stores`, of which each worker has its own */
};

/*
 * Reads files of URLs, certificates and keys: call it before a sandbox is entered. Without any
 * store the result is empty. Free with serve_stores_close(), which wipes passwords.
 */
int serve_stores_open(struct serve_stores **stores, const struct serve_settings *settings,
                      struct stint_error *error);
void serve_stores_close(struct serve_stores *stores); /* NULL is fine */

#endif
