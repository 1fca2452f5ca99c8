/* SPDX-License-Identifier: MIT */
/*
 * A unit counts at the time at which an algorithm must count it: the caller's, or the state's own,
 * if the caller's clock is behind it. That is the time of the latest use before; under some
 * algorithms, of the latest refund, too. A charge counts in full whatever the algorithm recorded of
 * it, and a unit that was given back no longer counts, whether or not the algorithm returned it.
 */
#include "sim/search/search_play.h"

#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ASKS_FIRST 256u
#define DRAIN_MAX 8u    /* grants beyond what the algorithm says remains */
#define FRUITLESS_MAX 8 /* repeats of a move that were granted nothing */

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "out of memory for the search");
}

/* Rounded up to a multiple of 16, as aligned_alloc wants it. */
static void *new_state(size_t state_size)
{
    return aligned_alloc(16, (state_size + 15) / 16 * 16);
}

int search_play_init(struct search_play *play, const struct search_subject *subject,
                     struct stint_error *error)
{
    assert(subject->state_size > 0 && subject->period_ns > 0);
    *play = (struct search_play){.subject = subject, .asks_max = SEARCH_ASKS_MAX};
    exact_init(&play->exact, &subject->period_ns, 1);
    play->state = new_state(subject->state_size);
    play->scratch = new_state(subject->state_size);
    play->asks = malloc(ASKS_FIRST * sizeof(*play->asks));
    play->asks_size = ASKS_FIRST;
    if (play->state != NULL && play->scratch != NULL && play->asks != NULL)
        return 0;
    search_play_deinit(play);
    return no_memory(error);
}

void search_play_deinit(struct search_play *play)
{
    free(play->state);
    free(play->scratch);
    free(play->asks);
    exact_deinit(&play->exact);
    memset(play, 0, sizeof(*play));
}

static void begin(struct search_play *play)
{
    exact_forget(&play->exact, 0);
    play->exact.most[0] = (struct exact_most){0};
    memset(play->state, 0, play->subject->state_size);
    play->n_asks = play->oldest = play->largest = play->n_others = 0;
    play->now_ns = play->latest_ns = 0;
    play->units = play->at_ns = play->spread = 0;
    play->cut = false;
}

static bool is_use(const struct search_ask *ask)
{
    return ask->granted && (ask->verb == SEARCH_VERB_TAKE || ask->verb == SEARCH_VERB_CHARGE);
}

/* Units used late in a window affect the next one: this distinguishes equal sequences. */
static uint64_t spread_of(const struct search_play *play)
{
    uint64_t period_ns = play->subject->period_ns, first_ns = 0, latest_ns = 0, spread = 0;
    bool begun = false;
    for (size_t i = 0; i < play->n_asks; i++) {
        const struct search_ask *ask = &play->asks[i];
        if (!is_use(ask))
            continue;
        latest_ns = max_u64(latest_ns, ask->now_ns);
        if (latest_ns > play->at_ns || play->at_ns - latest_ns >= period_ns)
            continue;
        first_ns = begun ? first_ns : latest_ns;
        begun = true;
        spread += (latest_ns - first_ns) / (period_ns / 1024 + 1) * ask->cost;
    }
    return spread;
}

static void end(struct search_play *play)
{
    play->units = play->exact.most[0].units;
    play->at_ns = play->exact.most[0].at_ns;
    play->spread = spread_of(play);
}

/* A take; `holder` names what it holds, if takes hold and can be released. */
static bool decide(struct search_play *play, void *state, uint32_t cost, uint64_t *holder,
                   struct stint_decision *decision)
{
    play->decisions++;
    if (holder != NULL && play->subject->holds && play->subject->act != NULL) {
        struct search_act act = {.now_ns = play->now_ns, .holder = holder, .cost = cost};
        play->subject->act(play->subject->arg, state, &act, decision);
    } else
        play->subject->decide(play->subject->arg, state, play->now_ns, cost, decision);
    return decision->outcome == STINT_ALLOW;
}

/* The algorithm's result for a cost now, without effect. */
static struct stint_decision look(struct search_play *play, uint32_t cost)
{
    struct stint_decision decision;
    memcpy(play->scratch, play->state, play->subject->state_size);
    decide(play, play->scratch, cost, NULL, &decision);
    return decision;
}

