/* SPDX-License-Identifier: MIT */
/*
 * Nodes whose store has gone away, each with a table of its own: together they admit no more than
 * the quota allows in any window, those across the failure too, and miss little of it.
 */
#include "unit/test_server.h"

#include "algorithm/gcra.h"

#define NODES_MAX 9
#define USES_MAX 20000

static const char *const names[NODES_MAX] = {"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"};

static const char *const specs[] = {
    "window 10/1m",
    "window 100/1m resolution=12",
    "window 1000003/1h",
    "window 1/1s",
    "buckets 100/1m time_slack=5s",
    "buckets 100/1m count_slack=7",
    "buckets 500/10m time_slack=1m count_slack=50",
    "log 7/1s",
    "gcra 10/1s",
    "gcra 100/1s burst=7",
    "gcra 7/1s burst=100",
    "gcra 1000003/1s burst=1000",
    "gcra 5/1h burst=1",
    "fixed_window 10/1m",
    "fixed_window 10/1d align=calendar",
    "fixed_window 7/1m align=first_use",
    "sliding_counter 10/1m",
    "concurrency 10 lease=30s",
};

struct sought {
    struct rule rule;
    struct target target;
    char key[32];
};

static void ask_for(struct sought *asked, const char *spec, unsigned key)
{
    memset(asked, 0, sizeof(*asked));
    asked->rule.quota = quota_of(spec);
    asked->rule.id = asked->rule.quota.rule = 7777;
    asked->rule.store =
        (struct rule_store){.at = 1, .on_error = RULE_STORE_ERROR_LOCAL, .local_for_ns = YEAR};
    snprintf(asked->key, sizeof(asked->key), "key %u", key);
    asked->target = (struct target){.rule = &asked->rule,
                                    .quota = &asked->rule.quota,
                                    .key = span_of_text(asked->key),
                                    .cost = 1};
}

static struct evaluation_stores node_of(unsigned nodes, unsigned node, bool has_names)
{
    return (struct evaluation_stores){.nodes = nodes,
                                      .node = has_names ? names[node] : NULL,
                                      .node_names = has_names ? names : NULL};
}

static struct stint_quota share_of(const struct sought *asked, unsigned nodes, unsigned node,
                                   bool has_names)
{
    struct evaluation_stores stores = node_of(nodes, node, has_names);
    struct stint_quota local;
    assert_true(evaluation_local_quota(&stores, &asked->target, START, START, &local));
    assert_int_equal(local.derived.checked, 1);
    return local;
}

/* ---- Shares ---------------------------------------------------------------------------------- */

TEST(test_shares_add_up_to_the_whole)
{
    for (size_t i = 0; i < N(specs); i++)
        for (unsigned nodes = 1; nodes <= NODES_MAX; nodes++)
            for (unsigned key = 0; key < 5; key++) {
                struct sought asked;
                uint64_t limits = 0, capacities = 0;
                ask_for(&asked, specs[i], key);
                for (unsigned node = 0; node < nodes; node++) {
                    struct stint_quota local = share_of(&asked, nodes, node, true);
                    limits += local.limit;
                    capacities += local.limit > 0 ? most_units(&local) : 0;
                    assert_true(stint_state_size(&local) <= stint_state_size(&asked.rule.quota) ||
                                local.limit == 0);
                }
                /* What gcra shares out beside the burst is its rate: another test's. */
                bool is_gcra = asked.rule.quota.algorithm == STINT_GCRA;
                assert_true(is_gcra || limits == asked.rule.quota.limit);
                assert_true(capacities <= most_units(&asked.rule.quota));
                /* A node that has burst and no rate is no limiter, and lets none through. */
                if (!is_gcra || asked.rule.quota.burst <= asked.rule.quota.limit)
                    assert_int_equal(capacities, most_units(&asked.rule.quota));
            }
}

TEST(test_the_remainder_is_nobodys_where_nobody_knows_the_others)
{
    static const char *const strangers[] = {"n1", "n2", "n3"};
    struct sought asked;
    ask_for(&asked, "window 11/1m", 1);
    for (unsigned node = 0; node < 3; node++)
        assert_int_equal(share_of(&asked, 3, node, false).limit, 3);
    struct evaluation_stores stores = {.nodes = 3, .node = "n4", .node_names = strangers};
    struct stint_quota local;
    assert_true(evaluation_local_quota(&stores, &asked.target, START, START, &local));
    assert_int_equal(local.limit, 3);
    ask_for(&asked, "window 2/1m", 1);
    assert_int_equal(share_of(&asked, 3, 0, false).limit, 0);
    ask_for(&asked, "gcra 100/1m burst=2", 1);
    assert_int_equal(share_of(&asked, 3, 0, false).limit, 0);
}

