/* SPDX-License-Identifier: MIT */
/*
 * Circuit breakers, one for each server of a store, each with its own bit: so a failed server shuts
 * off only its own keys. After some failures in a row a breaker admits no requests for a while,
 * then one at a time as a probe, until some in a row succeed. One thread.
 */
#ifndef STINT_BACKEND_BREAKERS_H
#define STINT_BACKEND_BREAKERS_H

#include <stdbool.h>
#include <stdint.h>

#define BREAKERS_MAX 64

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };

/* Zero is the default. */
struct breaker_options {
    unsigned failures_max; /* failures in a row that open it. Default 5 */
    unsigned probes;       /* successes in a row that close it. Default 2 */
    uint64_t open_ns;      /* until the first probe. Default 100 ms, doubled with each that fails */
    uint64_t open_max_ns;  /* Default 5 s */
    /*
     * It stays closed while any request succeeded within this time: after a short pause, late
     * requests fail in a row, since their timeouts end together. Default 0
     */
    uint64_t quiet_ns;
};

struct breaker {
    enum breaker_state state;
    unsigned failures, successes; /* in a row */
    bool is_probing;              /* a probe is in progress */
    uint64_t open_ns, open_ends_ns;
    uint64_t well_ns;          /* the last success; 0: never */
    uint64_t failing_since_ns; /* the first failure of a row; 0: none */
};

struct breakers {
    struct breaker_options options;
    struct breaker each[BREAKERS_MAX];
    uint64_t shut_off; /* those that are not closed */
    uint64_t well_ns;  /* the last success of any closed one; 0: never */
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
/*
 * Those in `failed` have failed, the others have not. A request admitted before a breaker opened is
 * no evidence about the present state of its server.
 */
void breakers_tell(struct breakers *breakers, const struct breakers_pass *pass, uint64_t failed,
                   uint64_t now_ns);
/* In place of that: the outcome will never be known. */
void breakers_drop(struct breakers *breakers, const struct breakers_pass *pass);

/* The worst state of all. */
enum breaker_state breakers_state(const struct breakers *breakers);
/*
 * Since when no server has succeeded, while one is shut off; 0: one answers. If a time is given,
 * servers that would admit a probe are not counted: without requests, none comes.
 */
uint64_t breakers_failing_since(const struct breakers *breakers, uint64_t now_ns);
/*
 * Closes those whose probe was due long ago and never came: these servers are no longer part of the
 * store, so no answer will ever come.
 */
void breakers_rest(struct breakers *breakers, uint64_t now_ns);

#endif