/* Adds the request to the sequence, and its grant to the exact count. */
static int append(struct search_play *play, struct search_ask ask, struct stint_error *error)
{
    if (play->n_asks == play->asks_size) {
        size_t size = play->asks_size > 0 ? play->asks_size * 2 : 64;
        struct search_ask *asks = realloc(play->asks, size * sizeof(*asks));
        if (asks == NULL)
            return no_memory(error);
        play->asks = asks;
        play->asks_size = size;
    }
    bool is_take = ask.verb == SEARCH_VERB_TAKE;
    bool uses = ask.granted && (is_take || ask.verb == SEARCH_VERB_CHARGE);
    play->n_others += !is_take;
    ask.now_ns = play->now_ns;
    if (uses) {
        ask.counted_ns = play->latest_ns = max_u64(play->latest_ns, play->now_ns);
        const struct search_ask *largest = &play->asks[play->largest];
        if (play->n_asks == 0 || !is_use(largest) || ask.cost >= largest->cost)
            play->largest = play->n_asks;
    }
    play->asks[play->n_asks++] = ask;
    struct exact_run run = {ask.counted_ns, ask.left};
    if (!uses || run.units == 0)
        return 0;
    return is_take ? exact_add(&play->exact, 0, run, error)
                   : exact_add_unjudged(&play->exact, 0, run, error);
}

/* 1 for a grant, 0 for none, or a negative code. */
static int ask_take(struct search_play *play, uint32_t cost, bool knock, struct stint_error *error)
{
    struct stint_decision decision;
    if (play->n_asks >= play->asks_max) {
        play->cut = true;
        return 0;
    }
    memcpy(play->scratch, play->state, play->subject->state_size);
    struct search_ask ask = {.cost = cost, .number = (uint32_t)play->n_asks, .of = SEARCH_NONE};
    ask.granted = decide(play, play->scratch, cost, &ask.holder, &decision);
    ask.left = ask.granted ? cost : 0;
    if (!ask.granted && !knock)
        return 0;
    void *before = play->state;
    play->state = play->scratch;
    play->scratch = before;
    int code = append(play, ask, error);
    return code != 0 ? code : ask.granted;
}

/* A charge: the use has happened, whatever the algorithm records. */
static int charge(struct search_play *play, uint32_t cost, uint32_t number,
                  struct stint_error *error)
{
    const struct search_subject *subject = play->subject;
    struct search_act act = {.now_ns = play->now_ns, .cost = cost, .verb = SEARCH_VERB_CHARGE};
    struct search_ask ask = {.cost = cost,
                             .number = number,
                             .of = SEARCH_NONE,
                             .verb = SEARCH_VERB_CHARGE,
                             .granted = true};
    struct stint_decision decision;
    play->decisions++;
    subject->act(subject->arg, play->state, &act, &decision);
    ask.left = !subject->counts_charge ? 0
               : subject->has_debt     ? (uint32_t)min_u64(decision.granted, cost)
                                       : cost;
    return append(play, ask, error);
}

