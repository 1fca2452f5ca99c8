/* SPDX-License-Identifier: MIT */
/* After a failover: keys without a state are taken for used, for a period and no longer. */
#include "unit/test_front.h"

#include "algorithm/algorithm.h"

static const struct front_options full = {
    .failover_policy = FAILOVER_FULL, .denials = 64, .secret = {5, 6}};
static const struct front_options half = {
    .failover_policy = FAILOVER_HALF, .denials = 64, .secret = {5, 6}};

/* All steps of an ask; returns how many asks of the store it was. */
static size_t let_steps(size_t before, uint64_t now_ns)
{
    fake_let_all(&g.fake, now_ns);
    assert_int_equal(fake_waiting(&g.fake), 0);
    return g.fake.n_asks - before;
}

static size_t steps_of(uint8_t verb, const char *key, uint32_t cost, uint64_t now_ns,
                       enum stint_outcome outcome)
{
    size_t before = g.fake.n_asks;
    struct asked *asked = ask_one(&g, verb, key, cost, now_ns);
    size_t steps = let_steps(before, now_ns);
    assert_decided(asked, outcome, false);
    return steps;
}

TEST(nothing_is_looked_at_before_a_failover)
{
    test_front_begin(&g, "10/10s", full);
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 1, 20 * S, STINT_ALLOW), 1);
    test_front_end(&g);
    struct front_options trusting = {.denials = 64};
    test_front_begin(&g, "10/10s", trusting);
    g.failovers++;
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 1, 20 * S, STINT_ALLOW), 1);
}

TEST(an_unused_key_is_denied_until_a_period_has_passed)
{
    test_front_begin(&g, "10/10s", full);
    ask_and_let(&g, REQUEST_TAKE, "used", 1, 19 * S);
    g.failovers = 1;
    front_tick(g.front, 20 * S);
    assert_int_equal(steps_of(REQUEST_TAKE, "used", 1, 21 * S, STINT_ALLOW), 2);
    assert_int_equal(steps_of(REQUEST_TAKE, "new", 4, 22 * S, STINT_DENY), 1);
    struct backend_answer answer = answer_of(&g.asks[g.n_asks - 1]);
    assert_true(answer.sum.retry_after_ns == 8 * S);
    assert_int_equal(answer.sum.remaining, 0);
    assert_memory_equal(&answer.each[0].retry_after_ns, &answer.sum.retry_after_ns, 8);
    assert_int_equal(steps_of(REQUEST_PEEK, "new", 4, 23 * S, STINT_DENY), 1);
    assert_int_equal(steps_of(REQUEST_PEEK, "used", 4, 23 * S, STINT_ALLOW), 1);
    assert_int_equal(steps_of(REQUEST_TAKE_UPTO, "new", 4, 30 * S - 1, STINT_DENY), 1);
    assert_int_equal(steps_of(REQUEST_TAKE, "new", 4, 30 * S, STINT_ALLOW), 1);
    assert_int_equal(backend_metric(&g.metrics.cautious), 3);
}

/* A charge asks nobody; so that it does not make a key look used that has lost its state. */
TEST(a_charge_fills_an_unused_key_first)
{
    test_front_begin(&g, "10/10s", full);
    g.failovers = 1;
    assert_int_equal(steps_of(REQUEST_CHARGE, "key", 1, 20 * S, STINT_ALLOW), 3);
    assert_int_equal(g.fake.asks[1].items[0].cost, 10);
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 1, 20 * S, STINT_DENY), 2);
}

TEST(half_of_an_unused_key_is_charged_once)
{
    test_front_begin(&g, "9/10s", half);
    g.failovers = 1;
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 1, 20 * S, STINT_ALLOW), 3);
    assert_int_equal(g.fake.asks[0].verb, REQUEST_PEEK);
    assert_int_equal(g.fake.asks[1].verb, REQUEST_CHARGE);
    assert_int_equal(g.fake.asks[1].items[0].cost, 5);
    assert_int_equal(g.fake.asks[2].verb, REQUEST_TAKE);
    assert_int_equal(answer_of(&g.asks[0]).sum.remaining, 3);
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 3, 21 * S, STINT_ALLOW), 2);
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 1, 21 * S, STINT_DENY), 2);
    assert_decided(ask_one(&g, REQUEST_TAKE, "key", 1, 21 * S), STINT_DENY, true);
    assert_int_equal(steps_of(REQUEST_PEEK, "other", 9, 21 * S, STINT_ALLOW), 1);
}

