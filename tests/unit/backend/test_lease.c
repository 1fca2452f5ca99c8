/* SPDX-License-Identifier: MIT */
/* Leases of one worker in virtual time: what is served here, what is asked, and what goes back. */
#include "backend/script/script.h"
#include "unit/lease_world.h"
#include "unit/test.h"

#define MS NS_PER_MS
#define ASKS_MAX 64

static struct world world;
static struct world_node node;
static struct rule rule, plain;
static struct stint_quota quota;

struct asker {
    struct backend_op op;
    struct stint_decision each[4];
    unsigned answers;
};
static struct asker askers[ASKS_MAX];
static size_t n_askers;

/* Who asks for 30 more from within his answer, and who for 1; NULL: nobody. */
static struct asker *insatiable, *modest;
static bool is_asking, is_ahead;
static uint64_t time_ns; /* of a request */

static struct asker *ask(uint8_t verb, const char *key, uint32_t cost);

static void on_answer(struct backend_op *op, uint64_t now_ns)
{
    (void)now_ns;
    assert_false(is_asking); /* nobody is answered from within an ask, not even of another */
    ((struct asker *)op->arg)->answers++;
    if (op->arg == insatiable)
        ask(REQUEST_TAKE, "hot", 30);
    if (op->arg == modest)
        assert_int_equal(ask(REQUEST_TAKE, "hot", 1)->op.answer.outcome, BACKEND_DECIDED);
}

SETUP
{
    struct stint_error error;
    world = (struct world){.now_ns = NS_PER_S, .seed = 1, .slow_ns = 0};
    memset(askers, 0, sizeof(askers));
    n_askers = 0;
    time_ns = 50 * MS;
    assert_int_equal(stint_quota_parse(&quota, "log 100/1s", &error), 0);
    rule = (struct rule){
        .domain = "d",
        .quota = quota,
        .store = {.lease = RULE_LEASE_STRICT, .lease_units = 20, .lease_term_ns = 100 * MS}};
    plain = (struct rule){.domain = "d", .quota = quota};
    world_open(&node, &world);
    node.is_prompt = true;
    assert_non_null(node.lease);
}

TEARDOWN
{
    node.lease->ops->free(node.lease);
    world_close(&world);
}

static struct backend_item item_of(const char *key, uint32_t cost)
{
    return (struct backend_item){
        .quota = &quota,
        .rule = key[0] == 'p' ? &plain : &rule,
        .name = span_of_text("rule"),
        .key = span_of_text(key),
        .cost = cost,
    };
}

static struct asker *ask_items(uint8_t verb, const struct backend_item *items, size_t n_items,
                               uint64_t at_ns)
{
    struct asker *asker = &askers[n_askers++ % ASKS_MAX];
    *asker = (struct asker){
        .op = {.answered = on_answer, .arg = asker, .answer = {.each = asker->each}}};
    uint64_t now_ns = world_node_now(&node);
    const struct backend_request asked = {.verb = verb,
                                          .items = items,
                                          .n_items = n_items,
                                          .at_ns = at_ns,
                                          .now_ns = now_ns,
                                          .deadline_ns = now_ns + time_ns,
                                          .is_ahead = is_ahead};
    is_asking = true;
    node.lease->ops->ask(node.lease, &asked, &asker->op);
    is_asking = false;
    return asker;
}

static struct asker *ask(uint8_t verb, const char *key, uint32_t cost)
{
    const struct backend_item item = item_of(key, cost);
    return ask_items(verb, &item, 1, STINT_NEVER_NS);
}

static void check(const struct asker *asker, uint8_t outcome, uint32_t granted, bool is_local)
{
    assert_int_equal(asker->op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asker->op.answer.sum.outcome, outcome);
    assert_int_equal(asker->op.answer.sum.granted, granted);
    assert_int_equal(asker->op.answer.is_local, is_local);
}

static uint32_t store_left(const char *key)
{
    struct flight flight = {.verb = REQUEST_PEEK, .quota = &quota};
    struct backend_answer answer;
    snprintf(flight.name, sizeof(flight.name), "%s", key);
    world_decide(&world, &flight, &answer);
    return answer.sum.remaining;
}

