/* SPDX-License-Identifier: MIT */
/* Lines to events: chooses the parser, counts malformed lines and reports the first ones. */
#define _GNU_SOURCE
#include "cmd/lib/source.h"

#include "cmd/lib/args.h"
#include "cmd/lib/print.h"
#include "sim/input/trace.h"

#include <inttypes.h>
#include <string.h>

#define NAMED_MAX 5 /* malformed lines that are reported */

/*
 * Times further than this from the first cannot belong to one log. Within it, whichever is first,
 * all are within STINT_NOW_MAX of the earliest.
 */
#define SPREAD_MAX_NS (STINT_NOW_MAX / 2)

/* ---- The options of a log ---------------------------------------------------------------------
 */

const char *const source_formats[] = {"trace", "combined", "jsonl", NULL};

void source_check(const struct source_options *options, struct argp_state *state)
{
    struct stint_error error;
    struct logline logline;
    if (options->format == SOURCE_TRACE && options->key != NULL)
        argp_error(state, "--key is for logs (--format combined or jsonl); a trace has its keys");
    if (options->format != SOURCE_JSONL && (options->time != NULL || options->cost != NULL))
        argp_error(state, "--time and --cost are for --format jsonl");
    if (options->format == SOURCE_COMBINED && options->key != NULL &&
        logline_init(&logline, options->key, &error) != 0)
        argp_error(state, "--key: %s", error.message);
}

/* ---- The events ------------------------------------------------------------------------------ */

static int init_parser(struct source *source, const struct source_options *options,
                       struct stint_error *error)
{
    if (options->format == SOURCE_COMBINED)
        return logline_init(&source->parser.logline, options->key != NULL ? options->key : "ip",
                            error);
    if (options->format == SOURCE_TRACE)
        return 0;
    const struct jsonl_options members = {
        .time = options->time != NULL ? options->time : "time",
        .key = options->key != NULL ? options->key : "key",
        .cost = options->cost,
    };
    return jsonl_init(&source->parser.jsonl, &members, error);
}

int source_open(struct source *source, const struct source_options *options,
                struct stint_error *error)
{
    memset(source, 0, sizeof(*source));
    source->format = options->format;
    source->strict = options->strict;
    int code = init_parser(source, options, error);
    if (code != 0)
        return code;
    code = input_open(&source->input, options->path, error);
    if (code == 0)
        code = reader_init(&source->reader, input_fill, &source->input, error);
    if (code != 0)
        source_close(source);
    return code;
}

void source_close(struct source *source)
{
    if (source->format == SOURCE_JSONL)
        jsonl_deinit(&source->parser.jsonl);
    reader_deinit(&source->reader);
    input_close(&source->input);
}

static int parse(struct source *source, struct event *event, struct span line,
                 struct stint_error *error)
{
    switch (source->format) {
    case SOURCE_TRACE:
        return trace_parse(event, line, error);
    case SOURCE_COMBINED:
        return logline_parse(&source->parser.logline, event, line, error);
    case SOURCE_JSONL:
        return jsonl_parse(&source->parser.jsonl, event, line, error);
    }
    return EVENT_NONE;
}

static int check_time(struct source *source, const struct event *event, struct stint_error *error)
{
    if (source->format == SOURCE_TRACE)
        return event->at_ns <= STINT_NOW_MAX
                   ? 0
                   : err_set(error, STINT_E_RANGE,
                             "the times of a trace begin at 0; this one is more than 18 years off");
    if (!source->begun)
        source->first_ns = event->at_ns;
    source->begun = true;
    uint64_t first_ns = source->first_ns, at_ns = event->at_ns;
    if ((at_ns > first_ns ? at_ns - first_ns : first_ns - at_ns) <= SPREAD_MAX_NS)
        return 0;
    return err_set(error, STINT_E_RANGE, "the time is more than 9 years from that of the first");
}

/* Counts a line that is malformed; a negative code where that ends the replay. */
static int count_malformed(struct source *source, const struct stint_error *why,
                           struct stint_error *error)
{
    source->malformed++;
    if (source->strict)
        return err_set(error, STINT_E_SYNTAX, "%s:%" PRIu64 ": %s", source->input.name,
                       source->reader.line_number, why->message);
    if (source->malformed <= NAMED_MAX)
        print_message("%s:%" PRIu64 ": %s", source->input.name, source->reader.line_number,
                      why->message);
    if (source->malformed == NAMED_MAX)
        print_message("further malformed lines are counted, not named");
    return 0;
}

/* A line in which the input breaks off may look complete: it is skipped. */
static void name_broken_line(const struct source *source)
{
    if (source->reader.end > source->reader.begin)
        print_message("%s:%" PRIu64 ": the input breaks off in this line, which is left out",
                      source->input.name, source->reader.line_number + 1);
}

int source_next(struct source *source, struct event *event, struct stint_error *error)
{
    for (;;) {
        struct span line;
        struct stint_error why;
        int code = reader_next(&source->reader, &line, error);
        if (code == READER_END)
            return EVENT_NONE;
        if (code < 0) {
            name_broken_line(source);
            return code;
        }
        if (code == READER_TOO_LONG)
            code =
                err_set(&why, STINT_E_RANGE, "the line is longer than %u bytes", READER_LINE_MAX);
        else
            code = parse(source, event, line, &why);
        if (code == EVENT_FOUND) {
            code = check_time(source, event, &why);
            if (code == 0)
                return EVENT_FOUND;
        }
        if (code < 0 && (code = count_malformed(source, &why, error)) < 0)
            return code;
    }
}
