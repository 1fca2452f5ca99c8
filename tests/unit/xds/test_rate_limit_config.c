/* SPDX-License-Identifier: MIT */
/* Rules out of RateLimitConfig: what each field means, and what is refused, with its position. */
#include "unit/test_protobuf.h"

#include "rules/rules.h"
#include "xds/rate_limit_config.h"

static struct rules *rules;
static struct rules_diagnostics diagnostics;

TEARDOWN
{
    rules_unref(rules);
    rules_diagnostics_free(&diagnostics);
    rules = NULL;
}

static void load_span(struct span message)
{
    const struct rules_file file = {
        .path = "xds://plane/edge", .text = message, .read = rate_limit_config_read};
    rules_unref(rules);
    rules_diagnostics_free(&diagnostics);
    rules = rules_load(&file, 1, NULL, &diagnostics);
}

/* A domain with one descriptor. */
static void load(const struct wire *descriptor)
{
    struct wire config = {.len = 0};
    wire_text(&config, 1, "name");
    wire_text(&config, 2, "edge");
    if (descriptor != NULL)
        wire_message(&config, 3, descriptor);
    load_span(wired(&config));
}

static const struct rule *only_rule(void)
{
    if (rules == NULL)
        fail_msg("%s", diagnostics.diagnostics[0].message);
    assert_int_equal(rules_count(rules), 1);
    return rules_at(rules, 0);
}

static void assert_refused(const char *message)
{
    assert_null(rules);
    assert_string_equal(diagnostics.diagnostics[0].message, message);
    assert_int_equal(diagnostics.diagnostics[0].line, 0);
}

static void add_policy(struct wire *descriptor, unsigned unit, unsigned requests)
{
    struct wire policy = {.len = 0};
    if (unit > 0)
        wire_number(&policy, 1, unit);
    if (requests > 0)
        wire_number(&policy, 2, requests);
    wire_message(descriptor, 3, &policy);
}

TEST(a_domain_without_descriptors_is_a_domain)
{
    load(NULL);
    assert_non_null(rules);
    assert_int_equal(rules_count(rules), 0);
    assert_string_equal(rules_domain(rules, 0), "edge");
}

TEST(units_have_the_numbers_of_the_protocol)
{
    for (unsigned unit = RULE_SECOND; unit <= RULE_WEEK; unit++) {
        struct wire descriptor = {.len = 0};
        wire_text(&descriptor, 1, "user");
        add_policy(&descriptor, unit, 7);
        load(&descriptor);
        assert_int_equal(only_rule()->unit, unit);
        assert_int_equal(only_rule()->requests_per_unit, 7);
        assert_int_equal(only_rule()->hits, RULE_HITS_CHARGE);
    }
}

TEST(a_number_that_is_left_out_denies_always)
{
    struct wire descriptor = {.len = 0};
    wire_text(&descriptor, 1, "user");
    add_policy(&descriptor, RULE_HOUR, 0);
    load(&descriptor);
    assert_int_equal(only_rule()->quota.limit, 0);
    assert_int_equal(diagnostics.n_warnings, 0);
}

TEST(flags_names_and_metadata_are_read)
{
    struct wire descriptor = {.len = 0}, policy = {.len = 0}, replaced = {.len = 0};
    struct wire text = {.len = 0}, member = {.len = 0}, metadata = {.len = 0};
    wire_number(&policy, 1, RULE_DAY);
    wire_number(&policy, 2, 4000000);
    wire_text(&policy, 4, "daily");
    wire_text(&replaced, 1, "hourly");
    wire_message(&policy, 5, &replaced);
    wire_text(&text, 3, "a \"b\"");
    wire_text(&member, 1, "team");
    wire_message(&member, 2, &text);
    wire_message(&metadata, 1, &member);
    wire_text(&descriptor, 1, "user");
    wire_text(&descriptor, 2, "v*");
    wire_message(&descriptor, 3, &policy);
    for (unsigned flag = 5; flag <= 7; flag++)
        wire_number(&descriptor, flag, 1);
    wire_message(&descriptor, 8, &metadata);
    load(&descriptor);
    const struct rule *rule = only_rule();
    assert_true(rule->shadow_mode && rule->detailed_metric && rule->quota_mode);
    assert_string_equal(rule->name, "daily");
    assert_int_equal(rule->n_replaces, 1);
    assert_string_equal(rule->replaces[0], "hourly");
    assert_string_equal(rule->path, "user=v*");
    assert_true(span_equals(rule->metadata, "{\"team\":\"a \\\"b\\\"\"}"));
    assert_string_equal(rule_position(rule).text, "xds://plane/edge");
}

