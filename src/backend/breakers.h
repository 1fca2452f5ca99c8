/* SPDX-License-Identifier: MIT */
/*
 * A breaker for each server of one store, told apart by a bit. So a server that is gone shuts off
 * its own keys and no other's. One thread.
 */
#ifndef STINT_BACKEND_BREAKERS_H
#define STINT_BACKEND_BREAKERS_H

#include "backend/breaker.h"

#define BREAKERS_MAX 64

struct breakers {
    struct breaker each[BREAKERS_MAX];
    uint64_t failing_since_ns[BREAKERS_MAX]; /* the first failure of a row; 0: the last went well */
    uint64_t shut_off;                       /* those that are not closed */
    uint64_t well_ns; /* when anything went well last at one that is closed; 0: never */
};

/* Whom an ask went to, and of whom it is a probe: to be told or dropped, once. */
struct breakers_pass {
    uint64_t servers, probes;
};

void breakers_init(struct breakers *breakers, const struct breaker_options *options);
/* Those that nobody is let through to now. */
uint64_t breakers_stopped(const struct breakers *breakers, uint64_t now_ns);
/* One ask goes to these, of which none is stopped. */
struct breakers_pass breakers_ask(struct breakers *breakers, uint64_t servers, uint64_t now_ns);
/* Those in `failed` have failed, the others have not. */
void breakers_tell(struct breakers *breakers, const struct breakers_pass *pass, uint64_t failed,
                   uint64_t now_ns);
/* In place of that: nobody will know how it went. */
void breakers_drop(struct breakers *breakers, const struct breakers_pass *pass);

/* The worst of all. */
enum breaker_state breakers_state(const struct breakers *breakers);
/*
 * Since when nothing has gone well at any server, while one is shut off; 0: one answers. Where a
 * time is given, those whose turn to be probed has come are not counted.
 */
uint64_t breakers_failing_since(const struct breakers *breakers, uint64_t now_ns);
/*
 * Closes those that nobody has probed for long though it was time: servers that are no part of the
 * store any more, of which no answer will ever come.
 */
void breakers_rest(struct breakers *breakers, uint64_t now_ns);

#endif
