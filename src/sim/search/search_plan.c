/* SPDX-License-Identifier: MIT */
/*
 * The probabilities favour the usual weaknesses of limiters: the edges of periods and of their
 * parts, the times that the algorithm itself returns, a nanosecond beside them, times after long
 * idling, and clocks that step back. They do not depend on the algorithm.
 */
#include "sim/search/search_plan.h"

#include "base/wide_int.h"

#include <string.h>

#define MOVES_DRAWN_MAX 6
#define PARTS_COMMON 24 /* a period is mostly divided into so many parts */
#define PARTS_MAX 1024
#define IDLE_MAX 1000 /* periods */

struct weight {
    uint8_t choice, weight;
};

bool search_percent(struct search_chance *chance, unsigned percent)
{
    return random_below(&chance->random, 100) < percent;
}

/* From 1 to max, each power of two as likely as the next. */
static uint64_t any_size(struct search_chance *chance, uint64_t max)
{
    if (max <= 1)
        return 1;
    uint64_t bits = 1 + random_below(&chance->random, bit_length(max));
    uint64_t size = 1 + (random_next(&chance->random) >> (64 - bits));
    return min_u64(size, max);
}

static uint8_t choose(struct search_chance *chance, const struct weight *weights, size_t n_weights)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n_weights; i++)
        sum += weights[i].weight;
    uint64_t at = random_below(&chance->random, sum);
    size_t i = 0;
    for (; at >= weights[i].weight; i++)
        at -= weights[i].weight;
    return weights[i].choice;
}

static void draw_wait(struct search_chance *chance, struct search_move *move)
{
    static const struct weight weights[] = {
        {SEARCH_WAIT_NOTHING, 12}, {SEARCH_WAIT_TIME, 10},   {SEARCH_WAIT_RETRY, 18},
        {SEARCH_WAIT_RESET, 10},   {SEARCH_WAIT_PART, 12},   {SEARCH_WAIT_GRID, 12},
        {SEARCH_WAIT_OLDEST, 12},  {SEARCH_WAIT_LARGEST, 5}, {SEARCH_WAIT_LATEST, 5},
        {SEARCH_WAIT_IDLE, 4},     {SEARCH_WAIT_BACK, 4},
    };
    size_t n_weights = sizeof(weights) / sizeof(*weights);
    /* Stepping back is the last one, so that it can be left out. */
    move->wait = choose(chance, weights, n_weights - !chance->clock_steps);
    /* The number of parts into which an algorithm divides its period is not known. */
    uint64_t parts_max = search_percent(chance, 80) ? PARTS_COMMON : PARTS_MAX;
    move->parts = (uint16_t)any_size(chance, parts_max);
    move->part = (uint16_t)(1 + random_below(&chance->random, move->parts));
    if (move->wait == SEARCH_WAIT_IDLE)
        move->part = (uint16_t)any_size(chance, IDLE_MAX);
    if (move->wait == SEARCH_WAIT_GRID && search_percent(chance, 70))
        move->part = 1;
    if (move->wait == SEARCH_WAIT_RETRY && search_percent(chance, 50))
        move->part = 0;
    move->wait_ns = search_percent(chance, 25) ? 1 + random_below(&chance->random, 3)
                                               : any_size(chance, 2 * chance->period_ns);
}

static void draw_delta(struct search_chance *chance, struct search_move *move)
{
    static const int8_t deltas_ns[] = {0, 0, 0, 0, 0, -1, -1, -1, 1, -2};
    move->delta_ns = deltas_ns[random_below(&chance->random, sizeof(deltas_ns))];
}

static void draw_take(struct search_chance *chance, struct search_move *move)
{
    static const struct weight weights[] = {
        {SEARCH_TAKE_ALL, 34},   {SEARCH_TAKE_ALL_BUT_ONE, 8}, {SEARCH_TAKE_HALF, 8},
        {SEARCH_TAKE_DRAIN, 10}, {SEARCH_TAKE_MOST, 10},       {SEARCH_TAKE_COST, 30},
    };
    move->take = choose(chance, weights, sizeof(weights) / sizeof(*weights));
    move->cost = search_percent(chance, 60) ? 1 : (uint32_t)any_size(chance, chance->cost_max);
    move->knock = search_percent(chance, 2);
}

