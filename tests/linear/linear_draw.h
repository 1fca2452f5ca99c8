/* SPDX-License-Identifier: MIT */
/* What concurrent callers ask, drawn from a seed, and how a call is made and recorded. */
#ifndef STINT_TESTS_LINEAR_DRAW_H
#define STINT_TESTS_LINEAR_DRAW_H

#include "linear/linear.h"

#include "base/ns.h"
#include "base/splitmix.h"

#include <stdio.h>

/* Calls come late: some are farther behind the latest than skew_max. */
enum { LINEAR_LATE = 1, LINEAR_LISTS = 2, LINEAR_REFUNDS = 4, LINEAR_RESETS = 8 };

#define LINEAR_SKEW_NS NS_PER_S

struct linear_scene {
    const char *spec;
    unsigned happens;
};

static const struct linear_scene linear_scenes[] = {
    {"gcra 5/1s burst=4", 0},
    {"window 5/1s resolution=10", 0},
    {"window 5/1s", 0},
    {"fixed_window 5/1s", 0},
    {"sliding_counter 5/1s", 0},
    {"log 5/1s", 0},
    {"buckets 5/1s time_slack=100ms count_slack=2", 0},
    {"gcra 5/1s burst=4", LINEAR_REFUNDS | LINEAR_RESETS},
    {"window 5/1s resolution=10", LINEAR_REFUNDS | LINEAR_RESETS},
    {"window 5/1s", LINEAR_REFUNDS | LINEAR_RESETS},
    {"fixed_window 5/1s", LINEAR_REFUNDS | LINEAR_RESETS},
    {"sliding_counter 5/1s", LINEAR_REFUNDS | LINEAR_RESETS},
    {"log 5/1s", LINEAR_REFUNDS | LINEAR_RESETS},
    {"window 5/1s resolution=10", LINEAR_LATE},
    {"window 5/1s", LINEAR_LATE | LINEAR_REFUNDS},
    {"gcra 5/1s burst=4", LINEAR_LATE},
    {"log 5/1s", LINEAR_LATE},
    {"gcra 5/1s burst=4", LINEAR_LISTS},
    {"window 5/1s resolution=10", LINEAR_LISTS},
    {"window 5/1s", LINEAR_LISTS},
    {"fixed_window 5/1s", LINEAR_LISTS},
    {"log 5/1s", LINEAR_LISTS},
};
#define LINEAR_SCENES (sizeof(linear_scenes) / sizeof(linear_scenes[0]))

/* One caller's own clock and memory. */
struct linear_caller {
    const struct linear_scene *scene;
    uint64_t random, now_ns;
    uint64_t granted_ns[LINEAR_KEYS]; /* its last grant of each key; 0: none */
    uint8_t number;
};

static inline uint32_t linear_draw(uint64_t *random, uint32_t n)
{
    return (uint32_t)(splitmix_next(random) >> 33) % n;
}

/* The next call of this caller; its clock goes on by up to a third of a period. */
static inline void linear_next(struct linear_caller *caller, struct linear_call *call)
{
    static const uint8_t verbs[] = {STINT_TAKE, STINT_TAKE,   STINT_TAKE,     STINT_TAKE,
                                    STINT_PEEK, STINT_CHARGE, STINT_TAKE_UPTO};
    uint64_t *random = &caller->random;
    unsigned happens = caller->scene->happens;
    if (linear_draw(random, 3) == 0)
        caller->now_ns += linear_draw(random, 300) * NS_PER_MS;
    *call = (struct linear_call){.caller = caller->number,
                                 .key = (uint8_t)(linear_draw(random, 4) == 0),
                                 .ask = {.now_ns = caller->now_ns,
                                         .cost = 1 + linear_draw(random, 3),
                                         .verb = verbs[linear_draw(random, 7)]}};
    uint64_t granted_ns = caller->granted_ns[call->key];
    if ((happens & LINEAR_LATE) != 0 && linear_draw(random, 4) == 0)
        call->ask.now_ns -= linear_draw(random, 3000) * NS_PER_MS;
    if ((happens & LINEAR_REFUNDS) != 0 && granted_ns != 0 && linear_draw(random, 4) == 0) {
        call->ask.verb = STINT_REFUND;
        call->ask.at_ns = granted_ns;
    } else if ((happens & LINEAR_RESETS) != 0 && linear_draw(random, 16) == 0) {
        call->ask.verb = LINEAR_RESET;
    } else if ((happens & LINEAR_LISTS) != 0 && linear_draw(random, 3) != 0) {
        call->ask.verb = STINT_TAKE;
        call->is_list = true;
    }
}

