/* SPDX-License-Identifier: MIT */
/* `stint plan`: from the log, through the search, to the reports. */
#define _GNU_SOURCE
#include "cmd/plan/plan.h"

#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The worse of both: all reports that are possible are printed. */
static int worse(int a, int b)
{
    return a > b ? a : b;
}

static int tell(const struct plan_report *report)
{
    const struct plan_options *options = report->options;
    int result = CMD_DONE;
    if (report->result->interrupted) {
        print_message("interrupted: these are %zu of %zu searches", report->result->n_curves,
                      options->n_periods * options->n_algorithms);
        result = CMD_BAD_INPUT;
    }
    if (!options->json)
        plan_print_text(report);
    else if (plan_print_json(report) != 0)
        return CMD_BAD_INPUT;
    if (options->out != NULL)
        result = worse(result, plan_write_rules(report));
    if (options->plot.format != GNUPLOT_NONE)
        result = worse(result, plan_draw(report));
    return result;
}

static int run(const struct plan_options *options, struct plan_result *result)
{
    struct plan_log log;
    struct stint_error error;
    int exit_code = CMD_BAD_INPUT;
    if (options->source.path == NULL && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        fputs("Reading events from standard input; ^D ends.\n", stderr);
    const struct plan_report report = {options, &log, result};
    if (plan_log_read(&log, options, &error) == 0 &&
        plan_search(result, &log, options, &error) == 0)
        exit_code = tell(&report);
    else
        print_message("%s", error.message);
    plan_result_free(result);
    plan_log_free(&log);
    return exit_code;
}

int plan_main(int argc, char **argv)
{
    struct plan_options options;
    struct plan_result *result = calloc(1, sizeof(*result));
    if (result == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    plan_options_parse(&options, argc, argv);
    int exit_code = run(&options, result);
    free(result);
    return exit_code;
}
