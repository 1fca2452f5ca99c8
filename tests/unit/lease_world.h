/* SPDX-License-Identifier: MIT */
/*
 * A store that leases, and the network to it, in virtual time: what lua/lease_end.lua decides once
 * more over states of C (tests/store/test_store_lease_scripts.py holds both to it). Asks and
 * answers take their time, or get lost; each node has a clock of its own.
 */
#ifndef STINT_TESTS_LEASE_WORLD_H
#define STINT_TESTS_LEASE_WORLD_H

#include "backend/front/lease_parts.h"
#include "base/ns.h"

#include <stdio.h>
#include <stdlib.h>

#define WORLD_KEYS 4
#define WORLD_FLIGHTS 16384
#define WORLD_LEASES 64

struct world_key {
    char name[32];
    struct stint_quota own, *quota; /* quotas of asks are gone when they arrive */
    void *state;
    struct backend_lease leases[WORLD_LEASES];
    size_t n_leases;
};

struct world_node;

/* One ask on its way. */
struct flight {
    struct world_node *node;                      /* NULL: no flight */
    struct backend_op *op;                        /* NULL: nobody waits */
    uint64_t arrives_ns, answers_ns, deadline_ns; /* by the world's clock; never: lost */
    uint64_t arrives_again_ns;                    /* 0: it does not */
    bool is_done;
    uint8_t verb;
    uint32_t cost, least;
    uint64_t at_ns, term_ns;
    struct backend_lease ended[8];
    size_t n_ended;
    char name[32];
    const struct stint_quota *quota;
    struct backend_answer answer;
};

struct world {
    uint64_t now_ns;
    int64_t ahead_ns; /* of the store's clock */
    struct world_key keys[WORLD_KEYS];
    struct flight flights[WORLD_FLIGHTS];
    size_t n_flights; /* so many places have been used */
    size_t first_free;
    uint64_t asks;
    unsigned lost_per_mille, twice_per_mille;
    uint64_t slow_ns; /* an ask and its answer take up to so long, each */
    uint64_t seed;
    /* Of a take that the store has decided, the first time; NULL: not reported. */
    void (*charged)(uint32_t units);
    /*
     * Planted faults: a lease that has ended is not charged; its term begins with the answer; two
     * leases of a key may end at one time, so that a return may be of the other one.
     */
    bool forgets_ended, counts_from_answer, ends_alike;
};

struct world_node {
    struct backend store; /* its way to the store */
    struct world *world;
    uint64_t offset_ns;
    unsigned rate_per_mille; /* of its clock, 1,000 is the store's */
    struct backend *lease;
    bool is_prompt; /* answers from within ask(), at once */
    bool is_paused; /* it neither asks nor hears */
    bool is_cut;    /* what it asks is lost */
    void (*drained)(void *arg);
};

static inline uint64_t world_random(struct world *world, uint64_t below)
{
    world->seed ^= world->seed << 13;
    world->seed ^= world->seed >> 7;
    world->seed ^= world->seed << 17;
    return below == 0 ? 0 : world->seed % below;
}

static inline uint64_t world_node_now(const struct world_node *node)
{
    return node->offset_ns + node->world->now_ns / 1000 * node->rate_per_mille +
           node->world->now_ns % 1000 * node->rate_per_mille / 1000;
}

static inline uint64_t world_node_clock(void *arg)
{
    return world_node_now(arg);
}

/* ---- What the store decides ------------------------------------------------------------------ */

static inline struct world_key *world_key(struct world *world, const char *name,
                                          const struct stint_quota *quota)
{
    for (size_t i = 0; i < WORLD_KEYS; i++) {
        struct world_key *key = &world->keys[i];
        if (key->state == NULL) {
            size_t size = (stint_state_size(quota) + 15) / 16 * 16;
            snprintf(key->name, sizeof(key->name), "%s", name);
            key->own = *quota;
            key->quota = &key->own;
            key->state = aligned_alloc(16, size);
            stint_state_init(quota, key->state, 0);
        }
        if (strcmp(key->name, name) == 0)
            return key;
    }
    abort();
}

