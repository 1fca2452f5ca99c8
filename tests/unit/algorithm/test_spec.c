/* SPDX-License-Identifier: MIT */
/* SPECs: what is read comes back when written, and every mistake is named with its place. */
#include "algorithm/spec.h"
#include "algorithm/suggest.h"
#include "base/buf.h"

#include "unit/test_quota.h"

#include <stdio.h>

static void assert_error(const char *spec, int code, const char *part)
{
    struct stint_quota quota;
    struct stint_error error = {0};
    memset(&quota, 0x5a, sizeof(quota));
    struct stint_quota before = quota;
    int got = stint_quota_parse(&quota, spec, &error);
    if (got != code)
        fail_msg("\"%s\": code %d, \"%s\"", spec, got, error.message);
    if (strstr(error.message, part) == NULL)
        fail_msg("\"%s\": \"%s\" does not say \"%s\"", spec, error.message, part);
    assert_non_null(strstr(error.message, "column "));
    assert_memory_equal(&quota, &before, sizeof(quota));
    assert_int_equal(stint_quota_parse(&quota, spec, NULL), code);
}

/* Each SPEC, written and read again, is the same quota to the byte. */
TEST(test_what_is_written_reads_back)
{
    static const char *const specs[] = {
        "100/60s",
        "window 100/1m resolution=12",
        "window 15/1h30m when_full=deny initial=empty",
        "buckets 500/10m time_slack=1m count_slack=50",
        "buckets 500/10m count_slack=50",
        "buckets 500/10m time_slack=61s initial=7",
        "log 5/s",
        "gcra 100/60s burst=20",
        "gcra 0/1s",
        "token_bucket 1000000/1.5s initial=3 count_denied=true when_full=inherit",
        "fixed_window 1000/1mo align=calendar utc_offset=+01:00",
        "fixed_window 1000/y align=calendar utc_offset=-05:30",
        "fixed_window 3/1w align=calendar utc_offset=-00:00:01",
        "fixed_window 3/d align=calendar when_full=allow",
        "fixed_window 10/1d align=first_use",
        "fixed_window 10/1w3d7ms align=epoch",
        "sliding_counter 100/1m count_denied=true",
        "concurrency 10 lease=30s",
        "concurrency 1 lease=1h when_full=evict",
        "\t sliding_window_log  9/1001ns ",
    };
    for (size_t i = 0; i < N(specs); i++) {
        char text[256];
        struct stint_quota quota = quota_of(specs[i]);
        size_t len = stint_quota_format(&quota, text, sizeof(text));
        assert_int_equal(len, strlen(text));
        struct stint_quota again = quota_of(text);
        assert_memory_equal(&again, &quota, sizeof(quota));
        char cut[8];
        assert_int_equal(stint_quota_format(&quota, cut, sizeof(cut)), len);
        assert_int_equal(strlen(cut), 7);
        assert_int_equal(stint_quota_format(&quota, NULL, 0), len);
    }
}

/* Random quotas of every shape, too. */
TEST(test_random_quotas_read_back)
{
    uint64_t seed = 9;
    size_t kept = 0;
    for (int turn = 0; turn < 20000; turn++) {
        struct stint_quota quota = {
            .algorithm = (uint8_t)(STINT_GCRA + next_random(&seed) % 3),
            .limit = (uint32_t)(next_random(&seed) >> next_random(&seed) % 40),
            .period_ns = next_random(&seed) * 13 >> next_random(&seed) % 40,
            .when_full = (uint8_t)(next_random(&seed) % 5),
            .count_denied = next_random(&seed) % 2,
            .initial_set = next_random(&seed) % 2,
        };
        quota.initial = quota.limit == 0 ? 0 : (uint32_t)(next_random(&seed) % quota.limit);
        if (quota.algorithm == STINT_GCRA && quota.limit > 0)
            quota.burst = (uint32_t)(quota.limit + next_random(&seed) % 9 - quota.limit / 2 % 5);
        if (quota.algorithm == STINT_FIXED_WINDOW && next_random(&seed) % 2) {
            quota.align = (uint8_t)(STINT_ALIGN_FIRST_USE + next_random(&seed) % 5);
            if (quota.align > STINT_ALIGN_FIRST_USE) {
                quota.period_ns = 0;
                quota.utc_offset_s = (int32_t)(next_random(&seed) % 172799) - 86399;
            }
        }
        char text[256];
        if (stint_quota_check(&quota, NULL) != STINT_OK)
            continue;
        kept++;
        stint_quota_format(&quota, text, sizeof(text));
        struct stint_quota again = quota_of(text);
        assert_memory_equal(&again, &quota, sizeof(quota));
    }
    assert_true(kept > 5000);
}

