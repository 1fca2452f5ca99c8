/* SPDX-License-Identifier: MIT */
/* What a workload asks: as often as it says, by whom it says, and in order. */
#include "unit/test_quota.h"

#include "sim/workload/workload.h"

#include "base/ns.h"

#include <math.h>

/* Begun for `log 100/60s`. */
static void begin(struct workload *workload, const char *text, uint64_t seed, uint64_t end_ns)
{
    struct stint_quota quota = quota_of("log 100/60s");
    struct stint_error error;
    const struct workload_terms terms = {.quota = &quota, .seed = seed, .end_ns = end_ns};
    if (workload_parse(workload, text, &error) != 0 ||
        workload_begin(workload, &terms, &error) != 0)
        fail_msg("%s: %s", text, error.message);
}

static const struct stint_decision allow = {.outcome = STINT_ALLOW, .stored = 1};

static struct stint_decision deny(uint64_t retry_after_ns)
{
    return (struct stint_decision){
        .outcome = STINT_DENY, .stored = 1, .retry_after_ns = retry_after_ns};
}

/* ---- The text ---- */

TEST(test_a_wrong_text_gets_a_message)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "expected a workload"},
        {"poison", "did you mean 'poisson'?"},
        {"xyzzyxyzzy", "there are poisson, onoff"},
        {"poisson=3", "takes no value"},
        {"poisson lood=2", "did you mean 'load'?"},
        {"poisson clients=2", "poisson has no option 'clients'; it has rate, load"},
        {"edge keys=3", "it has none"},
        {"poisson load", "expected an option as name=value, found 'load'"},
        {"poisson load=2 load=3", "expected each option once"},
        {"poisson load=2 rate=1/1s", "both say how much"},
        {"poisson load=0", "load must be a number from 1e-06 to 1000000, not '0'"},
        {"poisson load=nan", "not 'nan'"},
        {"poisson load=1e3", "not '1e3'"},
        {"poisson load=.", "not '.'"},
        {"poisson load=", "not ''"},
        {"poisson load=-1", "not '-1'"},
        {"poisson keys=0", "keys must be a whole number from 1"},
        {"poisson keys=1.5", "not '1.5'"},
        {"poisson keys=99999999", "not '99999999'"},
        {"poisson rate=3", "rate must be a number above 0 and a length of time"},
        {"poisson rate=0/1s", "not '0/1s'"},
        {"poisson rate=3/0s", "not '3/0s'"},
        {"poisson churn=0s", "churn must be a length of time above 0"},
        {"poisson churn=fortnight", "not 'fortnight'"},
        {"poisson cost=0", "cost must be a whole number from 1"},
        {"poisson cost=2.5", "cost must be a whole number"},
        {"poisson cost=lognormal:3", "lognormal:MEDIAN:SIGMA"},
        {"poisson cost=pareto:0:1", "pareto:LEAST:EXPONENT"},
        {"poisson cost=uniform:5:4", "uniform:LEAST:MOST"},
        {"poisson cost=gauss:5:4", "not 'gauss:5:4'"},
        {"closed retry=maybe", "retry must be none, obey, backoff or ignore"},
        {"onoff alpha=1", "alpha must be a number from 1.01"},
        {"log", "log must be a name"},
        {"log=x scale=10", "scale must be a number and x"},
        {"log=x scale=0x", "not '0'"},
        {"log=x format=abcdefghijklmnopqrs", "format is longer than"},
        {"poisson \x01=2", "no option '?'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct workload workload;
        struct stint_error error = {0};
        assert_true(workload_parse(&workload, cases[i].text, &error) < 0);
        if (strstr(error.message, cases[i].part) == NULL)
            fail_msg("'%s': %s", cases[i].text, error.message);
    }
}

