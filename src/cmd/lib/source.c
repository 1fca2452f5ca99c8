/* SPDX-License-Identifier: MIT */
/* A log: the file, inflated if it is gzip, its lines, and the events that they are. */
#define _GNU_SOURCE
#include "cmd/lib/source.h"

#include "cmd/lib/args.h"
#include "cmd/lib/print.h"
#include "sim/input/trace.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- The file -------------------------------------------------------------------------------- */

#define PACKED_SIZE (256u * 1024u)
#define GZIP_FIRST 0x1f            /* the byte that every member begins with */
#define GZIP_WINDOW_BITS (15 + 16) /* selects gzip members for zlib, not raw zlib */

static int failed(const struct input *input, const char *what, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "cannot %s %s: %s%s", what, input->name, strerror(errno),
                   err_advice(errno));
}

static long read_some(struct input *input, uint8_t *bytes, size_t size, struct stint_error *error)
{
    ssize_t n;
    do
        n = read(input->fd, bytes, size);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return failed(input, "read", error);
    input->bytes_read += (uint64_t)n;
    return n;
}

static int begin_inflate(struct input *input, struct stint_error *error)
{
    input->inflate = calloc(1, sizeof(*input->inflate));
    if (input->inflate == NULL || inflateInit2(input->inflate, GZIP_WINDOW_BITS) != Z_OK) {
        free(input->inflate);
        input->inflate = NULL;
        return err_set(error, STINT_E_SYSTEM, "out of memory for inflating %s", input->name);
    }
    return 0;
}

/* Reads until the two bytes that identify gzip are there; a pipe may return them one by one. */
static int look_at_first_bytes(struct input *input, struct stint_error *error)
{
    while (input->packed_end < 2) {
        long n = read_some(input, input->packed + input->packed_end,
                           PACKED_SIZE - input->packed_end, error);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return 0;
        input->packed_end += (size_t)n;
    }
    bool is_gzip = input->packed[0] == GZIP_FIRST && input->packed[1] == 0x8b;
    return is_gzip ? begin_inflate(input, error) : 0;
}

