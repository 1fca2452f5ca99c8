/* SPDX-License-Identifier: MIT */
/* The command lines of `stint pool`: one list of options, of which each verb takes its own. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/pool/pool.h"
#include "sim/input/timestamp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE_MAX (UINT64_C(1) << 20)

#define FOR(verb) (1u << (verb))

static const struct {
    const char *arguments, *doc;
    size_t words_max;
} verbs[] = {
    [POOL_NEXT] = {NULL,
                   "Prints the name of the key to use now, which is charged for it. Where none is "
                   "free: the seconds until one is, or never, and exit code 3.",
                   0},
    [POOL_REPORT] =
        {"NAME [ok|cool TIME|back-off|out]",
         "Reports the remote service's answer for a key: with --status (and --retry-after), "
         "or as a word.",
         3},
    [POOL_GIVE_BACK] =
        {"NAME",
         "Refunds units that `next` took and that were not used. Prints how many were "
         "refunded.",
         1},
    [POOL_STATUS] = {NULL, "Prints the state of each key, and when it returns.", 0},
    [POOL_ADD] = {"NAME", "Adds a key to the FILE of --keys @FILE while the pool is in use.", 1},
    [POOL_REMOVE] = {"NAME", "Removes a key from the FILE of --keys @FILE, and its report as out.",
                     1},
};

static void read_seconds(struct argp_state *state, void *ns, char *text)
{
    const char *option = args_current(state)->name;
    struct timestamp timestamp = {0};
    struct stint_error error;
    if (timestamp_parse_seconds(&timestamp, span_of_text(text), &error) != 0)
        argp_error(state, "--%s: %s", option, error.message);
    if (timestamp.ns > STINT_NOW_MAX)
        argp_error(state, "--%s: times begin at 0 and end after 18 years", option);
    *(uint64_t *)ns = timestamp.ns;
}

static void read_now(struct argp_state *state, void *input, char *text)
{
    struct pool_options *options = input;
    read_seconds(state, &options->now_ns, text);
    options->has_now = true;
}

static void set_keys(struct argp_state *state, void *input, char *keys)
{
    struct pool_options *options = input;
    if (options->keys != NULL)
        argp_error(state, "expected one --keys");
    options->keys = keys;
}

static void add_quota_for(struct argp_state *state, void *input, char *text)
{
    struct pool_options *options = input;
    (void)state;
    options->quota_for[options->n_quota_for++] = text;
}

static void add_weight(struct argp_state *state, void *input, char *text)
{
    struct pool_options *options = input;
    (void)state;
    options->weight[options->n_weight++] = text;
}

static void add_quota(struct argp_state *state, void *input, char *spec)
{
    struct pool_options *options = input;
    if (options->n_quotas == STINT_POOL_QUOTAS_MAX)
        argp_error(state, "a key has at most %d quotas", STINT_POOL_QUOTAS_MAX);
    args_add_quota(state, options->quotas, &options->n_quotas, spec);
}

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct pool_options *options = input;
    if (options->n_words == verbs[options->verb].words_max)
        argp_error(state, "'%s' is one argument too many%s", word,
                   options->wait ? "; the longest wait goes with an equals sign, like --wait=30s"
                                 : "");
    options->words[options->n_words++] = word;
}

/* curl prints 000 if it received no answer. */
static void read_status(struct argp_state *state, void *input, char *text)
{
    struct pool_options *options = input;
    if (strlen(text) != 3 || strspn(text, "0123456789") != 3)
        argp_error(state, "--status must be three digits, like 200 or 429, not '%s'", text);
    options->has_status = true;
    options->status = (unsigned)strtoul(text, NULL, 10);
}

static void read_wait(struct argp_state *state, void *input, char *text)
{
    struct pool_options *options = input;
    options->wait = true;
    options->wait_max_ns = text != NULL ? args_duration(state, "--wait", text) : STINT_NEVER_NS;
}

static void check(struct argp_state *state, void *options)
{
    pool_options_check(state, options);
}

static const char *const orders[] = {"round_robin", "fill_first", "least_used", NULL};

