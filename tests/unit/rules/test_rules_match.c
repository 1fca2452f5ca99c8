/* SPDX-License-Identifier: MIT */
/* Which limit a descriptor meets, and when two descriptors share a counter. */
#include "unit/test_rules.h"

#include "rules/trie.h"

/* ---- Short words ----------------------------------------------------------------------------- */

struct found {
    const struct rule *rule;
    uint8_t key[RULES_KEY_MAX];
    size_t key_len;
};

static struct found match_in(struct rules_walk *walk, const struct descriptor *descriptor)
{
    static struct found found;
    struct rule_match match;
    struct stint_error error;
    int code = rules_match(walk, descriptor, found.key, sizeof(found.key), &match, &error);
    if (code != 0)
        fail_msg("%s", error.message);
    assert_true((match.rule == NULL) == (match.key_len == 0));
    found.rule = match.rule;
    found.key_len = match.key_len;
    return found;
}

static struct found find_in(const struct rules *rules, const char *domain,
                            const struct descriptor_entry *entries, size_t n)
{
    const struct descriptor descriptor = {.entries = entries, .n_entries = n};
    struct rules_walk walk;
    rules_walk_begin(&walk, rules, span_of_text(domain));
    return match_in(&walk, &descriptor);
}

/* "a=1.b=2" as entries; a value may be empty. The text is written into. */
static size_t entries_of(struct descriptor_entry *entries, char *text)
{
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, ".", &rest); word; word = strtok_r(NULL, ".", &rest)) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value = '\0';
        entries[n++] = (struct descriptor_entry){span_of_text(word), span_of_text(value + 1)};
    }
    return n;
}

static struct found find(const struct rules *rules, const char *descriptor)
{
    struct descriptor_entry entries[ENTRIES_MAX];
    char text[256];
    snprintf(text, sizeof(text), "%s", descriptor);
    return find_in(rules, "d", entries, entries_of(entries, text));
}

static const char *path_of(const struct rules *rules, const char *descriptor)
{
    const struct rule *rule = find(rules, descriptor).rule;
    return rule == NULL ? "none" : rule->path;
}

static bool share(const struct rules *rules, const char *a, const char *b)
{
    struct found first = find(rules, a), second = find(rules, b);
    assert_non_null(first.rule);
    assert_non_null(second.rule);
    return first.key_len == second.key_len && memcmp(first.key, second.key, first.key_len) == 0;
}

struct meeting {
    const char *descriptor, *path;
};

static void assert_meetings(const char *file, const struct meeting *meetings, size_t n)
{
    struct rules *rules = rules_of(file);
    for (size_t i = 0; i < n; i++) {
        const char *path = path_of(rules, meetings[i].descriptor);
        if (strcmp(path, meetings[i].path) != 0)
            fail_msg("%s met %s, expected %s", meetings[i].descriptor, path, meetings[i].path);
    }
    rules_unref(rules);
}

#define L "rate_limit: {unit: day, requests_per_unit: 1}"

/* ---- Which limit ----------------------------------------------------------------------------- */

TEST(test_the_exact_value_then_wildcards_then_the_bare_key)
{
    static const struct meeting meetings[] = {
        {"k=exact", "k=exact"},  {"k=examine", "k=ex*"}, {"k=example", "k=ex*"},
        {"k=an apple", "k=*le"}, {"k=other", "k"},       {"k=", "k"},
        {"k=exac", "k=ex*"},     {"k=exactly", "k=ex*"}, {"k=EXACT", "k"},
        {"l=exact", "none"},     {"K=exact", "none"},
    };
    assert_meetings("{domain: d, descriptors: [{key: k, " L "}, {key: k, value: ex*, " L "},"
                    "{key: k, value: '*le', " L "}, {key: k, value: exact, " L "}]}",
                    meetings, N(meetings));
}

