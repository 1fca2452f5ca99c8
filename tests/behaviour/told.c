/* SPDX-License-Identifier: MIT */
/* Reads what a frontend told out of its members. */
#include "behaviour/frontend.h"

static bool read_metric(int64_t *metric, const json_t *members, const char *name,
                        const json_t *none)
{
    const json_t *told = json_object_get(members, name);
    bool is_none = json_equal(told, none);
    *metric = is_none ? TOLD_NONE : (int64_t)json_integer_value(told);
    return is_none || (json_is_integer(told) && *metric >= 0);
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

bool told_read(struct told *told, const json_t *answer, const json_t *none)
{
    const json_t *binding = json_object_get(answer, "binding");
    const json_t *statuses = json_object_get(answer, "statuses");
    if (!json_is_integer(binding) || !read_metrics(&told->all, answer, none))
        return false;
    told->binding = (size_t)json_integer_value(binding);
    told->n_statuses = json_array_size(statuses);
    if (told->n_statuses > STINT_ITEMS_MAX)
        return false;
    for (size_t i = 0; i < told->n_statuses; i++)
        if (!read_metrics(&told->statuses[i], json_array_get(statuses, i), none))
            return false;
    return true;
}
