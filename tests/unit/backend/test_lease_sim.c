/* SPDX-License-Identifier: MIT */
/*
 * Many nodes lease units of the same keys, in virtual time: asks and answers are slow or lost, the
 * clocks of nodes run at rates of their own, and nodes are killed in the midst of their leases. No
 * window holds more units than the mode of the lease promises, and nearly all that it may.
 */
#include "unit/lease_world.h"
#include "unit/test.h"

#define MS NS_PER_MS
#define NODES_MAX 16
#define USES_MAX 200000

struct use {
    uint64_t at_ns;
    uint32_t units;
};

struct scene {
    const char *spec;
    uint8_t lease; /* enum rule_lease */
    unsigned nodes;
    uint32_t units;
    uint64_t term_ns;
    unsigned killed_per_mille; /* of ticks */
    unsigned refunds_percent;
    unsigned lost_per_mille; /* of asks, and of answers */
    uint64_t slow_ns;        /* an ask and its answer take up to so long, each */
    unsigned asks;           /* of each node in a tick of up to a millisecond */
    uint32_t cost_max;
    bool is_even; /* the best of networks and clocks */
    uint64_t length_ns;
};

static struct world world;
static struct world_node nodes[NODES_MAX];
static struct rule rule;
static struct stint_quota quota;
static struct use uses[2][USES_MAX]; /* by key */
static size_t n_uses[2];
static uint64_t local, failed;

struct asker {
    struct backend_op op;
    struct stint_decision each;
    unsigned key, node;
    uint32_t cost;
    bool is_refund;
};
static const char *const names[2] = {"one", "two"};

static void send(unsigned node, unsigned key, uint8_t verb, uint32_t cost, uint64_t at_ns);

static void take_answer(struct asker *asker)
{
    const struct backend_answer *answer = &asker->op.answer;
    struct asker asked = *asker;
    uint32_t granted = answer->sum.granted;
    uint64_t at_ns = answer->at_ns;
    bool is_granted = answer->outcome == BACKEND_DECIDED && answer->sum.outcome == STINT_ALLOW &&
                      granted > 0 && !asker->is_refund;
    local += answer->is_local;
    failed += answer->outcome == BACKEND_FAILED;
    if (is_granted && asked.cost > 0) {
        bool goes_back = asker->op.arg != NULL;
        assert_true(n_uses[asked.key] < USES_MAX);
        if (!goes_back)
            uses[asked.key][n_uses[asked.key]++] =
                (struct use){answer->is_local ? world.now_ns : at_ns, granted};
        free(asker);
        if (goes_back)
            send(asked.node, asked.key, REQUEST_REFUND, granted, at_ns);
        return;
    }
    free(asker);
}

static void on_answer(struct backend_op *op, uint64_t now_ns)
{
    (void)now_ns;
    take_answer((struct asker *)op);
}

static void send(unsigned node, unsigned key, uint8_t verb, uint32_t cost, uint64_t at_ns)
{
    static char yes;
    struct asker *asker = calloc(1, sizeof(*asker));
    bool goes_back = verb == REQUEST_TAKE && world_random(&world, 100) < (uint64_t)rule.line;
    uint64_t now_ns = world_node_now(&nodes[node]);
    const struct backend_item item = {.quota = &quota,
                                      .rule = &rule,
                                      .name = span_of_text("rule"),
                                      .key = span_of_text(names[key]),
                                      .cost = cost};
    const struct backend_request asked = {.verb = verb,
                                          .items = &item,
                                          .n_items = 1,
                                          .at_ns = at_ns,
                                          .now_ns = now_ns,
                                          .deadline_ns = now_ns + 20 * MS};
    assert_non_null(asker);
    *asker = (struct asker){.op = {.answered = on_answer,
                                   .arg = goes_back ? &yes : NULL,
                                   .answer = {.each = &asker->each}},
                            .key = key,
                            .node = node,
                            .cost = cost,
                            .is_refund = verb == REQUEST_REFUND};
    nodes[node].lease->ops->ask(nodes[node].lease, &asked, &asker->op);
    if (asker->op.answer.outcome != BACKEND_WAITS)
        take_answer(asker);
}