TEST(test_the_first_wildcard_of_the_file_wins)
{
    static const struct meeting meetings[] = {
        {"k=abc", "k=*c"}, {"k=abd", "k=a*"}, {"k=xyz", "k=*"}, {"k=", "k=*"}};
    assert_meetings("{domain: d, descriptors: [{key: k, value: '*c', " L "}, "
                    "{key: k, value: a*, " L "}, {key: k, value: '*', " L "}, {key: k, " L "}]}",
                    meetings, N(meetings));
}

/* Also where files are merged: the first file's come first. */
TEST(test_wildcards_of_merged_files_keep_the_order_of_files)
{
    static const struct rules_load_options merging = {.merge_domains = true};
    const char *texts[] = {"{domain: d, descriptors: [{key: k, value: a*, " L "}]}",
                           "{domain: d, descriptors: [{key: k, value: '*b', " L "}]}", NULL};
    const char *swapped[] = {texts[1], texts[0], NULL};
    struct rules *rules = rules_of_files(texts, &merging);
    assert_string_equal(path_of(rules, "k=ab"), "k=a*");
    rules_unref(rules);
    rules = rules_of_files(swapped, &merging);
    assert_string_equal(path_of(rules, "k=ab"), "k=*b");
    rules_unref(rules);
}

TEST(test_the_limit_must_stand_at_the_last_entry)
{
    static const struct meeting meetings[] = {
        {"a=1", "a"},
        {"a=1.b=2", "a.b"},
        {"a=1.b=2.c=3", "none"},
        {"a=1.b=2.c=3.e=4", "a.b.c.e"},
        {"b=2", "none"},
        {"b=2.a=1", "none"},
        {"a=1.x=2", "none"},
        {"f=1.b=2", "none"},
    };
    assert_meetings("{domain: d, descriptors: [{key: a, " L ", descriptors: [{key: b, " L
                    ", descriptors: [{key: c, descriptors: [{key: e, " L "}]}]}]},"
                    "{key: f, " L "}]}",
                    meetings, N(meetings));
}

/* What matched at a level stays chosen, though another entry of the level had what is missing. */
TEST(test_there_is_no_way_back)
{
    static const struct meeting meetings[] = {
        {"k=open", "none"},         {"k=open.sub=1", "none"}, {"k=shut.sub=1", "none"},
        {"k=other.sub=1", "k.sub"}, {"k=other", "k"},         {"k=wild1.sub=1", "none"},
    };
    assert_meetings("{domain: d, descriptors: [{key: k, value: open}, {key: k, value: shut, " L
                    "}, {key: k, value: wild*}, {key: k, " L ", descriptors: [{key: sub, " L
                    "}]}]}",
                    meetings, N(meetings));
}

TEST(test_unlimited_is_met_as_a_limit_is)
{
    struct rules *rules =
        rules_of("{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true}}]}");
    assert_true(find(rules, "k=1").rule->unlimited);
    rules_unref(rules);
}

TEST(test_a_domain_is_met_by_its_whole_name)
{
    const char *texts[] = {"{domain: d, descriptors: [{key: k, " L "}]}",
                           "{domain: de, descriptors: [{key: k, " L "}]}", NULL};
    const struct descriptor_entry entry = {span_of_text("k"), span_of_text("1")};
    struct rules *rules = rules_of_files(texts, NULL);
    assert_string_equal(find_in(rules, "d", &entry, 1).rule->domain, "d");
    assert_string_equal(find_in(rules, "de", &entry, 1).rule->domain, "de");
    assert_null(find_in(rules, "def", &entry, 1).rule);
    assert_null(find_in(rules, "", &entry, 1).rule);
    assert_null(find_in(rules, "k", &entry, 1).rule);
    rules_unref(rules);
}

/* ---- Any bytes ------------------------------------------------------------------------------- */

