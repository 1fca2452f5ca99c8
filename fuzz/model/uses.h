/* SPDX-License-Identifier: MIT */
/*
 * The exact log: every use with its time and units, and how many there were in a window. It knows
 * of no algorithm, and judges all of them.
 */
#ifndef STINT_FUZZ_MODEL_USES_H
#define STINT_FUZZ_MODEL_USES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USES_MAX 512

struct use {
    uint64_t at_ns;  /* the effective time: never before that of an earlier use */
    uint64_t now_ns; /* as the caller gave it */
    uint64_t units;  /* not given back */
    uint32_t era;    /* how many changes of quota came before it */
    bool booked;     /* a place that was in the future when it was granted */
};

struct uses {
    size_t n;
    uint64_t clock_ns;        /* the latest effective time */
    uint32_t era;             /* changes of quota until now */
    struct use use[USES_MAX]; /* by time */
};

/* A window's length that need not be a whole number of nanoseconds. */
struct uses_length {
    unsigned __int128 ns;
    uint64_t divisor;
};

static inline uint64_t uses_effective(const struct uses *uses, uint64_t now_ns)
{
    return now_ns > uses->clock_ns ? now_ns : uses->clock_ns;
}

bool uses_is_full(const struct uses *uses);
/* Units used now; returns the effective time. */
uint64_t uses_add(struct uses *uses, uint64_t now_ns, uint64_t units);
/* Units of a place in the future. */
void uses_add_booked(struct uses *uses, uint64_t start_ns, uint64_t units);

/* Units in (at - length, at]. */
uint64_t uses_within(const struct uses *uses, uint64_t at_ns, struct uses_length length);

#endif
