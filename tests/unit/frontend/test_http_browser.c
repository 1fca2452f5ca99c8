/* SPDX-License-Identifier: MIT */
/*
 * What a web page can have a browser send to a server without tokens: nothing of it may change
 * anything, and nothing may be read through a name that the page's author controls.
 */
#include "unit/test_access.h"
#include "unit/test_http_client.h"

#include "proto/http/http_browser.h"
#include "service/pools/pools.h"

static const char *const yaml =
    "domain: shop\n"
    "descriptors:\n"
    "  - key: remote_address\n"
    "    rate_limit: {unit: minute, requests_per_unit: 1000, algorithm: fixed_window}\n"
    "  - key: user\n"
    "    rate_limit: {unit: minute, requests_per_unit: 1000, algorithm: fixed_window}\n";

static struct http_client t;

static void open_with(const struct http_config_options *options)
{
    http_open(&t, yaml, options, NULL);
    assert_int_equal(pools_define(server_state_pools(t.s.server_state),
                                  &(struct pools_definition){.name = span_of_text("p")}, t.s.now_ns,
                                  NULL),
                     0);
}

SETUP
{
    open_with(&(struct http_config_options){.domain = "shop"});
}

TEARDOWN
{
    http_close(&t);
}

#define USER "\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"user\"}]}]"
#define OWN "\"quota\":\"log 1000/1m\",\"key\":\"k\""

/* Every route that can change something, with a body that it takes. */
static const struct {
    const char *line, *body;
} changing[] = {
    {"POST /v1/take", "{" USER "}"},
    {"POST /v1/take_upto", "{" USER "}"},
    {"POST /v1/peek", "{" USER "}"},
    {"POST /v1/reserve", "{" OWN "}"},
    {"POST /v1/settle", "{\"ticket\":\"00000000000000000000000000000000\",\"cost\":1}"},
    {"POST /v1/cancel", "{\"ticket\":\"00000000000000000000000000000000\"}"},
    {"POST /v1/renew", "{\"ticket\":\"00000000000000000000000000000000\"}"},
    {"POST /v1/refund", "{" OWN "}"},
    {"POST /v1/charge", "{" USER "}"},
    {"POST /v1/book", "{" OWN ",\"max_wait_ms\":1}"},
    {"POST /v1/block", "{" OWN ",\"for_ms\":1}"},
    {"POST /v1/reset", "{" OWN "}"},
    {"POST /v1/explain", "{" USER "}"},
    {"PUT /v1/overrides", "{" USER ",\"quota\":\"1000/1m\"}"},
    {"DELETE /v1/overrides?domain=shop&user=a", ""},
    {"POST /v1/pools/p/add", "{\"key\":\"one\",\"quotas\":[\"1000/1m\"]}"},
    {"POST /v1/pools/p/next", "{}"},
    {"POST /v1/pools/p/next", ""},
    {"POST /v1/pools/p/give_back", "{\"key\":\"one\"}"},
    {"POST /v1/pools/p/report", "{\"key\":\"one\",\"outcome\":\"ok\"}"},
    {"POST /v1/pools/p/remove", "{\"key\":\"one\"}"},
    {"POST /v1/reload", ""},
    {"POST /v1/reload", "{}"},
    {"POST /json", "{" USER "}"},
    {"GET /auth", ""},
    {"HEAD /auth", ""},
    {"POST /auth", "a=b"},
    {"PATCH /auth", ""},
    {"OPTIONS /auth", ""},
};
static const char *const reading[] = {
    "GET /v1/explain?domain=shop&user=a",
    "GET /v1/pools",
    "GET /v1/pools/p/status",
    "GET /v1/top",
    "GET /v1/stats",
    "GET /metrics",
    "GET /rlconfig",
};
static const char *const health[] = {"GET /healthz", "GET /readyz", "GET /healthcheck"};

static const char *message_of(const char *line, const char *fields, const char *body)
{
    static char message[2048];
    int len = snprintf(message, sizeof(message), "%s\n%s\n%s", line, fields, body);
    assert_true(len > 0 && (size_t)len < sizeof(message));
    return message;
}

static unsigned send(const char *line, const char *fields, const char *body)
{
    return status_of(&t, message_of(line, fields, body));
}

/* ---- Pages of other origins ------------------------------------------------------------------ */

#define HERE "Host: 127.0.0.1:8080\n"
#define TYPED "Content-Type: application/json\n"

