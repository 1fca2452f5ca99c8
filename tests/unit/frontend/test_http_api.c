/* SPDX-License-Identifier: MIT */
/*
 * /v1 and /json as a client sees them, to the byte. Times are virtual, so every number is known.
 */
#include "unit/test_http_client.h"

static const char *const yaml =
    "domain: shop\n"
    "descriptors:\n"
    "  - key: ip\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2, algorithm: fixed_window, name: per-ip}\n"
    "  - key: free\n"
    "    rate_limit: {unlimited: true}\n"
    "  - key: org\n"
    "    rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: gcra}\n";

#define RESERVE "POST /v1/reserve" JSON "{\"quota\":\"log 10/1m\",\"key\":\"r\","
#define TAKE "POST /v1/take" JSON
#define IP "\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"ip\",\"value\":\"1\"}]}]"

static struct http_client t;

SETUP
{
    http_open(&t, yaml, &(struct http_config_options){0}, NULL);
}

TEARDOWN
{
    http_close(&t);
}

/* ---- Decisions ------------------------------------------------------------------------------- */

TEST(test_a_take_is_allowed_until_it_is_denied)
{
    t.s.now_ns = START + 15 * S + 1;
    assert_answer(&t, TAKE "{" IP "}",
                  "200\n"
                  "Content-Type: application/json\n"
                  "RateLimit-Policy: \"per-ip\";q=2;w=60\n"
                  "RateLimit: \"per-ip\";r=1;t=45\n"
                  "\n"
                  "{\"outcome\":\"allow\",\"granted\":1,\"limit\":2,\"remaining\":1,"
                  "\"retry_after_ms\":0,\"reset_after_ms\":45000,\"binding\":0,"
                  "\"at\":\"60015000000001\",\"statuses\":[{\"outcome\":\"allow\",\"granted\":1,"
                  "\"limit\":2,\"remaining\":1,\"retry_after_ms\":0,\"reset_after_ms\":45000,"
                  "\"rule\":\"ip\"}]}");
    assert_int_equal(status_of(&t, TAKE "{" IP "}"), 200);
    assert_answer(&t, TAKE "{" IP "}",
                  "429\n"
                  "Content-Type: application/problem+json\n"
                  "RateLimit-Policy: \"per-ip\";q=2;w=60\n"
                  "RateLimit: \"per-ip\";r=0;t=45\n"
                  "Retry-After: 45\n"
                  "\n"
                  "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\","
                  "\"title\":\"Quota exceeded\",\"status\":429,\"detail\":\"The units are not free "
                  "now; retry after retry_after_ms.\",\"violated-policies\":[\"per-ip\"],"
                  "\"outcome\":\"deny\",\"granted\":0,\"limit\":2,\"remaining\":0,"
                  "\"retry_after_ms\":45000,\"reset_after_ms\":45000,\"binding\":0,"
                  "\"at\":\"60015000000001\",\"statuses\":[{\"outcome\":\"deny\",\"granted\":0,"
                  "\"limit\":2,\"remaining\":0,\"retry_after_ms\":45000,\"reset_after_ms\":45000,"
                  "\"rule\":\"ip\"}]}");
    t.s.now_ns = START + MINUTE;
    assert_int_equal(status_of(&t, TAKE "{" IP "}"), 200);
}

TEST(test_what_never_fits_has_no_retry_after)
{
    assert_answer(
        &t, TAKE "{\"quota\":\"gcra 5/1s\",\"key\":\"k\",\"cost\":6}",
        "429\n"
        "Content-Type: application/problem+json\n"
        "RateLimit-Policy: \"gcra 5/1s\";q=5;w=1\n"
        "RateLimit: \"gcra 5/1s\";r=5\n"
        "\n"
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\","
        "\"title\":\"Quota exceeded\",\"status\":429,\"detail\":\"The cost is larger "
        "than the quota ever allows.\",\"violated-policies\":[\"gcra 5/1s\"],\"outcome\":\"never\","
        "\"granted\":0,\"limit\":5,\"remaining\":5,\"retry_after_ms\":null,"
        "\"reset_after_ms\":0,\"binding\":0,\"at\":\"60000000000000\"}");
}

