/* SPDX-License-Identifier: MIT */
/* The front in virtual time: when asks fail at once, and when they are denied at once. */
#include "unit/test_front.h"

static const struct front_options breaking = {
    .breaker = {.failures_max = 3, .probes = 2, .open_ns = 100 * MS, .open_max_ns = 400 * MS}};
static const struct front_options caching = {
    .breaker = {.failures_max = 3}, .denials = 1024, .secret = {3, 4}};

/* ---- The breaker ----------------------------------------------------------------------------- */

/* Asks that the store leaves without an answer until 50 ms have passed. */
static void fail_times(int times, uint64_t now_ns)
{
    for (int i = 0; i < times; i++) {
        struct asked *asked = ask_one(&g, REQUEST_TAKE, "key", 1, now_ns);
        assert_int_equal(asked->op.answer.outcome, BACKEND_WAITS);
        fake_fail(&g.fake, g.fake.n_asks - 1, now_ns + 50 * MS);
        assert_int_equal(answer_of(asked).outcome, BACKEND_FAILED);
        assert_int_equal(asked->times, 1);
    }
}

static uint64_t unavailable_since(void)
{
    return g.front->ops->unavailable_since_ns(g.front);
}

TEST(a_store_that_does_not_answer_is_not_asked_for_a_while)
{
    test_front_begin(&g, "10/1s", breaking);
    fail_times(2, S);
    assert_true(unavailable_since() == 0);
    fail_times(1, 2 * S);
    assert_true(unavailable_since() == S + 50 * MS); /* the first of the row */
    size_t n = g.fake.n_asks;
    struct asked *stopped = ask_one(&g, REQUEST_TAKE, "other", 1, 2 * S + 149 * MS);
    assert_int_equal(answer_of(stopped).outcome, BACKEND_FAILED);
    assert_int_equal(stopped->op.answer.fault, BACKEND_ERROR_STOPPED);
    assert_true(strlen(stopped->op.answer.error) > 20);
    assert_int_equal(g.fake.n_asks, n);
    for (int i = 0; i < 2; i++) {
        struct asked *probe = ask_one(&g, REQUEST_TAKE, "key", 1, 2 * S + 150 * MS);
        assert_int_equal(probe->op.answer.outcome, BACKEND_WAITS);
        struct asked *beside = ask_one(&g, REQUEST_TAKE, "key", 1, 2 * S + 150 * MS);
        assert_int_equal(answer_of(beside).fault, BACKEND_ERROR_STOPPED);
        assert_true(unavailable_since() == (i == 0 ? S + 50 * MS : 2 * S + 151 * MS));
        fake_let_all(&g.fake, 2 * S + 151 * MS);
        assert_decided(probe, STINT_ALLOW, false);
    }
    assert_true(unavailable_since() == 0);
    fail_times(1, 3 * S);
    fail_times(2, 4 * S);
    assert_true(unavailable_since() == 3 * S + 50 * MS);
}

/* What the store admits to a probe, or to a request that was on its way, counts for a period. */
TEST(a_store_is_unavailable_since_its_last_answer)
{
    test_front_begin(&g, "10/1s", breaking);
    ask_one(&g, REQUEST_TAKE, "key", 1, 2 * S);
    for (unsigned i = 0; i < 3; i++) {
        ask_one(&g, REQUEST_TAKE, "key", 1, 2 * S);
        fake_fail(&g.fake, g.fake.n_asks - 1, 2 * S + 10 * MS);
    }
    assert_true(unavailable_since() == 2 * S + 10 * MS);
    fake_let_all(&g.fake, 2 * S + 20 * MS);
    assert_true(unavailable_since() == 2 * S + 20 * MS);
    ask_and_let(&g, REQUEST_TAKE, "key", 1, 2 * S + 200 * MS);
    fail_times(1, 2 * S + 300 * MS);
    assert_true(unavailable_since() == 2 * S + 201 * MS);
    g.fake.unavailable_since_ns = 2 * S + 5 * MS;
    assert_true(unavailable_since() == 2 * S + 201 * MS);
}

