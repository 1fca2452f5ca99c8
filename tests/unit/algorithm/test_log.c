/* SPDX-License-Identifier: MIT */
/* log: exact against a plain count of every use, with bookings and their cancelling. */
#include "unit/strict_model.h"

/* Never denied wrongly: the uses of the last W and the cost are above N. */
static bool log_justified(const struct strict_model *model, uint64_t cost, uint64_t at_ns)
{
    return strict_used(model, at_ns, model->quota->period_ns) + cost > model->quota->limit;
}

static const struct strict_subject log_subject = {
    .algorithm = &algorithm_log,
    .justified = log_justified,
    .exact = true,
};

static struct stint_quota log_quota(uint32_t limit, uint64_t period_ns)
{
    struct stint_quota quota = {.algorithm = STINT_LOG, .limit = limit, .period_ns = period_ns};
    struct stint_error error;
    if (algorithm_log.check(&quota, &error) != STINT_OK)
        fail_msg("%s", error.message);
    return quota;
}

static const struct {
    uint32_t limit;
    uint64_t period_ns;
} log_cases[] = {
    {1, NS_PER_S},    {2, NS_PER_US},         {5, NS_PER_S},        {15, NS_PER_MIN},
    {16, NS_PER_US},  {17, NS_PER_DAY},       {100, NS_PER_MIN},    {500, 10 * NS_PER_MIN},
    {8189, NS_PER_S}, {33, 10 * NS_PER_YEAR}, {500, 3 * NS_PER_US},
};
#define LOG_CASES (N(log_cases))

static void log_run_all(struct strict_options options, uint32_t runs)
{
    uint32_t denials = 0;
    for (size_t i = 0; i < LOG_CASES; i++) {
        struct stint_quota quota = log_quota(log_cases[i].limit, log_cases[i].period_ns);
        /* A wide state is compared as a whole at each step: fewer runs. */
        uint32_t turns = quota.derived.state_size > 8192 ? 1 : runs;
        for (uint32_t run = 0; run < turns; run++) {
            options.seed = 31000 * i + run;
            denials += strict_run(&log_subject, &quota, &options);
        }
    }
    assert_true(denials > 1000);
}

/* It denies exactly what would make a window hold more than N, and nothing else. */
TEST(test_exact)
{
    log_run_all((struct strict_options){.steps = 1200}, REPEATS(12, 3));
    log_run_all((struct strict_options){.steps = 1200, .stale = true}, REPEATS(8, 2));
}

/* Refunds by time take exactly the units named, and the log stays exact. */
TEST(test_exact_after_refunds)
{
    log_run_all((struct strict_options){.steps = 1200, .refunds = true}, REPEATS(10, 2));
    log_run_all((struct strict_options){.steps = 1200, .refunds = true, .stale = true},
                REPEATS(8, 2));
}

/* Calls in the same nanosecond are all counted: a set of times would lose them. */
TEST(test_one_nanosecond_holds_many)
{
    struct stint_quota quota = log_quota(100, NS_PER_S);
    uint64_t state[LOG_STATE_MAX / 8] = {0};
    struct stint_ask ask = {.now_ns = 12345, .cost = 1};
    for (int i = 0; i < 100; i++)
        assert_int_equal(algorithm_log.ask(&quota, state, &ask).outcome, STINT_ALLOW);
    assert_int_equal(algorithm_log.ask(&quota, state, &ask).outcome, STINT_DENY);
}

/* A refund without a time counts as granted just now: the newest units come back. */
TEST(test_a_refund_without_a_time_takes_the_newest)
{
    struct stint_quota quota = log_quota(4, 1000);
    uint64_t state[7] = {0};
    struct stint_ask ask = {.now_ns = 0, .cost = 2};
    algorithm_log.ask(&quota, state, &ask);
    ask.now_ns = 500;
    algorithm_log.ask(&quota, state, &ask);
    ask =
        (struct stint_ask){.now_ns = 600, .at_ns = STINT_NEVER_NS, .cost = 2, .verb = STINT_REFUND};
    assert_int_equal(algorithm_log.ask(&quota, state, &ask).granted, 2);
    assert_true(algorithm_log.expires_at(&quota, state) == 1000);
}