static const struct args_option options_known[] = {
    {"state", "FILE", 1, "Keeps what was used; made if absent",
     ARGS_FILE(struct pool_options, state)},
    {"keys", "KEYS", 1, "a,b,c or @FILE with lines NAME or NAME SECRET (`#` begins a comment)",
     ARGS_OWN(set_keys)},
    {"quota", "SPEC", 1, "What each key is good for; several must all allow", ARGS_OWN(add_quota)},
    {"quota-for", "NAME=SPEC", 1, "The same for one key, in place of --quota",
     ARGS_OWN(add_quota_for)},
    {"weight", "NAME=N", 1, "Use the key NAME N times as much as others", ARGS_OWN(add_weight)},
    {"order", "ORDER", 1, "round_robin (default), fill_first or least_used",
     ARGS_CHOICE(struct pool_options, order, orders)},
    {"pool", "NAME", 1, "Of several pools in one FILE (default: default)",
     ARGS_TEXT(struct pool_options, pool)},
    {"room", "N", 1, "Make FILE with room for N keys (default: 4 for each, 256)",
     ARGS_NUMBER(struct pool_options, space, SPACE_MAX)},
    {"now", "SECONDS", 1, "Virtual time; such a FILE is never used in real time",
     ARGS_OWN(read_now)},
    {"cost", "N", 2, "Units to take or to give back (default 1)",
     ARGS_NUMBER(struct pool_options, cost, UINT32_MAX),
     .verbs = FOR(POOL_NEXT) | FOR(POOL_GIVE_BACK)},
    {"wait", "MAX", 2, "Wait until a key is free; with =MAX, such as =30s, only if that is enough",
     ARGS_OWN(read_wait), .verbs = FOR(POOL_NEXT), .is_optional = true},
    {"probe", NULL, 2, "If all keys are cooling, try the nearest to recover",
     ARGS_FLAG(struct pool_options, probe), .verbs = FOR(POOL_NEXT)},
    {"secret", NULL, 2,
     "next: print the key's secret, not its name; add: read it from standard input",
     ARGS_FLAG(struct pool_options, secret), .verbs = FOR(POOL_NEXT) | FOR(POOL_ADD)},
    {"both", NULL, 2, "Print the name, a space and the secret",
     ARGS_FLAG(struct pool_options, both), .verbs = FOR(POOL_NEXT)},
    {"status", "CODE", 3, "What the far side answered, as HTTP has it", ARGS_OWN(read_status),
     .verbs = FOR(POOL_REPORT)},
    {"retry-after", "TIME", 3, "The answer's Retry-After: seconds, or a date as HTTP has it",
     ARGS_TEXT(struct pool_options, retry_after), .verbs = FOR(POOL_REPORT)},
    {"granted-at", "SECONDS", 4, "When it was granted, as `next --json` said (default: just now)",
     ARGS_PART(struct pool_options, granted_at_ns, read_seconds), .verbs = FOR(POOL_GIVE_BACK)},
    {"plot", "FILE", 5, GNUPLOT_HELP, ARGS_PART(struct pool_options, plot, gnuplot_option),
     .verbs = FOR(POOL_STATUS)},
    {"json", NULL, 5, "Print one JSON object", ARGS_FLAG(struct pool_options, json)},
    {"verbose", NULL, 5, "Say on standard error what was done, also where that is no terminal",
     ARGS_FLAG(struct pool_options, verbose)},
    {0},
};

static const struct args_set set = {options_known, .word = add_word, .end = check};

void pool_options_parse(struct pool_options *options, enum pool_verb verb, int argc, char **argv)
{
    const struct args_command command = {
        .set = set,
        .arguments = verbs[verb].arguments,
        .doc = verbs[verb].doc,
        .verb = FOR(verb),
    };
    *options = (struct pool_options){.verb = verb,
                                     .pool = "default",
                                     .cost = 1,
                                     .wait_max_ns = STINT_NEVER_NS,
                                     .granted_at_ns = STINT_NEVER_NS,
                                     .quota_for = calloc((size_t)argc, sizeof(const char *)),
                                     .weight = calloc((size_t)argc, sizeof(const char *))};
    if (options->quota_for == NULL || options->weight == NULL) {
        print_message("out of memory");
        exit(CMD_BAD_INPUT);
    }
    args_parse(&command, argc, argv, options);
}

void pool_options_deinit(struct pool_options *options)
{
    free(options->quota_for);
    free(options->weight);
}

void pool_options_help(void)
{
    static const struct args_command all = {
        .set = {options_known},
        .verb = FOR(POOL_VERBS) - 1,
        .doc = "\vKeys are shared by all users of the same FILE. No secret is ever written to "
               "it.\n\n"
               "`stint pool VERB --help` lists the options of one verb.\n\n"
               "Exit codes: 0 done, 1 bad input, 2 bad usage, 3 no key is free. See stint-pool(1), "
               "stint-spec(7).",
    };
    puts("stint pool: several API keys, accounts or egress addresses, each with a quota:\n"
         "which may be used now, or when?\n");
    for (int verb = 0; verb < POOL_VERBS; verb++)
        printf("%s stint pool %s %s%s[OPTION...]\n", verb == 0 ? "Usage:" : "      ",
               pool_verb_names[verb], verbs[verb].arguments != NULL ? verbs[verb].arguments : "",
               verbs[verb].arguments != NULL ? " " : "");
    puts("");
    args_print_options(&all, "stint pool");
}
