/* SPDX-License-Identifier: MIT */
/* Access log lines as Apache and nginx write them, and as attackers make them write. */
#include "unit/test.h"

#include "base/ns.h"
#include "sim/input/logline.h"

#define DATE "[17/May/2015:10:05:03 +0000]"
#define AT_NS (UINT64_C(1431857103) * NS_PER_S)

static struct logline logline;

static void expect_key(const char *key_expr, const char *line, const char *key)
{
    struct event event;
    struct stint_error error = {0};
    assert_int_equal(logline_init(&logline, key_expr, &error), 0);
    if (logline_parse(&logline, &event, span_of_text(line), &error) != EVENT_FOUND)
        fail_msg("%s: %s", line, error.message);
    assert_int_equal(event.at_ns, AT_NS);
    assert_int_equal(event.cost, 1);
    if (!span_equals(event.key, key))
        fail_msg("%s of %s is %.*s, not %s", key_expr, line, (int)event.key.len,
                 (const char *)event.key.ptr, key);
}

static void expect_malformed(const char *line, const char *part_of_message)
{
    struct event event;
    struct stint_error error = {0};
    assert_int_equal(logline_init(&logline, "ip", &error), 0);
    assert_int_equal(logline_parse(&logline, &event, span_of_text(line), &error), STINT_E_SYNTAX);
    if (strstr(error.message, part_of_message) == NULL)
        fail_msg("'%s' gave '%s', without '%s'", line, error.message, part_of_message);
}

TEST(test_reads_common_and_combined_lines)
{
    static const char common[] = "203.0.113.9 - ann " DATE " \"GET /a/b?c=d HTTP/1.1\" 200 512";
    static const char combined[] = "203.0.113.9 - ann " DATE " \"GET /a/b?c=d HTTP/1.1\" 200 512 "
                                   "\"http://example.org/\" \"agent [\\\"1\\\"] \\\\\"";
    static const char *const lines[] = {common, combined};
    for (size_t i = 0; i < 2; i++) {
        expect_key("ip", lines[i], "203.0.113.9");
        expect_key("user", lines[i], "ann");
        expect_key("method", lines[i], "GET");
        expect_key("path", lines[i], "/a/b");
        expect_key("status", lines[i], "200");
        expect_key("ip+path", lines[i], "203.0.113.9+/a/b");
        expect_key("method+status+user", lines[i], "GET+200+ann");
    }
    expect_key("status", "h - - " DATE " \"GET / HTTP/1.1\" 304 -", "304");
}

/* IPv6 by prefix, v4-mapped as IPv4, names as they are. */
TEST(test_addresses_are_canonical)
{
#define REST " - - " DATE " \"GET / HTTP/1.1\" 200 1"
    expect_key("ip", "2001:DB8:0:0:0:0:0:1" REST, "2001:db8::1");
    expect_key("ip/64", "2001:db8:1:2:3:4:5:6" REST, "2001:db8:1:2::");
    expect_key("ip/64", "::ffff:203.0.113.9" REST, "203.0.113.9");
    expect_key("ip/64", "203.0.113.9" REST, "203.0.113.9");
    expect_key("ip/48+status", "2001:db8:1:2::7" REST, "2001:db8:1::+200");
    expect_key("ip", "crawler.example.org" REST, "crawler.example.org");
    expect_key("ip", "300.1.1.1" REST, "300.1.1.1");
#undef REST
}

/* As Debian's Apache writes those of all its hosts; the name of a host is no client. */
TEST(test_the_client_is_found_behind_a_virtual_host)
{
#define REST " - ann " DATE " \"GET / HTTP/1.1\" 200 1"
    expect_key("ip+user", "www.example.org:443 203.0.113.9" REST, "203.0.113.9+ann");
    expect_key("ip/64", "www.example.org:80 2001:db8:1:2:3:4:5:6" REST, "2001:db8:1:2::");
    expect_key("ip", "203.0.113.1 203.0.113.9" REST, "203.0.113.9");
    expect_key("ip+user", "203.0.113.9 ident ann " DATE " \"GET / HTTP/1.1\" 200 1",
               "203.0.113.9+ann");
#undef REST
}

