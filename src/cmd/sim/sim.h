/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint sim`. `run` and `compare` share the options, the runs of a workload, one for
 * each seed, and their metrics; `worst` is a search.
 */
#ifndef STINT_CMD_SIM_SIM_H
#define STINT_CMD_SIM_SIM_H

#include "cmd/lib/gnuplot.h"
#include "cmd/lib/print.h"
#include "cmd/lib/source.h"
#include "sim/judge/key_set.h"
#include "sim/judge/run.h"
#include "sim/search/search_worst.h"

#include <stdio.h>

#define SIM_SEEDS_MAX 1000

struct sim_options {
    struct stint_quota quotas[STINT_ITEMS_MAX];
    size_t n_quotas;
    const char *workload_text;
    struct workload workload;
    uint64_t seed, n_seeds;
    uint64_t length_ns, decisions_max, table_keys, oracle_bytes_max;
    bool without_oracle, json, csv;
    struct gnuplot gnuplot;
};

/* Only `compare` prints CSV. */
enum sim_command { SIM_RUN, SIM_COMPARE };

struct sim_log {
    struct event_list events;
    struct key_set names; /* by index */
    uint64_t epoch_ns;    /* of virtual time */
    uint64_t malformed;
    enum source_format format;
};

/* The runs of one list of quotas. */
struct sim_runs {
    const struct stint_quota *quotas;
    const struct stint_quota *workload_quota; /* the quota to which the workload refers */
    size_t n_quotas;
    struct tally *tallies; /* by seed */
    size_t n_done;         /* the last may be partial */
};

struct sim_work {
    const struct sim_options *options;
    const struct sim_log *log;
    struct progress progress;
    uint64_t decisions; /* of the complete runs */
    bool interrupted;
};

/* Each reports all errors, and returns an enum cmd_exit. `first`: the run of the first seed. */
int sim_report_run(const struct sim_work *work, const struct sim_runs *runs,
                   const struct run_options *first);
int sim_report_compare(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs);

/* ---- `stint sim worst` ----------------------------------------------------------------------- */

struct sim_worst_options {
    struct stint_quota quota;
    const char *path; /* of the trace; NULL = standard output */
    FILE *trace;      /* NULL: that is standard output */
    uint64_t seed;
    uint64_t time_ns, tries_max; /* the first limit that is reached ends the search */
    bool json;
    bool takes_only;
};

/* Searches, prints, closes the trace; an enum cmd_exit, CMD_BAD_INPUT for a broken bound. */
int sim_worst_run(const struct sim_worst_options *options, const struct search_subject *subject);

#endif
