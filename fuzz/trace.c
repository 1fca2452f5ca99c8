/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a trace: every line is a comment, an event or a named mistake, and an event that is
 * written out again reads as the same event.
 */
#include "feed.h"

#include "sim/input/event.h"
#include "sim/input/timestamp.h"

static void check_event(const struct event *event, struct span line)
{
    MUST(event->at_ns <= TIMESTAMP_MAX_NS && event->decimals <= 9);
    MUST(event->key.len > 0);
    MUST(event->key.ptr >= line.ptr && event->key.ptr + event->key.len <= line.ptr + line.len);

    size_t size = event->key.len + 64;
    char *text = malloc(size);
    MUST(text != NULL);
    int before =
        snprintf(text, size, "%llu.%09llu\t", (unsigned long long)(event->at_ns / NS_PER_S),
                 (unsigned long long)(event->at_ns % NS_PER_S));
    memcpy(text + before, event->key.ptr, event->key.len);
    size_t len = (size_t)before + event->key.len;
    len += (size_t)snprintf(text + len, size - len, " %u # again", (unsigned)event->cost);
    struct event again;
    MUST(trace_parse(&again, span_of(text, len), NULL) == EVENT_FOUND);
    MUST(again.at_ns == event->at_ns && again.cost == event->cost && again.decimals == 9);
    MUST(again.key.len == event->key.len);
    MUST(memcmp(again.key.ptr, event->key.ptr, again.key.len) == 0);
    free(text);
}

static void see(void *arg, struct span line)
{
    struct event event;
    struct stint_error error;
    (void)arg;
    int code = trace_parse(&event, line, &error);
    MUST(trace_parse(&event, line, NULL) == code);
    if (code == EVENT_FOUND)
        check_event(&event, line);
    else if (code != EVENT_NONE)
        MUST(code < 0 && error.code == code && error.message[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    feed_lines(span_of(data, size), see, NULL);
    return 0;
}
