/* SPDX-License-Identifier: MIT */
/*
 * Requests whose states are in a shared store: asked again once it has answered, and then told what
 * the table would have told; all or nothing with what is in the table. test_service_faults.c has
 * stores that fail.
 */
#include "unit/test_shared.h"

#include "base/splitmix.h"
#include "service/metrics/metrics.h"
#include "service/server_state.h"

SETUP
{
    shared_begin();
}

TEARDOWN
{
    shared_end();
}

/* ---- Waiting --------------------------------------------------------------------------------- */

TEST(test_a_request_waits_and_is_answered_when_asked_again)
{
    struct asked asked;
    struct request request = *descriptors_of(&asked, "ip=1");
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    assert_int_equal(shared.fake.n_asks, 1);
    request.pending = shared.s.reply.pending;
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    assert_int_equal(shared.fake.n_asks, 1);
    request.pending = shared.s.reply.pending;
    fake_let(&shared.fake, 0, shared.s.now_ns);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_DECIDED);
    assert_int_equal(shared.s.reply.decision.outcome, STINT_ALLOW);
    assert_int_equal(shared.s.reply.decision.remaining, 2);
    assert_string_equal(shared.s.reply.statuses[0].rule->path, "ip");
    assert_int_equal(decided("ip=1")->decision.remaining, 1);
    assert_int_equal(decided("ip=1")->decision.remaining, 0);
    assert_int_equal(decided("ip=1")->decision.outcome, STINT_DENY);
    assert_int_equal(decided("ip=2")->decision.remaining, 2);
}

static void count_call(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    ++*(unsigned *)arg;
}

TEST(test_who_waits_is_called_once_all_answers_are_there)
{
    struct asked asked;
    unsigned n_calls = 0;
    struct request request = *descriptors_of(&asked, "ip=1; ip=2");
    request.verb = REQUEST_CHARGE; /* each by itself: two asks at once */
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    assert_int_equal(fake_waiting(&shared.fake), 2);
    request.pending = shared.s.reply.pending;
    service_on_answers(request.pending, count_call, &n_calls);
    fake_let(&shared.fake, 1, shared.s.now_ns);
    assert_int_equal(n_calls, 0);
    fake_let(&shared.fake, 0, shared.s.now_ns);
    assert_int_equal(n_calls, 1);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_DECIDED);
}

TEST(test_who_is_gone_is_forgotten)
{
    struct asked asked;
    assert_int_equal(ask(&shared.s, descriptors_of(&asked, "ip=1"))->error, REPLY_WAITS);
    service_drop(shared.s.service, shared.s.reply.pending);
    assert_int_equal(shared.fake.n_forgotten, 1);
}

TEST(test_a_request_goes_on_under_the_rules_it_began_under)
{
    struct asked asked;
    struct request request = *descriptors_of(&asked, "ip=1");
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    request.pending = shared.s.reply.pending;
    struct rules *rules = rules_of("domain: other\n");
    assert_int_equal(server_state_set_rules(shared.s.server_state, rules, NULL), 0);
    rules_unref(rules);
    fake_let_all(&shared.fake, shared.s.now_ns);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_DECIDED);
    assert_int_equal(shared.s.reply.statuses[0].decision.remaining, 2);
    assert_string_equal(shared.s.reply.statuses[0].rule->path, "ip");
    assert_int_equal(ask(&shared.s, descriptors_of(&asked, "ip=1"))->error, REPLY_DECIDED);
    assert_null(shared.s.reply.statuses[0].rule);
    server_state_free_retired(shared.s.server_state);
}

/* Each is done while a request waits; the next request finds a limit of 9. */
static void set_rules(void)
{
    struct rules *rules = rules_of("domain: d\n"
                                   "descriptors:\n"
                                   "  - key: ip\n"
                                   "    rate_limit: {unit: minute, requests_per_unit: 9}\n");
    assert_int_equal(server_state_set_rules(shared.s.server_state, rules, NULL), 0);
    rules_unref(rules);
}

static void set_own_quota(void)
{
    struct asked asked;
    struct request request = *descriptors_of(&asked, "ip=1");
    request.verb = REQUEST_SET_QUOTA;
    request.quota = span_of_text("window 9/1m");
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_DECIDED);
}

