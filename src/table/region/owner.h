/* SPDX-License-Identifier: MIT */
/*
 * The owner word of a wide state: the process that works on it, so that its end blocks no other.
 *
 * 64 bits: held, abandoned, a sequence that grows with every holder, and the process (its id and a
 * hash of its start time, since ids are reused; 0 if it could not read its own). Waiters decide: if
 * the owner's process has ended, the word is taken over. If it runs but has held the word for
 * OWNER_PATIENCE_NS, the word stays with it, marked as abandoned, and the state's key moves
 * elsewhere (wide.c).
 */
#ifndef STINT_TABLE_REGION_OWNER_H
#define STINT_TABLE_REGION_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#define OWNER_PATIENCE_NS UINT64_C(10000000)
#define OWNER_DOUBT_NS UINT64_C(200000) /* held this long: check whether its process runs */
#define OWNER_HELD (UINT64_C(1) << 63)
#define OWNER_ABANDONED (UINT64_C(1) << 62)
#define OWNER_SEQUENCE_ONE (UINT64_C(1) << 42)
#define OWNER_SEQUENCE_MASK (((UINT64_C(1) << 20) - 1) << 42)
#define OWNER_PROCESS_MASK ((UINT64_C(1) << 42) - 1)

/* This process's name in owner words. */
uint64_t owner_self(void);

/* Lets other threads run, while waiting for them. */
void owner_pause(void);

/* Whether the process of an owner word has ended; false if that cannot be seen. */
bool owner_has_ended(uint64_t word);

enum owner_result {
    OWNER_TAKEN,      /* it is ours; *mine is the word to give back */
    OWNER_TAKEN_OVER, /* the same, but its last owner ended at work: do not trust the state */
    OWNER_STUCK,      /* *mine is the word of a running owner that has held it too long */
    OWNER_LEFT,       /* it is marked as abandoned */
};

enum owner_result owner_take(uint64_t *word, uint64_t self, uint64_t *mine);

/* Without waiting: false if it is held, by a running process or not. */
bool owner_try(uint64_t *word, uint64_t self, uint64_t *mine);

/* False if it was abandoned meanwhile. */
bool owner_give_back(uint64_t *word, uint64_t mine);

#endif
