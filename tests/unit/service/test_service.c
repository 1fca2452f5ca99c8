/* SPDX-License-Identifier: MIT */
/* A service as a frontend sees it: items, CL.THROTTLE, ids, roles, quotas of single keys, new
 * rules. */
#include "unit/one_server.h"

#include "service/server_state.h"
#include "table/table.h"

static const char *const yaml = "domain: d\n"
                                "descriptors:\n"
                                "  - key: ip\n"
                                "    rate_limit: {unit: minute, requests_per_unit: 3}\n"
                                "  - key: free\n"
                                "    rate_limit: {unlimited: true}\n";

/* ---- Items ----------------------------------------------------------------------------------- */

static struct request item_request(struct request_item *item, const char *quota, const char *key)
{
    *item = (struct request_item){.quota = span_of_text(quota), .key = span_of_text(key)};
    return (struct request){.verb = REQUEST_TAKE, .cost = 1, .items = item, .n_items = 1};
}

static unsigned items_in_a_row(const struct request *request)
{
    unsigned n = 0;
    while (n < 1000 && ask(&s, request)->decision.outcome == STINT_ALLOW)
        n++;
    return n;
}

TEST(test_what_cannot_be_meant_is_told)
{
    struct request_item item;
    serve(&s, yaml);
    const char *const specs[] = {"", "ten a minute", "10/1m initial=empty", "log 900000/1s"};
    for (size_t i = 0; i < N(specs); i++) {
        struct request request = item_request(&item, specs[i], "k");
        assert_int_equal(ask(&s, &request)->error, REPLY_BAD_REQUEST);
        assert_true(strlen(s.reply.message) > 10);
        assert_int_equal(s.reply.n_statuses, 0);
    }
    struct request nothing = {.verb = REQUEST_TAKE, .cost = 1};
    assert_int_equal(ask(&s, &nothing)->error, REPLY_BAD_REQUEST);
    struct asked asked;
    struct request *request = descriptors_of(&asked, "ip=1");
    request->domain = span_of_text("");
    assert_int_equal(ask(&s, request)->error, REPLY_BAD_REQUEST);
    request = descriptors_of(&asked, "ip=1; ");
    assert_int_equal(ask(&s, request)->error, REPLY_BAD_REQUEST);
    assert_non_null(strstr(s.reply.message, "descriptor 2"));
}

/* All keys of the request, or none. */
TEST(test_what_nothing_limits_cannot_be_blocked)
{
    serve(&s, "domain: d\n"
              "descriptors:\n"
              "  - key: ip\n"
              "    rate_limit: {unit: minute, requests_per_unit: 3}\n"
              "  - key: free\n"
              "    rate_limit: {unlimited: true}\n");
    static const char *const texts[][2] = {
        {"ip=1; other=1", "no rule matches descriptor 2"},
        {"ip=1; free=1", "the rule of descriptor 2 is unlimited"},
    };
    struct asked asked;
    for (size_t i = 0; i < N(texts); i++) {
        struct request *request = descriptors_of(&asked, texts[i][0]);
        request->verb = REQUEST_BLOCK;
        request->lifetime_ns = S;
        assert_int_equal(ask(&s, request)->error, REPLY_BAD_REQUEST);
        assert_non_null(strstr(s.reply.message, texts[i][1]));
        assert_int_equal(outcome(&s, "ip=1"), STINT_ALLOW);
        request->domain = span_of_text("unknown");
        assert_int_equal(ask(&s, request)->error, REPLY_BAD_REQUEST);
    }
}

static enum reply_error block(const char *text, uint64_t for_ns)
{
    struct asked asked;
    struct request *request = descriptors_of(&asked, text);
    request->verb = REQUEST_BLOCK;
    request->lifetime_ns = for_ns;
    return ask(&s, request)->error;
}

