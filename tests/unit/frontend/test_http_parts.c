/* SPDX-License-Identifier: MIT */
/*
 * What /auth makes of a request: one spelling of its path, the client that a chain of proxies
 * speaks for, and descriptors out of configured parts.
 */
#include "unit/test_http_client.h"

#include "proto/http/http_parts.h"
#include "proto/http/http_target.h"

/* ---- Targets --------------------------------------------------------------------------------- */

TEST(test_all_spellings_of_a_path_are_one)
{
    static const char *const paths[][2] = {
        {"/", "/"},
        {"/a/b", "/a/b"},
        {"/a/b/", "/a/b/"},
        {"//a///b", "/a/b"},
        {"/a/./b", "/a/b"},
        {"/a/../b", "/b"},
        {"/../../b", "/b"},
        {"/a/b/..", "/a/"},
        {"/a/b/.", "/a/b/"},
        {"/a/...", "/a/..."},
        {"/%61dmin", "/admin"},
        {"/a/%2e%2E/b", "/b"},
        {"/a%2fb", "/a%2Fb"},
        {"/a%2Fb", "/a%2Fb"},
        {"/100%", "/100%"},
        {"/%zz%4", "/%zz%4"},
        {"/a%252Fb", "/a%252Fb"},
        {"/x%25zz", "/x%25zz"},
        {"a//b", "/a/b"},
        {"../a", "/a"},
        {"*", "*"},
        {"", "/"},
    };
    for (size_t i = 0; i < N(paths); i++) {
        uint8_t text[64];
        size_t len = http_target_path(span_of_text(paths[i][0]), text);
        assert_int_equal(len, strlen(paths[i][1]));
        assert_memory_equal(text, paths[i][1], len);
    }
}

TEST(test_a_target_may_name_its_server)
{
    static const char *const targets[][3] = {
        {"/a?b=c", "/a", "b=c"},
        {"/a?b=c?d#e", "/a", "b=c?d"},
        {"http://host:80/a?b", "/a", "b"},
        {"https://host?b", "/", "b"},
        {"http://host", "/", ""},
        {"/a:b://c", "/a:b://c", ""},
        {"", "/", ""},
        {"?b", "/", "b"},
        {"host:80", "host:80", ""},
    };
    for (size_t i = 0; i < N(targets); i++) {
        struct http_target target = http_target_of(span_of_text(targets[i][0]));
        assert_true(span_equals(target.path, targets[i][1]));
        assert_true(span_equals(target.query, targets[i][2]));
    }
}

TEST(test_parameters_are_decoded)
{
    struct span query = span_of_text("&a=1&=x&b+c=%26+%zz&d&e="), name, value;
    static const char *const expected[][2] = {{"a", "1"}, {"b c", "& %zz"}, {"d", ""}, {"e", ""}};
    uint8_t text[64];
    for (size_t i = 0; i < N(expected); i++) {
        assert_true(http_target_next(&query, text, &name, &value));
        assert_true(span_equals(name, expected[i][0]));
        assert_true(span_equals(value, expected[i][1]));
    }
    assert_false(http_target_next(&query, text, &name, &value));
}

/* ---- Whom to believe ------------------------------------------------------------------------- */

static struct http_proxies *proxies_of(const char *const *texts, size_t n)
{
    struct http_proxies *proxies;
    struct stint_error error;
    if (http_proxies_new(&proxies, texts, n, &error) != 0)
        fail_msg("%s", error.message);
    return proxies;
}

static bool trusts(const char *network, const char *address)
{
    struct http_proxies *proxies = proxies_of(&network, 1);
    bool trusted = http_proxies_trust(proxies, span_of_text(address));
    http_proxies_free(proxies);
    return trusted;
}

TEST(test_networks_are_matched_by_their_bits)
{
    assert_true(trusts("10.0.0.0/8", "10.255.3.4"));
    assert_false(trusts("10.0.0.0/8", "11.0.0.1"));
    assert_true(trusts("10.0.0.128/25", "10.0.0.200:4711"));
    assert_false(trusts("10.0.0.128/25", "10.0.0.100"));
    assert_true(trusts("192.0.2.1", "::ffff:192.0.2.1"));
    assert_false(trusts("192.0.2.1", "192.0.2.2"));
    assert_true(trusts("2001:db8::/33", "[2001:db8:7fff::1]:80"));
    assert_false(trusts("2001:db8::/33", "2001:db8:8000::1"));
    assert_true(trusts("0.0.0.0/0", "203.0.113.9"));
    assert_false(trusts("0.0.0.0/0", "2001:db8::1"));
    assert_true(trusts("unix", ""));
    assert_false(trusts("10.0.0.0/8", ""));
    assert_false(trusts("unix", "127.0.0.1"));
    assert_false(trusts("10.0.0.0/8", "not an address"));
}