/* What depends on the quota's period is refused once that is known. */
TEST(test_times_that_do_not_go_together_are_refused)
{
    static const char *const texts[][2] = {
        {"onoff rate=1/1s on=1ns off=1us", "so short"},
        {"herd every=1s jitter=2s", "jitter=2s is longer than every=1s (by default the period"},
        {"herd jitter=61s", "jitter=1m1s is longer than every=1m"},
    };
    struct stint_quota quota = quota_of("log 100/60s");
    const struct workload_terms terms = {.quota = &quota, .end_ns = STINT_NOW_MAX};
    struct stint_error error;
    struct workload workload;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        assert_int_equal(workload_parse(&workload, texts[i][0], NULL), 0);
        assert_true(workload_begin(&workload, &terms, &error) < 0);
        assert_non_null(strstr(error.message, texts[i][1]));
        workload_end(&workload);
    }
}

/* ---- Streams ---- */

/* Requests per second in the long run are what was asked for, whatever the shape. */
TEST(test_rates_hold_in_the_long_run)
{
    static const struct {
        const char *text;
        double tolerance;
    } cases[] = {
        {"poisson rate=120/1m", 0.01},           {"poisson load=1.2", 0.01},
        {"poisson load=2.4 cost=2", 0.01},       {"poisson load=2.4 cost=uniform:1:3", 0.03},
        {"diurnal rate=120/1m day=10s", 0.01},   {"diurnal rate=2/1s day=1h depth=1", 0.01},
        {"mmpp rate=120/1m on=1s off=3s", 0.02}, {"onoff rate=120/1m on=1s off=3s alpha=3", 0.02},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct workload workload;
        struct sim_event event;
        uint64_t end_ns = 200000 * NS_PER_S, before_ns = 0, n = 0, units = 0;
        double expected = 2.0 * (double)end_ns / 1e9;
        begin(&workload, cases[i].text, i + 1, end_ns);
        while (workload_next(&workload, &event)) {
            assert_true(event.at_ns >= before_ns && event.at_ns < end_ns);
            before_ns = event.at_ns;
            units += event.cost;
            n++;
        }
        workload_end(&workload);
        double got = strstr(cases[i].text, "load") != NULL ? (double)units : (double)n;
        expected *= strstr(cases[i].text, "load=2.4") != NULL ? 2 : 1;
        if (fabs(got / expected - 1) > cases[i].tolerance)
            fail_msg("%s: %.0f of %.0f", cases[i].text, got, expected);
    }
}

/* The variance of counts in windows tells the shapes apart: 1 for poisson, more in bursts. */
static double dispersion(const char *text)
{
    enum { WINDOWS = 2000 };
    static unsigned counts[WINDOWS];
    struct workload workload;
    struct sim_event event;
    memset(counts, 0, sizeof(counts));
    begin(&workload, text, 3, WINDOWS * 10 * NS_PER_S);
    while (workload_next(&workload, &event))
        counts[event.at_ns / (10 * NS_PER_S)]++;
    workload_end(&workload);
    double sum = 0, squares = 0;
    for (int i = 0; i < WINDOWS; i++) {
        sum += counts[i];
        squares += (double)counts[i] * counts[i];
    }
    double mean = sum / WINDOWS;
    return (squares / WINDOWS - mean * mean) / mean;
}

TEST(test_bursts_are_bursts)
{
    double poisson = dispersion("poisson rate=2/1s");
    assert_true(poisson > 0.9 && poisson < 1.1);
    assert_true(dispersion("mmpp rate=2/1s on=20s off=60s") > 5);
    assert_true(dispersion("onoff rate=2/1s on=20s off=60s") > 10);
    assert_true(dispersion("diurnal rate=2/1s day=1000s depth=1") > 5);
    assert_true(dispersion("mmpp rate=2/1s on=20s off=60s ratio=1") < 1.1);
}

