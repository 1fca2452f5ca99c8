/* SPDX-License-Identifier: MIT */
/* `stint try`: every line of standard input is a request for one key. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "sim/input/event.h"
#include "sim/input/reader.h"
#include "sim/input/timestamp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct
try {
    struct args_spec spec; /* the first member */
    struct stint_table *table;
    struct reader reader;
    uint64_t latest_ns; /* with --times */
    bool times, malformed;
};

static const struct args_option options_known[] = {
    {"times", NULL, 0, "Virtual time: each line is TIME [COST], TIME in seconds from 0 on",
     ARGS_FLAG(struct try, times)},
    {0},
};

/* Reads TIME, if it is required, and COST, if it is given; without one *cost stays as it is. */
static int parse_line(struct try *try, struct span line, uint64_t *now_ns, uint32_t *cost,
                      struct stint_error *error)
{
    line = span_trim(line);
    if (try->times) {
        size_t time_len = 0;
        while (time_len < line.len && !byte_is_blank(line.ptr[time_len]))
            time_len++;
        struct timestamp timestamp;
        int code = timestamp_parse_seconds(&timestamp, span_of(line.ptr, time_len), error);
        if (code != 0)
            return code;
        if (timestamp.ns > STINT_NOW_MAX)
            return err_set(error, STINT_E_RANGE, "times begin at 0 and end after 18 years");
        *now_ns = timestamp.ns > try->latest_ns ? timestamp.ns : try->latest_ns;
        line = span_trim(span_of(line.ptr + time_len, line.len - time_len));
    } else {
        *now_ns = stint_now(try->table);
    }
    return line.len == 0 ? 0 : trace_parse_cost(cost, line, error);
}

static void answer(struct try *try, uint64_t now_ns, uint32_t cost)
{
    static const char *const outcomes[] = {
        [STINT_ALLOW] = "ALLOW", [STINT_DENY] = "DENY", [STINT_NEVER] = "NEVER"};
    struct formatted reset, retry;
    struct stint_decision decision = stint_take(try->table, &try->spec.quota, "", 0, cost, now_ns);
    printf("%-5s  reset %s  retry %s\n", outcomes[decision.outcome],
           format_seconds_up(&reset, decision.reset_after_ns),
           format_seconds_up(&retry, decision.retry_after_ns));
    fflush(stdout);
}

static int answer_all(struct try *try, struct stint_error *error)
{
    struct span line;
    int kind = READER_END;
    while (!ferror(stdout) && (kind = reader_next(&try->reader, &line, error)) > 0) {
        struct stint_error why;
        uint64_t now_ns = 0;
        uint32_t cost = 1;
        if (kind == READER_TOO_LONG || parse_line(try, line, &now_ns, &cost, &why) != 0) {
            print_message("line %" PRIu64 ": %s", try->reader.line_number,
                          kind == READER_TOO_LONG ? "too long" : why.message);
            try->malformed = true;
            continue;
        }
        try->latest_ns = now_ns;
        answer(try, now_ns, cost);
    }
    return kind < 0 ? kind : 0;
}

/* A reader_fill: returns every line as soon as it is typed. */
static long fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error)
{
    (void)arg;
    ssize_t n;
    do
        n = read(STDIN_FILENO, bytes, size);
    while (n < 0 && errno == EINTR);
    return n >= 0
               ? n
               : err_set(error, STINT_E_SYSTEM, "cannot read standard input: %s", strerror(errno));
}

static int open_table(struct try *try, struct stint_error *error)
{
    size_t size = stint_state_size(&try->spec.quota);
    struct stint_table_options table = {
        .clock = try->times ? STINT_CLOCK_VIRTUAL : STINT_CLOCK_REAL,
        .skew_max_ns = 1,
        .keys = 16,
        .keys16 = 16,
        .keys_wide = size > 16 ? 16 : 0,
        .wide_size = size > 16 ? (uint32_t)size : 0,
        .tickets = 1,
        .blocks = 1,
    };
    int code = stint_table_open(&try->table, &table, error);
    return code != 0 ? code : stint_table_accepts(try->table, &try->spec.quota, error);
}

static int run(struct try *try)
{
    struct stint_error error;
    int code = open_table(try, &error);
    if (code == 0)
        code = reader_init(&try->reader, fill, NULL, &error);
    if (code == 0)
        code = answer_all(try, &error);
    if (code != 0)
        print_message("%s", error.message);
    reader_deinit(&try->reader);
    stint_table_close(try->table);
    return code != 0 || try->malformed ? CMD_BAD_INPUT : CMD_DONE;
}

int try_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = args_spec_word, .end = args_spec_end},
        .arguments = "SPEC",
        .doc = "Each Enter is a request for one unit under the quota SPEC, or for as many units as "
               "the line says. Prints ALLOW, DENY or NEVER, the time until all is as never used "
               "(reset), and the time until the same request would be allowed (retry), in seconds, "
               "rounded up.\v"
               "For example: stint try gcra 3/60s",
    };
    struct try try = {0};
    args_parse(&command, argc, argv, &try);
    if (!try.times && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        fputs("Each Enter is a request; ^D ends.\n", stderr);
    return run(&try);
}
