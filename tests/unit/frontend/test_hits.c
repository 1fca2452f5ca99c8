/* SPDX-License-Identifier: MIT */
/*
 * Hits of Envoy's descriptors: 0 checks whether a unit is left, N is taken or charged. What becomes
 * of them beside other descriptors, in shadows, under bans, and where a store keeps the states.
 */
#include "unit/calling.h"
#include "unit/fake_store.h"

#include "proto/grpc/rls.h"
#include "service/service_parts.h"

#define NO_HITS UINT32_MAX /* the request's cost instead */
#define RULE(key, n, options)                                                                      \
    "  - key: " key "\n    rate_limit: {unit: hour, requests_per_unit: " n options "}\n"
#define CHARGED(key, n) RULE(key, n, ", hits: charge")

/* A rule a line. */
/* clang-format off */
static const char *const rules =
    "domain: d\ndescriptors:\n"
    CHARGED("tokens", "10")
    CHARGED("more", "10")
    RULE("takes", "10", ", hits: take")
    RULE("unsaid", "10", "")
    RULE("ip", "3", "")
    CHARGED("shut", "0")
    RULE("counted", "10", ", hits: charge, algorithm: fixed_window")
    RULE("paced", "10", ", hits: charge, algorithm: gcra")
    "  - key: free\n    rate_limit: {unlimited: true}\n"
    CHARGED("trial", "10") "    shadow_mode: true\n"
    CHARGED("next", "10") "    shadow: {unit: hour, requests_per_unit: 5}\n"
    CHARGED("soft", "10") "    quota_mode: true\n"
    CHARGED("soft2", "10") "    quota_mode: true\n"
    RULE("named", "10", ", hits: charge, name: named")
    RULE("instead", "10", ", replaces: [{name: named}]")
    CHARGED("angry", "1") "    ban: {after: 3, for: 2h}\n"
    RULE("angry2", "1", "") "    quota_mode: true\n    ban: {after: 1, for: 2h}\n"
    "  - key: places\n"
    "    rate_limit: {algorithm: concurrency, lease: 1m, requests_per_unit: 3}\n";
/* clang-format on */

static struct serving s[1];

static const struct reply *ask_hits(const char *text, uint32_t first, uint32_t second)
{
    struct asked asked;
    const uint32_t hits[] = {first, second};
    struct request *request = descriptors_of(&asked, text);
    request->has_envoy_hits = true;
    for (size_t i = 0; i < request->n_descriptors; i++) {
        asked.descriptors[i].has_hits = hits[i] != NO_HITS;
        asked.descriptors[i].hits = hits[i] != NO_HITS ? hits[i] : 0;
    }
    const struct reply *reply = ask(s, request);
    assert_int_equal(reply->error, REPLY_DECIDED);
    return reply;
}

static int outcome_of(const char *text, uint32_t hits)
{
    return ask_hits(text, hits, hits)->decision.outcome;
}

SETUP
{
    serve(s, rules);
}

TEARDOWN
{
    serve_no_more(s);
}

/* ---- One descriptor -------------------------------------------------------------------------- */

TEST(test_a_check_asks_for_one_unit_and_takes_none)
{
    const struct target *status = s->service->evaluation.targets;
    for (int i = 0; i < 5; i++)
        assert_int_equal(outcome_of("tokens=1", 0), STINT_ALLOW);
    assert_int_equal(status->decision.remaining, 10);
    assert_int_equal(status->decision.granted, 0);
    assert_int_equal(outcome_of("tokens=1", 10), STINT_ALLOW);
    assert_int_equal(outcome_of("tokens=1", 0), STINT_DENY);
    assert_true(status->over && status->decision.remaining == 0);
    uint64_t wait_ns = s->reply.decision.retry_after_ns;
    assert_in_range(wait_ns, 1, 120 * MINUTE);
    s->now_ns += wait_ns;
    assert_int_equal(outcome_of("tokens=1", 0), STINT_ALLOW);
}

TEST(test_a_charge_is_recorded_though_it_does_not_fit)
{
    const struct target *status = s->service->evaluation.targets;
    assert_int_equal(outcome_of("tokens=1", 8), STINT_ALLOW);
    assert_int_equal(left(s, "tokens=1"), 2);
    assert_int_equal(outcome_of("tokens=1", 3), STINT_DENY);
    assert_true(status->over && status->decision.remaining == 0);
    assert_in_range(status->decision.retry_after_ns, 1, 120 * MINUTE);
    assert_int_equal(left(s, "tokens=1"), 0);
    assert_int_equal(outcome_of("tokens=2", 12), STINT_DENY); /* more than ever fits */
    assert_int_equal(outcome_of("tokens=2", 0), STINT_DENY);
}

