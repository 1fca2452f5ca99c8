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

uint64_t http_fields_retry_s(uint64_t wait_ns)
{
    return max_u64(1, ns_units_up(wait_ns, NS_PER_S));
}

void http_answer_add(struct http_answer *answer, const char *name, const char *value)
{
    assert(answer->n_fields < HTTP_ANSWER_FIELDS_MAX);
    if (answer->n_fields < HTTP_ANSWER_FIELDS_MAX)
        answer->fields[answer->n_fields++] = (struct http_answer_field){name, value};
}

bool http_fields_is_written(const struct target *status)
{
    return reply_quota(status) != NULL && (status->rule == NULL || !status->rule->shadow_mode);
}

struct span http_fields_policy(const struct request *request, const struct reply *reply,
                               size_t index)
{
    const struct rule *rule = reply->statuses[index].rule;
    if (rule != NULL)
        return span_of_text(rule->name[0] != '\0' ? rule->name : rule->path);
    return index < request->n_items ? request->items[index].quota : span_of_text("quota");
}

bool http_fields_grows_after(const struct target *status, uint64_t *after_ns)
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

static void write_policy(struct http_text *text, const struct target *status)
{
    write_parameter(text, ";q=", status->quota->limit);
    if (status->quota->algorithm == STINT_CONCURRENCY)
        http_text_add(text, ";qu=\"concurrent-requests\"");
    else
        write_parameter(text, ";w=", http_fields_retry_s(status->quota->period_ns));
}

static void write_standing(struct http_text *text, const struct target *status)
{
    uint64_t after_ns;
    write_parameter(text, ";r=", status->decision.remaining);
    if (http_fields_grows_after(status, &after_ns))
        write_parameter(text, ";t=", ns_units_up(after_ns, NS_PER_S));
}

/* Names have any length, and clients limit the length of a field. */
static struct span short_name(struct span name)
{
    return span_of(name.ptr, name.len <= HTTP_FIELDS_NAME_MAX ? name.len : HTTP_FIELDS_NAME_MAX);
}

/* Whether one quota is closer to its limit than another: it denies, or less of it is left. */
static bool is_nearer(const struct target *a, const struct target *b)
{
    bool a_denies = a->decision.outcome != STINT_ALLOW,
         b_denies = b->decision.outcome != STINT_ALLOW;
    if (a_denies != b_denies)
        return a_denies;
    return (uint64_t)a->decision.remaining * b->decision.limit <
           (uint64_t)b->decision.remaining * a->decision.limit;
}

/* The statuses to write: the binding one, then those closest to their limits. */
static size_t written_in_order(const struct reply *reply, size_t order[DESCRIPTORS_MAX])
{
    size_t n = 0, binding = reply->decision.binding;
    assert(reply->n_statuses <= DESCRIPTORS_MAX);
    for (size_t i = 0; i < reply->n_statuses; i++) {
        const struct target *status = &reply->statuses[i];
        if (!http_fields_is_written(status))
            continue;
        size_t at = n++;
        for (; at > 0; at--) {
            size_t before = order[at - 1];
            if (before == binding || (i != binding && !is_nearer(status, &reply->statuses[before])))
                break;
            order[at] = before;
        }
        order[at] = i;
    }
    return n;
}

static void add_item(struct http_text *list, const struct http_text *name,
                     const struct target *status,
                     void (*write)(struct http_text *text, const struct target *status))
{
    if (list->len > 0)
        http_text_add(list, ", ");
    http_text_bytes(list, name->text, name->len);
    write(list, status);
}

static const char *copy_list(struct http_text *text, const struct http_text *list)
{
    size_t start = text->len;
    http_text_bytes(text, list->text, list->len);
    return http_text_end(text, start);
}

static const char *write_number(struct http_text *text, uint64_t number)
{
    size_t start = text->len;
    http_text_u64(text, number);
    return http_text_end(text, start);
}

/* Two Lists of RFC 9651, with an item for each written quota. Both have the same quotas. */
static void add_draft_11(struct http_answer *answer, struct http_text *text,
                         const struct request *request, const struct reply *reply)
{
    char spaces[2][HTTP_FIELDS_LIST_MAX + 1], quoted[2 * HTTP_FIELDS_NAME_MAX + 3];
    struct http_text policies = http_text_at(spaces[0], sizeof(spaces[0]));
    struct http_text standings = http_text_at(spaces[1], sizeof(spaces[1]));
    size_t order[DESCRIPTORS_MAX], n = written_in_order(reply, order);
    for (size_t i = 0; i < n; i++) {
        const struct target *status = &reply->statuses[order[i]];
        struct http_text name = http_text_at(quoted, sizeof(quoted));
        size_t policies_len = policies.len, standings_len = standings.len;
        http_text_sf_string(&name, short_name(http_fields_policy(request, reply, order[i])));
        add_item(&policies, &name, status, write_policy);
        add_item(&standings, &name, status, write_standing);
        if (policies.is_full || standings.is_full) {
            policies.len = policies_len;
            standings.len = standings_len;
            break;
        }
    }
    if (n == 0)
        return;
    http_answer_add(answer, "RateLimit-Policy", copy_list(text, &policies));
    http_answer_add(answer, "RateLimit", copy_list(text, &standings));
}

/* The older forms describe one quota: when it resets, or when to retry. */
static void add_numbers(struct http_answer *answer, struct http_text *text, unsigned styles,
                        const struct reply *reply)
{
    const struct stint_decision *decision = &reply->decision;
    if (decision->binding >= reply->n_statuses ||
        !http_fields_is_written(&reply->statuses[decision->binding]))
        return;
    bool denies = decision->outcome == STINT_DENY;
    uint64_t reset_ns = denies ? decision->retry_after_ns : decision->reset_after_ns;
    const char *limit = write_number(text, decision->limit);
    const char *remaining = write_number(text, decision->remaining);
    const char *reset = write_number(text, ns_units_up(reset_ns, NS_PER_S));
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
