/* SPDX-License-Identifier: MIT */
/*
 * Puts a workload's requests to the limiter, on virtual time, and tallies what comes of them. The
 * limiter is a table as everybody has it; what it decides is judged by an oracle that knows what
 * was admitted and nothing else.
 */
#ifndef STINT_SIM_JUDGE_RUN_H
#define STINT_SIM_JUDGE_RUN_H

#include "sim/judge/tally.h"

#define RUN_ORACLE_BYTES_DEFAULT (UINT64_C(1) << 30)

struct run_options {
    const struct stint_quota *quotas; /* several: all or nothing */
    size_t n_quotas;
    const struct workload *workload;          /* as parsed; a copy of it is run */
    const struct stint_quota *workload_quota; /* that it speaks of; NULL: the first */
    uint64_t seed;
    uint64_t length_ns;     /* virtual time from 0 on; 0 = 100 of the longest period */
    uint64_t decisions_max; /* 0 = no maximum */
    int64_t epoch_ns;       /* wall clock at 0 */
    uint64_t table_keys;    /* live keys that the table has room for; 0 = twice as many as come */
    bool without_oracle;
    uint64_t oracle_bytes_max; /* of all quotas together; 0 = RUN_ORACLE_BYTES_DEFAULT */
    /* May be NULL: a clock for the time that decisions take; whether to go on, asked now and then;
     * and who sees each decision, with the time that was counted. */
    uint64_t (*clock_ns)(void);
    bool (*goes_on)(void *arg, uint64_t decisions, uint64_t now_ns);
    void (*sees)(void *arg, const struct sim_event *event, const struct stint_decision *decision);
    void *arg;
};

/* The virtual time that a run takes, after its defaults. */
uint64_t run_length_ns(const struct run_options *options);

/* 0 or a negative code; *tally is whole where it is 0. */
int run_simulate(const struct run_options *options, struct tally *tally, struct stint_error *error);

#endif
