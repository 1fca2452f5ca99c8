/* SPDX-License-Identifier: MIT */
/*
 * Looks for the worst that failures do to one limit of many servers, in virtual time, and compares
 * it with what docs/distributed.md states. A server is the code of a worker's store: leases before
 * a front before a connection (unit/lease_world.h has the store and the network). An adversary
 * chooses when servers are used, how slow and lossy the network is, the rates of clocks, and up to
 * eight events. It begins with random plans and keeps each change after which the worst window
 * holds no fewer units.
 *
 * bound_search [PLAYS [SEED [SERVERS [WORD]]]]: PLAYS of every scene, or of those
 * with WORD in their names. Exit code 1 where a bound is passed,
 * or where a planted fault passes none.
 */
#include "backend/front/front.h"
#include "base/wide_int.h"
#include "bound/adversary.h"
#include "decide/evaluation_parts.h"
#include "unit/lease_world.h"

#define MS NS_PER_MS
#define SERVERS_MAX 1000
#define CLASSES_MAX 4
#define EVENTS_MAX 8
#define USES_MAX (1u << 20)
#define WINDOW_MS 400
#define WINDOW_NS (WINDOW_MS * MS)
#define LENGTH_NS (5 * WINDOW_NS)
#define TERM_MS 50
#define TERM_NS (TERM_MS * MS)
#define STEP_NS (MS / 4)
#define PATIENCE 20 /* so many more plays for a planted fault, which end when it is found */

enum event_kind { PAUSE, CUT, KILL, FAILOVER, CLOCK_BACK, CLOCK_AHEAD, DEATH, KINDS };
#define CAN(kind) (1u << (kind))
#define CAN_FAIL (CAN(PAUSE) | CAN(CUT) | CAN(KILL))

/* What a scene plants or allows. */
enum {
    FORGETS_ENDED = 1,  /* a lease that ends is not charged */
    FROM_ANSWER = 2,    /* the term of a lease begins with the answer */
    LOCAL = 4,          /* on_store_error: local */
    LOCAL_EMPTY = 8,    /* without the first period */
    ROUNDED_UP = 16,    /* every server takes the remainder of a share */
    ODD_CLOCKS = 64,    /* clocks of servers at 0.97 or 1.03 */
    FULL_AFTER = 128,   /* after_failover: full */
    PLANTED = 256,      /* the bound has to be passed */
    SHORTER = 512,      /* windows are shorter by what clocks moved */
    ONE_LOSS = 1024,    /* the network loses nothing before the store dies */
    FLAPS = 2048,       /* until it dies, the store is slow and loses most, for less than W */
    ALONE = 4096,       /* one server */
    FIRST = 8192,       /* away since the first failure, whatever the store answered after it */
    TWICE = 16384,      /* the network delivers some requests twice */
    ENDS_ALIKE = 32768, /* two leases may end at one time */
};

struct scene {
    const char *name, *spec;
    uint8_t lease;  /* enum rule_lease */
    unsigned kinds; /* CAN() of events */
    unsigned flags;
    unsigned times;    /* the bound is so many times the quota's */
    uint32_t per_node; /* and so much for each server */
};

struct pulse {
    uint32_t phase_ms, first_ms, pause_ms, second_ms; /* busy, idle, busy, and idle till the end */
    uint32_t asks, cost_max;                          /* in a step */
    bool hoards;
};

struct event {
    uint32_t kind, server, at_ms, length_ms;
};

struct plan {
    uint64_t seed;
    uint32_t slow_us, lost_per_mille, twice_per_mille;
    uint32_t slow_clocks; /* per cent of servers */
    uint32_t cycle_ms;
    struct pulse pulses[CLASSES_MAX];
    struct event events[EVENTS_MAX];
};

struct server {
    struct world_node node;
    struct backend *store; /* the top of it */
    uint64_t resumes_ns, mends_ns;
    struct stint_quota share;
    void *share_state;
    uint64_t first_since_ns; /* FIRST; 0: the store is not away */
};

