/* SPDX-License-Identifier: MIT */
/*
 * Keeps the better sequences, and makes new ones of them.
 *
 * A sequence is better if more units were admitted in a window; then, if they came later in it,
 * because those affect the next window; then, if it has fewer requests, where a request that is no
 * take counts twice. Sequences that differ in none of these are equal for the search, so that the
 * few it keeps stay different.
 */
#include "sim/search/search_worst.h"

#include "algorithm/algorithm.h"
#include "base/wide_int.h"
#include "sim/search/search_play.h"
#include "sim/workload/random.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Draws the moves of a sequence by chance, changes them, and crosses two sequences. */

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

/*
 * The probabilities favour the usual weaknesses of limiters: the edges of periods and of their
 * parts, the times that the algorithm itself returns, a nanosecond beside them, times after long
 * idling, and clocks that step back. They do not depend on the algorithm.
 */

#define MOVES_DRAWN_MAX 6
#define PARTS_COMMON 24 /* a period is mostly divided into so many parts */
#define PARTS_MAX 1024
#define IDLE_MAX 1000 /* periods */

struct weight {
    uint8_t choice, weight;
};

/* True in `chance` of a hundred cases. */
static bool happens(struct search_chance *chance, unsigned percent)
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
    uint64_t parts_max = happens(chance, 80) ? PARTS_COMMON : PARTS_MAX;
    move->parts = (uint16_t)any_size(chance, parts_max);
    move->part = (uint16_t)(1 + random_below(&chance->random, move->parts));
    if (move->wait == SEARCH_WAIT_IDLE)
        move->part = (uint16_t)any_size(chance, IDLE_MAX);
    if (move->wait == SEARCH_WAIT_GRID && happens(chance, 70))
        move->part = 1;
    if (move->wait == SEARCH_WAIT_RETRY && happens(chance, 50))
        move->part = 0;
    move->wait_ns = happens(chance, 25) ? 1 + random_below(&chance->random, 3)
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
    move->cost = happens(chance, 60) ? 1 : (uint32_t)any_size(chance, chance->cost_max);
    move->knock = happens(chance, 2);
}

static void draw_repeat(struct search_chance *chance, struct search_move *move)
{
    move->repeat = 1;
    move->to_edge = false;
    if (happens(chance, 75))
        return;
    move->to_edge = happens(chance, 60);
    move->repeat = move->to_edge         ? SEARCH_ASKS_MAX
                   : happens(chance, 80) ? (uint32_t)any_size(chance, 32)
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
    if (move->verb == SEARCH_VERB_CHARGE && happens(chance, 20))
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

/* A move that the plan has already, or a new one, at any position. */
static void insert(struct search_chance *chance, struct search_plan *plan)
{
    if (plan->n_moves == SEARCH_MOVES_MAX)
        return;
    size_t from = (size_t)random_below(&chance->random, plan->n_moves);
    size_t at = (size_t)random_below(&chance->random, plan->n_moves + 1);
    struct search_move move = happens(chance, 25) ? plan->moves[from] : draw_move(chance);
    memmove(&plan->moves[at + 1], &plan->moves[at], (plan->n_moves - at) * sizeof(*plan->moves));
    plan->moves[at] = move;
    plan->n_moves++;
}

static void leave_out_move(struct search_plan *plan, size_t at)
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
        leave_out_move(plan, at);
        break;
    case 8:
        draw_verb(chance, move);
        break;
    default:
        insert(chance, plan);
    }
}

/* The beginning of the plan, and the end of another. */
static void cross(struct search_chance *chance, struct search_plan *plan,
                  const struct search_plan *other)
{
    size_t from = (size_t)random_below(&chance->random, other->n_moves);
    size_t n_others = other->n_moves - from;
    size_t kept = 1 + (size_t)random_below(&chance->random, plan->n_moves);
    kept = (size_t)min_u64(kept, SEARCH_MOVES_MAX - n_others);
    memcpy(&plan->moves[kept], &other->moves[from], n_others * sizeof(*plan->moves));
    plan->n_moves = kept + n_others;
}

/* ---- The best sequence, shortened ------------------------------------------------------------ */

/*
 * Every shorter sequence is played and checked, against the algorithm and the exact count. A
 * request whose grant was left out gives nothing back.
 */