TEST(test_a_request_goes_on_under_the_quotas_it_began_under)
{
    static void (*const changes[])(void) = {set_own_quota, set_rules};
    for (size_t i = 0; i < N(changes); i++) {
        struct asked asked, other;
        struct request request = *descriptors_of(&asked, i == 0 ? "ip=1; here=1" : "ip=2; here=2");
        assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
        request.pending = shared.s.reply.pending;
        changes[i]();
        ask(&shared.s, descriptors_of(&other, "nothing=1")); /* fills the evaluation */
        fake_let_all(&shared.fake, shared.s.now_ns);
        assert_int_equal(ask(&shared.s, &request)->error, REPLY_DECIDED);
        for (size_t j = 0; j < 2; j++) {
            const struct target *status = &shared.s.reply.statuses[j];
            assert_int_equal(status->decision.limit, 3);
            assert_int_equal(status->decision.remaining, 2);
            assert_string_equal(status->rule->path, j == 0 ? "ip" : "here");
        }
        assert_int_equal(decided(i == 0 ? "ip=1" : "ip=2")->decision.limit, 9);
    }
    server_state_free_retired(shared.s.server_state);
}

TEST(test_what_is_not_its_turn_is_begun_only_where_it_has_to_wait)
{
    struct asked asked;
    struct request request = *descriptors_of(&asked, "here=1");
    request.is_ahead = true;
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_AHEAD);
    assert_int_equal(left(&shared.s, "here=1"), 3);
    request = *descriptors_of(&asked, "here=1; ip=1");
    request.is_ahead = true;
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_AHEAD);
    request = *descriptors_of(&asked, "ip=1");
    request.is_ahead = true;
    shared.fake.is_prompt = true;
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_AHEAD);
    assert_int_equal(shared.fake.n_asks, 0);
    shared.fake.is_prompt = false;
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    service_drop(shared.s.service, shared.s.reply.pending);
    request.verb = REQUEST_RESET;
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_AHEAD);
}

/* ---- The same as the table ------------------------------------------------------------------- */

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    return (uint32_t)(splitmix_next(seed) >> 33) % below;
}

static void describe_any(char *text, uint64_t *seed)
{
    static const char *const keys[] = {"ip", "here", "sums", "soft", "try", "next", "open"};
    uint32_t n = 1 + draw(seed, 3);
    *text = '\0';
    for (uint32_t i = 0; i < n; i++) {
        char one[32];
        const char *key = keys[draw(seed, N(keys))]; /* one draw after the other: the same seeds */
        uint32_t value = draw(seed, 2);              /* are the same requests with any compiler */
        snprintf(one, sizeof(one), "%s%s=%u", i > 0 ? "; " : "", key, value);
        strcat(text, one);
    }
}

static void assert_same(const struct request *request, const struct reply *a, const struct reply *b,
                        const char *text)
{
    if (a->error != b->error || a->decision.outcome != b->decision.outcome ||
        a->n_statuses != b->n_statuses)
        fail_msg("%s: %u %u, and %u %u by the table", text, a->error, a->decision.outcome, b->error,
                 b->decision.outcome);
    for (size_t i = 0; i < a->n_statuses; i++) {
        const struct target *x = &a->statuses[i], *y = &b->statuses[i];
        if (x->over != y->over || x->decision.outcome != y->decision.outcome ||
            x->decision.remaining != y->decision.remaining ||
            x->decision.limit != y->decision.limit || x->shadow_over != y->shadow_over ||
            (x->decision.outcome == STINT_DENY &&
             x->decision.retry_after_ns != y->decision.retry_after_ns))
            fail_msg("%s of %u: %s, status %zu: over %d outcome %u remaining %u, and %d %u %u by "
                     "the table",
                     request_verbs[request->verb].name, request->cost, text, i, x->over,
                     x->decision.outcome, x->decision.remaining, y->over, y->decision.outcome,
                     y->decision.remaining);
    }
}

