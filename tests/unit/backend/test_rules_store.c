/* SPDX-License-Identifier: MIT */
/* What a rule says of stores outside of this process, and what its states are called there. */
#include "unit/test_rules.h"

#include <ctype.h>

/* One entry with these lines in its rate_limit, which begin at line 5, column 7. */
#define LIMIT(lines) "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n" lines
#define UNIT "      unit: minute\n"
#define TEN "      requests_per_unit: 10\n"
#define ONE(words) "{domain: d, descriptors: [{key: k, rate_limit: {" words "}}]}"

static const char *const stores[] = {"default", "fast"};
static const struct rules_load_options both = {
    .stores = stores, .n_stores = N(stores), .default_store = 1};
static const struct rules_load_options none_known = {.stores = NULL};

/* All faults and warnings of one text, in that order. */
static char *told_by(const char *text, const struct rules_load_options *options)
{
    static char all[8192];
    const struct rules_file file = {.path = "a.yaml", .text = span_of_text(text)};
    struct rules_diagnostics diagnostics;
    struct rules *rules = rules_load(&file, 1, options, &diagnostics);
    const struct rules_fault *const lists[] = {diagnostics.diagnostics, diagnostics.warnings};
    const size_t counts[] = {diagnostics.n_diagnostics, diagnostics.n_warnings};
    size_t len = 0;
    all[0] = '\0';
    for (size_t list = 0; list < 2; list++)
        for (size_t i = 0; i < counts[list]; i++)
            len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%u:%u: %s\n",
                                    list == 1 ? "warning " : "", (unsigned)lists[list][i].line,
                                    (unsigned)lists[list][i].column, lists[list][i].message);
    assert_int_equal(rules == NULL, diagnostics.n_diagnostics > 0);
    rules_unref(rules);
    rules_diagnostics_free(&diagnostics);
    return all;
}

static struct rules *loaded(const char *text, const struct rules_load_options *options)
{
    const struct rules_file file = {.path = "a.yaml", .text = span_of_text(text)};
    struct rules_diagnostics diagnostics;
    struct rules *rules = rules_load(&file, 1, options, &diagnostics);
    if (rules == NULL)
        fail_msg("%s", diagnostics.diagnostics[0].message);
    rules_diagnostics_free(&diagnostics);
    return rules;
}

/* ---- What is understood ---------------------------------------------------------------------- */