/* One unit among three nodes: each is the one for about a third of the keys, in any order. */
TEST(test_the_remainder_is_spread_over_keys)
{
    static const char *const others[] = {"n3", "n1", "n2"};
    unsigned has[3] = {0};
    for (unsigned key = 0; key < 3000; key++) {
        struct sought asked;
        ask_for(&asked, "window 1/1m", key);
        for (unsigned node = 0; node < 3; node++) {
            struct evaluation_stores stores = {
                .nodes = 3, .node = names[node], .node_names = others};
            struct stint_quota local;
            evaluation_local_quota(&stores, &asked.target, START, START, &local);
            assert_int_equal(local.limit, share_of(&asked, 3, node, true).limit);
            has[node] += local.limit;
        }
    }
    assert_int_equal(has[0] + has[1] + has[2], 3000);
    for (unsigned node = 0; node < 3; node++)
        assert_in_range(has[node], 850, 1150);
}

TEST(test_a_share_has_states_of_its_own)
{
    for (size_t i = 0; i < N(specs); i++) {
        struct sought asked;
        ask_for(&asked, specs[i], 1);
        struct stint_quota local = share_of(&asked, 2, 0, true);
        assert_int_not_equal(local.rule, asked.rule.quota.rule);
        assert_int_not_equal(local.rule, 0);
        assert_int_equal(local.rule, share_of(&asked, 3, 1, true).rule);
        asked.rule.quota.rule++;
        assert_int_not_equal(local.rule, share_of(&asked, 2, 0, true).rule);
    }
}

TEST(test_it_lasts_as_long_as_the_rule_says)
{
    struct evaluation_stores stores = node_of(2, 0, true);
    struct sought asked;
    struct stint_quota local;
    ask_for(&asked, "window 10/1s", 1);
    asked.rule.store.local_for_ns = 10 * S;
    assert_true(evaluation_local_quota(&stores, &asked.target, START, START + 10 * S - 1, &local));
    assert_false(evaluation_local_quota(&stores, &asked.target, START, START + 10 * S, &local));
    asked.target.rule = NULL; /* a quota that a caller brings along */
    assert_true(evaluation_local_quota(&stores, &asked.target, START, START + MINUTE - 1, &local));
    assert_false(evaluation_local_quota(&stores, &asked.target, START, START + MINUTE, &local));
}

TEST(test_units_of_a_lease_count_from_the_end_of_its_term)
{
    struct sought asked;
    ask_for(&asked, "window 10/1s", 1);
    asked.rule.store.lease_term_ns = 98 * MS;
    assert_true(evaluation_local_full_until(&asked.target, START) == START + ns_on_fast_clock(S));
    asked.rule.store.lease = RULE_LEASE_STRICT;
    assert_true(evaluation_local_full_until(&asked.target, START) ==
                START + ns_on_fast_clock(S + 98 * MS));
}

/*
 * Rounding T up to 1/32 ns for each share by itself would let all together run faster. By a clock
 * that is fast they run at the rate of the whole.
 */
TEST(test_rates_of_gcra_do_not_add_up_to_more)
{
    srand(1);
    for (unsigned run = 0; run < 20000; run++) {
        struct sought asked;
        struct stint_error error;
        ask_for(&asked, "gcra 1/1s", run);
        asked.rule.quota = (struct stint_quota){
            .algorithm = STINT_GCRA,
            .period_ns = US + (uint64_t)rand() % (rand() % 2 ? 10 * S : 100 * MS),
            .limit = 1 + (uint32_t)rand() % (rand() % 2 ? 1000 : 3000000),
            .burst = 1 + (uint32_t)rand() % 2000,
            .rule = 1,
        };
        if (stint_quota_check(&asked.rule.quota, &error) != 0)
            continue;
        unsigned nodes = 1 + (unsigned)rand() % NODES_MAX;
        long double rate = 0;
        for (unsigned node = 0; node < nodes; node++) {
            struct stint_quota local = share_of(&asked, nodes, node, true);
            if (local.limit > 0)
                rate += 1.0L / (long double)local.derived.interval_ticks;
        }
        long double whole = 0.99L / (long double)asked.rule.quota.derived.interval_ticks;
        assert_true(rate <= whole * (1 + 1e-15L));
        if (asked.rule.quota.burst >= nodes && asked.rule.quota.limit >= nodes &&
            asked.rule.quota.derived.interval_ticks >= 1000)
            assert_true(rate >= whole * 0.998L);
    }
}

