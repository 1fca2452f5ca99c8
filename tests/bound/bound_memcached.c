/* SPDX-License-Identifier: MIT */
/*
 * Looks for the worst that failures do to one limit of three servers on a memcached, in virtual
 * time. A server is a front before the store's code, which reads, decides and swaps
 * (unit/memcached_distances.h has memcached and the network). An adversary chooses distances,
 * callers, the servers' clocks, and up to eight events; it keeps each change after which the worst
 * window holds no fewer units.
 *
 * bound_memcached [PLAYS [SEED]]: PLAYS of every scene. Exit code 1 where a bound is passed, or
 * where a planted fault passes none.
 */
#include "bound/adversary.h"
#include "unit/memcached_distances.h"

#define WINDOW_MS 100
#define EVENTS_MAX 8
#define LENGTH_MS (5 * WINDOW_MS)

enum event_kind { PAUSE, CUT, FAR_AWAY, KINDS };

struct event {
    uint32_t kind, node, at_ms, length_ms;
};

struct scene {
    const char *name, *spec;
    uint64_t clocks_ns; /* clocks of servers differ by so much at most */
    unsigned times;     /* the bound is so many times the quota's; 1: in windows of W - clocks_ns */
    bool is_planted;
};

struct play {
    struct plan plan;
    uint64_t seed;
    struct event events[EVENTS_MAX];
};

static const struct scene *scene;
static struct play played; /* the one under way */
static unsigned n_cuts[NODES_MAX];

/* ---- A play ---------------------------------------------------------------------------------- */

static void begin_event(const struct event *event)
{
    struct node_plan *node = &played.plan.nodes[event->node];
    if (event->kind == PAUSE)
        node->is_paused = true;
    else if (event->kind == FAR_AWAY)
        node->rtt_ns += event->length_ms * MS;
    else if (event->kind == CUT)
        n_cuts[event->node]++;
}

static void end_event(const struct event *event)
{
    struct node_plan *node = &played.plan.nodes[event->node];
    if (event->kind == PAUSE)
        node->is_paused = false;
    else if (event->kind == FAR_AWAY)
        node->rtt_ns -= event->length_ms * MS;
    else if (event->kind == CUT)
        n_cuts[event->node]--;
}

/* The connection is lost, with all that is on its way. */
static void cut(struct node *node)
{
    drop_packets(&node->up);
    drop_packets(&node->down);
    link_lost(memcached_conn_link(node->conn), "reset", sim.now_ns);
    memcached_backend_changed(node->store, sim.now_ns);
}

/* A connection that is lost, or given up, is made again as soon as there is a network. */
static void connect_node(unsigned i)
{
    struct link *link = memcached_conn_link(sim.nodes[i].conn);
    enum link_wants wants = link_wants(link);
    if (wants == LINK_WANTS_CLOSE || (n_cuts[i] > 0 && link_is_ready(link)))
        cut(&sim.nodes[i]);
    else if (wants == LINK_WANTS_SOCKET && n_cuts[i] == 0)
        greet(&sim.nodes[i]);
}

static void happen(void)
{
    if (sim.now_ns % MS != 0)
        return;
    uint64_t at_ms = sim.now_ns / MS - NS_PER_S / MS;
    for (size_t i = 0; i < EVENTS_MAX; i++) {
        const struct event *event = &played.events[i];
        if (event->at_ms == at_ms)
            begin_event(event);
        if (event->at_ms + event->length_ms == at_ms)
            end_event(event);
    }
    for (unsigned i = 0; i < NODES_MAX; i++)
        if (!played.plan.nodes[i].is_paused)
            connect_node(i);
}

static size_t most_in(uint64_t length_ns)
{
    size_t most = 0;
    for (size_t last = 0, first = 0; last < sim.n_grants; last++) {
        while (sim.grants[first] + length_ns <= sim.grants[last])
            first++;
        most = last + 1 - first > most ? last + 1 - first : most;
    }
    return most;
}