TEST(test_a_rule_that_takes_takes_all_or_nothing)
{
    static const char *const keys[] = {"takes=1", "unsaid=1"};
    for (size_t i = 0; i < N(keys); i++) {
        assert_int_equal(outcome_of(keys[i], 8), STINT_ALLOW);
        assert_int_equal(outcome_of(keys[i], 3), STINT_DENY);
        assert_int_equal(left(s, keys[i]), 2);
        assert_int_equal(outcome_of(keys[i], 0), STINT_ALLOW);
        assert_int_equal(outcome_of(keys[i], 2), STINT_ALLOW);
        assert_int_equal(outcome_of(keys[i], 0), STINT_DENY);
    }
}

TEST(test_hits_of_the_request_are_always_taken)
{
    struct asked asked;
    struct request *request = descriptors_of(&asked, "tokens=1");
    request->has_envoy_hits = true;
    request->cost = 8;
    assert_int_equal(ask(s, request)->decision.outcome, STINT_ALLOW);
    assert_int_equal(ask(s, request)->decision.outcome, STINT_DENY);
    assert_int_equal(left(s, "tokens=1"), 2);
}

TEST(test_the_setting_is_for_rules_that_do_not_say)
{
    struct stint_quota own = quota_of("10/1h");
    struct asked asked;
    s->service->evaluation.charges_hits = true;
    assert_int_equal(outcome_of("unsaid=1", 12), STINT_DENY);
    assert_int_equal(left(s, "unsaid=1"), 0);
    assert_int_equal(outcome_of("takes=1", 11), STINT_NEVER);
    assert_int_equal(left(s, "takes=1"), 10);
    /* A quota that no rule knows of. */
    struct request *request = descriptors_of(&asked, "brought=1");
    request->has_envoy_hits = true;
    asked.descriptors[0].override = &own;
    asked.descriptors[0].has_hits = true;
    asked.descriptors[0].hits = 12;
    assert_int_equal(ask(s, request)->decision.outcome, STINT_DENY);
    asked.descriptors[0].hits = 0;
    assert_int_equal(ask(s, request)->decision.outcome, STINT_DENY);
    /* Places are taken in any case. */
    assert_int_equal(outcome_of("places=1", 2), STINT_ALLOW);
    assert_int_equal(outcome_of("places=1", 2), STINT_DENY);
    assert_int_equal(outcome_of("places=1", 0), STINT_ALLOW);
    assert_int_equal(outcome_of("places=1", 1), STINT_ALLOW);
    assert_int_equal(outcome_of("places=1", 0), STINT_DENY);
}

/* As envoyproxy/ratelimit compares: where the algorithm tells more than the limit from the limit.
 */
TEST(test_a_check_of_debt_passes_where_just_the_limit_is_used)
{
    static const struct {
        const char *key;
        int at_limit;
    } rows[] = {{"counted=1", STINT_ALLOW}, {"paced=1", STINT_ALLOW}, {"tokens=1", STINT_DENY}};
    s->service->evaluation.checks_debt = true;
    for (size_t i = 0; i < N(rows); i++) {
        assert_int_equal(outcome_of(rows[i].key, 9), STINT_ALLOW);
        assert_int_equal(outcome_of(rows[i].key, 0), STINT_ALLOW);
        assert_int_equal(outcome_of(rows[i].key, 1), STINT_ALLOW);
        assert_int_equal(outcome_of(rows[i].key, 0), rows[i].at_limit);
        assert_int_equal(s->reply.statuses[0].decision.remaining, 0);
        assert_int_equal(outcome_of(rows[i].key, 1), STINT_DENY);
        assert_int_equal(outcome_of(rows[i].key, 0), STINT_DENY);
        assert_in_range(s->reply.decision.retry_after_ns, 1, 120 * MINUTE);
    }
}

TEST(test_what_has_no_space_or_no_limit)
{
    assert_int_equal(outcome_of("shut=1", 0), STINT_NEVER);
    assert_int_equal(outcome_of("shut=1", 5), STINT_NEVER);
    assert_int_equal(outcome_of("free=1; other=1", 0), STINT_ALLOW);
    assert_int_equal(outcome_of("free=1; other=1", 1000), STINT_ALLOW);
}

TEST(test_hits_that_come_back)
{
    struct asked asked;
    assert_int_equal(outcome_of("tokens=1", 10), STINT_ALLOW);
    struct request *request = descriptors_of(&asked, "tokens=1");
    request->has_envoy_hits = true;
    asked.descriptors[0] =
        (struct descriptor){asked.entries[0], 1, .hits = 4, .has_hits = true, .is_refund = true};
    assert_int_equal(ask(s, request)->decision.outcome, STINT_ALLOW);
    assert_int_equal(left(s, "tokens=1"), 4);
}

