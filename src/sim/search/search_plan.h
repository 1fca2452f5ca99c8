/* SPDX-License-Identifier: MIT */
/* Draws the moves of a sequence by chance, changes them, and crosses two sequences. */
#ifndef STINT_SIM_SEARCH_SEARCH_PLAN_H
#define STINT_SIM_SEARCH_SEARCH_PLAN_H

#include "sim/search/search_play.h"
#include "sim/workload/random.h"

#define SEARCH_MOVES_MAX 12

struct search_plan {
    struct search_move moves[SEARCH_MOVES_MAX];
    size_t n_moves;
};

/* What the numbers in moves are drawn from. */
struct search_chance {
    struct random random;
    uint64_t period_ns;
    uint32_t cost_max;
    bool clock_steps;
    bool has_verbs; /* moves other than takes */
    bool holds;     /* and then there is no charge */
};

/* True in `chance` of a hundred cases. */
bool search_percent(struct search_chance *chance, unsigned percent);

void search_plan_draw(struct search_chance *chance, struct search_plan *plan);
/* Another plan, much like this one. */
void search_plan_change(struct search_chance *chance, struct search_plan *plan);
/* The beginning of the plan, and the end of another. */
void search_plan_cross(struct search_chance *chance, struct search_plan *plan,
                       const struct search_plan *other);

#endif