/* The half of a day with more light has more requests. */
TEST(test_a_day_has_its_hours)
{
    struct workload workload;
    struct sim_event event;
    unsigned halves[2] = {0};
    begin(&workload, "diurnal rate=2/1s day=1000s depth=0.8", 1, 100000 * NS_PER_S);
    while (workload_next(&workload, &event))
        halves[event.at_ns % (1000 * NS_PER_S) >= 500 * NS_PER_S]++;
    workload_end(&workload);
    /* 1 + 2/pi depth against 1 - 2/pi depth. */
    double ratio = (double)halves[0] / (double)halves[1];
    assert_true(fabs(ratio - (1 + 0.5093) / (1 - 0.5093)) < 0.15);
}

TEST(test_a_herd_comes_at_once)
{
    struct workload workload;
    struct sim_event event;
    begin(&workload, "herd clients=10 keys=3 every=7s", 1, 21 * NS_PER_S);
    for (uint32_t i = 0; i < 30; i++) {
        assert_true(workload_next(&workload, &event));
        assert_int_equal(event.at_ns, i / 10 * 7 * NS_PER_S);
        assert_int_equal(event.client, i % 10);
        assert_int_equal(event.key, i % 10 % 3);
    }
    assert_false(workload_next(&workload, &event));
    workload_end(&workload);
    begin(&workload, "herd clients=1000 every=7s jitter=2s", 1, 7 * NS_PER_S);
    uint64_t before_ns = 0, sum_ns = 0, n = 0;
    for (; workload_next(&workload, &event); n++) {
        assert_true(event.at_ns >= before_ns && event.at_ns <= 2 * NS_PER_S);
        before_ns = event.at_ns;
        sum_ns += event.at_ns / 1000;
    }
    workload_end(&workload);
    assert_int_equal(n, 1000);
    assert_true(sum_ns > 900 * NS_PER_S / 1000 && sum_ns < 1100 * NS_PER_S / 1000);
}

/* A seed is the whole of it; another seed is another run. */
TEST(test_a_seed_decides_everything)
{
    static const char *const texts[] = {"poisson keys=9 zipf=1 cost=pareto:1:1.2 churn=1m",
                                        "onoff",
                                        "mmpp",
                                        "diurnal",
                                        "closed",
                                        "herd jitter=1s"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct workload a, b, c;
        struct sim_event x, y, z;
        unsigned differ = 0;
        begin(&a, texts[i], 5, STINT_NOW_MAX);
        begin(&b, texts[i], 5, STINT_NOW_MAX);
        begin(&c, texts[i], 6, STINT_NOW_MAX);
        for (int n = 0; n < 90; n++) {
            assert_true(workload_next(&a, &x) && workload_next(&b, &y) && workload_next(&c, &z));
            assert_true(x.at_ns == y.at_ns && x.key == y.key && x.cost == y.cost);
            differ += x.at_ns != z.at_ns;
        }
        assert_true(differ > 50);
        workload_end(&a);
        workload_end(&b);
        workload_end(&c);
    }
}

/* Many at once are the same as one by one, up to the end. */
TEST(test_many_are_drawn_as_one_by_one)
{
    static const char *const texts[] = {"poisson keys=9 zipf=1 cost=pareto:1:1.2 churn=1m",
                                        "onoff keys=3", "mmpp", "diurnal", "herd jitter=1s"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct workload many, single;
        struct sim_event events[7], event;
        size_t n, n_all = 0;
        begin(&many, texts[i], 5, 1000 * NS_PER_S);
        begin(&single, texts[i], 5, 1000 * NS_PER_S);
        while ((n = workload_next_many(&many, events, 1 + n_all % 7)) > 0) {
            for (size_t at = 0; at < n; at++) {
                assert_true(workload_next(&single, &event));
                assert_memory_equal(&event, &events[at], sizeof(event));
            }
            n_all += n;
        }
        assert_true(n_all > 0);
        assert_false(workload_next(&single, &event));
        workload_end(&many);
        workload_end(&single);
    }
}

/* ---- Keys and costs ---- */