struct pending_take {
    struct backend_op op;
    struct stint_decision each;
    unsigned server;
};

struct use {
    uint64_t at_ns;
    uint32_t units;
};

static struct world world;
static struct server *servers;
static unsigned n_servers;
static struct rule rule;
static struct stint_quota quota;
static const struct scene *scene;
static struct use *uses;
static size_t n_uses, n_asks;
static uint64_t failovers, dies_ns;
static char *names[SERVERS_MAX];

/* What a replica has: the states and leases of some time ago. */
static struct {
    struct world_key keys[WORLD_KEYS];
    uint8_t states[WORLD_KEYS][4096];
    uint64_t failover_ns; /* 0: it follows its master */
} replica;

/* ---- Uses ------------------------------------------------------------------------------------ */

static void note_use(uint32_t units)
{
    if (n_uses == USES_MAX)
        abort();
    uses[n_uses++] = (struct use){world.now_ns, units};
}

static int by_time(const void *left, const void *right)
{
    const struct use *a = left, *b = right;
    return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

static uint64_t most_in(uint64_t length_ns)
{
    uint64_t most = 0, total = 0;
    for (size_t last = 0, first = 0; last < n_uses; last++) {
        total += uses[last].units;
        while (uses[first].at_ns / 1000 + length_ns / 1000 <= uses[last].at_ns / 1000)
            total -= uses[first++].units;
        most = max_u64(most, total);
    }
    return most;
}

/* ---- Servers --------------------------------------------------------------------------------- */

static uint64_t count_failovers(void *arg)
{
    (void)arg;
    return failovers;
}

static void open_store(struct server *server)
{
    struct backend *inner = &server->node.store;
    struct backend *front = inner;
    /* A planted fault reaches into the lease, which has to be what asks the network. */
    if ((scene->flags & FROM_ANSWER) == 0)
        front = front_new(&(struct front_options){
            .inner = inner,
            .denials = 16,
            .deny_cache_max_ns = WINDOW_NS / 4,
            .secret = {1, 2},
            .failover_policy = scene->flags & FULL_AFTER ? FAILOVER_FULL : FAILOVER_TRUSTS,
            .failovers = count_failovers});
    server->store = lease_new(&(struct lease_options){.inner = front,
                                                      .now = world_node_clock,
                                                      .arg = &server->node,
                                                      .keys = 4,
                                                      .waiting = 64,
                                                      .denied_max_ns = NS_PER_S});
    if (front == NULL || server->store == NULL)
        abort();
}

static void open_server(const struct plan *plan, unsigned at)
{
    struct server *server = &servers[at];
    bool is_slow = at * 100 < plan->slow_clocks * n_servers;
    *server = (struct server){.share_state = server->share_state, .share = server->share};
    server->node = (struct world_node){.store = {&world_ops},
                                       .world = &world,
                                       .offset_ns = NS_PER_S + at * 977 * MS,
                                       .rate_per_mille = is_slow ? 990 : 1010};
    if ((scene->flags & ODD_CLOCKS) != 0)
        server->node.rate_per_mille = is_slow ? 970 : 1030;
    open_store(server);
}

static struct target target_of(void)
{
    return (struct target){.rule = &rule, .quota = &quota, .key = span_of_text("one"), .cost = 1};
}

static void open_share(unsigned at)
{
    struct server *server = &servers[at];
    struct target target = target_of();
    const char *order[SERVERS_MAX];
    for (unsigned i = 0; i < n_servers; i++)
        order[i] = names[i];
    struct evaluation_stores stores = {.nodes = n_servers, .node = names[at], .node_names = order};
    if (!evaluation_local_quota(&stores, &target, NS_PER_S, NS_PER_S, &server->share))
        abort();
    if ((scene->flags & ROUNDED_UP) != 0) {
        server->share.limit = (quota.limit + n_servers - 1) / n_servers;
        if (stint_quota_check(&server->share, NULL) != 0)
            abort();
    }
    free(server->share_state);
    server->share_state = aligned_alloc(16, (stint_state_size(&server->share) + 15) / 16 * 16);
    stint_state_init(&server->share, server->share_state, 0);
}

static uint64_t unavailable_since(struct server *server)
{
    uint64_t since_ns = server->store->ops->unavailable_since_ns(server->store);
    if (since_ns == 0 || server->first_since_ns == 0)
        server->first_since_ns = since_ns;
    return (scene->flags & FIRST) != 0 ? server->first_since_ns : since_ns;
}

/* As evaluation_ask.c goes about a request that failed. */
static void take_locally(struct server *server)
{
    struct target target = target_of();
    uint64_t now_ns = world_node_now(&server->node);
    uint64_t since_ns = unavailable_since(server);
    since_ns = since_ns == 0 ? now_ns : min_u64(since_ns, now_ns);
    if (evaluation_local_full_until(&target, since_ns) > now_ns || server->share.limit == 0)
        return;
    const struct stint_ask ask = {.now_ns = now_ns, .cost = 1, .verb = STINT_TAKE};
    struct stint_decision decision = stint_state_ask(&server->share, server->share_state, &ask);
    if (decision.granted > 0)
        note_use(decision.granted);
}

static void hear(struct pending_take *asked_for)
{
    const struct backend_answer *answer = &asked_for->op.answer;
    bool is_granted = answer->outcome == BACKEND_DECIDED && answer->sum.outcome == STINT_ALLOW;
    bool is_heard = answer->is_local || (scene->flags & FLAPS) != 0;
    if (is_granted && is_heard && answer->sum.granted > 0)
        note_use(answer->sum.granted); /* what the store grants, it reports */
    if (is_granted && !answer->is_local && is_heard)
        uses[n_uses - 1].at_ns = answer->at_ns; /* units of answers that are lost serve none */
    if (answer->outcome == BACKEND_FAILED && (scene->flags & LOCAL) != 0 && world.n_flights > 0)
        take_locally(&servers[asked_for->server]);
    free(asked_for);
}

static void on_answer(struct backend_op *op, uint64_t now_ns)
{
    (void)now_ns;
    hear((struct pending_take *)op);
}

static void ask_store(unsigned at, uint32_t cost)
{
    struct server *server = &servers[at];
    uint64_t now_ns = world_node_now(&server->node);
    struct pending_take *asked_for = calloc(1, sizeof(*asked_for));
    const struct backend_item item = {.quota = &quota,
                                      .rule = &rule,
                                      .name = span_of_text("rule"),
                                      .key = span_of_text("one"),
                                      .cost = cost};
    const struct backend_request asked = {.verb = REQUEST_TAKE,
                                          .items = &item,
                                          .n_items = 1,
                                          .at_ns = STINT_NEVER_NS,
                                          .now_ns = now_ns,
                                          .deadline_ns = now_ns + 20 * MS};
    if (asked_for == NULL)
        abort();
    *asked_for = (struct pending_take){
        .op = {.answered = on_answer, .answer = {.each = &asked_for->each}}, .server = at};
    n_asks++;
    server->store->ops->ask(server->store, &asked, &asked_for->op);
    if (asked_for->op.answer.outcome != BACKEND_WAITS)
        hear(asked_for);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void copy_to_replica(void)
{
    memcpy(replica.keys, world.keys, sizeof(replica.keys));
    for (size_t i = 0; i < WORLD_KEYS; i++)
        if (world.keys[i].state != NULL)
            memcpy(replica.states[i], world.keys[i].state, stint_state_size(&quota));
}

/* The replica is the master now. A key that it has not heard of is never used. */
static void promote_replica(void)
{
    for (size_t i = 0; i < WORLD_KEYS; i++) {
        struct world_key *key = &world.keys[i];
        if (key->state == NULL)
            continue;
        bool is_known = replica.keys[i].state != NULL;
        memcpy(key->leases, replica.keys[i].leases, sizeof(key->leases));
        key->n_leases = is_known ? replica.keys[i].n_leases : 0;
        memcpy(key->state, replica.states[i], stint_state_size(&quota));
        if (!is_known)
            stint_state_init(&quota, key->state, 0);
    }
    replica.failover_ns = 0;
    failovers++;
}

static void die(void)
{
    world.lost_per_mille = 1000;
    for (size_t i = 0; i < world.n_flights; i++) {
        struct flight *flight = &world.flights[i];
        flight->arrives_again_ns = 0;
        if (!flight->is_done)
            flight->arrives_ns = UINT64_MAX;
    }
}

static void happen(const struct plan *plan, const struct event *event)
{
    struct server *server = &servers[event->server % n_servers];
    uint64_t until_ns = world.now_ns + event->length_ms * MS;
    if (event->kind == PAUSE) {
        server->node.is_paused = true;
        server->resumes_ns = until_ns;
    } else if (event->kind == CUT) {
        server->node.is_cut = true;
        server->mends_ns = until_ns;
    } else if (event->kind == KILL) {
        server->node.is_paused = false;
        server->store->ops->free(server->store);
        open_server(plan, event->server % n_servers);
    } else if (event->kind == FAILOVER && replica.failover_ns == 0 && failovers == 0) {
        copy_to_replica(); /* the last that reaches it */
        replica.failover_ns = until_ns;
    } else if (event->kind == CLOCK_BACK && world.ahead_ns == 0) {
        world.ahead_ns = -(int64_t)(event->length_ms * MS);
    } else if (event->kind == CLOCK_AHEAD && world.ahead_ns == 0) {
        world.ahead_ns = (int64_t)(event->length_ms * MS);
    } else if (event->kind == DEATH && dies_ns == 0) {
        dies_ns = (scene->flags & FLAPS) != 0 ? until_ns : world.now_ns;
        world.lost_per_mille = 400 + event->server % 550;
        world.slow_ns = 15 * MS;
    }
}

static void pass_time(const struct plan *plan, uint64_t before_ns)
{
    for (unsigned i = 0; i < n_servers; i++) {
        struct server *server = &servers[i];
        if (server->node.is_paused && server->resumes_ns <= world.now_ns)
            server->node.is_paused = false;
        if (server->node.is_cut && server->mends_ns <= world.now_ns)
            server->node.is_cut = false;
    }
    if (replica.failover_ns != 0 && replica.failover_ns <= world.now_ns)
        promote_replica();
    for (size_t i = 0; i < EVENTS_MAX; i++) {
        uint64_t at_ns = NS_PER_S + plan->events[i].at_ms * MS;
        if (before_ns < at_ns && at_ns <= world.now_ns && plan->events[i].kind < KINDS)
            happen(plan, &plan->events[i]);
    }
    if (dies_ns != 0 && dies_ns <= world.now_ns)
        die();
    for (unsigned i = 0; i < n_servers; i++)
        unavailable_since(&servers[i]);
}

/* ---- A play ---------------------------------------------------------------------------------- */

static bool is_busy(const struct plan *plan, const struct pulse *pulse)
{
    uint64_t into_ms = (world.now_ns / MS + pulse->phase_ms) % plan->cycle_ms;
    uint64_t second_ms = pulse->first_ms + pulse->pause_ms;
    return into_ms < pulse->first_ms ||
           (into_ms >= second_ms && into_ms < second_ms + pulse->second_ms);
}

/* What is left of a lease that is about to end; the adversary looks into the server. */
static void use_the_last(unsigned at)
{
    const struct lease *lease = (const struct lease *)servers[at].store;
    uint64_t now_ns = world_node_now(&servers[at].node);
    const struct lease_key *key = lease->newest;
    for (size_t i = 0; key != NULL && i < key->n_held; i++) {
        const struct lease_held *held = &key->held[i];
        if (held->lease.left == 0 || held->until_ns <= now_ns ||
            held->until_ns - now_ns > 2 * STEP_NS)
            continue;
        ask_store(at, held->lease.left);
        return;
    }
}

static void use_servers(const struct plan *plan)
{
    /* Of a thousand, some in each step: the limit is used up all the same. */
    unsigned stride = n_servers > 64 ? n_servers / 64 : 1;
    for (unsigned i = 0; i < n_servers; i++) {
        struct server *server = &servers[i];
        const struct pulse *pulse = &plan->pulses[i % CLASSES_MAX];
        if (server->node.is_paused)
            continue;
        uint64_t now_ns = world_node_now(&server->node);
        if (i % 2 == 0 && lease_deadline(server->store) <= now_ns)
            lease_wake(server->store, now_ns);
        if (pulse->hoards)
            use_the_last(i);
        if (!is_busy(plan, pulse) || (stride > 1 && world_random(&world, stride) != 0))
            continue;
        unsigned asks = n_servers > 64 ? 1 : pulse->asks; /* flights are bounded */
        for (unsigned ask = 0; ask < asks; ask++) {
            uint32_t cost = 1 + (uint32_t)world_random(&world, pulse->cost_max);
            ask_store(i, cost);
        }
    }
}

/* By how much clocks were moved. */
static uint64_t moved_ns(const struct plan *plan)
{
    uint64_t most_ns = 0;
    for (size_t i = 0; i < EVENTS_MAX; i++)
        if (plan->events[i].kind == CLOCK_BACK || plan->events[i].kind == CLOCK_AHEAD)
            most_ns = max_u64(most_ns, plan->events[i].length_ms * MS);
    return most_ns;
}

static struct score play(const void *played)
{
    const struct plan *plan = played;
    memset(&replica, 0, sizeof(replica));
    memset(world.flights, 0, (world.n_flights + 1) * sizeof(world.flights[0]));
    memset(world.keys, 0, sizeof(world.keys));
    world.n_flights = world.first_free = 0;
    world.now_ns = NS_PER_S;
    world.ahead_ns = 0;
    world.seed = plan->seed | 1;
    world.slow_ns = plan->slow_us * NS_PER_US + 1;
    world.lost_per_mille = (scene->flags & ONE_LOSS) != 0 ? 0 : plan->lost_per_mille;
    world.twice_per_mille = plan->twice_per_mille;
    world.charged = (scene->flags & FLAPS) != 0 ? NULL : note_use;
    world.forgets_ended = (scene->flags & FORGETS_ENDED) != 0;
    world.counts_from_answer = (scene->flags & FROM_ANSWER) != 0;
    world.ends_alike = (scene->flags & ENDS_ALIKE) != 0;
    n_uses = failovers = dies_ns = 0;
    for (unsigned i = 0; i < n_servers; i++) {
        open_server(plan, i);
        if ((scene->flags & LOCAL) != 0)
            open_share(i);
    }
    while (world.now_ns < NS_PER_S + LENGTH_NS) {
        uint64_t before_ns = world.now_ns;
        world.now_ns += STEP_NS;
        pass_time(plan, before_ns);
        world_run(&world);
        use_servers(plan);
    }
    size_t n = n_uses;
    for (unsigned i = 0; i < n_servers; i++)
        servers[i].store->ops->free(servers[i].store);
    n_uses = n; /* what fails now is no use */
    qsort(uses, n_uses, sizeof(*uses), by_time);
    for (size_t i = 0; i < WORLD_KEYS; i++)
        free(world.keys[i].state);
    uint64_t window_ns = quota.period_ns - ((scene->flags & SHORTER) != 0 ? moved_ns(plan) : 0);
    return (struct score){most_in(window_ns), most_in(window_ns + window_ns / 64)};
}

/* ---- The adversary --------------------------------------------------------------------------- */

static void draw_pulse(struct pulse *pulse, uint64_t *random)
{
    *pulse = (struct pulse){.phase_ms = draw(random, 800),
                            .first_ms = draw(random, 3) == 0 ? 2000 : 1 + draw(random, 60),
                            .pause_ms = draw(random, 2) ? draw(random, 60) : draw(random, 450),
                            .second_ms = 1 + draw(random, 60),
                            .asks = 1 + draw(random, 8),
                            .cost_max = 1 + draw(random, 3)};
}

/*
 * Some servers get units and use them just before their leases end. The others come when what was
 * charged for that returns.
 */
static void draw_hoarders(struct plan *plan, uint64_t *random)
{
    uint32_t others_ms = TERM_MS + WINDOW_MS + draw(random, 40) - 10, asks = 2 + draw(random, 8);
    plan->cycle_ms = 900 + draw(random, 200);
    for (size_t i = 0; i < CLASSES_MAX; i++) {
        bool hoards = i % 2 == 1; /* these are too busy to give back what they do not use */
        plan->pulses[i] = (struct pulse){.phase_ms = hoards ? 0 : plan->cycle_ms - others_ms,
                                         .first_ms = hoards ? 1 + draw(random, 12) : 30,
                                         .asks = hoards ? 1 : asks,
                                         .cost_max = hoards ? 1 + draw(random, 3) : 1,
                                         .hoards = hoards};
    }
}

/*
 * Two servers get units at one time. One gives them back, maybe twice; the other uses them just
 * before its lease ends. A third comes meanwhile.
 */
static void draw_company(struct plan *plan, uint64_t *random)
{
    uint32_t first_ms = 1 + draw(random, 4), third_ms = draw(random, 2 * TERM_MS);
    plan->cycle_ms = 500 + draw(random, 500);
    for (size_t i = 0; i < CLASSES_MAX; i++)
        plan->pulses[i] = (struct pulse){.phase_ms = i < 2 ? 0 : plan->cycle_ms - third_ms,
                                         .first_ms = i < 2 ? first_ms : 1 + draw(random, 60),
                                         .asks = i < 2 ? 1 : 8,
                                         .cost_max = 1 + draw(random, 3),
                                         .hoards = i == 1};
}

static void draw_event(struct event *event, uint64_t *random)
{
    uint32_t kind = draw(random, KINDS + 1);
    *event = (struct event){.kind = (scene->kinds & CAN(kind)) != 0 ? kind : KINDS,
                            .server = draw(random, SERVERS_MAX),
                            .at_ms = draw(random, LENGTH_NS / MS),
                            .length_ms = 1 + draw(random, draw(random, 2) ? 60 : 399)};
    if (kind == DEATH)
        event->at_ms = WINDOW_MS + draw(random, 2 * WINDOW_MS);
    if (kind == CLOCK_BACK || kind == CLOCK_AHEAD)
        event->length_ms = 1 + draw(random, WINDOW_MS / 2);
}

static void draw_network(struct plan *plan, uint64_t *random)
{
    bool is_near = (scene->flags & ONE_LOSS) != 0 || draw(random, 2) == 0;
    plan->slow_us = is_near ? draw(random, 500) : draw(random, 15000);
    plan->lost_per_mille = draw(random, 3) ? 0 : draw(random, 200);
    plan->slow_clocks = draw(random, 101);
    plan->cycle_ms = 100 + draw(random, 900);
    plan->twice_per_mille = 0;
    if ((scene->flags & TWICE) != 0) {
        plan->twice_per_mille = draw(random, 300);
        plan->slow_us *= draw(random, 2); /* 0: what is asked at once arrives at once */
    }
}

static void draw_plan(void *drawn, uint64_t *random)
{
    struct plan *plan = drawn;
    draw_network(plan, random);
    plan->seed = splitmix_next(random);
    for (size_t i = 0; i < CLASSES_MAX; i++)
        draw_pulse(&plan->pulses[i], random);
    for (size_t i = 0; i < EVENTS_MAX; i++)
        draw_event(&plan->events[i], random);
    if (scene->lease != 0 && draw(random, 2) == 0)
        draw_hoarders(plan, random);
    if ((scene->flags & TWICE) != 0 && draw(random, 2) == 0)
        draw_company(plan, random);
}

static void change_plan(void *changed, uint64_t *random)
{
    struct plan *plan = changed;
    for (unsigned changes = 1 + draw(random, 3); changes > 0; changes--) {
        uint32_t what = draw(random, scene->lease != 0 ? 13 : 10);
        if (what < 4)
            draw_event(&plan->events[draw(random, EVENTS_MAX)], random);
        else if (what < 8)
            draw_pulse(&plan->pulses[draw(random, CLASSES_MAX)], random);
        else if (what == 8)
            draw_network(plan, random);
        else if (what > 9)
            ((scene->flags & TWICE) != 0 ? draw_company : draw_hoarders)(plan, random);
        else
            plan->seed = splitmix_next(random);
    }
}

static const struct adversary adversary = {
    .plan_size = sizeof(struct plan), .draw = draw_plan, .change = change_plan, .play = play};

/* ---- Scenes ---------------------------------------------------------------------------------- */

#define STRICT RULE_LEASE_STRICT
#define FAST RULE_LEASE_FAST
#define UNITS 20 /* lease_units */
#define WINDOW "window 121/400ms"
#define LOG "log 120/400ms"
#define GCRA "gcra 120/400ms burst=30"

static const struct scene scenes[] = {
    {"no lease", WINDOW, 0, CAN_FAIL, 0, 1, 0},
    {"no lease, gcra", GCRA, 0, CAN_FAIL, 0, 1, 0},
    {"lease: strict", WINDOW, STRICT, CAN_FAIL, 0, 1, 0},
    {"lease: strict, log", LOG, STRICT, CAN_FAIL, 0, 1, 0},
    {"lease: strict, gcra", GCRA, STRICT, CAN_FAIL, 0, 1, 0},
    {"no lease, requests arrive twice", WINDOW, 0, CAN_FAIL, TWICE, 1, 0},
    {"lease: strict, log, requests arrive twice", LOG, STRICT, CAN_FAIL, TWICE, 1, 0},
    {"lease: strict, gcra, requests arrive twice", GCRA, STRICT, CAN_FAIL, TWICE, 1, 0},
    {"lease: fast", LOG, FAST, CAN_FAIL, 0, 1, UNITS},
    {"failover with lost writes", LOG, 0, CAN_FAIL | CAN(FAILOVER), 0, 2, 0},
    {"failover, lease: strict", LOG, STRICT, CAN_FAIL | CAN(FAILOVER), 0, 2, 0},
    {"failover, after_failover: full", LOG, 0, CAN_FAIL | CAN(FAILOVER), FULL_AFTER, 2, 0},
    {"store's clock set back", WINDOW, 0, CAN(CLOCK_BACK), 0, 1, 0},
    {"store's clock set back, windows of W - d", LOG, 0, CAN(CLOCK_BACK), SHORTER, 1, 0},
    {"store's clock set ahead", WINDOW, 0, CAN(CLOCK_AHEAD), 0, 2, 0},
    {"store's clock set ahead, windows of W - d", WINDOW, 0, CAN(CLOCK_AHEAD), SHORTER, 1, 0},
    {"local, all lose the store", WINDOW, 0, CAN(DEATH), LOCAL | ONE_LOSS, 1, 0},
    {"local, lease: strict, all lose the store", LOG, STRICT, CAN(DEATH), LOCAL | ONE_LOSS, 1, 0},
    {"local, alone, the store flaps and dies", WINDOW, 0, CAN(DEATH),
     LOCAL | ONE_LOSS | FLAPS | ALONE, 1, 0},
    {"local, alone, lease: strict, the same", LOG, STRICT, CAN(DEATH),
     LOCAL | ONE_LOSS | FLAPS | ALONE, 1, 0},
    {"local, the store comes and goes", WINDOW, 0, CAN_FAIL, LOCAL, 2, 0},
    {"planted: an ended lease is not charged", LOG, STRICT, CAN_FAIL, FORGETS_ENDED | PLANTED, 1,
     0},
    {"planted: a term from the answer on", LOG, STRICT, CAN_FAIL, FROM_ANSWER | PLANTED, 1, 0},
    {"planted: leases end at one time, requests arrive twice", LOG, STRICT, CAN_FAIL,
     TWICE | ENDS_ALIKE | PLANTED, 1, 0},
    {"planted: clocks 3 % off", LOG, STRICT, CAN_FAIL, ODD_CLOCKS | PLANTED, 1, 0},
    {"planted: shares rounded up", WINDOW, 0, CAN(DEATH), LOCAL | ONE_LOSS | ROUNDED_UP | PLANTED,
     1, 0},
    {"planted: shares without a first period", WINDOW, 0, CAN(DEATH),
     LOCAL | ONE_LOSS | LOCAL_EMPTY | PLANTED, 1, 0},
    {"planted: shares, clocks 3 % off", WINDOW, 0, CAN(DEATH),
     LOCAL | ONE_LOSS | ODD_CLOCKS | PLANTED, 1, 0},
    {"planted: away since the first failure", WINDOW, 0, CAN(DEATH),
     LOCAL | ONE_LOSS | FLAPS | ALONE | FIRST | PLANTED, 1, 0},
};

static void make_rule(void)
{
    struct stint_error error;
    if (stint_quota_parse(&quota, scene->spec, &error) != 0)
        abort();
    quota.rule = 7;
    rule = (struct rule){.domain = "d",
                         .quota = quota,
                         .id = 7,
                         .store = {.at = 1,
                                   .on_error = RULE_STORE_ERROR_LOCAL,
                                   .local_for_ns = 3600 * NS_PER_S,
                                   .local_empty = (scene->flags & LOCAL_EMPTY) != 0,
                                   .lease = scene->lease,
                                   .lease_units = UNITS,
                                   .lease_term_ns = scene->lease == STRICT ? TERM_NS
                                                    : scene->lease != 0    ? WINDOW_NS
                                                                           : 0}};
}

static bool run(unsigned plays, uint64_t seed)
{
    bool is_planted = (scene->flags & PLANTED) != 0;
    make_rule();
    uint64_t bound = scene->times * stint_max_in_any_window(&quota) + scene->per_node * n_servers;
    n_asks = 0;
    struct found found = search(&adversary, plays, seed, is_planted ? bound : UINT64_MAX);
    bool is_good = is_planted == (found.most > bound);
    printf("%s%-42s %4u servers: bound %llu, worst %llu, in play %u of %u, seed %llu, %zu "
           "requests\n",
           is_good ? "" : "WRONG: ", scene->name, n_servers, (unsigned long long)bound,
           (unsigned long long)found.most, found.best_at, found.plays, (unsigned long long)seed,
           n_asks);
    fflush(stdout);
    return is_good;
}

int main(int argc, char **argv)
{
    static const unsigned sizes[] = {3, 10, 100, 1000};
    unsigned plays = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 40;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    unsigned only = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    bool is_good = true;
    servers = calloc(SERVERS_MAX, sizeof(*servers));
    uses = calloc(USES_MAX, sizeof(*uses));
    for (unsigned i = 0; i < SERVERS_MAX; i++) {
        names[i] = malloc(16);
        snprintf(names[i], 16, "server-%u", i);
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        n_servers = sizes[i];
        if (only != 0 && only != n_servers)
            continue;
        for (size_t j = 0; j < sizeof(scenes) / sizeof(scenes[0]); j++) {
            scene = &scenes[j];
            if (argc > 4 && strstr(scene->name, argv[4]) == NULL)
                continue;
            bool is_planted = (scene->flags & PLANTED) != 0;
            bool is_alone = (scene->flags & ALONE) != 0;
            if ((is_planted || is_alone) && sizes[i] != sizes[0])
                continue; /* three are enough for it */
            n_servers = is_alone ? 1 : sizes[i];
            unsigned parts = n_servers > 100 ? 20 : n_servers > 10 ? 4 : 1;
            is_good &= run(is_planted ? PATIENCE * plays : plays / parts + 1, seed);
        }
    }
    return is_good ? 0 : 1;
}
