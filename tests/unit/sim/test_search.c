/* SPDX-License-Identifier: MIT */
/*
 * The search against algorithms whose worst case is known, and against algorithms that break what
 * they claim. It is told of no algorithm more than its figures; budgets are decisions, so that a
 * slow machine finds as much as a fast one.
 */
#include "sim/search/search_play.h"
#include "sim/search/search_worst.h"

#include "unit/sim/flawed_algorithms.h"
#include "unit/test.h"

enum { SEEDS = REPEATS(3, 1) };

static struct search *begin_search(const struct search_subject *subject, uint64_t seed,
                                   bool clock_steps, bool takes_only)
{
    struct search *search;
    struct stint_error error;
    struct search_options options = {
        .seed = seed, .clock_steps = clock_steps, .takes_only = takes_only};
    if (search_new(&search, subject, &options, &error) != 0)
        fail_msg("%s", error.message);
    return search;
}

static struct search *new_search(const struct search_subject *subject, uint64_t seed,
                                 bool clock_steps)
{
    return begin_search(subject, seed, clock_steps, true);
}

/* Until the bound is broken, or so many decisions were made; true if it is broken. */
static bool runs_past_the_bound(struct search *search, const struct search_subject *subject,
                                uint64_t decisions_max)
{
    while (search_best(search).units <= subject->bound &&
           search_best(search).decisions < decisions_max)
        assert_int_equal(search_try(search, NULL), 0);
    return search_best(search).units > subject->bound;
}

/* The most in any window, by asking the algorithm once more and looking at every pair of grants. */
static uint64_t count_again(const struct search_subject *subject, const struct search_best *best)
{
    void *state = aligned_alloc(16, (subject->state_size + 15) / 16 * 16);
    uint64_t *at_ns = malloc((best->n_asks + 1) * sizeof(*at_ns)), most = 0;
    assert_true(state != NULL && at_ns != NULL);
    memset(state, 0, subject->state_size);
    for (size_t i = 0; i < best->n_asks; i++) {
        struct stint_decision decision;
        subject->decide(subject->arg, state, best->asks[i].now_ns, best->asks[i].cost, &decision);
        assert_int_equal(decision.outcome == STINT_ALLOW, best->asks[i].granted);
        at_ns[i] = best->asks[i].now_ns;
        if (i > 0 && at_ns[i] < at_ns[i - 1])
            at_ns[i] = at_ns[i - 1];
    }
    for (size_t end = 0; end < best->n_asks; end++) {
        uint64_t units = 0;
        for (size_t i = 0; i <= end; i++)
            if (best->asks[i].granted && at_ns[end] - at_ns[i] < subject->period_ns)
                units += best->asks[i].cost;
        most = units > most ? units : most;
    }
    free(state);
    free(at_ns);
    return most;
}

static struct flawed_algorithm flawed[] = {
    {"trial value", FLAWED_GCRA, FLAW_TRIAL_VALUE, 100, 60000000000, 20, 0},
    {"clamp to now less tolerance", FLAWED_GCRA, FLAW_CLAMP, 100, 60000000000, 20, 0},
    {"clamp, burst of one", FLAWED_GCRA, FLAW_CLAMP, 100, 60000000000, 1, 0},
    {"truncated T, 0.1 % fast", FLAWED_GCRA, FLAW_TRUNCATED, 1000003, 1000000000, 1000, 0},
    {"truncated T, 67 % fast", FLAWED_GCRA, FLAW_TRUNCATED, 600000000, 1000000000, 1000000, 0},
    {"release at creation", FLAWED_BUCKETS, FLAW_CREATION, 100, 10000000000, 0, 1000000000},
    {"release at creation, one minute", FLAWED_BUCKETS, FLAW_CREATION, 500, 600000000000, 0,
     60000000000},
    {"inverted weight", FLAWED_COUNTER, FLAW_INVERTED, 100, 60000000000, 0, 0},
    {"set of times", FLAWED_LOG, FLAW_SET, 5, 1000000000, 0, 0},
    {"set of times, a hundred", FLAWED_LOG, FLAW_SET, 100, 60000000000, 0, 0},
    {"rewound clock", FLAWED_TOKENS, FLAW_REWIND, 100, 60000000000, 100, 0},
};

enum { FLAWED = sizeof(flawed) / sizeof(*flawed) };

TEST(test_each_planted_flaw_is_found)
{
    uint64_t slowest = 0;
    for (size_t i = 0; i < FLAWED; i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct search_subject subject = flawed_algorithm_subject(&flawed[i]);
            struct search *search = new_search(&subject, seed, true);
            if (!runs_past_the_bound(search, &subject, 5000000))
                fail_msg("%s: not found with seed %d", flawed[i].name, (int)seed);
            slowest =
                search_best(search).decisions > slowest ? search_best(search).decisions : slowest;
            assert_int_equal(search_tidy(search, NULL), 0);
            struct search_best best = search_best(search);
            assert_true(best.units > subject.bound);
            assert_int_equal(count_again(&subject, &best), best.units);
            search_free(search);
        }
    print_message("slowest: %llu decisions\n", (unsigned long long)slowest);
}

