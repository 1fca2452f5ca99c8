/* SPDX-License-Identifier: MIT */
/* Pools behind a front: the breaker that they share with decisions, and what is counted of them. */
#include "unit/test_front.h"

struct fake_pools {
    struct backend_pools pools;
    struct backend_pool_op *ops[ASKS_MAX]; /* that wait */
    size_t n_asks, n_forgotten;
};

static struct fake_pools fake;
static struct backend_pools *pools;

static void fake_ask_pool(struct backend_pools *all, const struct backend_pool_request *ask,
                          struct backend_pool_op *op)
{
    assert_ptr_equal(all, &fake.pools);
    op->answer.outcome = BACKEND_FAILED;
    op->answer.fault = BACKEND_ERROR_STOPPED;
    if ((ask->stopped & 1) != 0)
        return;
    op->answer.servers = 1;
    op->answer.outcome = BACKEND_WAITS;
    fake.ops[fake.n_asks++] = op;
}

static void fake_forget_pool(struct backend_pools *all, struct backend_pool_op *op)
{
    assert_ptr_equal(all, &fake.pools);
    assert_ptr_equal(op, fake.ops[fake.n_asks - 1]);
    fake.n_forgotten++;
}

static int fake_list(const struct backend_pools *all, const struct backend_pool_definition *given,
                     struct backend_pool_list **list, struct stint_error *error)
{
    (void)given, (void)list, (void)error;
    assert_ptr_equal(all, &fake.pools);
    return 7;
}

SETUP
{
    static const struct backend_pools_ops ops = {
        .list_new = fake_list, .ask = fake_ask_pool, .forget = fake_forget_pool};
    fake = (struct fake_pools){.pools.ops = &ops};
    test_front_begin(&g, "10/1s",
                     (struct front_options){.breaker = {.failures_max = 3, .open_ns = 100 * MS}});
    pools = front_pools(g.front, &fake.pools);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

struct pool_asked {
    struct backend_pool_op op;
    struct stint_pool_status statuses[2];
    unsigned times;
};

static void take_pool_answer(struct backend_pool_op *op, uint64_t now_ns)
{
    (void)now_ns;
    ((struct pool_asked *)(void *)op)->times++;
}

static void ask_pool(struct pool_asked *asked, uint64_t now_ns)
{
    *asked = (struct pool_asked){.op.answered = take_pool_answer};
    asked->op.answer.statuses = asked->statuses;
    pools->ops->ask(pools,
                    &(struct backend_pool_request){.verb = BACKEND_POOL_STATUS,
                                                   .now_ns = now_ns,
                                                   .deadline_ns = now_ns + 50 * MS},
                    &asked->op);
    assert_int_equal(asked->times, 0);
}

static void answer_pool(enum backend_outcome outcome, enum backend_error fault, uint64_t now_ns)
{
    struct backend_pool_op *op = fake.ops[fake.n_asks - 1];
    op->answer.outcome = (uint8_t)outcome;
    op->answer.fault = (uint8_t)fault;
    op->answer.given_back = 5;
    op->answer.statuses[1].weight = 3;
    op->answered(op, now_ns);
}

/* ---- What holds ------------------------------------------------------------------------------ */

TEST(an_answer_is_passed_on_and_counted)
{
    struct pool_asked asked;
    ask_pool(&asked, S);
    assert_int_equal(asked.op.answer.outcome, BACKEND_WAITS);
    answer_pool(BACKEND_DECIDED, 0, S + MS);
    assert_int_equal(asked.times, 1);
    assert_int_equal(asked.op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asked.op.answer.given_back, 5);
    assert_int_equal(asked.statuses[1].weight, 3);
    assert_int_equal(backend_metric(&g.metrics.asks), 1);
    assert_true(backend_metric(&g.metrics.duration_ns) == MS);
    assert_int_equal(pools->ops->list_new(pools, NULL, NULL, NULL), 7);
}

TEST(failures_of_pools_stop_pools_and_decisions)
{
    struct pool_asked asked;
    for (int i = 0; i < 3; i++) {
        ask_pool(&asked, S);
        answer_pool(BACKEND_FAILED, BACKEND_ERROR_LATE, S + 50 * MS);
        assert_int_equal(asked.times, 1);
    }
    assert_int_equal(backend_metric(&g.metrics.state), STORE_STOPPED);
    assert_int_equal(backend_metric(&g.metrics.errors[BACKEND_ERROR_LATE]), 3);
    ask_pool(&asked, S + 60 * MS);
    assert_int_equal(asked.op.answer.outcome, BACKEND_FAILED);
    assert_true(strlen(asked.op.answer.error) > 20);
    assert_int_equal(backend_metric(&g.metrics.errors[BACKEND_ERROR_STOPPED]), 1);
    struct asked *decision = ask_one(&g, REQUEST_TAKE, "key", 1, S + 60 * MS);
    assert_int_equal(answer_of(decision).fault, BACKEND_ERROR_STOPPED);
    /* A probe of the one is one of the other. */
    ask_pool(&asked, S + 150 * MS);
    assert_int_equal(asked.op.answer.outcome, BACKEND_WAITS);
    decision = ask_one(&g, REQUEST_TAKE, "key", 1, S + 150 * MS);
    assert_int_equal(answer_of(decision).fault, BACKEND_ERROR_STOPPED);
    answer_pool(BACKEND_DECIDED, 0, S + 151 * MS);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 1, S + 152 * MS), STINT_ALLOW, false);
    assert_int_equal(backend_metric(&g.metrics.state), STORE_ASKED);
}

TEST(who_leaves_says_nothing_about_the_store)
{
    struct pool_asked asked;
    for (int i = 0; i < 5; i++) {
        ask_pool(&asked, S);
        pools->ops->forget(pools, &asked.op);
    }
    assert_int_equal(fake.n_forgotten, 5);
    assert_int_equal(backend_metric(&g.metrics.state), STORE_ASKED);
}

/* Its place is free again for the next. */
TEST(a_probe_that_leaves_is_followed_by_another)
{
    struct pool_asked asked;
    for (int i = 0; i < 3; i++) {
        ask_pool(&asked, S);
        answer_pool(BACKEND_FAILED, BACKEND_ERROR_LOST, S);
    }
    for (int i = 0; i < 2; i++) {
        ask_pool(&asked, 2 * S);
        assert_int_equal(asked.op.answer.outcome, BACKEND_WAITS);
        pools->ops->forget(pools, &asked.op);
    }
}