/* One node has its states in the store, but for some; the other has all in its table. */
TEST(test_decisions_are_those_of_the_table)
{
    static const uint8_t verbs[] = {REQUEST_TAKE, REQUEST_TAKE,      REQUEST_TAKE,  REQUEST_PEEK,
                                    REQUEST_TAKE, REQUEST_TAKE_UPTO, REQUEST_CHARGE};
    struct test_server alone;
    struct asked asked, asked_alone;
    uint64_t seed = 0, denied = 0;
    serve(&alone, RULES(""));
    for (unsigned i = 0; i < 20000; i++) {
        char text[128];
        if (i % 5000 == 0)
            seed = i + 4711;
        describe_any(text, &seed);
        uint64_t step_ns = draw(&seed, 20) * S;
        shared.s.now_ns += step_ns;
        alone.now_ns += step_ns;
        struct request *request = descriptors_of(&asked, text);
        struct request *request_alone = descriptors_of(&asked_alone, text);
        request->verb = request_alone->verb = verbs[draw(&seed, N(verbs))];
        request->cost = request_alone->cost = draw(&seed, 3);
        ask_until_answered(request);
        ask(&alone, request_alone);
        assert_same(request, &shared.s.reply, &alone.reply, text);
        denied += alone.reply.decision.outcome == STINT_DENY;
    }
    assert_in_range(denied, 1000, 19000);
    server_close(&alone);
}

TEST(test_units_come_back_and_keys_are_forgotten)
{
    struct asked asked;
    decided("ip=1");
    uint64_t at_ns = shared.s.reply.at_ns;
    decided("ip=1");
    struct request *request = descriptors_of(&asked, "ip=1");
    request->verb = REQUEST_REFUND;
    request->has_granted_at = true;
    request->granted_at_ns = at_ns;
    ask_until_answered(request);
    assert_int_equal(shared.s.reply.decision.granted, 1);
    assert_int_equal(shared.s.reply.decision.remaining, 2);
    request->verb = REQUEST_RESET;
    ask_until_answered(request);
    assert_int_equal(decided("ip=1")->decision.remaining, 2);
}

/* A request over both has the store's time, which counts from 1970. The table granted nothing then.
 */
TEST(test_what_a_store_dates_is_no_grant_of_the_table)
{
    struct asked asked;
    uint64_t at_ns = decided("here=1")->at_ns;
    struct request *request = descriptors_of(&asked, "here=1");
    request->verb = REQUEST_REFUND;
    request->has_granted_at = true;
    request->granted_at_ns = at_ns + 50 * YEAR;
    ask_until_answered(request);
    assert_int_equal(shared.s.reply.decision.granted, 0);
    request->granted_at_ns = at_ns;
    ask_until_answered(request);
    assert_int_equal(shared.s.reply.decision.granted, 1);
}

TEST(test_a_ban_counts_a_request_once)
{
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(decided("angry=1; next=1")->statuses[0].decision.outcome,
                         i < 3 ? STINT_ALLOW : STINT_DENY);
    assert_int_equal(decided("angry=1; next=2")->decision.outcome, STINT_DENY);
    assert_false(shared.s.reply.statuses[0].banned);
    assert_int_equal(decided("angry=1; next=2")->decision.outcome, STINT_DENY);
    assert_true(shared.s.reply.statuses[0].banned);
}

TEST(test_a_ban_counts_no_denial_of_a_request_that_waits)
{
    struct asked asked;
    for (unsigned i = 0; i < 3; i++)
        decided("angry=1; next=1");
    descriptors_of(&asked, "angry=1; next=1")->retry_until_ns = shared.s.now_ns + 2 * MINUTE;
    for (unsigned i = 0; i < 3; i++) {
        ask_until_answered(&asked.request);
        assert_int_equal(shared.s.reply.decision.outcome, STINT_DENY);
        assert_true(shared.s.reply.again_at_ns > 0);
    }
    decided("angry=1; next=1");
    assert_false(shared.s.reply.statuses[0].banned);
    decided("angry=1; next=1");
    assert_true(shared.s.reply.statuses[0].banned);
}

/* ---- Ids ------------------------------------------------------------------------------------- */

TEST(test_an_id_is_the_store_s_to_know)
{
    struct asked asked;
    struct request *request = descriptors_of(&asked, "ip=1");
    request->id = span_of_text("once");
    ask_until_answered(request);
    assert_false(shared.s.reply.replayed);
    assert_true(shared.fake.asks[0].has_id);
    ask_until_answered(request);
    assert_true(shared.s.reply.replayed);
    assert_int_equal(shared.s.reply.decision.remaining, 2);
    request->cost = 2;
    ask_until_answered(request);
    assert_int_equal(shared.s.reply.error, REPLY_CONFLICT);
    request->cost = 1;
    request->id = span_of_text("twice");
    ask_until_answered(request);
    assert_int_equal(shared.s.reply.decision.remaining, 1);
}

