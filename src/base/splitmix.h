/* SPDX-License-Identifier: MIT */
/*
 * A sequence of 64-bit numbers from any seed: Steele, Lea and Flood's splitmix64, "Fast splittable
 * pseudorandom number generators", 2014. For jitter and for seeds; never for secrets.
 */
#ifndef STINT_BASE_SPLITMIX_H
#define STINT_BASE_SPLITMIX_H

#include <stdint.h>

static inline uint64_t splitmix_next(uint64_t *state)
{
    uint64_t word = *state += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

#endif
