/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint plan` and their shared types: the options, the log in memory, the results for
 * each algorithm and period, and the reports.
 */
#ifndef STINT_CMD_PLAN_PLAN_H
#define STINT_CMD_PLAN_PLAN_H

#include "cmd/lib/gnuplot.h"
#include "cmd/lib/print.h"
#include "cmd/lib/source.h"
#include "sim/judge/key_set.h"
#include "sim/plan/plan.h"

#define PLAN_PERIODS_MAX 16
#define PLAN_ALGORITHMS_MAX 3
#define PLAN_POINTS_MAX 32 /* of one curve */
#define PLAN_NAMES_MAX 1000
#define PLAN_NAMES_DEFAULT 10

struct plan_options {
    struct source_options source; /* the options about the log */
    struct plan_target target;
    const char *target_text;
    uint64_t periods_ns[PLAN_PERIODS_MAX]; /* shortest first */
    size_t n_periods;
    enum stint_algorithm algorithms[PLAN_ALGORITHMS_MAX];
    size_t n_algorithms;
    const char *domain, *out; /* of the file of rules; NULL: do not write it */
    size_t names;             /* keys that are named for each proposal */
    struct gnuplot plot;
    bool json;
};

/* ---- The log ---- */

struct plan_log {
    struct key_set names;
    struct traffic traffic;
    char name[256]; /* for messages */
    enum source_format format;
    uint64_t first_ns, last_ns, lines, malformed, late;
};

int plan_log_read(struct plan_log *log, const struct plan_options *options,
                  struct stint_error *error);
void plan_log_free(struct plan_log *log);

/* ---- Results ---- */

struct plan_named {
    uint32_t key;
    uint64_t denied; /* requests */
};

/* One algorithm over one period: the quota that meets the target, and the curve of other limits. */
struct plan_curve {
    enum stint_algorithm algorithm;
    uint64_t period_ns;
    struct plan_proposal proposal;
    struct plan_named *named; /* the keys denied most, most first */
    size_t n_named;
    /* For 0 keys touched, at most 1, 2, 5 …: the least quotas, greatest first, all PLAN_FOUND. */
    struct plan_proposal points[PLAN_POINTS_MAX];
    size_t n_points;
};

struct plan_result {
    struct plan_curve curves[PLAN_PERIODS_MAX * PLAN_ALGORITHMS_MAX];
    size_t n_curves;
    bool interrupted; /* only the first curves are complete */
};

/* 0 or a negative code; to be freed in both cases. */
int plan_search(struct plan_result *result, const struct plan_log *log,
                const struct plan_options *options, struct stint_error *error);
void plan_result_free(struct plan_result *result);

/* The proposal for the file of rules: the one found that denies most. NULL: none. */
const struct plan_curve *plan_chosen(const struct plan_result *result);

/* ---- The reports ---- */

struct plan_report {
    const struct plan_options *options;
    const struct plan_log *log;
    const struct plan_result *result;
};

/* Prints, writes and draws what the options ask for. Reports errors; an enum cmd_exit. */
int plan_report(const struct plan_report *report);

#endif