TEST(test_a_quota_of_the_caller_s_needs_no_rules)
{
    assert_answer(&t, TAKE "{\"quota\":\"gcra 10/1s\",\"key\":\"k\",\"cost\":4}",
                  "200\n"
                  "Content-Type: application/json\n"
                  "RateLimit-Policy: \"gcra 10/1s\";q=10;w=1\n"
                  "RateLimit: \"gcra 10/1s\";r=6;t=1\n"
                  "\n"
                  "{\"outcome\":\"allow\",\"granted\":4,\"limit\":10,\"remaining\":6,"
                  "\"retry_after_ms\":0,\"reset_after_ms\":400,\"binding\":0,"
                  "\"at\":\"60000000000000\"}");
}

TEST(test_items_are_taken_all_or_none)
{
    static const char two[] = TAKE "{\"items\":[{\"quota\":\"5/1m\",\"key\":\"u\"},"
                                   "{\"quota\":\"3/1m\",\"key\":\"o\",\"cost\":3}]}";
    assert_int_equal(status_of(&t, two), 200);
    assert_int_equal(status_of(&t, two), 429);
    assert_says(&t, two, "\"violated-policies\":[\"3/1m\"]");
    assert_says(&t, "POST /v1/peek" JSON "{\"quota\":\"5/1m\",\"key\":\"u\",\"cost\":0}",
                "\"remaining\":4");
}

TEST(test_peek_tells_a_denial_with_200)
{
    assert_int_equal(status_of(&t, TAKE "{" IP ",\"cost\":2}"), 200);
    assert_says(&t, "POST /v1/peek" JSON "{" IP "}", "200\n");
    assert_says(&t, "POST /v1/peek" JSON "{" IP "}", "\"outcome\":\"deny\"");
    assert_null(strstr(t.answer, "Retry-After"));
}

TEST(test_unlimited_and_unmatched_have_no_metrics)
{
    assert_answer(&t,
                  TAKE "{\"domain\":\"shop\",\"descriptors\":["
                       "{\"entries\":[{\"key\":\"free\",\"value\":\"x\"}]},"
                       "{\"entries\":[{\"key\":\"none\"}]}]}",
                  "200\n"
                  "Content-Type: application/json\n"
                  "\n"
                  "{\"outcome\":\"allow\",\"granted\":1,\"limit\":null,\"remaining\":null,"
                  "\"retry_after_ms\":0,\"reset_after_ms\":0,\"binding\":0,"
                  "\"at\":\"60000000000000\",\"statuses\":[{\"outcome\":\"allow\",\"granted\":1,"
                  "\"limit\":null,\"remaining\":null,\"retry_after_ms\":0,\"reset_after_ms\":0,"
                  "\"rule\":\"free\"},{\"outcome\":\"allow\",\"granted\":1,\"limit\":null,"
                  "\"remaining\":null,\"retry_after_ms\":0,\"reset_after_ms\":0,\"rule\":null,"
                  "\"unmatched\":\"descriptor\"}]}");
}

/* ---- Tickets, refunds, administration -------------------------------------------------------- */

static void copy_member(char *copy, size_t size, const char *answer, const char *name)
{
    const char *at = strstr(answer, name);
    assert_non_null(at);
    at += strlen(name);
    size_t len = strcspn(at, "\"");
    assert_true(len < size);
    memcpy(copy, at, len);
    copy[len] = '\0';
}

TEST(test_a_ticket_is_settled_once)
{
    char ticket[64], settle[256];
    assert_says(&t, "POST /v1/reserve" JSON "{\"quota\":\"log 10/1m\",\"key\":\"k\",\"cost\":8}",
                "\"remaining\":2");
    copy_member(ticket, sizeof(ticket), t.answer, "\"ticket\":\"");
    assert_int_equal(strlen(ticket), 32);
    snprintf(settle, sizeof(settle), "POST /v1/settle" JSON "{\"ticket\":\"%s\",\"cost\":3}",
             ticket);
    assert_int_equal(status_of(&t, settle), 200);
    assert_says(&t, "POST /v1/peek" JSON "{\"quota\":\"log 10/1m\",\"key\":\"k\",\"cost\":0}",
                "\"remaining\":7");
    assert_answer(&t, settle,
                  "410\n"
                  "Content-Type: application/problem+json\n"
                  "\n"
                  "{\"type\":\"about:blank\",\"title\":\"Gone\",\"status\":410,\"detail\":"
                  "\"the ticket was used, has ended, or never was\"}");
}

