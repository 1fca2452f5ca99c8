/* SPDX-License-Identifier: MIT */
/*
 * Mistakes in files of rules: each is told with its line, its column and what was expected, and no
 * file, whatever is in it, brings the reader down.
 */
#include "unit/test_rules.h"

/* One entry with these lines in its rate_limit, which begin at line 5, column 7. */
#define LIMIT(lines) "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n" lines
#define UNIT "      unit: minute\n"
#define TEN "      requests_per_unit: 10\n"

/* ---- Faults ---------------------------------------------------------------------------------- */

static char *told(const char *const *texts, const struct rules_load_options *options)
{
    static char all[65536];
    struct rules_file files[FILES_MAX];
    struct rules_diagnostics diagnostics;
    size_t len = 0;
    struct rules *rules = rules_load(files, files_of(files, texts), options, &diagnostics);
    all[0] = '\0';
    assert_true((rules == NULL) == (diagnostics.n_diagnostics > 0));
    for (size_t i = 0; i < diagnostics.n_diagnostics; i++)
        len += (size_t)snprintf(
            all + len, sizeof(all) - len, "%s:%u:%u: %s\n", diagnostics.diagnostics[i].file,
            (unsigned)diagnostics.diagnostics[i].line, (unsigned)diagnostics.diagnostics[i].column,
            diagnostics.diagnostics[i].message);
    if (diagnostics.n_more > 0)
        snprintf(all + len, sizeof(all) - len, "and %zu more\n", diagnostics.n_more);
    rules_unref(rules);
    rules_diagnostics_free(&diagnostics);
    return all;
}

static void assert_told(const char *text, const char *expected)
{
    const char *texts[] = {text, NULL};
    assert_string_equal(told(texts, NULL), expected);
}

struct mistake {
    const char *text, *told;
};

static void assert_mistakes(const struct mistake *mistakes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_told(mistakes[i].text, mistakes[i].told);
}