/* Shortening ends once so many bytes were played: sequences may be long, and states wide. */
#define TIDIED_BYTES_MAX (UINT64_C(1) << 28)

/* The requests of the best sequence. */
struct found {
    struct search_ask *asks, *spare;
    size_t n_asks, asks_size, spare_size;
    uint64_t units, at_ns;
    uint64_t tidied_bytes;
};

static int grow(struct search_ask **asks, size_t *asks_size, size_t n_asks,
                struct stint_error *error)
{
    if (n_asks <= *asks_size)
        return 0;
    struct search_ask *more = realloc(*asks, n_asks * sizeof(*more));
    if (more == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for %zu requests", n_asks);
    *asks = more;
    *asks_size = n_asks;
    return 0;
}

static int found_take(struct found *found, const struct search_play *play,
                      struct stint_error *error)
{
    int code = grow(&found->asks, &found->asks_size, play->n_asks, error);
    if (code != 0)
        return code;
    if (play->n_asks > 0)
        memcpy(found->asks, play->asks, play->n_asks * sizeof(*play->asks));
    found->n_asks = play->n_asks;
    found->units = play->units;
    found->at_ns = play->at_ns;
    return 0;
}

/* Takes the first requests of `spare`, if their score is as good. */
static int adopt(struct found *found, struct search_play *play, size_t n_asks, bool *adopted,
                 struct stint_error *error)
{
    *adopted = false;
    found->tidied_bytes += n_asks * (64 + play->subject->state_size);
    int code = search_play_asks(play, found->spare, n_asks, error);
    if (code != 0 || play->units < found->units)
        return code;
    *adopted = true;
    return found_take(found, play, error);
}

static bool has_time(const struct found *found)
{
    return found->tidied_bytes < TIDIED_BYTES_MAX;
}

/* A clock that goes back for no gain stands still instead. */
static int straighten(struct found *found, struct search_play *play, struct stint_error *error)
{
    uint64_t latest_ns = 0;
    bool adopted;
    for (size_t i = 0; i < found->n_asks; i++) {
        found->spare[i] = found->asks[i];
        latest_ns = found->spare[i].now_ns = max_u64(latest_ns, found->asks[i].now_ns);
    }
    return adopt(found, play, found->n_asks, &adopted, error);
}

/* Requests before the window, refused requests, and those after it may all be useless. */
static int leave_window(struct found *found, struct search_play *play, struct stint_error *error)
{
    size_t n_spare = 0;
    bool adopted;
    for (size_t i = 0; i < found->n_asks; i++) {
        const struct search_ask *ask = &found->asks[i];
        if (ask->granted && ask->now_ns <= found->at_ns &&
            found->at_ns - ask->now_ns < play->subject->period_ns)
            found->spare[n_spare++] = *ask;
    }
    return adopt(found, play, n_spare, &adopted, error);
}

/* Copies all but the requests from `at` on; returns how many that are. */
static size_t copy_without(struct found *found, size_t at, size_t n_asks)
{
    size_t behind = found->n_asks - at - n_asks;
    memcpy(found->spare, found->asks, at * sizeof(*found->asks));
    memcpy(found->spare + at, found->asks + at + n_asks, behind * sizeof(*found->asks));
    return at + behind;
}

/* Leaves out runs of requests, from halves down to single ones. */
static int leave_out(struct found *found, struct search_play *play, struct stint_error *error)
{
    int code = 0;
    for (size_t run = (found->n_asks + 1) / 2; run > 0; run = run == 1 ? 0 : (run + 1) / 2)
        for (size_t at = 0; at < found->n_asks && code == 0 && has_time(found);) {
            size_t left_out = (size_t)min_u64(run, found->n_asks - at);
            bool adopted;
            code = adopt(found, play, copy_without(found, at, left_out), &adopted, error);
            at += adopted ? 0 : left_out;
        }
    return code;
}

/* More than any cost for two that cannot be joined: each return belongs to its own grant. */
static uint64_t joint_cost(const struct found *found, size_t at)
{
    const struct search_ask *ask = &found->asks[at];
    bool joins = ask->verb == ask[1].verb &&
                 (ask->verb == SEARCH_VERB_TAKE || ask->verb == SEARCH_VERB_CHARGE);
    return joins ? (uint64_t)ask->cost + ask[1].cost : UINT64_MAX;
}

/* Copies with one request in place of every two that can be joined; returns how many there are. */
static size_t copy_joined(struct found *found, uint32_t cost_max)
{
    size_t n_spare = 0;
    for (size_t i = 0; i < found->n_asks; i++, n_spare++) {
        found->spare[n_spare] = found->asks[i];
        if (i + 1 == found->n_asks || joint_cost(found, i) > cost_max)
            continue;
        found->spare[n_spare].cost = (uint32_t)joint_cost(found, i);
        found->spare[n_spare].now_ns = found->asks[++i].now_ns;
    }
    return n_spare;
}

/* Joins neighbours into one request at the time of the later: all of them, then one by one. */
static int join(struct found *found, struct search_play *play, struct stint_error *error)
{
    uint32_t cost_max = play->subject->cost_max;
    bool adopted = true;
    int code = 0;
    for (size_t before = SIZE_MAX; adopted && found->n_asks < before && code == 0;) {
        before = found->n_asks;
        code = adopt(found, play, copy_joined(found, cost_max), &adopted, error);
    }
    for (size_t at = 0; at + 1 < found->n_asks && code == 0 && has_time(found); at += !adopted) {
        adopted = false;
        if (joint_cost(found, at) > cost_max)
            continue;
        uint32_t cost = (uint32_t)joint_cost(found, at);
        size_t n_asks = copy_without(found, at, 1);
        found->spare[at].cost = cost;
        code = adopt(found, play, n_asks, &adopted, error);
    }
    return code;
}

/* Replaces a charge by a take if the score stays as good, so that charges left are needed. */
static int ask_first(struct found *found, struct search_play *play, struct stint_error *error)
{
    int code = 0;
    for (size_t at = 0; at < found->n_asks && code == 0 && has_time(found); at++) {
        bool adopted;
        if (found->asks[at].verb != SEARCH_VERB_CHARGE)
            continue;
        memcpy(found->spare, found->asks, found->n_asks * sizeof(*found->asks));
        found->spare[at].verb = SEARCH_VERB_TAKE;
        code = adopt(found, play, found->n_asks, &adopted, error);
    }
    return code;
}

/* Removes idle time at the start, in whole periods, which keep the meaning of other times. */
static int begin_early(struct found *found, struct search_play *play, struct stint_error *error)
{
    uint64_t period_ns = play->subject->period_ns, first_ns = UINT64_MAX;
    bool adopted = false;
    int code = 0;
    for (size_t i = 0; i < found->n_asks; i++)
        first_ns = min_u64(first_ns, found->asks[i].now_ns);
    for (uint64_t n = 0; n <= 2 && first_ns / period_ns > n && !adopted && code == 0; n++) {
        uint64_t earlier_ns = (first_ns / period_ns - n) * period_ns;
        for (size_t i = 0; i < found->n_asks; i++) {
            found->spare[i] = found->asks[i];
            found->spare[i].now_ns -= earlier_ns;
        }
        code = adopt(found, play, found->n_asks, &adopted, error);
    }
    return code;
}

static int found_tidy(struct found *found, struct search_play *play, struct stint_error *error)
{
    if (found->n_asks == 0)
        return 0;
    found->tidied_bytes = 0;
    int code = grow(&found->spare, &found->spare_size, found->n_asks, error);
    if (code == 0)
        code = straighten(found, play, error);
    if (code == 0)
        code = leave_window(found, play, error);
    if (code == 0)
        code = join(found, play, error);
    if (code == 0)
        code = leave_out(found, play, error);
    if (code == 0)
        code = ask_first(found, play, error);
    if (code == 0)
        code = join(found, play, error);
    return code != 0 ? code : begin_early(found, play, error);
}

/* ---- The search ------------------------------------------------------------------------------ */

#define KEPT_MAX 32
#define STALE_MAX 4000     /* tries without improvement before a restart */
#define ASKS_MAX_FIRST 256 /* sequences are kept short until the best is one that was cut off */
#define CUT_TRIES 30       /* tries with a length before it is raised */
/* New sequences find simple weaknesses fastest; changed ones find those that need many steps. */
#define AFRESH_PERCENT 50

struct rank {
    uint64_t units, spread, n_asks;
    bool cut;
};

struct kept {
    struct search_plan plan;
    struct rank rank;
};

struct search {
    struct search_chance chance;
    struct search_play play;
    struct kept kept[KEPT_MAX]; /* the best first */
    size_t n_kept;
    struct rank best; /* since the first restart */
    size_t best_cut_at;
    struct found found;
    uint64_t tries, stale, cut_tries;
    bool has_verbs;
};

static void decide_by_quota(void *arg, void *state, uint64_t now_ns, uint32_t cost,
                            struct stint_decision *decision)
{
    const struct stint_quota *quota = arg;
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    *decision = stint_state_ask(quota, state, &ask);
}

static void act_by_quota(void *arg, void *state, const struct search_act *act,
                         struct stint_decision *decision)
{
    const struct stint_quota *quota = arg;
    struct stint_ask ask = {
        .now_ns = act->now_ns, .at_ns = act->granted_at_ns, .cost = act->cost, .verb = STINT_TAKE};
    switch (act->verb) {
    case SEARCH_VERB_CHARGE:
        ask.verb = STINT_CHARGE;
        break;
    case SEARCH_VERB_REFUND:
        ask.verb = STINT_REFUND;
        break;
    case SEARCH_VERB_RELEASE:
        *decision = (struct stint_decision){0};
        (void)stint_state_release(quota, state, act->now_ns, *act->holder);
        return;
    default:
        assert(act->verb == SEARCH_VERB_TAKE);
        if (act->holder != NULL && quota->algorithm == STINT_CONCURRENCY) {
            *decision = stint_state_hold(quota, state, act->now_ns, act->cost, act->holder);
            return;
        }
    }
    *decision = stint_state_ask(quota, state, &ask);
}

/*
 * The counters of windows forget charges when their window is over, and then grant all again: their
 * bound is about takes alone, and charges can only reduce these.
 */
void search_subject_of(struct search_subject *subject, struct stint_quota *quota)
{
    *subject = (struct search_subject){
        .state_size = stint_state_size(quota),
        .period_ns = quota->period_ns,
        .bound = stint_max_in_any_window(quota),
        .cost_max = most_units(quota),
        .decide = decide_by_quota,
        .act = quota->limit > 0 ? act_by_quota : NULL,
        .arg = quota,
        .holds = quota->algorithm == STINT_CONCURRENCY,
        .counts_charge =
            quota->algorithm != STINT_FIXED_WINDOW && quota->algorithm != STINT_SLIDING_COUNTER,
        .has_debt = quota->algorithm == STINT_GCRA,
        .needs_clock = quota->algorithm == STINT_GCRA,
        .refund_ages = quota->algorithm == STINT_WINDOW || quota->algorithm == STINT_FIXED_WINDOW ||
                       quota->algorithm == STINT_SLIDING_COUNTER,
    };
}

int search_new(struct search **out, const struct search_subject *subject,
               const struct search_options *options, struct stint_error *error)
{
    struct search *search = calloc(1, sizeof(*search));
    if (search == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for the search");
    int code = search_play_init(&search->play, subject, error);
    if (code != 0) {
        free(search);
        return code;
    }
    search->play.asks_max = ASKS_MAX_FIRST;
    search->chance.period_ns = subject->period_ns;
    search->chance.cost_max = subject->cost_max;
    search->chance.clock_steps = options->clock_steps;
    search->chance.holds = subject->holds;
    search->has_verbs = subject->act != NULL && !options->takes_only;
    random_init(&search->chance.random, options->seed, 0);
    *out = search;
    return 0;
}

void search_free(struct search *search)
{
    if (search == NULL)
        return;
    search_play_deinit(&search->play);
    free(search->found.asks);
    free(search->found.spare);
    free(search);
}

/* Of the sequences with the most units, the final result is the one with the fewest requests. */
static bool is_best(const struct search *search, const struct rank *rank)
{
    const struct rank *best = &search->best;
    if (rank->units != best->units)
        return rank->units > best->units;
    return rank->cut != best->cut ? best->cut : rank->n_asks < best->n_asks;
}

/* Above 0 if a is better than b, 0 if they are equal. */
static int compare(const struct rank *a, const struct rank *b)
{
    if (a->units != b->units)
        return a->units > b->units ? 1 : -1;
    if (a->cut != b->cut)
        return b->cut ? 1 : -1;
    if (a->spread != b->spread)
        return a->spread > b->spread ? 1 : -1;
    if (a->n_asks != b->n_asks)
        return a->n_asks < b->n_asks ? 1 : -1;
    return 0;
}

static void keep(struct search *search, const struct kept *kept)
{
    size_t at = 0;
    while (at < search->n_kept && compare(&search->kept[at].rank, &kept->rank) > 0)
        at++;
    if (at == KEPT_MAX ||
        (at < search->n_kept && compare(&search->kept[at].rank, &kept->rank) == 0))
        return;
    search->n_kept += search->n_kept < KEPT_MAX;
    memmove(&search->kept[at + 1], &search->kept[at],
            (search->n_kept - at - 1) * sizeof(*search->kept));
    search->kept[at] = *kept;
}

/* One of those kept: the better of two. */
static const struct search_plan *choose_kept(struct search *search)
{
    uint64_t a = random_below(&search->chance.random, search->n_kept);
    uint64_t b = random_below(&search->chance.random, search->n_kept);
    return &search->kept[min_u64(a, b)].plan;
}

/* Every other sequence has takes only: weaknesses to takes are found without other verbs. */
static void make(struct search *search, struct search_plan *plan)
{
    search->chance.has_verbs = search->has_verbs && search->tries % 2 == 1;
    if (search->n_kept == 0 || happens(&search->chance, AFRESH_PERCENT)) {
        plan->n_moves = (size_t)(1 + random_below(&search->chance.random, MOVES_DRAWN_MAX));
        for (size_t i = 0; i < plan->n_moves; i++)
            plan->moves[i] = draw_move(&search->chance);
        return;
    }
    *plan = *choose_kept(search);
    if (happens(&search->chance, 20))
        cross(&search->chance, plan, choose_kept(search));
    for (uint64_t n = 1 + random_below(&search->chance.random, 3); n > 0; n--)
        change_once(&search->chance, plan); /* another plan, much like this one */
}

/*
 * The best so far may be limited only by its length: then longer ones are allowed. One that came to
 * its end gives the length that is needed.
 */
static void fit_asks_max(struct search *search)
{
    uint64_t asks_max = search->play.asks_max;
    search->cut_tries = search->best.cut ? search->cut_tries + 1 : 0;
    if (!search->best.cut)
        asks_max = max_u64(4 * (uint64_t)search->found.n_asks, ASKS_MAX_FIRST);
    else if (search->cut_tries == CUT_TRIES) {
        asks_max *= 4;
        search->cut_tries = 0;
    }
    search->play.asks_max = (size_t)min_u64(asks_max, SEARCH_ASKS_MAX);
}

int search_try(struct search *search, struct stint_error *error)
{
    struct search_play *play = &search->play;
    struct kept one;
    make(search, &one.plan);
    int code = search_play_moves(play, one.plan.moves, one.plan.n_moves, error);
    if (code != 0)
        return code;
    one.rank = (struct rank){play->units, play->spread, play->n_asks + play->n_others, play->cut};
    bool better = search->n_kept == 0 || compare(&one.rank, &search->kept[0].rank) > 0;
    search->stale = better ? 0 : search->stale + 1;
    search->tries++;
    keep(search, &one);
    if (is_best(search, &one.rank)) {
        search->best = one.rank;
        search->best_cut_at = play->cut ? play->asks_max : 0;
        code = found_take(&search->found, play, error);
    }
    fit_asks_max(search);
    if (search->stale > STALE_MAX)
        search->n_kept = search->stale = 0;
    return code;
}

int search_tidy(struct search *search, struct stint_error *error)
{
    return found_tidy(&search->found, &search->play, error);
}

struct search_best search_best(const struct search *search)
{
    return (struct search_best){
        .asks = search->found.asks,
        .n_asks = search->found.n_asks,
        .units = search->found.units,
        .at_ns = search->found.at_ns,
        .cut_at = search->best_cut_at,
        .tries = search->tries,
        .decisions = search->play.decisions,
    };
}