TEST(what_is_no_failure_opens_nothing)
{
    static const enum backend_outcome outcomes[] = {BACKEND_REFUSED, BACKEND_CONFLICT};
    test_front_begin(&g, "10/1s", breaking);
    for (int i = 0; i < 8; i++) {
        struct asked *asked = ask_one(&g, REQUEST_TAKE, "key", 1, S);
        fake_fail_as(&g.fake, g.fake.n_asks - 1, outcomes[i % 2], "no", S);
        assert_int_equal(answer_of(asked).outcome, outcomes[i % 2]);
    }
    fail_times(2, S);
    struct asked *between = ask_one(&g, REQUEST_TAKE, "key", 1, S);
    fake_fail_as(&g.fake, g.fake.n_asks - 1, BACKEND_REFUSED, "no", S);
    assert_int_equal(between->times, 1);
    fail_times(2, S); /* the row was broken: it answered */
    assert_int_equal(backend_metric(&g.metrics.state), STORE_ASKED);
    assert_int_equal(backend_metric(&g.metrics.refused), 5);
}

/* Keys begin with the number of the server on which they lie. */
TEST(a_server_that_is_gone_takes_its_own_keys_unavailable)
{
    test_front_begin(&g, "10/1s", breaking);
    g.fake.has_servers = true;
    for (int i = 0; i < 3; i++) {
        struct asked *asked = ask_one(&g, REQUEST_TAKE, "2 gone", 1, S);
        fake_fail(&g.fake, g.fake.n_asks - 1, S + 50 * MS);
        assert_int_equal(asked->times, 1);
    }
    uint64_t now_ns = S + 60 * MS;
    assert_int_equal(answer_of(ask_one(&g, REQUEST_TAKE, "2 too", 1, now_ns)).fault,
                     BACKEND_ERROR_STOPPED);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "1 well", 1, now_ns), STINT_ALLOW, false);
    assert_int_equal(backend_metric(&g.metrics.state), STORE_STOPPED);
    assert_true(unavailable_since() == 0); /* the others answer */
    size_t n = g.fake.n_asks;
    struct backend_item list[] = {item_of(&g.quota, "1 well", 1), item_of(&g.quota, "2 gone", 1)};
    struct backend_request ask = {
        .verb = REQUEST_TAKE, .items = list, .n_items = 2, .now_ns = now_ns};
    assert_int_equal(answer_of(ask_with(&g, ask)).fault, BACKEND_ERROR_STOPPED);
    assert_int_equal(g.fake.n_asks, n); /* nothing has to be given back */
    ask.now_ns = S + 150 * MS;
    for (int i = 0; i < 2; i++) {
        struct asked *probe = ask_with(&g, ask);
        assert_int_equal(answer_of(ask_one(&g, REQUEST_TAKE, "2 too", 1, ask.now_ns)).fault,
                         BACKEND_ERROR_STOPPED);
        fake_let_all(&g.fake, S + 151 * MS);
        assert_decided(probe, STINT_ALLOW, false);
    }
    assert_int_equal(backend_metric(&g.metrics.state), STORE_ASKED);
}

/* A burst that finds no room is none of the store's failures; nobody there to be asked is. */
TEST(too_much_at_once_is_not_the_store_being_unavailable)
{
    test_front_begin(&g, "10/1s", breaking);
    for (int i = 0; i < 8; i++) {
        ask_one(&g, REQUEST_TAKE, "key", 1, S);
        struct backend_op *op = fake_op(&g.fake, g.fake.n_asks - 1);
        op->answer.outcome = BACKEND_FAILED;
        op->answer.fault = BACKEND_ERROR_OVERLOAD;
        op->answered(op, S);
    }
    assert_int_equal(backend_metric(&g.metrics.errors[BACKEND_ERROR_OVERLOAD]), 8);
    assert_true(unavailable_since() == 0);
    g.fake.is_failing = true;
    for (int i = 0; i < 3; i++)
        assert_int_equal(answer_of(ask_one(&g, REQUEST_TAKE, "key", 1, S)).outcome, BACKEND_FAILED);
    assert_true(unavailable_since() == S);
}