/* Users with blanks and brackets; requests that never were any. */
TEST(test_odd_lines)
{
    expect_key("user", "h - a b [c] " DATE " \"GET / HTTP/1.1\" 200 1", "a b [c]");
    expect_key("path", "h - - " DATE " \"-\" 408 -", "-");
    expect_key("method", "h - - " DATE " \"-\" 408 -", "-");
    expect_key("path", "h - - " DATE " \"\\x16\\x03\\x01\" 400 226", "\\x16\\x03\\x01");
    expect_key("path", "h - - " DATE " \"\" 400 0", "");
    expect_key("path", "h - - " DATE " \"GET /a\\\"b\\\" HTTP/1.1\" 404 1", "/a\\\"b\\\"");
    expect_key("path", "h - - " DATE " \"GET /a\\\\\" 200 1", "/a\\\\");
    expect_key("path", "h - - " DATE " \"GET /?a HTTP/1.1\" 200 1", "/");
}

TEST(test_malformed_lines_say_what_is_missing)
{
    struct event event;
    assert_int_equal(logline_init(&logline, "ip", NULL), 0);
    assert_int_equal(logline_parse(&logline, &event, span_of_text(""), NULL), EVENT_NONE);
    expect_malformed("nonsense", "no HOST IDENT");
    expect_malformed("h - ", "no date");
    expect_malformed("h - - [17/May/2015:10:05:03]", "no date");
    expect_malformed("h - - [31/Apr/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1", "no date");
    expect_malformed("h - - " DATE, "no date");
    expect_malformed("h - - " DATE " ", "no request");
    expect_malformed("h - - " DATE " \"GET / HTTP/1.1", "no request");
    expect_malformed("h - - " DATE " \"GET / HTTP/1.1\\\" 200 1", "no request");
    expect_malformed("h - - " DATE " \"GET / HTTP/1.1\"", "no STATUS");
    expect_malformed("h - - " DATE " \"GET / HTTP/1.1\" 200", "no STATUS");
    expect_malformed("h - - " DATE " \"GET / HTTP/1.1\" abc 1", "no STATUS");
    expect_malformed("h - - " DATE " \"GET / HTTP/1.1\" 2000 1", "no STATUS");
    expect_malformed("h - - " DATE " \"GET / HTTP/1.1\" 200 x", "no STATUS");
}

/* A line cut anywhere is an event or malformed, and is never read past its end. */
TEST(test_lines_cut_anywhere)
{
    static const char line[] =
        "::ffff:203.0.113.9 - a [b] " DATE " \"GET /a\\\"b HTTP/1.1\" 200 512 \"ref\" \"agent\"";
    struct event event;
    size_t n_events = 0;
    assert_int_equal(logline_init(&logline, "ip+user+method+path+status", NULL), 0);
    for (size_t len = 1; len < sizeof(line); len++) {
        char copy[sizeof(line)];
        memset(copy, '[', sizeof(copy));
        memcpy(copy, line, len);
        int code = logline_parse(&logline, &event, span_of(copy, len), NULL);
        assert_true(code == EVENT_FOUND || code == STINT_E_SYNTAX);
        n_events += code == EVENT_FOUND;
    }
    assert_int_equal(n_events, sizeof("512 \"ref\" \"agent\"") - 1);
}

TEST(test_key_expressions_that_are_none)
{
    static const char *const wrong[] = {
        "",
        "ip+",
        "+ip",
        "addr",
        "ip/0",
        "ip/129",
        "ip/x",
        "user/64",
        "IP",
        "ip ",
        "ip/99999999999",
        "ip/",
        "ip+ip+ip+ip+ip+ip+ip+ip+ip",
    };
    for (size_t i = 0; i < N(wrong); i++)
        if (logline_init(&logline, wrong[i], NULL) == 0)
            fail_msg("'%s' was accepted", wrong[i]);
}
