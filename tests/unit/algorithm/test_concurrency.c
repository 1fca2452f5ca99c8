/* SPDX-License-Identifier: MIT */
/* concurrency against a plain list of holders, each with its deadline. */

#include "unit/test_quota.h"

#include "algorithm/algorithm.h"

#define HOLDERS_MAX 4096

struct holder {
    uint64_t value, deadline_ns;
    uint32_t units;
};

static struct stint_quota concurrency_quota(uint32_t limit, uint64_t lease_ns)
{
    struct stint_quota quota = {.algorithm = STINT_CONCURRENCY,
                                .limit = limit,
                                .period_ns = lease_ns,
                                .lease_ns = lease_ns};
    struct stint_error error;
    if (algorithm_concurrency.check(&quota, &error) != STINT_OK)
        fail_msg("%s", error.message);
    return quota;
}

static uint64_t units_held(const struct holder *holders, size_t n, uint64_t now_ns)
{
    uint64_t units = 0;
    for (size_t i = 0; i < n; i++)
        units += holders[i].deadline_ns > now_ns ? holders[i].units : 0;
    return units;
}

/* The earliest deadline after which at most `allowed` units are held. */
static uint64_t free_at(const struct holder *holders, size_t n, uint64_t now_ns, uint64_t allowed)
{
    uint64_t best_ns = UINT64_MAX;
    for (size_t i = 0; i < n; i++)
        if (holders[i].deadline_ns > now_ns &&
            units_held(holders, n, holders[i].deadline_ns) <= allowed)
            best_ns = min_u64(best_ns, holders[i].deadline_ns);
    return best_ns;
}

struct concurrency_run {
    struct stint_quota quota;
    uint64_t state[2 + 64];
    struct holder holders[HOLDERS_MAX];
    size_t n;
    uint64_t now_ns, random, denials;
};

static void hold(struct concurrency_run *run)
{
    uint64_t holder, before[2 + 64], held = units_held(run->holders, run->n, run->now_ns);
    uint32_t limit = run->quota.limit, cost = 1 + (uint32_t)(next_random(&run->random) % limit);
    if (next_random(&run->random) % 2 == 0)
        cost = (uint32_t)(next_random(&run->random) % 3);
    struct stint_ask ask = {.now_ns = run->now_ns, .cost = cost, .verb = STINT_TAKE};
    if (next_random(&run->random) % 8 == 0)
        ask.verb = next_random(&run->random) % 2 == 0 ? STINT_TAKE_UPTO : STINT_CHARGE;
    struct stint_ask peek = {.now_ns = run->now_ns, .cost = cost, .verb = STINT_PEEK};
    memcpy(before, run->state, sizeof(before));
    struct stint_decision foretold = algorithm_concurrency.ask(&run->quota, run->state, &peek);
    assert_memory_equal(before, run->state, sizeof(before));
    struct stint_decision decision = concurrency_hold(&run->quota, run->state, &ask, &holder);

    uint64_t free = limit - held;
    bool whole = ask.verb == STINT_TAKE;
    assert_int_equal(decision.granted, whole ? (cost <= free ? cost : 0) : min_u64(cost, free));
    assert_int_equal(decision.remaining, free - decision.granted);
    if (whole)
        assert_true(foretold.granted == decision.granted &&
                    foretold.reset_after_ns == decision.reset_after_ns &&
                    foretold.retry_after_ns == decision.retry_after_ns);
    if (decision.granted == 0) {
        assert_true(holder == 0);
        assert_memory_equal(before, run->state, sizeof(before));
    } else {
        for (size_t i = 0; i < run->n; i++)
            assert_true(run->holders[i].value < holder);
        assert_true(holder >> 4 >= run->now_ns + run->quota.lease_ns);
        assert_true(run->n < HOLDERS_MAX);
        run->holders[run->n++] = (struct holder){holder, holder >> 4, decision.granted};
    }
    if (decision.outcome != STINT_DENY)
        return;
    run->denials++;
    uint32_t needed = whole ? cost : 1;
    assert_true(run->now_ns + decision.retry_after_ns ==
                free_at(run->holders, run->n, run->now_ns, limit - needed));
}

static void release(struct concurrency_run *run)
{
    if (run->n == 0)
        return;
    uint64_t before[2 + 64];
    memcpy(before, run->state, sizeof(before));
    struct holder *holder = &run->holders[next_random(&run->random) % run->n];
    uint32_t units;
    bool alive = holder->units > 0 && holder->deadline_ns > run->now_ns;
    bool released =
        concurrency_holder(&run->quota, run->state, run->now_ns, &holder->value, &units);
    assert_true(released == alive);
    assert_int_equal(units, alive ? holder->units : 0);
    if (!released)
        assert_memory_equal(before, run->state, sizeof(before));
    else
        holder->units = 0;
}

static void renew(struct concurrency_run *run)
{
    if (run->n == 0 || run->n == HOLDERS_MAX)
        return;
    struct holder *holder = &run->holders[next_random(&run->random) % run->n];
    uint64_t value = holder->value;
    bool alive = holder->units > 0 && holder->deadline_ns > run->now_ns;
    assert_true(concurrency_holder(&run->quota, run->state, run->now_ns, &value, NULL) == alive);
    if (!alive) {
        assert_true(value == holder->value);
        return;
    }
    assert_true(value >> 4 >= run->now_ns + run->quota.lease_ns);
    run->holders[run->n++] = (struct holder){value, value >> 4, holder->units};
    holder->units = 0;
}

