/* SPDX-License-Identifier: MIT */
/*
 * Searches every reachable state of every small buckets configuration, with and without refunds:
 * none holds more buckets than the formula says, none has admitted more than N in a window. Prints
 * how near the true maximum comes to the formula.
 *
 * A node is what the algorithm remembers and what really happened, both as ages at one fixed now.
 * From it the searcher takes one unit, gives some back, or lets a nanosecond pass. A cost above 1
 * leaves the same state as that many single units, which is checked at every node too.
 */
#include "repeats.h"

#include "algorithm/algorithm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MAX 6
#define PERIOD_MAX 6
#define NODES_MAX (1u << 17)
#define NOW_NS 1000

struct node {
    uint8_t n, closed, first_age;
    uint8_t age[LIMIT_MAX], count[LIMIT_MAX];
    uint8_t used[PERIOD_MAX]; /* units in use, by age */
};

union state {
    uint64_t word[2 + LIMIT_MAX];
};

static struct node nodes[NODES_MAX];
static uint32_t slots[2 * NODES_MAX], n_nodes, most_nodes;

static void complain(const struct stint_quota *quota, const char *what)
{
    fprintf(stderr, "limit %u, period %u, time_slack %u, count_slack %u: %s\n", quota->limit,
            (unsigned)quota->period_ns, (unsigned)quota->time_slack_ns, quota->count_slack, what);
    exit(1);
}

static union state state_of(const struct stint_quota *quota, const struct node *node)
{
    union state state = {{0}};
    uint64_t base_ns = node->n > 0 ? (uint64_t)(NOW_NS - node->age[0]) : 0;
    uint64_t first_ns = node->n > 0 ? (uint64_t)(NOW_NS - node->first_age) : 0;
    uint32_t spare = node->n | (uint32_t)node->closed << 9;
    state.word[0] = base_ns << 5 | (spare & 31);
    state.word[1] = first_ns << 5 | spare >> 5;
    for (int i = 0; i < node->n; i++)
        state.word[2 + i] = (uint64_t)(node->age[0] - node->age[i]) << quota->derived.count_bits |
                            (uint64_t)(node->count[i] - 1);
    return state;
}

/* Dead buckets are left out, and ages that can no longer matter are all the same. */
static struct node node_of(const struct stint_quota *quota, const union state *state,
                           const uint8_t *used)
{
    struct node node = {0};
    uint32_t spare = (uint32_t)((state->word[0] & 31) | (state->word[1] & 31) << 5);
    uint64_t base_ns = state->word[0] >> 5;
    for (uint32_t i = 0; i < (spare & 511); i++) {
        uint64_t entry = state->word[2 + i], mask = (1u << quota->derived.count_bits) - 1;
        uint64_t age = NOW_NS - base_ns - (entry >> quota->derived.count_bits);
        if (age >= quota->period_ns)
            continue;
        node.age[node.n] = (uint8_t)age;
        node.count[node.n++] = (uint8_t)((entry & mask) + 1);
    }
    if (node.n > 0) {
        uint64_t oldest = quota->period_ns + quota->time_slack_ns + 1;
        node.first_age = (uint8_t)min_u64(oldest, NOW_NS - (state->word[1] >> 5));
        node.closed = spare >> 9 & 1;
    }
    memcpy(node.used, used, sizeof(node.used));
    return node;
}

static void add(const struct node *node)
{
    uint64_t hash = 0;
    const uint8_t *bytes = (const uint8_t *)node;
    for (size_t i = 0; i < sizeof(*node); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3) + (hash >> 29);
    uint32_t slot = (uint32_t)((hash ^ hash >> 31) % (2 * NODES_MAX));
    for (; slots[slot] != 0; slot = (slot + 1) % (2 * NODES_MAX))
        if (memcmp(&nodes[slots[slot] - 1], node, sizeof(*node)) == 0)
            return;
    if (n_nodes == NODES_MAX) {
        fprintf(stderr, "more than %u states\n", NODES_MAX);
        exit(1);
    }
    nodes[n_nodes++] = *node;
    slots[slot] = n_nodes;
}

static void take(const struct stint_quota *quota, const struct node *node, uint32_t in_use)
{
    union state state = state_of(quota, node), at_once = state;
    struct stint_ask ask = {.now_ns = NOW_NS, .cost = 1};
    struct stint_decision decision = algorithm_buckets.ask(quota, &state, &ask);
    if (decision.granted == 0)
        return;
    if (in_use + 1 + decision.remaining > quota->limit)
        complain(quota, "admits more than the limit in a window");
    uint8_t used[PERIOD_MAX];
    memcpy(used, node->used, sizeof(used));
    used[0]++;
    struct node next = node_of(quota, &state, used);
    add(&next);

    ask.cost = 1 + decision.remaining;
    algorithm_buckets.ask(quota, &at_once, &ask);
    for (ask.cost = 1; decision.remaining > 0;)
        decision = algorithm_buckets.ask(quota, &state, &ask);
    if (memcmp(&state, &at_once, sizeof(state)) != 0)
        complain(quota, "a cost is not the same as its single units");
}

