/* SPDX-License-Identifier: MIT */
/* The header fields about quotas, byte for byte, at the ends of what they can say. */
#include "unit/test_quota.h"

#include "proto/http_fields.h"

static struct rule rule = {.name = "per \"ip\"\\\x01\xc3\xa9", .path = "ip", .domain = "d"};

struct told {
    struct stint_quota quota;
    struct target status;
    struct reply reply;
    struct request request;
    struct http_answer answer;
    char space[4096];
};

static struct told *tell(struct told *told, const char *spec, unsigned styles,
                         const struct stint_decision *decision)
{
    struct http_text text = http_text_at(told->space, sizeof(told->space));
    told->quota = quota_of(spec);
    told->status = (struct target){.rule = &rule,
                                   .quota = &told->quota,
                                   .decision = *decision,
                                   .grows_after_ns = decision->outcome == STINT_ALLOW ? 600 * MS
                                                     : decision->outcome == STINT_DENY
                                                         ? decision->retry_after_ns
                                                         : STINT_NEVER_NS};
    told->reply = (struct reply){.decision = *decision, .statuses = &told->status, .n_statuses = 1};
    told->request = (struct request){.verb = REQUEST_TAKE};
    told->answer = (struct http_answer){.status = decision->outcome == STINT_ALLOW ? 200 : 429};
    http_fields_write(&told->answer, &text, styles, &told->request, &told->reply);
    assert_false(text.is_full);
    return told;
}

static const char *field_of(const struct told *told, const char *name)
{
    for (size_t i = 0; i < told->answer.n_fields; i++)
        if (strcmp(told->answer.fields[i].name, name) == 0)
            return told->answer.fields[i].value;
    return "(none)";
}

static const struct stint_decision allowed = {.outcome = STINT_ALLOW,
                                              .granted = 1,
                                              .limit = 100,
                                              .remaining = 99,
                                              .reset_after_ns = 600 * MS};
static const struct stint_decision denied = {
    .outcome = STINT_DENY, .limit = 100, .retry_after_ns = 1, .reset_after_ns = 59 * S + 1};

TEST(test_a_name_is_a_string_of_structured_fields)
{
    struct told told;
    tell(&told, "gcra 100/1m", HTTP_STYLE_DRAFT_11, &allowed);
    assert_string_equal(field_of(&told, "RateLimit-Policy"),
                        "\"per \\\"ip\\\"\\\\???\";q=100;w=60");
    assert_string_equal(field_of(&told, "RateLimit"), "\"per \\\"ip\\\"\\\\???\";r=99;t=1");
    assert_string_equal(field_of(&told, "Retry-After"), "(none)");
}

TEST(test_older_styles_have_bare_numbers)
{
    struct told told;
    tell(&told, "gcra 100/1m", HTTP_STYLE_DRAFT_03 | HTTP_STYLE_X_RATELIMIT, &denied);
    assert_int_equal(told.answer.n_fields, 7);
    assert_string_equal(field_of(&told, "RateLimit-Limit"), "100");
    assert_string_equal(field_of(&told, "RateLimit-Remaining"), "0");
    assert_string_equal(field_of(&told, "RateLimit-Reset"), "1");
    assert_string_equal(field_of(&told, "X-RateLimit-Limit"), "100");
    assert_string_equal(field_of(&told, "X-RateLimit-Remaining"), "0");
    assert_string_equal(field_of(&told, "X-RateLimit-Reset"), "1");
    assert_string_equal(field_of(&told, "Retry-After"), "1");
    tell(&told, "gcra 100/1m", HTTP_STYLE_NONE, &denied);
    assert_int_equal(told.answer.n_fields, 1);
    assert_string_equal(field_of(&told, "Retry-After"), "1");
}