/* All or none: those before the one that finds no space are as they were. */
TEST(test_a_list_that_does_not_fit_blocks_none)
{
    char text[64];
    unsigned n_full = 0;
    serve(&s, "domain: d\n"
              "descriptors:\n"
              "  - key: ip\n"
              "    rate_limit: {unit: minute, requests_per_unit: 3}\n");
    assert_int_equal(block("ip=known", 10 * S), REPLY_DECIDED);
    for (unsigned i = 0; i < 200; i++) {
        snprintf(text, sizeof(text), "ip=known; ip=%u; ip=known; ip=more%u", i, i);
        bool is_full = block(text, 20 * S) != REPLY_DECIDED;
        n_full += is_full;
        snprintf(text, sizeof(text), "ip=%u", i);
        assert_int_equal(outcome(&s, text), is_full ? STINT_ALLOW : STINT_DENY);
        snprintf(text, sizeof(text), "ip=more%u", i);
        assert_int_equal(outcome(&s, text), is_full ? STINT_ALLOW : STINT_DENY);
    }
    assert_in_range(n_full, 100, 199);
    assert_int_equal(outcome(&s, "ip=known"), STINT_DENY);
    assert_int_equal(s.reply.decision.retry_after_ns, 20 * S);
    assert_int_not_equal(block("ip=known; ip=199; ip=more199", 30 * S), REPLY_DECIDED);
    assert_int_equal(outcome(&s, "ip=known"), STINT_DENY);
    assert_int_equal(s.reply.decision.retry_after_ns, 20 * S);
}

/* How many of 1,100 different quotas of an algorithm are refused as too many. */
static int refused_of(const char *algorithm, uint8_t verb)
{
    struct request_item item;
    char spec[40];
    int refused = 0;
    for (int i = 1; i <= 1100; i++) {
        snprintf(spec, sizeof(spec), "%s %d/1m", algorithm, i);
        struct request request = item_request(&item, spec, "k");
        request.verb = verb;
        refused += ask(&s, &request)->error == REPLY_FULL;
    }
    return refused;
}

/* Of gcra any number is stored; a ticket needs to name its quota. */
TEST(test_more_quotas_than_the_table_has_space_for)
{
    struct request_item item;
    serve(&s, NULL);
    assert_in_range(refused_of("window", REQUEST_TAKE), 1100 - 1024, 1099);
    assert_int_equal(refused_of("fixed_window", REQUEST_TAKE), 1100);
    assert_int_equal(refused_of("gcra", REQUEST_TAKE), 0);
    assert_int_equal(refused_of("gcra", REQUEST_CHARGE), 0);
    assert_int_equal(refused_of("gcra", REQUEST_RESERVE), 1100);
    assert_non_null(strstr(s.reply.message, "`quotas`"));
    struct request request = item_request(&item, "window 1/1m", "other"); /* the old ones go on */
    assert_int_equal(ask(&s, &request)->decision.outcome, STINT_ALLOW);
}

/* ---- CL.THROTTLE ----------------------------------------------------------------------------- */

static struct request throttle(int64_t max_burst, uint64_t count, uint64_t period_s)
{
    return (struct request){.verb = REQUEST_THROTTLE,
                            .cost = 1,
                            .key = span_of_text("k"),
                            .throttle = {max_burst, count, period_s}};
}

TEST(test_throttle_at_rates_that_others_get_wrong)
{
    struct request request = throttle(999999, 1000003, 1);
    serve(&s, NULL);
    request.cost = 1000000;
    assert_int_equal(ask(&s, &request)->decision.outcome, STINT_ALLOW);
    request.cost = 1;
    assert_int_equal(ask(&s, &request)->decision.outcome, STINT_DENY);
    assert_in_range(s.reply.decision.retry_after_ns, 990, 1010);
    /* Four in a nanosecond: exact in units of 1/32 ns. */
    request = throttle(3999999999, 4000000000, 1);
    request.key = span_of_text("fast");
    request.cost = 4000000000;
    assert_int_equal(ask(&s, &request)->decision.outcome, STINT_ALLOW);
    request.cost = 4;
    assert_int_equal(ask(&s, &request)->decision.retry_after_ns, 1);
    s.now_ns += 1;
    assert_int_equal(ask(&s, &request)->decision.outcome, STINT_ALLOW);
    /* What cannot be kept is refused, not rounded to no limit at all. */
    request = throttle(10, 3999999999, 1);
    assert_int_equal(ask(&s, &request)->error, REPLY_BAD_REQUEST);
    const struct request wrong[] = {throttle(1, 0, 1), throttle(1, 1, 0),
                                    throttle(1, 1, UINT64_MAX), throttle(UINT32_MAX, 1, 1),
                                    throttle(1, UINT64_C(1) << 32, 1)};
    for (size_t i = 0; i < N(wrong); i++) {
        assert_int_equal(ask(&s, &wrong[i])->error, REPLY_BAD_REQUEST);
        assert_true(strlen(s.reply.message) > 10);
    }
}

