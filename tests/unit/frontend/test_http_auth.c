/* SPDX-License-Identifier: MIT */
/* /auth for proxies, tokens and roles, pools and pages: what the frontend answers beside /v1's
 * verbs.
 */
#include "unit/test_access.h"
#include "unit/test_http_client.h"

#include "service/pools/pools.h"

static const char *const yaml =
    "domain: shop\n"
    "descriptors:\n"
    "  - key: remote_address\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2, algorithm: fixed_window}\n"
    "  - key: path\n"
    "    value: /login\n"
    "    descriptors:\n"
    "      - key: remote_address\n"
    "        rate_limit: {unit: minute, requests_per_unit: 1, algorithm: fixed_window}\n";

static struct http_client t;

static void open_with(const struct http_config_options *options, struct access_now *access)
{
    http_open(&t, yaml, options, access);
}

TEARDOWN
{
    http_close(&t);
}

/* ---- /auth ----------------------------------------------------------------------------------- */

TEST(test_the_caller_itself_is_limited_without_a_word_of_proxies)
{
    open_with(&(struct http_config_options){.domain = "shop"}, NULL);
    assert_answer(&t, "GET /auth\nX-Forwarded-For: 203.0.113.9\n",
                  "200\n"
                  "RateLimit-Policy: \"remote_address\";q=2;w=60\n"
                  "RateLimit: \"remote_address\";r=1;t=60\n"
                  "\n");
    assert_int_equal(status_of(&t, "HEAD /auth\n"), 200);
    assert_says(&t, "POST /auth\n",
                "429\n"
                "Content-Type: application/problem+json\n"
                "RateLimit-Policy: \"remote_address\";q=2;w=60\n"
                "RateLimit: \"remote_address\";r=0;t=60\n"
                "Retry-After: 60\n"
                "\n"
                "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\"");
}

TEST(test_a_trusted_proxy_speaks_for_its_clients)
{
    static const char *const lists[] = {"path, address", "address"};
    static const char *const trusted[] = {"127.0.0.0/8"};
    open_with(&(struct http_config_options){.descriptors = lists,
                                            .n_descriptors = 2,
                                            .trusted_proxies = trusted,
                                            .n_trusted_proxies = 1,
                                            .deny_status = 403},
              NULL);
#define ASK "GET /auth?domain=shop\nX-Original-URI: "
    assert_int_equal(status_of(&t, ASK "/login?a=b\nX-Forwarded-For: 203.0.113.9\n"), 200);
    assert_says(&t, ASK "//%6Cogin\nX-Forwarded-For: 203.0.113.9\n", "403\n");
    assert_non_null(strstr(t.answer, "\nRetry-After: 60\n"));
    assert_non_null(strstr(t.answer, "\"violated-policies\":[\"path=/login.remote_address\"]"));
    /* The refused one has charged nothing: one of two is left. */
    assert_says(&t, ASK "/other\nX-Forwarded-For: 203.0.113.9\n",
                "RateLimit: \"remote_address\";r=0;t=60");
    assert_int_equal(status_of(&t, ASK "/other\nX-Forwarded-For: 203.0.113.10\n"), 200);
    assert_int_equal(
        status_of(&t, ASK "/\nX-Forwarded-For: 203.0.113.9\nForwarded: for=198.51.100.1\n"), 400);
}

TEST(test_each_request_may_say_what_denies_it)
{
    static const char *const wrong[] = {
        "399", "600", "", "40", "4030", "0403", "+403", "40x", "%34%30%33%00", "-1",
    };
    char request[64];
    open_with(&(struct http_config_options){.domain = "shop", .deny_status = 418}, NULL);
    for (size_t i = 0; i < N(wrong); i++) {
        snprintf(request, sizeof(request), "GET /auth?deny_status=%s\n", wrong[i]);
        assert_says(&t, request, "deny_status: expected 400 to 599");
        assert_int_equal(status_of(&t, request), 400);
    }
    /* What was refused has charged nothing: both of two are left. */
    assert_int_equal(status_of(&t, "GET /auth?deny_status=403\n"), 200);
    assert_int_equal(status_of(&t, "GET /auth?deny_status=403\n"), 200);
    assert_says(&t, "GET /auth?deny_status=403\n", "403\n");
    assert_non_null(strstr(t.answer, "\nRetry-After: 60\n"));
    assert_int_equal(status_of(&t, "GET /auth?domain=shop&deny_status=400\n"), 400);
    assert_non_null(strstr(t.answer, "quota-exceeded"));
    assert_int_equal(status_of(&t, "GET /auth?deny_status=599&domain=shop\n"), 599);
    assert_int_equal(status_of(&t, "GET /auth?deny_status=%34%30%33\n"), 403);
    assert_int_equal(status_of(&t, "GET /auth\n"), 418);
}

