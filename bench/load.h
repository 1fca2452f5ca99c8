/* SPDX-License-Identifier: MIT */
/*
 * A table full of live states and requests for its keys, and, as a baseline, what no keyed limiter
 * can do without: the same keyed hash of the same key, a load from one random line and a swap in
 * another, in memory of the same size and with pages of the same size.
 *
 * Each key was charged four times over the last period, 0 to 40 units at a time. From there now
 * goes on so that a key is asked for, on average, at 80 % of its rate, which is 100 a minute. Which
 * keys are asked for is a sequence made beforehand.
 */
#ifndef STINT_BENCH_LOAD_H
#define STINT_BENCH_LOAD_H

#include "keys.h"
#include "measure.h"

#include "base/key_hash.h"
#include <stint.h>

#define LOAD_BATCH 32

struct load_form {
    const char *name, *spec, *words;
};

#define LOAD_FORMS 3
extern const struct load_form load_forms[LOAD_FORMS];
/* In a wide slot. It has no baseline of its own: no swap is as wide. */
extern const struct load_form load_wide;

/*
 * A copy is another asker of the same table; `first_op` lets it begin elsewhere in the sequence.
 * Aligned, so that the counts of two askers do not share a line.
 */
struct load {
    _Alignas(128) struct stint_quota quota;
    struct stint_table *table;
    struct sequence sequence;
    uint64_t first_op, ops; /* of one turn */
    uint64_t now_ns, step_ps;
    uint64_t denied, asked;
    uint8_t *lines; /* the baseline's memory */
    uint64_t n_lines, lines_size;
    struct key_hash key_hash;
};

/* Leaves with 1 and a message if there is no memory. The caller makes the sequence. */
void load_open(struct load *load, const struct bench_options *options, const struct load_form *form,
               uint32_t n_keys);
void load_close(struct load *load);

/* One turn of each; `arg` is a struct load. */
void load_single(void *arg, unsigned turn);
void load_batched(void *arg, unsigned turn);
void load_bare8(void *arg, unsigned turn);
void load_bare16(void *arg, unsigned turn);
/* The baseline when each key waits for the load of the one before. */
void load_waiting8(void *arg, unsigned turn);
void load_waiting16(void *arg, unsigned turn);

static inline bool load_is_small(const struct load *load)
{
    return stint_state_size(&load->quota) == 8;
}

#endif