TEST(test_joined_names_are_not_mistaken_for_others)
{
    struct rules *rules =
        rules_of("{domain: d, descriptors: [{key: a, value: b, " L "}, {key: a_b, " L "},"
                 "{key: a_, " L "}, {key: a, value: b_c, " L "}, {key: a_b, value: c, " L "}]}");
    static const struct meeting meetings[] = {
        {"a=b", "a=b"}, {"a_b=", "a_b"},  {"a_b=c", "a_b=c"}, {"a=b_c", "a=b_c"},
        {"a_=b", "a_"}, {"a=_b", "none"}, {"a_b=x", "a_b"},
    };
    for (size_t i = 0; i < N(meetings); i++)
        assert_string_equal(path_of(rules, meetings[i].descriptor), meetings[i].path);
    for (size_t i = 0; i < N(meetings); i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(meetings[i].path, "none") != 0 && strcmp(meetings[j].path, "none") != 0)
                assert_false(share(rules, meetings[i].descriptor, meetings[j].descriptor));
    rules_unref(rules);
}

TEST(test_values_are_counted_apart_whatever_joins_them)
{
    struct rules *rules =
        rules_of("{domain: d, descriptors: [{key: a, descriptors: [{key: b, " L "}]}]}");
    assert_true(share(rules, "a=x.b=y", "a=x.b=y"));
    assert_false(share(rules, "a=x.b=y", "a=y.b=x"));
    assert_false(share(rules, "a=x_b.b=y", "a=x.b=b_y"));
    assert_false(share(rules, "a=xy.b=", "a=x.b=y"));
    assert_false(share(rules, "a=.b=xy", "a=x.b=y"));
    rules_unref(rules);
}

TEST(test_a_nul_in_a_value_is_a_byte_like_others)
{
    struct rules *rules = rules_of("{domain: d, descriptors: [{key: k, value: v, " L
                                   "}, {key: k, value: 'v*w', " L "}, {key: k, " L "}]}");
    const struct {
        struct span value;
        const char *path;
    } cases[] = {
        {{(const uint8_t *)"v", 1}, "k=v"},
        {{(const uint8_t *)"v\0", 2}, "k"},
        {{(const uint8_t *)"v\0w", 3}, "k=v*w"},
        {{(const uint8_t *)"\0", 1}, "k"},
        {{NULL, 0}, "k"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        const struct descriptor_entry entry = {span_of_text("k"), cases[i].value};
        assert_string_equal(find_in(rules, "d", &entry, 1).rule->path, cases[i].path);
    }
    const struct descriptor_entry nul_key = {span_of("k\0", 2), span_of_text("v")};
    assert_null(find_in(rules, "d", &nul_key, 1).rule);
    rules_unref(rules);
}

/* A key holds 8 bytes of rule and 4 of each length: the longest value that fits, and one more. */
TEST(test_a_key_that_would_be_too_long_is_an_error)
{
    struct rules *rules = rules_of("{domain: d, descriptors: [{key: k, " L "}]}");
    uint8_t *value = calloc(1, RULES_KEY_MAX), key[RULES_KEY_MAX];
    struct descriptor_entry entry = {span_of_text("k"), span_of(value, RULES_KEY_MAX - 12)};
    const struct descriptor descriptor = {.entries = &entry, .n_entries = 1};
    struct rule_match match;
    struct stint_error error;
    struct rules_walk walk;
    rules_walk_begin(&walk, rules, span_of_text("d"));
    assert_non_null(value);
    assert_int_equal(find_in(rules, "d", &entry, 1).key_len, RULES_KEY_MAX);
    entry.value.len++;
    assert_int_equal(rules_match(&walk, &descriptor, key, sizeof(key), &match, &error),
                     STINT_E_RANGE);
    assert_string_equal(error.message, "the values of a descriptor need a key of 65537 bytes; it "
                                       "has at most 65536");
    assert_null(match.rule);
    entry.value.len = 3;
    assert_int_equal(rules_match(&walk, &descriptor, key, 14, &match, &error), STINT_E_RANGE);
    assert_int_equal(rules_match(&walk, &descriptor, key, 15, &match, &error), 0);
    free(value);
    rules_unref(rules);
}

/* A walk remembers the last step of each level. Each descriptor after each other, in one walk. */
TEST(test_a_walk_finds_what_a_single_match_finds)
{
    static const char *const texts[] = {
        "k=v",     "k=w",  "k=*",         "k=wild",      "k=v.u=1", "k=w.u=1",     "k=v.u=2",
        "m=v.u=1", "m=v",  "k=v.u=1.x=1", "k=w.u=1.x=1", "x=v",     "x=v.u=1",     "k=",
        "k=vv",    "kk=v", "m=",          "k=v.m=1",     "m=v.m=1", "m=wild.u=10", "k=v.u=",
    };
    enum { N = sizeof(texts) / sizeof(texts[0]) };
    static struct descriptor_entry entries[N][ENTRIES_MAX];
    static char bytes[N][64];
    struct descriptor descriptors[N];
    struct rules *rules =
        rules_of("{domain: d, descriptors: ["
                 "{key: k, value: v, " L ", descriptors: [{key: u, " L "}, {key: m, " L "}]},"
                 "{key: k, value: w, descriptors: [{key: u, value: '1', " L
                 ", descriptors: [{key: x, " L "}]}]},"
                 "{key: k, value: 'w*d', " L "},"
                 "{key: m, " L ", descriptors: [{key: u, value: '1*', " L "}, {key: m, " L "}]}]}");
    for (size_t i = 0; i < N; i++) {
        snprintf(bytes[i], sizeof(bytes[i]), "%s", texts[i]);
        descriptors[i] = (struct descriptor){.entries = entries[i]};
        descriptors[i].n_entries = entries_of(entries[i], bytes[i]);
    }
    for (size_t i = 0; i < (size_t)N * N * N; i++) {
        struct rules_walk walk;
        const struct descriptor *last = &descriptors[i % N];
        rules_walk_begin(&walk, rules, span_of_text("d"));
        match_in(&walk, &descriptors[i / N / N]);
        match_in(&walk, &descriptors[i / N % N]);
        const struct found found = match_in(&walk, last);
        const struct found alone = find_in(rules, "d", last->entries, last->n_entries);
        assert_ptr_equal(found.rule, alone.rule);
        assert_int_equal(found.key_len, alone.key_len);
        assert_memory_equal(found.key, alone.key, found.key_len);
    }
    rules_unref(rules);
}

/* ---- Counters -------------------------------------------------------------------------------- */

/* Pinned: tables and stores outlive a program. */
TEST(test_a_key_is_the_rule_and_each_value_with_its_length)
{
    struct rules *rules =
        rules_of("{domain: d, descriptors: [{key: a, descriptors: [{key: b, " L "}]}]}");
    struct found found = find(rules, "a=xy.b=");
    uint8_t expected[18] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 'x', 'y', 0, 0, 0, 0};
    for (size_t i = 0; i < 8; i++)
        expected[i] = (uint8_t)(found.rule->id >> (56 - 8 * i));
    assert_int_equal(found.key_len, sizeof(expected));
    assert_memory_equal(found.key, expected, sizeof(expected));
    rules_unref(rules);
}

