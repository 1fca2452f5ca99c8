/* SPDX-License-Identifier: MIT */
/* One or two askers of the same table, in threads that begin together. */
#ifndef STINT_BENCH_CREW_H
#define STINT_BENCH_CREW_H

#include <stdint.h>

#define CREW_MAX 2

struct crew_time {
    double wall_ns; /* from the first to begin to the last to end */
    double run_ns;  /* that a thread has run, on average */
};

/* Runs run(args[i], turn) in n threads. Leaves with 1 if there are no threads. */
struct crew_time crew_run(unsigned n, void (*run)(void *arg, unsigned turn), void *const *args,
                          unsigned turn);

/*
 * The same, again and again until the threads were hardly kept from running; else the best of
 * CREW_ATTEMPTS_MAX. Each attempt is a turn of its own, from `turn` on.
 */
#define CREW_ATTEMPTS_MAX 60
struct crew_time crew_run_undisturbed(unsigned n, void (*run)(void *arg, unsigned turn),
                                      void *const *args, unsigned turn);

#endif
