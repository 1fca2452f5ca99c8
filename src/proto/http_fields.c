/* SPDX-License-Identifier: MIT */
/* Header fields about quotas. */
#include "proto/http_fields.h"

#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>

unsigned http_style_named(struct span name)
{
    static const struct {
        const char *name;
        unsigned style;
    } styles[] = {
        {"draft-11", HTTP_STYLE_DRAFT_11},
        {"draft-03", HTTP_STYLE_DRAFT_03},
        {"x-ratelimit", HTTP_STYLE_X_RATELIMIT},
        {"none", HTTP_STYLE_NONE},
    };
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++)
        if (span_equals(name, styles[i].name))
            return styles[i].style;
    return 0;
}

static uint64_t seconds_up(uint64_t ns)
{
    return ns / NS_PER_S + (ns % NS_PER_S != 0);
}

uint64_t http_fields_retry_s(uint64_t wait_ns)
{
    return max_u64(1, seconds_up(wait_ns));
}

void http_answer_add(struct http_answer *answer, const char *name, const char *value)
{
    assert(answer->n_fields < HTTP_ANSWER_FIELDS_MAX);
    if (answer->n_fields < HTTP_ANSWER_FIELDS_MAX)
        answer->fields[answer->n_fields++] = (struct http_answer_field){name, value};
}

bool http_fields_is_told(const struct reply_status *status)
{
    return status->quota != NULL && !status->replaced &&
           (status->rule == NULL || !status->rule->shadow_mode);
}

struct span http_fields_policy(const struct request *request, const struct reply *reply,
                               size_t index)
{
    const struct rule *rule = reply->statuses[index].rule;
    if (rule != NULL)
        return span_of_text(rule->name[0] != '\0' ? rule->name : rule->path);
    return index < request->n_items ? request->items[index].quota : span_of_text("quota");
}

bool http_fields_grows_after(const struct reply_status *status, uint64_t *after_ns)
{
    if (status->grows_after_ns == 0 || status->grows_after_ns == STINT_NEVER_NS)
        return false;
    *after_ns = status->grows_after_ns;
    return true;
}

static void write_parameter(struct http_text *text, const char *name, uint64_t number)
{
    http_text_add_text(text, name);
    http_text_u64(text, min_u64(number, HTTP_FIELDS_INTEGER_MAX));
}

static void write_policy(struct http_text *text, const struct reply_status *status)
{
    write_parameter(text, ";q=", status->quota->limit);
    if (status->quota->algorithm == STINT_CONCURRENCY)
        http_text_add(text, ";qu=\"concurrent-requests\"");
    else
        write_parameter(text, ";w=", http_fields_retry_s(status->quota->period_ns));
}

static void write_standing(struct http_text *text, const struct reply_status *status)
{
    uint64_t after_ns;
    write_parameter(text, ";r=", status->decision.remaining);
    if (http_fields_grows_after(status, &after_ns))
        write_parameter(text, ";t=", seconds_up(after_ns));
}

/* Names are of any length, and what a client takes as a field is not. */
static struct span short_name(struct span name)
{
    return span_of(name.ptr, name.len <= HTTP_FIELDS_NAME_MAX ? name.len : HTTP_FIELDS_NAME_MAX);
}

/* A List of RFC 9651: one item for each quota that is told. NULL if there is none. */
static const char *
write_list(struct http_text *text, const struct request *request, const struct reply *reply,
           void (*write)(struct http_text *text, const struct reply_status *status))
{
    size_t start = text->len, n = 0;
    for (size_t i = 0; i < reply->n_statuses && text->len - start < HTTP_FIELDS_LIST_FULL; i++) {
        if (!http_fields_is_told(&reply->statuses[i]))
            continue;
        if (n++ > 0)
            http_text_add(text, ", ");
        http_text_sf_string(text, short_name(http_fields_policy(request, reply, i)));
        write(text, &reply->statuses[i]);
    }
    return n == 0 ? NULL : http_text_end(text, start);
}

static const char *write_number(struct http_text *text, uint64_t number)
{
    size_t start = text->len;
    http_text_u64(text, number);
    return http_text_end(text, start);
}

static void add_draft_11(struct http_answer *answer, struct http_text *text,
                         const struct request *request, const struct reply *reply)
{
    const char *policies = write_list(text, request, reply, write_policy);
    const char *standings = write_list(text, request, reply, write_standing);
    if (policies == NULL)
        return;
    http_answer_add(answer, "RateLimit-Policy", policies);
    http_answer_add(answer, "RateLimit", standings);
}

/* The older forms speak of one quota: when it resets, or when to come back. */
static void add_numbers(struct http_answer *answer, struct http_text *text, unsigned styles,
                        const struct reply *reply)
{
    const struct stint_decision *decision = &reply->decision;
    if (decision->binding >= reply->n_statuses ||
        !http_fields_is_told(&reply->statuses[decision->binding]))
        return;
    bool denies = decision->outcome == STINT_DENY;
    uint64_t reset_ns = denies ? decision->retry_after_ns : decision->reset_after_ns;
    const char *limit = write_number(text, decision->limit);
    const char *remaining = write_number(text, decision->remaining);
    const char *reset = write_number(text, seconds_up(reset_ns));
    if (styles & HTTP_STYLE_DRAFT_03) {
        http_answer_add(answer, "RateLimit-Limit", limit);
        http_answer_add(answer, "RateLimit-Remaining", remaining);
        http_answer_add(answer, "RateLimit-Reset", reset);
    }
    if (styles & HTTP_STYLE_X_RATELIMIT) {
        http_answer_add(answer, "X-RateLimit-Limit", limit);
        http_answer_add(answer, "X-RateLimit-Remaining", remaining);
        http_answer_add(answer, "X-RateLimit-Reset", reset);
    }
}

void http_fields_write(struct http_answer *answer, struct http_text *text, unsigned styles,
                       const struct request *request, const struct reply *reply)
{
    if (styles & HTTP_STYLE_DRAFT_11)
        add_draft_11(answer, text, request, reply);
    if (styles & (HTTP_STYLE_DRAFT_03 | HTTP_STYLE_X_RATELIMIT))
        add_numbers(answer, text, styles, reply);
    if (answer->status >= 400 && reply->decision.outcome == STINT_DENY)
        http_answer_add(answer, "Retry-After",
                        write_number(text, http_fields_retry_s(reply->decision.retry_after_ns)));
}
