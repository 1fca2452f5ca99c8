/* SPDX-License-Identifier: MIT */
/* What becomes of a request on descriptors: all or none, and what counts beside that. */
#include "unit/served.h"

#define LIMIT(n) "    rate_limit: {unit: minute, requests_per_unit: " n "}\n"
#define NAMED(n, name) "    rate_limit: {unit: minute, requests_per_unit: " n ", name: " name "}\n"

static const char *const plain =
    "domain: d\n"
    "descriptors:\n"
    "  - key: ip\n" LIMIT("3") "  - key: user\n" LIMIT("5") "  - key: none\n"
                                                            "  - key: free\n"
                                                            "    rate_limit: {unlimited: true}\n"
                                                            "  - key: shut\n" LIMIT("0");

TEST(test_what_nothing_limits_is_allowed)
{
    serve(&s, plain);
    assert_int_equal(outcome(&s, "other=1"), STINT_ALLOW);
    assert_null(s.reply.statuses[0].rule);
    assert_null(s.reply.statuses[0].quota);
    assert_int_equal(outcome(&s, "none=1"), STINT_ALLOW);
    assert_int_equal(outcome(&s, "free=1"), STINT_ALLOW);
    assert_non_null(s.reply.statuses[0].rule);
    assert_int_equal(s.reply.statuses[0].decision.remaining, UINT32_MAX);
    assert_int_equal(s.reply.decision.remaining, UINT32_MAX);
}

TEST(test_a_limit_of_0_is_always_over)
{
    serve(&s, plain);
    assert_int_equal(outcome(&s, "shut=1"), STINT_NEVER);
    assert_true(s.reply.statuses[0].over);
}

TEST(test_one_that_denies_leaves_the_others_uncharged)
{
    serve(&s, plain);
    assert_int_equal(allowed_in_a_row(&s, "ip=1; user=1"), 3);
    assert_true(s.reply.statuses[0].over);
    assert_int_equal(s.reply.decision.binding, 0);
    assert_false(s.reply.statuses[1].over);
    assert_int_equal(s.reply.statuses[1].decision.outcome, STINT_ALLOW);
    /* It is told how it stands, not how it would had the request been allowed. */
    assert_int_equal(s.reply.statuses[1].decision.remaining, 2);
    assert_int_equal(s.reply.statuses[1].decision.granted, 0);
    assert_int_equal(left(&s, "user=1"), 2);
}

TEST(test_values_have_a_counter_each)
{
    serve(&s, plain);
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 3);
    assert_int_equal(allowed_in_a_row(&s, "ip=2"), 3);
}

TEST(test_the_same_descriptor_twice_adds_up)
{
    serve(&s, plain);
    assert_int_equal(outcome(&s, "ip=1; ip=1"), STINT_ALLOW);
    assert_int_equal(s.reply.statuses[1].decision.granted, 1);
    assert_int_equal(outcome(&s, "ip=1; ip=1"), STINT_DENY);
    assert_int_equal(left(&s, "ip=1"), 1);
}

TEST(test_each_descriptor_may_have_hits_of_its_own)
{
    struct asked asked;
    serve(&s, plain);
    struct request *request = descriptors_of(&asked, "ip=1; user=1");
    asked.descriptors[0].has_hits = true;
    asked.descriptors[0].hits = 0;
    asked.descriptors[1].has_hits = true;
    asked.descriptors[1].hits = 4;
    assert_int_equal(ask(&s, request)->decision.outcome, STINT_ALLOW);
    assert_int_equal(left(&s, "ip=1"), 3);
    assert_int_equal(left(&s, "user=1"), 1);
    asked.descriptors[1].is_refund = true;
    asked.descriptors[1].hits = 2;
    assert_int_equal(ask(&s, request)->decision.outcome, STINT_ALLOW);
    assert_int_equal(left(&s, "user=1"), 3);
}

TEST(test_a_request_that_is_denied_gives_nothing_back)
{
    struct asked asked;
    serve(&s, plain);
    assert_int_equal(allowed_in_a_row(&s, "ip=1; user=1"), 3);
    struct request *request = descriptors_of(&asked, "ip=1; user=1");
    asked.descriptors[1].is_refund = true;
    assert_int_equal(ask(&s, request)->decision.outcome, STINT_DENY);
    assert_int_equal(left(&s, "user=1"), 2);
}

