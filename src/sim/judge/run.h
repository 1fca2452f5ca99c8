/* SPDX-License-Identifier: MIT */
/*
 * Runs a workload's requests against the limiter, on virtual time, and tallies the results. The
 * limiter is an ordinary table; its decisions are judged by an oracle that knows only what was
 * admitted.
 */
#ifndef STINT_SIM_JUDGE_RUN_H
#define STINT_SIM_JUDGE_RUN_H

#include "sim/judge/tally.h"

#define RUN_ORACLE_BYTES_DEFAULT (UINT64_C(1) << 30)

struct run_options {
    const struct stint_quota *quotas; /* several: all or nothing */
    size_t n_quotas;
    const struct workload *workload;          /* as parsed; a copy of it is run */
    const struct stint_quota *workload_quota; /* to which it refers; NULL: the first */
    uint64_t seed;
    uint64_t length_ns;     /* virtual time from 0 on; 0 = 100 of the longest period */
    uint64_t decisions_max; /* 0 = no maximum */
    int64_t epoch_ns;       /* wall clock at 0 */
    uint64_t table_keys;    /* the table's capacity for live keys; 0 = twice as many as come */
    bool without_oracle;
    uint64_t oracle_bytes_max; /* of all quotas together; 0 = RUN_ORACLE_BYTES_DEFAULT */
    /*
     * May be NULL: a clock for the time that decisions take; whether to continue, called now and
     * then; and a function that receives each decision, with the time that was counted.
     */
    uint64_t (*clock_ns)(void);
    bool (*goes_on)(void *arg, uint64_t decisions, uint64_t now_ns);
    void (*sees)(void *arg, const struct sim_event *event, const struct stint_decision *decision);
    void *arg;
};

/* The virtual time that a run takes, after its defaults. */
uint64_t run_length_ns(const struct run_options *options);

/* 0 or a negative code; *tally is complete if it is 0. */
int run_simulate(const struct run_options *options, struct tally *tally, struct stint_error *error);

#endif