/* Askers that leave before the store's time is over do not hide that it never answers. */
TEST(a_forgotten_ask_is_still_heard)
{
    test_front_begin(&g, "10/1s", breaking);
    for (int i = 0; i < 3; i++) {
        struct asked *asked = ask_one(&g, REQUEST_TAKE, "key", 1, S);
        g.front->ops->forget(g.front, &asked->op);
        memset(asked, 0xff, sizeof(*asked)); /* his memory is his again */
    }
    struct asked *last = ask_one(&g, REQUEST_TAKE, "key", 1, S);
    for (size_t i = 0; i < 3; i++)
        fake_fail(&g.fake, i, S + 50 * MS);
    assert_true(unavailable_since() == S + 50 * MS);
    fake_let_all(&g.fake, S + 50 * MS);
    assert_decided(last, STINT_ALLOW, false);
}

TEST(what_waits_is_answered_when_the_guard_goes)
{
    test_front_begin(&g, "10/1s", breaking);
    struct asked *first = ask_one(&g, REQUEST_TAKE, "key", 1, S);
    struct asked *gone = ask_one(&g, REQUEST_TAKE, "key", 1, S);
    g.front->ops->forget(g.front, &gone->op);
    test_front_end(&g);
    assert_int_equal(answer_of(first).outcome, BACKEND_FAILED);
    assert_int_equal(first->times, 1);
    assert_int_equal(gone->times, 0);
}

/* As far as the store knows by itself: its connections tell, without any ask. */
TEST(the_store_may_know_that_it_is_unavailable)
{
    test_front_begin(&g, "10/1s", breaking);
    g.fake.unavailable_since_ns = 7 * S;
    assert_true(unavailable_since() == 7 * S);
    fail_times(3, 8 * S);
    assert_true(unavailable_since() == 7 * S);
    front_tick(g.front, 8 * S + 60 * MS);
    assert_true(backend_metric(&g.metrics.unavailable_since_ns) == 7 * S);
    g.fake.unavailable_since_ns = 0;
    front_tick(g.front, 8 * S + 60 * MS);
    assert_true(backend_metric(&g.metrics.unavailable_since_ns) == 8 * S + 50 * MS);
    /* Nobody asks, since nobody is sent here: what is shown must not stay as it is. */
    front_tick(g.front, 8 * S + 200 * MS);
    assert_true(backend_metric(&g.metrics.unavailable_since_ns) == 0);
    assert_true(unavailable_since() == 8 * S + 50 * MS);
    assert_int_equal(backend_metric(&g.metrics.state), STORE_STOPPED);
    front_tick(g.front, 9 * S);
    assert_int_equal(backend_metric(&g.metrics.state), STORE_ASKED);
}

TEST(what_is_ahead_of_its_turn_is_not_answered)
{
    struct backend_item item;
    test_front_begin(&g, "1/10s", caching);
    item = item_of(&g.quota, "key", 1);
    struct backend_request ask = {
        .verb = REQUEST_TAKE, .items = &item, .n_items = 1, .now_ns = 2 * S, .is_ahead = true};
    assert_int_equal(ask_with(&g, ask)->op.answer.outcome, BACKEND_WAITS);
    fake_let_all(&g.fake, 2 * S);
    ask_and_let(&g, REQUEST_TAKE, "key", 1, 2 * S); /* denied, and kept */
    size_t n = g.fake.n_asks;
    assert_int_equal(answer_of(ask_with(&g, ask)).outcome, BACKEND_AHEAD);
    assert_int_equal(backend_metric(&g.metrics.denials_hit), 0);
    ask.is_ahead = false;
    assert_decided(ask_with(&g, ask), STINT_DENY, true);
    assert_int_equal(g.fake.n_asks, n);
    ask.is_ahead = true;
    ask.now_ns = 100 * S;
    fail_times(3, 100 * S - 50 * MS);
    assert_int_equal(answer_of(ask_with(&g, ask)).outcome, BACKEND_AHEAD);
    assert_int_equal(backend_metric(&g.metrics.errors[BACKEND_ERROR_STOPPED]), 0);
    /* Of a probe that the store would have answered at once nothing is heard: the next one is. */
    ask.now_ns = 200 * S;
    g.fake.is_prompt = true;
    assert_int_equal(answer_of(ask_with(&g, ask)).outcome, BACKEND_AHEAD);
    g.fake.is_prompt = false;
    assert_int_equal(ask_with(&g, ask)->op.answer.outcome, BACKEND_WAITS);
}