static const struct {
    const char *fields;
    bool is_foreign;
} pages[] = {
    {HERE TYPED, false},
    {TYPED, false}, /* HTTP/1.0 */
    {HERE TYPED "Origin: http://127.0.0.1:8080\n", false},
    {HERE TYPED "Origin: https://127.0.0.1:8080\n", false},
    {"Host: LocalHost:8080\n" TYPED "Origin: http://localhost:8080\n", false},
    {"Host: [::1]:8080\n" TYPED "Origin: http://[::1]:8080\n", false},
    {HERE TYPED "Sec-Fetch-Site: same-origin\n", false},
    {HERE TYPED "Sec-Fetch-Site: none\n", false},
    {HERE TYPED "Sec-Fetch-Site: same-origin\nOrigin: http://127.0.0.1:8080\n", false},
    {HERE TYPED "Origin: http://127.0.0.1:9090\n", true},
    {HERE TYPED "Origin: http://127.0.0.1\n", true},
    {HERE TYPED "Origin: http://127.0.0.1:80800\n", true},
    {HERE TYPED "Origin: http://127.0.0.1:8080.evil.test\n", true},
    {HERE TYPED "Origin: http://localhost:8080\n", true},
    {HERE TYPED "Origin: http://evil.test\n", true},
    {HERE TYPED "Origin: null\n", true},
    {HERE TYPED "Origin: \n", true},
    {HERE TYPED "Origin: http://\n", true},
    {HERE TYPED "Origin: 127.0.0.1:8080\n", true},
    {HERE TYPED "Origin: chrome-extension://127.0.0.1:8080\n", true},
    {TYPED "Origin: http://evil.test\n", true},
    {TYPED "Origin: http://\n", true},
    {HERE TYPED "Sec-Fetch-Site: cross-site\n", true},
    {HERE TYPED "Sec-Fetch-Site: same-site\n", true},
    {HERE TYPED "Sec-Fetch-Site: \n", true},
    {HERE TYPED "Sec-Fetch-Site: what-comes-later\n", true},
    {HERE TYPED "Sec-Fetch-Site: cross-site\nOrigin: http://127.0.0.1:8080\n", true},
    {HERE TYPED "Sec-Fetch-Site: same-origin\nOrigin: http://evil.test\n", true},
};

TEST(test_a_page_of_another_origin_changes_nothing)
{
    for (size_t i = 0; i < N(changing); i++)
        for (size_t k = 0; k < N(pages); k++) {
            unsigned status = send(changing[i].line, pages[k].fields, changing[i].body);
            if ((status == 403) != pages[k].is_foreign || status == 415 || status == 421)
                fail_msg("%s\n%s-- is answered --\n%s", changing[i].line, pages[k].fields,
                         t.answer);
        }
    for (size_t i = 0; i < N(reading); i++)
        for (size_t k = 0; k < N(pages); k++)
            if (send(reading[i], pages[k].fields, "") != 200)
                fail_msg("%s\n%s-- is answered --\n%s", reading[i], pages[k].fields, t.answer);
}

TEST(test_what_is_refused_has_charged_nothing)
{
    static const char *const foreign = HERE TYPED "Origin: http://evil.test\n";
    assert_int_equal(send("POST /v1/take", HERE TYPED, "{" USER ",\"cost\":7}"), 200);
    assert_int_equal(send("GET /auth", HERE, ""), 200);
    for (size_t i = 0; i < N(changing); i++)
        assert_int_equal(send(changing[i].line, foreign, changing[i].body), 403);
    assert_says(&t, message_of("POST /v1/peek", TYPED, "{" USER ",\"cost\":0}"),
                "\"remaining\":993");
    assert_says(&t, message_of("GET /auth", HERE, ""), "\"remote_address\";r=998;");
    assert_says(&t, message_of("GET /metrics", HERE, ""),
                "stint_malformed_total{frontend=\"http\"} ");
    unsigned malformed = 0;
    const char *at = strstr(t.answer, "stint_malformed_total{frontend=\"http\"} ");
    assert_int_equal(sscanf(strchr(at, ' '), "%u", &malformed), 1);
    assert_int_equal(malformed, N(changing));
}

