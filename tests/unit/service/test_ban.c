/* SPDX-License-Identifier: MIT */
/* Bans to the nanosecond, in numbers, in a full table and over a restart; tests/behaviour has the
 * decisions. */
#define _GNU_SOURCE
#include "unit/one_server.h"

#include "rules/ban.h"
#include "table/table.h"

#include <unistd.h>

#define LOGIN                                                                                      \
    "domain: d\n"                                                                                  \
    "descriptors:\n"                                                                               \
    "  - key: login\n"                                                                             \
    "    rate_limit: {unit: second, requests_per_unit: 1}\n"                                       \
    "    ban: {after: 3, for: 1m, within: 10m, factor: 2, max: 5m}\n"                              \
    "  - key: other\n"                                                                             \
    "    rate_limit: {unit: minute, requests_per_unit: 100}\n"

#define ROUNDING 64 /* ns: a ban's end is kept in units of it, rounded down */

/* Uses up what there is, then is denied n times; whether the last one made a ban. */
static bool denied(const char *text, int n)
{
    if (left(&s, text) > 0)
        assert_int_equal(outcome(&s, text), STINT_ALLOW);
    for (int i = 0; i < n; i++)
        assert_int_equal(outcome(&s, text), STINT_DENY);
    return s.reply.statuses[0].banned;
}

static void assert_about(uint64_t ns, uint64_t expected_ns)
{
    assert_in_range(ns, expected_ns - ROUNDING, expected_ns);
}

/* At any instant, by the denial that makes it and by those after it. */
TEST(test_a_ban_of_a_second_is_told_as_a_thousand_milliseconds)
{
    serve(&s, "domain: d\n"
              "descriptors:\n"
              "  - key: login\n"
              "    rate_limit: {unit: second, requests_per_unit: 1000, "
              "algorithm: gcra, burst: 1}\n"
              "    ban: {after: 1, for: 1s, within: 10s}\n");
    for (uint64_t i = 0; i < 200; i++) {
        s.now_ns += 7 * S + i * 7919;
        outcome(&s, "login=a");
        for (int asked = 0; asked < 3; asked++) {
            assert_int_equal(outcome(&s, "login=a"), STINT_DENY);
            assert_true(s.reply.statuses[0].banned);
            uint64_t wait_ns = s.reply.decision.retry_after_ns;
            assert_int_equal((wait_ns + MS - 1) / MS, 1000);
        }
    }
}

TEST(test_denials_that_are_far_apart_make_no_ban)
{
    serve(&s, LOGIN);
    for (int i = 0; i < 20; i++) {
        assert_false(denied("login=a", 2));
        s.now_ns += 11 * MINUTE;
    }
    /* But never so many within the time. */
    denied("login=a", 1);
    s.now_ns += 9 * MINUTE;
    assert_true(denied("login=a", 2));
}

/* The request is decided often, and denied once: by the answer that its caller gets. */
TEST(test_a_request_that_waits_is_denied_once_at_most)
{
    struct asked asked;
    serve(&s, LOGIN);
    outcome(&s, "login=a; other=a");
    descriptors_of(&asked, "login=a; other=a")->retry_until_ns = s.now_ns + 10 * S;
    for (int i = 0; i < 10; i++)
        assert_true(ask(&s, &asked.request)->again_at_ns > 0);
    assert_false(denied("login=a", 2));
    asked.request.retry_until_ns = s.now_ns; /* too late for this caller */
    assert_int_equal(ask(&s, &asked.request)->again_at_ns, 0);
    assert_true(s.reply.statuses[0].banned);
}

TEST(test_a_full_table_of_blocks_is_told)
{
    char text[32];
    unsigned banned = 0;
    serve(&s, LOGIN);
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "login=%d", i);
        banned += denied(text, 3);
    }
    assert_in_range(banned, 64, 999);
    assert_int_equal(outcome(&s, "login=999"), STINT_DENY);
}

TEST(test_what_a_ban_may_be)
{
    const struct rule_ban fine = {
        .after = 5, .factor = 2, .for_ns = MINUTE, .within_ns = MINUTE, .max_ns = DAY};
    const struct {
        struct rule_ban ban;
        const char *error;
    } wrong[] = {
        {{BAN_AFTER_MAX + 1, 2, MINUTE, MINUTE, DAY}, "`after` is a number of denials from 1 to"},
        {{0, 2, MINUTE, MINUTE, DAY}, "`after` is a number of denials from 1 to"},
        {{5, 2, MS - 1, MINUTE, DAY}, "a ban lasts from 1 ms to 365 days"},
        {{5, 2, YEAR + 1, MINUTE, YEAR}, "a ban lasts from 1 ms to 365 days"},
        {{5, 2, MINUTE, MINUTE, MINUTE - 1}, "`max` is from the length of the first ban to"},
        {{5, 2, MINUTE, MINUTE, YEAR + 1}, "`max` is from the length of the first ban to"},
        {{5, 0, MINUTE, MINUTE, DAY}, "`factor` is a whole number from 1 to 1000"},
        {{5, 1001, MINUTE, MINUTE, DAY}, "`factor` is a whole number from 1 to 1000"},
        {{5, 2, MINUTE, 1, DAY}, ""},
    };
    struct rule_ban ban;
    struct stint_error error;
    assert_int_equal(ban_check(&fine, &error), 0);
    for (size_t i = 0; i < N(wrong); i++) {
        assert_int_equal(ban_check(&wrong[i].ban, &error), STINT_E_RANGE);
        assert_non_null(strstr(error.message, wrong[i].error));
    }
    ban = fine;
    ban.after = 1; /* the first denial */
    assert_int_equal(ban_check(&ban, &error), 0);
}

/* Its denials cannot be counted: it bans nothing, and says so. */
TEST(test_a_ban_that_cannot_be)
{
    const struct rule rule = {.id = 7, .ban = {5, 2, MINUTE, 1, DAY}};
    serve(&s, LOGIN);
    assert_int_equal(ban_until(s.table, &rule, span_of_text("a"), s.now_ns), 0);
    assert_true(ban_count(s.table, &rule, span_of_text("a"), s.now_ns).is_lost);
    ban_lift(s.table, &rule, span_of_text("a"), s.now_ns);
    assert_int_equal(ban_until(s.table, &rule, span_of_text("a"), s.now_ns), 0);
}

/* A table in a file, closed and opened again: the ban stands, and so does how long the next is. */
TEST(test_a_ban_outlives_the_process)
{
    char path[] = "/tmp/stint-test-ban-XXXXXX";
    struct rules *rules = rules_of(LOGIN);
    const struct rule *rule = rules_at(rules, 0);
    struct span key = span_of("a", 1);
    struct stint_table *table;
    assert_non_null(mkdtemp(path));
    char file[64];
    snprintf(file, sizeof(file), "%s/table", path);
    const struct stint_table_options options = {.path = file, .clock = STINT_CLOCK_VIRTUAL};
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    struct ban_made made = {0};
    for (int i = 0; i < 3; i++)
        made = ban_count(table, rule, key, START);
    assert_int_not_equal(made.until_ns, 0);
    stint_table_set_now(table, START);
    stint_table_close(table);
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    assert_int_equal(ban_until(table, rule, key, START + 1), made.until_ns);
    assert_int_equal(ban_until(table, rule, key, made.until_ns), 0);
    uint64_t over_ns = made.until_ns;
    for (int i = 0; i < 3; i++)
        made = ban_count(table, rule, key, over_ns);
    assert_about(made.until_ns - over_ns, 2 * MINUTE);
    stint_table_close(table);
    unlink(file);
    rmdir(path);
    rules_unref(rules);
}