TEST(metrics_count_what_happened)
{
    test_front_begin(&g, "10/1s", breaking);
    ask_and_let(&g, REQUEST_TAKE, "key", 1, S);
    fail_times(3, S);
    ask_one(&g, REQUEST_TAKE, "key", 1, S + 60 * MS);
    assert_int_equal(backend_metric(&g.metrics.asks), 5);
    assert_int_equal(backend_metric(&g.metrics.errors[BACKEND_ERROR_OTHER]), 3);
    assert_int_equal(backend_metric(&g.metrics.errors[BACKEND_ERROR_STOPPED]), 1);
    assert_int_equal(backend_metric(&g.metrics.state), STORE_STOPPED);
    assert_true(backend_metric(&g.metrics.duration_ns) == 151 * MS);
    assert_int_equal(backend_metric(&g.metrics.buckets[6]), 1);  /* 1.05 ms */
    assert_int_equal(backend_metric(&g.metrics.buckets[12]), 3); /* 67 ms */
}

/* ---- Denials --------------------------------------------------------------------------------- */

TEST(a_denied_key_is_denied_here_until_its_wait_is_over)
{
    test_front_begin(&g, "gcra 10/10s burst=2", caching);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 2, 10 * S), STINT_ALLOW, false);
    struct asked *denied = ask_and_let(&g, REQUEST_TAKE, "key", 1, 10 * S + 300 * MS);
    assert_decided(denied, STINT_DENY, false);
    assert_true(denied->op.answer.sum.retry_after_ns == 700 * MS);
    size_t n = g.fake.n_asks;
    struct asked *here = ask_one(&g, REQUEST_TAKE, "key", 1, 10 * S + 500 * MS);
    assert_decided(here, STINT_DENY, true);
    assert_true(here->op.answer.sum.retry_after_ns == 500 * MS);
    assert_true(here->op.answer.sum.reset_after_ns == 1500 * MS);
    assert_int_equal(here->op.answer.sum.limit, 2);
    assert_int_equal(here->op.answer.sum.remaining, 0);
    assert_memory_equal(&here->each[0], &here->op.answer.sum, sizeof(here->each[0]));
    assert_decided(ask_one(&g, REQUEST_TAKE, "key", 2, 10 * S + 999 * MS), STINT_DENY, true);
    assert_decided(ask_one(&g, REQUEST_PEEK, "key", 1, 10 * S + 999 * MS), STINT_DENY, true);
    assert_decided(ask_one(&g, REQUEST_TAKE_UPTO, "key", 2, 10 * S + 999 * MS), STINT_DENY, true);
    assert_int_equal(g.fake.n_asks, n);
    assert_int_equal(backend_metric(&g.metrics.denials_hit), 4);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 1, 11 * S), STINT_ALLOW, false);
}

TEST(no_key_is_denied_here_for_longer_than_the_option_says)
{
    struct front_options options = caching;
    options.deny_cache_max_ns = 300 * MS;
    test_front_begin(&g, "1/1h", options);
    ask_and_let(&g, REQUEST_TAKE, "key", 1, 10 * S);
    ask_and_let(&g, REQUEST_TAKE, "key", 1, 20 * S);
    assert_decided(ask_one(&g, REQUEST_TAKE, "key", 1, 20 * S + 299 * MS), STINT_DENY, true);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 1, 20 * S + 300 * MS), STINT_DENY, false);
}