/* ---- Beside others --------------------------------------------------------------------------- */

TEST(test_a_charge_stands_whatever_the_others_say)
{
    assert_int_equal(allowed_in_a_row(s, "ip=1"), 3);
    assert_int_equal(ask_hits("tokens=1; ip=1", 4, NO_HITS)->decision.outcome, STINT_DENY);
    assert_false(s->reply.statuses[0].over);
    assert_true(s->reply.statuses[1].over);
    assert_int_equal(left(s, "tokens=1"), 6);
}

TEST(test_what_is_over_keeps_the_others_from_being_taken)
{
    assert_int_equal(ask_hits("tokens=1; ip=1", 12, NO_HITS)->decision.outcome, STINT_DENY);
    assert_int_equal(ask_hits("ip=1; tokens=1", NO_HITS, 0)->decision.outcome, STINT_DENY);
    assert_int_equal(left(s, "ip=1"), 3);
    assert_int_equal(s->reply.decision.binding, 0);
    assert_int_equal(ask_hits("ip=1; tokens=2", NO_HITS, 0)->decision.outcome, STINT_ALLOW);
    assert_int_equal(left(s, "ip=1"), 2);
}

TEST(test_every_charge_of_a_request_is_recorded)
{
    assert_int_equal(ask_hits("tokens=1; more=1", 12, 4)->decision.outcome, STINT_DENY);
    assert_int_equal(left(s, "more=1"), 6);
    assert_int_equal(ask_hits("more=1; more=1", 4, 4)->decision.outcome, STINT_DENY);
    assert_false(s->reply.statuses[0].over);
    assert_true(s->reply.statuses[1].over);
    assert_int_equal(left(s, "more=1"), 0);
}

/* Of several services the request goes to one that has something left. */
TEST(test_in_quota_mode_only_all_of_them_deny)
{
    assert_int_equal(outcome_of("soft=1", 12), STINT_DENY);
    assert_int_equal(ask_hits("soft=1; soft2=1", 0, 0)->decision.outcome, STINT_ALLOW);
    assert_true(s->reply.statuses[0].over);
    assert_false(s->reply.statuses[1].over);
    assert_int_equal(ask_hits("soft=1; soft2=1", 1, 10)->decision.outcome, STINT_ALLOW);
    assert_int_equal(ask_hits("soft=1; soft2=1", 0, 0)->decision.outcome, STINT_DENY);
}

/* One that is excluded before anything is taken is no reason to take twice. */
TEST(test_what_steps_back_makes_nobody_pay_twice)
{
    assert_int_equal(outcome_of("soft=1", 12), STINT_DENY);
    assert_int_equal(ask_hits("soft=1; soft2=1", 0, NO_HITS)->decision.outcome, STINT_ALLOW);
    assert_int_equal(left(s, "soft2=1"), 9);
    assert_int_equal(outcome(s, "angry2=1"), STINT_ALLOW);
    assert_int_equal(outcome(s, "angry2=1"), STINT_DENY); /* and is banned */
    assert_int_equal(outcome(s, "angry2=1; soft2=2"), STINT_ALLOW);
    assert_int_equal(left(s, "soft2=2"), 9);
}

TEST(test_replaced_limits_are_not_charged)
{
    assert_int_equal(ask_hits("named=1; instead=1", 12, NO_HITS)->decision.outcome, STINT_ALLOW);
    assert_int_equal(left(s, "named=1"), 10);
    assert_int_equal(left(s, "instead=1"), 9);
}

/* ---- Shadows --------------------------------------------------------------------------------- */

TEST(test_a_shadow_is_charged_and_denies_nothing)
{
    assert_int_equal(outcome_of("trial=1", 12), STINT_ALLOW);
    assert_true(s->reply.statuses[0].over);
    assert_int_equal(left(s, "trial=1"), 0);
    assert_int_equal(outcome_of("trial=1", 0), STINT_ALLOW);
    assert_true(s->reply.statuses[0].over);
    assert_int_equal(outcome_of("trial=2", 0), STINT_ALLOW);
    assert_false(s->reply.statuses[0].over);
    /* Also where others deny the request. */
    assert_int_equal(allowed_in_a_row(s, "ip=1"), 3);
    assert_int_equal(ask_hits("trial=2; ip=1", 4, NO_HITS)->decision.outcome, STINT_DENY);
    assert_int_equal(left(s, "trial=2"), 6);
}

