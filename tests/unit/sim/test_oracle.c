/* SPDX-License-Identifier: MIT */
/*
 * The oracle against a second one that is slow and plain: it keeps every unit ever admitted and
 * looks at all of them for each question, in 128-bit integers and fractions written out.
 *
 * Who is admitted is thrown dice for, not asked of the engine: so both also meet what no limiter
 * would do, and say so alike.
 */
#include "unit/test_quota.h"

#include "sim/judge/oracle.h"

#include "sim/workload/random.h"

enum { USES_MAX = 600, KEYS = 3 };

__extension__ typedef unsigned __int128 wide_uint;

struct use {
    uint64_t now_ns, counted_ns;
    uint32_t key, units;
};

struct slow {
    const struct stint_quota *quota;
    struct use uses[USES_MAX];
    size_t n_uses;
};

/* Units whose use is less than num/den nanoseconds ago. */
static uint64_t used_within(const struct slow *slow, const struct oracle_ask *ask, uint64_t num,
                            uint64_t den)
{
    uint64_t units = 0;
    for (size_t i = 0; i < slow->n_uses; i++)
        if (slow->uses[i].key == ask->key &&
            (wide_uint)(ask->counted_ns - slow->uses[i].counted_ns) * den < num)
            units += slow->uses[i].units;
    return units;
}

/* T = W/N, rounded up to 1/32 ns; each use in turn moves the TAT. */
static bool slow_gcra_denies(const struct slow *slow, const struct oracle_ask *ask)
{
    uint64_t limit = slow->quota->limit;
    wide_uint interval = ((wide_uint)slow->quota->period_ns * 32 + limit - 1) / limit, tat = 0;
    for (size_t i = 0; i < slow->n_uses; i++) {
        wide_uint now = (wide_uint)slow->uses[i].now_ns * 32;
        if (slow->uses[i].key == ask->key)
            tat = (tat > now ? tat : now) + slow->uses[i].units * interval;
    }
    wide_uint now = (wide_uint)ask->now_ns * 32;
    return (tat > now ? tat : now) + ask->cost * interval > now + slow->quota->burst * interval;
}

/* Units of the window number `window`; uses at earlier times count for the latest before them. */
static uint64_t units_of_window(const struct slow *slow, uint32_t key, uint64_t window)
{
    uint64_t units = 0, latest = 0;
    for (size_t i = 0; i < slow->n_uses; i++) {
        if (slow->uses[i].key != key)
            continue;
        uint64_t number = slow->uses[i].now_ns / slow->quota->period_ns;
        latest = number > latest ? number : latest;
        units += latest == window ? slow->uses[i].units : 0;
    }
    return units;
}

static uint64_t latest_window(const struct slow *slow, const struct oracle_ask *ask)
{
    uint64_t latest = ask->now_ns / slow->quota->period_ns;
    for (size_t i = 0; i < slow->n_uses; i++)
        if (slow->uses[i].key == ask->key && slow->uses[i].now_ns / slow->quota->period_ns > latest)
            latest = slow->uses[i].now_ns / slow->quota->period_ns;
    return latest;
}

static bool slow_counters_deny(const struct slow *slow, const struct oracle_ask *ask)
{
    const struct stint_quota *quota = slow->quota;
    uint64_t window = latest_window(slow, ask), begin_ns = window * quota->period_ns;
    uint64_t current = units_of_window(slow, ask->key, window);
    if (quota->algorithm == STINT_FIXED_WINDOW)
        return current + ask->cost > quota->limit;
    uint64_t before = window > 0 ? units_of_window(slow, ask->key, window - 1) : 0;
    uint64_t elapsed_ns = ask->now_ns > begin_ns ? ask->now_ns - begin_ns : 0;
    return (wide_uint)before * (quota->period_ns - elapsed_ns) +
               (wide_uint)(current + ask->cost) * quota->period_ns >
           (wide_uint)quota->limit * quota->period_ns;
}

