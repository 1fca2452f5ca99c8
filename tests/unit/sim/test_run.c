/* SPDX-License-Identifier: MIT */
/*
 * Whole runs: every adversary against every algorithm reaches what the algorithm states at most,
 * where that is its prey, and passes it nowhere. A bound that does not hold fails here.
 */
#include "unit/test_quota.h"

#include "sim/judge/run.h"

#include "base/ns.h"

#include <math.h>

/* Up to three specs, separated by " + ", are a list that is taken all or nothing. */
static struct tally run(const char *specs, const char *text, struct run_options options)
{
    struct stint_quota quotas[3];
    struct workload workload;
    struct stint_error error;
    struct tally tally;
    char copy[200];
    size_t n_quotas = 0;
    snprintf(copy, sizeof(copy), "%s", specs);
    for (char *spec = copy, *next; spec != NULL; spec = next) {
        next = strstr(spec, " + ");
        if (next != NULL) {
            *next = '\0';
            next += 3;
        }
        quotas[n_quotas++] = quota_of(spec);
    }
    if (workload_parse(&workload, text, &error) != 0)
        fail_msg("%s: %s", text, error.message);
    options.quotas = quotas;
    options.n_quotas = n_quotas;
    options.workload = &workload;
    options.seed = options.seed == 0 ? 1 : options.seed;
    options.decisions_max = options.decisions_max == 0 ? 20000 : options.decisions_max;
    if (run_simulate(&options, &tally, &error) != 0)
        fail_msg("%s, %s: %s", specs, text, error.message);
    return tally;
}

static const struct run_options defaults = {0};

static const char *const algorithms[] = {
    "window 100/60s",
    "window 15/1m",
    "window 100/60s resolution=10",
    "buckets 100/10m time_slack=1m count_slack=10",
    "buckets 100/10m time_slack=1m",
    "buckets 100/10m count_slack=7",
    "log 100/60s",
    "gcra 100/60s",
    "gcra 100/60s burst=7",
    "gcra 7/1s burst=1",
    "fixed_window 100/60s",
    "fixed_window 20/1s align=first_use",
    "fixed_window 50/1mo align=calendar",
    "fixed_window 10/1d align=calendar utc_offset=+05:30",
    "sliding_counter 100/60s",
    "sliding_counter 3/7us",
    "concurrency 10 lease=30s",
};

static const char *const workloads[] = {
    "edge",
    "late_bucket",
    "slot_edge",
    "idle_burst",
    "flood",
    "clock_steps",
    "clock_steps step=5s",
    "greedy keys=20 cost=uniform:1:3",
    "poisson load=3 keys=50 zipf=1 cost=lognormal:2:1",
    "poisson load=1.5 keys=30 churn=5s",
    "onoff load=2",
    "mmpp load=1.5 retry=obey",
    "diurnal load=1.5",
    "herd clients=150 every=1s jitter=1ms retry=backoff",
    "closed clients=20",
    "closed retry=ignore clients=30 keys=3",
};

TEST(test_nobody_passes_a_stated_bound_or_is_denied_outside_of_it)
{
    const struct run_options few = {.decisions_max = 6000};
    uint64_t denials = 0, false_denials = 0, waits = 0;
    for (size_t a = 0; a < N(algorithms); a++)
        for (size_t w = 0; w < N(workloads); w++) {
            struct tally tally = run(algorithms[a], workloads[w], few);
            const struct tally_quota *quota = &tally.quotas[0];
            if (tally_is_broken(&tally))
                fail_msg("%s, %s: %llu of %llu, %llu unjustified, %llu too long, %llu too short",
                         algorithms[a], workloads[w], (unsigned long long)quota->most,
                         (unsigned long long)quota->bound, (unsigned long long)tally.unjustified,
                         (unsigned long long)tally.waits_too_long,
                         (unsigned long long)tally.waits_too_short);
            assert_int_equal(tally.judged, tally.decisions);
            assert_int_equal(tally.dropped, 0);
            denials += tally.denied;
            false_denials += tally.false_denials;
            waits += tally.waits_tried;
        }
    assert_true(denials > 100000 && false_denials > 10000 && waits > 10000);
}