/* Names from elsewhere mean ours. */
TEST(test_other_systems_names_are_known)
{
    assert_int_equal(quota_of("100/60s").algorithm, STINT_WINDOW);
    assert_int_equal(quota_of("token_bucket 1/1s").algorithm, STINT_GCRA);
    assert_int_equal(quota_of("leaky_bucket 1/1s").algorithm, STINT_GCRA);
    assert_int_equal(quota_of("sliding_window_log 1/1s").algorithm, STINT_LOG);
    assert_int_equal(quota_of("sliding_window_counter 1/1s").algorithm, STINT_SLIDING_COUNTER);
    assert_int_equal(quota_of("sliding_window 1/1s").algorithm, STINT_SLIDING_COUNTER);
}

/* A mistake is named by its column, with what was expected and the name that was meant. */
TEST(test_mistakes_are_named_with_their_place)
{
    assert_error("", STINT_E_SYNTAX, "column 1: expected LIMIT/PERIOD");
    assert_error("100/day", STINT_E_SYNTAX, "column 5: expected a duration such as 60s, 1h30m");
    assert_error("widnow 1/1s", STINT_E_SYNTAX, "did you mean \"window\"?");
    assert_error("tokenbucket 1/1s", STINT_E_SYNTAX, "did you mean \"token_bucket\"?");
    assert_error("gcra", STINT_E_SYNTAX, "column 5: expected LIMIT/PERIOD");
    assert_error("gcra 100", STINT_E_SYNTAX, "column 6: expected LIMIT/PERIOD");
    assert_error("gcra 1_000/1s", STINT_E_SYNTAX, "column 6: expected a number in plain digits");
    assert_error("gcra 10k/1s", STINT_E_SYNTAX, "plain digits");
    assert_error("gcra 4294967296/1s", STINT_E_RANGE, "4294967295");
    assert_error("gcra 1/", STINT_E_SYNTAX, "column 8: expected a duration");
    assert_error("gcra 1/1x", STINT_E_SYNTAX, "column 8: expected a duration");
    assert_error("gcra 1/0s", STINT_E_RANGE, "column 8");
    assert_error("gcra 1/99ns", STINT_E_RANGE, "column 6: a period of 99 ns");
    assert_error("gcra 1/1s burst", STINT_E_SYNTAX, "column 11: expected an option as name=value");
    assert_error("gcra 1/1s brust=2", STINT_E_SYNTAX, "did you mean \"burst\"?");
    assert_error("gcra 1/1s zzzzzzzz=2", STINT_E_SYNTAX, "column 11: expected the name of an");
    assert_error("gcra 1/1s burst=0", STINT_E_RANGE, "column 17: expected a number from 1");
    assert_error("gcra 1/1s burst=", STINT_E_SYNTAX, "found nothing");
    assert_error("gcra 1/1s burst=2 burst=2", STINT_E_MISMATCH, "column 19: expected each");
    assert_error("gcra 1/1s resolution=24", STINT_E_MISMATCH, "column 11");
    assert_error("window 1/1s align=epoch", STINT_E_MISMATCH, "column 13");
    assert_error("window 1/1s count_denied=false", STINT_E_MISMATCH, "count_denied");
    assert_error("gcra 1/1s when_full=evcit", STINT_E_SYNTAX, "did you mean \"evict\"?");
    assert_error("gcra 1/1s count_denied=yes", STINT_E_SYNTAX, "true or false");
    assert_error("gcra 1/1s initial=half", STINT_E_SYNTAX, "column 19: expected initial=full");
    assert_error("fixed_window 1/1mo", STINT_E_MISMATCH, "align=calendar");
    assert_error("gcra 1/1y", STINT_E_MISMATCH, "align=calendar");
    assert_error("fixed_window 1/7mo align=calendar", STINT_E_SYNTAX, "1d, 1w, 1mo or 1y");
    assert_error("fixed_window 1/60s align=calendar", STINT_E_SYNTAX, "column 16");
    assert_error("fixed_window 1/1d align=calender", STINT_E_SYNTAX, "did you mean \"calendar\"?");
    assert_error("fixed_window 1/1d align=calendar utc_offset=+1:00", STINT_E_SYNTAX, "+01:00");
    assert_error("fixed_window 1/1d align=calendar utc_offset=+24:00", STINT_E_SYNTAX, "+01:00");
    assert_error("fixed_window 1/1d utc_offset=+01:00", STINT_E_MISMATCH, "align=calendar");
    assert_error("concurrency 10/1s lease=3s", STINT_E_MISMATCH, "column 13");
    assert_error("concurrency 10", STINT_E_MISMATCH, "lease");
    assert_error("concurrency", STINT_E_SYNTAX, "LIMIT such as 10");
    assert_error("gcra 1/1s \x01\xff=2", STINT_E_SYNTAX, "\"?\?\"");
}