static void open_node(const struct scene *scene, unsigned i)
{
    world_open(&nodes[i], &world);
    assert_non_null(nodes[i].lease);
    if (scene->is_even)
        return;
    nodes[i].offset_ns = world_random(&world, 1000 * NS_PER_S);
    nodes[i].rate_per_mille = 990 + (unsigned)world_random(&world, 21);
}

static int by_time(const void *a, const void *b)
{
    uint64_t first = ((const struct use *)a)->at_ns, second = ((const struct use *)b)->at_ns;
    return first < second ? -1 : first > second;
}

/* In microseconds, as a store counts; of half-open windows. */
static uint64_t most_in_a_window(unsigned key, uint64_t period_ns)
{
    struct use *own = uses[key];
    uint64_t most = 0, total = 0;
    qsort(own, n_uses[key], sizeof(*own), by_time);
    for (size_t last = 0, first = 0; last < n_uses[key]; last++) {
        total += own[last].units;
        while (own[first].at_ns / 1000 + period_ns / 1000 <= own[last].at_ns / 1000)
            total -= own[first++].units;
        most = total > most ? total : most;
    }
    return most;
}

/* Drawn one by one: compilers evaluate arguments in different orders. */
static void ask_something(const struct scene *scene, unsigned node)
{
    unsigned key = scene->is_even ? 0 : (unsigned)world_random(&world, 2);
    uint8_t verb = world_random(&world, 8) == 0 ? REQUEST_TAKE_UPTO : REQUEST_TAKE;
    uint32_t cost = 1 + (uint32_t)world_random(&world, scene->cost_max);
    send(node, key, verb, cost, STINT_NEVER_NS);
}

static void tick(const struct scene *scene)
{
    world.now_ns += scene->is_even ? MS / 4 : 1 + world_random(&world, MS);
    world_run(&world);
    for (unsigned i = 0; i < scene->nodes; i++) {
        /* Every other node is too busy to give back what it does not use. */
        if ((i % 2 == 0 || scene->is_even) &&
            lease_deadline(nodes[i].lease) <= world_node_now(&nodes[i]))
            lease_wake(nodes[i].lease, world_node_now(&nodes[i]));
        unsigned asks =
            scene->is_even ? scene->asks : (unsigned)world_random(&world, 2 * scene->asks + 1);
        /* Each comes for a while, and once more when what it has left is about to end. */
        uint64_t into_ns = (world.now_ns + i * 37 * MS) % (3 * scene->term_ns);
        bool is_busy = scene->is_even || into_ns < scene->term_ns / 3 ||
                       (into_ns > scene->term_ns * 6 / 5 && into_ns < scene->term_ns * 4 / 3);
        for (unsigned n = 0; n < asks && is_busy; n++)
            ask_something(scene, i);
        if (world_random(&world, 1000) < scene->killed_per_mille) {
            nodes[i].lease->ops->free(nodes[i].lease);
            open_node(scene, i);
        }
    }
}

/* Returns the most in a window of either key. */
static uint64_t play(const struct scene *scene, uint64_t seed)
{
    struct stint_error error;
    world = (struct world){.now_ns = NS_PER_S,
                           .seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1,
                           .slow_ns = scene->is_even ? MS / 10 : scene->slow_ns,
                           .lost_per_mille = scene->lost_per_mille};
    n_uses[0] = n_uses[1] = local = failed = 0;
    assert_int_equal(stint_quota_parse(&quota, scene->spec, &error), 0);
    rule = (struct rule){.domain = "d",
                         .quota = quota,
                         .line = scene->refunds_percent,
                         .store = {.lease = scene->lease,
                                   .lease_units = scene->units,
                                   .lease_term_ns = scene->term_ns}};
    for (unsigned i = 0; i < scene->nodes; i++)
        open_node(scene, i);
    while (world.now_ns < NS_PER_S + scene->length_ns)
        tick(scene);
    for (unsigned i = 0; i < scene->nodes; i++)
        nodes[i].lease->ops->free(nodes[i].lease);
    world_close(&world);
    uint64_t most = most_in_a_window(0, quota.period_ns);
    uint64_t other = most_in_a_window(1, quota.period_ns);
    return other > most ? other : most;
}

