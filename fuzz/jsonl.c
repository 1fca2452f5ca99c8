/* SPDX-License-Identifier: MIT */
/*
 * The first line of the input as the names of members (time, key and cost, apart by blanks), the
 * rest as lines of JSON. A parser that has seen other lines and one that has seen none must agree.
 */
#define _GNU_SOURCE
#include "feed.h"

#include "sim/input/jsonl.h"
#include "sim/input/timestamp.h"

struct parsers {
    struct jsonl_options options;
    struct jsonl used;
};

static void see(void *arg, struct span line)
{
    struct parsers *parsers = arg;
    struct event first, second;
    struct stint_error error;
    struct jsonl *fresh = malloc(sizeof(*fresh));
    MUST(fresh != NULL && jsonl_init(fresh, &parsers->options, NULL) == 0);
    int code = jsonl_parse(&parsers->used, &first, line, &error);
    MUST(jsonl_parse(fresh, &second, line, NULL) == code);
    MUST(code == EVENT_FOUND || code == EVENT_NONE || code < 0);
    if (code < 0)
        MUST(error.code == code && error.message[0] != '\0');
    if (code == EVENT_FOUND) {
        MUST(first.at_ns == second.at_ns && first.cost == second.cost);
        MUST(first.at_ns <= TIMESTAMP_MAX_NS && first.decimals <= 9);
        MUST(parsers->options.cost != NULL || first.cost == 1);
        MUST(first.key.len == second.key.len && first.key.len <= STINT_KEY_MAX);
        MUST(memcmp(first.key.ptr, second.key.ptr, first.key.len) == 0);
    }
    jsonl_deinit(fresh);
    free(fresh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *newline = size > 0 ? memchr(data, '\n', size) : NULL;
    if (newline == NULL)
        return 0;
    size_t names_len = (size_t)(newline - data);
    struct parsers *parsers = malloc(sizeof(*parsers));
    char *names = malloc(names_len + 1), *rest = NULL;
    MUST(parsers != NULL && names != NULL);
    memcpy(names, data, names_len);
    names[names_len] = '\0';
    parsers->options.time = strtok_r(names, " ", &rest);
    parsers->options.key = strtok_r(NULL, " ", &rest);
    parsers->options.cost = strtok_r(NULL, " ", &rest);
    if (parsers->options.key == NULL)
        parsers->options = (struct jsonl_options){"t", "k", NULL};
    if (jsonl_init(&parsers->used, &parsers->options, NULL) == 0) {
        feed_lines(span_of(newline + 1, size - names_len - 1), see, parsers);
        jsonl_deinit(&parsers->used);
    }
    free(names);
    free(parsers);
    return 0;
}
