/* SPDX-License-Identifier: MIT */
/*
 * The checker of linear.h itself. It accepts histories that were made by the sequential engine. It
 * refuses those with a planted fault: a lost update, a unit granted twice, a stale read, calls in
 * another order than real time. Of small histories with answers changed at random it says the same
 * as a search through all orders.
 *
 * linear_self [HISTORIES [SEED]]: as many of each kind.
 */
#include "linear/linear.h"

#include "base/ns.h"
#include "base/splitmix.h"
#include "race/crew.h"

#define CALLS_MAX 48
#define BASE_NS (100 * 3600 * NS_PER_S)
#define PEEK_LAST 1000000 /* after everything else */

static const char *const specs[] = {
    "gcra 9/1s burst=5",         "window 6/1s resolution=10", "window 6/1s",
    "fixed_window 6/1s",         "sliding_counter 6/1s",      "log 6/1s",
    "buckets 6/1s count_slack=2"};
#define SPECS (sizeof(specs) / sizeof(specs[0]))

struct made {
    struct stint_quota quota;
    struct linear_call calls[CALLS_MAX];
    struct linear_history history;
    uint64_t random;
};

static uint32_t draw(struct made *made, uint32_t n)
{
    return (uint32_t)(splitmix_next(&made->random) >> 32) % n;
}

static struct linear_history *history_of(struct made *made, size_t n_calls)
{
    made->history = (struct linear_history){
        .quota = &made->quota, .calls = made->calls, .n_calls = n_calls, .skew_max_ns = NS_PER_S};
    return &made->history;
}

/* ---- Histories of the sequential engine ------------------------------------------------------ */

/*
 * Call i takes effect at 100 * (i + 1). It begins up to `spread` before, and ends up to as much
 * after, but not within another call of its caller.
 */
static void make_intervals(struct made *made, size_t n_calls, unsigned callers, uint32_t spread)
{
    uint64_t ended[LINEAR_CALLERS_MAX] = {0};
    for (size_t i = 0; i < n_calls; i++) {
        struct linear_call *call = &made->calls[i];
        uint64_t at = 100 * (i + 1), before = at - draw(made, spread);
        call->caller = (uint8_t)draw(made, callers);
        call->begin = at > spread && before > ended[call->caller] ? before : at;
        if (call->begin <= ended[call->caller])
            call->begin = ended[call->caller] + 1;
        call->end = at + draw(made, spread);
        ended[call->caller] = call->end;
    }
}

/* A caller's next call takes effect after its last has ended. */
static bool is_possible(const struct made *made, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++)
        if (made->calls[i].begin > 100 * (i + 1))
            return false;
    return true;
}

static void draw_ask(struct made *made, struct linear_call *call, uint64_t now_ns, bool is_single)
{
    static const uint8_t verbs[] = {STINT_TAKE, STINT_TAKE, STINT_TAKE_UPTO, STINT_PEEK,
                                    STINT_CHARGE};
    call->ask = (struct stint_ask){.now_ns = now_ns - draw(made, 200) * NS_PER_MS,
                                   .cost = 1 + draw(made, 3),
                                   .verb = verbs[draw(made, 5)]};
    call->key = is_single ? 0 : (uint8_t)draw(made, 2);
}

static void make_sequential(struct made *made, size_t n_calls, bool is_single)
{
    _Alignas(16) uint8_t states[LINEAR_KEYS][LINEAR_STATE_MAX] = {{0}};
    do {
        make_intervals(made, n_calls, 2 + draw(made, LINEAR_CALLERS_MAX - 1), 50 + draw(made, 600));
    } while (!is_possible(made, n_calls));
    for (size_t i = 0; i < n_calls; i++) {
        struct linear_call *call = &made->calls[i];
        draw_ask(made, call, BASE_NS + i * 60 * NS_PER_MS, is_single);
        call->decision =
            linear_apply(&made->quota, states[call->key], &call->ask, call->ask.now_ns);
    }
}

static size_t accept_sequential(struct made *made, uint32_t histories)
{
    size_t overlaps = 0;
    for (uint32_t i = 0; i < histories; i++) {
        crew_parse(&made->quota, specs[i % SPECS]);
        size_t n_calls = 2 + draw(made, 20);
        make_sequential(made, n_calls, false);
        struct linear_verdict verdict = linear_check(history_of(made, n_calls));
        overlaps += verdict.overlaps;
        crew_check(verdict.is_linearizable, "%s: history %u of the engine is refused",
                   specs[i % SPECS], i);
    }
    return overlaps;
}

/* ---- Any histories --------------------------------------------------------------------------- */

