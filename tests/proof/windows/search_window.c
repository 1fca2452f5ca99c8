/* SPDX-License-Identifier: MIT */
/*
 * Every state of `window` that takes can reach under a small limit, against the definition: at most
 * N units in any W; no denial but where U_{W+O} + c > N - q + 1; a wait that is exact.
 *
 * Time goes in half slots, so that uses in the same slot can differ in time. A node is what the
 * algorithm remembers and when the units really were used, both as ages; from it, each cost is
 * taken, or half a slot passes. So all sequences of takes are covered, of any length.
 */
#include "algorithm/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 10
#define TICK_NS NS_PER_S
#define PERIOD_NS (2 * SLOTS * TICK_NS)
#define AGES (2 * SLOTS + 2) /* ticks of W + O */
#define NODES_MAX (1u << 22)
#define COSTS_MAX 3

struct config {
    uint32_t limit, costs[COSTS_MAX]; /* 0: no more */
};

struct node {
    uint64_t word;
    uint32_t tick;
    uint8_t used[AGES]; /* units, by age in ticks */
};

static struct node nodes[NODES_MAX];
static uint32_t slots[2 * NODES_MAX], n_nodes;
static struct stint_quota quota;
static unsigned long denials, grants;

static void fail(const struct node *node, uint32_t cost, const char *what)
{
    fflush(stdout);
    fprintf(stderr, "limit %u, tick %u, state %#llx, cost %u: %s; uses by age:", quota.limit,
            node->tick, (unsigned long long)node->word, cost, what);
    for (int age = 0; age < AGES; age++)
        fprintf(stderr, " %u", node->used[age]);
    fprintf(stderr, "\n");
    exit(1);
}

/* What the future depends on: the state relative to now, and the uses. */
struct identity {
    uint64_t string;
    uint32_t rest, place, slot_age, phase;
    uint8_t used[AGES];
};

static struct identity identity_of(const struct node *node)
{
    struct window window = window8_unpack(&quota, node->word);
    struct identity identity;
    memset(&identity, 0, sizeof(identity)); /* including the padding */
    identity.phase = node->tick % 2;
    memcpy(identity.used, node->used, sizeof(node->used));
    uint32_t slot_age = node->tick / 2 - (uint32_t)window.slot;
    if (window.string == 0 || slot_age > SLOTS)
        return identity; /* as never used */
    identity.string = window.string;
    identity.rest = window.rest;
    identity.place = window.place;
    identity.slot_age = slot_age;
    return identity;
}

static uint64_t hash_of(const struct identity *identity)
{
    const unsigned char *bytes = (const unsigned char *)identity;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof(*identity); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

static void add(const struct node *node)
{
    struct identity identity = identity_of(node);
    for (uint64_t i = hash_of(&identity);; i++) {
        uint32_t *slot = &slots[i % (2 * NODES_MAX)];
        if (*slot == 0) {
            if (n_nodes == NODES_MAX)
                fail(node, 0, "too many states for this program");
            nodes[n_nodes++] = *node;
            *slot = n_nodes;
            return;
        }
        struct identity other = identity_of(&nodes[*slot - 1]);
        if (memcmp(&identity, &other, sizeof(identity)) == 0)
            return;
    }
}

static uint32_t used_within(const struct node *node, int ages)
{
    uint32_t units = 0;
    for (int age = 0; age < ages; age++)
        units += node->used[age];
    return units;
}

static struct stint_decision take(uint64_t *word, uint64_t now_ns, uint32_t cost)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    return algorithm_ask(&quota, word, &ask);
}

static void check_denial(const struct node *node, uint32_t cost, uint64_t wait_ns)
{
    uint64_t now_ns = (uint64_t)node->tick * TICK_NS, early = node->word, late = node->word;
    denials++;
    if (used_within(node, AGES) + cost <= quota.limit - quota.derived.bunch + 1)
        fail(node, cost, "is denied, and the units of W + O leave space");
    if (take(&early, now_ns + wait_ns - 1, cost).outcome != STINT_DENY)
        fail(node, cost, "fits before the wait has ended");
    if (take(&late, now_ns + wait_ns, cost).outcome != STINT_ALLOW)
        fail(node, cost, "does not fit after the wait");
}

static void visit(struct node node, const uint32_t *costs)
{
    struct node after = node;
    after.tick++;
    memmove(after.used + 1, node.used, AGES - 1);
    after.used[0] = 0;
    add(&after);
    for (int i = 0; i < COSTS_MAX && costs[i] > 0; i++) {
        after = node;
        struct stint_decision decision = take(&after.word, (uint64_t)node.tick * TICK_NS, costs[i]);
        if (decision.outcome != STINT_ALLOW) {
            if (after.word != node.word)
                fail(&node, costs[i], "is denied, and changes the state");
            check_denial(&node, costs[i], decision.retry_after_ns);
            continue;
        }
        grants++;
        after.used[0] += (uint8_t)costs[i];
        if (used_within(&after, 2 * SLOTS) > quota.limit)
            fail(&node, costs[i], "is granted beyond the limit");
        add(&after);
    }
}

static void search(const struct config *config)
{
    struct node first = {.tick = 4 * SLOTS};
    quota = (struct stint_quota){.algorithm = STINT_WINDOW,
                                 .period_ns = PERIOD_NS,
                                 .limit = config->limit,
                                 .resolution = SLOTS};
    struct stint_error error;
    if (stint_quota_check(&quota, &error) != STINT_OK || quota.derived.state_size != 8) {
        fprintf(stderr, "limit %u: %s\n", config->limit, error.message);
        exit(1);
    }
    memset(slots, 0, sizeof(slots));
    n_nodes = 0;
    grants = denials = 0;
    add(&first);
    for (uint32_t i = 0; i < n_nodes; i++)
        visit(nodes[i], config->costs);
    if (grants == 0 || denials == 0)
        fail(&first, 0, "is all that was searched");
    printf("limit %u: %u states, %lu grants, %lu denials\n", config->limit, n_nodes, grants,
           denials);
}

int main(void)
{
    /* From a limit of 11 on a bunch has two units, and under an odd limit the last has one. */
    static const struct config configs[] = {
        {1, {1}},    {2, {1, 2}},  {3, {1, 2, 3}}, {4, {1}},
        {5, {2, 3}}, {11, {4, 7}}, {12, {3, 5}},   {21, {8, 13}},
    };
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
        search(&configs[i]);
    return 0;
}