TEST(test_a_request_may_bring_its_quota)
{
    struct asked asked;
    struct stint_quota wide = quota_of("10/1m");
    serve(&s, plain);
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 3);
    struct request *request = descriptors_of(&asked, "ip=1");
    asked.descriptors[0].override = &wide;
    unsigned n = 0;
    while (ask(&s, request)->decision.outcome == STINT_ALLOW)
        n++;
    assert_int_equal(n, 7); /* it is the rule's state that it goes on with */
    request = descriptors_of(&asked, "other=1");
    asked.descriptors[0].override = &wide;
    for (n = 0; ask(&s, request)->decision.outcome == STINT_ALLOW; n++) {
    }
    assert_int_equal(n, 10); /* also where no rule matches */
    assert_int_equal(outcome(&s, "other=1"), STINT_ALLOW);
    request = descriptors_of(&asked, "free=1");
    asked.descriptors[0].override = &wide;
    for (n = 0; ask(&s, request)->decision.outcome == STINT_ALLOW; n++) {
    }
    assert_int_equal(n, 10);
}

TEST(test_replaced_limits_do_not_count)
{
    serve(&s, "domain: d\n"
              "descriptors:\n"
              "  - key: all\n" NAMED("2", "base") "  - key: premium\n"
                                                  "    rate_limit:\n"
                                                  "      unit: minute\n"
                                                  "      requests_per_unit: 4\n"
                                                  "      name: more\n"
                                                  "      replaces: [{name: base}]\n");
    assert_int_equal(allowed_in_a_row(&s, "all=1; premium=1"), 4);
    assert_true(s.reply.statuses[0].is_replaced);
    assert_int_equal(s.reply.decision.binding, 1);
    assert_int_equal(left(&s, "all=1"), 2);
    assert_int_equal(allowed_in_a_row(&s, "all=1"), 2);
}

/* ---- shadow_mode ----------------------------------------------------------------------------- */

static const char *const shadowed =
    "domain: d\n"
    "descriptors:\n"
    "  - key: live\n" LIMIT("4") "  - key: quiet\n"
                                 "    shadow_mode: true\n" LIMIT("2");

TEST(test_a_shadow_rule_is_counted_and_allowed)
{
    serve(&s, shadowed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(outcome(&s, "quiet=1"), STINT_ALLOW);
        assert_false(s.reply.statuses[0].over);
        assert_int_equal(s.reply.decision.remaining, 1 - i);
    }
    assert_int_equal(outcome(&s, "quiet=1"), STINT_ALLOW);
    assert_true(s.reply.statuses[0].over);
    assert_int_equal(s.reply.statuses[0].decision.outcome, STINT_ALLOW);
    assert_int_equal(s.reply.statuses[0].decision.retry_after_ns, 0);
}

TEST(test_a_shadow_rule_counts_what_it_would_have_admitted)
{
    serve(&s, shadowed);
    assert_int_equal(allowed_in_a_row(&s, "live=1"), 4);
    assert_int_equal(outcome(&s, "live=1; quiet=1"), STINT_DENY);
    assert_false(s.reply.statuses[1].over);
    assert_int_equal(left(&s, "quiet=1"), 2); /* enforced, it would not have been charged */
}

/* ---- shadow: a candidate --------------------------------------------------------------------- */

#define CANDIDATE(live, candidate)                                                                 \
    "domain: d\n"                                                                                  \
    "descriptors:\n"                                                                               \
    "  - key: ip\n"                                                                                \
    "    rate_limit: {unit: minute, requests_per_unit: " live "}\n"                                \
    "    shadow: {unit: minute, requests_per_unit: " candidate "}\n"                               \
    "  - key: user\n"                                                                              \
    "    rate_limit: {unit: minute, requests_per_unit: 6}\n"

/* How often the candidate says yes to ten requests, whatever the live quota says. */
static unsigned candidate_allows(const char *yaml)
{
    unsigned n = 0;
    serve(&s, yaml);
    for (int i = 0; i < 10; i++) {
        outcome(&s, "ip=1");
        n += !s.reply.statuses[0].shadow_over;
    }
    serve_no_more(&s);
    return n;
}

TEST(test_a_candidate_decides_as_if_it_were_live)
{
    assert_int_equal(candidate_allows(CANDIDATE("5", "2")), 2);
    assert_int_equal(candidate_allows(CANDIDATE("5", "5")), 5);
    /* A looser one goes on counting where the live one denies. */
    assert_int_equal(candidate_allows(CANDIDATE("5", "8")), 8);
}