/* What was found above is the flaw, and not the model, its figures, or the search. */
TEST(test_the_same_models_without_a_flaw_keep_their_bounds)
{
    for (size_t i = 0; i < FLAWED; i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct flawed_algorithm algorithm = flawed[i];
            algorithm.flaw = FLAW_NONE;
            struct search_subject subject = flawed_algorithm_subject(&algorithm);
            struct search *search = new_search(&subject, seed, true);
            if (runs_past_the_bound(search, &subject, 50000))
                fail_msg("%s: past its bound without the flaw", algorithm.name);
            search_free(search);
        }
}

/* The flaw of a clock that is set back needs a caller whose clock is. */
TEST(test_without_clock_steps_times_never_go_back)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct search_subject subject = flawed_algorithm_subject(&flawed[FLAWED - 1]);
        struct search *search = new_search(&subject, seed, false);
        assert_false(runs_past_the_bound(search, &subject, 200000));
        struct search_best best = search_best(search);
        assert_true(best.n_asks > 1);
        for (size_t i = 1; i < best.n_asks; i++)
            assert_true(best.asks[i - 1].now_ns <= best.asks[i].now_ns);
        search_free(search);
    }
}

/* To reach what is known; and more, in which nothing worse is found. */
enum { REACH_MAX = 3000000, MORE = 20000 };

struct known {
    const char *spec;
    uint64_t worst; /* that some sequence of whole nanoseconds reaches, and none passes */
};

static const struct known known[] = {
    {"window 100/60s", 100},
    {"window 100/60s resolution=12", 100},
    {"window 1000000/1s", 1000000},
    {"window 15/1ms", 15},
    {"buckets 500/10m time_slack=1m", 500},
    {"buckets 500/10m count_slack=50", 500},
    {"buckets 500/10m time_slack=1m count_slack=50", 500},
    {"log 5/1s", 5},
    {"log 500/1s", 500},
    {"gcra 100/60s", 199},
    {"gcra 100/60s burst=20", 119},
    {"gcra 100/60s burst=1", 100},
    {"gcra 7/1s burst=3", 9},
    {"gcra 1000000/1s", 1999999},
    {"gcra 1000000/1s burst=10000", 1009999},
    {"gcra 10/1s count_denied=true", 19},
    {"fixed_window 100/60s", 200},
    {"fixed_window 1000000/1s", 2000000},
    /* A window has to be opened by a unit, which is a period old when the next one begins. */
    {"fixed_window 100/60s align=first_use", 199},
    {"fixed_window 1000/1mo align=calendar utc_offset=+01:00", 2000},
    {"fixed_window 7/1s count_denied=true", 14},
    {"sliding_counter 100/60s", 199},
    {"sliding_counter 1000000/1s", 1999999},
    /* The last instant at which the older half counts, its 4 units per ns are not all faded. */
    {"sliding_counter 4000000000/1s", 7999999992},
    {"concurrency 10 lease=30s", 10},
    {"gcra 100000/60s burst=4294967295", 4295067294},
};

TEST(test_the_worst_case_of_each_algorithm_is_reached_and_not_passed)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct stint_quota quota;
            struct stint_error error;
            struct search_subject subject;
            if (stint_quota_parse(&quota, known[i].spec, &error) != 0)
                fail_msg("%s: %s", known[i].spec, error.message);
            search_subject_of(&subject, &quota);
            assert_int_equal(subject.bound, stint_max_in_any_window(&quota));
            struct search *search = new_search(&subject, seed, true);
            while (search_best(search).units < known[i].worst &&
                   search_best(search).decisions < REACH_MAX)
                assert_int_equal(search_try(search, NULL), 0);
            assert_false(
                runs_past_the_bound(search, &subject, search_best(search).decisions + MORE));
            assert_int_equal(search_tidy(search, NULL), 0);
            struct search_best best = search_best(search);
            if (best.units != known[i].worst)
                fail_msg("%s: %llu with seed %d", known[i].spec, (unsigned long long)best.units,
                         (int)seed);
            assert_int_equal(count_again(&subject, &best), best.units);
            search_free(search);
        }
}