TEST(a_smaller_cost_is_the_stores_to_decide)
{
    test_front_begin(&g, "10/10s", caching);
    ask_and_let(&g, REQUEST_TAKE, "key", 6, 10 * S);
    ask_and_let(&g, REQUEST_TAKE, "key", 5, 10 * S); /* denied: 4 are left */
    assert_decided(ask_one(&g, REQUEST_TAKE, "key", 7, 10 * S), STINT_DENY, true);
    struct asked *never = ask_and_let(&g, REQUEST_TAKE, "key", 11, 10 * S);
    assert_decided(never, STINT_NEVER, false);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 3, 10 * S), STINT_ALLOW, false);
    /* What it left is known, and 5 are still denied. */
    struct asked *here = ask_one(&g, REQUEST_TAKE, "key", 5, 10 * S + 500 * MS);
    assert_decided(here, STINT_DENY, true);
    assert_int_equal(here->op.answer.sum.remaining, 1);
    assert_decided(ask_and_let(&g, REQUEST_TAKE_UPTO, "key", 9, 10 * S), STINT_ALLOW, false);
    assert_decided(ask_and_let(&g, REQUEST_TAKE_UPTO, "key", 9, 10 * S), STINT_DENY, false);
    assert_decided(ask_one(&g, REQUEST_TAKE, "key", 1, 10 * S), STINT_DENY, true);
}

/* Of gcra the wait is exact, also of a larger cost, and after less was taken. */
TEST(a_larger_cost_waits_longer)
{
    test_front_begin(&g, "gcra 10/10s", caching);
    ask_and_let(&g, REQUEST_TAKE, "key", 6, 10 * S);
    struct asked *denied = ask_and_let(&g, REQUEST_TAKE, "key", 5, 10 * S); /* 4 are left */
    assert_true(denied->op.answer.sum.retry_after_ns == 1 * S);
    struct asked *larger = ask_one(&g, REQUEST_TAKE, "key", 8, 10 * S);
    assert_decided(larger, STINT_DENY, true);
    assert_true(larger->op.answer.sum.retry_after_ns == 4 * S);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 3, 10 * S), STINT_ALLOW, false);
    struct asked *after = ask_one(&g, REQUEST_TAKE, "key", 5, 10 * S + 500 * MS);
    assert_decided(after, STINT_DENY, true);
    assert_true(after->op.answer.sum.retry_after_ns == 3500 * MS);
}

/* Nothing left may be debt: what the store says of a cost of 0 cannot be told from here. */
TEST(a_cost_of_0_is_the_stores_to_decide)
{
    test_front_begin(&g, "gcra 10/10s", caching);
    ask_and_let(&g, REQUEST_CHARGE, "key", 14, 10 * S);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 1, 10 * S), STINT_DENY, false);
    assert_decided(ask_one(&g, REQUEST_TAKE, "key", 1, 10 * S), STINT_DENY, true);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 0, 10 * S), STINT_DENY, false);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 0, 14 * S), STINT_ALLOW, false);
}

/* Others were faster each time: that says nothing of what is left of the keys. */
TEST(a_busy_denial_is_not_repeated_here)
{
    test_front_begin(&g, "10/10s", caching);
    struct asked *busy = ask_one(&g, REQUEST_TAKE, "key", 1, S);
    struct backend_op *op = fake_op(&g.fake, 0);
    op->answer.outcome = BACKEND_DECIDED;
    op->answer.fault = BACKEND_ERROR_BUSY;
    op->answer.sum = op->answer.each[0] =
        (struct stint_decision){.outcome = STINT_DENY, .stored = 1, .retry_after_ns = 10 * MS};
    op->answered(op, S + 5 * MS);
    assert_decided(busy, STINT_DENY, false);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 1, S + 6 * MS), STINT_ALLOW, false);
}