static struct score play(const void *next)
{
    memcpy(&played, next, sizeof(played));
    memset(n_cuts, 0, sizeof(n_cuts));
    run(&played.plan, played.seed);
    sort_grants();
    uint64_t window_ns = WINDOW_MS * MS - (scene->times == 1 ? scene->clocks_ns : 0);
    struct score score = {most_in(window_ns), most_in(window_ns + window_ns / 64)};
    end();
    return score;
}

/* ---- The adversary --------------------------------------------------------------------------- */

static void draw_node(struct node_plan *node, uint64_t *random)
{
    *node =
        (struct node_plan){.rtt_ns = NEAR_NS + draw(random, 2) * draw(random, 20000) * NS_PER_US,
                           .clients = 1 + draw(random, 24),
                           .every_ns = draw(random, 3) == 0 ? MS + draw(random, 9) * MS : 0};
    if (scene->clocks_ns > 0)
        node->ahead_ns =
            draw(random, (uint32_t)(scene->clocks_ns / NS_PER_US)) * (int64_t)NS_PER_US;
}

static void draw_event(struct event *event, uint64_t *random)
{
    *event = (struct event){.kind = draw(random, KINDS + 1),
                            .node = draw(random, NODES_MAX),
                            .at_ms = draw(random, LENGTH_MS),
                            .length_ms = 1 + draw(random, draw(random, 2) ? 20 : 80)};
}

static void draw_play(void *drawn, uint64_t *random)
{
    struct play *next = drawn;
    *next = (struct play){.seed = splitmix_next(random),
                          .plan = {.spec = scene->spec,
                                   .n_nodes = NODES_MAX,
                                   .denials = draw(random, 2) * 16,
                                   .lasts_ns = LENGTH_MS * MS,
                                   .happen = happen,
                                   .swaps_blindly = scene->is_planted}};
    for (size_t i = 0; i < NODES_MAX; i++)
        draw_node(&next->plan.nodes[i], random);
    for (size_t i = 0; i < EVENTS_MAX; i++)
        draw_event(&next->events[i], random);
}

static void change_play(void *changed, uint64_t *random)
{
    struct play *next = changed;
    for (unsigned changes = 1 + draw(random, 3); changes > 0; changes--) {
        uint32_t what = draw(random, 8);
        if (what < 4)
            draw_event(&next->events[draw(random, EVENTS_MAX)], random);
        else if (what < 7)
            draw_node(&next->plan.nodes[draw(random, NODES_MAX)], random);
        else
            next->seed = splitmix_next(random);
    }
}

static const struct adversary adversary = {
    .plan_size = sizeof(struct play), .draw = draw_play, .change = change_play, .play = play};

/* ---- Scenes ---------------------------------------------------------------------------------- */

static const struct scene scenes[] = {
    {"window", "window 40/100ms", 0, 1, false},
    {"window in 8 bytes", "window 40/100ms resolution=10", 0, 1, false},
    {"gcra", "gcra 40/100ms burst=10", 0, 1, false},
    {"clocks differ by s", "window 40/100ms", 25 * MS, 2, false},
    {"clocks differ by s, windows of W - s", "window 40/100ms", 25 * MS, 1, false},
    {"planted: swaps that do not compare", "window 40/100ms", 0, 1, true},
};

static bool try_scene(unsigned plays, uint64_t seed)
{
    struct stint_quota quota;
    if (stint_quota_parse(&quota, scene->spec, NULL) != 0)
        abort();
    uint64_t bound = scene->times * stint_max_in_any_window(&quota);
    uint64_t most = search(&adversary, plays, seed, scene->is_planted ? bound : UINT64_MAX).most;
    bool is_good = scene->is_planted == (most > bound);
    printf("%s%-36s bound %llu, worst %llu, %u plays, seed %llu\n",
           is_good ? "" : "WRONG: ", scene->name, (unsigned long long)bound,
           (unsigned long long)most, plays, (unsigned long long)seed);
    fflush(stdout);
    return is_good;
}

int main(int argc, char **argv)
{
    unsigned plays = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 40;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bool is_good = true;
    for (scene = scenes; scene < scenes + N(scenes); scene++)
        is_good &= try_scene(plays, seed);
    return is_good ? 0 : 1;
}