TEST(test_a_network_that_is_none_is_refused)
{
    static const char *const wrong[][2] = {
        {"10.0.0/8", "expected an address, a network like 10.0.0.0/8, or unix"},
        {"10.0.0.0/33", "expected a length of 0 to 32 after the '/'"},
        {"::1/129", "expected a length of 0 to 128"},
        {"10.0.0.0/", "expected a length"},
        {"10.0.0.0/+8", "expected a length"},
        {"localhost", "expected an address"},
        {"", "expected an address"},
    };
    struct http_proxies *proxies;
    struct stint_error error;
    for (size_t i = 0; i < N(wrong); i++) {
        assert_true(http_proxies_new(&proxies, &wrong[i][0], 1, &error) < 0);
        assert_non_null(strstr(error.message, wrong[i][1]));
    }
}

/* The address that is found, or the message of the refusal. */
static const char *origin_of(const char *fields, const struct http_origin_fields *names)
{
    static const char *const trusted[] = {"10.0.0.0/8", "2001:db8::/32"};
    static char text[STINT_ERROR_MAX];
    struct http_proxies *proxies = proxies_of(trusted, 2);
    struct stint_error error;
    struct http_origin origin;
    const struct http_message message = {.method = span_of_text("GET"),
                                         .target = span_of_text("/auth"),
                                         .peer = span_of_text("10.0.0.1"),
                                         .field = http_client_field,
                                         .field_arg = fields};
    if (http_origin_find(&origin, proxies, names, &message, &error) == 0)
        snprintf(text, sizeof(text), "%.*s %.*s %.*s", (int)origin.address.len,
                 (const char *)origin.address.ptr, (int)origin.method.len,
                 (const char *)origin.method.ptr, (int)origin.target.len,
                 (const char *)origin.target.ptr);
    else
        snprintf(text, sizeof(text), "%s", error.message);
    http_proxies_free(proxies);
    return text;
}

#define ADDRESS(fields) origin_of("\n" fields "\n", &(struct http_origin_fields){0})

TEST(test_the_client_is_the_first_that_is_not_trusted)
{
    assert_string_equal(ADDRESS(""), "10.0.0.1 GET /auth");
    assert_string_equal(ADDRESS("X-Forwarded-For: 203.0.113.9"), "203.0.113.9 GET /auth");
    /* What a client writes itself stands left of what the proxies write. */
    assert_string_equal(ADDRESS("X-Forwarded-For: 1.1.1.1, 203.0.113.9, 10.0.0.7"),
                        "203.0.113.9 GET /auth");
    assert_string_equal(ADDRESS("X-Forwarded-For: 1.1.1.1\nX-Forwarded-For: 203.0.113.9\n"
                                "X-Forwarded-For: 10.0.0.7"),
                        "203.0.113.9 GET /auth");
    assert_string_equal(ADDRESS("X-Forwarded-For: 10.0.0.9, 10.0.0.8"), "10.0.0.9 GET /auth");
    assert_string_equal(ADDRESS("X-Forwarded-For: 1.1.1.1, unknown, 10.0.0.8"),
                        "10.0.0.8 GET /auth");
    assert_string_equal(ADDRESS("X-Forwarded-For:  ,, 203.0.113.9 ,"), "203.0.113.9 GET /auth");
    assert_string_equal(
        ADDRESS("Forwarded: for=1.1.1.1, for=\"[2001:DB9::1]:4711\";proto=https;by=10.0.0.2"),
        "[2001:DB9::1]:4711 GET /auth");
    assert_string_equal(ADDRESS("Forwarded: proto=https;FOR=203.0.113.9, for=10.0.0.7"),
                        "203.0.113.9 GET /auth");
    assert_string_equal(ADDRESS("Forwarded: for=_hidden, for=10.0.0.7"), "10.0.0.7 GET /auth");
}