TEST(test_a_rule_goes_by_the_store_it_names)
{
    static const struct {
        const char *words;
        unsigned at;
        const char *label;
    } cases[] = {
        {"unit: day, requests_per_unit: 1", 1, "default"},
        {"unit: day, requests_per_unit: 1, store: fast", 2, "fast"},
        {"unit: day, requests_per_unit: 1, store: default", 1, "default"},
        {"unit: day, requests_per_unit: 1, store: none", 0, NULL},
        {"unlimited: true, store: fast", 2, "fast"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        char text[256];
        snprintf(text, sizeof(text), ONE("%s"), cases[i].words);
        struct rules *rules = loaded(text, &both);
        const struct rule_store *store = &rules_at(rules, 0)->store;
        assert_int_equal(store->at, cases[i].at);
        if (cases[i].label == NULL)
            assert_null(store->label);
        else
            assert_string_equal(store->label, cases[i].label);
        assert_int_equal(store->name == NULL, cases[i].at == 0);
        assert_null(store->shadow_name);
        rules_unref(rules);
    }
}

TEST(test_without_stores_a_rule_goes_by_the_table)
{
    struct rules *rules = loaded(ONE("unit: day, requests_per_unit: 1"), NULL);
    assert_int_equal(rules_at(rules, 0)->store.at, 0);
    assert_null(rules_at(rules, 0)->store.label);
    assert_null(rules_at(rules, 0)->store.name);
    rules_unref(rules);
}

/* Whoever checks files does not know what stores a server will have. */
TEST(test_any_store_may_be_named_where_none_is_known)
{
    static const struct rules_load_options any = {.any_store = true};
    static const char text[] =
        ONE("unit: day, requests_per_unit: 1, store: some where, lease: fast");
    struct rules *rules = loaded(text, &any);
    assert_int_equal(rules_at(rules, 0)->store.at, 0);
    assert_string_equal(rules_at(rules, 0)->store.label, "some where");
    assert_string_equal(told_by(text, &any), "");
    assert_string_equal(told_by(ONE("unit: day, requests_per_unit: 1, lease: fast"), &any), "");
    rules_unref(rules);
}

TEST(test_what_holds_while_a_store_is_unavailable)
{
    static const struct rules_load_options allowing = {
        .stores = stores, .n_stores = N(stores), .default_on_error = RULE_STORE_ERROR_ALLOW};
    static const struct {
        const char *words;
        struct rule_store store;
    } cases[] = {
        {"on_store_error: deny", {.on_error = RULE_STORE_ERROR_DENY, .local_for_ns = MINUTE}},
        {"name: x", {.on_error = RULE_STORE_ERROR_ALLOW, .local_for_ns = MINUTE}},
        {"on_store_error: Local", {.on_error = RULE_STORE_ERROR_LOCAL, .local_for_ns = MINUTE}},
        {"on_store_error: local, local_start: empty, local_for: 10m, local_then: allow",
         {.on_error = RULE_STORE_ERROR_LOCAL,
          .local_empty = true,
          .local_for_ns = 10 * MINUTE,
          .local_then = RULE_STORE_ERROR_ALLOW}},
        {"on_store_error: local, local_start: full, local_then: deny",
         {.on_error = RULE_STORE_ERROR_LOCAL, .local_for_ns = MINUTE}},
    };
    for (size_t i = 0; i < N(cases); i++) {
        char text[256];
        snprintf(text, sizeof(text), ONE("unit: second, requests_per_unit: 1, %s"), cases[i].words);
        struct rules *rules = loaded(text, &allowing);
        assert_string_equal(told_by(text, &allowing), "");
        assert_memory_equal(&rules_at(rules, 0)->store, &cases[i].store, sizeof(cases[i].store));
        rules_unref(rules);
    }
}

TEST(test_leases)
{
    static const struct {
        const char *words;
        uint8_t lease;
        uint32_t units;
        uint64_t term_ns;
    } cases[] = {
        {"unit: minute, requests_per_unit: 1000, lease: strict", RULE_LEASE_STRICT, 10, 3 * S},
        {"unit: minute, requests_per_unit: 199, lease: fast", RULE_LEASE_FAST, 1, 3 * S},
        {"unit: minute, requests_per_unit: 99, lease: FAST", RULE_LEASE_FAST, 1, 3 * S},
        {"unit: hour, requests_per_unit: 4294967295, lease: fast", RULE_LEASE_FAST, 42949672,
         10 * S},
        {"period: 100ms, requests_per_unit: 500, lease: fast", RULE_LEASE_FAST, 5, 10 * MS},
        {"period: 2ms, requests_per_unit: 500, lease: strict", RULE_LEASE_STRICT, 5, 10 * MS},
        {"unit: month, requests_per_unit: 1000, lease: fast", RULE_LEASE_FAST, 10, 10 * S},
        {"unit: minute, requests_per_unit: 10, lease: fast, lease_units: 10, lease_term: 1m",
         RULE_LEASE_FAST, 10, MINUTE},
        {"unit: minute, requests_per_unit: 0, lease: fast", RULE_LEASE_FAST, 1, 3 * S},
        {"unit: minute, requests_per_unit: 10", RULE_LEASE_NONE, 0, 0},
        {"algorithm: concurrency, requests_per_unit: 10, lease: 30s", RULE_LEASE_NONE, 0, 0},
    };
    for (size_t i = 0; i < N(cases); i++) {
        char text[256];
        snprintf(text, sizeof(text), ONE("%s"), cases[i].words);
        struct rules *rules = loaded(text, &both);
        const struct rule_store *store = &rules_at(rules, 0)->store;
        assert_string_equal(told_by(text, &both), "");
        assert_int_equal(store->lease, cases[i].lease);
        assert_int_equal(store->lease_units, cases[i].units);
        assert_int_equal(store->lease_term_ns, cases[i].term_ns);
        rules_unref(rules);
    }
}

TEST(test_a_tag_is_of_a_whole_domain)
{
    static const struct rules_load_options merging = {
        .merge_domains = true, .stores = stores, .n_stores = 2, .default_store = 1};
    static const char *const texts[] = {
        "{domain: d, descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]}",
        "{domain: e, store_tag: first, descriptors: [{key: a, rate_limit: {unlimited: true}}]}",
        "{domain: d, store_tag: Domain, descriptors: [{key: b, rate_limit: {unlimited: true}}]}",
        "{domain: f, descriptors: [{key: b, rate_limit: {unlimited: true}}]}",
        NULL,
    };
    static const uint8_t tags[] = {RULE_TAG_DOMAIN, RULE_TAG_FIRST, RULE_TAG_DOMAIN,
                                   RULE_TAG_VALUES};
    struct rules *rules = rules_of_files(texts, &merging);
    for (size_t i = 0; i < N(tags); i++)
        assert_int_equal(rules_at(rules, i)->store.tag, tags[i]);
    rules_unref(rules);
}

/* ---- Faults and warnings --------------------------------------------------------------------- */

struct mistake {
    const char *text;
    const struct rules_load_options *options;
    const char *told;
};

static void assert_mistakes(const struct mistake *mistakes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_string_equal(told_by(mistakes[i].text, mistakes[i].options), mistakes[i].told);
}

TEST(test_faults_of_stores)
{
    static const struct mistake mistakes[] = {
        {LIMIT(UNIT TEN "      store: fats\n      lease: fast\n"), &both,
         "7:14: store: there is no store \"fats\"; expected default, fast, none\n"},
        {LIMIT(UNIT TEN "      store: fast\n"), &none_known,
         "7:14: store: there is no store \"fast\"; expected none: no store is known here\n"},
        {LIMIT(UNIT TEN "      store: [fast]\n"), &both,
         "7:14: store: expected a text, found a list\n"},
        {LIMIT(UNIT TEN "      store: ''\n"), &both,
         "7:14: store: there is no store \"\"; expected default, fast, none\n"},
        {LIMIT(UNIT TEN "      on_store_error: permit\n"), &both,
         "7:23: on_store_error: expected deny, allow, local or error, found \"permit\"\n"},
        {LIMIT(UNIT TEN "      on_store_error: local\n      local_start: half\n"
                        "      local_for: 0s\n      local_then: local\n"),
         &both,
         "8:20: local_start: expected full or empty, found \"half\"\n9:18: local_for: expected a "
         "duration of whole nanoseconds, above 0 and below 584 years, found \"0s\"\n10:19: "
         "local_then: expected deny or allow, found \"local\"\nwarning 7:23: on_store_error: local "
         "will allow nothing: all units count as used for 1m and 1 % more, and local_for is 1m; "
         "set local_start: empty, or a longer local_for\n"},
        {"domain: d\nstore_tag: key\n", &both,
         "2:12: store_tag: expected values, first or domain, found \"key\"\n"},
        {LIMIT(UNIT TEN "      store_tag: first\n"), &both,
         "7:7: unknown key \"store_tag\" in rate_limit: it is a key of the file\n"},
        {LIMIT(UNIT TEN "    shadow: {unit: day, requests_per_unit: 1, store: fast}\n"), &both,
         "7:47: unknown key \"store\" in shadow: it is a key of rate_limit\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_faults_of_leases)
{
    static const struct mistake mistakes[] = {
        {LIMIT(UNIT TEN "      lease: 30s\n"), &both,
         "7:14: lease: expected strict or fast, found \"30s\"\n"},
        {LIMIT(UNIT TEN "      lease_units: 5\n      lease_term: 1s\n"), &both,
         "7:20: lease_units: expected lease: strict or lease: fast beside it, found neither\n"
         "8:19: lease_term: expected lease: strict or lease: fast beside it, found neither\n"},
        {LIMIT(UNIT TEN "      lease: fast\n      lease_units: 11\n"), &both,
         "8:20: lease_units: expected at most what the limit has, 10, found 11\n"},
        {LIMIT(UNIT TEN "      lease: fast\n      lease_units: 0\n"), &both,
         "8:20: lease_units: expected a whole number from 1 to 4294967295, found \"0\"\n"},
        {LIMIT(UNIT TEN "      lease: fast\n      lease_term: 61s\n"), &both,
         "8:19: lease_term: expected at least 1ms, and at most the period of the limit\n"},
        {LIMIT(UNIT TEN "      lease: fast\n      lease_term: 999us\n"), &both,
         "8:19: lease_term: expected at least 1ms, and at most the period of the limit\n"},
        {LIMIT(TEN "      algorithm: concurrency\n      lease: strict\n"), &both,
         "7:14: lease: slots of concurrency are not leased from a store; expected a duration such "
         "as 30s\n"},
        {LIMIT(TEN "      algorithm: concurrency\n      lease: 30s\n      lease_units: 5\n"), &both,
         "8:20: lease_units: expected lease: strict or lease: fast beside it, found neither\n"},
        {LIMIT(UNIT TEN "      algorithm: gcra\n      count_denied: true\n      lease: fast\n"),
         &both,
         "9:14: lease: requests that are denied cannot be counted where units are leased; expected "
         "no count_denied beside it\n"},
        {LIMIT(UNIT TEN "    shadow: {unit: day, requests_per_unit: 1, lease: fast}\n"), &both,
         "7:54: lease: it is an option of concurrency, not of window, which is meant where none is "
         "named\n"},
        {LIMIT("      unlimited: true\n      lease: fast\n      lease_units: 5\n"), &both,
         "6:14: lease: unlimited: true stands alone, without lease\n"
         "7:20: lease_units: expected lease: strict or lease: fast beside it, found neither\n"},
        /* Of a limit that is not understood only what is wrong for sure is told. */
        {LIMIT(UNIT "      requests_per_unit: x\n      lease: fast\n      lease_units: 5\n"), &both,
         "6:26: requests_per_unit: expected a whole number from 0 to 4294967295, found \"x\"\n"},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_what_comes_to_nothing_is_a_warning)
{
    static const struct mistake mistakes[] = {
        {LIMIT(UNIT TEN "      lease: fast\n"), &none_known,
         "warning 7:14: lease: has no meaning, since the limit is kept in no store\n"},
        {LIMIT(UNIT TEN "      lease: fast\n      store: none\n"), &both,
         "warning 7:14: lease: has no meaning, since the limit is kept in no store\n"},
        {LIMIT(UNIT TEN "      on_store_error: allow\n      store: none\n"), &both,
         "warning 7:23: on_store_error: has no meaning, since the limit is kept in no store\n"},
        {LIMIT(UNIT TEN "      local_start: empty\n      local_for: 1s\n      local_then: allow\n"),
         &both,
         "warning 7:20: local_start: has no meaning where on_store_error is deny\n"
         "warning 8:18: local_for: has no meaning where on_store_error is deny\n"
         "warning 9:19: local_then: has no meaning where on_store_error is deny\n"},
        {LIMIT(UNIT TEN "      on_store_error: local\n      local_for: 60s\n"), &both,
         "warning 7:23: on_store_error: local will allow nothing: all units count as used for 1m "
         "and 1 % more, and local_for is 1m; set local_start: empty, or a longer local_for\n"},
        {LIMIT(UNIT TEN "      on_store_error: local\n      local_for: 61s\n"), &both, ""},
        {LIMIT(UNIT TEN "      on_store_error: local\n      local_start: empty\n"), &both, ""},
    };
    assert_mistakes(mistakes, N(mistakes));
}

TEST(test_files_of_a_domain_agree_on_its_tag)
{
    static const struct rules_load_options merging = {.merge_domains = true};
    const struct rules_file files[] = {
        {.path = "a.yaml", .text = span_of_text("store_tag: first\ndomain: d\n")},
        {.path = "b.yaml", .text = span_of_text("domain: d\nstore_tag: first\n")},
        {.path = "c.yaml", .text = span_of_text("domain: d\nstore_tag: values\n")},
    };
    struct rules_diagnostics diagnostics;
    assert_null(rules_load(files, N(files), &merging, &diagnostics));
    assert_int_equal(diagnostics.n_diagnostics, 1);
    assert_string_equal(diagnostics.diagnostics[0].file, "c.yaml");
    assert_int_equal(diagnostics.diagnostics[0].line, 2);
    assert_string_equal(diagnostics.diagnostics[0].message,
                        "store_tag: the domain has another one already, in line 2 of b.yaml");
    rules_diagnostics_free(&diagnostics);
}

/* ---- Names ----------------------------------------------------------------------------------- */

TEST(test_states_have_names_that_people_can_read)
{
    static const char text[] =
        "domain: my shop\n"
        "descriptors:\n"
        "  - {key: ip, rate_limit: {unit: day, requests_per_unit: 1}}\n"
        "  - key: path\n"
        "    value: /api/*\n"
        "    rate_limit: {unit: day, requests_per_unit: 1, name: 'the api'}\n"
        "    shadow: {unit: day, requests_per_unit: 2}\n"
        "    descriptors:\n"
        "      - {key: user@host=a%b, value: \"\\xe4:{x}\",\n"
        "         rate_limit: {unit: day, requests_per_unit: 1},\n"
        "         shadow: {unit: day, requests_per_unit: 1}}\n";
    static const char *const names[] = {
        "my%20shop/ip",
        "my%20shop/path=%2Fapi%2F*@the%20api",
        "my%20shop/path=%2Fapi%2F*/user%40host%3Da%25b=%C3%A4%3A%7Bx%7D",
    };
    struct rules *rules = loaded(text, &both);
    for (size_t i = 0; i < N(names); i++)
        assert_string_equal(rules_at(rules, i)->store.name, names[i]);
    assert_null(rules_at(rules, 0)->store.shadow_name);
    assert_string_equal(rules_at(rules, 1)->store.shadow_name,
                        "my%20shop/path=%2Fapi%2F*@the%20api@shadow");
    assert_string_equal(rules_at(rules, 2)->store.shadow_name,
                        "my%20shop/path=%2Fapi%2F*/user%40host%3Da%25b=%C3%A4%3A%7Bx%7D@@shadow");
    rules_unref(rules);
}

/* Every way of cutting a text that separators could bring about is a name of its own. */
TEST(test_no_two_rules_have_one_name)
{
    static const char text[] =
        "domain: d\n"
        "descriptors:\n"
        "- {key: a, value: b, rate_limit: {unlimited: true}}\n"
        "- {key: a=b, rate_limit: {unlimited: true}}\n"
        "- {key: a, rate_limit: {unlimited: true}, descriptors: [\n"
        "    {key: b, rate_limit: {unlimited: true}},\n"
        "    {key: b, value: c, rate_limit: {unlimited: true}},\n"
        "    {key: b=c, rate_limit: {unlimited: true}}]}\n"
        "- {key: a/b, rate_limit: {unlimited: true}}\n"
        "- {key: a%2Fb, rate_limit: {unlimited: true}}\n"
        "- {key: a@x, rate_limit: {unlimited: true}}\n"
        "- {key: a, value: '*', rate_limit: {unlimited: true, name: x}}\n"
        "- {key: a, value: '*@x', rate_limit: {unlimited: true}}\n"
        "- {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: shadow},\n"
        "   shadow: {unit: day, requests_per_unit: 1}}\n"
        "- {key: b@shadow, rate_limit: {unit: day, requests_per_unit: 1},\n"
        "   shadow: {unit: day, requests_per_unit: 1}}\n"
        "- {key: 'c', rate_limit: {unit: day, requests_per_unit: 1, name: '@shadow'}}\n"
        "- {key: 'c@', rate_limit: {unit: day, requests_per_unit: 1},\n"
        "   shadow: {unit: day, requests_per_unit: 1}}\n";
    struct rules *rules = loaded(text, &both);
    const char *names[64];
    size_t n = 0;
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule_store *store = &rules_at(rules, i)->store;
        names[n++] = store->name;
        if (store->shadow_name != NULL)
            names[n++] = store->shadow_name;
    }
    assert_int_equal(n, 18);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(names[i], names[j]);
    rules_unref(rules);
}

/* A name is written into the key of a store as it is: every %XX was one character of a text. */
static void assert_is_a_name(const char *name)
{
    assert_in_range(strlen(name), 1, RULE_STORE_NAME_MAX);
    for (const char *c = name; *c != '\0'; c++) {
        if (*c == '%') {
            assert_non_null(strchr("0123456789ABCDEF", c[1]));
            assert_non_null(strchr("0123456789ABCDEF", c[2]));
            c += 2;
        } else {
            assert_true(isalnum((unsigned char)*c) || strchr("-._~/@+=,*", *c) != NULL);
        }
    }
}

TEST(test_a_long_name_ends_with_a_hash)
{
    static const char *const shapes[] = {"x", "/", "a/", "ab/"};
    char text[4096], value[2048], first[RULE_STORE_NAME_MAX + 1] = "";
    for (size_t shape = 0; shape < N(shapes); shape++)
        for (size_t len = 180; len < 210; len++) {
            value[0] = '\0';
            for (size_t i = 0; i < len; i++)
                strcat(value, shapes[shape]);
            for (char end = 'p'; end < 'r'; end++) {
                snprintf(text, sizeof(text), ONE("unit: day, requests_per_unit: 1, name: '%s%c'"),
                         value, end);
                struct rules *rules = loaded(text, &both);
                const char *name = rules_at(rules, 0)->store.name;
                assert_is_a_name(name);
                assert_string_not_equal(name, first);
                assert_int_equal(strstr(name, "@@@") != NULL,
                                 strlen(shapes[shape]) > 1 || shapes[shape][0] == '/' ||
                                     len + strlen("d/k@p") > RULE_STORE_NAME_MAX);
                strcpy(first, name);
                rules_unref(rules);
            }
        }
}

TEST(test_a_name_stays_over_reloads)
{
    struct rules *a = loaded(ONE("unit: day, requests_per_unit: 1"), &both);
    struct rules *b = loaded("domain: d\ndescriptors:\n- {key: j}\n- key: k\n  rate_limit: "
                             "{unit: hour, requests_per_unit: 7, lease: fast, store: fast}\n",
                             &both);
    assert_string_equal(rules_at(a, 0)->store.name, rules_at(b, 0)->store.name);
    rules_unref(a);
    rules_unref(b);
}