TEST(test_a_candidate_is_charged_as_the_live_limit_is)
{
    assert_int_equal(outcome_of("next=1", 0), STINT_ALLOW);
    assert_false(s->reply.statuses[0].shadow_over);
    assert_int_equal(outcome_of("next=1", 4), STINT_ALLOW);
    assert_false(s->reply.statuses[0].shadow_over);
    assert_int_equal(outcome_of("next=1", 0), STINT_ALLOW);
    assert_false(s->reply.statuses[0].shadow_over); /* one of five is left */
    assert_int_equal(outcome_of("next=1", 2), STINT_ALLOW);
    assert_true(s->reply.statuses[0].shadow_over);
    assert_int_equal(outcome_of("next=1", 0), STINT_ALLOW);
    assert_true(s->reply.statuses[0].shadow_over);
    assert_in_range(s->reply.statuses[0].shadow_retry_after_ns, 1, 120 * MINUTE);
    assert_int_equal(outcome_of("next=1", 6), STINT_DENY);
}

/* ---- Blocks and bans ------------------------------------------------------------------------- */

TEST(test_a_blocked_key_is_denied_and_charged)
{
    struct asked asked;
    struct request *block = descriptors_of(&asked, "tokens=1");
    block->verb = REQUEST_BLOCK;
    block->lifetime_ns = MINUTE;
    assert_int_equal(ask(s, block)->error, REPLY_DECIDED);
    assert_int_equal(outcome_of("tokens=1", 0), STINT_DENY);
    assert_int_equal(s->reply.decision.retry_after_ns, MINUTE);
    assert_int_equal(outcome_of("tokens=1", 4), STINT_DENY);
    s->now_ns += MINUTE;
    assert_int_equal(left(s, "tokens=1"), 6);
}

/* A check that is denied is a request that was refused; what is charged was served. */
TEST(test_checks_count_for_a_ban_and_charges_do_not)
{
    for (int i = 0; i < 5; i++)
        assert_int_equal(outcome_of("angry=1", 2), STINT_DENY);
    assert_false(s->reply.statuses[0].banned);
    for (int i = 0; i < 4; i++)
        assert_int_equal(outcome_of("angry=1", 0), STINT_DENY);
    assert_true(s->reply.statuses[0].banned);
}

/* ---- In a store ------------------------------------------------------------------------------ */

