/* SPDX-License-Identifier: MIT */
/* `stint sim utilisation`: from the options, through the sweep, to what is told of it. */
#define _GNU_SOURCE
#include "cmd/sim/sim_utilisation.h"

#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/interrupt.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/lib/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- The sweep ---- */

/* Of what is swept by default, a quota may be too short for some: that is told and left out. */
static int left_out(const struct utilisation_options *options, int code, const char *what,
                    const struct stint_error *error)
{
    if (code == 0 || code == STINT_E_SYSTEM || options->chosen)
        return code;
    print_message("left out: %s: %s", what, error->message);
    return 0;
}

static int add_grid(struct sweep *sweep, const struct utilisation_options *options,
                    struct stint_error *error)
{
    for (size_t t = 0; t < options->n_time_slacks; t++)
        for (size_t c = 0; c < options->n_count_slacks; c++) {
            struct sweep_slack slack = {options->time_slacks_ns[t], options->count_slacks[c]};
            if (slack.time_ns == 0 && slack.count == 0 &&
                options->n_time_slacks + options->n_count_slacks > 2)
                continue; /* the one place of the grid that has no bound at all */
            int code = sweep_add_grid(sweep, slack, error);
            if (code != 0)
                return code;
        }
    return 0;
}

static int add_settings(struct sweep *sweep, const struct utilisation_options *options,
                        struct stint_error *error)
{
    int code = 0;
    char what[48];
    for (size_t i = 0; code == 0 && i < options->n_resolutions; i++) {
        snprintf(what, sizeof(what), "resolution %u", (unsigned)options->resolutions[i]);
        code =
            left_out(options, sweep_add_window(sweep, options->resolutions[i], error), what, error);
    }
    for (size_t i = 0; code == 0 && i < options->n_buckets; i++) {
        snprintf(what, sizeof(what), "%u buckets", (unsigned)options->buckets[i]);
        code = left_out(options, sweep_add_splits(sweep, options->buckets[i], error), what, error);
    }
    if (code == 0)
        code = add_grid(sweep, options, error);
    for (size_t i = 0; code == 0 && i < options->n_also; i++)
        code = sweep_add_quota(sweep, &options->also[i], error);
    for (size_t i = 0; code == 0 && i < options->n_demands; i++)
        code = sweep_add_demand(sweep, &options->demands[i], error);
    return code;
}

static int sweep_all(struct sweep *sweep, struct stint_error *error)
{
    struct progress progress;
    int code = sweep_begin(sweep, error);
    progress_begin(&progress, sweep_rounds(sweep));
    progress.what = "rounds";
    interrupt_catch();
    while (code == 0 && sweep->rounds < sweep_rounds(sweep) && !interrupt_seen()) {
        code = sweep_round(sweep, error);
        progress_step(&progress, sweep->rounds);
    }
    progress_end(&progress);
    return code;
}

/* ---- The report ---- */

/* Opened before the sweep: a name that cannot be is told at once. NULL where it cannot. */
static FILE *open_csv(const struct utilisation_options *options)
{
    FILE *out = fopen(options->csv, "we");
    if (out == NULL)
        print_message("cannot write %s: %s", options->csv, strerror(errno));
    return out;
}

static int write_csv(const struct utilisation_options *options, const struct sweep *sweep,
                     FILE *out)
{
    errno = 0;
    utilisation_print_csv(sweep, out);
    if (fflush(out) == 0 && ferror(out) == 0)
        return CMD_DONE;
    print_message("cannot write %s: %s", options->csv, strerror(errno));
    return CMD_BAD_INPUT;
}

/* What a proof rules out: it is told before anything else, and loudly. */
static int check_bounds(const struct sweep *sweep)
{
    int result = CMD_DONE;
    for (size_t i = 0; i < sweep->n_settings; i++) {
        const struct sweep_setting *setting = &sweep->settings[i];
        if (setting->quota.algorithm != STINT_BUCKETS ||
            setting->most_alive <= setting->quota.derived.max_buckets)
            continue;
        struct utilisation_name name;
        print_message("BOUND BROKEN: %s had %u buckets alive, where at most %u can be",
                      utilisation_name(&name, sweep, i), (unsigned)setting->most_alive,
                      (unsigned)setting->quota.derived.max_buckets);
        result = CMD_BAD_INPUT;
    }
    return result;
}

