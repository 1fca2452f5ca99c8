/* SPDX-License-Identifier: MIT */
/* The output of `stint plan`: text, JSON, a file of rules and a picture. */
#define _GNU_SOURCE
#include "cmd/plan/plan.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Text ------------------------------------------------------------------------------------ */

struct plan_spec {
    char text[96];
};

/* The quota as a SPEC without defaults. Returns spec->text. */
static const char *plan_spec(struct plan_spec *spec, const struct stint_quota *quota)
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
    if (log->format == SOURCE_TRACE)
        printf(" in %s\n", length.text);
    else
        printf("\n%s to %s (%s)\n", format_date(&from, log->first_ns),
               format_date(&to, log->last_ns), length.text);
    if (log->malformed > 0)
        printf("left out: %s malformed line%s\n", format_count(&requests, log->malformed),
               plural(log->malformed));
    if (log->late > 0)
        printf("%s line%s came late, and count%s at the latest time seen, as --no-sort asks\n",
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

static void print_text(const struct plan_report *report)
{
    print_log(report);
    print_target(report);
    for (size_t i = 0; i < report->result->n_curves; i++)
        print_proposal(report, &report->result->curves[i]);
    print_short(report);
    print_curves(report);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *point_json(const struct plan_proposal *point)
{
    struct plan_spec spec;
    bool has_burst = point->quota.algorithm == STINT_GCRA;
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:I, s:I}", "quota", plan_spec(&spec, &point->quota),
        "algorithm", stint_algorithm_name(point->quota.algorithm), "limit",
        (json_int_t)point->quota.limit, "period_ns", (json_int_t)point->quota.period_ns, "burst",
        has_burst ? json_integer(point->quota.burst) : json_null(), "keys_touched",
        (json_int_t)point->touch.keys, "requests_denied", (json_int_t)point->touch.requests);
}

static json_t *named_json(const struct plan_report *report, const struct plan_curve *curve)
{
    json_t *list = json_array();
    for (size_t i = 0; i < curve->n_named; i++)
        json_array_append_new(
            list, json_pack("{s:o, s:I}", "key",
                            json_text_key(key_set_name(&report->log->names, curve->named[i].key)),
                            "requests_denied", (json_int_t)curve->named[i].denied));
    return list;
}

/* Without a result there is no quota, and a message gives the reason. */
static json_t *proposal_json(const struct plan_report *report, const struct plan_curve *curve)
{
    if (curve->proposal.found != PLAN_FOUND)
        return json_pack("{s:n, s:s, s:I, s:s}", "quota", "algorithm",
                         stint_algorithm_name((int)curve->algorithm), "period_ns",
                         (json_int_t)curve->period_ns, "why",
                         curve->proposal.found == PLAN_REFUSED ? curve->proposal.why
                                                               : "no limit keeps to the target");
    json_t *object = point_json(&curve->proposal);
    json_object_set_new(object, "keys", named_json(report, curve));
    json_object_set_new(object, "chosen", json_boolean(curve == plan_chosen(report->result)));
    return object;
}

static int print_json(const struct plan_report *report)
{
    const struct plan_log *log = report->log;
    const struct plan_target *target = &report->options->target;
    uint64_t all = target->of_keys ? log->traffic.n_keys : log->traffic.n_requests;
    json_t *proposals = json_array(), *frontier = json_array();
    for (size_t i = 0; i < report->result->n_curves; i++) {
        const struct plan_curve *curve = &report->result->curves[i];
        json_array_append_new(proposals, proposal_json(report, curve));
        for (size_t k = 0; k < curve->n_points; k++)
            json_array_append_new(frontier, point_json(&curve->points[k]));
    }
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:s, s:s, s:I}, s:o, s:o, s:b}",
                  "requests", (json_int_t)log->traffic.n_requests, "keys",
                  (json_int_t)log->traffic.n_keys, "first_ns", (json_int_t)log->first_ns, "last_ns",
                  (json_int_t)log->last_ns, "lines", (json_int_t)log->lines, "malformed",
                  (json_int_t)log->malformed, "late", (json_int_t)log->late, "target", "text",
                  report->options->target_text, "of", target->of_keys ? "keys" : "requests", "most",
                  (json_int_t)plan_target_most(target, all), "proposals", proposals, "frontier",
                  frontier, "interrupted", (int)report->result->interrupted);
    return json_text_print(object, true);
}