/* So many milliseconds: what is on its way arrives. */
static void pass(unsigned ms)
{
    while (ms-- > 0) {
        world.now_ns += MS;
        world_run(&world);
    }
}

/* Takes of 1, a millisecond from one to the next. */
static void take_times(const char *key, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        check(ask(REQUEST_TAKE, key, 1), STINT_ALLOW, 1, true);
        world.now_ns += MS;
    }
}

TEST(hot_keys_are_served_here)
{
    take_times("hot", 60);
    assert_in_range(world.asks, 4, 20);
    assert_int_equal(store_left("cold"), 100);
    /* Another worker sees as used at least what was used. */
    assert_in_range(store_left("hot"), 0, 40);
}

TEST(other_rules_pass_through)
{
    check(ask(REQUEST_TAKE, "plain", 7), STINT_ALLOW, 7, false);
    check(ask(REQUEST_TAKE, "plain", 7), STINT_ALLOW, 7, false);
    assert_int_equal(world.asks, 2);
}

TEST(all_of_the_limit_is_had_and_no_more)
{
    unsigned granted = 0;
    for (unsigned i = 0; i < 300; i++) {
        const struct asker *asker = ask(REQUEST_TAKE, "hot", 1);
        granted += asker->op.answer.sum.granted;
        world.now_ns += MS;
    }
    assert_int_equal(granted, 100);
    const struct asker *denied = ask(REQUEST_TAKE, "hot", 1);
    assert_int_equal(denied->op.answer.sum.outcome, STINT_DENY);
    assert_true(denied->op.answer.sum.retry_after_ns > 500 * MS);
    /* Nobody else has a lease: the denial is known here. */
    assert_true(denied->op.answer.is_local);
    world.now_ns += denied->op.answer.sum.retry_after_ns;
    check(ask(REQUEST_TAKE, "hot", 1), STINT_ALLOW, 1, true);
}

TEST(what_is_not_used_goes_back)
{
    take_times("hot", 30);
    assert_true(store_left("hot") < 70);
    world.now_ns += 30 * MS;
    assert_true(lease_deadline(node.lease) <= world_node_now(&node));
    lease_wake(node.lease, world_node_now(&node));
    assert_int_equal(store_left("hot"), 70);
}

static void set_done(void *arg)
{
    *(bool *)arg = true;
}

TEST(what_is_held_goes_back_when_the_server_ends)
{
    bool is_done = false;
    take_times("hot", 30);
    take_times("warm", 5);
    node.lease->ops->drain(node.lease, 2 * NS_PER_S, set_done, &is_done);
    assert_true(is_done);
    assert_int_equal(store_left("hot"), 70);
    assert_int_equal(store_left("warm"), 95);
    /* From then on nothing is leased. */
    check(ask(REQUEST_TAKE, "hot", 1), STINT_ALLOW, 1, false);
    assert_int_equal(store_left("hot"), 69);
}

TEST(nothing_is_served_after_the_term)
{
    take_times("hot", 30);
    uint64_t asks = world.asks;
    world.now_ns += 99 * MS;
    check(ask(REQUEST_TAKE, "hot", 1), STINT_ALLOW, 1, true);
    assert_true(world.asks > asks); /* a lease of its own */
}

TEST(asks_wait_in_their_order_for_one_lease)
{
    node.is_prompt = false;
    world.slow_ns = 1;
    struct asker *waiting[8];
    for (unsigned i = 0; i < 8; i++)
        waiting[i] = ask(REQUEST_TAKE, "hot", 2);
    assert_int_equal(world.asks, 1);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(waiting[i]->op.answer.outcome, BACKEND_WAITS);
    pass(8);
    for (unsigned i = 0; i < 8; i++) {
        check(waiting[i], STINT_ALLOW, 2, true);
        assert_int_equal(waiting[i]->answers, 1);
    }
    assert_in_range(world.asks, 2, 3);
}