TEST(test_a_limit_of_0_stays_one)
{
    static const char *const nothing[] = {"window 0/1m", "gcra 0/1m", "concurrency 0 lease=1s",
                                          "buckets 0/1m count_slack=1"};
    for (size_t i = 0; i < N(nothing); i++) {
        struct sought asked;
        ask_for(&asked, nothing[i], 1);
        assert_int_equal(share_of(&asked, 3, 0, true).limit, 0);
    }
}

TEST(test_a_table_is_asked_whether_it_can_hold_shares)
{
    static const char text[] = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: minute, "
                               "algorithm: log, requests_per_unit: 500, store: red, "
                               "on_store_error: %s}\n";
    const struct evaluation_stores stores = {.nodes = 2};
    const struct stint_table_options small = {
        .keys = 64, .keys_wide = 16, .wide_size = 512, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table;
    struct stint_error error;
    char yaml[256];
    assert_int_equal(stint_table_open(&table, &small, NULL), 0);
    snprintf(yaml, sizeof(yaml), text, "local");
    struct rules *local = rules_of(yaml);
    snprintf(yaml, sizeof(yaml), text, "deny");
    struct rules *deny = rules_of(yaml);
    assert_int_equal(evaluation_local_accepts(table, &stores, rules_at(local, 0), &error),
                     STINT_E_MISMATCH);
    assert_non_null(strstr(error.message, "on_store_error: local: a state of this quota has "));
    assert_int_equal(evaluation_local_accepts(table, &stores, rules_at(deny, 0), &error), 0);
    const struct evaluation_stores many = {.nodes = 20};
    assert_int_equal(evaluation_local_accepts(table, &many, rules_at(local, 0), &error), 0);
    rules_unref(local);
    rules_unref(deny);
    stint_table_close(table);
}

/* ---- The fleet ------------------------------------------------------------------------------- */

struct use {
    uint64_t at_ns, until_ns; /* until: of a place that is held */
};

/* A store, and nodes with clocks of their own, workers and tables. */
struct fleet {
    struct sought asked;
    unsigned nodes;
    struct stint_table *store;
    struct stint_table *tables[NODES_MAX];
    uint64_t unavailable_since_ns[NODES_MAX][2]; /* each of two workers; 0: it does not know yet */
    int64_t ahead_ns[NODES_MAX];                 /* of its clock, which nobody compares */
    uint64_t rate_per_mille[NODES_MAX];          /* of its clock, to that of the store */
    struct use uses[USES_MAX];
    size_t n_uses, n_local;
};

static uint64_t draw(uint64_t below)
{
    return ((uint64_t)rand() << 31 ^ (uint64_t)rand()) % below;
}

static void fleet_init(struct fleet *fleet, const char *spec, unsigned nodes)
{
    ask_for(&fleet->asked, spec, (unsigned)draw(1000));
    fleet->nodes = nodes;
    fleet->n_uses = fleet->n_local = 0;
    fleet->store = table_for_tests(0);
    for (unsigned node = 0; node < nodes; node++) {
        fleet->tables[node] = table_for_tests(0);
        fleet->unavailable_since_ns[node][0] = fleet->unavailable_since_ns[node][1] = 0;
        fleet->ahead_ns[node] = (int64_t)draw(100 * MINUTE) - (int64_t)(50 * MINUTE);
        fleet->rate_per_mille[node] = 990 + draw(21);
    }
}

static void fleet_deinit(struct fleet *fleet)
{
    stint_table_close(fleet->store);
    for (unsigned node = 0; node < fleet->nodes; node++)
        stint_table_close(fleet->tables[node]);
}

static void note(struct fleet *fleet, uint64_t now_ns, uint32_t units, bool is_local)
{
    for (uint32_t i = 0; i < units; i++) {
        assert_true(fleet->n_uses < USES_MAX);
        fleet->uses[fleet->n_uses++] = (struct use){
            .at_ns = now_ns,
            .until_ns = now_ns + fleet->asked.rule.quota.lease_ns,
        };
    }
    fleet->n_local += is_local ? units : 0;
}

static void take_of_store(struct fleet *fleet, uint64_t now_ns, uint32_t cost)
{
    struct span key = fleet->asked.target.key;
    struct stint_decision decision =
        stint_take(fleet->store, &fleet->asked.rule.quota, key.ptr, key.len, cost, now_ns);
    note(fleet, now_ns, decision.granted, false);
}

static uint64_t own_time(const struct fleet *fleet, unsigned node, uint64_t now_ns)
{
    uint64_t passed_ns = (now_ns - START) * fleet->rate_per_mille[node] / 1000;
    return (uint64_t)((int64_t)(START + passed_ns) + fleet->ahead_ns[node]);
}

/* As evaluation_ask.c goes about it, by the node's clock. */
static void take_locally(struct fleet *fleet, unsigned node, unsigned worker, uint64_t now_ns,
                         uint32_t cost)
{
    struct evaluation_stores stores = node_of(fleet->nodes, node, true);
    uint64_t *since_ns = &fleet->unavailable_since_ns[node][worker];
    uint64_t own_ns = own_time(fleet, node, now_ns);
    struct stint_quota local;
    if (*since_ns == 0)
        *since_ns = own_ns;
    if (!evaluation_local_quota(&stores, &fleet->asked.target, *since_ns, own_ns, &local) ||
        evaluation_local_full_until(&fleet->asked.target, *since_ns) > own_ns || local.limit == 0)
        return;
    struct span key = fleet->asked.target.key;
    struct stint_decision decision =
        stint_take(fleet->tables[node], &local, key.ptr, key.len, cost, own_ns);
    note(fleet, now_ns, decision.granted, true);
}

/* The most units in any half-open window of this length; of places, held at once. */
static uint64_t most_in(const struct fleet *fleet, uint64_t length_ns)
{
    uint64_t most = 0;
    size_t first = 0;
    for (size_t i = 0; i < fleet->n_uses; i++) {
        while (fleet->uses[i].at_ns - fleet->uses[first].at_ns >= length_ns)
            first++;
        most = max_u64(most, i + 1 - first);
    }
    return most;
}

static uint64_t reach_ns(const struct fleet *fleet)
{
    const struct stint_quota *quota = &fleet->asked.rule.quota;
    return quota->algorithm == STINT_CONCURRENCY ? quota->lease_ns : quota->period_ns;
}

/* Any two uses of gcra: between them no more than the burst, and what came back meanwhile. */
static void assert_keeps_its_rate(const struct fleet *fleet)
{
    const struct stint_quota *quota = &fleet->asked.rule.quota;
    for (size_t i = 0; i < fleet->n_uses; i++)
        for (size_t j = i; j < fleet->n_uses; j++) {
            uint64_t ticks = (fleet->uses[j].at_ns - fleet->uses[i].at_ns) << 5;
            assert_true(j - i + 1 <= quota->burst + ticks / quota->derived.interval_ticks);
        }
}

static void assert_in_bounds(const struct fleet *fleet, unsigned times)
{
    const struct stint_quota *quota = &fleet->asked.rule.quota;
    uint64_t bound = stint_max_in_any_window(quota);
    uint64_t most = most_in(fleet, reach_ns(fleet));
    if (most > times * bound)
        fail_msg("%llu of %llu in a window", (unsigned long long)most, (unsigned long long)bound);
    if (quota->algorithm == STINT_GCRA && times == 1)
        assert_keeps_its_rate(fleet);
}

/* A minute or so of requests: some through the store, then each worker notices when it asks. */
static void run(struct fleet *fleet, bool is_empty)
{
    uint64_t reach = reach_ns(fleet), now_ns = START;
    uint64_t step_ns = max_u64(reach / (3 + draw(40)), 1);
    uint64_t lost_ns = START + reach / 2 + draw(2 * reach);
    fleet->asked.rule.store.local_empty = is_empty;
    while (now_ns < lost_ns + 5 * reach && fleet->n_uses < USES_MAX - 1000) {
        uint32_t cost = 1 + (uint32_t)draw(3);
        unsigned node = (unsigned)draw(fleet->nodes), worker = (unsigned)draw(2);
        if (now_ns < lost_ns)
            take_of_store(fleet, now_ns, cost);
        else
            take_locally(fleet, node, worker, now_ns, cost);
        if (draw(4) == 0)
            now_ns += draw(step_ns);
    }
}

static const char *const small_specs[] = {
    "window 10/1m",
    "window 7/1m resolution=10",
    "window 100/10s",
    "buckets 20/1m time_slack=5s",
    "buckets 20/1m count_slack=3",
    "buckets 30/1m time_slack=6s count_slack=4",
    "log 7/1s",
    "log 20/1s",
    "gcra 10/1s",
    "gcra 20/1s burst=3",
    "gcra 7/3s burst=20",
    "fixed_window 10/1m",
    "fixed_window 7/1m align=first_use",
    "sliding_counter 10/1m",
    "concurrency 10 lease=30s",
};

TEST(test_no_window_across_the_failure_has_more_than_the_quota_allows)
{
    static struct fleet fleet;
    srand(2);
    for (size_t i = 0; i < N(small_specs); i++) {
        size_t n_local = 0;
        for (unsigned nodes = 1; nodes <= NODES_MAX; nodes += 2) {
            fleet_init(&fleet, small_specs[i], nodes);
            run(&fleet, false);
            assert_in_bounds(&fleet, 1);
            n_local += fleet.n_local;
            fleet_deinit(&fleet);
        }
        assert_true(n_local > 20);
    }
}

/* Without that first period what the store has admitted counts beside it, and no more than once. */
TEST(test_shares_that_begin_empty_add_the_quota_once)
{
    static struct fleet fleet;
    bool was_over = false;
    srand(3);
    for (size_t i = 0; i < N(small_specs); i++)
        for (unsigned nodes = 1; nodes <= NODES_MAX; nodes += 4) {
            fleet_init(&fleet, small_specs[i], nodes);
            run(&fleet, true);
            assert_in_bounds(&fleet, 2);
            was_over |= most_in(&fleet, reach_ns(&fleet)) >
                        stint_max_in_any_window(&fleet.asked.rule.quota);
            fleet_deinit(&fleet);
        }
    assert_true(was_over); /* else the runs would not show anything of the other test */
}

/*
 * The store comes and goes, and workers notice each for themselves: what it admits and what the
 * shares admit are bounded each by itself, so both together by twice the quota.
 */
TEST(test_a_store_that_comes_and_goes_at_most_doubles_the_quota)
{
    static struct fleet fleet;
    srand(4);
    for (size_t i = 0; i < N(small_specs); i++) {
        fleet_init(&fleet, small_specs[i], 3);
        uint64_t reach = reach_ns(&fleet), now_ns = START;
        bool is_unavailable[3][2] = {{false}};
        while (now_ns < START + 30 * reach && fleet.n_uses < USES_MAX - 1000) {
            unsigned node = (unsigned)draw(3), worker = (unsigned)draw(2);
            if (draw(200) == 0) {
                is_unavailable[node][worker] = !is_unavailable[node][worker];
                fleet.unavailable_since_ns[node][worker] = 0;
            }
            if (is_unavailable[node][worker])
                take_locally(&fleet, node, worker, now_ns, 1);
            else
                take_of_store(&fleet, now_ns, 1);
            now_ns += draw(reach / 50);
        }
        assert_in_bounds(&fleet, 2);
        assert_true(fleet.n_local > 0);
        fleet_deinit(&fleet);
    }
}

/* Once the first period is over, all of it can be had: nothing is lost between the nodes. */
TEST(test_all_of_the_quota_is_there)
{
    static struct fleet fleet;
    srand(5);
    for (size_t i = 0; i < N(small_specs); i++)
        for (unsigned nodes = 1; nodes <= NODES_MAX; nodes++) {
            fleet_init(&fleet, small_specs[i], nodes);
            uint64_t full_ns = rule_full_locally_ns(&fleet.asked.rule.quota, NULL);
            for (unsigned node = 0; node < nodes; node++)
                fleet.rate_per_mille[node] = 1000;
            for (unsigned node = 0; node < nodes; node++)
                take_locally(&fleet, node, 0, START, 1);
            for (unsigned node = 0; node < nodes; node++)
                take_locally(&fleet, node, 0, START + full_ns - 1, 1);
            assert_int_equal(fleet.n_uses, 0);
            for (unsigned node = 0; node < nodes; node++)
                for (unsigned i_th = 0; i_th < 200; i_th++)
                    take_locally(&fleet, node, 0, START + full_ns, 1);
            uint32_t capacity = most_units(&fleet.asked.rule.quota);
            if (fleet.asked.rule.quota.burst > fleet.asked.rule.quota.limit)
                assert_in_range(fleet.n_uses, 1, capacity); /* some nodes have no rate */
            else
                assert_int_equal(fleet.n_uses, capacity);
            fleet_deinit(&fleet);
        }
}
