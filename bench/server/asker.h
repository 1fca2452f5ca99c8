/* SPDX-License-Identifier: MIT */
/*
 * What load programs share: a connection to a server of this machine, the clock, random numbers,
 * and how long answers took.
 */
#ifndef STINT_BENCH_ASKER_H
#define STINT_BENCH_ASKER_H

#include <stdint.h>

/* Leaves with 1, and what errno says. */
_Noreturn void asker_die(const char *what);
/* A connection to a port of 127.0.0.1. */
int asker_dial(uint16_t port);
uint64_t asker_now_ns(void);
/* The next number of xorshift64; the state is not 0. */
uint64_t asker_draw(uint64_t *state);

#define ASKER_BUCKET_NS 500
#define ASKER_BUCKETS 400000 /* up to 200 ms; longer times count as the last */

/* Begins with zeros. */
struct asker_times {
    uint64_t n;
    uint32_t buckets[ASKER_BUCKETS];
};

void asker_times_add(struct asker_times *times, uint64_t ns);
/* Below what a share of the answers stayed, in microseconds. */
double asker_times_us(const struct asker_times *times, double share);

#endif