TEST(who_is_answered_may_ask_again_before_the_others_are)
{
    node.is_prompt = false;
    world.slow_ns = 1;
    for (unsigned i = 0; i < 8; i++)
        ask(REQUEST_TAKE, "hot", 1);
    /* The first has a lease of one, the others share the next: 30 is more than is held then. */
    insatiable = &askers[1];
    pass(16);
    insatiable = NULL;
    assert_int_equal(n_askers, 9);
    for (unsigned i = 0; i < 9; i++) {
        assert_int_equal(askers[i].answers, 1);
        check(&askers[i], STINT_ALLOW, i < 8 ? 1 : 30, askers[i].op.answer.is_local);
    }
}

/* A key that was asked for much, so that its next lease is large, and of which nothing is held. */
static void be_hot(void)
{
    take_times("hot", 40);
    world.now_ns += 200 * MS;
    node.is_prompt = false;
    world.slow_ns = 1;
}

TEST(who_takes_nothing_of_theirs_need_not_wait_behind_others)
{
    be_hot();
    modest = ask(REQUEST_TAKE, "hot", 1);
    struct asker *other = ask(REQUEST_TAKE, "hot", 1);
    assert_int_equal(other->op.answer.outcome, BACKEND_WAITS);
    pass(6);
    assert_int_equal(modest->answers, 1); /* and it has asked for more, ahead of the other */
    modest = NULL;
    assert_int_equal(other->answers, 1);
}

TEST(what_a_lease_on_its_way_will_cover_is_not_begun_ahead)
{
    be_hot();
    struct asker *first = ask(REQUEST_TAKE, "hot", 1);
    assert_int_equal(first->op.answer.outcome, BACKEND_WAITS);
    is_ahead = true;
    struct asker *covered = ask(REQUEST_TAKE, "hot", 1), *beyond = ask(REQUEST_TAKE, "hot", 30);
    is_ahead = false;
    assert_int_equal(covered->op.answer.outcome, BACKEND_AHEAD);
    assert_int_equal(beyond->op.answer.outcome, BACKEND_WAITS);
    pass(8);
    check(first, STINT_ALLOW, 1, true);
    check(beyond, STINT_ALLOW, 30, beyond->op.answer.is_local);
}

TEST(who_is_forgotten_is_not_told)
{
    node.is_prompt = false;
    world.slow_ns = 1;
    struct asker *first = ask(REQUEST_TAKE, "hot", 2), *second = ask(REQUEST_TAKE, "hot", 3);
    node.lease->ops->forget(node.lease, &first->op);
    pass(6);
    assert_int_equal(first->answers, 0);
    check(second, STINT_ALLOW, 3, true);
}

