/* SPDX-License-Identifier: MIT */
/*
 * `stint replay --store`: the same events decided by a shared store, in the time of the events, and
 * compared with the decisions of the embedded engine. All keys have a prefix of this run, and are
 * deleted at its end.
 */
#ifndef STINT_CMD_REPLAY_REPLAY_STORE_H
#define STINT_CMD_REPLAY_REPLAY_STORE_H

#include "cmd/store/store_word.h"
#include "sim/judge/key_set.h"

#include "stint.h"

#define REPLAY_STORE_PREFIX "stint:replay:"
#define REPLAY_STORE_PREFIX_SIZE 40

struct replay_store;

struct replay_store_options {
    const struct store_given *given;
    const struct stint_quota *quotas; /* a list: all or nothing. Outlives the store */
    size_t n_quotas;
    enum stint_verb verb;
};

/* "stint:replay:RANDOM:", of one run. */
int replay_store_name_run(char prefix[REPLAY_STORE_PREFIX_SIZE], struct stint_error *error);

/* STINT_E_RANGE or STINT_E_MISMATCH if the store does not accept one of the quotas. */
int replay_store_open(struct replay_store **store, const struct replay_store_options *options,
                      struct stint_error *error);
void replay_store_close(struct replay_store *store); /* NULL is fine */

/* One event, with its decision as output. */
struct replay_store_event {
    struct span key;
    uint32_t cost;
    uint64_t now_ns; /* since 1970 or of the trace; whole microseconds */
    struct stint_decision *decision;
};

/* Decides all of them, in their order. STINT_E_GONE: the store did not answer. */
int replay_store_decide(struct replay_store *store, const struct replay_store_event *events,
                        size_t n_events, struct stint_error *error);

/* Deletes the keys of this run. STINT_E_GONE: some may be left. */
int replay_store_clean(struct replay_store *store, const struct key_set *names,
                       struct stint_error *error);

struct replay_store_summary {
    const char *prefix; /* of its keys */
    uint64_t ns;        /* time spent waiting */
    bool has_detoured;  /* requests may have been decided in another order than they were made */
};
struct replay_store_summary replay_store_summary(const struct replay_store *store);

/*
 * Whether an engine that counts in nanoseconds and a store that counts in microseconds have decided
 * the same: waits rounded up, every other field exactly.
 */
bool replay_store_agrees(const struct stint_decision *engine, const struct stint_decision *store);

/*
 * The time 0 of a table whose windows begin together with the store's: the last multiple of a day
 * and of all periods that is not after first_ns. If there is none that both can count from, the
 * midnight before; then decisions may differ by the slack of their algorithms.
 */
uint64_t replay_store_epoch_ns(const struct stint_quota *quotas, size_t n_quotas,
                               uint64_t first_ns);

#endif