/* The store has granted the id, the table denies: the retry finds its unit, and charges none. */
TEST(test_a_grant_of_an_id_is_kept_for_its_retry)
{
    struct asked asked;
    for (unsigned i = 0; i < 2; i++)
        decided("here=1");
    struct request request = *descriptors_of(&asked, "ip=1; here=1");
    request.id = span_of_text("once");
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    struct pending *pending = shared.s.reply.pending;
    decided("here=1"); /* the last unit, while the store is asked */
    fake_let_all(&shared.fake, shared.s.now_ns);
    request.pending = pending;
    ask_until_answered(&request);
    assert_int_equal(shared.s.reply.decision.outcome, STINT_DENY);
    assert_int_equal(decided("ip=1")->decision.remaining, 1);
    shared.s.now_ns += 70 * S;
    request.pending = NULL;
    ask_until_answered(&request);
    assert_int_equal(shared.s.reply.decision.outcome, STINT_ALLOW);
    assert_true(shared.s.reply.replayed);
    assert_int_equal(left(&shared.s, "here=1"), 2);
}

/* The same without an id: the unit goes back. */
TEST(test_what_the_table_denies_goes_back_to_the_store)
{
    struct asked asked;
    for (unsigned i = 0; i < 2; i++)
        decided("here=1");
    struct request request = *descriptors_of(&asked, "ip=1; here=1");
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    struct pending *pending = shared.s.reply.pending;
    decided("here=1");
    fake_let_all(&shared.fake, shared.s.now_ns);
    request.pending = pending;
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS); /* for the refund */
    request.pending = shared.s.reply.pending;
    fake_let_all(&shared.fake, shared.s.now_ns);
    assert_int_equal(ask(&shared.s, &request)->decision.outcome, STINT_DENY);
    assert_int_equal(shared.s.reply.statuses[0].decision.remaining, 3);
    assert_int_equal(decided("ip=1")->decision.remaining, 2);
}

/* Every run is at the time of the first, but a store that is asked later has less time for it. */
TEST(test_all_asks_of_a_request_have_the_time_of_one)
{
    struct asked asked;
    struct request request = *descriptors_of(&asked, "next=1"); /* has a candidate */
    uint64_t begun_ns = shared.s.now_ns;
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    request.pending = shared.s.reply.pending;
    shared.s.now_ns += 40 * MS;
    fake_let_all(&shared.fake, shared.s.now_ns);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    request.pending = shared.s.reply.pending;
    assert_int_equal(shared.fake.n_asks, 2);
    assert_int_equal(shared.fake.asks[1].now_ns, begun_ns + 40 * MS);
    assert_int_equal(shared.fake.asks[1].deadline_ns, begun_ns + 50 * MS);
    fake_let_all(&shared.fake, shared.s.now_ns);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_DECIDED);
}

/* ---- Quotas of single keys ------------------------------------------------------------------- */

/* Else each request with the key would be an error from then on. */
TEST(test_a_quota_that_its_store_does_not_take_is_not_set)
{
    static const struct {
        const char *text;
        enum reply_error error;
        uint32_t limit;
    } cases[] = {{"here=1; ip=1", REPLY_BAD_REQUEST, 3}, {"here=1", REPLY_DECIDED, 5}};
    struct asked asked;
    shared.fake.accepts_code = STINT_E_RANGE;
    for (size_t i = 0; i < N(cases); i++) {
        struct request *request = descriptors_of(&asked, cases[i].text);
        request->verb = REQUEST_SET_QUOTA;
        request->quota = span_of_text("window 5/1500ns");
        assert_int_equal(ask(&shared.s, request)->error, cases[i].error);
        assert_string_equal(shared.s.reply.message,
                            i == 0 ? "the store does not take this quota" : "");
        assert_int_equal(decided("here=1")->decision.limit, cases[i].limit);
    }
    assert_int_equal(decided("ip=1")->decision.limit, 3);
}

/* ---- Reservations that are never settled ----------------------------------------------------- */

#define LIFETIME_NS (10 * S)

static void reserve(unsigned n)
{
    struct asked asked;
    for (unsigned i = 0; i < n; i++) {
        struct request *request = descriptors_of(&asked, "ip=1");
        request->verb = REQUEST_RESERVE;
        request->cost = 0;
        request->lifetime_ns = LIFETIME_NS;
        request->has_on_expiry = true;
        ask_until_answered(request);
        assert_int_equal(shared.s.reply.error, REPLY_DECIDED);
        assert_true(shared.s.reply.has_ticket);
    }
}