/* Of a list only what looks unused; a holder's place nobody can stand for. */
TEST(lists_are_looked_at_item_by_item)
{
    const struct stint_quota wide = quota_of("100/5s"), places = quota_of("concurrency 3 lease=8s");
    test_front_begin(&g, "10/10s", half);
    ask_and_let(&g, REQUEST_TAKE, "used", 1, 19 * S);
    g.failovers = 1;
    const struct backend_item items[] = {item_of(&g.quota, "used", 1), item_of(&wide, "all", 1)};
    const struct backend_request ask = {
        .verb = REQUEST_TAKE, .items = items, .n_items = 2, .now_ns = 20 * S};
    size_t before = g.fake.n_asks;
    struct asked *asked = ask_with(&g, ask);
    assert_int_equal(let_steps(before, 20 * S), 3);
    assert_int_equal(g.fake.asks[before + 1].n_items, 1);
    assert_string_equal(g.fake.asks[before + 1].items[0].name, "rule:all");
    assert_int_equal(g.fake.asks[before + 1].items[0].cost, 50);
    assert_decided(asked, STINT_ALLOW, false);
    assert_int_equal(asked->each[0].remaining, 8);
    assert_int_equal(asked->each[1].remaining, 49);
    const struct backend_item held[] = {item_of(&g.quota, "used", 1), item_of(&places, "p", 1)};
    asked = ask_with(&g, (struct backend_request){
                             .verb = REQUEST_TAKE, .items = held, .n_items = 2, .now_ns = 21 * S});
    fake_let_all(&g.fake, 21 * S);
    assert_decided(asked, STINT_DENY, false);
    assert_int_equal(asked->op.answer.sum.binding, 1);
    assert_true(asked->op.answer.sum.retry_after_ns == 7 * S);
    assert_int_equal(asked->each[0].outcome, STINT_ALLOW);
    assert_int_equal(asked->each[0].remaining, 8); /* nothing was taken */
}

/* Whatever is wanted, also of equal keys together: 1 of each would be granted. */
TEST(taking_what_there_is_passes_by_no_policy)
{
    const uint32_t costs[] = {4, 10, 11, UINT32_MAX};
    for (size_t i = 0; i < N(costs); i++) {
        test_front_begin(&g, "10/10s", full);
        ask_and_let(&g, REQUEST_TAKE, "used", 7, 19 * S);
        g.failovers = 1;
        assert_int_equal(steps_of(REQUEST_TAKE_UPTO, "new", costs[i], 20 * S, STINT_DENY), 1);
        assert_int_equal(g.asks[1].op.answer.sum.remaining, 0);
        const struct backend_item items[] = {item_of(&g.quota, "new", costs[i]),
                                             item_of(&g.quota, "used", costs[i]),
                                             item_of(&g.quota, "new", costs[i])};
        struct asked *list = ask_with(&g, (struct backend_request){.verb = REQUEST_TAKE_UPTO,
                                                                   .items = items,
                                                                   .n_items = N(items),
                                                                   .now_ns = 20 * S});
        let_steps(g.fake.n_asks, 20 * S);
        assert_decided(list, STINT_DENY, false);
        assert_int_equal(list->op.answer.sum.binding, 0);
        assert_int_equal(list->each[1].remaining, 3); /* nothing was taken */
        assert_int_equal(steps_of(REQUEST_TAKE_UPTO, "used", costs[i], 20 * S, STINT_ALLOW), 2);
        assert_int_equal(steps_of(REQUEST_TAKE, "new", 11, 20 * S, STINT_NEVER), 2);
    }
    test_front_begin(&g, "10/10s", half);
    g.failovers = 1;
    assert_int_equal(steps_of(REQUEST_TAKE_UPTO, "new", 11, 20 * S, STINT_ALLOW), 3);
    assert_int_equal(g.asks[0].op.answer.sum.granted, 5);
}

/* A bucket that is wider than its period is missed for as long as it takes to fill. */
TEST(a_wide_bucket_is_missed_for_longer_than_its_period)
{
    test_front_begin(&g, "gcra 10/10s burst=30", full);
    g.failovers = 1;
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 1, 20 * S, STINT_DENY), 1);
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 1, 50 * S - 1, STINT_DENY), 1);
    assert_int_equal(steps_of(REQUEST_TAKE, "key", 1, 50 * S, STINT_ALLOW), 1);
}

/* Whatever is borrowed for the ask may be gone when its second step is taken. */
TEST(steps_need_nothing_of_the_asker_but_his_op)
{
    static const uint8_t id[BACKEND_ID_LEN] = {7};
    test_front_begin(&g, "10/10s", half);
    g.failovers = 1;
    {
        struct stint_quota quota = g.quota;
        char key[] = "borrowed";
        uint8_t borrowed_id[BACKEND_ID_LEN];
        memcpy(borrowed_id, id, sizeof(id));
        struct backend_item item = item_of(&quota, key, 2);
        ask_with(&g, (struct backend_request){.verb = REQUEST_TAKE,
                                              .items = &item,
                                              .n_items = 1,
                                              .now_ns = 20 * S,
                                              .id = borrowed_id,
                                              .body = 9});
        memset(&quota, 0xff, sizeof(quota));
        memset(key, 'x', sizeof(key));
        memset(&item, 0xff, sizeof(item));
        memset(borrowed_id, 0xff, sizeof(borrowed_id));
    }
    assert_int_equal(let_steps(0, 20 * S + 5 * MS), 3);
    assert_string_equal(g.fake.asks[2].items[0].name, "rule:borrowed");
    assert_false(g.fake.asks[0].has_id);
    assert_false(g.fake.asks[1].has_id); /* or it would be this that is replayed */
    assert_memory_equal(g.fake.asks[2].id, id, sizeof(id));
    assert_true(g.fake.asks[2].now_ns == 20 * S + 5 * MS);
    assert_decided(&g.asks[0], STINT_ALLOW, false);
}

