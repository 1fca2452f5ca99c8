/* SPDX-License-Identifier: MIT */
/*
 * Two and three servers of stint on one memcached, in virtual time: bytes take half a round trip
 * each way, timers have whole milliseconds, and one server is a millisecond farther than the
 * others. All of them want one hot key; each has a quiet key of its own.
 */
#include "unit/memcached_distances.h"

/* ---- What must hold -------------------------------------------------------------------------- */

static void report(const char *name)
{
    printf("%s: %s\n", name, sim.plan->spec);
    for (unsigned i = 0; i < sim.plan->n_nodes; i++) {
        const struct node *node = &sim.nodes[i];
        const struct memcached_metrics *metrics = memcached_backend_metrics(node->store);
        printf("  %4.2f ms away: asked %llu, granted %llu, denied %llu, failed %llu, lost swaps "
               "%llu, breaker %llu; quiet %llu of %llu, slowest %.2f ms\n",
               (double)node->plan->rtt_ns / 1e6, (unsigned long long)node->asked,
               (unsigned long long)node->granted, (unsigned long long)node->denied,
               (unsigned long long)node->failed, (unsigned long long)metrics->conflicts,
               (unsigned long long)node->metrics.state, (unsigned long long)node->quiet_granted,
               (unsigned long long)node->quiet_asked, (double)node->quiet_slowest_ns / 1e6);
    }
    printf("  units %zu, reads %llu, swaps %llu, won %llu\n", sim.n_grants,
           (unsigned long long)sim.reads, (unsigned long long)sim.swaps,
           (unsigned long long)sim.won);
}

/* In no second more than N. */
static void check_bound(uint32_t limit)
{
    sort_grants();
    for (size_t i = limit; i < sim.n_grants; i++)
        assert_true(sim.grants[i] - sim.grants[i - limit] >= NS_PER_S);
}

static void check_quiet_keys(void)
{
    for (unsigned i = 0; i < sim.plan->n_nodes; i++) {
        const struct node *node = &sim.nodes[i];
        assert_in_range(node->quiet_asked, 20, 1000);
        assert_in_range(node->quiet_granted, node->quiet_asked - 1, node->quiet_asked);
        assert_in_range(node->quiet_slowest_ns, 1, 2 * node->plan->rtt_ns + 5 * STEP_NS);
        assert_int_equal(node->metrics.state, STORE_ASKED);
        assert_int_equal(node->failed, 0);
    }
}

/* Of what was granted each has a third of an equal part at least. */
static void check_shares(void)
{
    for (unsigned i = 0; i < sim.plan->n_nodes; i++)
        assert_true(3 * sim.plan->n_nodes * sim.nodes[i].granted >= sim.n_grants);
}

static void check_fair(const struct plan *plan, const char *name)
{
    for (uint64_t seed = 1; seed <= REPEATS(3, 1); seed++) {
        run(plan, seed);
        report(name);
        check_bound(plan->limit);
        check_shares();
        check_quiet_keys();
        end();
    }
}

#define NEAR                                                                                       \
    {                                                                                              \
        .rtt_ns = NEAR_NS, .clients = 16                                                           \
    }
#define FAR                                                                                        \
    {                                                                                              \
        .rtt_ns = NEAR_NS + MS, .clients = 16                                                      \
    }

TEST(two_share_a_key_that_is_never_used_up)
{
    static const struct plan plan = {.spec = "window 4000000/1s",
                                     .limit = 4000000,
                                     .n_nodes = 2,
                                     .nodes = {NEAR, FAR},
                                     .lasts_ns = 2 * NS_PER_S};
    check_fair(&plan, __func__);
}

TEST(two_share_a_key_that_is_used_up)
{
    static const struct plan plan = {.spec = "window 400/1s",
                                     .limit = 400,
                                     .n_nodes = 2,
                                     .nodes = {NEAR, FAR},
                                     .lasts_ns = 5 * NS_PER_S};
    check_fair(&plan, __func__);
}

TEST(two_share_it_behind_caches_of_denials)
{
    static const struct plan plan = {.spec = "window 400/1s",
                                     .limit = 400,
                                     .n_nodes = 2,
                                     .nodes = {NEAR, FAR},
                                     .denials = 64,
                                     .lasts_ns = 5 * NS_PER_S};
    check_fair(&plan, __func__);
}

TEST(three_share_a_key_that_is_never_used_up)
{
    static const struct plan plan = {.spec = "window 4000000/1s",
                                     .limit = 4000000,
                                     .n_nodes = 3,
                                     .nodes = {NEAR, NEAR, FAR},
                                     .lasts_ns = 2 * NS_PER_S};
    check_fair(&plan, __func__);
}

TEST(three_share_a_key_that_is_used_up)
{
    static const struct plan plan = {.spec = "window 400/1s",
                                     .limit = 400,
                                     .n_nodes = 3,
                                     .nodes = {NEAR, NEAR, FAR},
                                     .lasts_ns = 5 * NS_PER_S};
    check_fair(&plan, __func__);
}

TEST(two_of_three_are_far)
{
    static const struct plan plan = {.spec = "window 4000000/1s",
                                     .limit = 4000000,
                                     .n_nodes = 3,
                                     .nodes = {FAR, NEAR, FAR},
                                     .lasts_ns = 2 * NS_PER_S};
    check_fair(&plan, __func__);
}

/* It asks rarely, so all that it asks for is less than its share. */
TEST(a_far_one_that_asks_little_gets_all_of_it)
{
    static const struct plan plan = {.spec = "window 4000000/1s",
                                     .limit = 4000000,
                                     .n_nodes = 2,
                                     .nodes = {NEAR, {.rtt_ns = NEAR_NS + MS, .every_ns = 20 * MS}},
                                     .lasts_ns = 4 * NS_PER_S};
    for (uint64_t seed = 1; seed <= REPEATS(3, 1); seed++) {
        run(&plan, seed);
        report(__func__);
        const struct node *far = &sim.nodes[1];
        check_bound(plan.limit);
        check_quiet_keys();
        assert_in_range(far->asked, 100, 300);
        assert_in_range(far->granted, far->asked * 9 / 10, far->asked);
        end();
    }
}

/* Whoever loses swaps waits for memcached all the same, and finds out that it is silent. */
TEST(silence_opens_the_breakers_of_all)
{
    static const struct plan plan = {.spec = "window 4000000/1s",
                                     .limit = 4000000,
                                     .n_nodes = 2,
                                     .nodes = {NEAR, FAR},
                                     .stops_ns = NS_PER_S + 500 * MS,
                                     .lasts_ns = NS_PER_S};
    run(&plan, 1);
    report(__func__);
    for (unsigned i = 0; i < plan.n_nodes; i++) {
        const struct node *node = &sim.nodes[i];
        assert_int_equal(node->metrics.state, STORE_STOPPED);
        assert_true(node->metrics.errors[BACKEND_ERROR_LATE] >= 5);
        assert_true(node->metrics.errors[BACKEND_ERROR_STOPPED] > 100);
        assert_in_range(memcached_backend_metrics(node->store)->busy, 0, CLIENTS_MAX);
    }
    end();
}