static inline struct stint_decision world_algorithm(struct world_key *key, uint8_t verb,
                                                    uint32_t cost, uint64_t now_ns, uint64_t at_ns)
{
    const struct stint_ask ask = {.now_ns = now_ns, .at_ns = at_ns, .cost = cost, .verb = verb};
    return stint_state_ask(key->quota, key->state, &ask);
}

static inline uint32_t world_out(const struct world_key *key)
{
    uint32_t out = 0;
    for (size_t i = 0; i < key->n_leases; i++)
        out += key->leases[i].units;
    return out;
}

static inline void world_remove(struct world_key *key, size_t i)
{
    key->n_leases--;
    memmove(&key->leases[i], &key->leases[i + 1], (key->n_leases - i) * sizeof(key->leases[0]));
}

static inline void world_charge(struct world_key *key, uint32_t units, uint64_t at_ns)
{
    if (units > 0 && world_algorithm(key, STINT_CHARGE, units, at_ns, 0).granted != units) {
        fprintf(stderr, "a lease did not fit when it was charged\n");
        abort();
    }
}

static inline void world_settle(const struct world *world, struct world_key *key,
                                const struct flight *flight, uint64_t now_ns)
{
    while (key->n_leases > 0 && key->leases[0].ends_ns <= now_ns) {
        if (!world->forgets_ended)
            world_charge(key, key->leases[0].units, key->leases[0].ends_ns);
        world_remove(key, 0);
    }
    for (size_t i = 0; i < flight->n_ended; i++)
        for (size_t j = 0; j < key->n_leases; j++) {
            const struct backend_lease *ended = &flight->ended[i];
            if (key->leases[j].ends_ns != ended->ends_ns || key->leases[j].units != ended->units)
                continue;
            world_remove(key, j);
            world_charge(key, ended->units - ended->left, now_ns);
            break;
        }
}

static inline void world_lend(const struct world *world, struct world_key *key,
                              const struct flight *flight, uint32_t space, uint64_t now_ns,
                              struct backend_answer *answer)
{
    uint32_t share = space / (uint32_t)(2 * (key->n_leases + 1));
    if (share < flight->least)
        share = flight->least;
    if (share > flight->cost)
        share = flight->cost > flight->least ? flight->cost : flight->least;
    answer->leases = (uint32_t)key->n_leases;
    if (key->n_leases == WORLD_LEASES)
        return;
    answer->sum.granted = share;
    answer->sum.remaining = space - share;
    if (flight->term_ns == 0) {
        world_algorithm(key, STINT_TAKE, share, now_ns, 0);
        return;
    }
    size_t place = 0;
    answer->lease_ends_ns = now_ns + flight->term_ns;
    for (; place < key->n_leases && key->leases[place].ends_ns <= answer->lease_ends_ns; place++)
        if (key->leases[place].ends_ns == answer->lease_ends_ns && !world->ends_alike)
            answer->lease_ends_ns += 1000;
    memmove(&key->leases[place + 1], &key->leases[place],
            (key->n_leases++ - place) * sizeof(key->leases[0]));
    key->leases[place] = (struct backend_lease){answer->lease_ends_ns, share, share};
}