TEST(test_auth_wants_a_domain_and_may_have_nothing_to_ask)
{
    static const char *const lists[] = {"header:x-api-key"};
    open_with(&(struct http_config_options){.descriptors = lists, .n_descriptors = 1}, NULL);
    assert_says(&t, "GET /auth\n", "400\n");
    assert_says(&t, "GET /auth\n", "no domain: use /auth?domain=NAME");
    assert_answer(&t, "GET /auth?domain=shop\n", "200\n\n");
    assert_answer(&t, "GET /auth?domain=other\nX-Api-Key: k\n", "200\n\n");
}

TEST(test_a_site_that_cannot_be_meant_is_refused)
{
    struct http_config *config;
    struct stint_error error;
    static const char *const lists[] = {"pth"}, *const trusted[] = {"here"};
    open_with(&(struct http_config_options){0}, NULL);
    assert_int_equal(
        http_config_new(&config, &(struct http_config_options){.deny_status = 200}, &error),
        STINT_E_RANGE);
    assert_string_equal(error.message, "deny_status 200: expected 400 to 599");
    assert_int_equal(http_config_new(&config, &(struct http_config_options){.styles = 16}, &error),
                     STINT_E_RANGE);
    assert_int_equal(
        http_config_new(&config,
                        &(struct http_config_options){.descriptors = lists, .n_descriptors = 1},
                        &error),
        STINT_E_SYNTAX);
    assert_int_equal(http_config_new(&config,
                                     &(struct http_config_options){.trusted_proxies = trusted,
                                                                   .n_trusted_proxies = 1},
                                     &error),
                     STINT_E_SYNTAX);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

#define ASKER "0123456789abcdef0123456789abcdef-asker"
#define WATCHER "0123456789abcdef0123456789abcdef-watcher"
#define CHIEF "0123456789abcdef0123456789abcdef-chief"
#define TOKENS "asker ask " ASKER "\nwatcher metrics " WATCHER "\nchief administer " CHIEF
#define AS(secret) "\nAuthorization: Bearer " secret "\n"
#define JSON_AS(secret) "\nAuthorization: Bearer " secret JSON

TEST(test_each_role_goes_where_it_may)
{
    static const char *const trusted[] = {"192.0.2.1"};
    struct access_now *access = access_now_new(access_of(TOKENS));
    open_with(&(struct http_config_options){.domain = "shop",
                                            .trusted_proxies = trusted,
                                            .n_trusted_proxies = 1},
              access);
    static const struct {
        const char *request;
        unsigned status;
    } asked[] = {
        {"GET /healthz\n", 200},
        {"GET /readyz\n", 200},
        {"GET /openapi.json\n", 200},
        {"GET /auth\n", 401},
        {"GET /auth" AS(ASKER), 200},
        {"GET /auth" AS(WATCHER), 403},
        {"POST /v1/take" JSON "{\"quota\":\"1/1s\",\"key\":\"k\"}", 401},
        {"POST /v1/take\nAuthorization: Basic " ASKER "\n\n{}", 401},
        {"POST /v1/take" JSON_AS("x" ASKER) "{}", 401},
        {"POST /v1/take" JSON_AS(ASKER) "{\"quota\":\"1/1s\",\"key\":\"k\"}", 200},
        {"POST /v1/take\nauthorization: bEARER   " ASKER JSON "{\"quota\":\"1/1s\",\"key\":\"l\"}",
         200},
        {"POST /v1/take" JSON_AS(CHIEF) "{\"quota\":\"1/1s\",\"key\":\"k\"}", 403},
        {"POST /v1/block" JSON_AS(ASKER) "{\"quota\":\"1/1s\",\"key\":\"k\",\"for_ms\":1}", 403},
        {"POST /v1/block" JSON_AS(CHIEF) "{\"quota\":\"1/1s\",\"key\":\"k\",\"for_ms\":1}", 200},
        {"GET /metrics\n", 401},
        {"GET /metrics" AS(ASKER), 403},
        {"GET /metrics" AS(WATCHER), 200},
        {"GET /v1/top" AS(WATCHER), 200},
        {"GET /v1/stats" AS(WATCHER), 200},
        {"GET /rlconfig" AS(WATCHER), 200},
        {"POST /v1/reload" AS(ASKER), 403},
        {"POST /v1/reload" AS(CHIEF), 501},
        {"GET /v1/clock\n", 401},
        {"GET /v1/clock" AS(ASKER), 200},
        {"GET /v1/clock" AS(WATCHER), 403},
        {"POST /v1/clock" AS(ASKER), 403},
        {"POST /v1/clock" JSON_AS(CHIEF) "{\"set\":\"1\"}", 409},
        {"GET /v1/pools/p/status\n", 401},
        {"POST /v1/pools/p/add" AS(ASKER), 403},
    };
    for (size_t i = 0; i < N(asked); i++)
        if (status_of(&t, asked[i].request) != asked[i].status)
            fail_msg("%s\n-- is answered --\n%s", asked[i].request, t.answer);
    assert_says(&t, "GET /metrics\n", "WWW-Authenticate: Bearer realm=\"stint\"\n");
    assert_says(&t, "GET /metrics" AS("x"), "Bearer realm=\"stint\", error=\"invalid_token\"\n");
    assert_says(&t, "GET /metrics" AS(ASKER), "error=\"insufficient_scope\"\n");
    t.peer = "192.0.2.1";
    assert_int_equal(status_of(&t, "GET /auth\nX-Forwarded-For: 203.0.113.9\n"), 200);
    assert_int_equal(status_of(&t, "GET /metrics\n"), 401);
    http_close(&t);
    access_now_free(access);
    open_with(&(struct http_config_options){0}, NULL);
}

TEST(test_a_reload_of_tokens_holds_from_the_next_request_on)
{
    struct access_now *access = access_now_new(access_of(TOKENS));
    open_with(&(struct http_config_options){0}, access);
    assert_int_equal(status_of(&t, "GET /v1/top" AS(WATCHER)), 200);
    access_now_set(access, access_of("asker ask " ASKER));
    assert_int_equal(status_of(&t, "GET /v1/top" AS(WATCHER)), 401);
    http_close(&t);
    access_now_free(access);
    open_with(&(struct http_config_options){0}, NULL);
}

/* ---- Pools ----------------------------------------------------------------------------------- */

#define POOL "/v1/pools/api%2Dkeys/"

static void open_with_pool(void)
{
    open_with(&(struct http_config_options){0}, NULL);
    assert_int_equal(pools_define(server_state_pools(t.s.server_state),
                                  &(struct pools_definition){.name = span_of_text("api-keys")},
                                  t.s.now_ns, NULL),
                     0);
}

TEST(test_a_pool_hands_out_its_keys)
{
    uint64_t again_ns;
    open_with_pool();
    assert_answer(&t, "GET /v1/pools\n",
                  "200\nContent-Type: application/json\n\n{\"pools\":[\"api-keys\"]}");
    assert_answer(&t, "POST " POOL "add" JSON "{\"key\":\"one\",\"quotas\":[\"log 2/1m\"]}",
                  "200\nContent-Type: application/json\n\n{\"ok\":true}");
    assert_int_equal(
        status_of(&t, "POST " POOL "add" JSON "{\"key\":\"one\",\"quotas\":[\"1/1m\"]}"), 409);
    assert_answer(&t, "POST " POOL "next\n",
                  "200\nContent-Type: application/json\n\n{\"key\":\"one\",\"wait_ms\":0,"
                  "\"at\":\"60000000000000\",\"probe\":false,\"limit\":2,\"remaining\":1,"
                  "\"reset_after_ms\":60000}");
    assert_answer(
        &t, "POST " POOL "give_back" JSON "{\"key\":\"one\",\"granted_at\":\"60000000000000\"}",
        "200\nContent-Type: application/json\n\n{\"given_back\":1}");
    assert_int_equal(status_of(&t, "POST " POOL "next" JSON "{\"cost\":2}"), 200);
    t.s.now_ns += S;
    assert_says(&t, "POST " POOL "next\n",
                "429\nRetry-After: 59\nContent-Type: application/problem+json\n");
    assert_non_null(strstr(
        t.answer,
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":"
        "\"Quota exceeded\",\"status\":429,\"detail\":\"No key is free; wait_ms is the time until "
        "one is.\",\"violated-policies\":[\"api-keys\"],\"key\":null,\"wait_ms\":59000,"));
    assert_null(http_send_or_wait(&t, "POST " POOL "next" JSON "{\"wait_ms\":59000}", &again_ns));
    assert_int_equal(again_ns, t.s.now_ns + 59 * S);
    t.asked_ns = 0;
    assert_answer(&t, "GET " POOL "status\n",
                  "200\nContent-Type: application/json\n\n{\"keys\":[{\"key\":\"one\",\"standing\":"
                  "\"used_up\",\"returns_after_ms\":59000,\"weight\":1,\"failures\":0,\"limit\":2,"
                  "\"remaining\":0}]}");
    assert_int_equal(
        status_of(&t, "POST " POOL "report" JSON "{\"key\":\"one\",\"outcome\":\"out\"}"), 200);
    assert_says(&t, "GET " POOL "status\n", "\"standing\":\"out\",\"returns_after_ms\":null");
    assert_int_equal(status_of(&t, "POST " POOL "remove" JSON "{\"key\":\"one\"}"), 200);
    assert_answer(&t, "GET " POOL "status\n",
                  "200\nContent-Type: application/json\n\n{\"keys\":[]}");
}

TEST(test_a_quota_that_no_key_can_have_is_no_conflict)
{
    static const char *const wrong[][2] = {
        {"\"concurrency 5 lease=1m\"", "concurrency is not for the keys of a pool"},
        {"\"gcra 5/1m count_denied=true\"", "count_denied is not for the keys of a pool"},
        {"\"1/1m\",\"1/1m\"", "quotas 1 and 2 of key k are the same"},
        {"\"log 1/1m burst=2\"", "expected an option of log"},
    };
    open_with_pool();
    for (size_t i = 0; i < N(wrong); i++) {
        char request[256];
        snprintf(request, sizeof(request), "%s%s]}",
                 "POST " POOL "add" JSON "{\"key\":\"k\",\"quotas\":[", wrong[i][0]);
        assert_int_equal(status_of(&t, request), 400);
        assert_says(&t, request, wrong[i][1]);
    }
}

TEST(test_wrong_things_asked_of_pools_are_told)
{
    static const struct {
        const char *request;
        unsigned status;
        const char *says;
    } wrong[] = {
        {"POST /v1/pools/p/nxt\n", 404, "expected /v1/pools/NAME/VERB"},
        {"POST /v1/pools/p\n", 404, "expected /v1/pools/NAME/VERB"},
        {"POST /v1/pools//next\n", 404, "expected /v1/pools/NAME/VERB"},
        {"POST /v1/pools/p/next\n", 404, "\"status\":404"},
        {"GET /v1/pools/p/next\n", 405, "Allow: POST, OPTIONS\n"},
        {"OPTIONS /v1/pools/p/next\n", 204, "Allow: POST, OPTIONS\n"},
        {"OPTIONS /v1/pools/p/status\n", 204, "Allow: GET, HEAD, OPTIONS\n"},
        {"OPTIONS /v1/pools/p/none\n", 404, "no such path"},
        {"OPTIONS /v1/pools/next\n", 404, "no such path"},
        {"DELETE /v1/pools/p/next\n", 405, "Allow: POST, OPTIONS\n"},
        {"POST /v1/pools/p/status\n", 405, "Allow: GET, HEAD, OPTIONS\n"},
        {"POST /v1/pools/p/next" JSON "{\"key\":\"k\"}", 400, "no member"},
        {"POST /v1/pools/p/next\nContent-Type: text/plain\n\n{}", 415, "application/json"},
        {"POST /v1/pools/p/report" JSON "{\"key\":\"k\",\"outcome\":\"bad\"}", 400, "back_off"},
        {"POST /v1/pools/p/report" JSON "{\"key\":\"k\",\"outcome\":\"cool\"}", 400, "cooldown_ms"},
        {"POST /v1/pools/p/report" JSON "{\"key\":\"k\",\"outcome\":\"ok\",\"cooldown_ms\":5}", 400,
         "nothing else has one"},
        {"POST /v1/pools/p/add" JSON "{\"key\":\"k\",\"quotas\":[\"1/1m\"],\"weight\":0}", 400,
         "weight: expected a whole number of 1 to 1000, not 0"},
        {"POST /v1/pools/p/add" JSON "{\"key\":\"k\",\"quotas\":[\"1/1m\"],\"weight\":1001}", 400,
         "weight: expected a whole number of 1 to 1000, not 1001"},
        {"POST /v1/pools/p/add" JSON "{\"key\":\"k\",\"quotas\":[]}", 400,
         "an array of 1 to 4 quotas"},
    };
    open_with(&(struct http_config_options){0}, NULL);
    for (size_t i = 0; i < N(wrong); i++) {
        assert_says(&t, wrong[i].request, wrong[i].says);
        assert_int_equal(status_of(&t, wrong[i].request), wrong[i].status);
    }
}

/* ---- Pages ----------------------------------------------------------------------------------- */

TEST(test_pages_are_served)
{
    open_with(&(struct http_config_options){.dashboard = span_of_text("<p>hello</p>"),
                                            .dashboard_policy = "default-src 'none'"},
              NULL);
    assert_answer(&t, "GET /healthz\n", "200\nContent-Type: text/plain; charset=utf-8\n\nok\n");
    assert_says(&t, "GET /\n", "Content-Security-Policy: default-src 'none'\n");
    assert_non_null(strstr(t.answer, "\n\n<p>hello</p>"));
    assert_says(&t, "GET /openapi.json\n", "\"openapi\": \"3.1.0\"");
    assert_answer(&t, "GET /rlconfig\n",
                  "200\nContent-Type: text/plain; charset=utf-8\n\n"
                  "shop.remote_address: unit=MINUTE requests_per_unit=2, quota: fixed_window 2/1m, "
                  "shadow_mode: false (test.yaml:3)\n"
                  "shop.path=/login.remote_address: unit=MINUTE requests_per_unit=1, quota: "
                  "fixed_window 1/1m, shadow_mode: false (test.yaml:8)\n");
    assert_int_equal(status_of(&t, "POST /v1/take" JSON "{\"quota\":\"1/1s\",\"key\":\"k\\\"y\"}"),
                     200);
    assert_says(&t, "GET /v1/top?n=1&order=asked\n", "{\"keys\":[{\"key\":\"k\\\"y\"");
    assert_says(&t, "GET /v1/top?n=0\n", "400\n");
    assert_says(&t, "GET /v1/top?n=1001\n", "400\n");
    assert_says(&t, "GET /v1/top?order=none\n", "expected ?n=1");
    assert_says(&t, "GET /metrics\n", "Content-Type: text/plain; version=0.0.4");
    assert_says(&t, "GET /metrics\nAccept: application/openmetrics-text;version=1.0.0,*/*\n",
                "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_says(&t, "GET /metrics\n", "stint_decisions_total");
    assert_says(&t, "GET /v1/stats\n", "200\nContent-Type: application/json\n\n{");
}

TEST(test_a_frontend_that_drains_is_not_ready)
{
    open_with(&(struct http_config_options){0}, NULL);
    assert_says(&t, "GET /readyz\n", "200\n");
    http_frontend_drain(t.frontend);
    assert_says(&t, "GET /readyz\n", "503\n");
    assert_says(&t, "GET /healthz\n", "200\n");
}
