/* SPDX-License-Identifier: MIT */
/* Shared stores that fail, at once or late: what is answered for them, and what is taken back. */
#include "unit/test_shared.h"

#include "decide/pending.h"

SETUP
{
    shared_begin();
}

TEARDOWN
{
    shared_end();
}

TEST(test_a_store_that_fails_is_answered_for)
{
    struct asked asked;
    shared.fake.is_failing = true;
    assert_int_equal(decided("ip=1")->decision.outcome, STINT_DENY);
    assert_true(shared.s.reply.decision.retry_after_ns > 0);
    assert_int_equal(decided("open=1")->decision.outcome, STINT_ALLOW);
    assert_int_equal(decided("open=1; ip=1")->decision.outcome, STINT_DENY);
    assert_int_equal(decided("open=1; here=1")->decision.outcome, STINT_ALLOW);
    assert_int_equal(decided("ip=1; here=1")->decision.outcome, STINT_DENY);
    assert_int_equal(left(&shared.s, "here=1"), 2);
    const struct request_item item = {.quota = span_of_text("5/1m"), .key = span_of_text("k")};
    const struct request request = {.verb = REQUEST_TAKE, .cost = 1, .items = &item, .n_items = 1};
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_UNAVAILABLE);
    /* The same once it fails late. */
    shared.fake.is_failing = false;
    struct request late = *descriptors_of(&asked, "open=1");
    assert_int_equal(ask(&shared.s, &late)->error, REPLY_WAITS);
    late.pending = shared.s.reply.pending;
    fake_fail(&shared.fake, shared.fake.n_asks - 1, shared.s.now_ns);
    assert_int_equal(ask(&shared.s, &late)->error, REPLY_DECIDED);
    assert_int_equal(shared.s.reply.decision.outcome, STINT_ALLOW);
}

TEST(test_a_node_has_its_share_while_the_store_is_unavailable)
{
    shared.fake.unavailable_since_ns = shared.s.now_ns;
    shared.fake.is_failing = true;
    assert_int_equal(decided("share=1")->decision.outcome, STINT_DENY); /* full */
    shared.s.now_ns += 50 * S;
    assert_int_equal(decided("share=1")->decision.outcome, STINT_DENY);
    shared.fake.unavailable_since_ns = shared.s.now_ns - 59 * S;
    shared.s.now_ns += 1100 * MS;
    assert_int_equal(decided("share=1")->decision.outcome, STINT_DENY); /* local_for */
}

/* A refund names the time of the clock that granted the units, and only there they come back. */
TEST(test_a_share_gives_back_what_it_granted)
{
    static const char rules[] =
        "domain: d\n"
        "descriptors:\n"
        "  - key: share\n"
        "    rate_limit: {unit: minute, requests_per_unit: 3, store: red, on_store_error: local,"
        " local_start: empty}\n";
    struct asked asked;
    shared_end();
    serve(&shared.s, rules);
    fake_store_begin(&shared.fake);
    shared.stores[0] = &shared.fake.store;
    service_set_stores(shared.s.service, &shared.evaluation_stores);
    shared.fake.ahead_ns = YEAR;
    const uint64_t by_store_ns = decided("share=1")->at_ns;
    assert_in_range(by_store_ns, shared.s.now_ns + YEAR, UINT64_MAX);
    shared.fake.is_failing = true;
    const uint64_t by_share_ns = decided("share=1")->at_ns;
    assert_int_equal(by_share_ns, shared.s.now_ns);
    assert_int_equal(shared.s.reply.decision.remaining, 2);
    const uint64_t granted_at_ns[] = {by_store_ns, by_share_ns, STINT_NEVER_NS};
    const uint32_t left[] = {2, 3, 3};
    for (size_t i = 0; i < N(left); i++) {
        struct request *request = descriptors_of(&asked, "share=1");
        request->verb = REQUEST_REFUND;
        request->has_granted_at = granted_at_ns[i] != STINT_NEVER_NS;
        request->granted_at_ns = granted_at_ns[i];
        ask_until_answered(request);
        assert_int_equal(shared.s.reply.error, REPLY_DECIDED);
        assert_int_equal(shared.s.reply.decision.outcome, STINT_ALLOW);
        assert_int_equal(shared.s.reply.decision.granted, i == 1);
        assert_int_equal(shared.s.reply.decision.remaining, left[i]);
    }
    struct request *request = descriptors_of(&asked, "share=1");
    request->verb = REQUEST_RESET; /* decides nothing: an OK would say that the store has done it */
    ask_until_answered(request);
    assert_int_equal(shared.s.reply.error, REPLY_UNAVAILABLE);
}