/* More sets of numbers than are kept: each is right, whoever was there before. */
TEST(test_throttle_with_many_sets_of_numbers)
{
    char key[16];
    serve(&s, NULL);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 600; i++) {
            struct request request = throttle((uint64_t)i % 20, 1 + (uint64_t)i % 30, 60);
            snprintf(key, sizeof(key), "%d/%d", round, i);
            request.key = span_of_text(key);
            assert_int_equal(items_in_a_row(&request), i % 20 + 1);
        }
}

TEST(test_to_forget_lifts_no_block)
{
    struct request take = throttle(4, 10, 60), forget = {.verb = REQUEST_FORGET, .key = take.key};
    serve(&s, NULL);
    ask(&s, &take);
    assert_int_equal(stint_block(s.table, "k", 1, s.now_ns + MINUTE, s.now_ns), 0);
    ask(&s, &forget);
    assert_int_equal(ask(&s, &take)->decision.outcome, STINT_DENY);
}

/* ---- Ids ------------------------------------------------------------------------------------- */

TEST(test_an_id_of_another_caller_is_another_one)
{
    struct asked asked;
    serve(&s, yaml);
    struct request *request = descriptors_of(&asked, "ip=1");
    request->id = span_of_text("a");
    ask(&s, request);
    const struct caller other = {.name = "other", .roles = ACCESS_ALL};
    service_ask(s.service, request, &other, s.now_ns, &s.reply);
    assert_int_equal(s.reply.error, REPLY_DECIDED);
    assert_false(s.reply.replayed);
}

TEST(test_a_table_that_keeps_no_answers_says_so)
{
    struct stint_table *table;
    struct server_state *server_state;
    struct reply reply;
    const struct stint_table_options options = {.clock = STINT_CLOCK_VIRTUAL};
    struct request request = throttle(4, 10, 60);
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    assert_int_equal(server_state_open(&server_state,
                                       &(struct server_state_options){.table = table, .workers = 1},
                                       NULL),
                     0);
    struct service *service = service_new(server_state, 0);
    request.id = span_of_text("a");
    service_ask(service, &request, &anybody, START, &reply);
    assert_int_equal(reply.error, REPLY_UNAVAILABLE);
    service_free(service);
    server_state_close(server_state);
    stint_table_close(table);
}

/* ---- Roles ----------------------------------------------------------------------------------- */

TEST(test_roles)
{
    struct asked asked;
    serve(&s, yaml);
    struct request *request = descriptors_of(&asked, "ip=1");
    const struct caller asks = {.name = "a", .roles = ACCESS_ASK};
    const struct caller rules = {.name = "b", .roles = ACCESS_ADMINISTER};
    for (uint8_t verb = 0; verb < REQUEST_VERBS; verb++) {
        if (request_verbs[verb].is_of_stores)
            continue;
        request->verb = verb;
        service_ask(s.service, request, &asks, s.now_ns, &s.reply);
        assert_int_equal(s.reply.error == REPLY_FORBIDDEN, request_verbs[verb].is_administrative);
        service_ask(s.service, request, &rules, s.now_ns, &s.reply);
        assert_int_equal(s.reply.error == REPLY_FORBIDDEN, !request_verbs[verb].is_administrative);
    }
}

/* Tables and stores keep them with the ids of requests, also for other versions of this program. */
TEST(test_numbers_of_verbs_in_digests_stay)
{
    static const uint8_t digests[REQUEST_VERBS] = {
        [REQUEST_TAKE] = 0,      [REQUEST_TAKE_UPTO] = 2, [REQUEST_RESERVE] = 3,
        [REQUEST_SETTLE] = 4,    [REQUEST_CANCEL] = 5,    [REQUEST_RENEW] = 6,
        [REQUEST_REFUND] = 7,    [REQUEST_CHARGE] = 8,    [REQUEST_BOOK] = 9,
        [REQUEST_BLOCK] = 10,    [REQUEST_RESET] = 11,    [REQUEST_SET_QUOTA] = 12,
        [REQUEST_THROTTLE] = 14, [REQUEST_FORGET] = 15,
    };
    for (size_t verb = 0; verb < REQUEST_VERBS; verb++)
        assert_int_equal(request_verbs[verb].digest, digests[verb]);
}