/* The message of each algorithm, as docs/algorithms.md has it in its table. */
static bool slow_is_justified(const struct slow *slow, const struct oracle_ask *ask)
{
    const struct stint_quota *quota = slow->quota;
    uint64_t limit = quota->limit, period_ns = quota->period_ns;
    uint64_t within = used_within(slow, ask, period_ns, 1) + ask->cost;
    switch (quota->algorithm) {
    case STINT_WINDOW: {
        uint64_t m = quota->resolution, bunch = (limit + m - 1) / m;
        return used_within(slow, ask, period_ns * (m + 1), m) + ask->cost > limit - bunch + 1;
    }
    case STINT_BUCKETS: {
        uint64_t longer_ns = period_ns + quota->time_slack_ns;
        bool by_time = used_within(slow, ask, longer_ns, 1) + ask->cost > limit;
        bool by_count = within > limit - quota->count_slack + 1;
        return (by_time || quota->time_slack_ns == 0) && (by_count || quota->count_slack == 0);
    }
    case STINT_LOG:
    case STINT_CONCURRENCY:
        return within > limit;
    case STINT_GCRA:
        return slow_gcra_denies(slow, ask);
    default:
        return slow_counters_deny(slow, ask);
    }
}

static uint64_t slow_most(const struct slow *slow)
{
    uint64_t most = 0;
    for (size_t end = 0; end < slow->n_uses; end++) {
        const struct use *last = &slow->uses[end];
        uint64_t units = 0;
        for (size_t i = 0; i < slow->n_uses; i++)
            if (slow->uses[i].key == last->key && slow->uses[i].counted_ns <= last->counted_ns &&
                last->counted_ns - slow->uses[i].counted_ns < slow->quota->period_ns)
                units += slow->uses[i].units;
        most = units > most ? units : most;
    }
    return most;
}

/* What the two answered, so that a test that always meets one answer fails. */
struct answers {
    unsigned space, no_space, justified, unjustified;
};

static void ask_both(const struct stint_quota *quota, uint64_t seed, struct answers *answers)
{
    struct slow slow = {.quota = quota};
    struct oracle oracle;
    struct random random;
    uint64_t now_ns = 0, counted_ns[KEYS] = {0};
    random_init(&random, seed, 0);
    assert_int_equal(oracle_init(&oracle, quota, KEYS, 0, NULL), 0);
    while (slow.n_uses < USES_MAX / 2) {
        /* Mostly many at once and small steps; now and then a jump, or a clock that is behind. */
        uint64_t dice = random_below(&random, 40);
        if (dice > 10)
            now_ns += random_below(&random, quota->period_ns / quota->limit / 2 + 2);
        else if (dice == 0)
            now_ns += random_below(&random, 2 * quota->period_ns);
        uint64_t behind_ns = dice == 1 ? random_below(&random, quota->period_ns) : 0;
        struct oracle_ask ask = {.key = (uint32_t)random_below(&random, KEYS)};
        ask.cost = 1 + (uint32_t)random_below(&random, 3);
        ask.now_ns = now_ns > behind_ns ? now_ns - behind_ns : 0;
        ask.counted_ns = ask.now_ns > counted_ns[ask.key] ? ask.now_ns : counted_ns[ask.key];
        struct oracle_view view = oracle_look(&oracle, &ask);
        bool has_space = used_within(&slow, &ask, quota->period_ns, 1) + ask.cost <= quota->limit;
        bool is_justified = slow_is_justified(&slow, &ask);
        assert_int_equal(view.has_space, has_space);
        assert_int_equal(view.is_justified, is_justified);
        answers->space += has_space;
        answers->no_space += !has_space;
        answers->justified += is_justified;
        answers->unjustified += !is_justified;
        if (random_below(&random, 3) == 0 && is_justified)
            continue;
        counted_ns[ask.key] = ask.counted_ns;
        slow.uses[slow.n_uses++] = (struct use){ask.now_ns, ask.counted_ns, ask.key, ask.cost};
        assert_int_equal(oracle_admit(&oracle, &ask, NULL), 0);
        if (slow.n_uses % 20 == 0)
            assert_int_equal(oracle_most(&oracle)->units, slow_most(&slow));
    }
    oracle_deinit(&oracle);
}

