/* SPDX-License-Identifier: MIT */
/* Plays one sequence, of moves or plain requests, and counts what was admitted. */
#ifndef STINT_SIM_SEARCH_SEARCH_PLAY_H
#define STINT_SIM_SEARCH_SEARCH_PLAY_H

#include "sim/judge/exact.h"
#include "sim/search/search_worst.h"

/* What a move waits for. All but the first three may be off by delta_ns. */
enum search_wait {
    SEARCH_WAIT_NOTHING,
    SEARCH_WAIT_TIME,    /* wait_ns */
    SEARCH_WAIT_BACK,    /* the clock goes back by wait_ns */
    SEARCH_WAIT_RETRY,   /* until the algorithm promises part/parts of cost_max, at least a unit */
    SEARCH_WAIT_RESET,   /* until the algorithm promises to be as never used */
    SEARCH_WAIT_PART,    /* part/parts of a period */
    SEARCH_WAIT_GRID,    /* the next multiple of part/parts of a period since 0 */
    SEARCH_WAIT_OLDEST,  /* a period after the oldest grant of the last period */
    SEARCH_WAIT_LARGEST, /* a period after the largest grant */
    SEARCH_WAIT_LATEST,  /* a period after the latest grant */
    SEARCH_WAIT_IDLE,    /* `part` periods */
};

enum search_take {
    SEARCH_TAKE_ALL, /* what the algorithm reports as remaining */
    SEARCH_TAKE_ALL_BUT_ONE,
    SEARCH_TAKE_HALF,
    SEARCH_TAKE_DRAIN, /* all, then more than all, for as long as that is granted */
    SEARCH_TAKE_MOST,  /* cost_max, whatever the algorithm reports as remaining */
    SEARCH_TAKE_COST,  /* `cost` */
};

/* The grant to which a return or a release belongs. */
enum search_pick {
    SEARCH_PICK_OLDEST, /* of the last period */
    SEARCH_PICK_LARGEST,
    SEARCH_PICK_LATEST,
    SEARCH_PICK_PART, /* part/parts of the way from the first request to the latest */
    SEARCH_PICKS,
};

struct search_move {
    uint64_t wait_ns;
    uint32_t cost;
    uint32_t repeat;
    uint16_t part, parts;
    int8_t delta_ns;
    uint8_t wait, take; /* enum search_wait, search_take */
    uint8_t verb, pick; /* enum search_verb, search_pick */
    bool to_edge;       /* repeated only while what was admitted before it is within the period */
    bool knock;         /* a refused request stays in the sequence */
};

struct search_play {
    const struct search_subject *subject;
    void *state, *scratch;
    struct exact exact;
    struct search_ask *asks;
    size_t n_asks, asks_size;
    size_t asks_max; /* a sequence is cut off there */
    size_t oldest;   /* the first request that may lie within the last period */
    size_t largest;  /* the largest grant; n_asks if there is none */
    uint64_t now_ns, latest_ns;
    uint64_t units, at_ns; /* the most in any window that is judged, and its end */
    uint64_t spread;       /* how much later than its first grant that window's units came */
    size_t n_others;       /* requests that are no takes */
    uint64_t decisions;    /* of all plays */
    bool cut;
    bool steps_back; /* which moves are allowed */
};

int search_play_init(struct search_play *play, const struct search_subject *subject,
                     struct stint_error *error);
void search_play_deinit(struct search_play *play);

/* From a new state. Refused requests are not kept, except for moves that knock. */
int search_play_moves(struct search_play *play, const struct search_move *moves, size_t n_moves,
                      struct stint_error *error);
/* From a new state. Every request is made as it is; play->asks has what was granted. */
int search_play_asks(struct search_play *play, const struct search_ask *asks, size_t n_asks,
                     struct stint_error *error);

#endif
