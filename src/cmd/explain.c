/* SPDX-License-Identifier: MIT */
/* `stint explain`: a quota's algorithm, bound and slack. The messages come from the core. */
#define _GNU_SOURCE
#include "algorithm/label.h"
#include "algorithm/spec.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <stdio.h>
#include <string.h>

#define MESSAGES_MAX 2048
#define LINE_WIDTH 78

struct explain_options {
    struct args_spec spec; /* the first member */
    bool json;
};

static const struct args_option options_known[] = {
    {"json", NULL, 0, "The same as one JSON object", ARGS_FLAG(struct explain_options, json)},
    {0},
};

/* Breaks lines between words; a terminal would break within words. */
static void print_wrapped(const char *text)
{
    size_t column = 0;
    for (const char *word = text; *word != '\0';) {
        size_t len = strcspn(word, " ");
        if (column > 0 && column + 1 + len > LINE_WIDTH) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%.*s", column == 0 ? "  " : " ", (int)len, word);
        word += len + strspn(word + len, " ");
    }
    putchar('\n');
}

static void print_messages(const char *title, const struct stint_quota *quota,
                           void (*label)(struct buf *buf, const struct stint_quota *quota))
{
    char text[MESSAGES_MAX] = "";
    struct buf buf = buf_of(text, sizeof(text));
    label(&buf, quota);
    if (text[0] == '\0')
        return;
    printf("%s\n", title);
    print_wrapped(text);
}

static void print_text(const struct stint_quota *quota)
{
    char spec[512];
    stint_quota_format(quota, spec, sizeof(spec));
    printf("%s\n\n", spec);
    print_messages("What is allowed", quota, label_algorithm);
    print_messages("The most in any window", quota, label_bound);
    print_messages("When it denies early", quota, label_slack);
    print_messages("How long a denial lasts", quota, label_wait);
    print_messages("Bytes per key", quota, label_bytes);
    print_messages("When the table is full", quota, label_policy);
}

static json_t *count_or_null(bool applies, uint64_t count)
{
    return applies ? json_text_ns(count) : json_null();
}

static int print_json(const struct stint_quota *quota)
{
    char slack[MESSAGES_MAX];
    struct buf buf = buf_of(slack, sizeof(slack));
    label_slack(&buf, quota);
    bool is_gcra = quota->algorithm == STINT_GCRA;
    bool is_buckets = quota->algorithm == STINT_BUCKETS;
    bool has_period = quota->algorithm != STINT_CONCURRENCY;
    return json_text_print(
        json_pack("{s:s, s:I, s:o, s:o, s:o, s:s, s:I, s:o, s:s?}", "algorithm",
                  stint_algorithm_name(quota->algorithm), "limit", (json_int_t)quota->limit,
                  "period_ns", count_or_null(has_period, quota->period_ns), "burst",
                  count_or_null(is_gcra, quota->burst), "max_in_any_window",
                  json_text_ns(stint_max_in_any_window(quota)), "slack", slack, "state_bytes",
                  (json_int_t)stint_state_size(quota), "max_buckets",
                  count_or_null(is_buckets, quota->derived.max_buckets), "when_full",
                  spec_when_full_name(quota->when_full)),
        true);
}

/* A request under rules, and no SPEC. */
static bool asks_rules(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], "--rules", 7) == 0 || strncmp(argv[i], "--store", 7) == 0)
            return true;
    return false;
}

int explain_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = args_spec_word, .end = args_spec_end},
        .arguments = "SPEC",
        .doc =
            "Prints what the quota SPEC allows, the most that it admits in any window, when it "
            "may deny although units are free, and its memory.\vFor example: stint explain "
            "window 100/60s\n\n"
            "With --rules PATH it explains which rules a request of DOMAIN KEY=VALUE... matches, "
            "and with --store URL their states in a shared store: see stint-rules-explain(1).\n\n"
            "See stint-spec(7) for SPEC.",
    };
    struct explain_options options = {0};
    if (asks_rules(argc, argv))
        return rules_explain_main(argc, argv);
    args_parse(&command, argc, argv, &options);
    if (options.json)
        return print_json(&options.spec.quota);
    print_text(&options.spec.quota);
    return CMD_DONE;
}