TEST(test_a_refund_takes_the_at_of_its_grant)
{
    char at[32], back[256];
    assert_says(&t, TAKE "{\"quota\":\"log 10/1m\",\"key\":\"k\",\"cost\":8}", "\"remaining\":2");
    copy_member(at, sizeof(at), t.answer, "\"at\":\"");
    snprintf(back, sizeof(back),
             "POST /v1/refund" JSON
             "{\"quota\":\"log 10/1m\",\"key\":\"k\",\"cost\":5,\"granted_at\":\"%s\"}",
             at);
    t.s.now_ns += S;
    assert_says(&t, back, "\"granted\":5");
}

TEST(test_what_an_expiry_keeps)
{
    static const char *const values[] = {"\"keep\"", "\"release\"", "0", "1", "4294967295"};
    for (size_t i = 0; i < N(values); i++) {
        char request[256];
        snprintf(request, sizeof(request), RESERVE "\"on_expiry\":%s}", values[i]);
        assert_says(&t, request, "\"ticket\":");
    }
}

TEST(test_blocks_resets_and_overrides_answer_ok)
{
    assert_answer(&t, "POST /v1/block" JSON "{" IP ",\"for_ms\":60000}",
                  "200\nContent-Type: application/json\n\n{\"ok\":true}");
    assert_int_equal(status_of(&t, TAKE "{" IP "}"), 429);
    assert_says(&t, "POST /v1/explain" JSON "{" IP "}", "\"banned\":true");
    assert_int_equal(status_of(&t, "POST /v1/reset" JSON "{" IP "}"), 200);
    assert_int_equal(status_of(&t, TAKE "{" IP "}"), 200);
    assert_int_equal(status_of(&t, "PUT /v1/overrides" JSON "{" IP ",\"quota\":\"7/1m\"}"), 200);
    assert_says(&t, TAKE "{" IP "}", "\"limit\":7");
    assert_int_equal(status_of(&t, "DELETE /v1/overrides?domain=shop&ip=1"), 200);
    assert_says(&t, TAKE "{" IP "}", "\"limit\":2");
}

TEST(test_explain_says_what_a_rule_promises)
{
    assert_answer(&t, "GET /v1/explain?domain=shop&ip=%31",
                  "200\n"
                  "Content-Type: application/json\n"
                  "RateLimit-Policy: \"per-ip\";q=2;w=60\n"
                  "RateLimit: \"per-ip\";r=1;t=60\n"
                  "\n"
                  "{\"outcome\":\"allow\",\"granted\":1,\"limit\":2,\"remaining\":1,"
                  "\"retry_after_ms\":0,\"reset_after_ms\":60000,\"binding\":0,"
                  "\"at\":\"60000000000000\",\"statuses\":[{\"outcome\":\"allow\",\"granted\":1,"
                  "\"limit\":2,\"remaining\":1,\"retry_after_ms\":0,\"reset_after_ms\":60000,"
                  "\"rule\":\"ip\",\"quota\":\"fixed_window 2/1m\",\"is_strict\":false,"
                  "\"max_in_any_window\":4,\"when_full\":\"evict\",\"plus_forgotten\":true,"
                  "\"name\":\"per-ip\",\"domain\":\"shop\",\"file\":\"test.yaml\",\"line\":3}]}");
}

