/* SPDX-License-Identifier: MIT */
/*
 * A circuit breaker: after some failures in a row it admits no requests for a while, then one at a
 * time as a probe, until some in a row succeed. One thread.
 */
#ifndef STINT_BACKEND_BREAKER_H
#define STINT_BACKEND_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };

/* Whether a request may pass, and as what; report it with the outcome, once. */
enum breaker_pass { BREAKER_STOP, BREAKER_GO, BREAKER_PROBE };

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
    struct breaker_options options;
    enum breaker_state state;
    unsigned failures, successes; /* in a row */
    bool is_probing;              /* a probe is in progress */
    uint64_t open_ns, open_ends_ns;
    uint64_t well_ns; /* the last success; 0: never */
};

void breaker_init(struct breaker *breaker, const struct breaker_options *options);
enum breaker_pass breaker_ask(struct breaker *breaker, uint64_t now_ns);
/* Whether that would be BREAKER_STOP. */
bool breaker_stops(const struct breaker *breaker, uint64_t now_ns);
/* A request admitted before the breaker opened is no evidence about the present state. */
void breaker_tell(struct breaker *breaker, enum breaker_pass pass, bool went_well, uint64_t now_ns);
/* In place of breaker_tell(): the outcome will never be known. */
void breaker_drop(struct breaker *breaker, enum breaker_pass pass);

#endif