/* Also where it is asked for another store between two runs, and others have asked meanwhile. */
TEST(test_a_share_stays_what_it_was_for_all_of_a_request)
{
    static const char rules[] =
        "domain: d\n"
        "descriptors:\n"
        "  - key: share\n"
        "    rate_limit: {unit: minute, requests_per_unit: 3, store: red, on_store_error: local,"
        " local_start: empty, local_for: 10s}\n"
        "  - key: wide\n"
        "    rate_limit: {unit: minute, requests_per_unit: 90, store: red, on_store_error: local,"
        " local_start: empty}\n"
        "  - key: soft\n"
        "    rate_limit: {unit: minute, requests_per_unit: 1, store: blue}\n"
        "    quota_mode: true\n";
    struct fake_store blue;
    struct asked asked;
    shared_end();
    serve(&shared.s, rules);
    fake_store_begin(&shared.fake);
    fake_store_begin(&blue);
    struct backend *stores[] = {&shared.fake.store, &blue.store};
    const struct evaluation_stores both = {.stores = stores, .n_stores = 2, .timeout_ns = 50 * MS};
    service_set_stores(shared.s.service, &both);
    shared.fake.is_failing = blue.is_prompt = true;
    assert_int_equal(decided("soft=1")->decision.outcome, STINT_ALLOW);
    blue.is_prompt = false;
    /* The first of the two soft ones denies, and is excluded: blue is asked once more. */
    struct request request = *descriptors_of(&asked, "share=1; soft=1; soft=2");
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    request.pending = shared.s.reply.pending;
    fake_let_all(&blue, shared.s.now_ns);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    request.pending = shared.s.reply.pending;
    assert_int_equal(decided("wide=1")->decision.remaining, 89);
    shared.fake.unavailable_since_ns = shared.s.now_ns - 11 * S; /* as is known by now */
    fake_let_all(&blue, shared.s.now_ns);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_DECIDED);
    assert_int_equal(shared.s.reply.statuses[0].decision.limit, 3);
    assert_int_equal(shared.s.reply.statuses[0].decision.remaining, 2);
    fake_store_end(&blue);
}

/* Asked again for as long as it waits; all that it asks the store fails. */
static const struct reply *failed_late(const struct request *request)
{
    struct request again = *request;
    while (ask(&shared.s, &again)->error == REPLY_WAITS) {
        again.pending = shared.s.reply.pending;
        assert_true(fake_waiting(&shared.fake) > 0);
        for (size_t i = 0; i < shared.fake.n_asks; i++)
            if (shared.fake.asks[i].op != NULL)
                fake_fail(&shared.fake, i, shared.s.now_ns);
    }
    return &shared.s.reply;
}

/* A fallback that is noted between two asks would be taken for the answer to the second. */
TEST(test_several_asks_that_fail_late_are_each_answered_for)
{
    static const uint8_t verbs[] = {REQUEST_RESET, REQUEST_REFUND, REQUEST_CHARGE, REQUEST_PEEK};
    struct asked asked;
    for (size_t i = 0; i < N(verbs); i++) {
        struct request *request = descriptors_of(&asked, "share=1; share=2");
        request->verb = verbs[i];
        bool is_reset = verbs[i] == REQUEST_RESET; /* it has no fallback */
        assert_int_equal(failed_late(request)->error, is_reset ? REPLY_UNAVAILABLE : REPLY_DECIDED);
        assert_string_equal(shared.s.reply.message,
                            is_reset ? "the store did not answer in time" : "");
    }
}