/* Units of a time that is not in the log are not given back, however many others are. */
TEST(test_a_refund_of_an_unknown_time_gives_nothing)
{
    struct stint_quota quota = log_quota(4, 1000);
    uint64_t state[7] = {0};
    struct stint_ask ask = {.now_ns = 100, .cost = 4};
    algorithm_log.ask(&quota, state, &ask);
    ask = (struct stint_ask){.now_ns = 600, .at_ns = 101, .cost = 2, .verb = STINT_REFUND};
    assert_int_equal(algorithm_log.ask(&quota, state, &ask).granted, 0);
}

/* A booked place starts when the oldest die, in order, and not beyond what the caller will wait. */
TEST(test_bookings_line_up)
{
    struct stint_quota quota = log_quota(2, 1000);
    uint64_t state[5] = {0};
    struct stint_ask ask = {.now_ns = 100, .cost = 1, .at_ns = 5000, .verb = STINT_BOOK};
    assert_true(algorithm_log.ask(&quota, state, &ask).retry_after_ns == 0);
    ask.now_ns = 200;
    assert_true(algorithm_log.ask(&quota, state, &ask).retry_after_ns == 0);
    ask.now_ns = 300;
    assert_true(algorithm_log.ask(&quota, state, &ask).retry_after_ns == 800); /* at 1100 */
    ask.at_ns = 899;
    struct stint_decision decision = algorithm_log.ask(&quota, state, &ask);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_true(decision.retry_after_ns == 1);
    ask.now_ns = 301;
    decision = algorithm_log.ask(&quota, state, &ask);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_true(decision.retry_after_ns == 899); /* at 1200 */
    /* Both places are booked; the next one would be further ahead than one period. */
    ask.at_ns = STINT_NEVER_NS;
    decision = algorithm_log.ask(&quota, state, &ask);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_true(decision.retry_after_ns == 1100 - 301);
}

/* A cancelled place brings back the units it displaced: they still live. */
TEST(test_a_cancelled_booking_frees_nothing_early)
{
    struct stint_quota quota = log_quota(1, 1000);
    uint64_t state[4] = {0}, before[4];
    struct stint_ask ask = {.now_ns = 0, .cost = 1};
    algorithm_log.ask(&quota, state, &ask);
    memcpy(before, state, sizeof(state));
    struct stint_ask book = {.now_ns = 0, .at_ns = 1000, .cost = 1, .verb = STINT_BOOK};
    assert_true(algorithm_log.ask(&quota, state, &book).retry_after_ns == 1000);
    struct stint_ask unbook = {.now_ns = 0, .at_ns = 1000, .cost = 1, .verb = STINT_UNBOOK};
    assert_int_equal(algorithm_log.ask(&quota, state, &unbook).granted, 1);
    assert_memory_equal(before, state, sizeof(state));
    ask.now_ns = 999;
    assert_int_equal(algorithm_log.ask(&quota, state, &ask).outcome, STINT_DENY);
    /* One that has started is not cancelled any more. */
    algorithm_log.ask(&quota, state, &book);
    unbook.now_ns = 1000;
    assert_int_equal(algorithm_log.ask(&quota, state, &unbook).granted, 0);
}

struct booking {
    uint64_t start_ns;
    uint32_t units;
};

/* Of all uses and booked places, no window holds more than N, whenever the window ends. */
static void check_every_window(const struct strict_model *model)
{
    for (size_t i = 0; i < model->n; i++) {
        uint64_t end_ns = model->uses[i].at_ns, units = 0;
        for (size_t j = 0; j < model->n; j++)
            if (model->uses[j].at_ns <= end_ns &&
                model->uses[j].at_ns + model->quota->period_ns > end_ns)
                units += model->uses[j].units;
        assert_true(units <= model->quota->limit);
    }
}