TEST(test_a_proxy_passes_the_fields_of_its_client_on)
{
    static const char *const trusted[] = {"127.0.0.1"};
    static const struct {
        const char *fields;
        unsigned status;
    } asked[] = {
        {"X-Forwarded-For: 203.0.113.9\n", 200},
        {"Forwarded: for=203.0.113.9\n", 200},
        {"X-Original-URI: /a\n", 200},
        {"X-Forwarded-Uri: /a\n", 200},
        {"X-Real-IP: 203.0.113.9\n", 200},
        {"Client-Address: 203.0.113.9\n", 200}, /* as it is configured below */
        {"Cookie: X-Forwarded-For=1\n", 403},
        {"", 403},
    };
    http_close(&t);
    open_with(&(struct http_config_options){.domain = "shop",
                                            .trusted_proxies = trusted,
                                            .n_trusted_proxies = 1,
                                            .origin_fields.address = "Client-Address"});
    for (size_t i = 0; i < N(asked); i++) {
        char fields[256];
        snprintf(fields, sizeof(fields),
                 "Host: www.example.com\nOrigin: https://other.example\n"
                 "Sec-Fetch-Site: cross-site\n%s",
                 asked[i].fields);
        if (send("GET /auth", fields, "") != asked[i].status)
            fail_msg("%s-- is answered --\n%s", fields, t.answer);
        /* The fields of a proxy open /auth, and nothing else. */
        assert_int_equal(send("POST /json", fields, "{" USER "}"), 403);
        assert_int_equal(send("POST /v1/reload", fields, ""), 403);
    }
    assert_says(&t, message_of("GET /auth", "Origin: null\n", ""), "has to add X-Forwarded-For");
}

TEST(test_no_preflight_is_granted)
{
    static const char *const fields =
        HERE "Origin: http://evil.test\nAccess-Control-Request-Method: POST\n"
             "Access-Control-Request-Headers: content-type, x-forwarded-for\n"
             "Access-Control-Request-Private-Network: true\n";
    for (size_t i = 0; i < N(changing) + N(reading); i++) {
        char line[128];
        const char *other = i < N(changing) ? changing[i].line : reading[i - N(changing)];
        bool is_auth = strstr(other, "/auth") != NULL;
        snprintf(line, sizeof(line), "OPTIONS%s", strchr(other, ' '));
        assert_int_equal(send(line, fields, ""), is_auth ? 403 : 204);
        assert_null(strstr(t.answer, "Access-Control"));
        send(other, fields, "");
        assert_null(strstr(t.answer, "Access-Control"));
    }
}

/* ---- Names of hosts -------------------------------------------------------------------------- */

TEST(test_hosts_that_no_dns_answer_can_move)
{
    static const char *const given[] = {"stint", "Limits.example.com", "*.svc"};
    static const char *const known[] = {
        "127.0.0.1",
        "127.0.0.1:8080",
        "10.1.2.3:80",
        "0.0.0.0:8080",
        "[::1]",
        "[::1]:8080",
        "[fe80::1]:8080",
        "[::ffff:127.0.0.1]:8080",
        "localhost",
        "LOCALHOST:8080",
        "localhost.",
        "localhost.:8080",
        "a.localhost:8080",
        "stint:8080",
        "STINT",
        "stint.",
        "limits.example.com:443",
        "stint.shop.svc:8080",
        "localhost:",
    };
    static const char *const other[] = {
        "",
        ":8080",
        "evil.test",
        "evil.test:8080",
        "127.0.0.1.evil.test:8080",
        "127.0.0.1evil",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "127.0.0.1:8080:8080",
        "127.0.0.1:80a",
        "127.0.0.1 evil.test",
        "user@127.0.0.1",
        "[::1",
        "[::1]evil.test",
        "[::1].evil.test",
        "[127.0.0.1]",
        "[]",
        "::1",
        "localhost.evil.test",
        "evillocalhost",
        ".localhost",
        "localhost..",
        ".",
        "svc",
        ".svc",
        "evil.svc.test",
        "stint.evil.test",
        "limits.example.com.evil.test",
        "xlimits.example.com",
    };
    assert_int_equal(http_hosts_check(given, N(given), NULL), 0);
    for (size_t i = 0; i < N(known); i++)
        if (!http_hosts_have(given, N(given), span_of_text(known[i])))
            fail_msg("%s is not known", known[i]);
    for (size_t i = 0; i < N(other); i++)
        if (http_hosts_have(given, N(given), span_of_text(other[i])))
            fail_msg("%s is known", other[i]);
    assert_false(http_hosts_have(given, N(given), (struct span){0}));
    static const char *const any = "*";
    assert_int_equal(http_hosts_check(&any, 1, NULL), 0);
    assert_true(http_hosts_have(&any, 1, span_of_text("evil.test:8080")));
}

