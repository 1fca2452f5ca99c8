/* SPDX-License-Identifier: MIT */
/* The parsers themselves decide. No line is in two formats: each refuses what the others read. */
#include "sim/input/log_format.h"

#include "sim/input/logline.h"
#include "sim/input/trace.h"

#include <jansson.h>

/* Any object, whatever its members: which of them are time and key is chosen later. */
static bool is_json_object(struct span line)
{
    json_t *value = json_loadb((const char *)line.ptr, line.len, JSON_ALLOW_NUL, NULL);
    bool is_object = json_is_object(value);
    json_decref(value);
    return is_object;
}

/* A number or a key that is too large is in its place all the same. */
static bool is_format(int code)
{
    return code == EVENT_FOUND || code == STINT_E_RANGE;
}

enum log_format log_format_of(struct span line)
{
    struct logline logline;
    struct event event;
    struct stint_error ignored;
    (void)logline_init(&logline, "ip", &ignored);
    if (is_format(logline_parse(&logline, &event, line, &ignored)))
        return LOG_COMBINED;
    if (is_format(trace_parse(&event, line, &ignored)))
        return LOG_TRACE;
    return is_json_object(line) ? LOG_JSONL : LOG_ANY;
}