/* A proxy may quote what a client has written, such as its Host. */
TEST(test_a_separator_in_quotes_separates_nothing)
{
    static const char found[] = "203.0.113.9 GET /auth";
    assert_string_equal(ADDRESS("Forwarded: for=203.0.113.9;host=\"x,for=1.1.1.1;a=\""), found);
    assert_string_equal(ADDRESS("Forwarded: for=203.0.113.9;host=\"x;for=1.1.1.1\""), found);
    assert_string_equal(ADDRESS("Forwarded: for=203.0.113.9;host=\"x\\\",for=1.1.1.1;a=\""), found);
    assert_string_equal(ADDRESS("Forwarded: for=203.0.113.9;host=\"x\\\\\""), found);
    /* The pair of a quote is not in the text that a client has sent before. */
    assert_string_equal(ADDRESS("Forwarded: for=1.1.1.1;a=\", for=203.0.113.9"), found);
    assert_string_equal(ADDRESS("Forwarded: for=203.0.113.9, for=1.1.1.1;a=\""),
                        "10.0.0.1 GET /auth");
    assert_string_equal(origin_of("\nFORWARDED: for=\"203.0.113.9\"\n",
                                  &(struct http_origin_fields){.address = "forwarded"}),
                        found);
    assert_string_equal(origin_of("\nFromClien: 203.0.113.9\n",
                                  &(struct http_origin_fields){.address = "FromClien"}),
                        found);
}

TEST(test_a_request_that_says_two_things_is_refused)
{
    const struct http_origin_fields pinned = {"x-real-ip", "x-forwarded-uri", NULL};
    assert_string_equal(ADDRESS("X-Forwarded-For: 1.1.1.1\nForwarded: for=2.2.2.2"),
                        "both X-Forwarded-For and Forwarded came: the proxy must send only one "
                        "of them; otherwise set http.address_field");
    assert_string_equal(ADDRESS("X-Original-URI: /a\nX-Original-Method: PUT"), "10.0.0.1 PUT /a");
    assert_string_equal(ADDRESS("X-Forwarded-Uri: /a\nX-Forwarded-Method: PUT"), "10.0.0.1 PUT /a");
    assert_non_null(strstr(ADDRESS("X-Original-URI: /a\nX-Forwarded-Uri: /b"), "http.uri_field"));
    assert_non_null(strstr(ADDRESS("X-Original-URI: /a\nX-Original-URI: /b"), "came twice"));
    assert_string_equal(origin_of("\nX-Real-IP: 203.0.113.9\nX-Forwarded-For: 1.1.1.1\n"
                                  "X-Original-URI: /a\nX-Forwarded-Uri: /b\n",
                                  &pinned),
                        "203.0.113.9 GET /b");
}