TEST(test_seconds_are_rounded_up_and_at_least_one)
{
    assert_int_equal(http_fields_retry_s(0), 1);
    assert_int_equal(http_fields_retry_s(1), 1);
    assert_int_equal(http_fields_retry_s(S), 1);
    assert_int_equal(http_fields_retry_s(S + 1), 2);
    assert_int_equal(http_fields_retry_s(59 * S + 999 * MS), 60);
}

TEST(test_never_has_no_time)
{
    const struct stint_decision never = {
        .outcome = STINT_NEVER, .limit = 5, .remaining = 5, .retry_after_ns = STINT_NEVER_NS};
    struct told told;
    tell(&told, "gcra 5/1s", HTTP_STYLE_DRAFT_11, &never);
    assert_string_equal(field_of(&told, "RateLimit"), "\"per \\\"ip\\\"\\\\???\";r=5");
    assert_string_equal(field_of(&told, "Retry-After"), "(none)");
}

TEST(test_what_is_unused_does_not_grow)
{
    struct told told;
    struct http_text text = http_text_at(told.space, sizeof(told.space));
    tell(&told, "log 100/1m", HTTP_STYLE_NONE, &allowed);
    told.status.grows_after_ns = 0;
    told.status.decision.remaining = 100;
    http_fields_write(&told.answer, &text, HTTP_STYLE_DRAFT_11, &told.request, &told.reply);
    assert_string_equal(field_of(&told, "RateLimit"), "\"per \\\"ip\\\"\\\\???\";r=100");
}

TEST(test_a_period_below_a_second_and_holders_are_told_as_they_can_be)
{
    struct told told;
    tell(&told, "gcra 100/500ms", HTTP_STYLE_DRAFT_11, &allowed);
    assert_non_null(strstr(field_of(&told, "RateLimit-Policy"), ";q=100;w=1"));
    tell(&told, "concurrency 10 lease=30s", HTTP_STYLE_DRAFT_11, &allowed);
    assert_non_null(
        strstr(field_of(&told, "RateLimit-Policy"), ";q=10;qu=\"concurrent-requests\""));
}

TEST(test_quotas_that_are_not_enforced_are_not_told)
{
    struct told told;
    struct http_text text;
    tell(&told, "gcra 100/1m", HTTP_STYLE_DRAFT_11, &allowed);
    struct rule shadow = rule;
    shadow.shadow_mode = true;
    told.status.rule = &shadow;
    told.answer = (struct http_answer){.status = 200};
    text = http_text_at(told.space, sizeof(told.space));
    http_fields_write(&told.answer, &text, HTTP_STYLE_DRAFT_11 | HTTP_STYLE_DRAFT_03, &told.request,
                      &told.reply);
    assert_int_equal(told.answer.n_fields, 0);
    told.status.rule = &rule;
    told.status.is_replaced = true;
    http_fields_write(&told.answer, &text, HTTP_STYLE_DRAFT_11, &told.request, &told.reply);
    assert_int_equal(told.answer.n_fields, 0);
}

/* Items of a List whose names are written as "NNx…": those numbers, in their order. */
static size_t items_of(const char *list, unsigned numbers[DESCRIPTORS_MAX])
{
    size_t n = 0;
    for (const char *at = list; at != NULL; at = strstr(at, ", ")) {
        at += n > 0 ? 2 : 0;
        assert_true(n < DESCRIPTORS_MAX && *at == '"');
        numbers[n++] = (unsigned)strtoul(at + 1, NULL, 10);
    }
    return n;
}