/* The prey of each adversary: what it is made to reach, exactly. */
TEST(test_adversaries_reach_what_is_stated)
{
    static const struct {
        const char *quota, *adversary;
        uint64_t reaches;
    } cases[] = {
        {"fixed_window 100/60s", "edge", 200},
        {"fixed_window 10/1d align=calendar utc_offset=+05:30", "edge", 20},
        {"fixed_window 50/1mo align=calendar", "edge", 100},
        {"sliding_counter 100/60s", "edge", 199},
        {"sliding_counter 3/7us", "edge", 5},
        {"gcra 100/60s", "idle_burst", 199},
        {"gcra 100/60s burst=7", "idle_burst", 106},
        {"gcra 7/1s burst=1", "idle_burst", 7},
        {"gcra 9/1s burst=1", "idle_burst", 9},
        {"buckets 500/10m time_slack=1m count_slack=50", "late_bucket", 500},
        {"buckets 100/10m time_slack=1m", "late_bucket", 100},
        {"window 100/60s", "slot_edge", 100},
        {"window 15/1m", "slot_edge", 15},
        {"window 100/60s resolution=10", "slot_edge", 100},
        {"window 15/60s resolution=111", "slot_edge", 15},
        {"window 100/60s", "clock_steps", 100},
        {"window 100/60s", "flood", 100},
        {"log 100/60s", "flood", 100},
        {"concurrency 10 lease=30s", "idle_burst", 10},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_quota quota = quota_of(cases[i].quota);
        assert_true(cases[i].reaches == stint_max_in_any_window(&quota));
        for (uint64_t seed = 1; seed <= REPEATS(3, 1); seed++) {
            struct run_options options = {.seed = seed};
            struct tally tally = run(cases[i].quota, cases[i].adversary, options);
            if (tally.quotas[0].most != cases[i].reaches)
                fail_msg("%s, %s: %llu", cases[i].quota, cases[i].adversary,
                         (unsigned long long)tally.quotas[0].most);
            assert_false(tally_is_broken(&tally));
        }
    }
}

/* The table of `flood` is too small: some new keys are denied, or states given away, by policy. */
TEST(test_a_flood_meets_the_policy)
{
    struct tally strict = run("window 100/60s", "flood", defaults);
    assert_true(strict.unstored > 0 && strict.evicted == 0);
    struct tally denies = run("gcra 2/60s when_full=deny", "flood", defaults);
    assert_true(denies.unstored > 0 && denies.evicted == 0);
    struct tally evicts = run("gcra 2/60s", "flood", defaults);
    assert_true(evicts.evicted > 0 && !tally_is_broken(&evicts));
    struct tally allows = run("window 5/60s when_full=allow", "flood", defaults);
    assert_true(allows.evicted > 0);
}

/* 150 asked, 100 allowed in each of the periods but the first, by hand. */
TEST(test_metrics_of_a_herd_are_known)
{
    struct run_options options = {.length_ns = 10 * 60 * NS_PER_S};
    struct tally tally = run("log 100/60s", "herd clients=150", options);
    assert_int_equal(tally.decisions, 1500);
    assert_int_equal(tally.allowed, 1000);
    assert_int_equal(tally.denied, 500);
    assert_int_equal(tally.keys, 1);
    assert_true(tally_utilisation(&tally.quotas[0]) == 1);
    assert_int_equal(tally.quotas[0].most, 100);
    assert_int_equal(tally.false_denials, 0);
    /* Two in three of the clients get one unit each time, always the same. */
    assert_true(fabs(tally_fairness(&tally.client_shares) - 100.0 / 150) < 1e-9);
    /* By slots of 2.5 s that last 62.5 s, every second herd finds the window full. */
    tally = run("window 100/60s", "herd clients=150 every=60s", options);
    assert_int_equal(tally.allowed, 500);
    assert_true(tally_utilisation(&tally.quotas[0]) == 0.5);
    assert_int_equal(tally.false_longest, 150);
    assert_int_equal(tally.false_denials, 5 * 150);
    assert_int_equal(tally.unjustified, 0);
}

/* Of each owner of a slot by itself: 30 units each minute are asked for, and 10 allowed. */
TEST(test_a_period_is_of_one_key_under_churn)
{
    struct run_options options = {.length_ns = 600 * NS_PER_S};
    struct tally tally = run("log 10/60s", "poisson churn=5s load=3", options);
    assert_true(tally.keys > 50 && tally.quotas[0].used_units > 200);
    assert_true(tally_utilisation(&tally.quotas[0]) <= 1);
}

/* A list is charged all or nothing, and each of its quotas is counted by itself. */
TEST(test_a_list_is_judged_as_a_list)
{
    struct run_options options = {.length_ns = 600 * NS_PER_S};
    struct tally tally = run("log 10/1s + log 60/60s", "poisson rate=20/1s keys=3", options);
    assert_int_equal(tally.n_quotas, 2);
    assert_true(tally.quotas[0].most <= 10 && tally.quotas[0].most > 5);
    assert_int_equal(tally.quotas[1].most, 60);
    assert_int_equal(tally.false_denials, 0);
    assert_false(tally_is_broken(&tally));
    tally = run("gcra 10/1s + window 60/60s", "greedy keys=3", options);
    assert_int_equal(tally.quotas[1].most, 60);
    assert_false(tally_is_broken(&tally));
    assert_true(tally.waits_tried > 10);
}

