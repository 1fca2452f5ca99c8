/* SPDX-License-Identifier: MIT */
/*
 * Judges decisions of one quota from what was admitted before, not from what the limiter reports.
 * By the exact count, were there enough free units? And does the slack of the algorithm permit a
 * denial?
 *
 * Memory: that of the exact count, which can be bounded, and 24 bytes per key for the three
 * algorithms that are not defined by the exact count.
 */
#ifndef STINT_SIM_JUDGE_ORACLE_H
#define STINT_SIM_JUDGE_ORACLE_H

#include "sim/judge/exact.h"

/* The oracle's own state of a key: for gcra a TAT in 1/32 ns; for the others counts of windows. */
struct oracle_algorithm {
    uint64_t end_or_number, units, before;
};

struct oracle {
    struct stint_quota quota;
    struct exact exact; /* the period, and the period with its slack if there is one */
    struct oracle_algorithm *algorithms; /* by key; NULL if the exact count defines the algorithm */
    uint64_t interval_ticks;             /* gcra */
    uint64_t slack_most;    /* by_time: more than this with the cost within the slacked period */
    uint64_t count_most;    /* by_count: more than this with the cost within the period */
    bool by_time, by_count; /* which conditions a denial has to meet: all of those set */
    bool has_algorithm;     /* the last: by the oracle's own version of the algorithm */
    bool knows;             /* the slack is stated in a form that can be checked */
};

/* Keys are numbers below n_keys. bytes_max bounds the exact count; 0 = not at all. */
int oracle_init(struct oracle *oracle, const struct stint_quota *quota, uint32_t n_keys,
                uint64_t bytes_max, struct stint_error *error);
void oracle_deinit(struct oracle *oracle);

/* A request, and the time at which it counts: no earlier than the key's admissions before. */
struct oracle_ask {
    uint32_t key, cost;
    uint64_t now_ns;     /* as in the request */
    uint64_t counted_ns; /* by the effective time */
};

struct oracle_view {
    bool has_space;    /* by the exact count */
    bool is_justified; /* a denial would be; true if that is not known */
};

struct oracle_view oracle_look(struct oracle *oracle, const struct oracle_ask *ask);

/*
 * 0, or a negative code after which the oracle must not be used any more; STINT_E_FULL if its
 * memory would pass its maximum.
 */
int oracle_admit(struct oracle *oracle, const struct oracle_ask *ask, struct stint_error *error);

/* The number is reused for another key. */
void oracle_forget(struct oracle *oracle, uint32_t key);

/* The most units that were admitted to one key in any window of the period. */
static inline const struct exact_most *oracle_most(const struct oracle *oracle)
{
    return &oracle->exact.most[0];
}

#endif