static int open_fd(struct input *input, const char *path, struct stint_error *error)
{
    bool is_stdin = path == NULL || strcmp(path, "-") == 0;
    struct stat stat;
    input->name = is_stdin ? "standard input" : path;
    input->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0)
        return failed(input, "open", error);
    if (fstat(input->fd, &stat) == 0 && S_ISREG(stat.st_mode))
        input->size = (uint64_t)stat.st_size;
    /* Only a hint: some files cannot be read ahead. */
    (void)posix_fadvise(input->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

int input_open(struct input *input, const char *path, struct stint_error *error)
{
    *input = (struct input){.fd = -1};
    int code = open_fd(input, path, error);
    if (code != 0)
        return code;
    input->packed = malloc(PACKED_SIZE);
    code = input->packed == NULL ? err_set(error, STINT_E_SYSTEM, "out of memory")
                                 : look_at_first_bytes(input, error);
    if (code != 0)
        input_close(input);
    return code;
}

void input_close(struct input *input)
{
    if (input->inflate != NULL)
        inflateEnd(input->inflate);
    free(input->inflate);
    free(input->packed);
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    *input = (struct input){.fd = -1};
}

/* Reads more gzip bytes if none are left; 1 if there are some, 0 at the end of the file. */
static int more_packed(struct input *input, struct stint_error *error)
{
    if (input->packed_at < input->packed_end)
        return 1;
    long n = read_some(input, input->packed, PACKED_SIZE, error);
    if (n < 0)
        return (int)n;
    input->packed_at = 0;
    input->packed_end = (size_t)n;
    return n > 0;
}

/* The offset of the first byte that was not consumed. */
static int damaged(const struct input *input, const char *how, struct stint_error *error)
{
    uint64_t offset = input->bytes_read - (input->packed_end - input->packed_at);
    return err_set(error, STINT_E_SYNTAX,
                   "%s is damaged at byte %" PRIu64 ": %s (after %" PRIu64 " inflated bytes)",
                   input->name, offset, how, input->bytes_given);
}

/*
 * One call of inflate() on the available bytes; returns how many bytes it produced. Output before
 * damage is returned first: the next call finds the damage again.
 */
static long inflate_some(struct input *input, uint8_t *bytes, size_t size,
                         struct stint_error *error)
{
    z_stream *stream = input->inflate;
    stream->next_in = input->packed + input->packed_at;
    stream->avail_in = (uInt)(input->packed_end - input->packed_at);
    stream->next_out = bytes;
    stream->avail_out = (uInt)size;
    int result = inflate(stream, Z_NO_FLUSH);
    input->packed_at = input->packed_end - stream->avail_in;
    long n = (long)(size - stream->avail_out);
    input->in_member = result != Z_STREAM_END;
    /* Logs are appended to and rotated, so a file may have several members. */
    if (result == Z_STREAM_END)
        inflateReset(stream);
    if (n > 0 || result == Z_STREAM_END || result == Z_OK || result == Z_BUF_ERROR)
        return n;
    if (result == Z_MEM_ERROR)
        return err_set(error, STINT_E_SYSTEM, "out of memory for inflating %s", input->name);
    return damaged(input, stream->msg != NULL ? stream->msg : "its gzip data is wrong", error);
}

/*
 * Some writers pad with zeros between members; these are skipped. 1 if a member begins, 0 if no
 * bytes are left here, or a negative code.
 */
static int find_member(struct input *input, struct stint_error *error)
{
    while (input->packed_at < input->packed_end && input->packed[input->packed_at] == 0)
        input->packed_at++;
    if (input->packed_at == input->packed_end)
        return 0;
    return input->packed[input->packed_at] == GZIP_FIRST
               ? 1
               : damaged(input, "what follows its gzip data is none", error);
}

/* At the end of the file inflate() is called once more for output that did not fit before. */
static long fill_inflated(struct input *input, uint8_t *bytes, size_t size,
                          struct stint_error *error)
{
    for (;;) {
        int more = more_packed(input, error);
        if (more < 0 || (more == 0 && !input->in_member))
            return more;
        int found = input->in_member ? 1 : find_member(input, error);
        if (found < 0)
            return found;
        if (found == 0)
            continue;
        long n = inflate_some(input, bytes, size, error);
        if (n != 0)
            return n;
        if (more == 0 && input->in_member)
            return damaged(input, "its gzip data ends too early", error);
    }
}

static long fill_plain(struct input *input, uint8_t *bytes, size_t size, struct stint_error *error)
{
    size_t left = input->packed_end - input->packed_at;
    if (left == 0)
        return read_some(input, bytes, size, error);
    size_t n = left < size ? left : size;
    memcpy(bytes, input->packed + input->packed_at, n);
    input->packed_at += n;
    return (long)n;
}

long input_fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error)
{
    struct input *input = arg;
    assert(size > 0);
    long n = input->inflate != NULL ? fill_inflated(input, bytes, size, error)
                                    : fill_plain(input, bytes, size, error);
    input->bytes_given += n > 0 ? (uint64_t)n : 0;
    return n;
}

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

static int init_parser(struct event_source *source, const struct source_options *options,
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

int event_source_open(struct event_source *source, const struct source_options *options,
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
        event_source_close(source);
    return code;
}

void event_source_close(struct event_source *source)
{
    if (source->format == SOURCE_JSONL)
        jsonl_deinit(&source->parser.jsonl);
    reader_deinit(&source->reader);
    input_close(&source->input);
}

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
static void name_broken_line(const struct event_source *source)
{
    if (source->reader.end > source->reader.begin)
        print_message("%s:%" PRIu64 ": the input breaks off in this line, which is left out",
                      source->input.name, source->reader.line_number + 1);
}

int event_source_next(struct event_source *source, struct event *event, struct stint_error *error)
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
