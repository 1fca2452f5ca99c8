/* SPDX-License-Identifier: MIT */
/*
 * STINT_COUNTER: a count that has an expiry and no limit. It is an algorithm to the table alone, so
 * that counters have their slots, swaps and repairs from what all states share; no SPEC names it,
 * and stint_quota_check() refuses it. stint_count() is its verb.
 */
#ifndef STINT_ALGORITHM_EXPIRING_COUNTER_H
#define STINT_ALGORITHM_EXPIRING_COUNTER_H

#include "algorithm/algorithm.h"

/* A counter at an instant; both 0 for one that expired, or never was. */
struct counter_value {
    uint64_t count;
    uint64_t expires_at_ns;
};
struct counter_value counter_at(const struct word16 *state, uint64_t now_ns);

/*
 * What is asked of it: CHARGE adds `cost`, and begins a counter that expires at_ns after now where
 * there is none; REFUND subtracts; PEEK looks.
 */
struct stint_ask counter_ask_of(int64_t amount, uint64_t expiry_ns, uint64_t now_ns);

/* STINT_E_RANGE unless a counter takes the key, the amount, and the expiry of one that adds. */
int counter_check_ask(size_t key_len, int64_t amount, uint64_t expiry_ns,
                      struct stint_error *error);

#endif