TEST(test_a_stranger_is_not_believed)
{
    static const char fields[] = "\nX-Forwarded-For: 1.1.1.1\nForwarded: for=2.2.2.2\n"
                                 "X-Original-URI: /a\nX-Forwarded-Uri: /b\n";
    struct http_proxies *proxies = proxies_of(NULL, 0);
    const struct http_message message = {.method = span_of_text("GET"),
                                         .target = span_of_text("/auth"),
                                         .peer = span_of_text("10.0.0.1"),
                                         .field = http_client_field,
                                         .field_arg = fields};
    struct http_origin origin;
    assert_int_equal(
        http_origin_find(&origin, proxies, &(struct http_origin_fields){0}, &message, NULL), 0);
    assert_false(origin.is_forwarded);
    assert_true(span_equals(origin.address, "10.0.0.1"));
    assert_true(span_equals(origin.target, "/auth"));
    http_proxies_free(proxies);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static const char fields_of_request[] = "\nX-Api-Key: k1\nX-Many: a\nX-Many: b\nX-Empty: \n";

/* The descriptors of one list as text: "key=value key=value; …"; or the message of a fault. */
static const char *described(const char *list, const char *address)
{
    static char text[1024];
    static char arena[4096];
    static struct descriptor descriptors[DESCRIPTORS_MAX];
    static struct descriptor_entry entries[DESCRIPTORS_MAX * ENTRIES_MAX];
    struct http_parts *parts;
    struct stint_error error;
    struct http_text values = http_text_at(arena, sizeof(arena));
    const struct http_parts_space space = {descriptors, entries, &values};
    const struct http_message message = {.field = http_client_field,
                                         .field_arg = fields_of_request};
    const struct http_origin origin = {.address = span_of_text(address),
                                       .method = span_of_text("POST"),
                                       .target = span_of_text("/a//%62?user=u%201&x=")};
    text[0] = '\0';
    if (http_parts_new(&parts, &list, 1, &error) != 0) {
        snprintf(text, sizeof(text), "%s", error.message);
        return text;
    }
    int n = http_parts_describe(parts, &message, &origin, &space);
    assert_true(n >= 0);
    int len = 0;
    for (int i = 0; i < n; i++)
        for (size_t j = 0; j < descriptors[i].n_entries; j++) {
            const struct descriptor_entry *entry = &descriptors[i].entries[j];
            len += snprintf(text + len, sizeof(text) - (size_t)len, "%s%.*s=%.*s", j > 0 ? " " : "",
                            (int)entry->key.len, (const char *)entry->key.ptr,
                            (int)entry->value.len, (const char *)entry->value.ptr);
        }
    http_parts_free(parts);
    return text;
}

#define DESCRIBED(list) described(list, "203.0.113.77")

TEST(test_each_part_has_its_entry)
{
    assert_string_equal(DESCRIBED("header:X-Api-Key"), "x-api-key=k1");
    assert_string_equal(DESCRIBED("header:X-Many"), "x-many=a, b");
    assert_string_equal(DESCRIBED("header:X-Empty"), "x-empty=");
    assert_string_equal(DESCRIBED("query:user"), "user=u 1");
    assert_string_equal(DESCRIBED("query:x"), "x=");
    assert_string_equal(DESCRIBED("path"), "path=/a/b");
    assert_string_equal(DESCRIBED("path_prefix:/a"), "path_prefix=/a");
    assert_string_equal(DESCRIBED("path_prefix:/a/"), "path_prefix=/a/");
    assert_string_equal(DESCRIBED("method"), "method=POST");
    assert_string_equal(DESCRIBED("address"), "remote_address=203.0.113.77");
    assert_string_equal(DESCRIBED("address/24"), "remote_address=203.0.113.0");
    assert_string_equal(DESCRIBED("constant:k=v=w"), "k=v=w");
    assert_string_equal(DESCRIBED("user=header:x-api-key, method ,path"),
                        "user=k1 method=POST path=/a/b");
    assert_string_equal(DESCRIBED("constant:k=a\\,b"), "k=a,b");
}

TEST(test_addresses_of_both_families_keep_their_bits)
{
    assert_string_equal(described("address/24,/56", "2001:DB8:1:2ff:3::"),
                        "remote_address=2001:db8:1:200::");
    assert_string_equal(described("address/24/56", "203.0.113.77:80"),
                        "remote_address=203.0.113.0");
    assert_string_equal(described("address", "::ffff:203.0.113.77"), "remote_address=203.0.113.77");
    assert_string_equal(described("address", "[2001:DB8::1]:80"), "remote_address=2001:db8::1");
    assert_string_equal(described("address/0", "203.0.113.77"), "remote_address=0.0.0.0");
}

TEST(test_a_part_that_is_absent_skips_its_list)
{
    assert_string_equal(DESCRIBED("header:X-None, path"), "");
    assert_string_equal(DESCRIBED("path, query:none"), "");
    assert_string_equal(DESCRIBED("path_prefix:/b"), "");
    assert_string_equal(DESCRIBED("path_prefix:/a/bc"), "");
    assert_string_equal(described("address, path", ""), "");
    assert_string_equal(described("address", "1.2.3"), "");
    assert_string_equal(described("address", "01.2.3.4"), "");
}

TEST(test_a_part_that_is_none_is_refused)
{
    static const char *const wrong[][2] = {
        {"adress", "descriptor 1: \"adress\": expected header:NAME, query:NAME, path"},
        {"adress", "did you mean address?"},
        {"", "expected header:NAME"},
        {"path,", "expected header:NAME"},
        {"path:/a", "expected header:NAME"},
        {"header", "header: expected \"header:\" and a value"},
        {"header:", "header: expected \"header:\""},
        {"path_prefix:a", "path_prefix:a: expected a '/' first"},
        {"constant:k", "constant:k: expected KEY=VALUE"},
        {"constant:=v", "expected KEY=VALUE"},
        {"k=constant:a=b", "a constant has its own key"},
        {"=path", "expected a key before '='"},
        {"address/33", "address: expected /BITS of 0 to 32 for IPv4"},
        {"address/24/129", "then /BITS of 0 to 128 for IPv6"},
        {"address/x", "address: expected /BITS"},
        {"path,/56", "expected header:NAME"},
    };
    for (size_t i = 0; i < N(wrong); i++)
        if (strstr(DESCRIBED(wrong[i][0]), wrong[i][1]) == NULL)
            fail_msg("%s: %s", wrong[i][0], DESCRIBED(wrong[i][0]));
}
