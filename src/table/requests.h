/* SPDX-License-Identifier: MIT */
/*
 * Answers to requests with an id, kept in the region for retries: the same id gets the same answer,
 * and is charged once, whichever thread or process receives it, also after a restart.
 *
 * A caller with a new id claims it, decides, and records the answer. Meanwhile requests with the
 * same id are BUSY: a claim lasts as long as a decision. If the process of a claim is killed before
 * it records its answer, it is not known whether its units were charged. The next request with the
 * id takes the claim over and decides anew: the units may then be charged twice, never not at all,
 * so that no limit is exceeded.
 *
 * Bounded: an id has one of REQUESTS_WAYS records, found by its hash. Where none is free the oldest
 * answer is dropped, and counted; a retry of that one would be a new request.
 */
#ifndef STINT_TABLE_REQUESTS_H
#define STINT_TABLE_REQUESTS_H

#include "table/table.h"

#define REQUESTS_WAYS 12

enum requests_found {
    REQUESTS_NONE = 0,   /* the table keeps no answers; decide */
    REQUESTS_NEW,        /* the id is claimed: decide, then requests_end() */
    REQUESTS_SAME,       /* *answer is the earlier answer */
    REQUESTS_OTHER_BODY, /* the id was used for another request */
    REQUESTS_BUSY,       /* another caller is deciding, or no record is free for now */
};

struct requests_ask {
    struct hash128 hash;  /* of caller, scope and id: requests_hash() */
    uint64_t fingerprint; /* of the request: the same for a retry, another for another body */
    uint64_t now_ns;
    uint64_t lifetime_ns; /* how long the answer is kept */
};

struct requests_answer {
    struct stint_decision decision;
    struct stint_ticket ticket; /* {0, 0}: none */
    uint64_t at_ns;             /* when it was decided */
};

/* Set by requests_begin(); opaque to the caller. */
struct requests_claim {
    uint64_t place, nonce;
};

/* A keyed hash, so that no client can make two ids collide on purpose. */
struct hash128 requests_hash(const struct stint_table *table, const void *bytes, size_t len);

/* claim is set for NEW, answer for SAME. */
enum requests_found requests_begin(struct stint_table *table, const struct requests_ask *ask,
                                   struct requests_claim *claim, struct requests_answer *answer);

/*
 * Records the answer under the claim; NULL, where nothing was charged, drops the claim: the next
 * request with the id is then new. False if the claim is gone, or its set is held by a stopped
 * process; retries are then BUSY until the claim's lifetime ends.
 */
bool requests_end(struct stint_table *table, const struct requests_claim *claim,
                  const struct requests_answer *answer);

/* How many answers are kept now, extrapolated from sets_max sets if there are more; and the
 * capacity. */
uint64_t requests_count(const struct stint_table *table, uint64_t now_ns, uint64_t sets_max);
uint64_t requests_space(const struct stint_table *table);

/* At an opening by a sole user: drops claims, and answers that no process can have recorded. */
void requests_repair(struct stint_table *table);

/* Record `place` as it may be in a copy of the table, REQUESTS_SET_SIZE bytes of a set at once. */
#define REQUEST_SIZE 128 /* bytes */
#define REQUESTS_SET_SIZE (64 + REQUESTS_WAYS * REQUEST_SIZE)
void requests_copy_set(const struct stint_table *table, uint64_t set, void *to);

#endif