/* Thirty-two of them do not fit: both lists have the same ones, those that matter first. */
TEST(test_both_lists_name_the_same_policies)
{
    static struct rule rules[DESCRIPTORS_MAX];
    static struct stint_quota quotas[DESCRIPTORS_MAX];
    struct target statuses[DESCRIPTORS_MAX] = {0};
    unsigned policies[DESCRIPTORS_MAX], standings[DESCRIPTORS_MAX];
    for (int name_len = 2; name_len <= 120; name_len += 59) {
        char names[DESCRIPTORS_MAX][128], space[8192];
        for (unsigned i = 0; i < DESCRIPTORS_MAX; i++) {
            snprintf(names[i], sizeof(names[i]), "%02ux%0*d", i, name_len, 0);
            rules[i] = (struct rule){.name = names[i], .path = "p", .domain = "d"};
            quotas[i] = quota_of(i == 7 ? "gcra 4000000000/365d" : "gcra 100/1m");
            statuses[i] =
                (struct target){.rule = &rules[i], .quota = &quotas[i], .decision = allowed};
            statuses[i].decision.remaining = 99 - i % 3;
            statuses[i].grows_after_ns = i == 9 ? UINT64_C(400000000) * S : 600 * MS;
        }
        statuses[30].decision = statuses[21].decision = denied;
        struct reply reply = {.decision = denied, .statuses = statuses, .n_statuses = 32};
        reply.decision.binding = 30;
        struct http_text text = http_text_at(space, sizeof(space));
        struct http_answer answer = {.status = 429};
        http_fields_write(&answer, &text, HTTP_STYLE_DRAFT_11, &(struct request){0}, &reply);
        assert_false(text.is_full);
        assert_string_equal(answer.fields[0].name, "RateLimit-Policy");
        assert_string_equal(answer.fields[1].name, "RateLimit");
        size_t n = items_of(answer.fields[0].value, policies);
        assert_int_equal(items_of(answer.fields[1].value, standings), n);
        assert_memory_equal(policies, standings, n * sizeof(policies[0]));
        assert_true(n >= 7 && (name_len > 2 || n >= 30));
        for (size_t i = 0; i < 2; i++)
            assert_true(strlen(answer.fields[i].value) <= HTTP_FIELDS_LIST_MAX);
        const unsigned first[] = {30, 21, 2, 5, 8, 11};
        assert_memory_equal(policies, first, sizeof(first));
    }
}

TEST(test_a_text_that_is_full_takes_nothing_more)
{
    char space[8];
    struct http_text text = http_text_at(space, sizeof(space));
    http_text_add(&text, "1234567");
    assert_false(text.is_full);
    http_text_add(&text, "8");
    assert_true(text.is_full);
    assert_int_equal(text.len, 7);
    assert_string_equal(http_text_end(&text, 0), "1234567");
    text = http_text_at(space, sizeof(space));
    http_text_u64(&text, UINT64_MAX);
    assert_true(text.is_full);
    assert_int_equal(text.len, 0);
    text = http_text_at(space, sizeof(space));
    http_text_u64(&text, 10000000); /* a digit more than there is room for */
    assert_true(text.is_full);
    assert_int_equal(text.len, 0);
    text = http_text_at(space, sizeof(space));
    http_text_u64(&text, 9999990);
    assert_false(text.is_full);
    assert_string_equal(http_text_end(&text, 0), "9999990");
}

TEST(test_json_strings_are_escaped)
{
    static const char raw[] = "a\"\\\n\x7f\xc3\xa9\xff\xc0\x80\xed\xa0\x80\0z";
    char space[128];
    struct http_text text = http_text_at(space, sizeof(space));
    http_text_json(&text, span_of(raw, sizeof(raw) - 1));
    assert_string_equal(http_text_end(&text, 0),
                        "\"a\\\"\\\\\\u000a\\u007f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\\u0000z\"");
}

TEST(test_styles_have_names)
{
    assert_int_equal(http_style_named(span_of_text("draft-11")), HTTP_STYLE_DRAFT_11);
    assert_int_equal(http_style_named(span_of_text("draft-03")), HTTP_STYLE_DRAFT_03);
    assert_int_equal(http_style_named(span_of_text("x-ratelimit")), HTTP_STYLE_X_RATELIMIT);
    assert_int_equal(http_style_named(span_of_text("none")), HTTP_STYLE_NONE);
    assert_int_equal(http_style_named(span_of_text("draft")), 0);
}
