/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint replay` and their shared types: the options, the source of events, the run
 * that decides them, and the report.
 */
#ifndef STINT_CMD_REPLAY_REPLAY_H
#define STINT_CMD_REPLAY_REPLAY_H

#include "cmd/lib/event_sorter.h"
#include "cmd/lib/gnuplot.h"
#include "cmd/lib/print.h"
#include "cmd/lib/source.h"
#include "cmd/replay/replay_rules.h"
#include "cmd/store/shared_session.h"
#include "sim/input/event.h"
#include "sim/judge/exact.h"
#include "sim/judge/history.h"
#include "sim/judge/key_set.h"

#include <jansson.h>

#define REPLAY_POPULAR_MAX 1000

struct replay_options {
    struct stint_quota quotas[STINT_ITEMS_MAX];
    size_t n_quotas;
    struct replay_rules_options rules; /* replaces quotas if any file is given */
    struct source_options source;
    struct store_given store;
    enum stint_verb verb;
    const char *state; /* file that keeps the table; NULL = memory */
    uint64_t keys;     /* live keys of the table's capacity; 0 = the default */
    struct gnuplot plot;
    const char *plot_key; /* NULL: the one denied most */
    size_t top_keys;      /* keys with most requests and denials to print; 0: not given */
    bool decisions, json;
};

/* ---- The run: decisions on events ---- */

#define REPLAY_BATCH 256
#define REPLAY_STORE_PREFIX "stint:replay:"

struct replay_tally {
    uint64_t allowed, denied; /* units */
};

struct replay_run {
    struct replay_options options;
    struct event_source source;
    struct replay_rules *rules; /* NULL: the options' quotas decide */
    struct event_sorter sorter;
    struct progress progress;
    /*
     * The same events decided by a shared store, in the time of the events. All keys have a prefix
     * of this run, and are deleted at its end. NULL: the table's decisions count.
     */
    struct shared_session *session;
    char prefix[40];                       /* "stint:replay:RANDOM:" */
    char quota_names[STINT_ITEMS_MAX][20]; /* of quotas, in the names of keys */
    uint64_t differing; /* decisions of the store that differ from those of the table */
    struct stint_table *table;
    uint64_t epoch_ns;          /* the input's time at the table's time 0 */
    uint64_t latest_ns;         /* the table's time */
    uint64_t first_ns, last_ns; /* earliest and latest of the input's times */
    struct key_set names;
    struct exact exact;
    struct replay_tally *tallies; /* by number of key */
    size_t tallies_size;
    struct replay_tally units;
    uint64_t events, allowed, denied, never; /* events */
    uint64_t late;                           /* events decided at the latest time seen */
    bool late_named;
    bool interrupted;           /* by a signal: what was read until then is decided */
    struct history_events plot; /* with --plot: their results */
    uint64_t decide_ns;         /* time spent in calls of the limiter */
    size_t n_pending;
    struct event_entry pending[REPLAY_BATCH];
    uint64_t pending_now_ns[REPLAY_BATCH];
    struct stint_decision decisions[REPLAY_BATCH];
    /* What the store is asked for them; waiting: of these. */
    struct backend_op ops[REPLAY_BATCH];
    struct stint_decision each[REPLAY_BATCH][STINT_ITEMS_MAX];
    size_t n_waiting;
};

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

/* ---- The report ---- */

/* One tab-separated line, or a JSON object, for one event. */
void replay_print_decision(const struct replay_run *run, const struct event_entry *entry,
                           const struct stint_decision *decision);
/* The summary, warnings and the picture. Returns an enum cmd_exit; errors have been reported. */
int replay_report(struct replay_run *run);

#endif