/* ---- Quotas of single keys ------------------------------------------------------------------- */

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
    serve(&s, yaml);
    assert_int_equal(set_quota("ip=1", "7/1m"), REPLY_DECIDED);
    fill_overrides();
    assert_int_equal(set_quota("ip=1; ip=2; ip=1; ip=3", "8/1m"), REPLY_FULL);
    assert_non_null(strstr(s.reply.message, "restore that of the rule for some"));
    assert_int_equal(limit_of("ip=1"), 7);
    assert_int_equal(limit_of("ip=2"), 3);
    assert_int_equal(limit_of("ip=3"), 3);
    assert_int_equal(set_quota("ip=1; ip=2", "8/1m"), REPLY_DECIDED);
    assert_int_equal(limit_of("ip=1"), 8);
    assert_int_equal(limit_of("ip=2"), 8);
}

/* ---- Rules that change ----------------------------------------------------------------------- */

TEST(test_new_rules_hold_from_the_next_request_on)
{
    serve(&s, yaml);
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 3);
    struct rules *rules = rules_of("domain: d\n"
                                   "descriptors:\n"
                                   "  - key: ip\n"
                                   "    rate_limit: {unit: minute, requests_per_unit: 5}\n"
                                   "  - key: new\n"
                                   "    rate_limit: {unit: minute, requests_per_unit: 1}\n");
    uint64_t generation = server_state_generation(s.server_state);
    assert_int_equal(server_state_set_rules(s.server_state, rules, NULL), 0);
    assert_int_equal(server_state_generation(s.server_state), generation + 1);
    rules_unref(rules);
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 2); /* the same rule: its state goes on */
    assert_int_equal(allowed_in_a_row(&s, "new=1"), 1);
    assert_int_equal(server_state_set_rules(s.server_state, NULL, NULL), 0);
    assert_null(server_state_rules(s.server_state));
    assert_int_equal(allowed_in_a_row(&s, "new=1"), 1000);
}

/* It takes milliseconds to free many, which no request is to wait for. */
TEST(test_a_worker_never_frees_rules)
{
    serve(&s, yaml);
    const struct ruleset *first = s.server_state->ruleset;
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 3);
    assert_int_equal(server_state_set_rules(s.server_state, NULL, NULL), 0);
    assert_ptr_equal(s.server_state->retired, first); /* the service may be in the midst of them */
    server_state_free_retired(s.server_state);
    assert_ptr_equal(s.server_state->retired, first);
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 1000);
    assert_ptr_equal(s.server_state->retired, first); /* it has let them go, and no more */
    assert_int_equal(first->refs, 1);
    server_state_free_retired(s.server_state);
    assert_null(s.server_state->retired);
    /* Where nobody asks. */
    assert_int_equal(server_state_set_rules(s.server_state, NULL, NULL), 0);
    assert_non_null(s.server_state->retired);
    service_renew_rules(s.service);
    server_state_free_retired(s.server_state);
    assert_null(s.server_state->retired);
}

TEST(test_rules_that_the_table_cannot_keep_are_refused)
{
    struct stint_error error;
    serve(&s, yaml);
    struct rules *rules = rules_of("domain: d\n"
                                   "descriptors:\n"
                                   "  - key: ip\n"
                                   "    rate_limit: {algorithm: log, unit: minute, "
                                   "requests_per_unit: 5000}\n");
    assert_int_equal(server_state_set_rules(s.server_state, rules, &error), STINT_E_MISMATCH);
    assert_non_null(strstr(error.message, "test.yaml:3"));
    rules_unref(rules);
    assert_int_equal(allowed_in_a_row(&s, "ip=1"), 3);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Decided at `now`, for a caller that waits until then. */
static uint64_t again_at(const char *text, uint64_t until_ns)
{
    struct asked asked;
    descriptors_of(&asked, text)->retry_until_ns = until_ns;
    return ask(&s, &asked.request)->again_at_ns;
}

TEST(test_when_to_ask_again)
{
    serve(&s, "domain: d\n"
              "descriptors:\n"
              "  - key: ip\n"
              "    rate_limit: {period: 4s, requests_per_unit: 1, algorithm: log}\n");
    uint64_t begin_ns = s.now_ns, end_ns = begin_ns + 10 * S;
    assert_int_equal(again_at("ip=1", end_ns), 0);
    assert_int_equal(again_at("ip=1", end_ns), begin_ns + 4 * S);
    s.now_ns = begin_ns + 3 * S;
    assert_int_equal(again_at("ip=1", end_ns), begin_ns + 4 * S);
    assert_int_equal(again_at("ip=1", begin_ns + 4 * S), begin_ns + 4 * S);
    assert_int_equal(again_at("ip=1", begin_ns + 4 * S - 1), 0);
    assert_int_equal(again_at("ip=1", 0), 0);
}
