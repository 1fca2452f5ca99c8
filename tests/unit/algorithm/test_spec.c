/* SPDX-License-Identifier: MIT */
/* SPECs: what is read comes back when written, and every mistake is named with its place. */
#include "algorithm/spec.h"
#include "base/buf.h"

#include "unit/asking.h"

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
