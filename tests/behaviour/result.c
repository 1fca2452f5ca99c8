/* SPDX-License-Identifier: MIT */
/* Reads what a frontend replied out of its members. */
#include "behaviour/frontend.h"

const char *const error_names[] = {
    [REPLY_BAD_REQUEST] = "bad_request",
    [REPLY_FORBIDDEN] = "forbidden",
    [REPLY_GONE] = "gone",
    [REPLY_CONFLICT] = "conflict",
    [REPLY_FULL] = "full",
    [REPLY_UNAVAILABLE] = "unavailable",
};

bool is_without_decision(uint8_t verb)
{
    return verb == REQUEST_BLOCK || verb == REQUEST_RESET || verb == REQUEST_SET_QUOTA ||
           verb == REQUEST_RENEW || verb == REQUEST_COUNT || verb == REQUEST_COUNT_RESET;
}

static bool read_metric(int64_t *metric, const json_t *members, const char *name,
                        const json_t *none)
{
    const json_t *value = json_object_get(members, name);
    bool is_none = json_equal(value, none);
    *metric = is_none ? METRIC_NONE : (int64_t)json_integer_value(value);
    return is_none || (json_is_integer(value) && *metric >= 0);
}

static bool read_metrics(struct metrics *metrics, const json_t *members, const json_t *none)
{
    const char *outcome = json_string_value(json_object_get(members, "outcome"));
    if (outcome == NULL || strlen(outcome) >= sizeof(metrics->outcome))
        return false;
    strcpy(metrics->outcome, outcome);
    return read_metric(&metrics->granted, members, "granted", NULL) &&
           read_metric(&metrics->limit, members, "limit", none) &&
           read_metric(&metrics->remaining, members, "remaining", none) &&
           read_metric(&metrics->retry_after_ms, members, "retry_after_ms", none);
}

bool result_read(struct result *result, const json_t *reply, const json_t *none)
{
    const json_t *binding = json_object_get(reply, "binding");
    const json_t *statuses = json_object_get(reply, "statuses");
    const json_t *replayed = json_object_get(reply, "replayed");
    const char *ticket = json_string_value(json_object_get(reply, "ticket"));
    if (!json_is_integer(binding) || !read_metrics(&result->all, reply, none))
        return false;
    result->binding = (size_t)json_integer_value(binding);
    result->replayed = json_is_true(replayed) || json_integer_value(replayed) == 1;
    snprintf(result->ticket, sizeof(result->ticket), "%s", ticket != NULL ? ticket : "");
    result->n_statuses = json_array_size(statuses);
    if (result->n_statuses > STINT_ITEMS_MAX)
        return false;
    for (size_t i = 0; i < result->n_statuses; i++)
        if (!read_metrics(&result->statuses[i], json_array_get(statuses, i), none))
            return false;
    return true;
}

bool result_read_count(struct result *result, const json_t *reply)
{
    strcpy(result->all.outcome, "ok");
    return read_metric(&result->all.count, reply, "count", NULL) &&
           read_metric(&result->all.expires_after_ms, reply, "expires_after_ms", NULL);
}