TEST(what_gives_back_is_seen_at_once)
{
    static const uint8_t verbs[] = {REQUEST_REFUND, REQUEST_RESET, REQUEST_CHARGE};
    for (size_t i = 0; i < sizeof(verbs); i++) {
        test_front_begin(&g, "gcra 2/10s", caching);
        ask_and_let(&g, REQUEST_TAKE, "key", 2, 10 * S);
        ask_and_let(&g, REQUEST_TAKE, "key", 1, 10 * S);
        assert_decided(ask_one(&g, REQUEST_TAKE, "key", 1, 10 * S), STINT_DENY, true);
        ask_and_let(&g, verbs[i], "key", 1, 10 * S);
        struct asked *again = ask_and_let(&g, REQUEST_TAKE, "key", 1, 10 * S);
        assert_decided(again, verbs[i] == REQUEST_CHARGE ? STINT_DENY : STINT_ALLOW, false);
    }
}

/* The store denied before it gave back; its answers come the other way round. */
TEST(an_answer_from_before_a_refund_is_not_kept)
{
    test_front_begin(&g, "gcra 2/10s", caching);
    ask_and_let(&g, REQUEST_TAKE, "key", 2, 10 * S);
    ask_one(&g, REQUEST_TAKE, "key", 1, 10 * S);
    size_t denied = g.fake.n_asks - 1;
    ask_one(&g, REQUEST_REFUND, "key", 1, 10 * S);
    fake_let(&g.fake, denied + 1, 10 * S + MS);
    fake_answer(&g.fake, denied,
                (struct stint_decision){
                    .outcome = STINT_DENY, .limit = 2, .retry_after_ns = 5 * S, .stored = 1},
                10 * S + 2 * MS);
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 1, 10 * S + 3 * MS), STINT_ALLOW, false);
}

/* Each asks for the key that is denied, in a way that only the store may answer. */
TEST(some_asks_go_past_what_is_known)
{
    static const uint8_t id[BACKEND_ID_LEN] = {1};
    struct rule leased = {.store.lease = RULE_LEASE_STRICT};
    test_front_begin(&g, "1/10s", caching);
    struct backend_item item = item_of(&g.quota, "key", 1);
    struct backend_request ask = {
        .verb = REQUEST_TAKE, .items = &item, .n_items = 1, .now_ns = 20 * S};
    ask.id = id;
    assert_int_equal(ask_with(&g, ask)->op.answer.outcome, BACKEND_WAITS);
    fake_let_all(&g.fake, 20 * S); /* allowed under its id */
    ask_and_let(&g, REQUEST_TAKE, "key", 1, 20 * S);
    assert_decided(ask_one(&g, REQUEST_TAKE, "key", 1, 20 * S), STINT_DENY, true);
    struct asked *again = ask_with(&g, ask);
    fake_let_all(&g.fake, 20 * S);
    assert_decided(again, STINT_ALLOW, false);
    assert_true(answer_of(again).is_replayed);
    ask.id = NULL;
    ask.is_virtual = true;
    assert_int_equal(ask_with(&g, ask)->op.answer.outcome, BACKEND_WAITS);
    ask.is_virtual = false;
    item.rule = &leased;
    assert_int_equal(ask_with(&g, ask)->op.answer.outcome, BACKEND_WAITS);
    item.rule = NULL;
    assert_decided(ask_with(&g, ask), STINT_DENY, true);
}

/* A refused take that is to be counted, and a place that may be free before its time. */
TEST(some_quotas_are_the_stores_alone)
{
    static const char *const specs[] = {"gcra 1/10s count_denied=true", "concurrency 1 lease=10s"};
    for (int i = 0; i < 2; i++) {
        test_front_begin(&g, specs[i], caching);
        ask_and_let(&g, REQUEST_TAKE, "key", 1, 20 * S);
        for (int j = 0; j < 2; j++)
            assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 1, 20 * S), STINT_DENY, false);
    }
}

TEST(without_a_cache_every_ask_is_the_stores)
{
    test_front_begin(&g, "1/10s", breaking);
    ask_and_let(&g, REQUEST_TAKE, "key", 1, 20 * S);
    for (int j = 0; j < 2; j++)
        assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 1, 20 * S), STINT_DENY, false);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