/* null, 1.5, true, [], {} and a Value without a kind. */
TEST(every_kind_of_metadata_is_json)
{
    static const uint8_t half[] = {2 << 3 | 1, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f};
    struct wire values[6] = {{.len = 0}}, list = {.len = 0}, value = {.len = 0};
    struct wire member = {.len = 0}, metadata = {.len = 0}, descriptor = {.len = 0};
    wire_number(&values[0], 1, 0);
    wire_bytes(&values[1], span_of(half, sizeof(half)));
    wire_number(&values[2], 4, 1);
    wire_text(&values[3], 6, "");
    wire_text(&values[4], 5, "");
    for (size_t i = 0; i < N(values); i++)
        wire_message(&list, 1, &values[i]);
    wire_message(&value, 6, &list);
    wire_text(&member, 1, "all");
    wire_message(&member, 2, &value);
    wire_message(&metadata, 1, &member);
    wire_text(&descriptor, 1, "user");
    add_policy(&descriptor, RULE_HOUR, 1);
    wire_message(&descriptor, 8, &metadata);
    load(&descriptor);
    assert_true(span_equals(only_rule()->metadata, "{\"all\":[null,1.5,true,[],{},null]}"));
}

TEST(metadata_that_cannot_be_read_is_refused)
{
    static const struct {
        const char *member, *error;
    } wrong[] = {
        {"\x0a\x02\xff\xfe", "expected text in UTF-8, found other bytes"},
        {"\x0a\x09z", "malformed protobuf in metadata"},
        {"\x0a\x01z\x12\x02\x1a\x09", "malformed protobuf: expected fields of a RateLimitConfig"},
    };
    for (size_t i = 0; i < N(wrong); i++) {
        struct wire metadata = {.len = 0}, descriptor = {.len = 0};
        wire_text(&metadata, 1, wrong[i].member);
        wire_text(&descriptor, 1, "user");
        add_policy(&descriptor, RULE_HOUR, 1);
        wire_message(&descriptor, 8, &metadata);
        load(&descriptor);
        assert_refused(wrong[i].error);
    }
}

TEST(unknown_fields_are_skipped)
{
    struct wire descriptor = {.len = 0};
    wire_text(&descriptor, 1, "user");
    add_policy(&descriptor, RULE_HOUR, 1);
    wire_text(&descriptor, 99, "of a later version");
    load(&descriptor);
    assert_int_equal(only_rule()->requests_per_unit, 1);
}

TEST(errors_name_the_domain_and_the_descriptor)
{
    struct wire inner = {.len = 0}, outer = {.len = 0};
    wire_text(&inner, 1, "address");
    add_policy(&inner, 0, 5);
    wire_text(&outer, 1, "path");
    wire_message(&outer, 4, &inner);
    load(&outer);
    assert_refused("domain \"edge\": descriptors[0].descriptors[0] (key \"address\"): rate_limit "
                   "has no unit; expected unit: second, minute, hour, day, week, month or year, or "
                   "period: DURATION");
}

TEST(a_unit_of_a_later_version_is_refused)
{
    struct wire descriptor = {.len = 0};
    wire_text(&descriptor, 1, "user");
    add_policy(&descriptor, 8, 5);
    load(&descriptor);
    assert_refused("domain \"edge\": descriptors[0] (key \"user\"): unit: expected second, minute, "
                   "hour, day, week, month or year, found \"8\"");
}

TEST(malformed_bytes_are_refused)
{
    static const struct {
        uint8_t bytes[8];
        size_t len;
    } cases[] = {
        {{0xff}, 1},                                   /* a tag without end */
        {{2 << 3 | 2, 5, 'e'}, 3},                     /* a text that is cut off */
        {{2 << 3, 1}, 2},                              /* a number where a text belongs */
        {{3 << 3 | 2, 2, 3 << 3 | 2, 9}, 4},           /* within a descriptor */
        {{0, 1}, 2},                                   /* field 0 */
        {{2 << 3 | 3}, 1},                             /* a group */
        {{2 << 3 | 2, 1, 'a', 2 << 3 | 2, 1, 'b'}, 6}, /* two domains */
    };
    for (size_t i = 0; i < N(cases); i++) {
        load_span(span_of(cases[i].bytes, cases[i].len));
        assert_null(rules);
        if (strncmp(diagnostics.diagnostics[0].message, "malformed protobuf", 18) != 0)
            fail_msg("case %zu: %s", i, diagnostics.diagnostics[0].message);
    }
}

/* Puts the field and the length of all that follows before it, and returns where that begins. */
static uint8_t *wrap(uint8_t *at, const uint8_t *end, unsigned field)
{
    struct wire head = {.len = 0};
    wire_varint(&head, field << 3 | 2);
    wire_varint(&head, (uint64_t)(end - at));
    at -= head.len;
    memcpy(at, head.bytes, head.len);
    return at;
}

TEST(nesting_is_bounded)
{
    static uint8_t bytes[1 << 20];
    const uint8_t *end = bytes + sizeof(bytes);
    uint8_t *at = bytes + sizeof(bytes);
    for (int i = 0; i < 100000; i++)
        at = wrap(at, end, 4);
    at = wrap(at, end, 3);
    load_span(span_of(at, (size_t)(end - at)));
    assert_refused("nested more than 100 levels deep");
}

TEST(the_name_is_read_alone)
{
    struct wire config = {.len = 0};
    wire_text(&config, 1, "one");
    wire_text(&config, 2, "edge");
    assert_true(span_equals(rate_limit_config_name(wired(&config)), "one"));
    assert_int_equal(rate_limit_config_name(span_of("\xff", 1)).len, 0);
}