static void refund(const struct stint_quota *quota, const struct node *node)
{
    for (uint8_t age = 0; age < quota->period_ns; age++) {
        for (uint32_t units = 1; units <= node->used[age]; units++) {
            union state state = state_of(quota, node);
            struct stint_ask ask = {.now_ns = NOW_NS,
                                    .at_ns = (uint64_t)(NOW_NS - age),
                                    .cost = units,
                                    .verb = STINT_REFUND};
            uint32_t granted = algorithm_buckets.ask(quota, &state, &ask).granted;
            uint8_t used[PERIOD_MAX];
            memcpy(used, node->used, sizeof(used));
            used[age] = (uint8_t)(used[age] - granted);
            struct node next = node_of(quota, &state, used);
            add(&next);
        }
    }
}

static void wait_a_timestamp(const struct stint_quota *quota, const struct node *node)
{
    struct node later = *node;
    uint8_t used[PERIOD_MAX] = {0};
    for (int i = 0; i < later.n; i++)
        later.age[i]++;
    later.first_age++;
    memcpy(used + 1, node->used, quota->period_ns - 1);
    union state state = state_of(quota, &later);
    later = node_of(quota, &state, used);
    add(&later);
}

/* The most buckets alive in any state that can be reached. */
static uint32_t search(const struct stint_quota *quota, bool with_refunds)
{
    memset(slots, 0, sizeof(slots));
    n_nodes = 0;
    uint32_t most = 0;
    struct node unused = {0};
    add(&unused);
    for (uint32_t at = 0; at < n_nodes; at++) {
        struct node node = nodes[at];
        uint32_t in_use = 0;
        for (uint32_t age = 0; age < PERIOD_MAX; age++)
            in_use += node.used[age];
        if (in_use > quota->limit)
            complain(quota, "more than the limit is in use");
        most = node.n > most ? node.n : most;
        take(quota, &node, in_use);
        wait_a_timestamp(quota, &node);
        if (with_refunds)
            refund(quota, &node);
    }
    most_nodes = n_nodes > most_nodes ? n_nodes : most_nodes;
    return most;
}

/* 20 for 500/10m, time_slack 1m, count_slack 50: the formula's bound, reached. */
static void trace_of_twenty(void)
{
    struct stint_quota quota = {.algorithm = STINT_BUCKETS,
                                .limit = 500,
                                .period_ns = 10 * NS_PER_MIN,
                                .time_slack_ns = NS_PER_MIN,
                                .count_slack = 50};
    uint64_t state[2 + 20] = {0};
    if (algorithm_buckets.check(&quota, NULL) != STINT_OK || quota.derived.max_buckets != 20)
        complain(&quota, "the formula does not say 20");
    struct stint_ask ask = {.cost = 1};
    algorithm_buckets.ask(&quota, state, &ask);
    for (ask.now_ns = 59 * NS_PER_S; ask.now_ns < 10 * NS_PER_MIN;) {
        algorithm_buckets.ask(&quota, state, &ask);
        ask.now_ns = ask.now_ns / NS_PER_MIN * NS_PER_MIN + NS_PER_MIN;
    }
    ask.cost = 451;
    if (algorithm_buckets.ask(&quota, state, &ask).granted != 451 || (state[0] & 31) != 20)
        complain(&quota, "the trace does not reach 20");
    printf("500/10m time_slack=1m count_slack=50: 20 buckets reached of 20\n");
}

int main(void)
{
    uint32_t below[4] = {0}, configurations = 0;
    printf("limit period time_slack count_slack: formula, most alive, most with refunds\n");
    for (uint32_t limit = 1; limit <= REPEATS(LIMIT_MAX, 5); limit++)
        for (uint64_t period_ns = 1; period_ns <= PERIOD_MAX; period_ns++)
            for (uint64_t slack_ns = 0; slack_ns <= period_ns; slack_ns++)
                for (uint32_t size = slack_ns == 0; size <= limit; size++) {
                    struct stint_quota quota = {.algorithm = STINT_BUCKETS,
                                                .limit = limit,
                                                .period_ns = period_ns,
                                                .time_slack_ns = slack_ns,
                                                .count_slack = size};
                    struct stint_error error;
                    if (algorithm_buckets.check(&quota, &error) != STINT_OK)
                        complain(&quota, error.message);
                    uint32_t formula = quota.derived.max_buckets;
                    quota.derived.max_buckets = limit; /* the search is to see, not to abort */
                    uint32_t most = search(&quota, false), refunded = search(&quota, true);
                    printf("%5u %6u %10u %11u: %2u %2u %2u\n", limit, (unsigned)period_ns,
                           (unsigned)slack_ns, size, formula, most, refunded);
                    if (most > formula || refunded > formula)
                        complain(&quota, "more buckets than the formula says");
                    below[min_u64(formula - most, 3)]++;
                    configurations++;
                }
    printf("%u configurations, up to %u states each: the formula is reached in %u, missed by 1 in "
           "%u, by 2 in %u, by more in %u\n",
           configurations, most_nodes, below[0], below[1], below[2], below[3]);
    trace_of_twenty();
    return 0;
}
