/* SPDX-License-Identifier: MIT */
/*
 * Reservations over rules, in the table: a ticket is of limits that are not enforced, too, and what
 * becomes of one that is never settled is said by the request, or else by the rule.
 */
#include "unit/one_server.h"

#define RULE(key, n, more)                                                                         \
    "  - key: " key "\n    rate_limit: {unit: hour, requests_per_unit: " n ", algorithm: log" more \
    "}\n"
#define CANDIDATE(n) "    shadow: {unit: hour, requests_per_unit: " n ", algorithm: log}\n"
#define HEAD "domain: d\ndescriptors:\n"

static const char *const rules = HEAD RULE("user", "100", "") CANDIDATE("100")
    RULE("tight", "100", "") CANDIDATE("4") RULE("quiet", "100", "") "    shadow_mode: true\n" RULE(
        "gone", "100", ", on_expiry: release") CANDIDATE("100")
        RULE("some", "100", ", on_expiry: 3") RULE("all", "100", ", on_expiry: keep");

/* How many units the candidate of a rule would still allow. */
static uint32_t candidate_left(const char *text)
{
    uint32_t units = 0;
    while (!ask_verb(&s, REQUEST_PEEK, units + 1, text)->statuses[0].shadow_over)
        units++;
    return units;
}

static struct stint_ticket reserve(uint32_t cost, const char *text)
{
    const struct reply *reply = ask_verb(&s, REQUEST_RESERVE, cost, text);
    assert_int_equal(reply->error, REPLY_DECIDED);
    assert_int_equal(reply->decision.outcome, STINT_ALLOW);
    assert_true(reply->has_ticket);
    return reply->ticket;
}

static const struct reply *close_ticket(uint8_t verb, struct stint_ticket ticket, uint32_t used)
{
    const struct request request = {.verb = verb, .cost = used, .ticket = ticket};
    return ask(&s, &request);
}

/* After any number of requests a candidate with the live limit's numbers stands where it does. */
TEST(test_a_candidate_does_not_drift)
{
    static const struct {
        uint8_t verb;
        uint32_t used, left;
    } cases[] = {{REQUEST_SETTLE, 3, 97},
                 {REQUEST_SETTLE, 10, 87},
                 {REQUEST_SETTLE, 14, 73},
                 {REQUEST_CANCEL, 0, 73},
                 {REQUEST_SETTLE, 0, 73}};
    serve(&s, rules);
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_ticket ticket = reserve(10, "user=1");
        assert_int_equal(left(&s, "user=1"), candidate_left("user=1"));
        const struct reply *reply = close_ticket(cases[i].verb, ticket, cases[i].used);
        assert_int_equal(reply->error, REPLY_DECIDED);
        assert_int_equal(left(&s, "user=1"), cases[i].left);
        assert_int_equal(candidate_left("user=1"), cases[i].left);
        assert_int_equal(close_ticket(REQUEST_CANCEL, ticket, 0)->error, REPLY_GONE);
        assert_int_equal(candidate_left("user=1"), cases[i].left);
    }
}

/* What would have been denied was charged nothing, and a settle neither gives nor takes it. */
TEST(test_a_candidate_that_denied_is_left_alone)
{
    serve(&s, rules);
    struct stint_ticket ticket = reserve(5, "tight=1");
    assert_int_equal(candidate_left("tight=1"), 4);
    close_ticket(REQUEST_SETTLE, ticket, 2);
    assert_int_equal(candidate_left("tight=1"), 4);
    assert_int_equal(left(&s, "tight=1"), 98);
    ticket = reserve(3, "tight=1");
    assert_int_equal(candidate_left("tight=1"), 1);
    const struct reply *reply = close_ticket(REQUEST_SETTLE, ticket, 1);
    assert_int_equal(reply->decision.granted, 2); /* the live one's figures */
    assert_int_equal(reply->decision.limit, 100);
    assert_int_equal(candidate_left("tight=1"), 3);
}

/* ---- Never settled --------------------------------------------------------------------------- */

static void reserve_for(const char *text, const uint32_t *kept)
{
    struct asked asked;
    struct request *request = descriptors_of(&asked, text);
    request->verb = REQUEST_RESERVE;
    request->cost = 10;
    request->lifetime_ns = MINUTE;
    request->has_on_expiry = kept != NULL;
    request->kept_units = kept != NULL ? *kept : 0;
    assert_true(ask(&s, request)->has_ticket);
}

TEST(test_the_request_says_it_or_else_the_rule)
{
    static const uint32_t keep = STINT_KEEP_ALL, release = 0, floor = 4;
    static const struct {
        const char *text;
        const uint32_t *kept;
        uint32_t left;
    } cases[] = {
        {"user=1", NULL, 90},       {"gone=1", NULL, 100},     {"some=1", NULL, 97},
        {"all=1", NULL, 90},        {"user=2", &release, 100}, {"user=3", &floor, 96},
        {"gone=2", &keep, 90},      {"some=2", &release, 100}, {"all=2", &floor, 96},
        {"quiet=1", &release, 100},
    };
    serve(&s, rules);
    for (size_t i = 0; i < N(cases); i++)
        reserve_for(cases[i].text, cases[i].kept);
    /* Rules that are read anew do not change what was said when a reservation was made. */
    struct rules *others =
        rules_of(HEAD RULE("user", "100", ", on_expiry: release") CANDIDATE("100")
                     RULE("gone", "100", "") CANDIDATE("100") RULE("some", "100", "")
                         RULE("all", "100", "") RULE("quiet", "100", ""));
    assert_int_equal(server_state_set_rules(s.server_state, others, NULL), 0);
    rules_unref(others);
    s.now_ns += MINUTE;
    assert_int_equal(stint_expire(s.table, s.now_ns, 1000), 0);
    for (size_t i = 0; i < N(cases); i++)
        assert_int_equal(left(&s, cases[i].text), cases[i].left);
    assert_int_equal(candidate_left("gone=1"), 100); /* candidates go as the limits beside them */
    assert_int_equal(candidate_left("gone=2"), 90);
    reserve_for("user=9", NULL); /* and new ones go by the new rules */
    s.now_ns += MINUTE;
    stint_expire(s.table, s.now_ns, 1000);
    assert_int_equal(left(&s, "user=9"), 100);
}
