/* SPDX-License-Identifier: MIT */
/*
 * The first line of the input as a key expression, the rest as an access log. A parser that has
 * seen other lines and one that has seen none must agree on every line.
 */
#include "feed.h"

#include "sim/input/logline.h"

static const char *const usual_exprs[] = {"ip", "ip/64", "ip+user+path", "method+path+status",
                                          "user+ip/48"};

struct parsers {
    const char *expr;
    struct logline used;
};

static void see(void *arg, struct span line)
{
    struct parsers *parsers = arg;
    struct event first, second;
    struct stint_error error;
    struct logline *fresh = malloc(sizeof(*fresh));
    MUST(fresh != NULL && logline_init(fresh, parsers->expr, NULL) == 0);
    int code = logline_parse(&parsers->used, &first, line, &error);
    MUST(logline_parse(fresh, &second, line, NULL) == code);
    MUST(code == EVENT_FOUND || code == EVENT_NONE || code < 0);
    if (code < 0)
        MUST(error.code == code && error.message[0] != '\0');
    if (code == EVENT_FOUND) {
        MUST(first.at_ns == second.at_ns && first.at_ns % NS_PER_S == 0);
        MUST(first.at_ns <= TIMESTAMP_MAX_NS);
        MUST(first.cost == 1 && second.cost == 1);
        MUST(first.key.len == second.key.len && first.key.len <= STINT_KEY_MAX);
        MUST(memcmp(first.key.ptr, second.key.ptr, first.key.len) == 0);
    }
    free(fresh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct parsers *parsers = malloc(sizeof(*parsers));
    struct stint_error error;
    const uint8_t *newline = size > 0 ? memchr(data, '\n', size) : NULL;
    size_t expr_len = newline != NULL ? (size_t)(newline - data) : size;
    char *expr = malloc(expr_len + 1);
    MUST(parsers != NULL && expr != NULL);
    if (expr_len > 0)
        memcpy(expr, data, expr_len);
    expr[expr_len] = '\0';
    parsers->expr = expr;
    if (expr_len == 1)
        parsers->expr = usual_exprs[data[0] % (sizeof(usual_exprs) / sizeof(*usual_exprs))];
    int code = logline_init(&parsers->used, parsers->expr, &error);
    if (code != 0)
        MUST(code < 0 && error.code == code && error.message[0] != '\0');
    else if (newline != NULL)
        feed_lines(span_of(newline + 1, size - expr_len - 1), see, parsers);
    free(expr);
    free(parsers);
    return 0;
}
