/* SPDX-License-Identifier: MIT */
/*
 * A whole pool of equal keys in one pair of words: whose turn it is, and one window for all.
 *
 * K keys that are each good for L units per W are taken by turns. One strict window of N = K * L
 * says whether a unit is free at all; a cursor, swapped in the same step, says whose it is. No key
 * passes its own L: grants follow each other in the order of their swaps, and any K in turn are of
 * K different keys, so among n in turn no key has more than ceil(n / K). All grants of any W are
 * among those which the window still holds when the last of them is made; it holds grants in turn
 * (a bunch is made of grants in turn, and the oldest leave first), and at most K * L of them.
 *
 * That is so while units are taken one at a time, from keys that are alike and all there. For
 * anything else every key has a state of its own, and the pool changes over, once and for good:
 *
 *   FRESH    no unit was ever taken
 *   LIVE     the pair rules: (window of N, cursor)
 *   CLOSING  nothing is granted any more. Of the U units that the frozen window holds each key has
 *            ceil(U / K) at most: whoever comes by charges so many to every key, at a time not
 *            before any of them was taken, and then swaps in
 *   PER_KEY  every key's own state rules; the pair is no more than a number of turns
 *   SHUT     nothing is granted until an instant by which all units are free again; PER_KEY then.
 *            For those who cannot close: their keys are not the ones that the pair was made for,
 *            or a key's state found no place
 *
 *   FRESH -> LIVE -> CLOSING -> PER_KEY, FRESH -> PER_KEY, and to SHUT from all but PER_KEY. A LIVE
 * pair whose units are all dead is as good as FRESH.
 *
 * Nobody who is killed leaves a unit uncharged: in CLOSING the units stand in the frozen window
 * until all keys are charged. Two who close at the same time charge twice, which denies falsely for
 * a while and grants nothing.
 *
 * Others may be decided at a time which is behind by table_grace_ns(). So a unit counts until then
 * in a change-over, and SHUT lasts so much longer.
 */
#ifndef STINT_STORE_TURNS_H
#define STINT_STORE_TURNS_H

#include "store/table.h"

#define TURNS_KEYS_MAX 4096u

/* A pool, found by its name. Nothing takes a record from its name again. */
struct pool_record {
    struct pair name;  /* its hash; 0, 0: nobody's yet */
    struct pair turns; /* LIVE, CLOSING: window and cursor; SHUT: an instant; PER_KEY: turns */
    uint64_t check;    /* of the name; 0: its maker died before */
    uint64_t unused[3];
};
_Static_assert(sizeof(struct pool_record) == POOL_RECORD_SIZE, "regions count on it");

/* What a pool's keys make of it. */
struct turns {
    struct pool_record *record; /* in the region */
    struct stint_quota quota;   /* of all keys together; not checked: they are not all alike */
    uint32_t id, keys;          /* the quota's, and how many there are */
    uint64_t names;             /* turns_names() of them and their quota */
    bool by_turns;              /* this process would take them so */
};

/* The record of a pool, made if new; its name is hashed by the caller. */
int turns_open(struct stint_table *table, struct hash128 name, struct pool_record **record,
               struct stint_error *error);

/* names, from any hash of the keys and their quota. */
uint64_t turns_names(struct hash128 hash);

/*
 * The quota of `keys` keys with this quota each; false where there is none of 8 bytes, or whose
 * slots would not fall together with theirs.
 */
bool turns_quota(const struct stint_quota *each, uint32_t keys, struct stint_quota *all);

enum turns_phase { TURNS_FRESH, TURNS_LIVE, TURNS_CLOSING, TURNS_SHUT, TURNS_PER_KEY, TURNS_OTHER };

/* How things stand, for looking: LIVE and CLOSING of other keys are OTHER. */
struct turns_view {
    enum turns_phase phase;
    uint32_t turn;     /* LIVE: index of the key that is next */
    uint64_t state;    /* LIVE: of turns->quota */
    uint64_t until_ns; /* SHUT */
};
struct turns_view turns_look(const struct turns *turns);

enum turns_wish {
    TURNS_WISH_TAKE,  /* one unit, from the pair if it can be */
    TURNS_WISH_PEEK,  /* the same, and nothing taken */
    TURNS_WISH_LEAVE, /* each key on its own */
};

struct turns_step {
    /* LIVE: *decision is the pair's; CLOSING: charge, then turns_closed(); SHUT; or PER_KEY */
    enum turns_phase phase;
    struct stint_decision decision; /* LIVE: of the pool as a whole */
    uint32_t turn;                  /* LIVE: index of the key that has it */
    uint64_t until_ns;              /* SHUT: until when */
    uint32_t each;                  /* CLOSING: units that each key is charged with */
    uint64_t charge_ns;             /* CLOSING: and when */
    struct pair closing;
};

/* now_ns is the effective time. */
struct turns_step turns_step(struct stint_table *table, const struct turns *turns,
                             enum turns_wish wish, uint64_t now_ns);

/* Ends CLOSING: all keys were charged, or else for the time it takes nothing is granted. */
void turns_closed(struct stint_table *table, const struct turns *turns,
                  const struct turns_step *step, bool all_charged, uint64_t now_ns);
/* Whether it is still to be ended. */
bool turns_is_closing(const struct turns *turns, const struct turns_step *step);

/* The number of turns that PER_KEY counts, and moving it on; nobody waits if another was faster. */
uint64_t turns_count(const struct turns *turns);
bool turns_count_on(const struct turns *turns, uint64_t from, uint64_t to);

/* For a table that nobody else has open: what can not be, or is not known, is SHUT. */
void turns_mend(struct stint_table *table, bool after_crash);

/* For snapshots, and for figures. */
void turns_copy(const struct stint_table *table, uint32_t i, struct pool_record *copy);
uint32_t turns_pools(const struct stint_table *table);

#endif