TEST(test_a_denial_that_fails_late_is_answered_for)
{
    struct asked asked;
    for (unsigned i = 0; i < 3; i++)
        decided("here=1");
    struct request request = *descriptors_of(&asked, "here=1; share=1; share=2; try=1");
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    fake_let_all(&shared.fake, shared.s.now_ns);
    request.pending = shared.s.reply.pending;
    assert_int_equal(failed_late(&request)->error, REPLY_DECIDED);
    assert_int_equal(shared.s.reply.decision.outcome, STINT_DENY);
    assert_int_equal(shared.s.reply.decision.binding, 0);
}

TEST(test_hits_that_come_back_and_fail_late_are_answered_for)
{
    struct asked asked;
    struct request request = *descriptors_of(&asked, "here=1; share=1; share=2");
    request.has_envoy_hits = true;
    for (size_t i = 1; i < 3; i++) {
        asked.descriptors[i].has_hits = asked.descriptors[i].is_refund = true;
        asked.descriptors[i].hits = 1;
    }
    assert_int_equal(failed_late(&request)->error, REPLY_DECIDED);
    assert_int_equal(shared.s.reply.decision.outcome, STINT_ALLOW);
}

/* Two stores: red, which fails as told, under rules that answer with an error; and blue. */
static void serve_two_stores(struct fake_store *blue, bool is_late)
{
    static const char rules[] =
        "domain: d\n"
        "descriptors:\n"
        "  - key: a\n"
        "    rate_limit: {unit: minute, requests_per_unit: 3, store: red, on_store_error: error}\n"
        "  - key: try\n"
        "    rate_limit: {unit: minute, requests_per_unit: 3, store: red, on_store_error: error}\n"
        "    shadow_mode: true\n"
        "  - key: b\n"
        "    rate_limit: {unit: minute, requests_per_unit: 3, store: blue}\n";
    static struct backend *stores[2];
    shared_end();
    serve(&shared.s, rules);
    fake_store_begin(&shared.fake);
    fake_store_begin(blue);
    stores[0] = &shared.fake.store;
    stores[1] = &blue->store;
    shared.evaluation_stores.stores = stores;
    shared.evaluation_stores.n_stores = 2;
    service_set_stores(shared.s.service, &shared.evaluation_stores);
    shared.fake.is_failing = !is_late;
    blue->is_prompt = !is_late;
}

/* All or none: a store that grants its part has it back where another fails, or cannot do it. */
TEST(test_an_error_of_one_store_gives_back_what_another_granted)
{
    static const uint8_t verbs[] = {REQUEST_TAKE, REQUEST_TAKE_UPTO};
    struct fake_store blue;
    struct asked asked;
    for (size_t i = 0; i < N(verbs); i++) {
        serve_two_stores(&blue, false);
        for (unsigned j = 0; j < 4; j++) {
            struct request *request = descriptors_of(&asked, "a=1; b=1");
            request->verb = verbs[i];
            assert_int_equal(ask(&shared.s, request)->error, REPLY_UNAVAILABLE);
        }
        shared.fake.is_failing = false;
        shared.fake.is_prompt = true;
        assert_int_equal(decided("a=1; b=1")->statuses[1].decision.remaining, 2);
        fake_store_end(&blue);
    }
}