TEST(test_tidying_up_shortens_and_loses_nothing)
{
    struct stint_quota quota;
    struct search_subject subject;
    assert_int_equal(stint_quota_parse(&quota, "gcra 100/60s burst=20", NULL), 0);
    search_subject_of(&subject, &quota);
    struct search *search = new_search(&subject, 1, true);
    assert_false(runs_past_the_bound(search, &subject, 5000));
    struct search_best before = search_best(search);
    size_t before_asks = before.n_asks;
    assert_int_equal(search_tidy(search, NULL), 0);
    struct search_best after = search_best(search);
    assert_int_equal(after.units, before.units);
    assert_true(after.n_asks * 4 <= before_asks);
    for (size_t i = 0; i < after.n_asks; i++)
        assert_true(after.asks[i].granted);
    for (size_t i = 1; i < after.n_asks; i++)
        assert_true(after.asks[i - 1].now_ns <= after.asks[i].now_ns);
    search_free(search);
}

TEST(test_the_same_seed_gives_the_same_search)
{
    struct search_subject subject = flawed_algorithm_subject(&flawed[0]);
    struct search *a = new_search(&subject, 7, true), *b = new_search(&subject, 7, true);
    struct search *other = new_search(&subject, 8, true);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(search_try(a, NULL), 0);
        assert_int_equal(search_try(b, NULL), 0);
        assert_int_equal(search_try(other, NULL), 0);
    }
    assert_int_equal(search_best(a).tries, 200);
    /* With every compiler; another number here means that the search itself was changed. */
    assert_int_equal(search_best(a).decisions, 14310);
    assert_int_equal(search_best(a).decisions, search_best(b).decisions);
    assert_int_not_equal(search_best(a).decisions, search_best(other).decisions);
    struct search_best from_a = search_best(a), from_b = search_best(b);
    assert_int_equal(from_a.n_asks, from_b.n_asks);
    for (size_t i = 0; i < from_a.n_asks; i++) {
        assert_int_equal(from_a.asks[i].now_ns, from_b.asks[i].now_ns);
        assert_int_equal(from_a.asks[i].cost, from_b.asks[i].cost);
    }
    search_free(a);
    search_free(b);
    search_free(other);
}

/* A limit of 0 has no sequence; the search still ends, and so does tidying up. */
TEST(test_nothing_is_found_where_nothing_is_allowed)
{
    struct stint_quota quota;
    struct search_subject subject;
    assert_int_equal(stint_quota_parse(&quota, "window 0/1s", NULL), 0);
    search_subject_of(&subject, &quota);
    struct search *search = new_search(&subject, 1, true);
    assert_false(runs_past_the_bound(search, &subject, 20000));
    assert_int_equal(search_tidy(search, NULL), 0);
    assert_int_equal(search_best(search).units, 0);
    search_free(search);
}

/* One unit at a time, a hundred thousand times: what is short first is let grow. */
TEST(test_long_sequences_are_found_where_they_are_needed)
{
    struct stint_quota quota;
    struct search_subject subject;
    assert_int_equal(stint_quota_parse(&quota, "gcra 10000/1s burst=1", NULL), 0);
    search_subject_of(&subject, &quota);
    struct search *search = new_search(&subject, 1, true);
    while (search_best(search).units < 10000 && search_best(search).decisions < 20000000)
        assert_int_equal(search_try(search, NULL), 0);
    struct search_best best = search_best(search);
    assert_int_equal(best.units, 10000);
    assert_int_equal(best.cut_at, 0);
    assert_int_equal(count_again(&subject, &best), 10000);
    search_free(search);
}

/* ---- Charges, refunds and releases ---- */

static struct flawed_algorithm flawed_by_verbs[] = {
    {"saturating charge", FLAWED_CHARGED, FLAW_SATURATE, 5, 1000000000, 0, 0},
    {"saturating charge, a hundred", FLAWED_CHARGED, FLAW_SATURATE, 100, 60000000000, 0, 0},
    {"release of a hold that has ended", FLAWED_HOLDS, FLAW_RELEASE, 5, 1000000000, 0, 0},
    {"refund of what was displaced", FLAWED_CHARGED, FLAW_DISPLACE, 5, 1000000000, 0, 0},
    {"refund of what was displaced, a hundred", FLAWED_CHARGED, FLAW_DISPLACE, 100, 60000000000, 0,
     0},
};

enum { FLAWED_BY_VERBS = sizeof(flawed_by_verbs) / sizeof(*flawed_by_verbs) };

TEST(test_flaws_of_charges_and_refunds_are_found)
{
    for (size_t i = 0; i < FLAWED_BY_VERBS; i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct search_subject subject = flawed_algorithm_subject(&flawed_by_verbs[i]);
            struct search *search = begin_search(&subject, seed, false, false);
            if (!runs_past_the_bound(search, &subject, 5000000))
                fail_msg("%s: not found with seed %d", flawed_by_verbs[i].name, (int)seed);
            assert_int_equal(search_tidy(search, NULL), 0);
            assert_true(search_best(search).units > subject.bound);
            search_free(search);
            /* Takes alone do not show it. */
            search = new_search(&subject, seed, false);
            assert_false(runs_past_the_bound(search, &subject, 20000));
            search_free(search);
        }
}

