/* SPDX-License-Identifier: MIT */
/* Hits of Envoy's descriptors in a store that may fail; tests/behaviour has the decisions. */
#include "unit/fake_store.h"
#include "unit/test_server.h"

#include "service/service_parts.h"

struct far {
    struct test_server s;
    struct fake_store fake;
    struct backend *stores[1];
    struct evaluation_stores evaluation_stores;
};

static void serve_far(struct far *far, const char *options)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "domain: d\ndescriptors:\n"
             "  - key: tokens\n"
             "    rate_limit: {unit: hour, requests_per_unit: 10, hits: charge, store: red%s}\n"
             "  - key: ip\n"
             "    rate_limit: {unit: hour, requests_per_unit: 3, store: red}\n",
             options);
    serve(&far->s, yaml);
    fake_store_begin(&far->fake);
    far->stores[0] = &far->fake.store;
    far->evaluation_stores =
        (struct evaluation_stores){.stores = far->stores, .n_stores = 1, .timeout_ns = 50 * MS};
    service_set_stores(far->s.service, &far->evaluation_stores);
}

static void serve_far_no_more(struct far *far)
{
    server_close(&far->s);
    fake_store_end(&far->fake);
}

/* Evaluated again for as long as it waits; `fails`: the store is unavailable. */
static int evaluate_far(struct far *far, struct request *request, bool fails)
{
    for (int n = 0; ask(&far->s, request)->error == REPLY_WAITS; n++) {
        assert_true(n < 10);
        request->pending = far->s.reply.pending;
        for (size_t i = 0; fails && i < far->fake.n_asks; i++)
            if (far->fake.asks[i].op != NULL)
                fake_fail(&far->fake, i, far->s.now_ns);
        fake_let_all(&far->fake, far->s.now_ns);
    }
    if (far->s.reply.error != REPLY_DECIDED)
        fail_msg("%u: %s", request->verb, far->s.reply.message);
    return far->s.reply.decision.outcome;
}

static int ask_far(struct far *far, const char *text, uint32_t hits, bool fails)
{
    struct asked asked;
    struct request *request = descriptors_of(&asked, text);
    request->has_envoy_hits = true;
    asked.descriptors[0].has_hits = true;
    asked.descriptors[0].hits = hits;
    return evaluate_far(far, request, fails);
}

TEST(test_a_check_of_debt_in_a_store)
{
    struct far far;
    serve_far(&far, ", algorithm: fixed_window, on_store_error: deny");
    far.s.service->evaluation.checks_debt = true;
    assert_int_equal(ask_far(&far, "tokens=1", 10, false), STINT_ALLOW);
    assert_int_equal(ask_far(&far, "tokens=1", 0, false), STINT_ALLOW);
    assert_int_equal(ask_far(&far, "tokens=1", 0, true), STINT_DENY); /* it is away */
    assert_int_equal(ask_far(&far, "tokens=1", 1, false), STINT_DENY);
    assert_int_equal(ask_far(&far, "tokens=1", 0, false), STINT_DENY);
    serve_far_no_more(&far);
}

/* Envoy throws the answer away, and may be gone before it comes. */
TEST(test_a_charge_is_on_its_way_before_anything_is_answered)
{
    struct far far;
    struct asked asked;
    serve_far(&far, "");
    struct request *request = descriptors_of(&asked, "tokens=1");
    request->has_envoy_hits = true;
    asked.descriptors[0].has_hits = true;
    asked.descriptors[0].hits = 12;
    assert_int_equal(ask(&far.s, request)->error, REPLY_WAITS);
    assert_int_equal(far.fake.n_asks, 2);
    assert_int_equal(far.fake.asks[0].verb, REQUEST_PEEK);
    assert_int_equal(far.fake.asks[1].verb, REQUEST_CHARGE);
    assert_int_equal(far.fake.asks[1].items[0].cost, 12);
    fake_let_all(&far.fake, far.s.now_ns);
    service_drop(far.s.service, far.s.reply.pending);
    assert_int_equal(ask_far(&far, "tokens=1", 0, false), STINT_DENY);
    serve_far_no_more(&far);
}

TEST(test_while_the_store_is_unavailable_its_fallback_answers)
{
    static const struct {
        const char *options;
        int check, small, large, check_after;
    } rows[] = {
        {", on_store_error: allow", STINT_ALLOW, STINT_ALLOW, STINT_ALLOW, STINT_ALLOW},
        {", on_store_error: deny", STINT_DENY, STINT_DENY, STINT_NEVER, STINT_DENY},
        {", on_store_error: local, local_start: empty", STINT_ALLOW, STINT_ALLOW, STINT_DENY,
         STINT_DENY},
    };
    for (size_t i = 0; i < N(rows); i++) {
        struct far far;
        serve_far(&far, rows[i].options);
        assert_int_equal(ask_far(&far, "tokens=1", 0, true), rows[i].check);
        assert_int_equal(ask_far(&far, "tokens=1", 4, true), rows[i].small);
        ask_far(&far, "tokens=1", 12, true);
        assert_int_equal(far.s.reply.decision.outcome != STINT_ALLOW, rows[i].large != STINT_ALLOW);
        assert_int_equal(ask_far(&far, "tokens=1", 0, true), rows[i].check_after);
        serve_far_no_more(&far);
    }
}

/* Of several limits in a store that is unavailable each has a fallback; so have shadow rules. */
TEST(test_every_limit_of_a_request_has_its_fallback)
{
    static const struct {
        const char *text;
        uint8_t verb;
    } rows[] = {
        {"tokens=1; tokens=2; ip=3", REQUEST_CHARGE},
        {"tokens=1; tokens=2; ip=3", REQUEST_REFUND},
        {"tokens=1; ip=3; tokens=2", REQUEST_TAKE},
        {"tokens=1; ip=3; tokens=2", REQUEST_CHARGE},
        {"tokens=1; ip=3; tokens=2", REQUEST_PEEK},
        {"tokens=1; ip=3; tokens=2", REQUEST_TAKE_UPTO},
    };
    for (int is_shadow = 0; is_shadow < 2; is_shadow++) {
        struct far far;
        serve_far(&far, is_shadow ? ", on_store_error: local, local_start: empty}\n"
                                    "    shadow_mode: true\n    metadata: {a: b"
                                  : ", on_store_error: local, local_start: empty");
        for (size_t i = 0; i < N(rows); i++)
            for (int fails = 0; fails < 2; fails++) {
                struct asked asked;
                struct request *request = descriptors_of(&asked, rows[i].text);
                request->verb = rows[i].verb;
                request->cost = 1;
                evaluate_far(&far, request, fails);
                assert_int_equal(far.s.reply.n_statuses, 3);
            }
        serve_far_no_more(&far);
    }
}