TEST(test_values_of_a_shared_pattern_have_one_counter)
{
    struct rules *rules =
        rules_of("{domain: d, descriptors: ["
                 "{key: k, value: s*, share_threshold: true, " L ", descriptors: [{key: m, " L "},"
                 " {key: m, value: 'G*', share_threshold: true, " L "}]},"
                 "{key: k, value: 'o*', " L "}, {key: k, value: 'sole', " L "}]}");
    assert_true(share(rules, "k=s1", "k=s2"));
    assert_true(share(rules, "k=s1", "k=s*"));
    assert_false(share(rules, "k=o1", "k=o2"));
    assert_false(share(rules, "k=s1", "k=sole"));
    assert_true(share(rules, "k=s1.m=1", "k=s2.m=1"));
    assert_false(share(rules, "k=s1.m=1", "k=s2.m=2"));
    assert_true(share(rules, "k=s1.m=GET", "k=s2.m=GO"));
    assert_false(share(rules, "k=s1", "k=s1.m=1"));
    rules_unref(rules);
}

/* ---- Patterns -------------------------------------------------------------------------------- */

TEST(test_patterns)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"*", "", true},
        {"*", "any", true},
        {"**", "", true},
        {"a*", "a", true},
        {"a*", "ba", false},
        {"*a", "ba", true},
        {"*a", "ab", false},
        {"a*a", "a", false},
        {"a*a", "aa", true},
        {"a*b*c", "abc", true},
        {"a*b*c", "axbxbxc", true},
        {"a*b*c", "acb", false},
        {"*ab*", "aab", true},
        {"*ab*ab", "abab", true},
        {"*ab*ab", "ab", false},
        {"*aba*ba", "ababa", true},
        {"*aba*ba", "abaa", false},
        {"/a/*/b", "/a/x/y/b", true},
        {"/a/*/b", "/a/b", false},
        {"a**b", "ab", true},
        {"*.*.*", "1.2.3", true},
        {"*.*.*", "1.2", false},
        {"a", "a", true},
        {"", "", true},
        {"", "a", false},
        {"a?c", "abc", false},
        {"[a]*", "[a]b", true},
    };
    for (size_t i = 0; i < N(cases); i++)
        if (wildcard_matches(span_of_text(cases[i].pattern), span_of_text(cases[i].text)) !=
            cases[i].matches)
            fail_msg("%s and %s", cases[i].pattern, cases[i].text);
    assert_true(wildcard_is(span_of_text("a*")));
    assert_false(wildcard_is(span_of_text("a")));
    assert_false(wildcard_is(span_of(NULL, 0)));
}