TEST(test_a_candidate_is_not_charged_for_what_others_deny)
{
    serve(&s, CANDIDATE("9", "8"));
    assert_int_equal(allowed_in_a_row(&s, "user=1"), 6);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(outcome(&s, "ip=1; user=1"), STINT_DENY);
        assert_false(s.reply.statuses[0].shadow_over);
    }
}

/* ---- quota_mode ------------------------------------------------------------------------------ */

static const char *const quotas =
    "domain: d\n"
    "descriptors:\n"
    "  - key: hard\n" LIMIT("6") "  - key: a\n"
                                 "    quota_mode: true\n" LIMIT("2") "  - key: b\n"
                                                                     "    quota_mode: true\n" LIMIT(
                                                                         "4");

TEST(test_a_quota_that_is_over_steps_back)
{
    serve(&s, quotas);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(outcome(&s, "a=1; b=1; hard=1"), STINT_ALLOW);
        assert_int_equal(s.reply.statuses[0].over, i >= 2);
    }
    /* Now both are over: denied, and nobody is charged. */
    assert_int_equal(outcome(&s, "a=1; b=1; hard=1"), STINT_DENY);
    assert_true(s.reply.statuses[0].over && s.reply.statuses[1].over);
    assert_int_equal(left(&s, "hard=1"), 2);
}

TEST(test_a_hard_limit_denies_whatever_quotas_say)
{
    serve(&s, quotas);
    assert_int_equal(allowed_in_a_row(&s, "hard=1"), 6);
    assert_int_equal(outcome(&s, "a=1; hard=1"), STINT_DENY);
    assert_int_equal(s.reply.decision.binding, 1);
    assert_int_equal(left(&s, "a=1"), 2);
}

TEST(test_the_wait_ends_with_the_first_quota_that_returns)
{
    serve(&s, quotas);
    assert_int_equal(allowed_in_a_row(&s, "a=1"), 2);
    s.now_ns += 20 * S;
    assert_int_equal(allowed_in_a_row(&s, "b=1"), 4);
    assert_int_equal(outcome(&s, "a=1; b=1"), STINT_DENY);
    uint64_t wait_ns = s.reply.decision.retry_after_ns;
    s.now_ns += wait_ns - 1;
    assert_int_equal(outcome(&s, "a=1; b=1"), STINT_DENY);
    s.now_ns += 1;
    assert_int_equal(outcome(&s, "a=1; b=1"), STINT_ALLOW);
    assert_true(s.reply.statuses[1].over);
}

/* ---- The other verbs ------------------------------------------------------------------------- */

TEST(test_peek_and_explain_charge_nothing)
{
    serve(&s, plain);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ask_verb(&s, REQUEST_PEEK, 1, "ip=1")->decision.outcome, STINT_ALLOW);
        assert_int_equal(ask_verb(&s, REQUEST_EXPLAIN, 1, "ip=1")->decision.remaining, 2);
    }
    assert_int_equal(ask_verb(&s, REQUEST_EXPLAIN, 4, "ip=1")->decision.outcome, STINT_NEVER);
    assert_int_equal(left(&s, "ip=1"), 3);
}

TEST(test_take_upto_takes_what_all_have)
{
    serve(&s, plain);
    const struct reply *reply = ask_verb(&s, REQUEST_TAKE_UPTO, 9, "ip=1; user=1");
    assert_int_equal(reply->decision.outcome, STINT_ALLOW);
    assert_int_equal(reply->decision.granted, 3);
    assert_int_equal(left(&s, "user=1"), 2);
    reply = ask_verb(&s, REQUEST_TAKE_UPTO, 9, "ip=1; user=1");
    assert_int_equal(reply->decision.outcome, STINT_DENY);
    assert_int_equal(reply->decision.granted, 0);
    assert_int_equal(reply->decision.binding, 0);
    assert_int_equal(left(&s, "user=1"), 2);
}

TEST(test_reserve_and_settle)
{
    serve(&s, plain);
    struct reply reserved = *ask_verb(&s, REQUEST_RESERVE, 3, "user=1");
    assert_true(reserved.has_ticket);
    assert_int_equal(left(&s, "user=1"), 2);
    struct request settle = {.verb = REQUEST_SETTLE, .cost = 1, .ticket = reserved.ticket};
    assert_int_equal(ask(&s, &settle)->error, REPLY_DECIDED);
    assert_int_equal(left(&s, "user=1"), 4);
    assert_int_equal(ask(&s, &settle)->error, REPLY_GONE);
    assert_false(ask_verb(&s, REQUEST_RESERVE, 5, "user=1")->has_ticket);
    assert_int_equal(s.reply.decision.outcome, STINT_DENY);
    assert_false(ask_verb(&s, REQUEST_RESERVE, 1, "other=1")->has_ticket);
    assert_int_equal(s.reply.decision.outcome, STINT_ALLOW);
}

