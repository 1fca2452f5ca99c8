/* SPDX-License-Identifier: MIT */
/* A crew of threads that start together, and checks that are counted and told. */
#ifndef STINT_TESTS_RACE_CREW_H
#define STINT_TESTS_RACE_CREW_H

#include "repeats.h"

#include "stint.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREW_MAX 16

struct crew_member {
    pthread_t thread;
    pthread_barrier_t *start;
    void (*work)(void *arg, unsigned number);
    void *arg;
    unsigned number;
};

static unsigned crew_failures;

__attribute__((format(printf, 2, 3))) static inline void crew_check(bool holds, const char *format,
                                                                    ...)
{
    if (holds)
        return;
    if (crew_failures++ < 10) {
        va_list args;
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fputc('\n', stderr);
    }
}

static inline int crew_report(void)
{
    if (crew_failures > 0)
        fprintf(stderr, "%u checks failed\n", crew_failures);
    return crew_failures > 0;
}

static inline void crew_parse(struct stint_quota *quota, const char *spec)
{
    struct stint_error error;
    if (stint_quota_parse(quota, spec, &error) != 0) {
        fprintf(stderr, "%s: %s\n", spec, error.message);
        exit(1);
    }
}

/*
 * On a busy machine an owner that is off its processor for 10 ms may lose a wide state, and the key
 * is full from then on: each loss (owners_displaced) excuses one key that has less than its limit.
 */
static inline bool crew_excuses(uint64_t *displaced)
{
    bool excuses = *displaced > 0;
    *displaced -= excuses;
    return excuses;
}

/* The hash of keys is the same in each run: a random one may crowd a set. */
static inline struct stint_table *crew_open(const struct stint_table_options *options)
{
    struct stint_error error;
    struct stint_table *table;
    struct stint_table_options fixed = *options;
    fixed.hash_key[0] = 1;
    if (stint_table_open(&table, &fixed, &error) != 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return table;
}

static inline void *crew_member_run(void *arg)
{
    struct crew_member *member = arg;
    pthread_barrier_wait(member->start);
    member->work(member->arg, member->number);
    return NULL;
}

/* Runs `work` in n threads that start at the same moment, and waits for all. */
static inline void crew_run(unsigned n, void (*work)(void *arg, unsigned number), void *arg)
{
    struct crew_member members[CREW_MAX];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, n);
    for (unsigned i = 0; i < n; i++) {
        members[i] = (struct crew_member){.start = &start, .work = work, .arg = arg, .number = i};
        pthread_create(&members[i].thread, NULL, crew_member_run, &members[i]);
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&start);
}

#endif
