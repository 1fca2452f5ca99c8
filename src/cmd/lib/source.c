/* SPDX-License-Identifier: MIT */
/* Files one after the other, their lines, and the events that they are. */
#define _GNU_SOURCE
#include "cmd/lib/source.h"

#include "base/ns.h"
#include "base/utf8.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/random.h>

#define NAMED_MAX 5      /* malformed lines that are reported */
#define UNKNOWN_MAX 1000 /* lines that are read in search of one in a known format */

/*
 * Times further than this from the first cannot belong to one log. Within it, whichever is first,
 * all are within STINT_NOW_MAX of the earliest.
 */
#define SPREAD_MAX_NS (STINT_NOW_MAX / 2)

/* ---- The options of a log -------------------------------------------------------------------- */

const char *const source_formats[] = {"auto", "trace", "combined", "jsonl", NULL};

/* By enum source_format. */
static const char *const line_names[] = {"a line in a known format",
                                         "a trace line (TIME KEY [COST])", "an access log line",
                                         "a JSON object"};

static const struct args_option options_known[] = {
    {"format", "FORMAT", 2,
     "auto (default): recognised; trace, combined (access logs, also common), or jsonl",
     ARGS_CHOICE(struct source_options, format, source_formats)},
    {"key", "EXPR", 2,
     "combined: ip (default), ip/BITS for IPv6 by prefix, user, path, method, status; jsonl: names "
     "of members (default key). Joined by +: ip+path",
     ARGS_TEXT(struct source_options, key)},
    {"time", "MEMBER", 2, "jsonl: seconds or RFC 3339 (default time)",
     ARGS_TEXT(struct source_options, time)},
    {"cost", "MEMBER", 2, "jsonl: units of each event (default: 1 each)",
     ARGS_TEXT(struct source_options, cost)},
    {"sort", NULL, 3, "Put the events of a pipe into the order of time first, as those of files",
     ARGS_FLAG(struct source_options, sort)},
    {"no-sort", NULL, 3, "Keep the order of the lines; each counts at the latest time seen",
     ARGS_FLAG(struct source_options, no_sort)},
    {"strict", NULL, 3, "Stop at the first malformed line",
     ARGS_FLAG(struct source_options, strict)},
    {0},
};

/* Options that the format would silently ignore, or cannot read, are refused. */
static void check_options(struct argp_state *state, void *input)
{
    const struct source_options *options = input;
    struct stint_error error;
    struct logline logline;
    if (options->format == SOURCE_TRACE && options->key != NULL)
        argp_error(state, "--key is for logs (--format combined or jsonl); a trace has its keys");
    if ((options->format == SOURCE_TRACE || options->format == SOURCE_COMBINED) &&
        (options->time != NULL || options->cost != NULL))
        argp_error(state, "--time and --cost are for --format jsonl");
    if (options->format == SOURCE_COMBINED && options->key != NULL &&
        logline_init(&logline, options->key, &error) != 0)
        argp_error(state, "--key: %s", error.message);
    if (options->sort && options->no_sort)
        argp_error(state, "--sort and --no-sort exclude each other");
}

const struct args_set source_set = {options_known, .end = check_options};