/* Gives back units of a use, at most those that it has left: of a hold, all or nothing. */
static int give_back(struct search_play *play, size_t at, struct search_ask ask,
                     struct stint_error *error)
{
    const struct search_subject *subject = play->subject;
    struct search_ask *use = &play->asks[at];
    assert(at < play->n_asks && is_use(use));
    uint32_t units = subject->holds ? use->left : (uint32_t)min_u64(ask.cost, use->left);
    if (units > 0) {
        struct search_act act = {.now_ns = play->now_ns,
                                 .granted_at_ns = use->now_ns,
                                 .holder = &use->holder,
                                 .cost = units,
                                 .verb = ask.verb};
        struct stint_decision decision;
        play->decisions++;
        subject->act(subject->arg, play->state, &act, &decision);
        exact_take_back(&play->exact, 0, (struct exact_run){use->counted_ns, units});
        use->left -= units;
        if (subject->refund_ages && decision.granted > 0)
            play->latest_ns = max_u64(play->latest_ns, play->now_ns);
        ask.granted = true;
        ask.of = use->number;
    }
    return append(play, ask, error);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static uint32_t part_of_cost(const struct search_play *play, const struct search_move *move)
{
    uint64_t cost = mul_div(play->subject->cost_max, move->part, move->parts);
    return (uint32_t)max_u64(cost, 1);
}

/* The next time on a grid since 0. */
static uint64_t next_on_grid(const struct search_play *play, const struct search_move *move)
{
    uint64_t period_ns = play->subject->period_ns;
    uint64_t line = mul_div(play->now_ns, move->parts, period_ns) + move->part;
    return mul_div_up(line, period_ns, move->parts);
}

/* A period after a grant; now, if that is over, or there was none. */
static uint64_t period_after(const struct search_play *play, size_t i)
{
    return i < play->n_asks && is_use(&play->asks[i])
               ? add_sat(play->asks[i].now_ns, play->subject->period_ns)
               : play->now_ns;
}

static size_t find_oldest(struct search_play *play)
{
    while (play->oldest < play->n_asks &&
           (!is_use(&play->asks[play->oldest]) || period_after(play, play->oldest) <= play->now_ns))
        play->oldest++;
    return play->oldest;
}

static uint64_t aim(struct search_play *play, const struct search_move *move)
{
    uint64_t now_ns = play->now_ns, period_ns = play->subject->period_ns;
    struct stint_decision decision;
    switch (move->wait) {
    case SEARCH_WAIT_RETRY:
        decision = look(play, part_of_cost(play, move));
        return decision.outcome == STINT_DENY ? add_sat(now_ns, decision.retry_after_ns) : now_ns;
    case SEARCH_WAIT_RESET:
        return add_sat(now_ns, look(play, 0).reset_after_ns);
    case SEARCH_WAIT_PART:
        return add_sat(now_ns, mul_div(period_ns, move->part, move->parts));
    case SEARCH_WAIT_GRID:
        return next_on_grid(play, move);
    case SEARCH_WAIT_OLDEST:
        return period_after(play, find_oldest(play));
    case SEARCH_WAIT_LARGEST:
        return period_after(play, play->largest);
    case SEARCH_WAIT_LATEST:
        return play->n_asks > 0 ? add_sat(play->latest_ns, period_ns) : now_ns;
    default:
        return add_sat(now_ns, mul_div(period_ns, move->part, 1));
    }
}

/* The time until which the move waits: never earlier, unless the move steps back. */
static uint64_t wait_to(struct search_play *play, const struct search_move *move)
{
    uint64_t now_ns = play->now_ns;
    switch (move->wait) {
    case SEARCH_WAIT_NOTHING:
        return now_ns;
    case SEARCH_WAIT_TIME:
        return add_sat(now_ns, move->wait_ns);
    case SEARCH_WAIT_BACK:
        return play->steps_back ? sub_floor(now_ns, move->wait_ns) : now_ns;
    default: {
        uint64_t then_ns = aim(play, move);
        then_ns = move->delta_ns < 0 ? sub_floor(then_ns, (uint64_t)-move->delta_ns)
                                     : add_sat(then_ns, (uint64_t)move->delta_ns);
        return max_u64(then_ns, now_ns);
    }
    }
}

/* ---- Taking ---------------------------------------------------------------------------------- */

static uint32_t cost_of(struct search_play *play, const struct search_move *move)
{
    if (move->take == SEARCH_TAKE_MOST)
        return play->subject->cost_max;
    if (move->take == SEARCH_TAKE_COST)
        return move->cost;
    uint32_t remaining = look(play, 0).remaining;
    if (move->take == SEARCH_TAKE_ALL_BUT_ONE)
        remaining -= remaining > 0;
    if (move->take == SEARCH_TAKE_HALF)
        remaining = remaining / 2 + remaining % 2;
    /* An algorithm that reports nothing left may be wrong. */
    return remaining > 0 ? remaining : 1;
}

static int take(struct search_play *play, const struct search_move *move, struct stint_error *error)
{
    uint32_t cost = cost_of(play, move);
    int granted = ask_take(play, cost, move->knock, error);
    if (granted == 0 && cost > 1)
        granted = ask_take(play, 1, move->knock, error);
    cost = 1;
    for (unsigned more = 0; granted > 0 && move->take == SEARCH_TAKE_DRAIN && more < DRAIN_MAX;
         more++) {
        granted = ask_take(play, cost, false, error);
        cost = cost <= play->subject->cost_max / 2 ? cost * 2 : cost;
    }
    return granted < 0 ? granted : 0;
}

/* ---- The other verbs ------------------------------------------------------------------------- */

/* The use of which a move gives back units: n_asks if there is none. */
static size_t pick(struct search_play *play, const struct search_move *move)
{
    size_t n_asks = play->n_asks, at;
    if (n_asks == 0)
        return n_asks;
    switch (move->pick) {
    case SEARCH_PICK_OLDEST:
        at = find_oldest(play);
        break;
    case SEARCH_PICK_LARGEST:
        at = play->largest;
        break;
    case SEARCH_PICK_LATEST:
        at = n_asks - 1;
        break;
    default:
        at = (size_t)mul_div(n_asks - 1, move->part, move->parts);
    }
    /* From there backwards, the next one with anything left. */
    for (size_t i = 0; i < n_asks && at<n_asks; i++, at = at> 0 ? at - 1 : n_asks - 1)
        if (is_use(&play->asks[at]) && play->asks[at].left > 0)
            return at;
    return n_asks;
}

static uint32_t part_of_use(const struct search_move *move, uint32_t left)
{
    switch (move->take) {
    case SEARCH_TAKE_ALL_BUT_ONE:
        return left > 1 ? left - 1 : 1;
    case SEARCH_TAKE_HALF:
        return left / 2 + left % 2;
    case SEARCH_TAKE_COST:
        return (uint32_t)min_u64(move->cost, left);
    default:
        return left;
    }
}

static int act(struct search_play *play, const struct search_move *move, struct stint_error *error)
{
    if (play->n_asks >= play->asks_max) {
        play->cut = true;
        return 0;
    }
    uint32_t number = (uint32_t)play->n_asks;
    if (move->verb == SEARCH_VERB_CHARGE)
        return charge(play, cost_of(play, move), number, error);
    size_t at = pick(play, move);
    if (at == play->n_asks)
        return 0;
    struct search_ask ask = {.cost = part_of_use(move, play->asks[at].left),
                             .number = number,
                             .verb = play->subject->holds ? SEARCH_VERB_RELEASE : move->verb};
    return give_back(play, at, ask, error);
}

/* The last time at which everything admitted so far is still within the period. */
static uint64_t edge_of(struct search_play *play)
{
    size_t oldest = find_oldest(play);
    uint64_t from_ns = oldest < play->n_asks ? play->asks[oldest].now_ns : play->now_ns;
    return add_sat(from_ns, play->subject->period_ns - 1);
}

static int play_move(struct search_play *play, const struct search_move *move,
                     struct stint_error *error)
{
    uint64_t last_ns = move->to_edge ? edge_of(play) : UINT64_MAX;
    last_ns = min_u64(last_ns, STINT_NOW_MAX);
    int fruitless = 0;
    for (uint32_t n = 0; n < move->repeat && fruitless < FRUITLESS_MAX && !play->cut; n++) {
        uint64_t then_ns = wait_to(play, move);
        if (then_ns > last_ns)
            break;
        size_t n_asks = play->n_asks;
        play->now_ns = then_ns;
        int code =
            move->verb == SEARCH_VERB_TAKE ? take(play, move, error) : act(play, move, error);
        if (code != 0)
            return code;
        fruitless = play->n_asks > n_asks ? 0 : fruitless + 1;
    }
    return 0;
}

static bool are_takes(const struct search_move *moves, size_t n_moves)
{
    for (size_t i = 0; i < n_moves; i++)
        if (moves[i].verb != SEARCH_VERB_TAKE)
            return false;
    return true;
}

int search_play_moves(struct search_play *play, const struct search_move *moves, size_t n_moves,
                      struct stint_error *error)
{
    int code = 0;
    begin(play);
    play->steps_back = !play->subject->needs_clock || are_takes(moves, n_moves);
    for (size_t i = 0; i < n_moves && code == 0 && !play->cut; i++)
        code = play_move(play, &moves[i], error);
    end(play);
    return code;
}

/* Numbers rise, also if requests were left out between them. n_asks for none. */
static size_t find_number(const struct search_play *play, uint32_t number)
{
    size_t low = 0, high = play->n_asks;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (play->asks[mid].number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < play->n_asks && play->asks[low].number == number ? low : play->n_asks;
}

static int play_ask(struct search_play *play, const struct search_ask *asked,
                    struct stint_error *error)
{
    struct search_ask ask = {
        .cost = asked->cost, .number = asked->number, .of = SEARCH_NONE, .verb = asked->verb};
    play->now_ns = asked->now_ns;
    if (ask.verb == SEARCH_VERB_CHARGE)
        return charge(play, ask.cost, ask.number, error);
    if (ask.verb == SEARCH_VERB_TAKE) {
        struct stint_decision decision;
        ask.granted = decide(play, play->state, ask.cost, &ask.holder, &decision);
        ask.left = ask.granted ? ask.cost : 0;
        return append(play, ask, error);
    }
    size_t at = find_number(play, asked->of);
    return at < play->n_asks && is_use(&play->asks[at]) ? give_back(play, at, ask, error)
                                                        : append(play, ask, error);
}

int search_play_asks(struct search_play *play, const struct search_ask *asks, size_t n_asks,
                     struct stint_error *error)
{
    int code = 0;
    begin(play);
    for (size_t i = 0; i < n_asks && code == 0; i++)
        code = play_ask(play, &asks[i], error);
    end(play);
    return code;
}
