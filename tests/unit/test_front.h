/* SPDX-License-Identifier: MIT */
/* A guard before a store that answers when it is told to, and asks of it in one line. */
#ifndef STINT_TESTS_TEST_FRONT_H
#define STINT_TESTS_TEST_FRONT_H

#include "unit/fake_store.h"

#include "backend/front/front.h"

#define ASKS_MAX 64

/* One ask as its asker sees it. */
struct asked {
    struct backend_op op;
    struct stint_decision each[BACKEND_ITEMS_MAX];
    unsigned times; /* it was answered */
    uint64_t answered_ns;
};

struct test_front {
    struct fake_store fake;
    struct backend *front;
    struct backend_metrics metrics;
    uint64_t failovers;
    struct stint_quota quota;
    struct asked asks[ASKS_MAX];
    size_t n_asks;
};

static inline void take_answer(struct backend_op *op, uint64_t now_ns)
{
    struct asked *asked = (struct asked *)(void *)op;
    asked->times++;
    asked->answered_ns = now_ns;
}

static inline uint64_t count_failovers(void *arg)
{
    return ((const struct test_front *)arg)->failovers;
}

static inline void test_front_end(struct test_front *g)
{
    if (g->front == NULL)
        return;
    g->front->ops->free(g->front);
    g->front = NULL;
    assert_true(g->fake.is_freed);
    fake_store_end(&g->fake);
}

static inline void test_front_begin(struct test_front *g, const char *spec,
                                    struct front_options options)
{
    test_front_end(g);
    memset(g, 0, sizeof(*g));
    fake_store_begin(&g->fake);
    g->quota = quota_of(spec);
    options.inner = &g->fake.store;
    options.metrics = &g->metrics;
    options.failovers = count_failovers;
    options.arg = g;
    g->front = front_new(&options);
    assert_non_null(g->front);
}

static inline struct backend_item item_of(const struct stint_quota *quota, const char *key,
                                          uint32_t cost)
{
    return (struct backend_item){
        .quota = quota, .name = span_of_text("rule"), .key = span_of_text(key), .cost = cost};
}

static inline struct asked *ask_with(struct test_front *g, struct backend_request ask)
{
    assert_true(g->n_asks < ASKS_MAX);
    struct asked *asked = &g->asks[g->n_asks++];
    asked->op = (struct backend_op){.answered = take_answer, .answer = {.each = asked->each}};
    ask.deadline_ns = ask.now_ns + 50 * MS;
    g->front->ops->ask(g->front, &ask, &asked->op);
    assert_int_equal(asked->times, 0);
    return asked;
}

/* One item under g->quota. */
static inline struct asked *ask_one(struct test_front *g, uint8_t verb, const char *key,
                                    uint32_t cost, uint64_t now_ns)
{
    const struct backend_item item = item_of(&g->quota, key, cost);
    return ask_with(
        g,
        (struct backend_request){
            .verb = verb, .items = &item, .n_items = 1, .at_ns = STINT_NEVER_NS, .now_ns = now_ns});
}

/* The same, and the store answers a millisecond later. */
static inline struct asked *ask_and_let(struct test_front *g, uint8_t verb, const char *key,
                                        uint32_t cost, uint64_t now_ns)
{
    struct asked *asked = ask_one(g, verb, key, cost, now_ns);
    fake_let_all(&g->fake, now_ns + MS);
    return asked;
}

static inline struct backend_answer answer_of(const struct asked *asked)
{
    assert_int_not_equal(asked->op.answer.outcome, BACKEND_WAITS);
    assert_ptr_equal(asked->op.answer.each, asked->each);
    return asked->op.answer;
}

static inline void assert_decided(const struct asked *asked, enum stint_outcome outcome,
                                  bool is_local)
{
    struct backend_answer answer = answer_of(asked);
    assert_int_equal(answer.outcome, BACKEND_DECIDED);
    assert_int_equal(answer.sum.outcome, outcome);
    assert_int_equal(answer.is_local, is_local);
    assert_int_equal(asked->times, is_local ? 0 : 1);
}

/* The front of the test that runs: the next begin, or the end of the test, ends it. */
static struct test_front g;

TEARDOWN
{
    test_front_end(&g);
}

#endif