void source_add_path(struct argp_state *state, struct source_options *options, const char *path)
{
    if (path[0] == '\0')
        argp_error(state, "the name of the FILE is empty");
    if (options->n_paths == SOURCE_FILES_MAX)
        argp_error(state, "more than %d files; join them: cat FILE ... | stint ... --sort",
                   SOURCE_FILES_MAX);
    for (size_t i = 0; i < options->n_paths && strcmp(path, "-") == 0; i++)
        if (strcmp(options->paths[i], path) == 0)
            argp_error(state, "standard input (-) can be read once");
    options->paths[options->n_paths++] = path;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static const char *path_of(const struct source_options *options, size_t i)
{
    return options->n_paths > 0 ? options->paths[i] : NULL;
}

/* All of them, before the first is read: a wrong name is reported at once. */
static int look_at_files(struct event_source *source, struct stint_error *error)
{
    const struct source_options *options = source->options;
    struct input_stat stat = {.is_regular = true};
    source->is_regular = true;
    for (size_t i = 0; i == 0 || i < options->n_paths; i++) {
        int code = input_stat(path_of(options, i), &stat, error);
        if (code != 0)
            return code;
        source->is_regular = source->is_regular && stat.is_regular;
        source->size += stat.size;
    }
    if (!source->is_regular)
        source->size = 0;
    return 0;
}

static int open_next(struct event_source *source, struct stint_error *error)
{
    int code = input_open(&source->input, path_of(source->options, source->n_opened), error);
    if (code != 0)
        return code;
    code = reader_init(&source->reader, input_fill, &source->input, error);
    if (code != 0) {
        input_close(&source->input);
        return code;
    }
    source->n_opened++;
    source->is_open = true;
    source->is_recognised = false;
    return 0;
}

static void close_file(struct event_source *source)
{
    if (!source->is_open)
        return;
    source->lines += source->reader.line_number;
    source->bytes_read += source->input.bytes_read;
    reader_deinit(&source->reader);
    input_close(&source->input);
    source->is_open = false;
}

int event_source_open(struct event_source *source, const struct source_options *options,
                      struct stint_error *error)
{
    const char *first = path_of(options, 0);
    memset(source, 0, sizeof(*source));
    source->options = options;
    source->format = options->format;
    if (options->time != NULL || options->cost != NULL) /* only JSON has them */
        source->format = SOURCE_JSONL;
    source->name = first == NULL || strcmp(first, "-") == 0 ? "standard input" : first;
    if (options->n_paths > 1) {
        snprintf(source->name_text, sizeof(source->name_text), "%.200s and %zu more file%s",
                 source->name, options->n_paths - 1, options->n_paths == 2 ? "" : "s");
        source->name = source->name_text;
    }
    int code = look_at_files(source, error);
    return code != 0 ? code : open_next(source, error);
}

void event_source_close(struct event_source *source)
{
    close_file(source);
    if (source->has_parser && source->format == SOURCE_JSONL)
        jsonl_deinit(&source->parser.jsonl);
    source->has_parser = false;
}

bool event_source_sorts(const struct event_source *source)
{
    return source->options->sort || (source->is_regular && !source->options->no_sort);
}

uint64_t event_source_lines(const struct event_source *source)
{
    return source->lines + source->reader.line_number;
}

uint64_t event_source_bytes_read(const struct event_source *source)
{
    return source->bytes_read + source->input.bytes_read;
}

/* ---- The format ------------------------------------------------------------------------------ */

/* The parsers themselves decide. No line is in two formats: each refuses what the others read. */

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

enum source_format source_format_of(struct span line)
{
    struct logline logline;
    struct event event;
    struct stint_error ignored;
    (void)logline_init(&logline, "ip", &ignored);
    if (is_format(logline_parse(&logline, &event, line, &ignored)))
        return SOURCE_COMBINED;
    if (is_format(trace_parse(&event, line, &ignored)))
        return SOURCE_TRACE;
    return is_json_object(line) ? SOURCE_JSONL : SOURCE_ANY;
}

static int init_combined(struct event_source *source, struct stint_error *error)
{
    const char *key = source->options->key;
    struct stint_error why;
    int code = logline_init(&source->parser.logline, key != NULL ? key : "ip", &why);
    return code == 0 ? 0
                     : err_set(error, code, "%s is an access log: %s", source->name, why.message);
}

/* The column of a trace is called key. */
static int init_trace(struct event_source *source, struct stint_error *error)
{
    const char *key = source->options->key;
    return key == NULL || strcmp(key, "key") == 0
               ? 0
               : err_set(error, STINT_E_SYNTAX,
                         "%s is a trace, which has one column, key; '%s' is for access logs or "
                         "JSON lines",
                         source->name, key);
}

static int init_jsonl(struct event_source *source, struct stint_error *error)
{
    const struct source_options *options = source->options;
    const struct jsonl_options members = {
        .time = options->time != NULL ? options->time : "time",
        .key = options->key != NULL ? options->key : "key",
        .cost = options->cost,
    };
    return jsonl_init(&source->parser.jsonl, &members, error);
}

static int init_parser(struct event_source *source, struct stint_error *error)
{
    static int (*const inits[])(struct event_source * source,
                                struct stint_error * error) = {[SOURCE_TRACE] = init_trace,
                                                               [SOURCE_COMBINED] = init_combined,
                                                               [SOURCE_JSONL] = init_jsonl};
    int code = inits[source->format](source, error);
    source->has_parser = code == 0;
    return code;
}

static int wrong_format(const struct event_source *source, enum source_format found,
                        struct stint_error *error)
{
    const struct source_options *options = source->options;
    char advice[96] = "; all files must have one format";
    if (options->format != SOURCE_ANY)
        snprintf(advice, sizeof(advice), "; choose the format %s, or leave it out",
                 source_formats[found]);
    else if (options->time != NULL || options->cost != NULL)
        snprintf(advice, sizeof(advice), "; time and cost are for JSON lines");
    return err_set(error, STINT_E_SYNTAX, "%s:%" PRIu64 ": expected %s, found %s%s",
                   source->input.name, source->reader.line_number, line_names[source->format],
                   line_names[found], advice);
}

static int no_format(const struct event_source *source, struct stint_error *error)
{
    char text[3 * sizeof(source->unknown_text)];
    return err_set(error, STINT_E_SYNTAX,
                   "no line of %.60s is a trace line (TIME KEY [COST]), an access log line or a "
                   "JSON object; line %" PRIu64 ": %.70s",
                   source->name, source->unknown_line,
                   format_text(text, sizeof(text), span_of_text(source->unknown_text)));
}

/* A line in no known format, while the format is not known. */
static int count_unknown(struct event_source *source, struct span line, struct stint_error *error)
{
    if (source->unknown == 0) {
        source->unknown_line = source->reader.line_number;
        source->unknown_name = source->input.name;
        snprintf(source->unknown_text, sizeof(source->unknown_text), "%.*s",
                 (int)(line.len < 60 ? line.len : 60), (const char *)line.ptr);
    }
    source->unknown++;
    source->malformed++;
    return source->unknown < UNKNOWN_MAX && !source->options->strict ? 0 : no_format(source, error);
}

/* The lines before the first that was recognised. */
static void name_unknown(const struct event_source *source)
{
    if (source->unknown > 1)
        print_message("%s:%" PRIu64 ": the first %" PRIu64 " lines are not %s, and are left out",
                      source->unknown_name, source->unknown_line, source->unknown,
                      line_names[source->format]);
    else if (source->unknown == 1)
        print_message("%s:%" PRIu64 ": expected %s; the line is left out", source->unknown_name,
                      source->unknown_line, line_names[source->format]);
}

static bool is_blank_or_comment(struct span line)
{
    line = span_trim(line);
    return line.len == 0 || line.ptr[0] == '#';
}

/*
 * The first line of a file that is in a known format: 1 if lines can be parsed from here on, 0 if
 * this one cannot, or a negative code.
 */
static int recognise(struct event_source *source, struct span line, struct stint_error *error)
{
    enum source_format found = source_format_of(line);
    if (found == SOURCE_ANY && source->format == SOURCE_ANY)
        return is_blank_or_comment(line) ? 0 : count_unknown(source, line, error);
    if (found != SOURCE_ANY && source->format == SOURCE_ANY) {
        source->format = found;
        name_unknown(source);
    }
    if (found != SOURCE_ANY && found != source->format)
        return wrong_format(source, found, error);
    source->is_recognised = found != SOURCE_ANY;
    int code = source->has_parser ? 0 : init_parser(source, error);
    return code != 0 ? code : 1;
}

/* ---- The events ------------------------------------------------------------------------------ */

static int parse(struct event_source *source, struct event *event, struct span line,
                 struct stint_error *error)
{
    switch (source->format) {
    case SOURCE_TRACE:
        return trace_parse(event, line, error);
    case SOURCE_COMBINED:
        return logline_parse(&source->parser.logline, event, line, error);
    case SOURCE_JSONL:
        return jsonl_parse(&source->parser.jsonl, event, line, error);
    case SOURCE_ANY:
        break;
    }
    return EVENT_NONE;
}

static int check_time(struct event_source *source, const struct event *event,
                      struct stint_error *error)
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
static int count_malformed(struct event_source *source, const struct stint_error *why,
                           struct stint_error *error)
{
    uint64_t named = ++source->malformed - source->unknown;
    if (source->options->strict)
        return err_set(error, STINT_E_SYNTAX, "%s:%" PRIu64 ": %s", source->input.name,
                       source->reader.line_number, why->message);
    if (named <= NAMED_MAX)
        print_message("%s:%" PRIu64 ": %s", source->input.name, source->reader.line_number,
                      why->message);
    if (named == NAMED_MAX)
        print_message("further malformed lines are counted, not named");
    return 0;
}

/* A line in which the input breaks off may look complete: it is skipped. */
static void name_broken_line(const struct event_source *source)
{
    if (source->reader.end > source->reader.begin)
        print_message("%s:%" PRIu64 ": the input breaks off in this line, which is left out",
                      source->input.name, source->reader.line_number + 1);
}

/* EVENT_FOUND, EVENT_NONE for no event in this line, or a code of the line or of the input. */
static int read_line(struct event_source *source, struct event *event, struct span line,
                     bool *is_fatal, struct stint_error *error)
{
    *is_fatal = true;
    if (!source->is_recognised) {
        int code = recognise(source, line, error);
        if (code <= 0)
            return code;
    }
    *is_fatal = false;
    int code = parse(source, event, line, error);
    if (code != EVENT_FOUND)
        return code;
    code = check_time(source, event, error);
    return code != 0 ? code : EVENT_FOUND;
}

/* Windows tools write a mark before the first line, which is no part of it. */
static struct span without_mark(const struct event_source *source, struct span line)
{
    bool is_first = source->reader.line_number == 1;
    return is_first ? span_after(line, utf8_mark_length(line.ptr, line.len)) : line;
}

/* 1: the next file is open, 0: there is none. */
static int next_file(struct event_source *source, struct stint_error *error)
{
    if (source->n_opened >= source->options->n_paths)
        return source->format == SOURCE_ANY && source->unknown > 0 ? no_format(source, error) : 0;
    close_file(source);
    int code = open_next(source, error);
    return code != 0 ? code : 1;
}

int event_source_next(struct event_source *source, struct event *event, struct stint_error *error)
{
    for (;;) {
        struct span line;
        struct stint_error why;
        bool is_fatal = false;
        int code = reader_next(&source->reader, &line, error);
        if (code == READER_END) {
            code = next_file(source, error);
            if (code > 0)
                continue;
            return code < 0 ? code : EVENT_NONE;
        }
        if (code < 0) {
            name_broken_line(source);
            source->interrupted = source->input.interrupted;
            return source->interrupted ? EVENT_NONE : code;
        }
        if (code == READER_TOO_LONG)
            code =
                err_set(&why, STINT_E_RANGE, "the line is longer than %u bytes", READER_LINE_MAX);
        else
            code = read_line(source, event, without_mark(source, line), &is_fatal, &why);
        if (code == EVENT_FOUND)
            return EVENT_FOUND;
        if (code < 0 && is_fatal)
            return err_set(error, code, "%s", why.message);
        if (code < 0 && (code = count_malformed(source, &why, error)) < 0)
            return code;
    }
}

/* ---- A whole log in memory ------------------------------------------------------------------- */

#define STEP 256 /* events between two updates of the progress bar */

static int read_all(struct event_log *log, struct event_source *source, struct stint_error *error)
{
    struct progress progress;
    struct event event = {0};
    int code;
    progress_begin(&progress, source->size);
    while ((code = event_source_next(source, &event, error)) > 0) {
        struct event_entry entry = {.at_ns = event.at_ns, .cost = event.cost};
        code = key_set_add(&log->names, event.key, &entry.key, error);
        if (code == 0)
            code = event_list_add(&log->events, entry, error);
        if (code != 0)
            break;
        if (log->events.n_entries % STEP == 0)
            progress_step(&progress, event_source_bytes_read(source));
    }
    progress_end(&progress);
    return code;
}

int event_log_read(struct event_log *log, const struct source_options *options,
                   struct stint_error *error)
{
    uint64_t secret[2];
    struct event_source source;
    *log = (struct event_log){0};
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    int code = event_source_open(&source, options, error);
    if (code != 0)
        return code;
    key_set_init(&log->names, secret);
    code = read_all(log, &source, error);
    snprintf(log->name, sizeof(log->name), "%s", source.name);
    log->format = source.format;
    log->lines = event_source_lines(&source);
    log->malformed = source.malformed;
    log->interrupted = source.interrupted && interrupt_take();
    event_source_close(&source);
    if (code == 0 && !options->no_sort)
        code = event_list_sort(&log->events, error);
    if (code != 0)
        return code;
    if (log->events.n_entries == 0)
        return err_set(error, STINT_E_SYNTAX, "%s holds no request%s", log->name,
                       log->malformed > 0 ? " that can be read" : "");
    uint64_t first_ns = log->events.entries[0].at_ns;
    log->epoch_ns = log->format == SOURCE_TRACE ? 0 : first_ns - first_ns % NS_PER_DAY;
    return 0;
}

void event_log_free(struct event_log *log)
{
    event_list_deinit(&log->events);
    key_set_deinit(&log->names);
}