static struct asked *ask_two(const struct stint_quota *wide, const char *key, uint32_t cost,
                             uint64_t now_ns)
{
    const struct backend_item items[] = {item_of(wide, "all", cost), item_of(&g.quota, key, cost)};
    return ask_with(&g, (struct backend_request){
                            .verb = REQUEST_TAKE, .items = items, .n_items = 2, .now_ns = now_ns});
}

static struct asked *let_two(const struct stint_quota *wide, const char *key, uint32_t cost,
                             uint64_t now_ns)
{
    struct asked *asked = ask_two(wide, key, cost, now_ns);
    fake_let_all(&g.fake, now_ns);
    return asked;
}

TEST(a_list_is_denied_here_where_all_of_it_is_known)
{
    const struct stint_quota wide = quota_of("100/10s");
    test_front_begin(&g, "3/10s", caching);
    let_two(&wide, "key", 3, 20 * S);
    assert_decided(let_two(&wide, "key", 1, 20 * S), STINT_DENY, false);
    assert_decided(let_two(&wide, "other", 2, 20 * S), STINT_ALLOW, false);
    size_t n = g.fake.n_asks;
    struct asked *here = ask_two(&wide, "key", 2, 20 * S + 100 * MS);
    assert_decided(here, STINT_DENY, true);
    assert_int_equal(g.fake.n_asks, n);
    assert_int_equal(here->op.answer.sum.binding, 1);
    assert_int_equal(here->op.answer.sum.limit, 3);
    assert_int_equal(here->each[0].outcome, STINT_ALLOW);
    assert_int_equal(here->each[0].remaining, 95); /* what the other took is seen */
    assert_int_equal(here->each[1].outcome, STINT_DENY);
    assert_true(here->op.answer.sum.retry_after_ns == here->each[1].retry_after_ns);
    /* The list is denied here only while both are known, and such as they are. */
    assert_decided(let_two(&wide, "third", 1, 20 * S), STINT_ALLOW, false);
    struct asked *more = let_two(&wide, "key", 4, 20 * S);
    assert_decided(more, STINT_NEVER, false);
    assert_decided(let_two(&wide, "key", 1, 21 * S), STINT_DENY, false);
}

/* Their costs add up: what is denied of both together says nothing of each. */
TEST(equal_keys_in_a_list_are_the_stores_alone)
{
    test_front_begin(&g, "3/10s", caching);
    const struct backend_item items[] = {item_of(&g.quota, "key", 2), item_of(&g.quota, "key", 2)};
    const struct backend_request ask = {
        .verb = REQUEST_TAKE, .items = items, .n_items = 2, .now_ns = 20 * S};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask_with(&g, ask)->op.answer.outcome, BACKEND_WAITS);
        fake_let_all(&g.fake, 20 * S);
    }
    assert_decided(ask_and_let(&g, REQUEST_TAKE, "key", 2, 20 * S), STINT_ALLOW, false);
}

/* More than are kept in an ask itself. */
TEST(a_long_list_is_a_list)
{
    test_front_begin(&g, "1/10s", caching);
    char keys[BACKEND_ITEMS_MAX][16];
    struct backend_item items[BACKEND_ITEMS_MAX];
    for (unsigned i = 0; i < BACKEND_ITEMS_MAX; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key %u", i);
        items[i] = item_of(&g.quota, keys[i], 1);
    }
    const struct backend_request ask = {
        .verb = REQUEST_TAKE, .items = items, .n_items = BACKEND_ITEMS_MAX, .now_ns = 20 * S};
    for (int i = 0; i < 2; i++) {
        struct asked *asked = ask_with(&g, ask);
        fake_let_all(&g.fake, 20 * S);
        assert_decided(asked, i == 0 ? STINT_ALLOW : STINT_DENY, false);
    }
    struct asked *here = ask_with(&g, ask);
    assert_decided(here, STINT_DENY, true);
    for (unsigned i = 0; i < BACKEND_ITEMS_MAX; i++)
        assert_int_equal(here->each[i].outcome, STINT_DENY);
}