/* ---- A file of rules ------------------------------------------------------------------------- */

/* YAML allows any text in double quotes; bytes that are not UTF-8 are written as \xHH. */
static void print_quoted(FILE *out, struct span text)
{
    putc('"', out);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < ' ' || c == 0x7f)
            fprintf(out, "\\x%02x", (unsigned)c);
        else
            putc(c, out);
    }
    putc('"', out);
}

static const char *unit_of(uint64_t period_ns)
{
    switch (period_ns) {
    case NS_PER_S:
        return "second";
    case NS_PER_MIN:
        return "minute";
    case NS_PER_HOUR:
        return "hour";
    case NS_PER_DAY:
        return "day";
    default:
        return NULL;
    }
}

static void print_limit(FILE *out, const struct stint_quota *quota, int indent)
{
    char duration[64];
    struct buf buf = buf_of(duration, sizeof(duration));
    spec_format_duration(&buf, quota->period_ns);
    fprintf(out, "%*srate_limit:\n", indent, "");
    fprintf(out, "%*salgorithm: %s\n", indent + 2, "", stint_algorithm_name(quota->algorithm));
    if (unit_of(quota->period_ns) != NULL)
        fprintf(out, "%*sunit: %s\n", indent + 2, "", unit_of(quota->period_ns));
    else
        fprintf(out, "%*speriod: %s\n", indent + 2, "", duration);
    fprintf(out, "%*srequests_per_unit: %" PRIu32 "\n", indent + 2, "", quota->limit);
    if (quota->algorithm == STINT_GCRA)
        fprintf(out, "%*sburst: %" PRIu32 "\n", indent + 2, "", quota->burst);
}

/* Parts that the reader of the log joins by + are nested entries; returns the indent. */
static int print_entries(FILE *out, const struct plan_report *report)
{
    const char *given = report->options->source.key;
    const char *key = given != NULL ? given : report->log->format == SOURCE_COMBINED ? "ip" : "key";
    int indent = 0;
    for (;;) {
        size_t len = strcspn(key, "+");
        fprintf(out, "%*sdescriptors:\n%*s- key: ", indent, "", indent + 2, "");
        print_quoted(out, span_of(key, len));
        putc('\n', out);
        indent += 4;
        if (key[len] == '\0')
            return indent;
        key += len + 1;
    }
}

static void print_comment(FILE *out, const struct plan_report *report,
                          const struct plan_curve *curve)
{
    const struct plan_touch *touch = &curve->proposal.touch;
    struct formatted keys, all_keys, requests, all_requests;
    fprintf(out,
            "# Of the log that it was planned by, this limit touches %s of %s keys\n"
            "# and denies %s of %s requests.\n",
            format_count(&keys, touch->keys), format_count(&all_keys, report->log->traffic.n_keys),
            format_count(&requests, touch->requests),
            format_count(&all_requests, report->log->traffic.n_requests));
}

static int write_rules(const struct plan_report *report)
{
    const struct plan_options *options = report->options;
    const struct plan_curve *curve = plan_chosen(report->result);
    struct plan_spec spec;
    if (curve == NULL) {
        print_message("no limit keeps to the target, so that %s is not written", options->out);
        return CMD_BAD_INPUT;
    }
    errno = 0;
    FILE *out = fopen(options->out, "we");
    if (out != NULL) {
        print_comment(out, report, curve);
        fputs("domain: ", out);
        print_quoted(out, span_of_text(options->domain));
        putc('\n', out);
        print_limit(out, &curve->proposal.quota, print_entries(out, report));
    }
    bool failed = out == NULL || ferror(out) != 0;
    if (out != NULL && fclose(out) != 0)
        failed = true;
    if (failed) {
        print_message("cannot write %s: %s%s", options->out, strerror(errno), err_advice(errno));
        return CMD_BAD_INPUT;
    }
    if (!options->json)
        printf("\n%s is in %s: of these it denies most.\n",
               plan_spec(&spec, &curve->proposal.quota), options->out);
    return CMD_DONE;
}

/* ---- A picture ------------------------------------------------------------------------------- */

#define CURVES_MAX (PLAN_PERIODS_MAX * PLAN_ALGORITHMS_MAX)
#define TITLE_COLUMNS 80
#define NAME_MAX_LEN 64