static inline void world_decide(struct world *world, const struct flight *flight,
                                struct backend_answer *answer)
{
    uint64_t now_ns = (world->now_ns + (uint64_t)world->ahead_ns) / 1000 * 1000;
    struct world_key *key = world_key(world, flight->name, flight->quota);
    world_settle(world, key, flight, now_ns);
    struct stint_decision seen = world_algorithm(key, STINT_PEEK, 0, now_ns, 0);
    uint32_t out = world_out(key), space = seen.remaining > out ? seen.remaining - out : 0;
    uint32_t cost = flight->verb == REQUEST_LEASE ? flight->least : flight->cost;
    *answer = (struct backend_answer){.outcome = BACKEND_DECIDED, .at_ns = now_ns, .sum = seen};
    answer->sum.remaining = space;
    if (flight->verb == REQUEST_RETURN)
        return;
    if (flight->verb == REQUEST_REFUND || flight->verb == REQUEST_CHARGE) {
        if (flight->verb == REQUEST_CHARGE && cost > space)
            cost = space;
        answer->sum.granted =
            world_algorithm(key, flight->verb, cost, now_ns, flight->at_ns).granted;
        return;
    }
    if (flight->verb == REQUEST_RESET) {
        stint_state_init(key->quota, key->state, now_ns);
        return;
    }
    if (flight->verb == REQUEST_TAKE_UPTO && cost > space && space > 0)
        cost = space;
    if (cost > space) {
        struct stint_decision refused = world_algorithm(key, STINT_PEEK, cost + out, now_ns, 0);
        answer->sum.outcome = cost > seen.limit ? STINT_NEVER : STINT_DENY;
        answer->sum.retry_after_ns = cost > seen.limit                ? STINT_NEVER_NS
                                     : refused.outcome == STINT_NEVER ? key->quota->period_ns
                                                                      : refused.retry_after_ns;
        answer->leases = (uint32_t)key->n_leases;
    } else if (flight->verb == REQUEST_LEASE) {
        world_lend(world, key, flight, space, now_ns, answer);
    } else {
        answer->sum.granted = cost;
        answer->sum.remaining = space - cost;
        if (flight->verb != REQUEST_PEEK)
            world_algorithm(key, STINT_TAKE, cost, now_ns, 0);
        if (flight->verb != REQUEST_PEEK && world->charged != NULL && !flight->is_done)
            world->charged(cost);
    }
}

/* ---- The way to it --------------------------------------------------------------------------- */

static inline void world_answer(struct flight *flight, const struct backend_answer *answer)
{
    struct backend_op *op = flight->op;
    struct world_node *node = flight->node;
    struct stint_decision *each = op->answer.each;
    flight->op = NULL;
    if (node->world->counts_from_answer && flight->verb == REQUEST_LEASE)
        ((struct lease_key *)((char *)op - offsetof(struct lease_key, op)))->sent_ns =
            world_node_now(node);
    op->answer = *answer;
    op->answer.each = each;
    each[0] = answer->sum;
    op->answered(op, world_node_now(node));
}

static inline void world_free_flight(struct world *world, struct flight *flight)
{
    size_t at = (size_t)(flight - world->flights);
    flight->node = NULL;
    world->first_free = at < world->first_free ? at : world->first_free;
}

static inline void world_ask(struct backend *store, const struct backend_request *ask,
                             struct backend_op *op)
{
    struct world_node *node = (struct world_node *)store;
    struct world *world = node->world;
    struct flight *flight = &world->flights[world->first_free];
    while (flight->node != NULL)
        flight++;
    world->first_free = (size_t)(flight - world->flights);
    if (flight - world->flights == WORLD_FLIGHTS - 1)
        abort();
    if ((size_t)(flight - world->flights) == world->n_flights)
        world->n_flights++;
    *flight = (struct flight){.node = node,
                              .op = op,
                              .verb = ask->verb,
                              .cost = ask->items[0].cost,
                              .least = ask->least,
                              .at_ns = ask->at_ns,
                              .term_ns = ask->term_ns,
                              .n_ended = ask->n_ended};
    snprintf(flight->name, sizeof(flight->name), "%.*s", (int)ask->items[0].key.len,
             (const char *)ask->items[0].key.ptr);
    flight->quota = world_key(world, flight->name, ask->items[0].quota)->quota;
    if (ask->n_ended > 0)
        memcpy(flight->ended, ask->ended, ask->n_ended * sizeof(ask->ended[0]));
    world->asks++;
    if (node->is_prompt) {
        struct stint_decision *each = op->answer.each;
        world_decide(world, flight, &op->answer);
        op->answer.each = each;
        each[0] = op->answer.sum;
        world_free_flight(world, flight);
        return;
    }
    bool is_lost = world_random(world, 1000) < world->lost_per_mille || node->is_cut;
    bool is_unheard = world_random(world, 1000) < world->lost_per_mille;
    uint64_t left_ns = ask->deadline_ns > ask->now_ns ? ask->deadline_ns - ask->now_ns : 0;
    flight->arrives_ns = is_lost ? UINT64_MAX : world->now_ns + world_random(world, world->slow_ns);
    flight->answers_ns = is_lost || is_unheard
                             ? UINT64_MAX
                             : flight->arrives_ns + world_random(world, world->slow_ns);
    flight->deadline_ns = world->now_ns + left_ns;
    if (!is_lost && world->twice_per_mille > 0 &&
        world_random(world, 1000) < world->twice_per_mille)
        flight->arrives_again_ns = flight->arrives_ns + 1 + world_random(world, world->slow_ns);
    op->answer.outcome = BACKEND_WAITS;
    op->at_work = flight;
}