TEST(test_a_name_that_is_none_is_refused)
{
    static const char *const wrong[] = {
        "",    "stint:8080", "http://stint", "*stint", "*.", ".stint",
        "a b", "a*",         "[::1]",        "stint/", "**", "*.a*",
    };
    static const char *many[HTTP_HOSTS_MAX + 1];
    struct stint_error error;
    char text[256];
    for (size_t i = 0; i < N(wrong); i++)
        if (http_hosts_check(&wrong[i], 1, &error) != STINT_E_SYNTAX)
            fail_msg("\"%s\" is taken", wrong[i]);
    assert_non_null(strstr(error.message, "\"*.a*\": expected a name without scheme and port"));
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(http_hosts_check(&(const char *){text}, 1, &error), STINT_E_SYNTAX);
    for (size_t i = 0; i < N(many); i++)
        many[i] = "a";
    assert_int_equal(http_hosts_check(many, N(many), &error), STINT_E_RANGE);
}

static void assert_at_host(const char *fields, unsigned expected)
{
    for (size_t i = 0; i < N(reading); i++)
        if (send(reading[i], fields, "") != expected)
            fail_msg("%s\n%s-- is answered --\n%s", reading[i], fields, t.answer);
    for (size_t i = 0; i < N(changing); i++) {
        char all[512];
        snprintf(all, sizeof(all), "%s%s", fields, TYPED);
        unsigned status = send(changing[i].line, all, changing[i].body);
        if ((status == 421) != (expected == 421))
            fail_msg("%s\n%s-- is answered --\n%s", changing[i].line, fields, t.answer);
    }
    for (size_t i = 0; i < N(health); i++)
        assert_int_equal(send(health[i], fields, ""), 200);
}

TEST(test_a_name_pointed_at_this_server_reads_and_changes_nothing)
{
    static const char *const hosts[] = {"stint"};
    http_close(&t);
    open_with(&(struct http_config_options){.domain = "shop", .hosts = hosts, .n_hosts = 1});
    /* As a page sends it whose name leads here: it is of its own origin. */
    assert_at_host("Host: evil.test:8080\nOrigin: http://evil.test:8080\n"
                   "X-Forwarded-For: 203.0.113.9\n",
                   421);
    assert_at_host("Host: evil.test\nSec-Fetch-Site: same-origin\n", 421);
    assert_at_host("Host: stint:8080\n", 200);
    /* Names that are like the one that was just answered. */
    assert_at_host("Host: stinu:8080\n", 421);
    assert_at_host("Host: stint.\n", 200);
    assert_at_host("Host: stint.:x\n", 421);
    assert_at_host("Host: a-name-that-is-longer-than-most-names-of-hosts-are-by-far.localhost\n",
                   200);
    assert_at_host("Host: a-name-that-is-longer-than-most-names-of-hosts-are-by-far.localhos.t\n",
                   421);
    assert_at_host("Host: 192.0.2.7:8080\n", 200);
    assert_at_host("Host: \n", 200);
    assert_at_host("", 200);
    assert_says(&t, message_of("GET /", "Host: evil.test\n", ""), "421\n");
    assert_says(&t, message_of("GET /openapi.json", "Host: evil.test\n", ""), "421\n");
    assert_says(&t, message_of("GET /v1/stats", "Host: evil.test:8080\n", ""),
                "\"title\":\"Misdirected Request\",\"status\":421,\"detail\":\"without tokens this "
                "server answers at IP addresses, localhost and the names in http_hosts, and not at "
                "\\\"evil.test:8080\\\": add the name with --http-hosts NAME\"");
    assert_says(&t, message_of("GET /auth", "Host: evil.test\n", ""),
                "or the proxy with --http-trusted-proxies ADDRESS");
    assert_int_equal(send("POST /v1/pools/p/add", "Host: evil.test\n", "{}"), 421);
    /* The authority of a target stands in the place of Host. */
    assert_int_equal(send("GET http://evil.test:8080/v1/stats", HERE, ""), 421);
    assert_int_equal(send("GET http://127.0.0.1:8080/v1/stats", "Host: evil.test\n", ""), 200);
    assert_int_equal(send("GET http://127.0.0.1@evil.test/v1/stats", HERE, ""), 421);
    assert_int_equal(
        send("POST http://evil.test/v1/reload", HERE "Origin: http://127.0.0.1:8080\n", ""), 403);
    /* A long name is cut in the message. */
    char fields[512] = "Host: ";
    memset(fields + 6, 'x', 400);
    strcpy(fields + 406, "\n");
    assert_int_equal(send("GET /v1/stats", fields, ""), 421);
}

