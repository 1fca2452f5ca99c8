/* SPDX-License-Identifier: MIT */
/*
 * Answers given to requests with an id, kept in the region for retries: the same id gets the same
 * answer, and is charged once, whichever thread or process it comes to, also after a restart.
 *
 * Whoever comes with a new id claims it, decides, and records the answer. Meanwhile others with the
 * same id are told that it is BUSY: a claim lasts as long as a decision. If the process of a claim
 * is killed before it recorded its answer, nobody knows whether its units were charged. The next to
 * come with the id takes the claim over and decides anew: the units may then be charged twice,
 * never not at all, so that no limit is passed.
 *
 * Bounded: an id has one of REQUESTS_WAYS places, found by its hash. Where none is free the oldest
 * answer goes, and is counted; a retry of that one would be a new request.
 */
#ifndef STINT_TABLE_REQUESTS_H
#define STINT_TABLE_REQUESTS_H

#include "table/table.h"

#define REQUESTS_WAYS 12

enum requests_found {
    REQUESTS_NONE = 0,   /* the table keeps no answers; decide */
    REQUESTS_NEW,        /* the id is claimed: decide, then requests_end() or requests_drop() */
    REQUESTS_SAME,       /* *answer is what was said before */
    REQUESTS_OTHER_BODY, /* the id was used for something else */
    REQUESTS_BUSY,       /* somebody is deciding just now, or there is no place for a while */
};

struct requests_ask {
    struct hash128 hash;  /* of caller, scope and id: requests_hash() */
    uint64_t fingerprint; /* of what is asked: the same for a retry, another for another body */
    uint64_t now_ns;
    uint64_t lifetime_ns; /* how long the answer is kept */
};

struct requests_answer {
    struct stint_decision decision;
    struct stint_ticket ticket; /* {0, 0}: none */
    uint64_t at_ns;             /* when it was decided */
};

/* What requests_begin() left behind; not to be looked into. */
struct requests_claim {
    uint64_t place, nonce;
};

/* A keyed hash, so that nobody makes two ids fall together on purpose. */
struct hash128 requests_hash(const struct stint_table *table, const void *bytes, size_t len);

/* claim is set for NEW, answer for SAME. */
enum requests_found requests_begin(struct stint_table *table, const struct requests_ask *ask,
                                   struct requests_claim *claim, struct requests_answer *answer);

/*
 * Records the answer under the claim, or drops the claim, where nothing was charged: the next with
 * the id is new. False if the claim is gone, or its place cannot be had since a process was stopped
 * at work on it; then retries are BUSY until the claim's lifetime ends.
 */
bool requests_end(struct stint_table *table, const struct requests_claim *claim,
                  const struct requests_answer *answer);
bool requests_drop(struct stint_table *table, const struct requests_claim *claim);

/*
 * How many answers are kept now, going by sets_max sets if there are more, and for how many there
 * is room.
 */
uint64_t requests_count(const struct stint_table *table, uint64_t now_ns, uint64_t sets_max);
uint64_t requests_space(const struct stint_table *table);

/* At an opening, nobody else there: forgets claims, and answers that nobody can have recorded. */
void requests_repair(struct stint_table *table);

/* Place `place` as it may stand in a copy of the table, REQUESTS_SET_SIZE bytes of a set at once.
 */
#define REQUEST_SIZE 128 /* bytes */
#define REQUESTS_SET_SIZE (64 + REQUESTS_WAYS * REQUEST_SIZE)
void requests_copy_set(const struct stint_table *table, uint64_t set, void *to);

#endif
