/* SPDX-License-Identifier: MIT */
/* The results of `stint plan`, as messages and a table. */
#define _GNU_SOURCE
#include "algorithm/spec.h"
#include "base/buf.h"
#include "cmd/lib/format.h"
#include "cmd/lib/print.h"
#include "cmd/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>

const char *plan_spec(struct plan_spec *spec, const struct stint_quota *quota)
{
    struct buf buf = buf_of(spec->text, sizeof(spec->text));
    buf_add(&buf, "%s %" PRIu32 "/", stint_algorithm_name(quota->algorithm), quota->limit);
    spec_format_duration(&buf, quota->period_ns);
    if (quota->algorithm == STINT_GCRA)
        buf_add(&buf, " burst=%" PRIu32, quota->burst);
    return spec->text;
}

/* 0.02 %: hundredths matter here. */
static const char *share(struct formatted *formatted, uint64_t part, uint64_t whole)
{
    double percent = whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
    if (part > 0 && percent < 0.01)
        snprintf(formatted->text, sizeof(formatted->text), "<0.01 %%");
    else
        snprintf(formatted->text, sizeof(formatted->text), "%.*f %%",
                 percent < 10 && part > 0 ? 2 : 0, percent);
    return formatted->text;
}

static const char *plural(uint64_t number)
{
    return number == 1 ? "" : "s";
}

static void print_log(const struct plan_report *report)
{
    const struct plan_log *log = report->log;
    struct formatted requests, keys, from, to, length;
    printf("%s: %s request%s of %s key%s", log->name,
           format_count(&requests, log->traffic.n_requests), plural(log->traffic.n_requests),
           format_count(&keys, log->traffic.n_keys), plural(log->traffic.n_keys));
    format_duration(&length, log->last_ns - log->first_ns);
    if (report->options->source.format == SOURCE_TRACE)
        printf(" in %s\n", length.text);
    else
        printf("\n%s to %s (%s)\n", format_date(&from, log->first_ns),
               format_date(&to, log->last_ns), length.text);
    if (log->malformed > 0)
        printf("left out: %s malformed line%s\n", format_count(&requests, log->malformed),
               plural(log->malformed));
    if (log->late > 0)
        printf("%s line%s came late, and count%s at the latest time seen; --sort lets them count "
               "at their own\n",
               format_count(&requests, log->late), plural(log->late), log->late == 1 ? "s" : "");
}

static void print_target(const struct plan_report *report)
{
    const struct plan_target *target = &report->options->target;
    const struct traffic *traffic = &report->log->traffic;
    uint64_t all = target->of_keys ? traffic->n_keys : traffic->n_requests;
    struct formatted most, whole;
    printf("\ntarget: %s, which is %s of %s. The least limits that keep to it:\n",
           report->options->target_text, format_count(&most, plan_target_most(target, all)),
           format_count(&whole, all));
}

/* ---- Proposals ------------------------------------------------------------------------------- */

static void print_named(const struct plan_report *report, const struct plan_curve *curve)
{
    struct formatted denied, more;
    for (size_t i = 0; i < curve->n_named; i++) {
        fputs("    ", stdout);
        print_escaped(stdout, key_set_name(&report->log->names, curve->named[i].key));
        printf(" (%s denied)\n", format_count(&denied, curve->named[i].denied));
    }
    if (curve->proposal.touch.keys > curve->n_named)
        printf("    and %s more\n",
               format_count(&more, curve->proposal.touch.keys - curve->n_named));
}

static void print_found(const struct plan_report *report, const struct plan_curve *curve)
{
    const struct plan_touch *touch = &curve->proposal.touch;
    const struct traffic *traffic = &report->log->traffic;
    struct plan_spec spec;
    struct formatted keys, all_keys, key_share, requests, all_requests, request_share;
    printf("%s touches %s of %s key%s (%s), %s of %s requests (%s)%s\n",
           plan_spec(&spec, &curve->proposal.quota), format_count(&keys, touch->keys),
           format_count(&all_keys, traffic->n_keys), plural(traffic->n_keys),
           share(&key_share, touch->keys, traffic->n_keys),
           format_count(&requests, touch->requests),
           format_count(&all_requests, traffic->n_requests),
           share(&request_share, touch->requests, traffic->n_requests), touch->keys > 0 ? ":" : "");
    print_named(report, curve);
}

static void print_proposal(const struct plan_report *report, const struct plan_curve *curve)
{
    const char *name = stint_algorithm_name((int)curve->algorithm);
    struct formatted period;
    format_duration(&period, curve->period_ns);
    fputs("  ", stdout);
    switch (curve->proposal.found) {
    case PLAN_FOUND:
        print_found(report, curve);
        break;
    case PLAN_REFUSED:
        printf("%s in %s: the quota is not valid: %s\n", name, period.text, curve->proposal.why);
        break;
    case PLAN_NO_LIMIT:
        printf("%s in %s: no limit keeps to the target\n", name, period.text);
        break;
    }
}

/* A limit over a period that the log does not cover means little. */
static void print_short(const struct plan_report *report)
{
    uint64_t length_ns = report->log->last_ns - report->log->first_ns;
    const struct plan_options *options = report->options;
    struct formatted length, period;
    if (options->periods_ns[options->n_periods - 1] > length_ns)
        printf("\nThe log covers only %s, less than %s: the limit is that of the whole log.\n",
               format_duration(&length, length_ns),
               format_duration(&period, options->periods_ns[options->n_periods - 1]));
}

/* ---- Curves ---------------------------------------------------------------------------------- */

static void print_point(const struct plan_report *report, const struct plan_proposal *point)
{
    const struct traffic *traffic = &report->log->traffic;
    struct plan_spec spec;
    struct formatted keys, key_share, requests, request_share;
    printf("  %-28s %10s %8s %14s %8s\n", plan_spec(&spec, &point->quota),
           format_count(&keys, point->touch.keys),
           share(&key_share, point->touch.keys, traffic->n_keys),
           format_count(&requests, point->touch.requests),
           share(&request_share, point->touch.requests, traffic->n_requests));
}

static void print_curves(const struct plan_report *report)
{
    printf("\n%-30s %19s %23s\n", "what other limits would do", "keys touched", "requests denied");
    for (size_t i = 0; i < report->result->n_curves; i++) {
        const struct plan_curve *curve = &report->result->curves[i];
        for (size_t k = 0; k < curve->n_points; k++)
            print_point(report, &curve->points[k]);
        if (curve->n_points > 0 && i + 1 < report->result->n_curves)
            putchar('\n');
    }
}

void plan_print_text(const struct plan_report *report)
{
    print_log(report);
    print_target(report);
    for (size_t i = 0; i < report->result->n_curves; i++)
        print_proposal(report, &report->result->curves[i]);
    print_short(report);
    print_curves(report);
}
