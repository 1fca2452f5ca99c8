/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint replay` and their shared types: the options, the source of events, the run
 * that decides them, and the report.
 */
#ifndef STINT_CMD_REPLAY_REPLAY_H
#define STINT_CMD_REPLAY_REPLAY_H

#include "cmd/lib/gnuplot.h"
#include "cmd/lib/input.h"
#include "cmd/lib/progress.h"
#include "cmd/replay/replay_rules.h"
#include "cmd/replay/replay_store.h"
#include "sim/input/event.h"
#include "sim/input/event_list.h"
#include "sim/input/jsonl.h"
#include "sim/input/logline.h"
#include "sim/input/reader.h"
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

/* Exits if the command line is wrong. */
void replay_options_parse(struct replay_options *options, int argc, char **argv);

/* ---- The source: events out of a file ---- */

struct replay_source {
    enum replay_format format;
    bool strict;
    struct input input;
    struct reader reader;
    union {
        struct logline logline;
        struct jsonl jsonl;
    } parser;
    uint64_t malformed; /* lines */
    uint64_t first_ns;  /* time of the first event */
    bool begun;
};

int replay_source_open(struct replay_source *source, const struct source_options *options,
                       struct stint_error *error);
void replay_source_close(struct replay_source *source);
/*
 * EVENT_FOUND, EVENT_NONE at the end, or a negative code if the input cannot be read further.
 * Malformed lines are counted, the first few reported, and skipped unless `strict`.
 */
int replay_source_next(struct replay_source *source, struct event *event,
                       struct stint_error *error);

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
    struct replay_plot plot;
    uint64_t decide_ns; /* time spent in calls of the limiter */
    size_t n_pending;
    struct event_entry pending[REPLAY_BATCH];
    uint64_t pending_now_ns[REPLAY_BATCH];
    struct stint_decision decisions[REPLAY_BATCH];
};

/* rules: NULL where the options' quotas decide; outlives the run. */
int replay_run_init(struct replay_run *run, const struct replay_options *options,
                    struct replay_rules *rules, struct stint_error *error);
void replay_run_deinit(struct replay_run *run);
/* The table and the store open with the first event: its time determines their time 0. */
int replay_run_open(struct replay_run *run, uint64_t first_ns, struct stint_error *error);
/* Adds the next event; decides once REPLAY_BATCH are there, or at a flush. */
int replay_run_add(struct replay_run *run, struct event_entry entry, struct stint_error *error);
int replay_run_flush(struct replay_run *run, struct stint_error *error);
/* Deletes its keys from the store, if it has one. */
int replay_run_clean(struct replay_run *run, struct stint_error *error);

struct replay_store_told {
    const char *prefix; /* of its keys */
    uint64_t ns;        /* time spent waiting */
    bool has_detoured;  /* requests may have been decided in another order than they were made */
};
/* False: it has no store. */
bool replay_run_store(const struct replay_run *run, struct replay_store_told *told);

/* ---- The picture ---- */

void replay_plot_deinit(struct replay_plot *plot);
int replay_plot_keep(struct replay_run *run, struct replay_plot_event event,
                     struct stint_error *error);
/* Returns an enum cmd_exit; errors have been reported. */
int replay_plot_draw(const struct replay_run *run);

/* ---- The report ---- */

/* One tab-separated line, or a JSON object, for one event. */
void replay_print_decision(const struct replay_run *run, const struct event_entry *entry,
                           const struct stint_decision *decision);
void replay_print_text(const struct replay_run *run, const struct replay_source *source);
/* 0, or a negative code if there is no memory. */
int replay_print_json(const struct replay_run *run, const struct replay_source *source);
/* The keys with most requests, if --popular is given, and with most denials. */
void replay_print_most(const struct replay_run *run);
json_t *replay_denied_most_json(const struct replay_run *run);
json_t *replay_asked_most_json(const struct replay_run *run);
void replay_warn(const struct replay_run *run, const struct replay_source *source);

#endif