TEST(a_lost_answer_fails_all_who_wait_and_costs_one_term)
{
    node.is_prompt = false;
    world.lost_per_mille = 1000;
    world.slow_ns = 1;
    struct asker *asker = ask(REQUEST_TAKE, "hot", 2);
    world.now_ns += 51 * MS;
    world_run(&world);
    assert_int_equal(asker->op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(asker->answers, 1);
    world.lost_per_mille = 0;
    asker = ask(REQUEST_TAKE, "hot", 2);
    pass(6);
    check(asker, STINT_ALLOW, 2, true);
}

TEST(a_refund_that_names_the_lease_is_had_again_at_once)
{
    take_times("hot", 30);
    const struct asker *taken = ask(REQUEST_TAKE, "hot", 3);
    uint64_t asks = world.asks, at_ns = taken->op.answer.at_ns;
    assert_true(at_ns % 1000 != 0);
    const struct backend_item item = item_of("hot", 3);
    check(ask_items(REQUEST_REFUND, &item, 1, at_ns), STINT_ALLOW, 3, true);
    assert_int_equal(world.asks, asks);
    /* What names no lease of ours is the store's to know. */
    const struct asker *other = ask_items(REQUEST_REFUND, &item, 1, at_ns - 500 * MS);
    assert_false(other->op.answer.is_local);
    world.now_ns += 30 * MS;
    lease_wake(node.lease, world_node_now(&node));
    assert_int_equal(store_left("hot"), 70);
}

/* Takes of 1 until a lease is requested ahead of need; returns the time of the last grant. */
static uint64_t take_until_prefetch(const char *key)
{
    const struct asker *taken = NULL;
    take_times(key, 30);
    node.is_prompt = false;
    world.slow_ns = 1;
    for (uint64_t asks = world.asks; world.asks == asks;) {
        taken = ask(REQUEST_TAKE, key, 1);
        check(taken, STINT_ALLOW, 1, true);
    }
    return taken->op.answer.at_ns;
}

static uint32_t held_here(void)
{
    return lease_left(((const struct lease *)node.lease)->newest);
}

TEST(what_comes_back_is_not_handed_out_from_within_the_ask_of_another)
{
    uint64_t at_ns = take_until_prefetch("hot");
    uint32_t held = held_here();
    const struct asker *first = ask(REQUEST_TAKE, "hot", held + 2);
    assert_int_equal(first->op.answer.outcome, BACKEND_WAITS);
    const struct backend_item item = item_of("hot", 4);
    check(ask_items(REQUEST_REFUND, &item, 1, at_ns), STINT_ALLOW, 4, true);
    /* There is enough for the first one now. */
    const struct asker *second = ask(REQUEST_TAKE, "hot", held + 3);
    assert_int_equal(second->op.answer.outcome, BACKEND_WAITS);
    assert_int_equal(first->op.answer.outcome, BACKEND_WAITS);
    pass(8);
    check(first, STINT_ALLOW, held + 2, true);
    check(second, STINT_ALLOW, held + 3, true);
}

/* As when a ticket is settled: by the store, but asked for here. */
TEST(a_denial_is_not_repeated_after_units_came_back)
{
    const uint8_t verbs[] = {REQUEST_REFUND, REQUEST_SETTLE, REQUEST_CANCEL, REQUEST_EXPIRE};
    for (size_t i = 0; i < 2 * N(verbs); i++) {
        bool is_in_flight = i % 2 == 1; /* the denial arrives after the units came back */
        node.is_prompt = true;
        check(ask(REQUEST_TAKE_UPTO, "hot", 100), STINT_ALLOW, 100, false);
        assert_int_equal(ask(REQUEST_TAKE, "hot", 1)->op.answer.sum.outcome, STINT_DENY);
        assert_true(ask(REQUEST_TAKE, "hot", 1)->op.answer.is_local);
        ask(verbs[i / 2], "hot", 0);
        node.is_prompt = !is_in_flight;
        world.slow_ns = 1;
        const struct asker *first = ask(REQUEST_TAKE, "hot", 1);
        if (is_in_flight) {
            ask(verbs[i / 2], "hot", 0);
            pass(8);
            node.is_prompt = true;
        }
        check(first, STINT_DENY, 0, false);
        if (is_in_flight)
            check(ask(REQUEST_TAKE, "hot", 1), STINT_DENY, 0, false);
        world.now_ns += 2 * NS_PER_S;
    }
}

TEST(no_denial_is_repeated_where_none_is_to_be_kept)
{
    struct backend *keeping = node.lease;
    node.lease = lease_new(
        &(struct lease_options){.inner = &node.store, .now = world_node_clock, .arg = &node});
    check(ask(REQUEST_TAKE_UPTO, "hot", 100), STINT_ALLOW, 100, false);
    for (unsigned i = 0; i < 2; i++)
        check(ask(REQUEST_TAKE, "hot", 1), STINT_DENY, 0, false);
    node.lease->ops->free(node.lease);
    node.lease = keeping;
}

static void exhaust_store(const char *key)
{
    struct flight flight = {.verb = REQUEST_CHARGE, .quota = &quota, .cost = 100};
    struct backend_answer answer;
    snprintf(flight.name, sizeof(flight.name), "%s", key);
    world_decide(&world, &flight, &answer);
}

TEST(a_lease_that_is_not_had_leaves_what_is_held_to_those_who_wait)
{
    for (unsigned is_lost = 0; is_lost < 2; is_lost++) {
        const char *key = is_lost ? "hot" : "warm";
        node.is_prompt = true;
        world.lost_per_mille = is_lost * 1000;
        take_until_prefetch(key);
        uint32_t held = held_here();
        exhaust_store(key);
        const struct asker *large = ask(REQUEST_TAKE, key, held + 1);
        const struct asker *small = ask(REQUEST_TAKE, key, held);
        assert_int_equal(small->op.answer.outcome, BACKEND_WAITS); /* its units may be wanted */
        pass(60);
        if (is_lost)
            assert_int_equal(large->op.answer.outcome, BACKEND_FAILED);
        else
            check(large, STINT_DENY, 0, false);
        check(small, STINT_ALLOW, held, true);
    }
}

static void fail_at_once(struct backend *store, const struct backend_request *asked,
                         struct backend_op *op)
{
    (void)store, (void)asked;
    op->answer.outcome = BACKEND_FAILED;
}

TEST(what_is_held_stays_where_the_store_takes_no_request)
{
    static const struct backend_ops failing = {.ask = fail_at_once, .free = world_node_free};
    take_times("hot", 30);
    uint32_t held = held_here();
    node.store.ops = &failing;
    assert_int_equal(ask(REQUEST_TAKE, "hot", held + 1)->op.answer.outcome, BACKEND_FAILED);
    for (unsigned i = 0; i < held; i++)
        check(ask(REQUEST_TAKE, "hot", 1), STINT_ALLOW, 1, true);
    assert_int_equal(ask(REQUEST_TAKE, "hot", 1)->op.answer.outcome, BACKEND_FAILED);
}

TEST(what_others_wait_for_is_not_given_back_for_a_lease_ahead_of_need)
{
    static const struct backend_ops failing = {.ask = fail_at_once, .free = world_node_free};
    be_hot();
    modest = ask(REQUEST_TAKE, "hot", 10); /* it leaves half of the lease, and takes 1 more */
    const struct asker *other = ask(REQUEST_TAKE, "hot", 5);
    node.store.ops = &failing; /* but the lease is on its way */
    pass(6);
    modest = NULL;
    check(other, STINT_ALLOW, 5, true);
    assert_int_equal(other->answers, 1);
}

TEST(a_cost_above_what_is_held_takes_it_back_first)
{
    take_times("hot", 30);
    check(ask(REQUEST_TAKE, "hot", 70), STINT_ALLOW, 70, true);
    assert_int_equal(ask(REQUEST_TAKE, "hot", 1)->op.answer.sum.outcome, STINT_DENY);
    assert_int_equal(ask(REQUEST_TAKE, "hot", 101)->op.answer.sum.outcome, STINT_NEVER);
}

TEST(a_peek_counts_what_is_held_here)
{
    take_times("hot", 30);
    check(ask(REQUEST_PEEK, "hot", 1), STINT_ALLOW, 1, true);
    const struct asker *peek = ask(REQUEST_PEEK, "hot", 69);
    assert_int_equal(peek->op.answer.sum.outcome, STINT_ALLOW);
    assert_int_equal(peek->op.answer.sum.remaining, 70);
    assert_int_equal(ask(REQUEST_PEEK, "hot", 71)->op.answer.sum.outcome, STINT_DENY);
}

static const uint8_t kinds[] = {RULE_LEASE_STRICT, RULE_LEASE_FAST};

TEST(as_much_as_there_is_comes_from_here_and_from_the_store)
{
    static const char *const keys[][2] = {{"hot", "cold"}, {"warm", "cool"}};
    for (size_t i = 0; i < 2; i++) {
        rule.store.lease = kinds[i];
        take_times(keys[i][0], 30);
        uint64_t asks = world.asks;
        check(ask(REQUEST_TAKE_UPTO, keys[i][0], 2000), STINT_ALLOW, 70, false);
        assert_int_equal(world.asks, asks + 1);
        assert_int_equal(ask(REQUEST_TAKE_UPTO, keys[i][0], 5)->op.answer.sum.outcome, STINT_DENY);
        /* More than one lease may have, of a key that is not known here. */
        check(ask(REQUEST_TAKE_UPTO, keys[i][1], 21), STINT_ALLOW, 21, false);
        check(ask(REQUEST_TAKE, keys[i][1], 1), STINT_ALLOW, 1, true);
        check(ask(REQUEST_TAKE_UPTO, keys[i][1], 101), STINT_ALLOW, 78, false);
    }
}

TEST(as_much_as_there_is_may_all_be_held_here)
{
    take_times("hot", 30);
    uint32_t left = store_left("hot");
    assert_in_range(left, 40, 69);
    check(ask(REQUEST_CHARGE, "hot", left), STINT_ALLOW, left, false);
    check(ask(REQUEST_TAKE_UPTO, "hot", 100), STINT_ALLOW, 70 - left, false);
    assert_int_equal(ask(REQUEST_TAKE_UPTO, "hot", 100)->op.answer.sum.outcome, STINT_DENY);
}

TEST(lists_give_back_to_the_lease_what_another_denies)
{
    take_times("hot", 30);
    check(ask(REQUEST_TAKE, "plain", 95), STINT_ALLOW, 95, false);
    struct backend_item items[] = {item_of("hot", 4), item_of("plain", 4), item_of("warm", 4)};
    const struct asker *list = ask_items(REQUEST_TAKE, items, 3, 0);
    check(list, STINT_ALLOW, 4, false);
    list = ask_items(REQUEST_TAKE, items, 3, 0);
    check(list, STINT_DENY, 0, false);
    assert_int_equal(list->op.answer.sum.binding, 1);
    assert_int_equal(list->each[0].outcome, STINT_ALLOW);
    items[1].cost = items[0].cost = items[2].cost = 3;
    check(ask_items(REQUEST_TAKE_UPTO, items, 3, 0), STINT_ALLOW, 1, false);
    world.now_ns += 60 * MS;
    lease_wake(node.lease, world_node_now(&node));
    assert_int_equal(store_left("hot"), 65);
    assert_int_equal(store_left("warm"), 95);
    assert_int_equal(store_left("plain"), 0);
}

TEST(lists_wait_too_and_may_be_forgotten)
{
    node.is_prompt = false;
    world.slow_ns = 3 * MS;
    const struct backend_item items[] = {item_of("hot", 4), item_of("plain", 4),
                                         item_of("warm", 4)};
    struct asker *first = ask_items(REQUEST_TAKE, items, 3, 0);
    struct asker *second = ask_items(REQUEST_TAKE, items, 3, 0);
    assert_int_equal(first->op.answer.outcome, BACKEND_WAITS);
    pass(6);
    assert_int_equal(first->op.answer.outcome, BACKEND_WAITS); /* with one step taken */
    node.lease->ops->forget(node.lease, &first->op);
    pass(30);
    assert_int_equal(first->answers, 0);
    assert_int_equal(second->answers, 1);
    check(second, STINT_ALLOW, 4, false);
    for (unsigned turn = 0; turn < 30; turn++) {
        world.now_ns += 10 * MS;
        lease_wake(node.lease, world_node_now(&node));
        world_run(&world);
    }
    /* What comes back later than its lease has gone may stay charged until its time. */
    assert_in_range(store_left("hot"), 92, 96);
    assert_int_equal(store_left("plain"), 96);
    assert_in_range(store_left("warm"), 92, 96);
}

static void turns(unsigned n)
{
    while (n-- > 0) {
        world.now_ns += MS;
        lease_wake(node.lease, world_node_now(&node));
        world_run(&world);
    }
}

/* The store charges it at the end that it was told, whatever the rules say by now. */
TEST(a_lease_lasts_as_long_as_it_was_asked_for)
{
    node.is_prompt = false;
    world.slow_ns = 2 * MS;
    struct asker *first = ask(REQUEST_TAKE, "hot", 10);
    node.lease->ops->forget(node.lease, &first->op);
    rule.store.lease_term_ns = NS_PER_S;
    struct asker *second = ask(REQUEST_TAKE, "hot", 1); /* on its way, a lease of 10 for 100 ms */
    turns(10);
    check(second, STINT_ALLOW, 1, true);
    node.is_prompt = true;
    check(ask(REQUEST_PEEK, "hot", 1), STINT_ALLOW, 1, true);
    world.now_ns += 100 * MS;
    check(ask(REQUEST_PEEK, "hot", 1), STINT_ALLOW, 1, false);
}

/* Nobody waited for it, but somebody does now: no longer than who asks the store himself. */
TEST(who_waits_for_a_lease_that_is_lost_has_his_time)
{
    rule.store.lease_term_ns = NS_PER_S;
    node.is_prompt = false;
    world.slow_ns = 2 * MS;
    struct asker *first = ask(REQUEST_TAKE, "hot", 20);
    node.lease->ops->forget(node.lease, &first->op);
    turns(10);
    world.lost_per_mille = 1000;
    check(ask(REQUEST_TAKE, "hot", 19), STINT_ALLOW, 19, true); /* and more are asked for */
    check(ask(REQUEST_TAKE, "hot", 1), STINT_ALLOW, 1, true);
    turns(20);
    const struct asker *waits = ask(REQUEST_TAKE, "hot", 1);
    assert_int_equal(waits->op.answer.outcome, BACKEND_WAITS);
    turns(51);
    assert_int_equal(waits->answers, 1);
    assert_int_equal(waits->op.answer.outcome, BACKEND_FAILED);
}

/* Of a lease for several, the first of whom has little time. */
TEST(who_waits_has_his_own_time)
{
    node.is_prompt = false;
    world.slow_ns = 1;
    struct asker *first = ask(REQUEST_TAKE, "hot", 1);
    time_ns = 10 * MS;
    const struct asker *brief = ask(REQUEST_TAKE, "hot", 5);
    time_ns = 50 * MS;
    const struct asker *patient = ask(REQUEST_TAKE, "hot", 5);
    world.slow_ns = 100 * MS; /* of the second lease */
    turns(1);
    check(first, STINT_ALLOW, 1, true);
    for (size_t i = 0; i < world.n_flights; i++) {
        world.flights[i].arrives_ns = world.now_ns;
        world.flights[i].answers_ns = world.now_ns + 30 * MS;
    }
    turns(8);
    assert_int_equal(brief->answers, 0);
    turns(6);
    assert_int_equal(brief->answers, 1);
    assert_int_equal(brief->op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(brief->op.answer.fault, BACKEND_ERROR_LATE);
    assert_int_equal(patient->answers, 0);
    turns(16);
    check(patient, STINT_ALLOW, 5, true);
    assert_int_equal(brief->answers + patient->answers, 2);
}

TEST(nobody_waits_for_what_goes_back)
{
    take_times("hot", 30);
    world.now_ns += 30 * MS;
    world.lost_per_mille = 1000;
    world.slow_ns = 1;
    node.is_prompt = false;
    lease_wake(node.lease, world_node_now(&node));
    world.lost_per_mille = 0;
    struct asker *asker = ask(REQUEST_TAKE, "hot", 1);
    assert_int_equal(asker->op.answer.outcome, BACKEND_WAITS);
    pass(8);
    check(asker, STINT_ALLOW, 1, false);
}

TEST(all_steps_of_a_list_have_the_time_of_one)
{
    node.is_prompt = false;
    world.slow_ns = 2 * MS;
    const struct backend_item items[] = {item_of("hot", 4), item_of("plain", 4)};
    const struct asker *list = ask_items(REQUEST_TAKE, items, 2, 0);
    world.lost_per_mille = 1000; /* but the first step, which is on its way */
    world.now_ns += 40 * MS;
    world_run(&world);
    turns(9);
    assert_int_equal(list->answers, 0);
    turns(2);
    assert_int_equal(list->answers, 1);
    assert_int_equal(list->op.answer.outcome, BACKEND_FAILED);
}

TEST(fast_leases_are_charged_at_once_and_refunded)
{
    rule.store.lease = RULE_LEASE_FAST;
    take_times("hot", 30);
    assert_in_range(100 - store_left("hot"), 30, 50);
    world.now_ns += 40 * MS;
    for (unsigned turn = 0; turn < 4; turn++)
        lease_wake(node.lease, world_node_now(&node));
    assert_int_equal(store_left("hot"), 70);
}

TEST(a_reset_forgets_what_is_held)
{
    for (size_t i = 0; i < 2; i++) {
        rule.store.lease = kinds[i];
        take_times("hot", 30);
        const struct asker *reset = ask(REQUEST_RESET, "hot", 0);
        assert_int_equal(reset->op.answer.outcome, BACKEND_DECIDED);
        assert_int_equal(store_left("hot"), 100);
        check(ask(REQUEST_TAKE_UPTO, "hot", 200), STINT_ALLOW, 100, false);
        ask(REQUEST_RESET, "hot", 0);
    }
}

TEST(trie_and_counted_denials_are_not_leased)
{
    struct stint_error error;
    struct backend_item item = item_of("hot", 1);
    assert_true(script_is_leased(&item));
    assert_int_equal(stint_quota_parse(&quota, "concurrency 5 lease=1s", &error), 0);
    assert_false(script_is_leased(&item));
    assert_int_equal(stint_quota_parse(&quota, "gcra 5/1s count_denied=true", &error), 0);
    assert_false(script_is_leased(&item));
    item.rule = NULL;
    assert_int_equal(stint_quota_parse(&quota, "gcra 5/1s", &error), 0);
    assert_false(script_is_leased(&item));
}

static void check_words(const struct script_command *command, const char *expected)
{
    char text[512];
    size_t len = 0;
    for (size_t i = 2; i < command->n_words; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.*s", i > 2 ? " " : "",
                                (int)command->words[i].len, (const char *)command->words[i].ptr);
    assert_string_equal(text, expected);
}

TEST(words_of_a_lease)
{
    static struct script_command command;
    const struct script_item item = {.quota = &quota, .key = span_of_text("k"), .cost = 20};
    const struct backend_lease ended[] = {{.ends_ns = 5000, .units = 9, .left = 2},
                                          {.ends_ns = 7000, .units = 1}};
    struct backend_request lease = {
        .verb = REQUEST_LEASE, .least = 3, .term_ns = 100 * MS, .ended = ended, .n_ended = 2};
    struct script_ask asked = {.verb = REQUEST_LEASE};
    struct span leases = span_of_text("k!leases");
    script_command_leased(&command, &item, leases, &asked, &lease);
    assert_ptr_equal(command.script, lua_scripts_one[STINT_LOG][2]);
    check_words(&command, "2 k k!leases lease 20 0 3 100 1000000 0 0 0 100000 5 9 2 7 1 0");
    asked.verb = REQUEST_RETURN;
    lease.n_ended = 1;
    script_command_leased(&command, &item, leases, &asked, &lease);
    check_words(&command, "2 k k!leases return 20 0 0 100 1000000 0 0 0 0 5 9 2");
    lease = (struct backend_request){.verb = REQUEST_TAKE};
    asked.verb = REQUEST_TAKE;
    script_command_leased(&command, &item, leases, &asked, &lease);
    check_words(&command, "2 k k!leases take 20 0 0 100 1000000");
    const struct script_id id = {.key = span_of_text("id"), .body = 1, .lifetime_ns = MS};
    asked.id = &id;
    script_command_leased(&command, &item, leases, &asked, &lease);
    assert_ptr_equal(command.script, lua_scripts_one[STINT_LOG][3]);
    check_words(&command, "3 k k!leases id take 20 0 0 100 1000000 0000000000000001 1");
}

TEST(keys_have_a_bound)
{
    struct backend *wide = node.lease;
    node.lease = lease_new(&(struct lease_options){
        .inner = &node.store, .now = world_node_clock, .arg = &node, .keys = 2});
    for (unsigned turn = 0; turn < 20; turn++) {
        check(ask(REQUEST_TAKE, "a", 1), STINT_ALLOW, 1, true);
        check(ask(REQUEST_TAKE, "b", 1), STINT_ALLOW, 1, true);
        assert_int_equal(ask(REQUEST_TAKE, "c", 1)->op.answer.sum.granted, 1);
        world.now_ns += MS;
    }
    node.lease->ops->free(node.lease);
    node.lease = wide;
}