/* Periods are short, so that a nanosecond more or less decides. */
TEST(test_agrees_with_a_slow_oracle)
{
    static const char *const specs[] = {
        "window 20/1us",
        "window 70/1us resolution=13",
        "window 50/2ms",
        "buckets 20/1us time_slack=100ns",
        "buckets 20/1us count_slack=4",
        "buckets 20/1us time_slack=130ns count_slack=3",
        "log 12/1us",
        "concurrency 9 lease=1us",
        "gcra 20/1us",
        "gcra 30/1us burst=4",
        "fixed_window 15/1us",
        "sliding_counter 15/1us",
    };
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct answers answers = {0};
        for (uint64_t seed = 0; seed < 8; seed++)
            ask_both(&quota, seed, &answers);
        assert_true(answers.space > 200 && answers.no_space > 200);
        assert_true(answers.justified > 200 && answers.unjustified > 200);
    }
}

/* A place's next owner begins with nothing, by the exact count and by the algorithm. */
TEST(test_a_place_can_be_another_keys)
{
    static const char *const specs[] = {"window 2/1s", "gcra 2/1s", "fixed_window 2/1s",
                                        "sliding_counter 2/1s"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct oracle oracle;
        struct oracle_ask ask = {.key = 0, .cost = 2, .now_ns = 5, .counted_ns = 5};
        assert_int_equal(oracle_init(&oracle, &quota, 1, 0, NULL), 0);
        assert_int_equal(oracle_admit(&oracle, &ask, NULL), 0);
        assert_false(oracle_look(&oracle, &ask).has_space);
        assert_true(oracle_look(&oracle, &ask).is_justified);
        oracle_forget(&oracle, 0);
        assert_true(oracle_look(&oracle, &ask).has_space);
        assert_false(oracle_look(&oracle, &ask).is_justified);
        assert_int_equal(oracle_admit(&oracle, &ask, NULL), 0);
        assert_int_equal(oracle_most(&oracle)->units, 2);
        oracle_deinit(&oracle);
    }
}

/* What cannot be checked is not called unjustified: denied requests that were charged. */
TEST(test_says_nothing_of_what_it_does_not_know)
{
    struct stint_quota quota = quota_of("gcra 2/1s count_denied=true");
    struct oracle oracle;
    struct oracle_ask ask = {.key = 0, .cost = 1};
    assert_int_equal(oracle_init(&oracle, &quota, 1, 0, NULL), 0);
    assert_true(oracle_look(&oracle, &ask).has_space);
    assert_true(oracle_look(&oracle, &ask).is_justified);
    oracle_deinit(&oracle);
}

/* Memory stays within its bound, and whoever would pass it is told. */
TEST(test_memory_is_bounded)
{
    struct stint_quota quota = quota_of("log 8000/1s");
    struct oracle oracle;
    struct stint_error error;
    uint64_t needed = 0;
    for (uint64_t bytes_max = UINT64_MAX / 2; bytes_max > 0; bytes_max = bytes_max * 2 / 3) {
        int code = 0;
        uint32_t n = 0;
        assert_int_equal(oracle_init(&oracle, &quota, 2000, bytes_max, NULL), 0);
        for (; n < 8000 && code == 0; n++) {
            struct oracle_ask ask = {.key = n % 2000, .cost = 1, .now_ns = n, .counted_ns = n};
            code = oracle_admit(&oracle, &ask, &error);
            assert_true(oracle.exact.bytes <= bytes_max);
        }
        needed = needed == 0 ? oracle.exact.bytes : needed;
        assert_int_equal(code, bytes_max < needed ? STINT_E_FULL : 0);
        oracle_deinit(&oracle);
    }
    assert_true(needed > 8000 * sizeof(struct exact_run));
}