static void draw_repeat(struct search_chance *chance, struct search_move *move)
{
    move->repeat = 1;
    move->to_edge = false;
    if (search_percent(chance, 75))
        return;
    move->to_edge = search_percent(chance, 60);
    move->repeat = move->to_edge                ? SEARCH_ASKS_MAX
                   : search_percent(chance, 80) ? (uint32_t)any_size(chance, 32)
                                                : (uint32_t)any_size(chance, SEARCH_ASKS_MAX);
}

/* Charges may be of more than can ever be granted. */
static void draw_verb(struct search_chance *chance, struct search_move *move)
{
    static const struct weight weights[] = {
        {SEARCH_VERB_TAKE, 50}, {SEARCH_VERB_REFUND, 25}, {SEARCH_VERB_CHARGE, 25}};
    size_t n_weights = sizeof(weights) / sizeof(*weights);
    move->verb = choose(chance, weights, n_weights - chance->holds);
    move->pick = (uint8_t)random_below(&chance->random, SEARCH_PICKS);
    if (move->verb == SEARCH_VERB_CHARGE && search_percent(chance, 20))
        move->cost =
            (uint32_t)any_size(chance, min_u64(2 * (uint64_t)chance->cost_max, UINT32_MAX));
}

static struct search_move draw_move(struct search_chance *chance)
{
    struct search_move move = {0};
    draw_wait(chance, &move);
    draw_delta(chance, &move);
    draw_take(chance, &move);
    draw_repeat(chance, &move);
    if (chance->has_verbs)
        draw_verb(chance, &move);
    return move;
}

void search_plan_draw(struct search_chance *chance, struct search_plan *plan)
{
    plan->n_moves = (size_t)(1 + random_below(&chance->random, MOVES_DRAWN_MAX));
    for (size_t i = 0; i < plan->n_moves; i++)
        plan->moves[i] = draw_move(chance);
}

/* A move that the plan has already, or a new one, at any position. */
static void insert(struct search_chance *chance, struct search_plan *plan)
{
    if (plan->n_moves == SEARCH_MOVES_MAX)
        return;
    size_t from = (size_t)random_below(&chance->random, plan->n_moves);
    size_t at = (size_t)random_below(&chance->random, plan->n_moves + 1);
    struct search_move move = search_percent(chance, 25) ? plan->moves[from] : draw_move(chance);
    memmove(&plan->moves[at + 1], &plan->moves[at], (plan->n_moves - at) * sizeof(*plan->moves));
    plan->moves[at] = move;
    plan->n_moves++;
}

static void leave_out(struct search_plan *plan, size_t at)
{
    if (plan->n_moves == 1)
        return;
    plan->n_moves--;
    memmove(&plan->moves[at], &plan->moves[at + 1], (plan->n_moves - at) * sizeof(*plan->moves));
}

static void change_once(struct search_chance *chance, struct search_plan *plan)
{
    size_t at = (size_t)random_below(&chance->random, plan->n_moves);
    struct search_move *move = &plan->moves[at];
    switch (random_below(&chance->random, 8 + chance->has_verbs)) {
    case 0:
        *move = draw_move(chance);
        break;
    case 1:
        draw_wait(chance, move);
        break;
    case 2:
        draw_delta(chance, move);
        break;
    case 3:
        draw_take(chance, move);
        break;
    case 4:
        draw_repeat(chance, move);
        break;
    case 5:
        leave_out(plan, at);
        break;
    case 8:
        draw_verb(chance, move);
        break;
    default:
        insert(chance, plan);
    }
}

void search_plan_change(struct search_chance *chance, struct search_plan *plan)
{
    for (uint64_t n = 1 + random_below(&chance->random, 3); n > 0; n--)
        change_once(chance, plan);
}

void search_plan_cross(struct search_chance *chance, struct search_plan *plan,
                       const struct search_plan *other)
{
    size_t from = (size_t)random_below(&chance->random, other->n_moves);
    size_t n_others = other->n_moves - from;
    size_t kept = 1 + (size_t)random_below(&chance->random, plan->n_moves);
    kept = (size_t)min_u64(kept, SEARCH_MOVES_MAX - n_others);
    memcpy(&plan->moves[kept], &other->moves[from], n_others * sizeof(*plan->moves));
    plan->n_moves = kept + n_others;
}