TEST(test_keys_come_and_go)
{
    struct workload workload;
    struct sim_event event;
    uint32_t owners[4] = {0};
    uint64_t changes = 0, n = 0;
    begin(&workload, "poisson rate=10/1s keys=4 churn=100s", 1, 100000 * NS_PER_S);
    for (; workload_next(&workload, &event); n++) {
        uint32_t place = sim_event_place(&event), owner = (uint32_t)(event.key >> 32);
        assert_true(place < 4);
        assert_true(owner == owners[place] || owner == owners[place] + 1);
        changes += owner != owners[place];
        owners[place] = owner;
    }
    workload_end(&workload);
    /* Four places over 1,000 lives each. */
    assert_true(changes > 3600 && changes < 4400);
    begin(&workload, "poisson rate=10/1s keys=4", 1, 1000 * NS_PER_S);
    while (workload_next(&workload, &event))
        assert_true(event.key < 4);
    workload_end(&workload);
}

TEST(test_costs_have_their_algorithms_and_maximum)
{
    static const struct {
        const char *text;
        uint32_t least, most;
        double median;
    } cases[] = {
        {"poisson rate=1/1s cost=7", 7, 7, 7},
        {"poisson rate=1/1s cost=uniform:3:5", 3, 5, 4},
        {"poisson rate=1/1s cost=lognormal:100:1", 1, UINT32_MAX, 100},
        {"poisson rate=1/1s cost=lognormal:100:1 cost_max=150", 1, 150, 100},
        {"poisson rate=1/1s cost=pareto:10:2", 10, UINT32_MAX, 14.14},
        {"poisson rate=1/1s cost=pareto:10:0.1 cost_max=50", 10, 50, 50},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct workload workload;
        struct sim_event event;
        unsigned below = 0, above = 0, n = 0;
        begin(&workload, cases[i].text, 1, 20000 * NS_PER_S);
        for (; workload_next(&workload, &event); n++) {
            assert_true(event.cost >= cases[i].least && event.cost <= cases[i].most);
            below += event.cost < cases[i].median - 0.5;
            above += event.cost > cases[i].median + 0.5;
        }
        workload_end(&workload);
        assert_true(n > 19000 && below < n * 0.53 && above < n * 0.53);
    }
}

/* ---- Clients ---- */

/* Takes the next event and checks when it comes. */
static struct sim_event expect(struct workload *workload, uint64_t at_ns)
{
    struct sim_event event;
    assert_true(workload_next(workload, &event));
    assert_int_equal(event.at_ns, at_ns);
    return event;
}

TEST(test_a_greedy_client_asks_as_soon_as_it_may)
{
    struct workload workload;
    struct stint_decision told = deny(250);
    begin(&workload, "greedy cost=2", 1, 2000);
    struct sim_event event = expect(&workload, 0);
    workload_tell(&workload, &event, &allow);
    event = expect(&workload, 0);
    assert_false(event.as_promised);
    workload_tell(&workload, &event, &told);
    event = expect(&workload, 250);
    assert_true(event.as_promised && event.cost == 2 && event.tries == 1);
    workload_tell(&workload, &event, &allow);
    event = expect(&workload, 250);
    assert_int_equal(event.tries, 0);
    told = deny(5000);
    workload_tell(&workload, &event, &told);
    assert_false(workload_next(&workload, &event)); /* it would come after the end */
    workload_end(&workload);
}

/* What can never be served is not asked for without end at one instant. */
TEST(test_the_hopeless_wait_a_period)
{
    struct workload workload;
    struct stint_decision never = {.outcome = STINT_NEVER, .retry_after_ns = STINT_NEVER_NS};
    begin(&workload, "greedy", 1, STINT_NOW_MAX);
    struct sim_event event = expect(&workload, 0);
    workload_tell(&workload, &event, &never);
    expect(&workload, 60 * NS_PER_S);
    workload_end(&workload);
}

