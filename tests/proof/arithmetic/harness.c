/* SPDX-License-Identifier: MIT */
/*
 * One algorithm under one quota, for a checker of C programs: the algorithm's file as it is, a
 * state of any bits that is_valid() accepts, any now, cost and at. All that the code asserts is
 * checked too, besides what C leaves undefined. Compiled once for each line of `quotas`, with:
 *
 *   ALGORITHM   gcra, …; ALGORITHM_FILE its file
 *   QUOTA       initial values of fields of struct stint_quota
 *   STATE_WORDS words of its state
 *   CUT_gcra, … where quotients of that algorithm are cut out
 *   PROPERTY    one of the functions below
 */
#include <stdbool.h>
#include <stdint.h>

uint64_t nondet_u64(void);
void __ESBMC_assume(_Bool condition);

#include ALGORITHM_FILE

#include <string.h>

#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define ROW(name) JOIN(algorithm_, name)
#define PROOF(name) JOIN(proof_, name)()

uint32_t nondet_u32(void);
uint8_t nondet_u8(void);

/* A message is not of interest here. */
int err_set(struct stint_error *error, int code, const char *format, ...)
{
    (void)error;
    (void)format;
    return code;
}

static struct stint_quota quota = {QUOTA};

/* ---- Quotients ------------------------------------------------------------------------------- */

/*
 * A quotient by a reciprocal is the high half of a product of 128 bits; two of these are more than
 * a solver can decide. So run_esbmc.py takes the functions below out of the code: a prototype is
 * left of each, and the code itself is whole_NAME(). Once the quota is checked, each gives any
 * number that its contract allows. proof_quotients() and quotients.py prove the contracts.
 */
static bool is_checked;

/* Whether q is floor(n / d), or one less. */
static bool is_quotient(uint64_t q, uint64_t n, uint64_t d, bool is_exact)
{
    return q <= UINT64_MAX / d && q * d <= n && n - q * d < (is_exact ? d : 2 * d);
}

static uint64_t any_quotient(uint64_t n, uint64_t d, bool is_exact)
{
    uint64_t q = nondet_u64();
    __ESBMC_assume(q <= UINT64_MAX / d && q * d <= n);
    __ESBMC_assume(n - q * d < (is_exact ? d : 2 * d));
    return q;
}

/* UINT64_MAX / d gives the quotient or one less; one more than it, the quotient up to 2^64 / d. */
static uint64_t mul_hi(uint64_t n, uint64_t reciprocal)
{
    uint64_t d = quota.algorithm == STINT_GCRA ? quota.derived.interval_ticks : quota.period_ns;
    if (!is_checked)
        return whole_mul_hi(n, reciprocal);
    if (reciprocal == UINT64_MAX / d)
        return any_quotient(n, d, false);
    assert(quota.algorithm == STINT_WINDOW);
    d = quota.resolution;
    bool is_up = reciprocal == UINT64_MAX / d + 1;
    assert((is_up && n <= UINT64_MAX / d) || reciprocal == UINT64_MAX / d);
    return any_quotient(n, d, is_up);
}

#ifdef CUT_gcra
static uint64_t gcra_whole_units(const struct stint_quota *of, uint64_t ticks)
{
    return any_quotient(ticks, of->derived.interval_ticks, true);
}

static void proof_quotients(void)
{
    uint64_t ticks = nondet_u64();
    assert(is_quotient(whole_gcra_whole_units(&quota, ticks), ticks, quota.derived.interval_ticks,
                       true));
}
#endif

#ifdef CUT_sliding_counter
static uint64_t number_at(const struct stint_quota *of, uint64_t at_ns)
{
    return any_quotient(at_ns, of->period_ns, true);
}

static void proof_quotients(void)
{
    uint64_t at_ns = nondet_u64();
    assert(is_quotient(whole_number_at(&quota, at_ns), at_ns, quota.period_ns, true));
}