TEST(test_unix_sockets_and_proxies_may_have_any_host)
{
    static const char *const trusted[] = {"192.0.2.0/24"};
    http_close(&t);
    open_with(&(struct http_config_options){
        .domain = "shop", .trusted_proxies = trusted, .n_trusted_proxies = 1});
    t.peer = "";
    assert_at_host("Host: www.example.com\n", 200);
    t.peer = "192.0.2.1";
    assert_int_equal(send("GET /auth", "Host: www.example.com\n", ""), 200);
    /* With a port it may be a page's that is pointed at this server's. */
    assert_int_equal(send("GET /auth", "Host: evil.test:8080\nX-Forwarded-For: 203.0.113.9\n", ""),
                     421);
    assert_int_equal(send("GET /v1/stats", "Host: www.example.com\n", ""), 421);
    t.peer = "198.51.100.1";
    assert_int_equal(send("GET /auth", "Host: www.example.com\nX-Forwarded-For: 203.0.113.9\n", ""),
                     421);
}

TEST(test_with_tokens_any_host_will_do)
{
    struct access_now *now =
        access_now_new(access_of("all ask,administer,metrics 0123456789abcdef0123456789abcdef"));
    http_close(&t);
    http_open(&t, yaml, &(struct http_config_options){.domain = "shop"}, now);
    assert_int_equal(send("GET /v1/stats", "Host: evil.test\n", ""), 401);
    assert_int_equal(send("GET /v1/stats",
                          "Host: stint\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\n",
                          ""),
                     200);
    assert_int_equal(send("GET /openapi.json", "Host: stint\n", ""), 200);
    /* A token does not make a page of another origin one's own. */
    assert_int_equal(
        send("POST /v1/reload",
             HERE "Origin: null\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\n", ""),
        403);
    http_close(&t);
    access_now_free(now);
    open_with(&(struct http_config_options){0});
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

TEST(test_bodies_say_that_they_are_json)
{
    static const struct {
        const char *fields;
        bool is_json;
    } types[] = {
        {"", false},
        {"Content-Type: \n", false},
        {"Content-Type: text/plain\n", false},
        {"Content-Type: application/x-www-form-urlencoded\n", false},
        {"Content-Type: multipart/form-data; boundary=x\n", false},
        {"Content-Type: text/plain; application/json\n", false},
        {"Content-Type: application/jsonx\n", false},
        {"Content-Type: application/json, text/plain\n", false},
        {"Content-Type: application/json\n", true},
        {"Content-Type: Application/JSON; charset=utf-8\n", true},
    };
    for (size_t i = 0; i < N(changing); i++)
        for (size_t k = 0; k < N(types); k++) {
            unsigned status = send(changing[i].line, types[k].fields, changing[i].body);
            bool has_any = changing[i].body[0] == '\0' || strstr(changing[i].line, "/auth") ||
                           strcmp(changing[i].line, "POST /json") == 0;
            if ((status == 415) != (!types[k].is_json && !has_any))
                fail_msg("%s\n%s-- is answered --\n%s", changing[i].line, types[k].fields,
                         t.answer);
        }
}

/* As a connection has it that read no byte of a body: a pointer to nothing. */
TEST(test_each_route_takes_an_empty_body)
{
    for (size_t i = 0; i < N(changing); i++) {
        unsigned status = send(changing[i].line, HERE TYPED, "");
        if (status < 200 || status >= 502 || status == 415)
            fail_msg("%s\n-- is answered --\n%s", changing[i].line, t.answer);
    }
    assert_says(&t, "POST /v1/take\n", "JSON, line 1, column 1: expected an object, {…}");
    assert_int_equal(status_of(&t, "POST /json\n"), 400);
    for (size_t i = 0; i < N(reading); i++)
        assert_int_equal(send(reading[i], HERE, ""), 200);
}
