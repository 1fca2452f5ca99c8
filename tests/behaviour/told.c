/* SPDX-License-Identifier: MIT */
/* Reads what a door told out of its members. */
#include "behaviour/door.h"

static bool read_figure(int64_t *figure, const json_t *members, const char *name,
                        const json_t *none)
{
    const json_t *told = json_object_get(members, name);
    bool is_none = json_equal(told, none);
    *figure = is_none ? TOLD_NONE : (int64_t)json_integer_value(told);
    return is_none || (json_is_integer(told) && *figure >= 0);
}

static bool read_figures(struct figures *figures, const json_t *members, const json_t *none)
{
    const char *outcome = json_string_value(json_object_get(members, "outcome"));
    if (outcome == NULL || strlen(outcome) >= sizeof(figures->outcome))
        return false;
    strcpy(figures->outcome, outcome);
    return read_figure(&figures->granted, members, "granted", NULL) &&
           read_figure(&figures->limit, members, "limit", none) &&
           read_figure(&figures->remaining, members, "remaining", none) &&
           read_figure(&figures->retry_after_ms, members, "retry_after_ms", none);
}

bool told_read(struct told *told, const json_t *answer, const json_t *none)
{
    const json_t *binding = json_object_get(answer, "binding");
    const json_t *statuses = json_object_get(answer, "statuses");
    if (!json_is_integer(binding) || !read_figures(&told->all, answer, none))
        return false;
    told->binding = (size_t)json_integer_value(binding);
    told->n_statuses = json_array_size(statuses);
    if (told->n_statuses > STINT_ITEMS_MAX)
        return false;
    for (size_t i = 0; i < told->n_statuses; i++)
        if (!read_figures(&told->statuses[i], json_array_get(statuses, i), none))
            return false;
    return true;
}
