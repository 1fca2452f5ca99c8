/* SPDX-License-Identifier: MIT */
/*
 * How every benchmark measures: a subject and its baseline take turns in one run, each turn gives
 * one ratio, and the median of them is the figure. A machine that is slower for a while is then
 * slower for both. What counts is the time that a thread has run, so that others on the machine
 * cost what they do to its caches and no more.
 */
#ifndef STINT_BENCH_MEASURE_H
#define STINT_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TURNS_MAX 99

enum side { SIDE_BOTH, SIDE_BASELINE, SIDE_SUBJECT };

/* What a benchmark was asked for; bench_options() explains each. */
struct bench_options {
    FILE *json;
    const char *algorithm;
    const char *spread;
    uint64_t keys;
    unsigned turns;
    enum side side;
    bool small_pages;
    bool quick;
};

/* Reads the command line; leaves with 2 and a message if it cannot. */
struct bench_options bench_options(int argc, char **argv);

/* Whether `name` is what an option asked for; an option that was not given asks for everything. */
bool bench_wants(const char *option, const char *name);

enum goal { GOAL_NONE, GOAL_AT_MOST, GOAL_AT_LEAST };

/*
 * One row of the table. Its figure, which the goal speaks of, is the median ratio, or the median
 * value where there is no baseline.
 */
struct row {
    const char *what;     /* the subject */
    const char *baseline; /* what it is compared with; NULL: nothing */
    const char *unit;     /* of the two values; "ns" is per operation */
    const char *note;     /* may be NULL */
    double baselines[TURNS_MAX], values[TURNS_MAX], ratios[TURNS_MAX];
    unsigned n_turns;
    bool speed_up; /* the ratio is baseline to value, not value to baseline */
    enum goal goal;
    double reach;
};

/* Adds a turn; a row without a baseline ignores it. */
void row_add(struct row *row, double baseline, double value);

/* Prints the row, and writes it as one line of JSON if asked to. A quick run has no goals. */
void row_report(const struct bench_options *options, struct row *row);

/* Two things that do `ops` operations per turn. */
struct duel {
    const char *what, *baseline_name;
    void (*baseline)(void *arg, unsigned turn);
    void (*subject)(void *arg, unsigned turn);
    void *arg;
    uint64_t ops;
    bool speed_up; /* as in struct row */
    enum goal goal;
    double reach;
};

/* Lets both take turns. The first pair of turns warms up and is not counted. */
void duel_run(const struct bench_options *options, const struct duel *duel, struct row *row);

/* The time that passes, and the time that this thread has run: others do not count in it. */
uint64_t measure_wall_ns(void);
uint64_t measure_thread_ns(void);

/* Keeps the compiler from leaving out what nobody reads. */
static inline void keep(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

#endif
