/* SPDX-License-Identifier: MIT */
/*
 * Shared by `stint sim run` and `stint sim compare`: the options, the runs of a workload, one for
 * each seed, and their metrics.
 */
#ifndef STINT_CMD_SIM_SIM_H
#define STINT_CMD_SIM_SIM_H

#include "cmd/lib/gnuplot.h"
#include "cmd/lib/progress.h"
#include "sim/input/log_format.h"
#include "sim/judge/key_set.h"
#include "sim/judge/run.h"

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

/* ---- sim_work.c: the requests of a log ---- */

struct sim_log {
    struct event_list events;
    struct key_set names; /* by index */
    uint64_t epoch_ns;    /* of virtual time */
    uint64_t malformed;
    enum log_format format;
};

/* Reads and sorts them, and lends them to the workload. Nothing if it has no log. */
int sim_log_read(struct sim_log *log, struct sim_options *options, struct stint_error *error);
void sim_log_free(struct sim_log *log);

/* ---- The runs ---- */

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

/* The options of the run with the i-th seed. */
struct run_options sim_work_options(const struct sim_work *work, const struct sim_runs *runs,
                                    size_t i);
/* Makes a run for each seed, until all are made or a signal arrives. 0 or a negative code. */
int sim_work_do(struct sim_work *work, struct sim_runs *runs, struct stint_error *error);
void sim_runs_free(struct sim_runs *runs);

/* Reports broken promises; returns an enum cmd_exit. */
int sim_work_warn(const struct sim_work *work, const struct sim_runs *runs);

/* ---- sim_report.c: what is printed and drawn ---- */

/* Each reports all errors, and returns an enum cmd_exit. */
int sim_report_run(const struct sim_work *work, const struct sim_runs *runs);
int sim_report_compare(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs);

#endif