TEST(test_back_off_doubles_and_is_random)
{
    uint64_t most_ns[6] = {0};
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct workload workload;
        struct sim_event event;
        struct stint_decision told = deny(1);
        begin(&workload, "herd clients=1 every=365d retry=backoff backoff=1s", seed, STINT_NOW_MAX);
        event = expect(&workload, 0);
        for (int tries = 0; tries < 5; tries++) {
            uint64_t before_ns = event.at_ns;
            workload_tell(&workload, &event, &told);
            assert_true(workload_next(&workload, &event));
            uint64_t wait_ns = event.at_ns - before_ns;
            assert_true(wait_ns > 0 && wait_ns <= (NS_PER_S << tries) + 1);
            assert_false(event.as_promised);
            most_ns[tries] = wait_ns > most_ns[tries] ? wait_ns : most_ns[tries];
        }
        workload_tell(&workload, &event, &told); /* the sixth time: it gives up */
        event = expect(&workload, 365 * NS_PER_DAY);
        assert_int_equal(event.tries, 0);
        workload_end(&workload);
    }
    for (int tries = 0; tries < 5; tries++)
        assert_true(most_ns[tries] > (NS_PER_S << tries) / 10 * 9);
}

TEST(test_who_ignores_and_who_gives_up)
{
    struct workload workload;
    struct stint_decision told = deny(NS_PER_S);
    begin(&workload, "herd clients=1 every=1h retry=ignore again=3ms tries=2", 1, STINT_NOW_MAX);
    struct sim_event event = expect(&workload, 0);
    workload_tell(&workload, &event, &told);
    event = expect(&workload, 3 * NS_PER_MS);
    workload_tell(&workload, &event, &told);
    event = expect(&workload, 6 * NS_PER_MS);
    workload_tell(&workload, &event, &told);
    expect(&workload, NS_PER_HOUR);
    workload_end(&workload);
    begin(&workload, "poisson rate=1/1s", 1, NS_PER_HOUR);
    assert_false(workload_listens(&workload));
    workload_end(&workload);
}

/* Repeats and arrivals are one sequence in the order of time. */
TEST(test_repeats_find_their_place)
{
    struct workload workload;
    struct sim_event event;
    uint64_t before_ns = 0, n = 0, repeats = 0;
    begin(&workload, "poisson rate=100/1s retry=ignore again=77ms1ns", 1, 1000 * NS_PER_S);
    assert_true(workload_listens(&workload));
    for (; workload_next(&workload, &event); n++) {
        struct stint_decision told = deny(1);
        assert_true(event.at_ns >= before_ns && event.tries <= 5);
        before_ns = event.at_ns;
        repeats += event.tries > 0;
        workload_tell(&workload, &event, event.at_ns % 2 == 0 ? &allow : &told);
    }
    assert_int_equal(workload.dropped, 0);
    workload_end(&workload);
    /* What came at an odd time is repeated once: its next time is even. */
    double ratio = (double)repeats / (double)(n - repeats);
    assert_true(ratio > 0.49 && ratio < 0.51);
}

/* ---- Logs ---- */

TEST(test_a_log_is_scaled_in_time)
{
    struct event_entry entries[] = {{1000, 0, 1, 0}, {3000, 2, 5, 0}, {3000, 1, 1, 0}};
    struct event_list events = {.entries = entries, .n_entries = 3};
    struct stint_quota quota = quota_of("log 100/60s");
    const struct workload_terms terms = {.quota = &quota, .end_ns = 10000};
    struct workload workload;
    assert_int_equal(workload_parse(&workload, "log=x scale=10x", NULL), 0);
    workload_lend(&workload, &events, 900);
    assert_int_equal(workload_begin(&workload, &terms, NULL), 0);
    assert_int_equal(workload_places(&workload), 3);
    expect(&workload, 100);
    struct sim_event event = expect(&workload, 300);
    assert_true(event.key == 2 && event.cost == 5);
    event = expect(&workload, 300);
    assert_true(event.key == 1 && event.cost == 1);
    assert_false(workload_next(&workload, &event));
    workload_end(&workload);
}