/* With backtracking this would be going on when the sun goes out. */
TEST(test_many_stars_on_a_long_text_come_to_an_end)
{
    char pattern[4096] = "", *text = malloc(65536);
    assert_non_null(text);
    memset(text, 'a', 65536);
    for (size_t i = 0; i + 3 < sizeof(pattern); i += 2)
        memcpy(pattern + i, "*a", 3);
    strcat(pattern, "b");
    assert_false(wildcard_matches(span_of_text(pattern), span_of(text, 65536)));
    text[65535] = 'b';
    assert_true(wildcard_matches(span_of_text(pattern), span_of(text, 65536)));
    free(text);
}

/* ---- Many ------------------------------------------------------------------------------------ */

#define VALUES 20000

TEST(test_each_of_many_values_is_found_and_no_other)
{
    size_t size = VALUES * 64 + 64, len;
    char *text = malloc(size), name[32];
    assert_non_null(text);
    len = (size_t)snprintf(text, size, "domain: d\ndescriptors:\n");
    for (int i = 0; i < VALUES; i++)
        len += (size_t)snprintf(text + len, size - len,
                                "- {key: k, value: v%d, rate_limit: {unlimited: on}}\n", i);
    struct rules *rules = rules_of(text);
    for (int i = 0; i < VALUES; i++) {
        snprintf(name, sizeof(name), "k=v%d", i);
        assert_string_equal(path_of(rules, name), name);
        snprintf(name, sizeof(name), "k=w%d", i);
        assert_string_equal(path_of(rules, name), "none");
    }
    rules_unref(rules);
    free(text);
}

/* One value under each of many keys: far more than find room where the text alone puts it. */
TEST(test_a_value_that_many_keys_have_is_found_under_each)
{
    enum { KEYS = 2000 };
    size_t size = KEYS * 96 + 64, len;
    char *text = malloc(size), name[32];
    assert_non_null(text);
    len = (size_t)snprintf(text, size, "domain: d\ndescriptors:\n");
    for (int i = 0; i < KEYS; i++)
        len += (size_t)snprintf(text + len, size - len,
                                "- {key: k%d, value: %s, rate_limit: {unlimited: on}}\n", i,
                                i % 10 == 9 ? "rare" : "GET");
    struct rules *rules = rules_of(text);
    for (int i = 0; i < KEYS; i++) {
        snprintf(name, sizeof(name), "k%d=GET", i);
        assert_string_equal(path_of(rules, name), i % 10 == 9 ? "none" : name);
        snprintf(name, sizeof(name), "k%d=rare", i);
        assert_string_equal(path_of(rules, name), i % 10 == 9 ? name : "none");
    }
    rules_unref(rules);
    free(text);
}
