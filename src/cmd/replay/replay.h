/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint replay` and their shared types: the options, the source of events, the run
 * that decides them, and the report.
 */
#ifndef STINT_CMD_REPLAY_REPLAY_H
#define STINT_CMD_REPLAY_REPLAY_H

#include "cmd/lib/gnuplot.h"
#include "cmd/lib/print.h"
#include "cmd/lib/source.h"
#include "cmd/replay/replay_rules.h"
#include "cmd/replay/replay_store.h"
#include "sim/input/event.h"
#include "sim/judge/exact.h"
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

/* The result of an event: with --plot all of them are kept. */
struct replay_plot_event {
    uint64_t now_ns;
    uint32_t key, cost, granted;
};

struct replay_plot {
    struct replay_plot_event *events;
    size_t n_events, size;
};

struct replay_tally {
    uint64_t allowed, denied; /* units */
};

struct replay_run {
    const struct replay_options *options;
    const struct event_source *source;
    struct replay_rules *rules; /* NULL: the options' quotas decide. Not owned */
    struct replay_store *store; /* NULL: the table's decisions count */
    uint64_t differing;         /* decisions of the store that differ from those of the table */
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
    struct replay_plot plot;
    struct replay_store_summary store_summary; /* at the end, if has_store */
    bool has_store;
    uint64_t decide_ns; /* time spent in calls of the limiter */
    size_t n_pending;
    struct event_entry pending[REPLAY_BATCH];
    uint64_t pending_now_ns[REPLAY_BATCH];
    struct stint_decision decisions[REPLAY_BATCH];
};

/* ---- The report ---- */

/* One tab-separated line, or a JSON object, for one event. */
void replay_print_decision(const struct replay_run *run, const struct event_entry *entry,
                           const struct stint_decision *decision);
void replay_print_text(const struct replay_run *run);
/* 0, or a negative code if there is no memory. */
int replay_print_json(const struct replay_run *run);
void replay_warn(const struct replay_run *run);

/* Draws the picture. Returns an enum cmd_exit; errors have been reported. */
int replay_plot_draw(const struct replay_run *run);

#endif