static inline void world_forget(struct backend *store, struct backend_op *op)
{
    (void)store;
    ((struct flight *)op->at_work)->op = NULL;
}

static inline bool world_step_flight(struct world *world, struct flight *flight)
{
    static const struct backend_answer late = {.outcome = BACKEND_FAILED, .error = "late"};
    if (flight->node == NULL)
        return false;
    if (!flight->is_done && flight->arrives_ns <= world->now_ns) {
        world_decide(world, flight, &flight->answer);
        flight->is_done = true;
    }
    if (flight->is_done && flight->arrives_again_ns != 0 &&
        flight->arrives_again_ns <= world->now_ns) {
        struct backend_answer unheard;
        flight->arrives_again_ns = 0;
        world_decide(world, flight, &unheard);
    }
    if (flight->node->is_paused && flight->op != NULL)
        return false;
    bool is_late = flight->deadline_ns <= world->now_ns;
    bool is_answered = flight->is_done && flight->answers_ns <= world->now_ns;
    if (flight->op != NULL && (is_late || is_answered)) {
        world_answer(flight, is_answered ? &flight->answer : &late);
        return true;
    }
    if (flight->op == NULL && flight->arrives_again_ns == 0 &&
        (flight->is_done || flight->arrives_ns == UINT64_MAX))
        world_free_flight(world, flight);
    return false;
}

/* All that is due by the world's clock. */
static inline void world_run(struct world *world)
{
    for (bool any = true; any;) {
        any = false;
        for (size_t i = 0; i < world->n_flights; i++)
            any |= world_step_flight(world, &world->flights[i]);
    }
}

static inline int world_accepts(const struct backend *store, const struct stint_quota *quota,
                                struct stint_error *error)
{
    (void)store;
    (void)quota;
    (void)error;
    return 0;
}

static inline uint64_t world_unavailable(const struct backend *store)
{
    (void)store;
    return 0;
}

static inline void world_drain(struct backend *store, uint64_t deadline_ns, void (*done)(void *arg),
                               void *arg)
{
    (void)store;
    (void)deadline_ns;
    done(arg);
}

/* A node that ends: what is on its way may arrive all the same. */
static inline void world_node_free(struct backend *store)
{
    static const struct backend_answer ended = {.outcome = BACKEND_FAILED, .error = "it ends"};
    struct world_node *node = (struct world_node *)store;
    for (size_t i = 0; i < node->world->n_flights; i++)
        if (node->world->flights[i].node == node && node->world->flights[i].op != NULL)
            world_answer(&node->world->flights[i], &ended);
}

static const struct backend_ops world_ops = {
    .ask = world_ask,
    .forget = world_forget,
    .accepts = world_accepts,
    .unavailable_since_ns = world_unavailable,
    .drain = world_drain,
    .free = world_node_free,
};

static inline void world_open(struct world_node *node, struct world *world)
{
    *node = (struct world_node){
        .store = {&world_ops}, .world = world, .rate_per_mille = 1000, .offset_ns = NS_PER_S};
    node->lease = lease_new(&(struct lease_options){
        .inner = &node->store, .now = world_node_clock, .arg = node, .denied_max_ns = NS_PER_S});
}

static inline void world_close(struct world *world)
{
    for (size_t i = 0; i < WORLD_KEYS; i++)
        free(world->keys[i].state);
}

#endif