TEST(test_a_request_waits_for_its_units)
{
    static const char patient[] = TAKE "{\"quota\":\"log 1/1s\",\"key\":\"k\",\"wait_ms\":1500}";
    uint64_t again_ns, taken_ns = t.s.now_ns;
    assert_int_equal(status_of(&t, patient), 200);
    t.s.now_ns += 300 * MS;
    assert_null(http_send_or_wait(&t, patient, &again_ns));
    assert_int_equal(again_ns, taken_ns + S);
    t.s.now_ns = again_ns;
    assert_int_equal(status_of(&t, patient), 200);
    /* Longer than it would wait: the denial comes at once. */
    assert_int_equal(status_of(&t, TAKE "{\"quota\":\"log 1/1s\",\"key\":\"k\",\"wait_ms\":999}"),
                     429);
}

/* ---- envoyproxy's /json ---------------------------------------------------------------------- */

TEST(test_json_speaks_proto3)
{
    static const char request[] =
        "POST /json\n\n{\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"ip\","
        "\"value\":\"9\"}]}],\"hitsAddend\":2}";
    t.s.now_ns = START + 47500 * MS;
    assert_answer(&t, request,
                  "200\n"
                  "Content-Type: application/json\n"
                  "RateLimit-Policy: \"per-ip\";q=2;w=60\n"
                  "RateLimit: \"per-ip\";r=0;t=13\n"
                  "\n"
                  "{\"overallCode\":\"OK\",\"statuses\":[{\"code\":\"OK\",\"currentLimit\":"
                  "{\"requestsPerUnit\":2,\"unit\":\"MINUTE\",\"name\":\"per-ip\"},"
                  "\"durationUntilReset\":\"12.500s\"}]}");
    assert_answer(
        &t, request,
        "429\n"
        "Content-Type: application/json\n"
        "RateLimit-Policy: \"per-ip\";q=2;w=60\n"
        "RateLimit: \"per-ip\";r=0;t=13\n"
        "Retry-After: 13\n"
        "\n"
        "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":[{\"code\":\"OVER_LIMIT\","
        "\"currentLimit\":{\"requestsPerUnit\":2,\"unit\":\"MINUTE\",\"name\":\"per-ip\"},"
        "\"durationUntilReset\":\"12.500s\"}]}");
}

TEST(test_json_takes_names_of_both_kinds)
{
    assert_says(&t,
                "POST /json\n\n{\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"ip\","
                "\"value\":\"8\"}],\"hits_addend\":\"5\",\"limit\":{\"requests_per_unit\":7,"
                "\"unit\":\"HOUR\"}},{\"entries\":[{\"key\":\"free\"}]},"
                "{\"entries\":[{\"key\":\"none\"}]}]}",
                "\"statuses\":[{\"code\":\"OK\",\"currentLimit\":{\"requestsPerUnit\":7,"
                "\"unit\":\"HOUR\"},\"limitRemaining\":2," /* an override has no name */
                "\"durationUntilReset\":\"3750s\"},{\"code\":\"OK\",\"limitRemaining\":4294967295},"
                "{\"code\":\"OK\"}]");
    assert_says(
        &t,
        "POST /json\n\n{\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"ip\"}]"
        ",\"limit\":{\"requestsPerUnit\":7,\"unit\":\"UNKNOWN\"}}]}",
        "descriptors[0].limit.unit: expected SECOND, MINUTE, HOUR, DAY, MONTH or YEAR");
}

/* ---- What is wrong --------------------------------------------------------------------------- */

struct wrong {
    const char *request;
    unsigned status;
    const char *says;
};

TEST(test_each_wrong_body_is_told_where)
{
    static const struct wrong all[] = {
        {TAKE "", 400, "JSON, line 1, column 1: expected an object"},
        {TAKE "{\"quota\":\"1/1s\",\n \"key\":}", 400, "JSON, line 2, column 8: expected a value"},
        {TAKE "[]", 400, "expected an object"},
        {TAKE "{\"key\":\"a\",\"key\":\"b\"}", 400, "key: came twice"},
        {TAKE "{}", 400, "expected \\\"domain\\\" and \\\"descriptors\\\", or"},
        {TAKE "{" IP ",\"quota\":\"1/1s\",\"key\":\"k\"}", 400, "expected \\\"domain\\\""},
        {TAKE "{" IP ",\"costs\":1}", 400,
         "no member \\\"costs\\\" is known here; did you mean \\\"cost\\\"?"},
        {TAKE "{" IP ",\"cost\":1.5}", 400,
         "cost: expected a whole number of 0 to 4294967295, not 1.5"},
        {TAKE "{" IP ",\"cost\":-1}", 400, "4294967295, not -1\""},
        {TAKE "{" IP ",\"cost\":4294967296}", 400,
         "4294967295 (count in larger units, such as thousands), not 4294967296\""},
        {TAKE "{" IP ",\"cost\":99999999999999999999}", 400,
         "4294967295 (count in larger units, such as thousands), not 99999999999999999999\""},
        {TAKE "{" IP ",\"cost\":\"1\"}", 400, "not \\\"1\\\"\""},
        {TAKE "{" IP ",\"wait_ms\":86400001}", 400,
         "wait_ms: expected a whole number of milliseconds, 0 to 86400000, not 86400001"},
        {TAKE "{" IP ",\"request_id\":\"\"}", 400, "request_id: expected 1 to 128 bytes"},
        {TAKE "{" IP ",\"for_ms\":1}", 400, "no member \\\"for_ms\\\""},
        {TAKE "{\"domain\":\"\",\"descriptors\":[]}", 400, "domain: expected one"},
        {TAKE "{\"domain\":\"d\",\"descriptors\":[]}", 400, "descriptors: expected an array of 1"},
        {TAKE "{\"domain\":\"d\",\"descriptors\":[{}]}", 400,
         "descriptors[0]: expected a member \\\"entries\\\""},
        {TAKE "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"value\":\"v\"}]}]}", 400,
         "descriptors[0].entries[0]: expected a member \\\"key\\\""},
        {TAKE "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":1}]}]}", 400,
         "descriptors[0].entries[0].key: expected a string, not 1\""},
        {TAKE "{\"items\":[{\"quota\":\"1/1s\"}]}", 400, "items[0]: expected a member \\\"key\\\""},
        {TAKE "{\"quota\":\"1/1x\",\"key\":\"k\"}", 400, "expected a duration"},
        {TAKE "{\"quota\":\"[[[[[[[[[[[[[[[[[\",\"key\":\"k\"}", 400, "expected"},
        {TAKE "{\"a\":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}", 400, "more than 16 levels"},
        {"POST /v1/settle" JSON "{\"ticket\":\"00\",\"cost\":1}", 400, "ticket: expected the"},
        {"POST /v1/settle" JSON "{\"cost\":1}", 400, "expected a member \\\"ticket\\\""},
        {RESERVE "\"on_expiry\":\"kept\"}", 400, "on_expiry: expected \\\"keep\\\", \\\"rel"},
        {RESERVE "\"on_expiry\":-1}", 400, "on_expiry: expected"},
        {RESERVE "\"on_expiry\":4294967296}", 400, "on_expiry: expected"},
        {TAKE "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}],"
              "\"quota\":\"1/1s\\u0000\"}]}",
         400, "descriptors[0].quota: expected a quota"},
        {TAKE "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}],"
              "\"quota\":1}]}",
         400, "descriptors[0].quota: expected a string"},
        {TAKE "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}],"
              "\"quota\":\"1/1x\"}]}",
         400, "descriptors[0].quota: "},
        {"POST /v1/count" JSON "{\"key\":\"k\",\"amount\":1,\"expiry_ms\":0}", 400,
         "expiry_ms: expected 1 or more"},
        {"POST /v1/count" JSON "{\"key\":\"k\",\"amount\":4294967296,\"expiry_ms\":1}", 400,
         "amount: expected a whole number of -4294967295 to 4294967295, not 4294967296"},
        {"POST /json\n\n{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}]"
         ",\"limit\":{\"requestsPerUnit\":7,\"unit\":\"DAY\",\"unitMultiplier\":999999999}}]}",
         400, "descriptors[0].limit: expected a unit_multiplier of 1 to 3650 for DAY, not 9999999"},
        {RESERVE "\"lifetime_ms\":0}", 400,
         "lifetime_ms: expected a whole number of milliseconds, 1 to 31536000000, not 0"},
        {"POST /v1/block" JSON "{" IP ",\"for_ms\":0}", 400,
         "for_ms: expected a whole number of milliseconds, 1 to 31536000000, not 0"},
        {"POST /v1/block" JSON "{" IP "}", 400, "expected a member \\\"for_ms\\\""},
        {"POST /v1/refund" JSON "{" IP ",\"granted_at\":\"12a\"}", 400, "granted_at: expected the"},
        {"PUT /v1/overrides" JSON "{" IP "}", 400, "expected a member \\\"quota\\\""},
        {"PUT /v1/overrides" JSON "{" IP ",\"quota\":\"\"}", 400, "quota: expected a quota"},
        {"GET /v1/explain", 400, "expected a query like ?domain=NAME&KEY=VALUE"},
        {"GET /v1/explain?domain=d", 400, "expected a query"},
        {"DELETE /v1/overrides?ip=1", 400, "expected a query"},
        {"POST /json\n\n{\"domain\":\"d\"}", 400, "expected descriptors"},
        {"POST /json\n\n{\"descriptors\":[{\"entries\":[{\"key\":\"a\"}]}]}", 400,
         "expected a domain"},
        {"POST /v1/take\nContent-Type: text/plain\n\n{}", 415, "application/json"},
        {"POST /v1/take\nContent-Type: application/jsonx\n\n{}", 415, "application/json"},
        {"GET /v1/take", 405, "Allow: POST, OPTIONS"},
        {"PATCH /v1/explain", 405, "Allow: GET, HEAD, POST, OPTIONS"},
        {"POST /v1/overrides", 405, "Allow: PUT, DELETE, OPTIONS"},
        {"GET /v2/take", 404, "no such path"},
        {"GET /v1/take/", 404, "no such path"},
        {"GET *", 404, "no such path"},
        {"OPTIONS /v1/take", 204, "Allow: POST, OPTIONS"},
    };
    for (size_t i = 0; i < N(all); i++) {
        assert_says(&t, all[i].request, all[i].says);
        if (status_of(&t, all[i].request) != all[i].status)
            fail_msg("%s\n-- is answered --\n%s", all[i].request, t.answer);
    }
    assert_says(&t, "POST /v1/peek" JSON "{" IP ",\"cost\":0}", "\"remaining\":2");
}