TEST(test_charge_and_refund)
{
    serve(&s, plain);
    assert_int_equal(ask_verb(&s, REQUEST_CHARGE, 2, "user=1; ip=1")->decision.granted, 2);
    assert_int_equal(left(&s, "user=1"), 3);
    assert_int_equal(left(&s, "ip=1"), 1);
    assert_int_equal(ask_verb(&s, REQUEST_REFUND, 1, "user=1; ip=1")->decision.granted, 1);
    assert_int_equal(left(&s, "user=1"), 4);
}

TEST(test_block_and_reset)
{
    struct asked asked;
    serve(&s, plain);
    struct request *request = descriptors_of(&asked, "ip=1");
    request->verb = REQUEST_BLOCK;
    request->lifetime_ns = 10 * S;
    assert_int_equal(ask(&s, request)->error, REPLY_DECIDED);
    assert_int_equal(outcome(&s, "ip=1"), STINT_DENY);
    assert_true(s.reply.statuses[0].banned);
    assert_int_equal(s.reply.decision.retry_after_ns, 10 * S);
    assert_int_equal(outcome(&s, "ip=2"), STINT_ALLOW);
    request->verb = REQUEST_RESET;
    assert_int_equal(ask(&s, request)->error, REPLY_DECIDED);
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 3);
    assert_int_equal(ask(&s, request)->error, REPLY_DECIDED);
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 3);
}

TEST(test_a_blocked_sibling_is_not_charged)
{
    struct asked asked;
    serve(&s, plain);
    struct request *request = descriptors_of(&asked, "ip=1");
    request->verb = REQUEST_BLOCK;
    request->lifetime_ns = 10 * S;
    ask(&s, request);
    assert_int_equal(outcome(&s, "user=1; ip=1"), STINT_DENY);
    assert_int_equal(s.reply.decision.binding, 1);
    assert_int_equal(left(&s, "user=1"), 5);
}

static int set_quota(const char *descriptors, const char *spec)
{
    struct asked asked;
    struct request *request = descriptors_of(&asked, descriptors);
    request->verb = REQUEST_SET_QUOTA;
    request->quota = span_of_text(spec);
    return ask(&s, request)->error;
}

static uint32_t limit_of(const char *descriptor)
{
    struct asked asked;
    struct request *request = descriptors_of(&asked, descriptor);
    request->verb = REQUEST_PEEK;
    return ask(&s, request)->decision.limit;
}

/* Leaves room for one quota more. */
static void fill_overrides(void)
{
    struct stint_table_info info;
    char descriptor[32];
    for (unsigned i = 0;; i++) {
        stint_table_info(s.table, s.now_ns, &info);
        if (info.overrides + 1 == info.overrides_max)
            return;
        snprintf(descriptor, sizeof(descriptor), "ip=other%u", i);
        assert_int_equal(set_quota(descriptor, "9/1m"), REPLY_DECIDED);
    }
}

TEST(test_all_keys_get_another_quota_or_none)
{
    serve(&s, plain);
    assert_int_equal(set_quota("ip=1; user=1", "7/1m"), REPLY_DECIDED);
    assert_int_equal(limit_of("ip=1"), 7);
    assert_int_equal(limit_of("user=1"), 7);

    assert_int_equal(set_quota("ip=1; nothing=1", "8/1m"), REPLY_BAD_REQUEST);
    assert_int_equal(limit_of("ip=1"), 7);
    assert_int_equal(set_quota("user=1; nothing=1", ""), REPLY_BAD_REQUEST);
    assert_int_equal(limit_of("user=1"), 7);

    fill_overrides();
    assert_int_equal(set_quota("ip=1; ip=2; ip=1; ip=3", "8/1m"), REPLY_FULL);
    assert_int_equal(limit_of("ip=1"), 7);
    assert_int_equal(limit_of("ip=2"), 3);
    assert_int_equal(limit_of("ip=3"), 3);
    assert_int_equal(set_quota("ip=1; ip=2", "8/1m"), REPLY_DECIDED);
    assert_int_equal(limit_of("ip=1"), 8);
    assert_int_equal(limit_of("ip=2"), 8);
}