TEST(test_models_without_the_flaw_keep_their_bounds_by_all_verbs)
{
    for (size_t i = 0; i < FLAWED_BY_VERBS; i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct flawed_algorithm algorithm = flawed_by_verbs[i];
            algorithm.flaw = FLAW_NONE;
            struct search_subject subject = flawed_algorithm_subject(&algorithm);
            struct search *search = begin_search(&subject, seed, false, false);
            if (runs_past_the_bound(search, &subject, 1000000))
                fail_msg("%s: past its bound without the flaw", algorithm.name);
            assert_int_equal(search_best(search).units, subject.bound);
            search_free(search);
        }
}

/* A saturating charge is found within some 20,000 decisions. */
enum { BY_VERBS_MAX = 400000 };

TEST(test_the_bound_of_each_algorithm_holds_for_all_verbs)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        struct stint_quota quota;
        struct search_subject subject;
        assert_int_equal(stint_quota_parse(&quota, known[i].spec, NULL), 0);
        search_subject_of(&subject, &quota);
        struct search *search = begin_search(&subject, 1, true, false);
        if (runs_past_the_bound(search, &subject, BY_VERBS_MAX))
            fail_msg("%s: %llu", known[i].spec, (unsigned long long)search_best(search).units);
        search_free(search);
    }
}

enum { FOUND_ASKS_MAX = 6 };

/* What the search has found once. The last request is a take that must not pass the bound. */
struct found_case {
    const char *name;
    const char *specs[3];
    struct {
        uint64_t at_s;
        uint32_t cost;
        uint8_t verb;
        uint8_t of; /* of a refund: the number of the use, from 0 */
    } asks[FOUND_ASKS_MAX];
    uint32_t remaining; /* before the last request, by the exact count; a log says the same */
};

static const struct found_case found_cases[] = {
    /* Of 1,150 units in use the newest 1,000 count: 800 at 0 s, and 200 at 1 s. */
    {"a charge on a full state is remembered",
     {"log 1000/1h", "window 1000/1h", "buckets 1000/1h time_slack=1m count_slack=50"},
     {{0, 950, SEARCH_VERB_TAKE, 0},
      {1, 200, SEARCH_VERB_CHARGE, 0},
      {3600, 1000, SEARCH_VERB_TAKE, 0},
      {3600, 950, SEARCH_VERB_TAKE, 0},
      {3600, 801, SEARCH_VERB_TAKE, 0}},
     800},
    {"a refund after a charge on a full state frees nothing that is in use",
     {"log 10/60s", "window 10/60s", "buckets 10/60s time_slack=6s count_slack=3"},
     {{0, 10, SEARCH_VERB_TAKE, 0},
      {58, 5, SEARCH_VERB_CHARGE, 0},
      {59, 5, SEARCH_VERB_REFUND, 0},
      {59, 5, SEARCH_VERB_TAKE, 0},
      {59, 1, SEARCH_VERB_TAKE, 0}},
     0},
};

static void play_found_case(const struct found_case *found, const char *spec)
{
    struct stint_quota quota;
    struct stint_error error;
    struct search_subject subject;
    struct search_play play;
    struct search_ask asks[FOUND_ASKS_MAX];
    size_t n_asks = 0;
    if (stint_quota_parse(&quota, spec, &error) != 0)
        fail_msg("%s: %s", spec, error.message);
    search_subject_of(&subject, &quota);
    assert_int_equal(search_play_init(&play, &subject, NULL), 0);
    for (; n_asks < FOUND_ASKS_MAX && found->asks[n_asks].cost > 0; n_asks++)
        asks[n_asks] = (struct search_ask){.now_ns = found->asks[n_asks].at_s * 1000000000,
                                           .cost = found->asks[n_asks].cost,
                                           .number = (uint32_t)n_asks,
                                           .of = found->asks[n_asks].of,
                                           .verb = found->asks[n_asks].verb};
    assert_int_equal(search_play_asks(&play, asks, n_asks, NULL), 0);
    if (play.units > subject.bound)
        fail_msg("%s: %s: %llu in use", found->name, spec, (unsigned long long)play.units);
    struct stint_ask peek = {.now_ns = asks[n_asks - 1].now_ns, .verb = STINT_PEEK};
    assert_true(stint_state_ask(&quota, play.state, &peek).remaining <= found->remaining);
    if (quota.algorithm == STINT_LOG)
        assert_int_equal(stint_state_ask(&quota, play.state, &peek).remaining, found->remaining);
    search_play_deinit(&play);
}

TEST(test_what_was_found_once_stays_mended)
{
    for (size_t i = 0; i < sizeof(found_cases) / sizeof(*found_cases); i++)
        for (size_t j = 0; j < 3; j++)
            play_found_case(&found_cases[i], found_cases[i].specs[j]);
}
