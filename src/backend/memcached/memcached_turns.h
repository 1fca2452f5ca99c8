/* SPDX-License-Identifier: MIT */
/*
 * Turns at keys of memcached that several stores want to change at once. A swap succeeds only if no
 * other store swaps between its read and its write, so a store nearer to memcached leaves no gap
 * for one that is farther. The farther store requests gaps, in a key beside the state. The others
 * then rest after each of their swaps, so that it can read the state meanwhile; and a state that
 * another store has read is not swapped before a random time of up to some gaps.
 *
 * All of it is advice: only the swap decides, nothing here can grant a unit, and a store that is
 * gone, or requests gaps without end, costs the others 20 ms a swap at most. One thread.
 * docs/decisions/0050.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_TURNS_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#define TURNS_MAX 256
#define TURN_REQUEST_TTL_S 2 /* of a request for gaps */

/* The data on one key. */
struct turn {
    uint64_t name;                   /* a hash of it; 0: unused */
    uint64_t won_ns;                 /* the last swap that succeeded */
    uint64_t gap_ends_ns;            /* behind it */
    uint64_t contended_ns;           /* until then, requests for the key are read */
    uint64_t heard_ns, heard_gap_ns; /* the last request that was read; 0: none */
    uint64_t asked_ns, asked_gap_ns; /* the last request of this store; 0: none */
    uint32_t lost;                   /* swaps since the last that succeeded */
    bool is_unread;                  /* not read since the last swap that succeeded */
    bool is_listening;               /* a read of its requests is in progress */
};

/* Zero it, and seed `random`. */
struct turns {
    struct turn each[TURNS_MAX];
    uint64_t random;
};

/* NULL: nothing is known of it. */
struct turn *turns_find(struct turns *turns, uint64_t name);
/* Makes one. NULL: none is free, and the key goes without. */
struct turn *turns_keep(struct turns *turns, uint64_t name, uint64_t now_ns);

/*
 * The state was read; `was_read`: another read came before, since it was written. Returns whether
 * that may have been another store.
 */
bool turn_read(struct turn *turn, bool was_read, uint64_t now_ns);
void turns_won(struct turns *turns, struct turn *turn, uint64_t now_ns);
/* The swap took so long. Returns the gap to request now; 0: none. */
uint64_t turn_lost(struct turn *turn, uint64_t took_ns, uint64_t now_ns);
/* Another store, or this one, has requested a gap. */
void turn_heard(struct turn *turn, uint64_t gap_ns, uint64_t now_ns);
/* Whether to read requests with the next swap. */
bool turn_listens(const struct turn *turn, uint64_t now_ns);

/* How long to wait before the swap of a state that another may have read. */
uint64_t turns_wait_ns(struct turns *turns, const struct turn *turn, uint64_t now_ns);

#endif
