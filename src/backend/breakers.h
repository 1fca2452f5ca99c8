/* SPDX-License-Identifier: MIT */
/*
 * A breaker for each server of one store, each with its own bit. So a failed server shuts off only
 * its own keys. One thread.
 */
#ifndef STINT_BACKEND_BREAKERS_H
#define STINT_BACKEND_BREAKERS_H

#include "backend/breaker.h"

#define BREAKERS_MAX 64

struct breakers {
    struct breaker each[BREAKERS_MAX];
    uint64_t failing_since_ns[BREAKERS_MAX]; /* the first failure of a row; 0: none */
    uint64_t shut_off;                       /* those that are not closed */
    uint64_t well_ns;                        /* the last success of any closed one; 0: never */
};

/* The servers of a request, and those that it is a probe of: report or drop it, once. */
struct breakers_pass {
    uint64_t servers, probes;
};

void breakers_init(struct breakers *breakers, const struct breaker_options *options);
/* Those that admit no requests now. */
uint64_t breakers_stopped(const struct breakers *breakers, uint64_t now_ns);
/* One request goes to these, of which none is stopped. */
struct breakers_pass breakers_ask(struct breakers *breakers, uint64_t servers, uint64_t now_ns);
/* Those in `failed` have failed, the others have not. */
void breakers_tell(struct breakers *breakers, const struct breakers_pass *pass, uint64_t failed,
                   uint64_t now_ns);
/* In place of that: the outcome will never be known. */
void breakers_drop(struct breakers *breakers, const struct breakers_pass *pass);

/* The worst state of all. */
enum breaker_state breakers_state(const struct breakers *breakers);
/*
 * Since when no server has succeeded, while one is shut off; 0: one answers. If a time is given,
 * servers whose probe is due are not counted.
 */
uint64_t breakers_failing_since(const struct breakers *breakers, uint64_t now_ns);
/*
 * Closes those whose probe was due long ago and never came: these servers are no longer part of the
 * store, so no answer will ever come.
 */
void breakers_rest(struct breakers *breakers, uint64_t now_ns);

#endif
