/* SPDX-License-Identifier: MIT */
/* Pools behind a guard: the breaker that they share with decisions, and what is counted of them. */
#include "unit/guarding.h"

struct fake_pools {
    struct shared_pools pools;
    struct shared_pool_op *ops[ASKS_MAX]; /* that wait */
    size_t n_asks, n_forgotten;
};

static struct fake_pools fake;
static struct guarding g;
static struct shared_pools *pools;

static void fake_ask_pool(struct shared_pools *all, const struct shared_pool_ask *ask,
                          struct shared_pool_op *op)
{
    assert_ptr_equal(all, &fake.pools);
    op->answer.outcome = SHARED_FAILED;
    op->answer.fault = SHARED_FAULT_STOPPED;
    if ((ask->stopped & 1) != 0)
        return;
    op->answer.servers = 1;
    op->answer.outcome = SHARED_WAITS;
    fake.ops[fake.n_asks++] = op;
}

static void fake_forget_pool(struct shared_pools *all, struct shared_pool_op *op)
{
    assert_ptr_equal(all, &fake.pools);
    assert_ptr_equal(op, fake.ops[fake.n_asks - 1]);
    fake.n_forgotten++;
}

static int fake_list(const struct shared_pools *all, const struct shared_pool_definition *given,
                     struct shared_pool_list **list, struct stint_error *error)
{
    (void)given, (void)list, (void)error;
    assert_ptr_equal(all, &fake.pools);
    return 7;
}

static int set_up(void **state)
{
    static const struct shared_pools_ops ops = {
        .list_new = fake_list, .ask = fake_ask_pool, .forget = fake_forget_pool};
    (void)state;
    fake = (struct fake_pools){.pools.ops = &ops};
    guarding_begin(&g, "10/1s",
                   (struct guard_options){.breaker = {.failures_max = 3, .open_ns = 100 * MS}});
    pools = guard_pools(g.guard, &fake.pools);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    guarding_end(&g);
    return 0;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

struct pool_asked {
    struct shared_pool_op op;
    struct stint_pool_status statuses[2];
    unsigned times;
};

static void take_pool_answer(struct shared_pool_op *op, uint64_t now_ns)
{
    (void)now_ns;
    ((struct pool_asked *)(void *)op)->times++;
}

static void ask_pool(struct pool_asked *asked, uint64_t now_ns)
{
    *asked = (struct pool_asked){.op.answered = take_pool_answer};
    asked->op.answer.statuses = asked->statuses;
    pools->ops->ask(pools,
                    &(struct shared_pool_ask){.verb = SHARED_POOL_STATUS,
                                              .now_ns = now_ns,
                                              .deadline_ns = now_ns + 50 * MS},
                    &asked->op);
    assert_int_equal(asked->times, 0);
}

static void answer_pool(enum shared_outcome outcome, enum shared_fault fault, uint64_t now_ns)
{
    struct shared_pool_op *op = fake.ops[fake.n_asks - 1];
    op->answer.outcome = (uint8_t)outcome;
    op->answer.fault = (uint8_t)fault;
    op->answer.given_back = 5;
    op->answer.statuses[1].weight = 3;
    op->answered(op, now_ns);
}

/* ---- What holds ------------------------------------------------------------------------------ */

static void an_answer_is_passed_on_and_counted(void **state)
{
    (void)state;
    struct pool_asked asked;
    ask_pool(&asked, S);
    assert_int_equal(asked.op.answer.outcome, SHARED_WAITS);
    answer_pool(SHARED_DECIDED, 0, S + MS);
    assert_int_equal(asked.times, 1);
    assert_int_equal(asked.op.answer.outcome, SHARED_DECIDED);
    assert_int_equal(asked.op.answer.given_back, 5);
    assert_int_equal(asked.statuses[1].weight, 3);
    assert_int_equal(store_figure(&g.figures.asks), 1);
    assert_true(store_figure(&g.figures.duration_ns) == MS);
    assert_int_equal(pools->ops->list_new(pools, NULL, NULL, NULL), 7);
}

static void failures_of_pools_stop_pools_and_decisions(void **state)
{
    (void)state;
    struct pool_asked asked;
    for (int i = 0; i < 3; i++) {
        ask_pool(&asked, S);
        answer_pool(SHARED_FAILED, SHARED_FAULT_LATE, S + 50 * MS);
        assert_int_equal(asked.times, 1);
    }
    assert_int_equal(store_figure(&g.figures.state), STORE_STOPPED);
    assert_int_equal(store_figure(&g.figures.faults[SHARED_FAULT_LATE]), 3);
    ask_pool(&asked, S + 60 * MS);
    assert_int_equal(asked.op.answer.outcome, SHARED_FAILED);
    assert_true(strlen(asked.op.answer.error) > 20);
    assert_int_equal(store_figure(&g.figures.faults[SHARED_FAULT_STOPPED]), 1);
    struct asked *decision = ask_one(&g, SHARED_TAKE, "key", 1, S + 60 * MS);
    assert_int_equal(answer_of(decision).fault, SHARED_FAULT_STOPPED);
    /* A probe of the one is one of the other. */
    ask_pool(&asked, S + 150 * MS);
    assert_int_equal(asked.op.answer.outcome, SHARED_WAITS);
    decision = ask_one(&g, SHARED_TAKE, "key", 1, S + 150 * MS);
    assert_int_equal(answer_of(decision).fault, SHARED_FAULT_STOPPED);
    answer_pool(SHARED_DECIDED, 0, S + 151 * MS);
    assert_decided(ask_and_let(&g, SHARED_TAKE, "key", 1, S + 152 * MS), STINT_ALLOW, false);
    assert_int_equal(store_figure(&g.figures.state), STORE_ASKED);
}

static void who_leaves_says_nothing_about_the_store(void **state)
{
    (void)state;
    struct pool_asked asked;
    for (int i = 0; i < 5; i++) {
        ask_pool(&asked, S);
        pools->ops->forget(pools, &asked.op);
    }
    assert_int_equal(fake.n_forgotten, 5);
    assert_int_equal(store_figure(&g.figures.state), STORE_ASKED);
}

/* Its place is free again for the next. */
static void a_probe_that_leaves_is_followed_by_another(void **state)
{
    (void)state;
    struct pool_asked asked;
    for (int i = 0; i < 3; i++) {
        ask_pool(&asked, S);
        answer_pool(SHARED_FAILED, SHARED_FAULT_LOST, S);
    }
    for (int i = 0; i < 2; i++) {
        ask_pool(&asked, 2 * S);
        assert_int_equal(asked.op.answer.outcome, SHARED_WAITS);
        pools->ops->forget(pools, &asked.op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_is_passed_on_and_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failures_of_pools_stop_pools_and_decisions, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_leaves_says_nothing_about_the_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_probe_that_leaves_is_followed_by_another, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