/*
 * A share x of whole w: up = ceil(units * x / w) and down = floor(units * w / of). They are linked:
 * ceil(p * x / w) > s exactly if p * x > s * w, exactly if x > floor(s * w / p).
 */
#define SHARES 3
struct up {
    uint64_t units, part, up;
} ups[SHARES];
struct down {
    uint64_t units, of, down;
} downs[SHARES];

static void link(const struct up *up, const struct down *down)
{
    __ESBMC_assume(up->units != down->of || up->units == 0 ||
                   (up->up > down->units) == (down->down < up->part));
}

static uint64_t mul_div_up(uint64_t units, uint64_t part, uint64_t whole)
{
    if (!is_checked)
        return whole_mul_div_up(units, part, whole);
    assert(part <= whole && whole == quota.period_ns);
    for (int i = 0; i < SHARES; i++)
        if (units == ups[i].units && part == ups[i].part)
            return ups[i].up;
    struct up up = {units, part, nondet_u64()};
    __ESBMC_assume(up.up <= units && (part < whole || up.up == units));
    __ESBMC_assume((up.up == 0) == (units == 0 || part == 0));
    for (int i = 0; i < SHARES; i++)
        link(&up, &downs[i]);
    ups[2] = ups[1];
    ups[1] = ups[0];
    ups[0] = up;
    return up.up;
}

static uint64_t mul_div(uint64_t units, uint64_t whole, uint64_t of)
{
    if (!is_checked)
        return whole_mul_div(units, whole, of);
    assert(units < of && whole == quota.period_ns);
    for (int i = 0; i < SHARES; i++)
        if (units == downs[i].units && of == downs[i].of)
            return downs[i].down;
    struct down down = {units, of, nondet_u64()};
    __ESBMC_assume(down.down < whole && (units > 0 || down.down == 0));
    for (int i = 0; i < SHARES; i++)
        link(&ups[i], &down);
    downs[2] = downs[1];
    downs[1] = downs[0];
    downs[0] = down;
    return down.down;
}
#endif

#ifdef CUT_window
static bool is_slot(uint64_t slot, uint64_t time_ns)
{
    return is_quotient(slot, time_ns * quota.resolution, quota.period_ns, true);
}

static bool is_start(uint64_t start_ns, uint64_t slot)
{
    uint64_t scaled = slot * quota.period_ns, end = start_ns * quota.resolution;
    return start_ns <= UINT64_MAX / quota.resolution && end >= scaled &&
           end - scaled < quota.resolution;
}

static uint64_t window_slot_of(const struct stint_quota *of, const struct window *window,
                               uint64_t time_ns)
{
    uint64_t slot = nondet_u64();
    assert(window->longer == NULL && time_ns <= STINT_NOW_MAX && of == &quota);
    __ESBMC_assume(is_slot(slot, time_ns));
    return slot;
}

static uint64_t window_slot_start(const struct stint_quota *of, const struct window *window,
                                  uint64_t slot)
{
    uint64_t start_ns = nondet_u64();
    assert(window->longer == NULL && slot <= UINT64_MAX / of->period_ns - 1);
    __ESBMC_assume(is_start(start_ns, slot));
    return start_ns;
}

static void proof_quotients(void)
{
    uint64_t time_ns = nondet_u64(), slot = nondet_u64();
    struct window window = {.longer = NULL};
    __ESBMC_assume(time_ns <= STINT_NOW_MAX && slot <= UINT64_MAX / quota.period_ns - 1);
    assert(is_slot(whole_window_slot_of(&quota, &window, time_ns), time_ns));
    assert(is_start(whole_window_slot_start(&quota, &window, slot), slot));
}
#endif

/* ---- A decision on any state ----------------------------------------------------------------- */