static size_t agree_with_all_orders(struct made *made, uint32_t histories, size_t *refused)
{
    size_t accepted = 0;
    for (uint32_t i = 0; i < histories; i++) {
        crew_parse(&made->quota, specs[i % SPECS]);
        size_t n_calls = 2 + draw(made, 6);
        make_sequential(made, n_calls, true);
        struct linear_call *changed = &made->calls[draw(made, (uint32_t)n_calls)];
        struct linear_call *other = &made->calls[draw(made, (uint32_t)n_calls)];
        struct stint_decision decision = changed->decision;
        if (i % 3 == 0)
            changed->decision.remaining ^= 1;
        if (i % 3 == 1) { /* answers change places */
            changed->decision = other->decision;
            other->decision = decision;
        }
        /* i % 3 == 2: nothing is changed */
        bool slowly = linear_check_slowly(history_of(made, n_calls));
        bool fast = linear_check(history_of(made, n_calls)).is_linearizable;
        crew_check(slowly == fast, "%s: history %u: %d by all orders, %d by the checker",
                   specs[i % SPECS], i, slowly, fast);
        *refused += !slowly;
        accepted += slowly;
    }
    return accepted;
}

/* ---- Planted faults -------------------------------------------------------------------------- */

static const char *const faults[] = {"lost update", "unit granted twice", "stale read",
                                     "order against real time"};
enum { LOST_UPDATE, GRANTED_TWICE, STALE_READ, AGAINST_REAL_TIME, FAULTS };

/* Takes that fit, of a quota from which nothing returns in time: each answer is a sum. */
static void make_sums(struct made *made, size_t n_calls, size_t *last)
{
    _Alignas(16) uint8_t state[LINEAR_STATE_MAX] = {0};
    crew_parse(&made->quota, draw(made, 2) ? "log 24/1h" : "window 24/1h resolution=24");
    do {
        make_intervals(made, n_calls, 3, 300);
    } while (!is_possible(made, n_calls));
    for (size_t i = 0; i < n_calls; i++) {
        struct linear_call *call = &made->calls[i];
        call->ask = (struct stint_ask){.now_ns = BASE_NS, .cost = 1 + draw(made, 2)};
        call->key = 0;
        call->decision = linear_apply(&made->quota, state, &call->ask, BASE_NS);
    }
    *last = n_calls;
    struct linear_call *peek = &made->calls[n_calls];
    *peek = (struct linear_call){
        .begin = PEEK_LAST, .end = PEEK_LAST + 1, .ask = {.now_ns = BASE_NS, .verb = STINT_PEEK}};
    peek->decision = linear_apply(&made->quota, state, &peek->ask, BASE_NS);
}

/* What call `at` charged is overwritten: all later ones do not know of it. */
static void lose_update(struct made *made, size_t at, size_t n_calls)
{
    for (size_t i = at + 1; i < n_calls; i++)
        made->calls[i].decision.remaining += made->calls[at].ask.cost;
}

static bool plant(struct made *made, unsigned fault, size_t *n_calls)
{
    size_t last, n = 4 + draw(made, 8), at = draw(made, (uint32_t)n - 1);
    make_sums(made, n, &last);
    struct linear_call *call = &made->calls[at], *next = &made->calls[at + 1];
    *n_calls = n + 1;
    if (fault == LOST_UPDATE)
        lose_update(made, at, n + 1);
    else if (fault == GRANTED_TWICE) { /* the last two were given the same units */
        struct linear_call *peek = &made->calls[last];
        *peek = made->calls[n - 1];
        peek->caller = (uint8_t)((peek->caller + 1) % 3);
        peek->begin = peek->end = PEEK_LAST;
    } else if (fault == STALE_READ) {
        struct linear_call *peek = &made->calls[last];
        peek->decision.remaining += made->calls[n - 1].ask.cost;
        peek->decision.reset_after_ns = made->calls[n - 2].decision.reset_after_ns;
    } else {
        struct stint_decision decision = call->decision;
        if (call->end >= next->begin || call->ask.cost == next->ask.cost)
            return false; /* either order may be true */
        /* The second was first. */
        next->decision.remaining = decision.remaining + call->ask.cost - next->ask.cost;
        call->decision.remaining = next->decision.remaining - call->ask.cost;
    }
    return true;
}

static void refuse_planted(struct made *made, uint32_t histories)
{
    for (unsigned fault = 0; fault < FAULTS; fault++) {
        uint32_t planted = 0, refused = 0;
        while (planted < histories) {
            size_t n_calls;
            if (!plant(made, fault, &n_calls))
                continue;
            history_of(made, n_calls)->counts_only = fault != STALE_READ;
            planted++;
            refused += !linear_check(&made->history).is_linearizable;
        }
        printf("%s: %u of %u refused\n", faults[fault], refused, planted);
        crew_check(refused == planted, "%s: %u of %u accepted", faults[fault], planted - refused,
                   planted);
    }
}

/* ---- Histories that were once refused -------------------------------------------------------- */