TEST(a_step_that_fails_is_the_end)
{
    test_front_begin(&g, "10/10s", half);
    g.failovers = 1;
    struct asked *looks = ask_one(&g, REQUEST_TAKE, "a", 1, 20 * S);
    fake_fail(&g.fake, 0, 20 * S);
    assert_int_equal(answer_of(looks).outcome, BACKEND_FAILED);
    struct asked *charges = ask_one(&g, REQUEST_TAKE, "b", 1, 20 * S);
    fake_let(&g.fake, 1, 20 * S);
    fake_fail(&g.fake, 2, 20 * S);
    assert_int_equal(answer_of(charges).outcome, BACKEND_FAILED);
    assert_int_equal(looks->times + charges->times, 2);
    /* And nobody is charged for whom nobody waits any more. */
    struct asked *gone = ask_one(&g, REQUEST_TAKE, "c", 1, 20 * S);
    g.front->ops->forget(g.front, &gone->op);
    size_t before = g.fake.n_asks;
    assert_int_equal(let_steps(before, 20 * S), 0);
}

/* A look takes nothing, and a first charge is of other items. */
TEST(what_is_forgotten_between_its_steps_teaches_nothing)
{
    const struct stint_quota wide = quota_of("100/5s");
    for (size_t steps = 1; steps <= 2; steps++) {
        test_front_begin(&g, "10/10s", half);
        ask_and_let(&g, REQUEST_TAKE, "half", 5, 19 * S);
        ask_and_let(&g, REQUEST_TAKE, "none", 10, 19 * S);
        ask_and_let(&g, REQUEST_TAKE, "half", 9, 20 * S); /* denied, and known as such */
        ask_and_let(&g, REQUEST_TAKE, "none", 1, 20 * S);
        g.failovers = 1;
        const struct backend_item items[] = {item_of(&g.quota, "half", 1),
                                             item_of(&wide, "new", 1)},
                                  known[] = {items[0], item_of(&g.quota, "none", 1)};
        struct backend_request ask = {
            .verb = REQUEST_TAKE, .items = items, .n_items = 2, .now_ns = 20 * S};
        struct asked *gone = ask_with(&g, ask);
        for (size_t step = 1; step < steps; step++)
            fake_let(&g.fake, g.fake.n_asks - 1, 20 * S);
        g.front->ops->forget(g.front, &gone->op);
        assert_int_equal(let_steps(g.fake.n_asks, 20 * S), 0);
        ask.items = known;
        struct asked *told = ask_with(&g, ask);
        assert_decided(told, STINT_DENY, true);
        assert_int_equal(told->each[0].remaining, 5);
    }
}

/* A store that answers from within ask(): all steps are taken at once. */
TEST(steps_may_all_be_answered_at_once)
{
    test_front_begin(&g, "10/10s", half);
    g.failovers = 1;
    g.fake.is_prompt = true;
    struct asked *asked = ask_one(&g, REQUEST_TAKE, "a", 1, 20 * S);
    assert_int_equal(answer_of(asked).outcome, BACKEND_DECIDED);
    assert_int_equal(asked->op.answer.sum.remaining, 4);
    assert_int_equal(asked->times, 0);
    assert_int_equal(g.fake.n_asks, 3);
}

/* No use of a counter can be assumed: it has no limit. */
TEST(a_counter_is_as_the_store_has_it)
{
    const uint8_t verbs[] = {REQUEST_PEEK,   REQUEST_CHARGE, REQUEST_CHARGE,
                             REQUEST_REFUND, REQUEST_RESET,  REQUEST_PEEK};
    const uint64_t counts[] = {0, 1, 2, 1, 0, 0};
    test_front_begin(&g, "10/10s", full);
    g.failovers = 1;
    g.quota = counter_quota();
    for (size_t i = 0; i < N(verbs); i++) {
        assert_int_equal(steps_of(verbs[i], "key", 1, 20 * S, STINT_ALLOW), 1);
        assert_int_equal(answer_of(&g.asks[g.n_asks - 1]).count, counts[i]);
    }
    assert_int_equal(backend_metric(&g.metrics.cautious), 0);
}
