/* SPDX-License-Identifier: MIT */
/* What `stint sim worst` says of a bound that does not hold, which no algorithm of the library
 * shows. */
#define _GNU_SOURCE
#include "cmd/sim/sim_worst.h"

#include "cmd/lib/cmd.h"
#include "unit/sim/flawed_algorithms.h"
#include "unit/test.h"

#include <unistd.h>

#define TEXT_MAX 65536

/* What the run prints on a stream goes into a file meanwhile. */
struct diverted {
    FILE *stream, *file;
    int fd;
};

static struct diverted divert(FILE *stream)
{
    struct diverted diverted = {.stream = stream, .file = tmpfile()};
    assert_non_null(diverted.file);
    fflush(stream);
    diverted.fd = dup(fileno(stream));
    assert_true(diverted.fd >= 0);
    assert_true(dup2(fileno(diverted.file), fileno(stream)) >= 0);
    return diverted;
}

static void restore(struct diverted *diverted, char text[TEXT_MAX])
{
    fflush(diverted->stream);
    dup2(diverted->fd, fileno(diverted->stream));
    close(diverted->fd);
    rewind(diverted->file);
    text[fread(text, 1, TEXT_MAX - 1, diverted->file)] = '\0';
    fclose(diverted->file);
}

struct told {
    int exit_code;
    char out[TEXT_MAX], err[TEXT_MAX];
};

static void run(struct told *told, enum flaw flaw, bool json)
{
    struct flawed_algorithm algorithm = {.name = "gcra",
                                         .model = FLAWED_GCRA,
                                         .flaw = flaw,
                                         .limit = 100,
                                         .period_ns = 60000000000,
                                         .burst = 20};
    struct search_subject subject = flawed_algorithm_subject(&algorithm);
    struct sim_worst_options options = {
        .seed = 1, .tries_max = 2000, .time_ns = UINT64_MAX, .json = json};
    assert_int_equal(stint_quota_parse(&options.quota, "gcra 100/60s burst=20", NULL), 0);
    struct diverted out = divert(stdout), err = divert(stderr);
    told->exit_code = sim_worst_run(&options, &subject);
    restore(&out, told->out);
    restore(&err, told->err);
}

static struct told told;

TEST(test_a_broken_bound_is_said_loudly_and_is_an_error)
{
    run(&told, FLAW_CLAMP, false);
    assert_int_equal(told.exit_code, CMD_BAD_INPUT);
    assert_non_null(strstr(told.err, "THE STATED BOUND IS BROKEN: "));
    assert_non_null(strstr(told.err, "at most 119"));
    assert_non_null(strstr(told.out, "# THE STATED BOUND IS BROKEN.\n"));
    assert_non_null(strstr(told.out, " k ")); /* the trace is there all the same */
    run(&told, FLAW_CLAMP, true);
    assert_int_equal(told.exit_code, CMD_BAD_INPUT);
    assert_non_null(strstr(told.err, "THE STATED BOUND IS BROKEN: "));
    assert_non_null(strstr(told.out, "\"broken\": true"));
}

TEST(test_a_bound_that_holds_is_none)
{
    run(&told, FLAW_NONE, false);
    assert_int_equal(told.exit_code, CMD_DONE);
    assert_string_equal(told.err, "");
    assert_non_null(strstr(told.out, "119, of at most 119 by its algorithm"));
    assert_non_null(strstr(told.out, "# The bound is reached, and was not passed.\n"));
    assert_null(strstr(told.out, "BROKEN"));
    run(&told, FLAW_NONE, true);
    assert_int_equal(told.exit_code, CMD_DONE);
    assert_string_equal(told.err, "");
    assert_non_null(strstr(told.out, "\"broken\": false"));
}

/* A flaw of clocks that are set back has a trace that replay would not ask in that order. */
TEST(test_a_trace_whose_clocks_step_back_says_so)
{
    struct flawed_algorithm algorithm = {.name = "tokens",
                                         .model = FLAWED_TOKENS,
                                         .flaw = FLAW_REWIND,
                                         .limit = 100,
                                         .period_ns = 60000000000,
                                         .burst = 100};
    struct search_subject subject = flawed_algorithm_subject(&algorithm);
    struct sim_worst_options options = {.seed = 1, .tries_max = 20000, .time_ns = UINT64_MAX};
    assert_int_equal(stint_quota_parse(&options.quota, "gcra 100/60s", NULL), 0);
    struct diverted out = divert(stdout), err = divert(stderr);
    int exit_code = sim_worst_run(&options, &subject);
    restore(&out, told.out);
    restore(&err, told.err);
    assert_int_equal(exit_code, CMD_BAD_INPUT);
    assert_non_null(strstr(told.out, "# Clocks step back"));
}