TEST(test_what_is_no_yaml_is_told_where_it_ends_to_be)
{
    static const struct mistake mistakes[] = {
        {"domain: 'd\n", "a.yaml:2:1: invalid YAML: found unexpected end of stream while scanning "
                         "a quoted scalar (line 1)\n"},
        {"domain: d\n\tdescriptors:\n",
         "a.yaml:2:1: invalid YAML: found a tab character that violates indentation while scanning "
         "a plain scalar (line 1)\n"},
        {"domain: d\ndescriptors:\n  - key: \xff\n",
         "a.yaml:3:10: invalid YAML: invalid leading UTF-8 octet\n"},
        {"domain: \xc3\xa4\x01\n",
         "a.yaml:1:10: invalid YAML: control characters are not allowed\n"},
        {"domain: d\n---\ndomain: e\n", "a.yaml:2:1: expected one document in a file, found "
                                        "another; give it its own file\n"},
        {"\xef\xbb\xbf"
         "domain: *x\n",
         "a.yaml:1:9: there is no anchor \"x\" above\n"},
        {"domain: *x\n", "a.yaml:1:9: there is no anchor \"x\" above\n"},
        {"domain: &x [*x]\n", "a.yaml:1:13: an alias inside its own anchor\n"},
        {"domain: !!int 5\n", "a.yaml:1:9: tags other than !!str have no meaning here\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_a_nul_is_told)
{
    static const char text[] = "domain: d\n# \0\n";
    const struct rules_file file = {.path = "nul.yaml", .text = span_of(text, sizeof(text) - 1)};
    struct rules_diagnostics diagnostics;
    assert_null(rules_load(&file, 1, NULL, &diagnostics));
    assert_int_equal(diagnostics.n_diagnostics, 1);
    assert_int_equal(diagnostics.diagnostics[0].line, 2);
    assert_int_equal(diagnostics.diagnostics[0].column, 3);
    assert_string_equal(diagnostics.diagnostics[0].message,
                        "invalid YAML: control characters are not allowed");
    rules_diagnostics_free(&diagnostics);
    assert_told("domain: \"d\\0\"\n",
                "a.yaml:1:9: domain: expected a text without a NUL, found \"d?\"\n");
}

TEST(test_every_shape_is_told)
{
    static const struct mistake mistakes[] = {
        {"", "a.yaml:1:1: expected a file, found nothing\n"},
        {"- domain: d\n", "a.yaml:1:1: expected a file, found a list\n"},
        {"descriptors: []\n", "a.yaml:1:1: expected a domain that is not empty, found none\n"},
        {"domain: ''\n", "a.yaml:1:9: expected a domain that is not empty, found none\n"},
        {"domain: [d]\n", "a.yaml:1:9: domain: expected a text, found a list\n"},
        {"domain: d\ndescriptors: {key: k}\n",
         "a.yaml:2:14: descriptors: expected a list of entries, found a mapping\n"},
        {"domain: d\ndescriptors: [k, []]\n",
         "a.yaml:2:15: expected an entry with a key, found \"k\"\n"
         "a.yaml:2:18: expected an entry with a key, found a list\n"},
        {"domain: d\ndescriptors:\n  - value: v\n",
         "a.yaml:3:5: expected a key that is not empty, found none\n"},
        {"domain: d\ndescriptors:\n  - key: ''\n",
         "a.yaml:3:10: expected a key that is not empty, found none\n"},
        {"domain: d\ndescriptors:\n  - key: {}\n    value: []\n",
         "a.yaml:3:10: key: expected a text, found a mapping\n"
         "a.yaml:4:12: value: expected a text, found a list\n"},
        {"domain: d\ndescriptors:\n  - key: k\n    rate_limit: 5\n",
         "a.yaml:4:17: expected a rate_limit with its keys, found \"5\"\n"},
        {"domain: d\ndescriptors:\n  - key: k\n    metadata: [x]\n",
         "a.yaml:4:15: metadata: expected a mapping, found a list\n"},
        {"domain: d\n[x]: y\n", "a.yaml:2:1: expected the name of a key, found a list\n"},
        {"domain: d\n<<: x\n",
         "a.yaml:2:5: <<: expected a mapping or a list of mappings, found neither\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_unknown_keys_are_told_with_the_nearest)
{
    static const struct mistake mistakes[] = {
        {"domian: d\ndomain: d\n",
         "a.yaml:1:1: unknown key \"domian\" in the file; did you mean \"domain\"?\n"},
        {"domain: d\ndescriptors:\n  - key: k\n    ratelimit: {}\n",
         "a.yaml:4:5: unknown key \"ratelimit\" in an entry; did you mean \"rate_limit\"?\n"},
        {"domain: d\ndescriptors:\n  - key: k\n    unit: day\n",
         "a.yaml:4:5: unknown key \"unit\" in an entry: it is a key of rate_limit\n"},
        {LIMIT(UNIT TEN "      shadow_mode: true\n"),
         "a.yaml:7:7: unknown key \"shadow_mode\" in rate_limit: it is a key of an entry\n"},
        {LIMIT(UNIT TEN "      quux: 1\n"), "a.yaml:7:7: unknown key \"quux\" in rate_limit\n"},
        {LIMIT(UNIT TEN "    shadow: {name: x, unit: day, requests_per_unit: 1}\n"),
         "a.yaml:7:14: unknown key \"name\" in shadow: it is a key of rate_limit\n"},
        {LIMIT(UNIT TEN "    ban: {after: 1, fro: 1m, for: 1m}\n"),
         "a.yaml:7:21: unknown key \"fro\" in ban; did you mean \"for\"?\n"},
        {LIMIT(UNIT TEN "      replaces: [{nam: x, name: y}]\n"),
         "a.yaml:7:19: unknown key \"nam\" in replaces; did you mean \"name\"?\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_what_is_there_twice_is_told_with_the_first)
{
    static const struct mistake mistakes[] = {
        {"domain: d\ndomain: e\n", "a.yaml:2:1: the key \"domain\" is there already, in line 1\n"},
        {LIMIT(UNIT TEN UNIT), "a.yaml:7:7: the key \"unit\" is there already, in line 5\n"},
        {"domain: d\ndescriptors:\n  - key: k\n    value: v\n  - {key: k}\n  - {value: v, key: "
         "k}\n",
         "a.yaml:6:5: the key \"k\" with the value \"v\" is there already at this level, in line "
         "3\n"},
        {"domain: d\ndescriptors:\n- {key: k}\n- {key: k, value: ''}\n",
         "a.yaml:4:3: the key \"k\" without value is there already at this level, in line 3\n"},
        {"domain: d\ndescriptors:\n- {key: k, value: a*}\n- {key: k, value: a*}\n",
         "a.yaml:4:3: the key \"k\" with the value \"a*\" is there already at this level, in line "
         "3\n"},
        {"domain: d\ndescriptors:\n- {key: k}\n- {key: k, rate_limit: {unit: x}}\n",
         "a.yaml:4:3: the key \"k\" without value is there already at this level, in line 3\n"
         "a.yaml:4:31: unit: expected second, minute, hour, day, week, month or year, found "
         "\"x\"\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_every_bad_value_is_told)
{
    static const struct mistake mistakes[] = {
        {LIMIT(TEN), "a.yaml:5:7: rate_limit has no unit; expected unit: second, minute, hour, "
                     "day, week, month or year, or period: DURATION\n"},
        {LIMIT(UNIT TEN "    shadow: {unit: day}\n"),
         "a.yaml:7:13: shadow has no requests_per_unit; expected a whole number, 0 to deny "
         "always\n"},
        {LIMIT(TEN "      unit: minuet\n"),
         "a.yaml:6:13: unit: expected second, minute, hour, day, week, month or year, found "
         "\"minuet\"; did you mean \"minute\"?\n"},
        {LIMIT(TEN UNIT "      period: 30s\n"), "a.yaml:7:15: period: there is a unit already; a "
                                                "limit is per unit or per period\n"},
        {LIMIT(TEN "      period: 30\n"),
         "a.yaml:6:15: period: expected a duration such as 30s, 5m or 36h, found \"30\"; did you "
         "mean 30s?\n"},
        {LIMIT(TEN "      period: soon\n"),
         "a.yaml:6:15: period: expected a duration such as 30s, 5m or 36h, found \"soon\"\n"},
        {LIMIT(TEN "      period: 0s\n"),
         "a.yaml:6:15: period: expected a duration of whole nanoseconds, above 0 and below 584 "
         "years, found \"0s\"\n"},
        {LIMIT(UNIT "      requests_per_unit: -5\n"),
         "a.yaml:6:26: requests_per_unit: expected a whole number from 0 to 4294967295, found "
         "\"-5\"\n"},
        {LIMIT(UNIT "      requests_per_unit: 1.5\n"),
         "a.yaml:6:26: requests_per_unit: expected a whole number from 0 to 4294967295, found "
         "\"1.5\"\n"},
        {LIMIT(UNIT "      requests_per_unit: 4294967296\n"),
         "a.yaml:6:26: requests_per_unit: expected a whole number from 0 to 4294967295 (count in "
         "larger units, such as thousands), found \"4294967296\"\n"},
        {LIMIT(UNIT "      requests_per_unit: '5'\n"),
         "a.yaml:6:26: requests_per_unit: expected a number without quotes, found \"5\"\n"},
        {LIMIT(UNIT "      requests_per_unit: 08\n"),
         "a.yaml:6:26: requests_per_unit: expected a whole number from 0 to 4294967295, found "
         "\"08\"\n"},
        {LIMIT(UNIT "      requests_per_unit: [5]\n"),
         "a.yaml:6:26: requests_per_unit: expected a whole number from 0 to 4294967295, found a "
         "list\n"},
        {LIMIT(UNIT TEN "      algorithm: token_buckt\n"),
         "a.yaml:7:18: algorithm: expected an algorithm such as window, gcra or fixed_window, "
         "found \"token_buckt\"; did you mean \"token_bucket\"?\n"},
        {LIMIT(UNIT TEN "      burst: 5\n"),
         "a.yaml:7:14: burst: it is an option of gcra, not of window, which is meant where none is "
         "named\n"},
        {LIMIT(UNIT TEN "      hits: charged\n"),
         "a.yaml:7:13: hits: expected take or charge, found \"charged\"; did you mean "
         "\"charge\"?\n"},
        {LIMIT("      algorithm: concurrency\n      lease: 1m\n" TEN "      hits: charge\n"),
         "a.yaml:8:13: hits: slots of concurrency are taken and returned, and cannot be charged; "
         "leave hits out, or use take\n"},
        {LIMIT("      unlimited: true\n      hits: take\n"),
         "a.yaml:6:13: hits: unlimited: true stands alone, without hits\n"},
        {LIMIT(UNIT TEN "      algorithm: log\n      count_denied: true\n"),
         "a.yaml:8:21: count_denied: it is an option of gcra, fixed_window and sliding_counter, "
         "not "
         "of log\n"},
        {LIMIT(UNIT TEN "      resolution: 9\n"),
         "a.yaml:7:19: resolution: window: resolution is 9, expected 10 to 112\n"},
        {LIMIT(UNIT TEN "      algorithm: buckets\n      count_slack: 11\n"),
         "a.yaml:8:20: count_slack: buckets: count_slack is 11, expected at most the limit of "
         "10\n"},
        {LIMIT(TEN "      period: 4000d\n"),
         "a.yaml:6:15: period: a period of 345600000000000000 ns is not within 1us and 10 years "
         "(3650d)\n"},
        {LIMIT(UNIT TEN "      on_store_error: permit\n"),
         "a.yaml:7:23: on_store_error: expected deny, allow, local or error, found \"permit\"\n"},
        {LIMIT(UNIT TEN "      on_expiry: drop\n"),
         "a.yaml:7:18: on_expiry: expected keep, release or a whole number of units from 0 to "
         "4294967295, found \"drop\"\n"},
        {LIMIT(UNIT TEN "      on_expiry: -1\n"),
         "a.yaml:7:18: on_expiry: expected keep, release or a whole number of units from 0 to "
         "4294967295, found \"-1\"\n"},
        {LIMIT(UNIT TEN "      on_expiry: 4294967296\n"),
         "a.yaml:7:18: on_expiry: expected keep, release or a whole number of units from 0 to "
         "4294967295, found \"4294967296\"\n"},
        {LIMIT(UNIT TEN "      on_expiry: [keep]\n"),
         "a.yaml:7:18: on_expiry: expected keep, release or a whole number of units from 0 to "
         "4294967295, found a list\n"},
        {LIMIT("      unlimited: true\n      on_expiry: release\n"),
         "a.yaml:6:18: on_expiry: an unlimited rule counts nothing, and so nothing is reserved "
         "under it\n"},
        {"domain: d\ndescriptors:\n  - key: k\n    shadow_mode: maybe\n    rate_limit:\n" UNIT TEN,
         "a.yaml:4:18: shadow_mode: expected true or false, found \"maybe\"\n"},
        {"domain: d\ndescriptors:\n  - key: k\n    value: v\n    share_threshold: true\n",
         "a.yaml:5:22: share_threshold: only values of a pattern can share; expected a value with "
         "* in it\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_what_a_algorithm_cannot_hold_is_told_with_its_reason)
{
    const char *texts[] = {
        LIMIT("      period: 1us\n      requests_per_unit: 4000000000\n      algorithm: log\n"),
        NULL};
    struct stint_quota quota = {.algorithm = STINT_LOG, .limit = 4000000000, .period_ns = 1000};
    struct stint_error error;
    char expected[512];
    assert_int_not_equal(stint_quota_check(&quota, &error), 0);
    snprintf(expected, sizeof(expected), "a.yaml:6:26: requests_per_unit: %s\n", error.message);
    assert_string_equal(told(texts, NULL), expected);
}

TEST(test_contradictions_are_told)
{
    static const struct mistake mistakes[] = {
        {LIMIT("      unlimited: true\n      unit: day\n"),
         "a.yaml:6:13: unit: unlimited: true stands alone, without unit\n"},
        {LIMIT("      unlimited: true\n      burst: 5\n"),
         "a.yaml:6:14: burst: unlimited: true stands alone, without burst\n"},
        {LIMIT("      unlimited: true\n    shadow: {unit: day, requests_per_unit: 1}\n"),
         "a.yaml:6:13: shadow: an unlimited rule counts nothing, and so has no candidate beside "
         "it; try the limit with shadow_mode: true\n"},
        {LIMIT("      unlimited: true\n    ban: {after: 1, for: 1m}\n"),
         "a.yaml:6:10: ban: an unlimited rule never denies, so it cannot ban\n"},
        {"domain: d\ndescriptors:\n  - key: k\n    ban: {after: 1, for: 1m}\n    shadow: {}\n",
         "a.yaml:4:10: ban: expected a rate_limit beside it, found none\n"
         "a.yaml:5:13: shadow: expected a rate_limit beside it, found none\n"},
        {LIMIT(UNIT TEN "      name: self\n      replaces:\n        - name: self\n        - name:\n"
                        "        - x\n"),
         "a.yaml:9:17: name: a limit cannot replace itself, \"self\"\n"
         "a.yaml:10:11: expected the name of another limit, found none\n"
         "a.yaml:11:11: expected {name: NAME}, found \"x\"\n"},
        {LIMIT(UNIT TEN "      replaces: other\n"),
         "a.yaml:7:17: replaces: expected a list of {name: NAME}, found \"other\"\n"},
        {LIMIT(TEN "      algorithm: concurrency\n      unit: day\n"),
         "a.yaml:5:7: rate_limit has no lease; concurrency needs one, such as lease: 30s\n"
         "a.yaml:7:13: unit: concurrency is not per time; it has a lease: DURATION\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_contradictions_of_calendars_are_told)
{
    static const struct mistake mistakes[] = {
        {LIMIT(TEN "      unit: month\n      algorithm: gcra\n"),
         "a.yaml:7:18: algorithm: gcra has no calendar months; leave algorithm out, which means "
         "fixed_window, or use calendar: fixed, which means 30 days\n"},
        {LIMIT(TEN "      unit: year\n      algorithm: window\n"),
         "a.yaml:7:18: algorithm: window has no calendar years; leave algorithm out, which means "
         "fixed_window, or use calendar: fixed, which means 365 days\n"},
        {LIMIT(TEN "      unit: day\n      calendar: utc\n      algorithm: log\n"),
         "a.yaml:8:18: algorithm: log has no calendar windows; leave algorithm out, which means "
         "fixed_window\n"},
        {LIMIT(TEN "      unit: hour\n      calendar: utc\n"),
         "a.yaml:7:17: calendar: a calendar window is of a day, week, month or year; expected such "
         "a unit\n"},
        {LIMIT(TEN "      period: 90s\n      utc_offset: +01:00\n"),
         "a.yaml:7:19: utc_offset: a calendar window is of a day, week, month or year; expected "
         "such a unit\n"},
        {LIMIT(TEN "      unit: day\n      utc_offset: +1\n"),
         "a.yaml:7:19: utc_offset: expected an offset such as +01:00, -05:30 or Z, found \"+1\"\n"},
        {LIMIT(TEN "      unit: month\n      calendar: fixed\n      utc_offset: Z\n"),
         "a.yaml:8:19: utc_offset: calendar: fixed has no time zone; leave out one of the two\n"},
        {LIMIT(TEN "      period: 30d\n      calendar: fixed\n"),
         "a.yaml:7:17: calendar: a period is always fixed; expected a unit beside calendar\n"},
        {LIMIT(TEN "      unit: month\n      calendar: lunar\n"),
         "a.yaml:7:17: calendar: expected fixed or utc, found \"lunar\"\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_mistakes_in_bans_are_told)
{
    static const struct mistake mistakes[] = {
        {LIMIT(UNIT TEN "    ban: {}\n"), "a.yaml:7:10: ban has no after; expected such as after: "
                                          "5\na.yaml:7:10: ban has no for; expected such as for: "
                                          "15m\n"},
        {LIMIT(UNIT TEN "    ban: {after: 0, for: 1m}\n"),
         "a.yaml:7:18: after: expected a whole number from 1 to 4294967295, found \"0\"\n"},
        {LIMIT(UNIT TEN "    ban: {after: 1, for: 2h, max: 1h}\n"),
         "a.yaml:7:26: for: it is longer than the longest ban: max, 365 days by default\n"},
        {LIMIT(UNIT TEN "    ban: {after: 1, for: 1h, factor: 1.5}\n"),
         "a.yaml:7:38: factor: expected a whole number from 1 to 4294967295, found \"1.5\"\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_all_faults_of_all_files_are_told_in_their_order)
{
    static const char *const texts[] = {
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: x, requests_per_unit: y}\n"
        "- key: ''\n- {kye: z, key: z}\n",
        "domain: d\ndescriptors: [{key: k, shadow_mode: 7}]\n",
        "domain: e",
        NULL,
    };
    static const struct rules_load_options merging = {.merge_domains = true};
    assert_string_equal(
        told(texts, NULL),
        "a.yaml:4:22: unit: expected second, minute, hour, day, week, month or year, found \"x\"\n"
        "a.yaml:4:44: requests_per_unit: expected a whole number from 0 to 4294967295, found "
        "\"y\"\n"
        "a.yaml:5:8: expected a key that is not empty, found none\n"
        "a.yaml:6:4: unknown key \"kye\" in an entry; did you mean \"key\"?\n"
        "b.yaml:1:9: domain: \"d\" is there already, in line 1 of a.yaml\n");
    const char *twice[] = {"domain: d\ndescriptors: [{key: k}]", texts[1], NULL};
    assert_string_equal(told(twice, &merging), "b.yaml:2:15: the key \"k\" without value is there "
                                               "already at this level, in line 2 of a.yaml\n");
}

TEST(test_faults_that_are_too_many_are_counted)
{
    static char text[64 * 1024] = "domain: d\ndescriptors:\n";
    const char *texts[] = {text, NULL};
    size_t len = strlen(text);
    for (unsigned i = 0; i < RULES_FAULTS_MAX + 7; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "- {key: k%u, ban: {}}\n", i);
    const char *all = told(texts, NULL);
    assert_non_null(strstr(all, "\nand 7 more\n"));
}

/* ---- Warnings -------------------------------------------------------------------------------- */

/* The first warning of a file without fault, or "". The rule's limit in *limit. */
static const char *warned(const char *text, uint32_t *limit)
{
    static char warning[512];
    const struct rules_file file = {.path = "a.yaml", .text = span_of_text(text)};
    struct rules_diagnostics diagnostics;
    struct rules *rules = rules_load(&file, 1, NULL, &diagnostics);
    assert_non_null(rules);
    assert_in_range(diagnostics.n_warnings, 0, 1);
    *limit = rules_at(rules, 0)->requests_per_unit;
    assert_int_equal(rules_at(rules, 0)->quota.limit, *limit);
    warning[0] = '\0';
    if (diagnostics.n_warnings > 0)
        snprintf(warning, sizeof(warning), "%s:%u:%u: %s", diagnostics.warnings[0].file,
                 (unsigned)diagnostics.warnings[0].line, (unsigned)diagnostics.warnings[0].column,
                 diagnostics.warnings[0].message);
    rules_unref(rules);
    rules_diagnostics_free(&diagnostics);
    return warning;
}

/* envoyproxy/ratelimit reads these two so; their files load, and whoever checks is told. */
TEST(test_what_loads_and_is_perhaps_not_meant_is_a_warning)
{
    static const char missing[] =
        "a.yaml:5:7: rate_limit has no requests_per_unit, which means 0: it denies always";
    uint32_t limit;
    assert_string_equal(warned(LIMIT(UNIT), &limit), missing);
    assert_int_equal(limit, 0);
    assert_string_equal(warned(LIMIT(UNIT "      requests_per_unit: ~\n"), &limit), missing);
    assert_int_equal(limit, 0);
    assert_string_equal(warned(LIMIT(UNIT "      requests_per_unit: 010\n"), &limit),
                        "a.yaml:6:26: requests_per_unit: a leading 0 makes 010 an octal number, 8");
    assert_int_equal(limit, 8);
    assert_string_equal(warned("domain: d\ndescriptors:\n  - key: a*\n    rate_limit:\n" UNIT
                               "      requests_per_unit: 3\n",
                               &limit),
                        "a.yaml:3:10: key: a * in a key stands for itself, and in a value for any "
                        "text");
}

/* gopkg.in/yaml.v2 into a uint32, which is what envoyproxy/ratelimit reads its files with. */
TEST(test_numbers_are_those_that_others_read)
{
    static const struct {
        const char *text;
        uint32_t number;
    } numbers[] = {
        {"0x1F", 31}, {"0X1f", 31},    {"+0x1f", 31}, {"0xFFFFFFFF", UINT32_MAX},
        {"0o17", 15}, {"0b101", 5},    {"007", 7},    {"+5", 5},
        {"-0", 0},    {"1_000", 1000}, {"1__0_", 10}, {"0x_ff", 255},
        {"00", 0},
    };
    static const char *const others[] = {"0x",   "0xg", "0b2", "0o8",         "_5", "+",
                                         "-0x1", "1e3", "5.0", "0x100000000", "5 0"};
    char text[256];
    const char *texts[] = {text, NULL};
    uint32_t limit;
    for (size_t i = 0; i < N(numbers); i++) {
        snprintf(text, sizeof(text), LIMIT(UNIT "      requests_per_unit: %s\n"), numbers[i].text);
        assert_string_equal(warned(text, &limit), "");
        assert_int_equal(limit, numbers[i].number);
    }
    for (size_t i = 0; i < N(others); i++) {
        snprintf(text, sizeof(text), LIMIT(UNIT "      requests_per_unit: %s\n"), others[i]);
        assert_non_null(strstr(told(texts, NULL), "expected a whole number from 0 to 4294967295"));
    }
}

/* ---- Limits on files ------------------------------------------------------------------------- */

static char *repeated(const char *piece, size_t n)
{
    size_t len = strlen(piece);
    char *text = malloc(len * n + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * len, piece, len);
    text[len * n] = '\0';
    return text;
}

TEST(test_aliases_do_not_let_a_small_file_grow_large)
{
    char text[4096] = "domain: d\ndescriptors: []\nx: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
    size_t len = strlen(text);
    for (unsigned i = 1; i < 12; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len,
                                "x%u: &a%u [*a%u, *a%u, *a%u, *a%u, *a%u, *a%u, *a%u, *a%u]\n", i,
                                i, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    const char *texts[] = {text, NULL};
    assert_non_null(
        strstr(told(texts, NULL), "more than 4000000 values, counting what aliases stand for"));
}

TEST(test_nesting_has_an_end)
{
    char *flow = repeated("[", 5000);
    char text[8192];
    const char *texts[] = {text, NULL};
    snprintf(text, sizeof(text), "domain: %s", flow);
    assert_string_equal(told(texts, NULL), "a.yaml:1:108: nested more than 100 levels deep\n");
    free(flow);

    /* 33 entries, one below the other, are one more than a descriptor has. */
    size_t len = (size_t)snprintf(text, sizeof(text), "domain: d\n");
    for (int i = 0; i < 33; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%*sdescriptors:\n%*s- key: k\n",
                                2 * i, "", 2 * i, "");
    assert_string_equal(told(texts, NULL), "a.yaml:67:65: descriptors: a descriptor has at most 32 "
                                           "entries; this one is deeper\n");
}

TEST(test_long_texts_and_files_are_told)
{
    char *a = repeated("a", 4097), *spaces = repeated(" ", RULES_TEXT_MAX + 1);
    char text[8192];
    const char *texts[] = {text, NULL}, *large[] = {spaces, NULL};
    snprintf(text, sizeof(text), "domain: d\ndescriptors: [{key: %s}]\n", a);
    assert_string_equal(told(texts, NULL),
                        "a.yaml:2:21: key: expected at most 4096 bytes, found 4097\n");
    assert_string_equal(told(large, NULL),
                        "a.yaml:0:0: expected at most 16777216 bytes, found 16777217\n");
    free(a);
    free(spaces);
}
