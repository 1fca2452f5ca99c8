/* SPDX-License-Identifier: MIT */
/* The file of rules of `stint plan`: one limit, at the entries that the key is made of. */
#define _GNU_SOURCE
#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/print.h"
#include "cmd/plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
static int print_entries(FILE *out, const struct source_options *source)
{
    const char *key = source->key != NULL                 ? source->key
                      : source->format == SOURCE_COMBINED ? "ip"
                                                          : "key";
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

int plan_write_rules(const struct plan_report *report)
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
        print_limit(out, &curve->proposal.quota, print_entries(out, &options->source));
    }
    bool failed = out == NULL || ferror(out) != 0;
    if (out != NULL && fclose(out) != 0)
        failed = true;
    if (failed) {
        print_message("cannot write %s: %s", options->out, strerror(errno));
        return CMD_BAD_INPUT;
    }
    if (!options->json)
        printf("\n%s is in %s: of these it denies most.\n",
               plan_spec(&spec, &curve->proposal.quota), options->out);
    return CMD_DONE;
}