static int report(const struct utilisation_options *options, const struct sweep *sweep, FILE *csv)
{
    int result = check_bounds(sweep);
    if (sweep->rounds < sweep_rounds(sweep)) {
        print_message("interrupted: these are the results of %zu of %zu rounds", sweep->rounds,
                      sweep_rounds(sweep));
        result = CMD_BAD_INPUT;
    }
    if (sweep->rounds < sweep->n_demands)
        return result; /* not one seed of each demand */
    if (options->json && utilisation_print_json(options, sweep) != 0)
        return CMD_BAD_INPUT;
    if (!options->json && csv != stdout && options->gnuplot.format != GNUPLOT_TERMINAL)
        utilisation_print_text(options, sweep);
    if (csv != NULL && write_csv(options, sweep, csv) != CMD_DONE)
        return CMD_BAD_INPUT;
    if (options->gnuplot.path != NULL && utilisation_draw(options, sweep) != CMD_DONE)
        return CMD_BAD_INPUT;
    return result;
}

/* ---- The bound on buckets ---- */

static json_t *bound_json(const struct stint_quota *quota, const struct bucket_trace *trace)
{
    char spec[512];
    stint_quota_format(quota, spec, sizeof(spec));
    json_t *uses = json_array();
    for (size_t i = 0; i < trace->n_uses; i++) {
        const struct bucket_use *use = &trace->uses[i];
        json_array_append_new(uses,
                              json_pack("{s:I, s:I, s:I}", "at_ns", (json_int_t)use->at_ns, "units",
                                        (json_int_t)use->units, "alive", (json_int_t)use->alive));
    }
    return json_pack("{s:s, s:I, s:I, s:o}", "spec", spec, "bound",
                     (json_int_t)quota->derived.max_buckets, "most_alive",
                     (json_int_t)trace->most_alive, "trace", uses);
}

static void bound_text(const struct stint_quota *quota, const struct bucket_trace *trace)
{
    char spec[512];
    stint_quota_format(quota, spec, sizeof(spec));
    printf("# %s\n# at most %u buckets can be alive; after these uses %u are\n", spec,
           (unsigned)quota->derived.max_buckets, (unsigned)trace->most_alive);
    for (size_t i = 0; i < trace->n_uses; i++) {
        const struct bucket_use *use = &trace->uses[i];
        printf("%" PRIu64 ".%09" PRIu64 " key %u # %u alive\n", use->at_ns / NS_PER_S,
               use->at_ns % NS_PER_S, (unsigned)use->units, (unsigned)use->alive);
    }
}

int utilisation_bound(const struct utilisation_options *options)
{
    struct bucket_trace trace;
    struct stint_error error;
    if (bucket_trace_init(&trace, &options->bound, &error) != 0) {
        print_message("%s", error.message);
        bucket_trace_deinit(&trace);
        return CMD_BAD_INPUT;
    }
    int result = CMD_DONE;
    if (options->json)
        result = json_text_print(bound_json(&options->bound, &trace), true) == 0 ? CMD_DONE
                                                                                 : CMD_BAD_INPUT;
    else
        bound_text(&options->bound, &trace);
    if (trace.most_alive > options->bound.derived.max_buckets) {
        print_message("BOUND BROKEN: %u buckets are alive, where at most %u can be",
                      (unsigned)trace.most_alive, (unsigned)options->bound.derived.max_buckets);
        result = CMD_BAD_INPUT;
    }
    bucket_trace_deinit(&trace);
    return result;
}

/* ---- The whole ---- */

static int run(const struct utilisation_options *options, FILE *csv)
{
    struct sweep sweep;
    struct stint_error error;
    int code = sweep_init(&sweep, &options->terms, &error);
    if (code == 0)
        code = add_settings(&sweep, options, &error);
    if (code == 0)
        code = sweep_all(&sweep, &error);
    int result = code == STINT_E_SYSTEM ? CMD_BAD_INPUT : CMD_BAD_USAGE;
    if (code == 0)
        result = report(options, &sweep, csv);
    else
        print_message("%s", error.message);
    sweep_deinit(&sweep);
    return result;
}

int sim_utilisation_main(int argc, char **argv)
{
    struct utilisation_options options;
    utilisation_options_parse(&options, argc, argv);
    if (options.bound.derived.checked)
        return utilisation_bound(&options);
    if (options.csv == NULL || strcmp(options.csv, "-") == 0)
        return run(&options, options.csv != NULL ? stdout : NULL);
    FILE *csv = open_csv(&options);
    if (csv == NULL)
        return CMD_BAD_INPUT;
    int result = run(&options, csv);
    fclose(csv); /* all of it was flushed */
    return result;
}