/* "limit per 1 min (window)" */
static struct span name_curve(const struct plan_curve *curve, char name[NAME_MAX_LEN])
{
    struct buf buf = buf_of(name, NAME_MAX_LEN);
    struct formatted period;
    buf_add(&buf, "limit per %s (%s)", format_duration(&period, curve->period_ns),
            stint_algorithm_name((int)curve->algorithm));
    return span_of_text(name);
}

static void add_point_row(struct plot *plot, const struct plan_proposal *point)
{
    plot_data(plot, "%" PRIu32 " %" PRIu64 " %" PRIu64 "\n", point->quota.limit, point->touch.keys,
              point->touch.requests);
}

static void add_curve(struct plot *plot, const struct plan_curve *curve)
{
    plot_set(plot, "limit keys requests");
    for (size_t i = 0; i < curve->n_points; i++)
        add_point_row(plot, &curve->points[i]);
}

static void add_proposals(struct plot *plot, const struct plan_result *result)
{
    unsigned n = 0;
    plot_set(plot, "proposed limit keys requests");
    for (size_t i = 0; i < result->n_curves; i++)
        if (result->curves[i].proposal.found == PLAN_FOUND) {
            add_point_row(plot, &result->curves[i].proposal);
            n++;
        }
    plot_variables(plot, "n_proposals = %u\n", n);
}

static void add_target(struct plot *plot, const struct plan_report *report)
{
    const struct plan_target *target = &report->options->target;
    const struct traffic *traffic = &report->log->traffic;
    uint64_t all = target->of_keys ? traffic->n_keys : traffic->n_requests;
    uint64_t most = plan_target_most(target, all);
    char text[2 * NAME_MAX_LEN];
    struct formatted count, whole;
    snprintf(text, sizeof(text), "target: at most %s of %s %s", format_count(&count, most),
             format_count(&whole, all), target->of_keys ? "keys" : "requests");
    plot_variables(plot, "target = %" PRIu64 "\ntarget_panel = %d\n", most,
                   target->of_keys ? 0 : 1);
    plot_text(plot, "target_text", span_of_text(text), TITLE_COLUMNS);
}

static int fill_plot(struct plot *plot, const struct plan_report *report, struct stint_error *error)
{
    char texts[CURVES_MAX][NAME_MAX_LEN];
    struct span names[CURVES_MAX];
    size_t n = 0;
    plot_init(plot, plot_plan);
    for (size_t i = 0; i < report->result->n_curves; i++) {
        const struct plan_curve *curve = &report->result->curves[i];
        if (curve->n_points == 0)
            continue;
        names[n] = name_curve(curve, texts[n]);
        n++;
        add_curve(plot, curve);
    }
    add_proposals(plot, report->result);
    add_target(plot, report);
    plot_text(plot, "title", span_of_text(report->log->name), TITLE_COLUMNS);
    plot_names(plot, "name", names, n);
    return plot_check(plot, error);
}

static int draw(const struct plan_report *report)
{
    struct plot plot;
    struct stint_error error;
    int result = CMD_BAD_INPUT;
    size_t n_points = 0;
    for (size_t i = 0; i < report->result->n_curves; i++)
        n_points += report->result->curves[i].n_points;
    if (n_points == 0) {
        print_message("there is nothing to draw: no limit was found");
        return result;
    }
    if (fill_plot(&plot, report, &error) == 0)
        result = gnuplot_draw(&report->options->plot, &plot);
    else
        print_message("%s", error.message);
    plot_deinit(&plot);
    return result;
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* The worse of both: all reports that are possible are printed. */
static int worse(int a, int b)
{
    return a > b ? a : b;
}

int plan_report(const struct plan_report *report)
{
    const struct plan_options *options = report->options;
    int result = CMD_DONE;
    if (report->result->interrupted) {
        print_message("interrupted: these are %zu of %zu searches", report->result->n_curves,
                      options->n_periods * options->n_algorithms);
        result = CMD_BAD_INPUT;
    }
    if (!options->json)
        print_text(report);
    else if (print_json(report) != 0)
        return CMD_BAD_INPUT;
    if (options->out != NULL)
        result = worse(result, write_rules(report));
    if (options->plot.format != GNUPLOT_NONE)
        result = worse(result, draw(report));
    return result;
}