/* Times in milliseconds. */
static const struct found {
    uint8_t caller, begin, end, verb, key;
    bool is_list;
    uint32_t cost;
    uint64_t now;
    uint8_t outcome;
    uint32_t granted, remaining;
    uint64_t retry_after, reset_after;
} found_refund[] = {
    /* clang-format off */
    {0, 1, 5, STINT_PEEK, 0, false, 1, 0, 0, 1, 4, 0, 1100},
    {0, 6, 11, STINT_TAKE, 0, true, 2, 0, 0, 2, 0, 0, 1100},
    {0, 12, 19, STINT_TAKE, 1, true, 1, 0, 1, 0, 0, 1100, 1100},
    {0, 20, 29, STINT_TAKE, 0, true, 1, 141, 1, 0, 0, 959, 1059},
    {0, 30, 37, STINT_TAKE, 1, true, 3, 141, 1, 0, 0, 1059, 1059},
    {0, 38, 46, STINT_TAKE, 1, true, 1, 169, 1, 0, 0, 931, 1031},
    {1, 2, 13, STINT_TAKE, 0, true, 1, 225, 1, 0, 0, 875, 975},
    {1, 14, 21, STINT_TAKE, 1, true, 3, 225, 1, 0, 0, 875, 875},
    {1, 22, 31, STINT_TAKE, 0, true, 2, 225, 1, 0, 0, 875, 975},
    {1, 32, 39, STINT_TAKE, 0, false, 3, 225, 1, 0, 1, 975, 1075},
    {1, 40, 41, STINT_TAKE_UPTO, 1, false, 3, 370, 1, 0, 0, 730, 830},
    {1, 42, 48, STINT_TAKE, 0, false, 3, 530, 1, 0, 1, 670, 770},
    {2, 3, 9, STINT_TAKE, 1, true, 3, 0, 1, 0, 2, 1100, 1100},
    {2, 10, 15, STINT_TAKE, 0, true, 2, 199, 1, 0, 0, 901, 901},
    {2, 16, 23, STINT_TAKE, 0, false, 2, 199, 0, 2, 1, 0, 1101},
    {2, 24, 25, STINT_CHARGE, 1, false, 1, 199, 0, 1, 0, 0, 1001},
    {2, 26, 33, STINT_TAKE, 0, true, 2, 199, 1, 0, 0, 901, 1001},
    {2, 34, 43, STINT_TAKE, 1, true, 3, 441, 1, 0, 0, 759, 759},
    {3, 4, 7, STINT_TAKE, 1, false, 3, 0, 0, 3, 2, 0, 1100},
    {3, 8, 17, STINT_TAKE, 0, true, 1, 143, 1, 0, 0, 957, 957},
    {3, 18, 27, STINT_TAKE, 1, true, 2, 143, 1, 0, 0, 957, 957},
    {3, 28, 35, STINT_TAKE, 1, true, 1, 143, 1, 0, 0, 957, 1057},
    {3, 36, 44, STINT_TAKE, 0, true, 2, 143, 1, 0, 0, 957, 1057},
    {3, 45, 47, STINT_TAKE, 1, true, 1, 197, 1, 0, 0, 903, 1003},
    {5, 100, 101, STINT_PEEK, 0, false, 1, 3000, 0, 1, 4, 0, 1100},
    {5, 102, 103, STINT_PEEK, 1, false, 1, 3000, 0, 1, 4, 0, 1100},
    /* clang-format on */
};
#define FOUND_FROM_NS (3604 * NS_PER_S)

/*
 * Caller 3 gives back, in its call from 8 to 17, when caller 2 has charged key 0 as well, so that
 * it has to refund. Before it does, caller 2 undoes its own charge: the state is again as caller 3
 * left it, and yet refunded, not undone.
 */
static void accept_found(struct made *made)
{
    const size_t n = sizeof(found_refund) / sizeof(found_refund[0]);
    crew_parse(&made->quota, "window 5/1s resolution=10");
    for (size_t i = 0; i < n; i++) {
        const struct found *found = &found_refund[i];
        made->calls[i] = (struct linear_call){
            .caller = found->caller,
            .begin = found->begin,
            .end = found->end,
            .key = found->key,
            .is_list = found->is_list,
            .ask = {.verb = found->verb,
                    .cost = found->cost,
                    .now_ns = FOUND_FROM_NS + found->now * NS_PER_MS},
            .decision = {.outcome = found->outcome,
                         .granted = found->granted,
                         .limit = 5,
                         .remaining = found->remaining,
                         .retry_after_ns = found->retry_after * NS_PER_MS,
                         .reset_after_ns = found->reset_after * NS_PER_MS},
        };
    }
    crew_check(linear_check(history_of(made, n)).is_linearizable,
               "a refund after an undo: refused");
}

int main(int argc, char **argv)
{
    uint32_t histories = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2000;
    struct made made = {.random = argc > 2 ? strtoull(argv[2], NULL, 10) : 1};
    size_t refused = 0, overlaps = accept_sequential(&made, histories);
    printf("%u histories of the sequential engine, %zu calls overlap: accepted\n", histories,
           overlaps);
    size_t accepted = agree_with_all_orders(&made, histories, &refused);
    printf("%u small histories: %zu accepted and %zu refused, as by all orders\n", histories,
           accepted, refused);
    crew_check(overlaps > histories && accepted > histories / 10 && refused > histories / 10,
               "too few overlap, or all are alike");
    refuse_planted(&made, histories);
    accept_found(&made);
    return crew_report();
}