TEST(test_a_seed_repeats_a_run)
{
    for (size_t w = 0; w < N(workloads); w++) {
        struct tally a = run("window 100/60s", workloads[w], defaults);
        struct tally b = run("window 100/60s", workloads[w], defaults);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

/* Memory that is used up ends the judgement, not the run; and the tally says so. */
TEST(test_the_oracle_stops_within_its_memory)
{
    struct run_options options = {.oracle_bytes_max = 200000};
    const char *text = "poisson load=1.2 keys=5000";
    struct tally whole = run("window 100/60s", text, defaults);
    struct tally cut = run("window 100/60s", text, options);
    assert_true(cut.oracle_full && !whole.oracle_full);
    assert_true(cut.oracle_bytes <= 200000 && whole.oracle_bytes > 200000);
    assert_true(cut.judged > 0 && cut.judged < cut.decisions);
    assert_int_equal(cut.decisions, whole.decisions);
    assert_int_equal(cut.allowed, whole.allowed);
    options.without_oracle = true;
    struct tally none = run("window 100/60s", text, options);
    assert_true(!none.has_oracle && !none.oracle_full && none.judged == 0);
    assert_int_equal(none.allowed, whole.allowed);
}

static bool stop_at_1024(void *arg, uint64_t decisions, uint64_t now_ns)
{
    uint64_t *asked = arg;
    (void)now_ns;
    ++*asked;
    return decisions < 1024;
}

static uint64_t ticking(void)
{
    static uint64_t ns;
    return ns += 1000;
}

TEST(test_a_run_can_be_stopped)
{
    uint64_t asked = 0;
    struct run_options options = {.goes_on = stop_at_1024, .arg = &asked, .clock_ns = ticking};
    struct tally tally = run("window 100/60s", "poisson", options);
    assert_true(tally.partial && asked > 0);
    assert_int_equal(tally.decisions, 1024);
    assert_int_equal(tally.judged, 1024);
    assert_true(fabs(tally.ns_per_decision - 1000.0 / 256) < 1e-9);
    tally = run("window 100/60s", "poisson", defaults);
    assert_true(!tally.partial && !tally.decisions_full);
    options = (struct run_options){.decisions_max = 1000};
    tally = run("window 100/60s", "poisson", options);
    assert_true(tally.decisions == 1000 && tally.decisions_full);
}

TEST(test_churn_brings_new_keys)
{
    struct tally tally = run("window 100/60s", "poisson load=1 keys=10 churn=60s", defaults);
    assert_true(tally.keys > 100 && tally.unstored == 0);
    assert_true(tally.key_shares.n == (double)tally.keys);
    assert_true(tally.key_shares.sum == (double)tally.units_allowed);
}

/*
 * 2 units in 10 s, one asked for every 4 s: `log` admits at 0, 4, 12, 16, 24, 28 …, two in 12 s.
 * The client that takes all at once gets all again at 10 s; from `window` at 11 s, when the last of
 * its 11 slots has passed.
 */
TEST(test_the_share_of_the_limit_counted_by_hand)
{
    const struct run_options hour = {.length_ns = 63 * 10 * NS_PER_S};
    struct tally tally = run("log 2/10s", "herd clients=1 every=4s", hour);
    assert_true(fabs(tally_share_of_limit(&tally, 0) - 10.0 / 12) < 0.002);
    tally = run("log 100/10s", "greedy", hour);
    assert_true(fabs(tally_share_of_limit(&tally, 0) - 1) < 1e-9);
    tally = run("window 100/10s resolution=10", "greedy",
                (struct run_options){.length_ns = 113 * 10 * NS_PER_S});
    assert_true(fabs(tally_share_of_limit(&tally, 0) - 10.0 / 11) < 0.001);
    /* Two keys have two limits. */
    tally = run("log 2/10s", "herd clients=2 keys=2 every=4s", hour);
    assert_true(fabs(tally_share_of_limit(&tally, 0) - 10.0 / 12) < 0.002);
    /* What is asked for at random is half of the limit, and all of it is admitted. */
    tally = run("log 400/10s", "poisson load=0.5",
                (struct run_options){.length_ns = 93 * 10 * NS_PER_S});
    assert_true(fabs(tally_share_of_limit(&tally, 0) - 0.5) < 0.02);
    /* Too short, or ended before its time: unknown. */
    tally = run("log 2/10s", "greedy", (struct run_options){.length_ns = 39 * NS_PER_S});
    assert_true(tally_share_of_limit(&tally, 0) < 0);
    tally = run("log 2/10s", "greedy",
                (struct run_options){.length_ns = 63 * 10 * NS_PER_S, .decisions_max = 100});
    assert_true(tally_share_of_limit(&tally, 0) < 0);
}

/* What must not be is called so. */
TEST(test_a_broken_tally_is_broken)
{
    struct tally tally = {.n_quotas = 2};
    assert_false(tally_is_broken(&tally));
    tally.quotas[1].bound_broken = true;
    assert_true(tally_is_broken(&tally));
    tally = (struct tally){.n_quotas = 1, .unjustified = 1};
    assert_true(tally_is_broken(&tally));
    tally = (struct tally){.n_quotas = 1, .waits_too_long = 1};
    assert_true(tally_is_broken(&tally));
    tally = (struct tally){.n_quotas = 1, .waits_too_short = 1};
    assert_true(tally_is_broken(&tally));
}