static size_t count_asks(uint8_t verb)
{
    size_t n = 0;
    for (size_t i = 0; i < shared.fake.n_asks; i++)
        n += shared.fake.asks[i].verb == verb;
    return n;
}

static void assert_lost(unsigned n)
{
    char expected[64];
    const struct metrics_facts facts = {.table = shared.s.table, .table_now_ns = shared.s.now_ns};
    struct page page = {0};
    metrics_write(server_state_metrics(shared.s.server_state), &facts, METRICS_PROMETHEUS, &page);
    snprintf(expected, sizeof(expected), "\nstint_expiries_lost_total %u\n", n);
    assert_non_null(strstr(page.text, expected));
    page_free(&page);
}

/* At most 64 are asked for at once: the next ones as soon as an answer comes. */
TEST(test_many_reservations_end_together)
{
    reserve(1000);
    shared.s.now_ns += LIFETIME_NS + S;
    service_expire(shared.s.service, shared.s.now_ns);
    assert_int_equal(count_asks(REQUEST_EXPIRE), 64);
    fake_let_all(&shared.fake, shared.s.now_ns);
    assert_int_equal(count_asks(REQUEST_EXPIRE), 1000);
    service_expire(shared.s.service, shared.s.now_ns + 60 * MINUTE);
    assert_int_equal(count_asks(REQUEST_EXPIRE), 1000);
    assert_lost(0);
}

TEST(test_what_a_store_has_forgotten_is_lost)
{
    static const enum backend_outcome outcomes[] = {BACKEND_GONE, BACKEND_FAILED, BACKEND_GONE};
    static const uint64_t delays_ns[] = {0, 10 * MINUTE, 10 * MINUTE};
    static const unsigned lost[] = {0, 1, 2};
    for (size_t i = 0; i < N(outcomes); i++) {
        reserve(1);
        shared.s.now_ns += LIFETIME_NS + S + delays_ns[i];
        service_expire(shared.s.service, shared.s.now_ns);
        fake_fail_as(&shared.fake, shared.fake.n_asks - 1, outcomes[i], NULL, shared.s.now_ns);
        assert_lost(lost[i]);
        service_expire(shared.s.service, shared.s.now_ns + MINUTE);
        assert_int_equal(fake_waiting(&shared.fake), 0);
    }
}

/* ---- CL.THROTTLE ----------------------------------------------------------------------------- */

static struct request throttle_request(const char *key)
{
    return (struct request){.verb = REQUEST_THROTTLE,
                            .cost = 1,
                            .key = span_of_text(key),
                            .throttle = {.max_burst = 1, .count_per_period = 60, .period_s = 60}};
}

TEST(test_keys_of_throttle_are_in_the_store)
{
    struct request request = throttle_request("k");
    ask_until_answered(&request);
    assert_int_equal(shared.s.reply.decision.remaining, 1);
    ask_until_answered(&request);
    ask_until_answered(&request);
    assert_int_equal(shared.s.reply.decision.outcome, STINT_DENY);
    request.verb = REQUEST_FIND;
    ask_until_answered(&request);
    assert_true(shared.s.reply.found);
    assert_int_equal(shared.s.reply.expires_after_ns, 2 * S);
    request.verb = REQUEST_FORGET;
    ask_until_answered(&request);
    assert_true(shared.s.reply.found);
    request.verb = REQUEST_FIND;
    ask_until_answered(&request);
    assert_false(shared.s.reply.found);
}

/* Only administrators lift a block. */
TEST(test_a_deleted_key_stays_blocked)
{
    static const char *const keys[] = {"a", "b"};
    for (size_t store = 0; store < N(keys); store++) {
        struct request request = throttle_request(keys[store]);
        shared.evaluation_stores.throttle = store;
        service_set_stores(shared.s.service, &shared.evaluation_stores);
        ask_until_answered(&request);
        assert_int_equal(
            stint_block(shared.s.table, keys[store], 1, shared.s.now_ns + 60 * S, shared.s.now_ns),
            0);
        request.verb = REQUEST_FIND;
        ask_until_answered(&request);
        assert_true(shared.s.reply.found);
        assert_int_equal(shared.s.reply.expires_after_ns, S);
        request.verb = REQUEST_FORGET;
        ask_until_answered(&request);
        assert_true(shared.s.reply.found);
        ask_until_answered(&request);
        assert_false(shared.s.reply.found);
        request.verb = REQUEST_THROTTLE;
        ask_until_answered(&request);
        assert_int_equal(shared.s.reply.decision.outcome, STINT_DENY);
    }
}