/* Quotas spelt as elsewhere are answered with the SPEC that was meant, which is one. */
TEST(test_other_spellings_are_answered_with_the_spec)
{
    static const struct {
        const char *spec, *meant; /* NULL: there is no guess */
    } rows[] = {
        {"100/day", "100/1d"},
        {"100/minute", "100/1m"},
        {"100/hour", "100/1h"},
        {"100/min", "100/1m"},
        {"100/sec", "100/1s"},
        {"100/week", "100/1w"},
        {"100/60", "100/60s"},
        {"100 per minute", "100/1m"},
        {"100 Requests PER Minute", "100/1m"},
        {"100 / minute", "100/1m"},
        {"100/ 5 minutes", "100/5m"},
        {"100/5mins", "100/5m"},
        {"100 requests every 10 seconds", "100/10s"},
        {"3 in 10 s", "3/10s"},
        {"5r/s", "5/1s"},
        {"30r/m", "30/1m"},
        {"5rps", "5/1s"},
        {"60 rpm", "60/1m"},
        {"100/minut", "100/1m"},
        {"100/month", "fixed_window 100/1mo align=calendar"},
        {"100/1y", "fixed_window 100/1y align=calendar"},
        {"fixed_window 100/month utc_offset=+01:00",
         "fixed_window 100/1mo align=calendar utc_offset=+01:00"},
        {"gcra 100 per minute   burst=20", "gcra 100/1m burst=20"},
        {"gcra 100/500 milliseconds", "gcra 100/500ms"},
        {"gcra 100/month", NULL},
        {"100/M", NULL}, /* a month or a minute */
        {"5k/s", NULL},  /* not 5 */
        {"100 kilobytes per minute", NULL},
        {"100/fortnight", NULL},
        {"100/5 minutes or so", NULL},
        {"100", NULL},
        {"100/", NULL},
        {"gcra 100/day burst=0", NULL},
        {"4294967296/day", NULL},
        {"gcar 100/day", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stint_quota quota, meant;
        struct stint_error error = {0};
        char said[160];
        assert_int_not_equal(stint_quota_parse(&quota, rows[i].spec, &error), STINT_OK);
        if (rows[i].meant == NULL) {
            if (strstr(error.message, "/1") != NULL && strstr(error.message, "did you") != NULL)
                fail_msg("\"%s\": %s", rows[i].spec, error.message);
            continue;
        }
        snprintf(said, sizeof(said), "; did you mean \"%s\"?", rows[i].meant);
        if (strstr(error.message, said) == NULL)
            fail_msg("\"%s\": \"%s\" does not say %s", rows[i].spec, error.message, said);
        assert_int_equal(stint_quota_parse(&meant, rows[i].meant, &error), STINT_OK);
    }
}

TEST(test_other_spellings_of_durations)
{
    static const struct {
        const char *text, *meant;
    } rows[] = {{"5min", "5m"},        {"1 day", "1d"},      {"hour", "1h"},  {"90", "90s"},
                {"2 Weeks", "2w"},     {"100msec", "100ms"}, {"", NULL},      {"soon", NULL},
                {"5 minutes 3", NULL}, {"-5min", NULL},      {"1.5min", NULL}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[32] = "";
        struct buf buf = buf_of(text, sizeof(text));
        assert_int_equal(suggest_duration(&buf, span_of_text(rows[i].text)), rows[i].meant != NULL);
        if (rows[i].meant != NULL)
            assert_string_equal(text, rows[i].meant);
    }
}

/* Durations are exact decimals from greater to smaller units, and nothing is cut off. */
TEST(test_durations_are_exact)
{
    static const struct {
        const char *text;
        int code;
        uint64_t ns;
    } lines[] = {
        {"60s", 0, MINUTE},
        {"1m", 0, MINUTE},
        {"1h30m", 0, 90 * MINUTE},
        {"500ms", 0, 500 * MS},
        {"1.5s", 0, 1500 * MS},
        {"s", 0, S},
        {"w", 0, 7 * DAY},
        {"2d", 0, 2 * DAY},
        {"0.000001ms", 0, 1},
        {"1us5ns", 0, 1005},
        {"0s", 0, 0},
        {"0.1us", 0, 100},
        {"1w2d3h4m5s6ms7us8ns", 0, 9 * DAY + 11045 * S + 6007008},
        {"1.5ns", STINT_E_RANGE, 0},
        {"0.0001us", STINT_E_RANGE, 0},
        {"18446744073709551616ns", STINT_E_RANGE, 0},
        {"584y", STINT_E_SYNTAX, 0},
        {"99999999999w", STINT_E_RANGE, 0},
        {"30m1h", STINT_E_SYNTAX, 0},
        {"1m1m", STINT_E_SYNTAX, 0},
        {"", STINT_E_SYNTAX, 0},
        {"1", STINT_E_SYNTAX, 0},
        {"1.s", STINT_E_SYNTAX, 0},
        {".5s", STINT_E_SYNTAX, 0},
        {"-1s", STINT_E_SYNTAX, 0},
        {"1 s", STINT_E_SYNTAX, 0},
        {"s1m", STINT_E_SYNTAX, 0},
        {"1e3s", STINT_E_SYNTAX, 0},
        {"1.0000000000000000000s", STINT_E_RANGE, 0},
        {"1mo", STINT_E_SYNTAX, 0},
    };
    for (size_t i = 0; i < N(lines); i++) {
        uint64_t ns;
        int code = spec_parse_duration(span_of_text(lines[i].text), &ns);
        if (code != lines[i].code || (code == 0 && ns != lines[i].ns))
            fail_msg("\"%s\": code %d, %llu ns", lines[i].text, code, (unsigned long long)ns);
    }
    uint64_t seed = 10;
    for (int turn = 0; turn < 20000; turn++) {
        char text[64];
        uint64_t ns = next_random(&seed) * 15 >> next_random(&seed) % 48, again;
        struct buf buf = buf_of(text, sizeof(text));
        spec_format_duration(&buf, ns);
        assert_int_equal(spec_parse_duration(span_of(text, buf.len), &again), STINT_OK);
        assert_int_equal(again, ns);
    }
}