/* Takes, bookings and cancellings in any order never make a window hold more than N. */
TEST(test_random_bookings_never_over)
{
    struct strict_model *model = calloc(1, sizeof(*model));
    assert_non_null(model);
    uint64_t random = 11, cancelled = 0, booked = 0;
    for (int run = 0; run < 300; run++) {
        struct stint_quota quota = log_quota(1 + (uint32_t)run % 23, 1000);
        uint64_t state[26] = {0}, now_ns = 0;
        struct booking bookings[400];
        size_t n_bookings = 0;
        model->quota = &quota;
        model->n = 0;
        model->latest_ns = 0;
        for (int step = 0; step < 300; step++) {
            now_ns += strict_below(&random, 4) == 0 ? strict_below(&random, 400) : 0;
            struct stint_ask ask = {.now_ns = now_ns,
                                    .cost = 1 + (uint32_t)strict_below(&random, quota.limit)};
            if (strict_below(&random, 2) == 0)
                ask.cost = 1;
            uint64_t dice = strict_below(&random, 10);
            if (dice < 4) {
                if (algorithm_log.ask(&quota, state, &ask).granted > 0)
                    model->uses[model->n++] = (struct strict_use){now_ns, now_ns, ask.cost};
            } else if (dice < 8) {
                ask.verb = STINT_BOOK;
                ask.at_ns = strict_below(&random, 1500);
                struct stint_decision decision = algorithm_log.ask(&quota, state, &ask);
                if (decision.granted == 0)
                    continue;
                assert_true(decision.retry_after_ns <= ask.at_ns);
                uint64_t start_ns = now_ns + decision.retry_after_ns;
                model->uses[model->n++] = (struct strict_use){now_ns, start_ns, ask.cost};
                bookings[n_bookings++] = (struct booking){start_ns, ask.cost};
                booked += decision.retry_after_ns > 0;
            } else if (n_bookings > 0) {
                size_t at = strict_below(&random, n_bookings);
                struct booking booking = bookings[at];
                bookings[at] = bookings[--n_bookings];
                ask = (struct stint_ask){now_ns, booking.start_ns, booking.units, STINT_UNBOOK};
                uint32_t granted = algorithm_log.ask(&quota, state, &ask).granted;
                assert_int_equal(granted, booking.start_ns > now_ns ? booking.units : 0);
                for (size_t i = 0; granted > 0 && i < model->n; i++)
                    if (model->uses[i].at_ns == booking.start_ns &&
                        model->uses[i].units == booking.units &&
                        model->uses[i].now_ns < booking.start_ns) {
                        model->uses[i].units = 0;
                        granted = 0;
                        cancelled++;
                    }
            }
        }
        check_every_window(model);
    }
    free(model);
    assert_true(booked > 1000 && cancelled > 500);
}

/* A full state denies every cost until its instant, exactly, and is then new. */
TEST(test_a_filled_state_denies_until_then)
{
    struct stint_quota quota = log_quota(40, 1000);
    uint64_t state[43];
    algorithm_log.fill(&quota, state, 5000);
    struct stint_ask ask = {.now_ns = 10, .cost = 1};
    assert_true(algorithm_log.ask(&quota, state, &ask).retry_after_ns == 4990);
    ask.now_ns = 4999;
    assert_int_equal(algorithm_log.ask(&quota, state, &ask).outcome, STINT_DENY);
    assert_true(algorithm_log.expires_at(&quota, state) == 5000);
    ask = (struct stint_ask){.now_ns = 5000, .cost = 40};
    assert_int_equal(algorithm_log.ask(&quota, state, &ask).outcome, STINT_ALLOW);
}

/* A limit whose times do not fit 64 KiB is refused with its size and with what fits. */
TEST(test_sizes_and_refusals)
{
    assert_int_equal(log_quota(500, NS_PER_S).derived.state_size, 24 + 8 * 500);
    struct stint_error error;
    struct stint_quota quota = {.algorithm = STINT_LOG, .limit = 8190, .period_ns = NS_PER_S};
    assert_int_equal(algorithm_log.check(&quota, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "65544 bytes"));
    assert_non_null(strstr(error.message, "a limit of 8189"));
}