/* Asks the table, where each key is `keys` and its number; begin and end are the caller's. */
static inline void linear_ask(struct stint_table *table, const struct stint_quota *quota,
                              uint64_t keys, struct linear_caller *caller, struct linear_call *call)
{
    const struct stint_ask *ask = &call->ask;
    uint64_t names[LINEAR_KEYS] = {2 * keys + call->key, 2 * keys + !call->key};
    const struct stint_item items[LINEAR_KEYS] = {{quota, &names[0], sizeof(names[0]), ask->cost},
                                                  {quota, &names[1], sizeof(names[1]), ask->cost}};
    if (call->is_list)
        call->decision = stint_take_all(table, items, 2, ask->now_ns);
    else if (ask->verb == LINEAR_RESET)
        stint_reset(table, quota, &names[0], sizeof(names[0]), ask->now_ns);
    else if (ask->verb == STINT_TAKE)
        call->decision =
            stint_take(table, quota, &names[0], sizeof(names[0]), ask->cost, ask->now_ns);
    else if (ask->verb == STINT_TAKE_UPTO)
        call->decision = stint_take_upto(table, items, 1, ask->now_ns);
    else if (ask->verb == STINT_PEEK)
        call->decision = stint_peek(table, items, 1, ask->now_ns);
    else if (ask->verb == STINT_CHARGE)
        call->decision = stint_charge(table, items, 1, ask->now_ns);
    else
        call->decision = stint_refund(table, items, 1, ask->at_ns, ask->now_ns);
    bool takes = ask->verb == STINT_TAKE || ask->verb == STINT_TAKE_UPTO;
    if (takes && call->decision.granted > 0)
        caller->granted_ns[call->key] = ask->now_ns;
}

/* After all: what is left of both keys, seen by one caller. */
static inline size_t linear_look(struct stint_table *table, const struct stint_quota *quota,
                                 uint64_t keys, uint64_t now_ns, struct linear_call calls[])
{
    static struct linear_caller looker;
    for (uint8_t key = 0; key < LINEAR_KEYS; key++) {
        calls[key] = (struct linear_call){.begin = LINEAR_UNANSWERED - 4 + 2 * key,
                                          .end = LINEAR_UNANSWERED - 3 + 2 * key,
                                          .key = key,
                                          .caller = LINEAR_CALLERS_MAX - 1,
                                          .ask = {.now_ns = now_ns, .cost = 1, .verb = STINT_PEEK}};
        linear_ask(table, quota, keys, &looker, &calls[key]);
    }
    return LINEAR_KEYS;
}

/* For a history that is refused: all of it, so that it can be kept. */
static inline void linear_print(const struct linear_history *history)
{
    static const char *const verbs[] = {"take", "upto", "peek", "charge", "refund"};
    for (size_t i = 0; i < history->n_calls; i++) {
        const struct linear_call *call = &history->calls[i];
        const struct stint_decision *decision = &call->decision;
        fprintf(stderr, "%u %llu-%llu %s key %u cost %u at %llu now %llu: %u +%u %u %llu %llu\n",
                call->caller, (unsigned long long)call->begin, (unsigned long long)call->end,
                call->ask.verb == LINEAR_RESET ? "reset"
                : call->is_list                ? "list"
                                               : verbs[call->ask.verb],
                call->key, call->ask.cost, (unsigned long long)call->ask.at_ns,
                (unsigned long long)call->ask.now_ns, decision->outcome, decision->granted,
                decision->remaining, (unsigned long long)decision->retry_after_ns,
                (unsigned long long)decision->reset_after_ns);
    }
}

#endif