TEST(test_a_limit_in_shadow_mode_makes_no_error)
{
    static const uint8_t verbs[] = {REQUEST_TAKE, REQUEST_TAKE_UPTO, REQUEST_CHARGE, REQUEST_PEEK};
    struct fake_store blue;
    struct asked asked;
    serve_two_stores(&blue, false);
    for (size_t i = 0; i < N(verbs); i++) {
        struct request *request = descriptors_of(&asked, "try=1; b=1");
        request->verb = verbs[i];
        assert_int_equal(ask(&shared.s, request)->error, REPLY_DECIDED);
        assert_int_equal(shared.s.reply.statuses[0].decision.outcome, STINT_ALLOW);
        assert_int_equal(shared.s.reply.statuses[1].decision.remaining, i < 3 ? 2 - i : 0);
    }
    struct request *request = descriptors_of(&asked, "try=1");
    request->verb = REQUEST_RESET;
    assert_int_equal(ask(&shared.s, request)->error, REPLY_UNAVAILABLE);
    fake_store_end(&blue);
}

TEST(test_an_error_waits_for_what_comes_back)
{
    static const enum backend_outcome outcomes[] = {BACKEND_FAILED, BACKEND_REFUSED};
    struct fake_store blue;
    struct asked asked;
    for (size_t i = 0; i < N(outcomes); i++) {
        serve_two_stores(&blue, true);
        struct request request = *descriptors_of(&asked, "a=1; b=1");
        assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
        request.pending = shared.s.reply.pending;
        fake_fail_as(&shared.fake, 0, outcomes[i], "red says no", shared.s.now_ns);
        assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
        request.pending = shared.s.reply.pending;
        fake_let_all(&blue, shared.s.now_ns);
        assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
        request.pending = shared.s.reply.pending;
        assert_int_equal(blue.asks[1].verb, REQUEST_REFUND);
        fake_let_all(&blue, shared.s.now_ns);
        assert_int_equal(ask(&shared.s, &request)->error,
                         i == 0 ? REPLY_UNAVAILABLE : REPLY_BAD_REQUEST);
        assert_string_equal(shared.s.reply.message, "red says no");
        shared.fake.is_prompt = blue.is_prompt = true;
        assert_int_equal(decided("b=1")->decision.remaining, 2);
        fake_store_end(&blue);
    }
}

/* A store may use its text again for the next failure before the request is evaluated. */
TEST(test_each_request_is_told_its_own_fault)
{
    static const char *const faults[] = {"the first fault", "the second fault"};
    struct asked asked[2];
    struct request requests[2];
    char text[32];
    for (size_t i = 0; i < 2; i++) {
        requests[i] = *descriptors_of(&asked[i], "ip=1");
        assert_int_equal(ask(&shared.s, &requests[i])->error, REPLY_WAITS);
        requests[i].pending = shared.s.reply.pending;
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof(text), "%s", faults[i]);
        fake_fail_as(&shared.fake, i, BACKEND_REFUSED, text, shared.s.now_ns);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ask(&shared.s, &requests[i])->error, REPLY_BAD_REQUEST);
        assert_string_equal(shared.s.reply.message, faults[i]);
    }
}

/* A result must not be read as one of another kind, or as more of them. */
TEST(test_a_run_that_differs_from_the_first_loses_its_request)
{
    struct pending_requests home = {.free_records = NULL};
    static const struct {
        enum pending_kind kind;
        size_t n;
    } others[] = {{PENDING_BAN, 3}, {PENDING_BAN, 1}, {PENDING_CLOCK, 4}, {PENDING_CLOCK, 2}};
    for (size_t i = 0; i < N(others); i++) {
        bool is_new;
        struct pending *pending = pending_new(&home, S, S);
        assert_non_null(pending_note(pending, PENDING_CLOCK, 3, &is_new));
        pending_rewind(pending);
        assert_null(pending_note(pending, others[i].kind, others[i].n, &is_new));
        assert_non_null(pending->loss);
        assert_null(pending_note(pending, PENDING_CLOCK, 3, &is_new));
        pending_free(pending);
    }
    pending_requests_deinit(&home);
}
