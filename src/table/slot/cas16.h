/* SPDX-License-Identifier: MIT */
/*
 * Two adjacent 64-bit words that are swapped in one step, and how they are read.
 *
 * The builtin __sync_bool_compare_and_swap on 16 bytes is used instead of __atomic or _Atomic,
 * because those call libatomic, which may take a lock. On x86-64 it needs the cx16 target, set here
 * per function (CAS16_TARGET) so that no build flag is needed. Loads are two 8-byte loads: a load
 * by cmpxchg16b would write the line, and a denied key must stay readable by all cores. The swap
 * that follows confirms such a load, or a second read does (cas16_load_stable).
 *
 * Where the machine has no 16-byte swap (or STINT_NO_CAS16 is defined), a small pool of spin locks
 * replaces it. A thread that ends inside one would block others, so tables that other processes
 * could share are refused there (CAS16_LOCK_FREE is 0).
 */
#ifndef STINT_TABLE_SLOT_CAS16_H
#define STINT_TABLE_SLOT_CAS16_H

#include "base/wide_int.h"

#include <stdbool.h>
#include <stdint.h>

struct pair {
    _Alignas(16) uint64_t first;
    uint64_t second;
};

#if defined(STINT_NO_CAS16) || !defined(__SIZEOF_INT128__)
#define CAS16_LOCK_FREE 0
#elif defined(__x86_64__)
#define CAS16_LOCK_FREE 1
#if defined(__clang__)
/* clang 14 inlines such functions into callers without the target, and calls a library then. */
#define CAS16_TARGET __attribute__((target("cx16"), noinline))
#else
#define CAS16_TARGET __attribute__((target("cx16")))
#endif
#elif defined(__aarch64__)
#define CAS16_LOCK_FREE 1
#define CAS16_TARGET
#else
#define CAS16_LOCK_FREE 0
#endif

#if CAS16_LOCK_FREE

/* seq_cst: a publishing swap must come before the loads that look for other publishers. */
CAS16_TARGET static inline bool cas16(struct pair *at, struct pair expected, struct pair desired)
{
    uint128 from = ((uint128)expected.second << 64) | expected.first;
    uint128 to = ((uint128)desired.second << 64) | desired.first;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "the two halves would be exchanged"
#endif
    return __sync_bool_compare_and_swap((uint128 *)(void *)at, from, to);
}

/*
 * seq_cst, so that a scan after a publishing swap sees every swap before it; free on x86-64. The
 * second half is read first: if it is a generation, a torn read then combines it with the tag of
 * the same or a later one, whose state no longer has that generation's mark. In the other order, an
 * old tag with a new generation would charge one key, or one algorithm, in the state of another.
 */
static inline struct pair cas16_load(const struct pair *at)
{
    struct pair seen;
    seen.second = __atomic_load_n(&at->second, __ATOMIC_SEQ_CST);
    seen.first = __atomic_load_n(&at->first, __ATOMIC_SEQ_CST);
    return seen;
}

#else

#define CAS16_TARGET

#define CAS16_LOCKS 64
extern uint32_t cas16_locks[CAS16_LOCKS];

static inline uint32_t *cas16_lock(const struct pair *at)
{
    uint32_t *lock = &cas16_locks[((uintptr_t)at >> 4) % CAS16_LOCKS];
    /* seq_cst, as the swap that it stands for. */
    while (__atomic_exchange_n(lock, 1, __ATOMIC_SEQ_CST) != 0) {
    }
    return lock;
}

static inline void cas16_unlock(uint32_t *lock)
{
    /* seq_cst: the two stores are visible before the lock is free. */
    __atomic_store_n(lock, 0, __ATOMIC_SEQ_CST);
}

static inline bool cas16(struct pair *at, struct pair expected, struct pair desired)
{
    uint32_t *lock = cas16_lock(at);
    bool equal = at->first == expected.first && at->second == expected.second;
    if (equal) {
        /* release: some readers read one half alone, without the lock. */
        __atomic_store_n(&at->second, desired.second, __ATOMIC_RELEASE);
        __atomic_store_n(&at->first, desired.first, __ATOMIC_RELEASE);
    }
    cas16_unlock(lock);
    return equal;
}

static inline struct pair cas16_load(const struct pair *at)
{
    uint32_t *lock = cas16_lock(at);
    struct pair seen = *at;
    cas16_unlock(lock);
    return seen;
}

#endif

static inline bool pair_equals(struct pair a, struct pair b)
{
    return a.first == b.first && a.second == b.second;
}

/* The two words as they were together at one time. */
static inline struct pair cas16_load_stable(const struct pair *at)
{
    struct pair seen = cas16_load(at);
    for (;;) {
        struct pair again = cas16_load(at);
        if (pair_equals(seen, again))
            return seen;
        seen = again;
    }
}

#endif
