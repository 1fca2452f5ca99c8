/* SPDX-License-Identifier: MIT */
/* The output of `stint rules explain`, as text and as JSON. */
#ifndef STINT_CMD_RULES_RULES_EXPLAIN_PRINT_H
#define STINT_CMD_RULES_RULES_EXPLAIN_PRINT_H

#include "backend/url.h"
#include "decide/evaluation.h"

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

struct explained {
    const char *domain;
    bool has_domain; /* the rules know its key */
    const struct descriptor *descriptors;
    const struct evaluation *evaluation;
    /* EXPLAINED_KEYS for each descriptor. NULL: no store was queried */
    const struct explained_key *keys;
    struct stint_decision decision; /* of the request as a whole */
};

/* 0, or a negative code without memory. */
int rules_explain_print(const struct explained *explained, bool is_json);

#endif