static const struct scene rough = {
    .lease = RULE_LEASE_STRICT,
    .nodes = 8,
    .units = 25,
    .term_ns = 60 * MS,
    .killed_per_mille = 3,
    .refunds_percent = 5,
    .lost_per_mille = 30,
    .slow_ns = 12 * MS,
    .asks = 2,
    .cost_max = 3,
    .length_ns = 4 * NS_PER_S,
};

static const struct {
    const char *spec;
    uint64_t bound, near;
} algorithms[] = {
    {"log 200/1s", 200, 190},
    {"window 200/1s", 200, 190},
    {"window 7/200ms resolution=10", 7, 7},
    {"buckets 200/1s time_slack=50ms", 200, 190},
    {"buckets 200/1s count_slack=10", 200, 190},
    {"gcra 200/1s burst=60", 60 + 200 - 1, 200},
    {"fixed_window 200/1s", 400, 250},
    {"sliding_counter 200/1s", 399, 200},
};

TEST(strict_leases_never_pass_the_bound)
{
    for (size_t algorithm = 0; algorithm < N(algorithms); algorithm++) {
        uint64_t most = 0, all_failed = 0;
        for (uint64_t seed = 1; seed <= REPEATS(4, 3); seed++) {
            struct scene scene = rough;
            scene.spec = algorithms[algorithm].spec;
            scene.term_ns = seed == 1 ? 20 * MS : seed == 2 ? 200 * MS : 60 * MS;
            if (seed > 2) { /* near the bound only if little is lost */
                scene.lost_per_mille = scene.refunds_percent = 1;
                scene.slow_ns = MS / 4;
                scene.asks = 8;
                scene.killed_per_mille = seed == 3 ? 0 : 1;
            }
            uint64_t found = play(&scene, seed);
            if (found > algorithms[algorithm].bound)
                fail_msg("%s, seed %u: %u in a window", scene.spec, (unsigned)seed,
                         (unsigned)found);
            most = found > most ? found : most;
            assert_true(local > 0);
            all_failed += failed;
        }
        assert_true(all_failed > 0);
        print_message("%s: at most %u of %u\n", algorithms[algorithm].spec, (unsigned)most,
                      (unsigned)algorithms[algorithm].bound);
        assert_true(most >= algorithms[algorithm].near); /* else it was no test */
    }
}

/*
 * One node has a clock that is a hundredth slow, keeps what it has leased, and uses all of it in
 * the last moment that its clock allows; the other takes whatever there is. Returns the most in a
 * window, and how late the hoarder was at the most, as a share of the term in thousandths.
 */
static uint64_t play_hoarder(const char *spec, uint64_t *latest)
{
    struct stint_error error;
    struct backend_metrics metrics = {0};
    world = (struct world){.now_ns = NS_PER_S, .seed = 5, .slow_ns = 1};
    n_uses[0] = n_uses[1] = *latest = 0;
    assert_int_equal(stint_quota_parse(&quota, spec, &error), 0);
    rule = (struct rule){
        .domain = "d",
        .quota = quota,
        .store = {.lease = RULE_LEASE_STRICT, .lease_units = 40, .lease_term_ns = 100 * MS}};
    world_open(&nodes[1], &world);
    world_open(&nodes[0], &world);
    nodes[0].lease->ops->free(nodes[0].lease);
    nodes[0].rate_per_mille = 990;
    nodes[0].lease = lease_new(&(struct lease_options){
        .inner = &nodes[0].store, .now = world_node_clock, .arg = &nodes[0], .metrics = &metrics});
    for (unsigned turn = 0; turn < 4; turn++) {
        uint64_t begin_ns = world.now_ns, held_ns = 0, had = 0;
        while (world.now_ns < begin_ns + 2200 * MS) {
            uint64_t into_ns = world.now_ns - begin_ns;
            world_run(&world);
            uint64_t units = backend_metric(&metrics.lease_units);
            if (units > had)
                held_ns = world.now_ns - MS / 4; /* when it was asked for */
            had = units;
            if (into_ns < 6 * MS && into_ns % MS == 0)
                send(0, 0, REQUEST_TAKE, 1, STINT_NEVER_NS);
            /* 0.99 of the term by a clock that runs at 0.99 is the term. */
            if (held_ns > 0 && world.now_ns == held_ns + 100 * MS - MS / 4) {
                send(0, 0, REQUEST_PEEK, 0, STINT_NEVER_NS); /* forgets those that are over */
                units = backend_metric(&metrics.lease_units);
                size_t before = n_uses[0];
                if (units > 0)
                    send(0, 0, REQUEST_TAKE, (uint32_t)units, STINT_NEVER_NS);
                if (n_uses[0] > before)
                    *latest = (world.now_ns - held_ns) / (MS / 10);
                held_ns = 0;
            }
            for (unsigned ask = 0; ask < 8 && into_ns > 10 * MS; ask++)
                send(1, 0, REQUEST_TAKE, 1, STINT_NEVER_NS);
            world.now_ns += MS / 4;
        }
        world.now_ns += 1500 * MS; /* all is free again */
    }
    nodes[0].lease->ops->free(nodes[0].lease);
    nodes[1].lease->ops->free(nodes[1].lease);
    world_close(&world);
    return most_in_a_window(0, quota.period_ns);
}

