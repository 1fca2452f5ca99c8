/* SPDX-License-Identifier: MIT */
/*
 * What holds for any state that is_valid() accepts, any now, cost and at. The file that includes
 * this one says what "any" is: solve.c, search.c. All that the code asserts is checked too, and
 * what C leaves undefined.
 */
#include "subject.h"

uint64_t any_latest(void);             /* a time that no decision of a state was later than */
uint64_t any_time(uint64_t latest_ns); /* until then */
uint32_t any_cost(void);
uint64_t any_grant(void); /* when units were granted that come back */
uint64_t any_wait(void);  /* for a booking */
void any_words(struct state *state);
void assume(bool condition);

/* ---- A decision on any state ----------------------------------------------------------------- */

static bool is_same(const struct state *a, const struct state *b)
{
    bool same = true;
    for (unsigned i = 0; i < STATE_WORDS; i++)
        same = same && a->word[i] == b->word[i];
    return same;
}

/* A state, and a time that none of its decisions was later than. */
static struct state any_state(uint64_t *latest_ns)
{
    struct state state;
    *latest_ns = any_latest();
    any_words(&state);
    if (STATE_WORDS == 2)
        assume(state.word[1] >> (64 - WORD16_STORE_BITS) == 0);
    assume(ROW.is_valid(&quota, &state, *latest_ns));
    return state;
}

static struct stint_ask any_ask(uint8_t verb, uint64_t latest_ns)
{
    struct stint_ask ask = {.now_ns = any_time(latest_ns), .verb = verb};
    ask.cost = any_cost();
    return ask;
}

static struct stint_decision ask_state(struct state *state, struct stint_ask ask)
{
    return ROW.ask(&quota, state, &ask);
}

static bool state_is_valid(const struct state *state, uint64_t latest_ns)
{
    bool free_for_table = STATE_WORDS != 2 || state->word[1] >> (64 - WORD16_STORE_BITS) == 0;
    return free_for_table && ROW.is_valid(&quota, state, latest_ns);
}

static void check_decision(const struct stint_decision *decision)
{
    assert(decision->outcome <= STINT_NEVER);
    assert(decision->limit == most_units(&quota) && decision->remaining <= decision->limit);
    assert(decision->outcome == STINT_ALLOW || decision->granted == 0);
}

/* ---- Properties ------------------------------------------------------------------------------ */

/* Grants the cost or nothing, never more than there is; refused, it changes nothing. */
static void proof_take(void)
{
    uint64_t latest_ns;
    struct state before = any_state(&latest_ns), state = before;
    struct stint_ask ask = any_ask(STINT_TAKE, latest_ns);
    struct stint_decision decision = ask_state(&state, ask);
    check_decision(&decision);
    assert(state_is_valid(&state, latest_ns));
    if (decision.outcome == STINT_ALLOW) {
        assert(decision.granted == ask.cost && ask.cost <= most_units(&quota));
        assert(decision.retry_after_ns == 0);
    } else {
        assert(decision.retry_after_ns > 0);
        assert(quota.count_denied || is_same(&state, &before));
        assert(decision.outcome != STINT_NEVER || decision.retry_after_ns == STINT_NEVER_NS);
    }
}

/* A peek decides as a take does, and changes nothing. */
static void proof_peek(void)
{
    uint64_t latest_ns;
    struct state before = any_state(&latest_ns), peeked = before, state = before;
    struct stint_ask ask = any_ask(STINT_PEEK, latest_ns);
    struct stint_decision seen = ask_state(&peeked, ask);
    assert(is_same(&peeked, &before));
    ask.verb = STINT_TAKE;
    struct stint_decision decision = ask_state(&state, ask);
    /* A denial that is counted may have no end before the last time. */
    bool is_same_outcome =
        seen.outcome == decision.outcome ||
        (quota.count_denied && seen.outcome == STINT_DENY && decision.outcome == STINT_NEVER);
    assert(is_same_outcome && seen.granted == decision.granted);
    assert(quota.count_denied || seen.retry_after_ns == decision.retry_after_ns);
}

/* A quota is checked for so long: a time after it may need more bits than a state has. */
static struct stint_ask any_peek(uint64_t latest_ns)
{
    assume(latest_ns <= TABLE_LIFE_NS);
    return any_ask(STINT_PEEK, latest_ns);
}

