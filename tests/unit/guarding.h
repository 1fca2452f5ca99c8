/* SPDX-License-Identifier: MIT */
/* A guard before a store that answers when it is told to, and asks of it in one line. */
#ifndef STINT_TESTS_GUARDING_H
#define STINT_TESTS_GUARDING_H

#include "unit/fake_store.h"

#include "backend/front/guard.h"

#define ASKS_MAX 64

/* One ask as its asker sees it. */
struct asked {
    struct shared_op op;
    struct stint_decision each[SHARED_ITEMS_MAX];
    unsigned times; /* it was answered */
    uint64_t answered_ns;
};

struct guarding {
    struct fake_store fake;
    struct shared_store *guard;
    struct store_figures figures;
    uint64_t failovers;
    struct stint_quota quota;
    struct asked asks[ASKS_MAX];
    size_t n_asks;
};

static inline void take_answer(struct shared_op *op, uint64_t now_ns)
{
    struct asked *asked = (struct asked *)(void *)op;
    asked->times++;
    asked->answered_ns = now_ns;
}

static inline uint64_t count_failovers(void *arg)
{
    return ((const struct guarding *)arg)->failovers;
}

static inline void guarding_begin(struct guarding *g, const char *spec,
                                  struct guard_options options)
{
    memset(g, 0, sizeof(*g));
    fake_store_begin(&g->fake);
    g->quota = quota_of(spec);
    options.inner = &g->fake.store;
    options.figures = &g->figures;
    options.failovers = count_failovers;
    options.arg = g;
    g->guard = guard_new(&options);
    assert_non_null(g->guard);
}

static inline void guarding_end(struct guarding *g)
{
    g->guard->ops->free(g->guard);
    assert_true(g->fake.is_freed);
    fake_store_end(&g->fake);
}

static inline struct shared_item item_of(const struct stint_quota *quota, const char *key,
                                         uint32_t cost)
{
    return (struct shared_item){
        .quota = quota, .name = span_of_text("rule"), .key = span_of_text(key), .cost = cost};
}

static inline struct asked *ask_with(struct guarding *g, struct shared_ask ask)
{
    assert_true(g->n_asks < ASKS_MAX);
    struct asked *asked = &g->asks[g->n_asks++];
    asked->op = (struct shared_op){.answered = take_answer, .answer = {.each = asked->each}};
    ask.deadline_ns = ask.now_ns + 50 * MS;
    g->guard->ops->ask(g->guard, &ask, &asked->op);
    assert_int_equal(asked->times, 0);
    return asked;
}

/* One item under g->quota. */
static inline struct asked *ask_one(struct guarding *g, uint8_t verb, const char *key,
                                    uint32_t cost, uint64_t now_ns)
{
    const struct shared_item item = item_of(&g->quota, key, cost);
    return ask_with(
        g,
        (struct shared_ask){
            .verb = verb, .items = &item, .n_items = 1, .at_ns = STINT_NEVER_NS, .now_ns = now_ns});
}

/* The same, and the store answers a millisecond later. */
static inline struct asked *ask_and_let(struct guarding *g, uint8_t verb, const char *key,
                                        uint32_t cost, uint64_t now_ns)
{
    struct asked *asked = ask_one(g, verb, key, cost, now_ns);
    fake_let_all(&g->fake, now_ns + MS);
    return asked;
}

static inline struct shared_answer answer_of(const struct asked *asked)
{
    assert_int_not_equal(asked->op.answer.outcome, SHARED_WAITS);
    assert_ptr_equal(asked->op.answer.each, asked->each);
    return asked->op.answer;
}

static inline void assert_decided(const struct asked *asked, enum stint_outcome outcome,
                                  bool is_local)
{
    struct shared_answer answer = answer_of(asked);
    assert_int_equal(answer.outcome, SHARED_DECIDED);
    assert_int_equal(answer.sum.outcome, outcome);
    assert_int_equal(answer.is_local, is_local);
    assert_int_equal(asked->times, is_local ? 0 : 1);
}

#endif