TEST(test_a_content_type_may_have_parameters)
{
    assert_int_equal(
        status_of(&t, "POST /v1/take\nContent-Type: Application/JSON; charset=utf-8\n\n{" IP "}"),
        200);
}

TEST(test_a_long_answer_has_all_it_needs)
{
    static char request[ANSWER_MAX];
    int len = snprintf(request, sizeof(request), TAKE "{\"items\":[");
    for (int i = 0; i < 32; i++)
        len += snprintf(request + len, sizeof(request) - (size_t)len,
                        "%s{\"quota\":\"%d/1m%0500d\",\"key\":\"k\"}", i > 0 ? "," : "", i + 1, 0);
    snprintf(request + len, sizeof(request) - (size_t)len, "]}");
    assert_int_equal(status_of(&t, request), 400);
    /* The same with SPECs that can be meant: 32 statuses, all of them in the fields, too. */
    len = snprintf(request, sizeof(request), TAKE "{\"items\":[");
    for (int i = 0; i < 32; i++)
        len += snprintf(request + len, sizeof(request) - (size_t)len,
                        "%s{\"quota\":\"%d/1m\",\"key\":\"k\"}", i > 0 ? "," : "", i + 1);
    snprintf(request + len, sizeof(request) - (size_t)len, "]}");
    assert_int_equal(status_of(&t, request), 200);
    assert_non_null(strstr(t.answer, "Policy: \"1/1m\";q=1;w=60, \"2/1m\";q=2;w=60,"));
    assert_non_null(strstr(t.answer, "\"32/1m\";q=32"));
    assert_non_null(strstr(t.answer, "\"32/1m\";r=31"));
    assert_non_null(strstr(t.answer, "\"limit\":32,\"remaining\":31"));
}