/* The wait of a denial is exact: as long as nothing else happens, denied until then, not then. */
static void proof_wait(void)
{
    uint64_t latest_ns;
    struct state before = any_state(&latest_ns), early = before, state = before;
    struct stint_ask ask = any_peek(latest_ns);
    struct stint_decision decision = ask_state(&state, ask);
    assume(decision.outcome == STINT_DENY);
    assume(decision.retry_after_ns <= STINT_NOW_MAX - ask.now_ns);
    ask.verb = STINT_TAKE;
    ask.now_ns += decision.retry_after_ns - 1;
    assert(ask_state(&early, ask).outcome == STINT_DENY);
    ask.now_ns++;
    decision = ask_state(&state, ask);
    assert(decision.outcome == STINT_ALLOW && decision.granted == ask.cost);
}

/* What remains can be taken at once, and one more cannot. */
static void proof_remaining(void)
{
    uint64_t latest_ns;
    struct state before = any_state(&latest_ns), state = before, more = before;
    struct stint_ask ask = any_peek(latest_ns);
    ask.cost = 0;
    struct stint_decision decision = ask_state(&state, ask);
    assume(decision.outcome == STINT_ALLOW && decision.remaining > 0);
    ask.verb = STINT_TAKE;
    ask.cost = decision.remaining;
    assert(ask_state(&state, ask).outcome == STINT_ALLOW);
    assume(ask.cost < UNIT_COUNT_MAX);
    ask.cost++;
    assert(ask_state(&more, ask).outcome != STINT_ALLOW);
}

static void proof_take_upto(void)
{
    uint64_t latest_ns;
    struct state before = any_state(&latest_ns), state = before;
    struct stint_ask ask = any_ask(STINT_TAKE_UPTO, latest_ns);
    struct stint_decision decision = ask_state(&state, ask);
    check_decision(&decision);
    assert(state_is_valid(&state, latest_ns));
    assert(decision.granted <= ask.cost && decision.granted <= most_units(&quota));
    assert(decision.outcome == STINT_ALLOW || is_same(&state, &before));
}

/* Grants, or gives back, no more than was asked for; the state stays valid. */
static void check_moves(uint8_t verb)
{
    uint64_t latest_ns;
    struct state state = any_state(&latest_ns);
    struct stint_ask ask = any_ask(verb, latest_ns);
    if (verb == STINT_REFUND)
        ask.at_ns = any_grant();
    struct stint_decision decision = ask_state(&state, ask);
    check_decision(&decision);
    assert(state_is_valid(&state, latest_ns));
    assert(decision.granted <= ask.cost);
}

static void proof_charge(void)
{
    check_moves(STINT_CHARGE);
}

static void proof_refund(void)
{
    check_moves(STINT_REFUND);
}

static void check_booking(uint8_t verb)
{
    uint64_t latest_ns;
    struct state before = any_state(&latest_ns), state = before;
    struct stint_ask ask = any_ask(verb, latest_ns);
    ask.at_ns = any_wait();
    struct stint_decision decision = ask_state(&state, ask);
    assert(state_is_valid(&state, latest_ns));
    assert(decision.outcome == STINT_ALLOW || is_same(&state, &before));
}

static void proof_book(void)
{
    check_booking(STINT_BOOK);
}

static void proof_unbook(void)
{
    check_booking(STINT_UNBOOK);
}

/* The functions that only read a state, at any time from its own on. */
static void proof_look(void)
{
    uint64_t latest_ns, units = 0;
    struct held_run runs[HELD_RUNS_MAX];
    struct state before = any_state(&latest_ns), state = before;
    ROW.expires_at(&quota, &state);
    if (ROW.own_ns != NULL)
        ROW.own_ns(&quota, &state);
    size_t n_runs = ROW.held(&quota, &state, latest_ns, runs);
    assert(n_runs <= HELD_RUNS_MAX);
    for (size_t i = 0; i < n_runs; i++)
        units += runs[i].units;
    assert(n_runs == 0 || units > 0);
    struct held_group groups[HELD_GROUPS_MAX];
    if (ROW.groups != NULL)
        assert(ROW.groups(&quota, &state, latest_ns, groups) <= HELD_GROUPS_MAX);
    assert(is_same(&state, &before));
}

static void proof_pass(void)
{
    uint64_t latest_ns;
    struct state state = any_state(&latest_ns);
    ROW.pass(&quota, &state, any_time(latest_ns));
    assert(state_is_valid(&state, latest_ns));
}