/* ---- Counters -------------------------------------------------------------------------------- */

static struct request count_of(const char *key, int64_t amount, uint64_t expiry_ns)
{
    return (struct request){.verb = REQUEST_COUNT,
                            .key = span_of_text(key),
                            .amount = amount,
                            .lifetime_ns = expiry_ns};
}

static void assert_counted(const char *key, int64_t amount, uint64_t count, uint64_t left_ns)
{
    struct request request = count_of(key, amount, 10 * S + 1);
    assert_int_equal(ask_until_answered(&request), 2);
    assert_int_equal(shared.s.reply.error, REPLY_DECIDED);
    assert_int_equal(shared.s.reply.counter.count, count);
    assert_int_equal(shared.s.reply.counter.expires_after_ns, left_ns);
}

TEST(test_counters_are_in_the_store)
{
    struct stint_counter counter;
    shared.s.now_ns = S;
    assert_counted("hits", 5, 5, 10 * S + US); /* in whole microseconds */
    shared.s.now_ns = 4 * S;
    assert_counted("hits", UINT32_MAX, UINT64_C(5) + UINT32_MAX, 7 * S + US);
    assert_counted("hits", -7, UINT64_C(4294967293), 7 * S + US);
    assert_counted("hits", 0, UINT64_C(4294967293), 7 * S + US);
    assert_counted("other", -7, 0, 0);
    assert_int_equal(shared.fake.asks[0].verb, REQUEST_CHARGE);
    assert_int_equal(shared.fake.asks[2].verb, REQUEST_REFUND);
    assert_int_equal(shared.fake.asks[3].verb, REQUEST_PEEK);
    assert_string_equal(shared.fake.asks[0].items[0].name, ":hits");
    assert_int_equal(stint_count(shared.s.table, "hits", 4, 0, 0, shared.s.now_ns, &counter, NULL),
                     0);
    assert_int_equal(counter.count, 0);
    struct request reset = {.verb = REQUEST_COUNT_RESET, .key = span_of_text("hits")};
    assert_int_equal(ask_until_answered(&reset), 2);
    assert_int_equal(shared.s.reply.error, REPLY_DECIDED);
    assert_counted("hits", 0, 0, 0);
}

TEST(test_what_no_counter_takes_is_not_sent)
{
    const struct request requests[] = {
        count_of("hits", 1, 0),
        count_of("hits", 1, STINT_COUNT_EXPIRY_MAX_NS + 1),
        count_of("hits", INT64_C(1) << 32, S),
        count_of("hits", -(INT64_C(1) << 32), 0),
    };
    for (size_t i = 0; i < N(requests); i++) {
        assert_int_equal(ask(&shared.s, &requests[i])->error, REPLY_BAD_REQUEST);
        assert_true(strlen(shared.s.reply.message) > 20);
    }
    struct request early = count_of("hits", 1, S);
    early.is_ahead = true; /* counts of one connection are made one after the other */
    assert_int_equal(ask(&shared.s, &early)->error, REPLY_AHEAD);
    assert_int_equal(shared.fake.n_asks, 0);
}

TEST(test_a_count_of_a_store_that_fails_is_an_error)
{
    for (int64_t amount = -1; amount <= 1; amount++) {
        struct request request = count_of("hits", amount, S);
        assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
        request.pending = shared.s.reply.pending;
        fake_fail(&shared.fake, shared.fake.n_asks - 1, shared.s.now_ns);
        assert_int_equal(ask(&shared.s, &request)->error, REPLY_UNAVAILABLE);
        assert_string_equal(shared.s.reply.message, "the store did not answer in time");
    }
    struct request request = count_of("hits", 1, S);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_WAITS);
    service_drop(shared.s.service, shared.s.reply.pending);
    assert_int_equal(shared.fake.n_forgotten, 1);
}

TEST(test_counters_of_a_table_beside_a_store)
{
    shared.evaluation_stores.counters = 0;
    service_set_stores(shared.s.service, &shared.evaluation_stores);
    struct request request = count_of("hits", 3, S);
    assert_int_equal(ask(&shared.s, &request)->error, REPLY_DECIDED);
    assert_int_equal(shared.s.reply.counter.count, 3);
    assert_int_equal(shared.fake.n_asks, 0);
}