/* Never more than N are held, and every hold, release, renewal and wait is what the list says. */
TEST(test_like_a_list_of_holders)
{
    struct concurrency_run *run = malloc(sizeof(*run));
    assert_non_null(run);
    uint64_t denials = 0;
    for (uint32_t turn = 0; turn < 120; turn++) {
        *run = (struct concurrency_run){.random = turn,
                                        .quota = concurrency_quota(1 + turn % 60, 1000)};
        for (int step = 0; step < 1500 && run->n < HOLDERS_MAX; step++) {
            uint64_t dice = next_random(&run->random) % 16;
            if (dice < 2)
                run->now_ns += next_random(&run->random) % 300;
            else if (dice < 3)
                run->now_ns += next_random(&run->random) % 3;
            else if (dice < 9)
                hold(run);
            else if (dice < 14)
                release(run);
            else
                renew(run);
            assert_true(units_held(run->holders, run->n, run->now_ns) <= run->quota.limit);
        }
        denials += run->denials;
    }
    free(run);
    assert_true(denials > 1000);
}

/* A value that has ended or was given back never names a later holder, not even of one instant. */
TEST(test_a_stale_value_names_nobody)
{
    struct stint_quota quota = concurrency_quota(1, 1000);
    uint64_t state[3] = {0}, values[100];
    uint32_t units;
    struct stint_ask ask = {.now_ns = 7, .cost = 1};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(concurrency_hold(&quota, state, &ask, &values[i]).granted, 1);
        for (int old = 0; old < i; old++)
            assert_false(concurrency_holder(&quota, state, 7, &values[old], &units));
        assert_true(concurrency_holder(&quota, state, 7, &values[i], &units));
    }
    /* A hundred holds in one nanosecond lengthen the last lease by 100/16 of one. */
    assert_true(values[99] >> 4 == 1007 + 6);
}

/* A crashed holder's place is free at its deadline, to the nanosecond. */
TEST(test_a_lease_ends_by_itself)
{
    struct stint_quota quota = concurrency_quota(2, 1000);
    uint64_t state[4] = {0}, holder;
    struct stint_ask ask = {.now_ns = 50, .cost = 2};
    concurrency_hold(&quota, state, &ask, &holder);
    ask.now_ns = 1049;
    struct stint_decision decision = algorithm_concurrency.ask(&quota, state, &ask);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_true(decision.retry_after_ns == 1);
    assert_false(concurrency_holder(&quota, state, 1050, &holder, NULL));
    ask.now_ns = 1050;
    assert_int_equal(algorithm_concurrency.ask(&quota, state, &ask).outcome, STINT_ALLOW);
}

/* Places are given back by name only; a refund names nobody, and booking is for other quotas. */
TEST(test_refund_and_book_do_nothing)
{
    struct stint_quota quota = concurrency_quota(2, 1000);
    uint64_t state[4] = {0}, before[4];
    struct stint_ask ask = {.now_ns = 50, .cost = 2};
    algorithm_concurrency.ask(&quota, state, &ask);
    memcpy(before, state, sizeof(state));
    ask.verb = STINT_REFUND;
    assert_int_equal(algorithm_concurrency.ask(&quota, state, &ask).granted, 0);
    ask.verb = STINT_BOOK;
    assert_int_equal(algorithm_concurrency.ask(&quota, state, &ask).outcome, STINT_NEVER);
    ask.verb = STINT_TAKE;
    ask.cost = 3;
    assert_int_equal(algorithm_concurrency.ask(&quota, state, &ask).outcome, STINT_NEVER);
    assert_memory_equal(before, state, sizeof(state));
}

/* A full state denies every cost until its instant; what is held keeps its end in a new state. */
TEST(test_fill_and_held)
{
    struct stint_quota quota = concurrency_quota(3, 1000);
    uint64_t state[5], holder;
    algorithm_concurrency.fill(&quota, state, 9000);
    assert_true(algorithm_concurrency.expires_at(&quota, state) == 9000);
    struct stint_ask ask = {.now_ns = 8999, .cost = 1};
    assert_int_equal(algorithm_concurrency.ask(&quota, state, &ask).outcome, STINT_DENY);
    ask = (struct stint_ask){.now_ns = 9000, .cost = 3};
    assert_int_equal(algorithm_concurrency.ask(&quota, state, &ask).outcome, STINT_ALLOW);

    memset(state, 0, sizeof(state));
    ask = (struct stint_ask){.now_ns = 100, .cost = 2};
    concurrency_hold(&quota, state, &ask, &holder);
    struct held_run runs[HELD_RUNS_MAX];
    size_t n_runs = algorithm_concurrency.held(&quota, state, 500, runs);
    uint32_t units = 0;
    for (size_t i = 0; i < n_runs; i++) {
        assert_true(runs[i].at_ns == 100);
        units += (uint32_t)runs[i].units;
    }
    assert_int_equal(units, 2);
    assert_int_equal(algorithm_concurrency.held(&quota, state, 1100, runs), 0);
}

/* More holders than fit 64 KiB are refused, with the size and what fits. */
TEST(test_sizes_and_refusals)
{
    assert_int_equal(concurrency_quota(10, 1000).derived.state_size, 96);
    struct stint_error error;
    struct stint_quota quota = {
        .algorithm = STINT_CONCURRENCY, .limit = 8191, .period_ns = 1000, .lease_ns = 1000};
    assert_int_equal(algorithm_concurrency.check(&quota, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "a limit of 8190"));
}