struct far {
    struct serving s;
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
    serve_no_more(&far->s);
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

static int ask_far(struct far *far, const char *text, uint32_t first, uint32_t second, bool fails)
{
    struct asked asked;
    const uint32_t hits[] = {first, second};
    struct request *request = descriptors_of(&asked, text);
    request->has_envoy_hits = true;
    for (size_t i = 0; i < request->n_descriptors; i++) {
        asked.descriptors[i].has_hits = hits[i] != NO_HITS;
        asked.descriptors[i].hits = hits[i] != NO_HITS ? hits[i] : 0;
    }
    return evaluate_far(far, request, fails);
}

static uint32_t left_far(struct far *far, const char *text)
{
    ask_far(far, text, 0, 0, false);
    return far->s.reply.statuses[0].decision.remaining;
}

TEST(test_a_store_is_told_of_every_charge)
{
    struct far far;
    serve_far(&far, "");
    assert_int_equal(ask_far(&far, "tokens=1", 0, 0, false), STINT_ALLOW);
    assert_int_equal(far.s.reply.statuses[0].decision.remaining, 10);
    assert_int_equal(ask_far(&far, "tokens=1", 8, 0, false), STINT_ALLOW);
    assert_int_equal(left_far(&far, "tokens=1"), 2);
    assert_int_equal(ask_far(&far, "tokens=1", 3, 0, false), STINT_DENY);
    assert_in_range(far.s.reply.decision.retry_after_ns, 1, 120 * MINUTE);
    assert_int_equal(ask_far(&far, "tokens=1", 0, 0, false), STINT_DENY);
    assert_in_range(far.s.reply.decision.retry_after_ns, 1, 120 * MINUTE);
    /* Beside others, in whatever order. */
    assert_int_equal(ask_far(&far, "ip=1; tokens=2", 2, 12, false), STINT_DENY);
    assert_int_equal(left_far(&far, "ip=1"), 3);
    assert_int_equal(left_far(&far, "tokens=2"), 0);
    assert_int_equal(ask_far(&far, "ip=1; tokens=3", 3, 4, false), STINT_ALLOW);
    assert_int_equal(ask_far(&far, "ip=1; tokens=3", 3, 4, false), STINT_DENY);
    assert_int_equal(left_far(&far, "tokens=3"), 2);
    serve_far_no_more(&far);
}

TEST(test_a_check_of_debt_in_a_store)
{
    struct far far;
    serve_far(&far, ", algorithm: fixed_window, on_store_error: deny");
    far.s.service->evaluation.checks_debt = true;
    assert_int_equal(ask_far(&far, "tokens=1", 10, 0, false), STINT_ALLOW);
    assert_int_equal(ask_far(&far, "tokens=1", 0, 0, false), STINT_ALLOW);
    assert_int_equal(ask_far(&far, "tokens=1", 0, 0, true), STINT_DENY); /* it is away */
    assert_int_equal(ask_far(&far, "tokens=1", 1, 0, false), STINT_DENY);
    assert_int_equal(ask_far(&far, "tokens=1", 0, 0, false), STINT_DENY);
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
    assert_int_equal(ask_far(&far, "tokens=1", 0, 0, false), STINT_DENY);
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
        assert_int_equal(ask_far(&far, "tokens=1", 0, 0, true), rows[i].check);
        assert_int_equal(ask_far(&far, "tokens=1", 4, 0, true), rows[i].small);
        ask_far(&far, "tokens=1", 12, 0, true);
        assert_int_equal(far.s.reply.decision.outcome != STINT_ALLOW, rows[i].large != STINT_ALLOW);
        assert_int_equal(ask_far(&far, "tokens=1", 0, 0, true), rows[i].check_after);
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

/* ---- At the frontend of gRPC
 * --------------------------------------------------------------------- */

static const struct algorithm_case {
    const char *keys;
    uint32_t unit; /* of the limit of 1,000 and of all hits: a log of 1,000 is too wide here */
} algorithms[] = {
    {"fixed_window", 1}, {"window", 1},          {"window, resolution: 12", 1},
    {"gcra", 1},         {"sliding_counter", 1}, {"buckets, count_slack: 50, time_slack: 1h", 1},
    {"log", 10},
};

static const struct sequence {
    uint32_t hits[6];
    unsigned codes[6];
    size_t n;
} sequences[] = {
    {{0, 950, 0, 200, 0}, {1, 1, 1, 2, 2}, 5},
    {{1200, 0}, {2, 2}, 2},
    {{0, 1000, 0, 1, 0}, {1, 1, 2, 2, 2}, 5},
    {{990, 0, 10, 0}, {1, 1, 1, 2}, 4},
};

static unsigned call_hits(struct calling *calling, const char *text, uint32_t hits)
{
    struct wire descriptor = wire_descriptor(text), message = {.len = 0};
    wire_text(&message, 1, "d");
    wire_hits(&descriptor, hits);
    wire_message(&message, 2, &descriptor);
    struct heard *heard = call_path(calling, SHOULD_RATE_LIMIT, wired(&message));
    exchange(calling);
    assert_int_equal(heard->status, GRPC_OK);
    unsigned code = (unsigned)wire_number_of(message_of(heard), 1);
    forget_calls(calling);
    return code;
}

static struct calling *call_algorithm(const struct algorithm_case *algorithm, const char *unit)
{
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {unit: %s, "
             "requests_per_unit: %u, hits: charge, algorithm: %s}\n",
             unit, 1000 / algorithm->unit, algorithm->keys);
    return call_at(yaml, NULL, NULL);
}

TEST(test_budgets_per_hour)
{
    for (size_t i = 0; i < N(algorithms); i++) {
        struct calling *calling = call_algorithm(&algorithms[i], "hour");
        for (size_t k = 0; k < N(sequences); k++) {
            char user[32];
            snprintf(user, sizeof(user), "user=%zu", k);
            for (size_t step = 0; step < sequences[k].n; step++)
                if (call_hits(calling, user, sequences[k].hits[step] / algorithms[i].unit) !=
                    sequences[k].codes[step])
                    fail_msg("%s: sequence %zu, step %zu", algorithms[i].keys, k, step);
        }
        call_no_more(calling);
    }
}

/* 700 units each: the third finds a budget that is used up, for the rest of the day. */
TEST(test_a_check_before_each_request_keeps_a_budget_of_a_day)
{
    for (size_t i = 0; i < N(algorithms); i++) {
        unsigned served = 0;
        struct calling *calling = call_algorithm(&algorithms[i], "day");
        for (int n = 0; n < 20; n++) {
            if (call_hits(calling, "user=1", 0) == RLS_CODE_OK) {
                served++;
                call_hits(calling, "user=1", 700 / algorithms[i].unit);
            }
            pass(calling, S);
        }
        if (served != 2)
            fail_msg("%s: %u of 20 requests passed", algorithms[i].keys, served);
        call_no_more(calling);
    }
}