TEST(what_is_used_in_the_last_timestamp_counts)
{
    static const char *const specs[] = {"log 100/1s", "window 100/1s",
                                        "buckets 100/1s time_slack=50ms"};
    for (size_t i = 0; i < N(specs); i++) {
        uint64_t latest, most = play_hoarder(specs[i], &latest);
        print_message("%s: a lease used after %u thousandths of its term, %u in a window\n",
                      specs[i], (unsigned)latest, (unsigned)most);
        assert_true(latest >= 980);
        assert_int_equal(most, 100);
    }
}

TEST(fast_leases_pass_the_limit_by_what_nodes_hold)
{
    uint64_t most = 0;
    for (uint64_t seed = 1; seed <= REPEATS(6, 2); seed++) {
        struct scene scene = rough;
        scene.spec = "log 200/1s";
        scene.lease = RULE_LEASE_FAST;
        scene.refunds_percent = 0;
        scene.term_ns = 300 * MS;
        scene.lost_per_mille = seed % 2 * 10;
        scene.slow_ns = MS;
        uint64_t found = play(&scene, seed);
        most = found > most ? found : most;
    }
    print_message("fast: at most %u of %u\n", (unsigned)most, 200 + 8 * 25);
    assert_in_range(most, 150, 200 + 8 * 25);
}

TEST(saturating_demand_has_its_share)
{
    const struct {
        const char *spec;
        unsigned nodes;
        uint64_t term_ns,
            delay_ns; /* what the algorithm itself keeps units for beside the period */
    } rows[] = {
        {"log 400/1s", 1, 50 * MS, 0},          {"log 400/1s", 8, 50 * MS, 0},
        {"log 400/1s", 8, 250 * MS, 0},         {"gcra 400/1s burst=40", 4, 50 * MS, 0},
        {"window 480/1s", 4, 50 * MS, 42 * MS},
    };
    for (size_t i = 0; i < N(rows); i++) {
        struct scene scene = {.spec = rows[i].spec,
                              .lease = RULE_LEASE_STRICT,
                              .nodes = rows[i].nodes,
                              .units = 20,
                              .term_ns = rows[i].term_ns,
                              .asks = 4,
                              .cost_max = 1,
                              .is_even = true,
                              .length_ns = 12 * NS_PER_S};
        uint64_t used = 0, needed;
        play(&scene, 1);
        for (size_t use = 0; use < n_uses[0]; use++)
            if (uses[0][use].at_ns >= 3 * NS_PER_S)
                used += uses[0][use].units;
        needed =
            10 * (uint64_t)quota.limit * NS_PER_S / (NS_PER_S + rows[i].term_ns + rows[i].delay_ns);
        print_message("%s, %u nodes, %u ms: %u of %u units, W/(W+term) is %u, %u%% here\n",
                      rows[i].spec, rows[i].nodes, (unsigned)(rows[i].term_ns / MS), (unsigned)used,
                      10 * quota.limit, (unsigned)needed,
                      (unsigned)(100 * local / (local + world.asks)));
        assert_true(used >= needed);
    }
}