/* The top 16 bits of a state of 16 bytes belong to the table. */
struct state {
    _Alignas(16) uint64_t word[STATE_WORDS];
};

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
    for (unsigned i = 0; i < STATE_WORDS; i++)
        state.word[i] = nondet_u64();
    *latest_ns = nondet_u64();
    __ESBMC_assume(*latest_ns <= STINT_NOW_MAX);
    if (STATE_WORDS == 2)
        __ESBMC_assume(state.word[1] >> (64 - WORD16_STORE_BITS) == 0);
    __ESBMC_assume(ROW(ALGORITHM).is_valid(&quota, &state, *latest_ns));
    return state;
}

static struct stint_ask any_ask(uint8_t verb, uint64_t latest_ns)
{
    struct stint_ask ask = {.now_ns = nondet_u64(), .cost = nondet_u32(), .verb = verb};
    __ESBMC_assume(ask.now_ns <= latest_ns);
    return ask;
}

static struct stint_decision ask_state(struct state *state, struct stint_ask ask)
{
    return ROW(ALGORITHM).ask(&quota, state, &ask);
}

static bool state_is_valid(const struct state *state, uint64_t latest_ns)
{
    bool free_for_table = STATE_WORDS != 2 || state->word[1] >> (64 - WORD16_STORE_BITS) == 0;
    return free_for_table && ROW(ALGORITHM).is_valid(&quota, state, latest_ns);
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
    assert(seen.outcome == decision.outcome && seen.granted == decision.granted);
    assert(quota.count_denied || seen.retry_after_ns == decision.retry_after_ns);
}

/* A quota is checked for so long: a time after it may need more bits than a state has. */
static struct stint_ask any_peek(uint64_t latest_ns)
{
    __ESBMC_assume(latest_ns <= TABLE_LIFE_NS);
    return any_ask(STINT_PEEK, latest_ns);
}

/* The wait of a denial is exact: as long as nothing else happens, denied until then, not then. */
static void proof_wait(void)
{
    uint64_t latest_ns;
    struct state before = any_state(&latest_ns), early = before, state = before;
    struct stint_ask ask = any_peek(latest_ns);
    struct stint_decision decision = ask_state(&state, ask);
    __ESBMC_assume(decision.outcome == STINT_DENY);
    __ESBMC_assume(decision.retry_after_ns <= STINT_NOW_MAX - ask.now_ns);
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
    __ESBMC_assume(decision.outcome == STINT_ALLOW && decision.remaining > 0);
    ask.verb = STINT_TAKE;
    ask.cost = decision.remaining;
    assert(ask_state(&state, ask).outcome == STINT_ALLOW);
    __ESBMC_assume(ask.cost < UNIT_COUNT_MAX);
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
        ask.at_ns = nondet_u64();
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
    ask.at_ns = nondet_u64();
    __ESBMC_assume(ask.at_ns <= BOOK_WAIT_MAX_NS);
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
    ROW(ALGORITHM).expires_at(&quota, &state);
    if (ROW(ALGORITHM).own_ns != NULL)
        ROW(ALGORITHM).own_ns(&quota, &state);
    size_t n_runs = ROW(ALGORITHM).held(&quota, &state, latest_ns, runs);
    assert(n_runs <= HELD_RUNS_MAX);
    for (size_t i = 0; i < n_runs; i++)
        units += runs[i].units;
    assert(n_runs == 0 || units > 0);
    assert(is_same(&state, &before));
}

static void proof_pass(void)
{
    uint64_t latest_ns;
    struct state state = any_state(&latest_ns);
    uint64_t at_ns = nondet_u64();
    __ESBMC_assume(at_ns <= latest_ns);
    ROW(ALGORITHM).pass(&quota, &state, at_ns);
    assert(state_is_valid(&state, latest_ns));
}

int main(void)
{
    quota.derived.reciprocal = UINT64_MAX / quota.period_ns; /* as quota.c does */
    int code = ROW(ALGORITHM).check(&quota, NULL);
    assert(code == STINT_OK && quota.derived.state_size == 8 * STATE_WORDS);
    is_checked = true;
    PROOF(PROPERTY);
    return 0;
}
