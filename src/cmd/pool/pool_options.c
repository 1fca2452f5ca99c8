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

enum {
    OPTION_STATE = 256,
    OPTION_KEYS,
    OPTION_QUOTA,
    OPTION_QUOTA_FOR,
    OPTION_WEIGHT,
    OPTION_ORDER,
    OPTION_POOL,
    OPTION_SPACE,
    OPTION_NOW,
    OPTION_COST,
    OPTION_WAIT,
    OPTION_PROBE,
    OPTION_SECRET,
    OPTION_BOTH,
    OPTION_STATUS,
    OPTION_RETRY_AFTER,
    OPTION_GRANTED_AT,
    OPTION_PLOT,
    OPTION_JSON,
    OPTION_VERBOSE,
};

#define FOR(verb) (1u << (verb))
#define FOR_ALL (FOR(POOL_VERBS) - 1)

static const struct {
    struct argp_option option;
    unsigned verbs;
} known[] = {
    {{"state", OPTION_STATE, "FILE", 0, "Keeps what was used; made if absent", 1}, FOR_ALL},
    {{"keys", OPTION_KEYS, "KEYS", 0,
      "a,b,c or @FILE with lines NAME or NAME SECRET (`#` begins a comment)", 1},
     FOR_ALL},
    {{"quota", OPTION_QUOTA, "SPEC", 0, "What each key is good for; several must all allow", 1},
     FOR_ALL},
    {{"quota-for", OPTION_QUOTA_FOR, "NAME=SPEC", 0, "The same for one key, in place of --quota",
      1},
     FOR_ALL},
    {{"weight", OPTION_WEIGHT, "NAME=N", 0, "Use the key NAME N times as much as others", 1},
     FOR_ALL},
    {{"order", OPTION_ORDER, "ORDER", 0, "round_robin (default), fill_first or least_used", 1},
     FOR_ALL},
    {{"pool", OPTION_POOL, "NAME", 0, "Of several pools in one FILE (default: default)", 1},
     FOR_ALL},
    {{"room", OPTION_SPACE, "N", 0, "Make FILE with room for N keys (default: 4 for each, 256)", 1},
     FOR_ALL},
    {{"now", OPTION_NOW, "SECONDS", 0, "Virtual time; such a FILE is never used in real time", 1},
     FOR_ALL},
    {{"cost", OPTION_COST, "N", 0, "Units to take or to give back (default 1)", 2},
     FOR(POOL_NEXT) | FOR(POOL_GIVE_BACK)},
    {{"wait", OPTION_WAIT, "MAX", OPTION_ARG_OPTIONAL,
      "Wait until a key is free; with =MAX, such as =30s, only if that is enough", 2},
     FOR(POOL_NEXT)},
    {{"probe", OPTION_PROBE, NULL, 0, "If all keys are cooling, try the nearest to recover", 2},
     FOR(POOL_NEXT)},
    {{"secret", OPTION_SECRET, NULL, 0,
      "next: print the key's secret, not its name; add: read it from standard input", 2},
     FOR(POOL_NEXT) | FOR(POOL_ADD)},
    {{"both", OPTION_BOTH, NULL, 0, "Print the name, a space and the secret", 2}, FOR(POOL_NEXT)},
    {{"status", OPTION_STATUS, "CODE", 0, "What the far side answered, as HTTP has it", 3},
     FOR(POOL_REPORT)},
    {{"retry-after", OPTION_RETRY_AFTER, "TIME", 0,
      "The answer's Retry-After: seconds, or a date as HTTP has it", 3},
     FOR(POOL_REPORT)},
    {{"granted-at", OPTION_GRANTED_AT, "SECONDS", 0,
      "When it was granted, as `next --json` said (default: just now)", 4},
     FOR(POOL_GIVE_BACK)},
    {{"plot", OPTION_PLOT, "FILE", 0, GNUPLOT_HELP, 5}, FOR(POOL_STATUS)},
    {{"json", OPTION_JSON, NULL, 0, "Print one JSON object", 5}, FOR_ALL},
    {{"verbose", OPTION_VERBOSE, NULL, 0,
      "Say on standard error what was done, also where that is no terminal", 5},
     FOR_ALL},
};
#define N_KNOWN (sizeof(known) / sizeof(known[0]))

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

static uint64_t read_seconds(struct argp_state *state, const char *option, const char *text)
{
    struct timestamp timestamp = {0};
    struct stint_error error;
    if (timestamp_parse_seconds(&timestamp, span_of_text(text), &error) != 0)
        argp_error(state, "%s: %s", option, error.message);
    if (timestamp.ns > STINT_NOW_MAX)
        argp_error(state, "%s: times begin at 0 and end after 18 years", option);
    return timestamp.ns;
}

static void add_quota(struct argp_state *state, struct pool_options *options, const char *spec)
{
    if (options->n_quotas == STINT_POOL_QUOTAS_MAX)
        argp_error(state, "a key has at most %d quotas", STINT_POOL_QUOTAS_MAX);
    args_add_quota(state, options->quotas, &options->n_quotas, spec);
}

/* The common options of all verbs. */
static error_t parse_common(int option, char *value, struct argp_state *state)
{
    static const char *const orders[] = {"round_robin", "fill_first", "least_used", NULL};
    struct pool_options *options = state->input;
    switch (option) {
    case OPTION_STATE:
        args_file(state, &options->state, value);
        return 0;
    case OPTION_KEYS:
        if (options->keys != NULL)
            argp_error(state, "expected one --keys");
        options->keys = value;
        return 0;
    case OPTION_QUOTA:
        add_quota(state, options, value);
        return 0;
    case OPTION_QUOTA_FOR:
        options->quota_for[options->n_quota_for++] = value;
        return 0;
    case OPTION_WEIGHT:
        options->weight[options->n_weight++] = value;
        return 0;
    case OPTION_ORDER:
        options->order = (enum stint_pool_order)args_choice(state, "--order", value, orders);
        return 0;
    case OPTION_POOL:
        options->pool = value;
        return 0;
    case OPTION_SPACE:
        options->space = args_number(state, "--room", value, SPACE_MAX);
        return 0;
    case OPTION_NOW:
        options->now_ns = read_seconds(state, "--now", value);
        options->has_now = true;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_VERBOSE:
        options->verbose = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void add_word(struct argp_state *state, struct pool_options *options, const char *word)
{
    if (options->n_words == verbs[options->verb].words_max)
        argp_error(state, "'%s' is one argument too many%s", word,
                   options->wait ? "; the longest wait goes with an equals sign, like --wait=30s"
                                 : "");
    options->words[options->n_words++] = word;
}

/* curl prints 000 if it received no answer. */
static unsigned read_status(struct argp_state *state, const char *text)
{
    if (strlen(text) != 3 || strspn(text, "0123456789") != 3)
        argp_error(state, "--status must be three digits, like 200 or 429, not '%s'", text);
    return (unsigned)strtoul(text, NULL, 10);
}

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    struct pool_options *options = state->input;
    switch (option) {
    case OPTION_COST:
        options->cost = (uint32_t)args_number(state, "--cost", value, UINT32_MAX);
        return 0;
    case OPTION_WAIT:
        options->wait = true;
        options->wait_max_ns =
            value != NULL ? args_duration(state, "--wait", value) : STINT_NEVER_NS;
        return 0;
    case OPTION_PROBE:
        options->probe = true;
        return 0;
    case OPTION_SECRET:
        options->secret = true;
        return 0;
    case OPTION_BOTH:
        options->both = true;
        return 0;
    case OPTION_STATUS:
        options->has_status = true;
        options->status = read_status(state, value);
        return 0;
    case OPTION_RETRY_AFTER:
        options->retry_after = value;
        return 0;
    case OPTION_GRANTED_AT:
        options->granted_at_ns = read_seconds(state, "--granted-at", value);
        return 0;
    case OPTION_PLOT:
        gnuplot_option(state, &options->plot, value);
        return 0;
    case ARGP_KEY_ARG:
        add_word(state, options, value);
        return 0;
    case ARGP_KEY_END:
        pool_options_check(state, options);
        return 0;
    default:
        return parse_common(option, value, state);
    }
}

/* Writes the options of some verbs, and a terminator. */
static void choose_options(struct argp_option *chosen, unsigned wanted)
{
    size_t n_chosen = 0;
    for (size_t i = 0; i < N_KNOWN; i++)
        if ((known[i].verbs & wanted) != 0)
            chosen[n_chosen++] = known[i].option;
    chosen[n_chosen] = (struct argp_option){0};
}

void pool_options_parse(struct pool_options *options, enum pool_verb verb, int argc, char **argv)
{
    struct argp_option chosen[N_KNOWN + 1];
    choose_options(chosen, FOR(verb));
    const struct argp argp = {.options = chosen,
                              .parser = parse_option,
                              .args_doc = verbs[verb].arguments,
                              .doc = verbs[verb].doc};
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
    args_parse(&argp, argc, argv, options);
}

void pool_options_deinit(struct pool_options *options)
{
    free(options->quota_for);
    free(options->weight);
}

void pool_options_help(void)
{
    struct argp_option all[N_KNOWN + 1];
    choose_options(all, FOR_ALL);
    const struct argp argp = {
        .options = all,
        .doc = "\vKeys are shared by all users of the same FILE. No secret is ever written to "
               "it.\n\n"
               "`stint pool VERB --help` lists the options of one verb.\n\n"
               "Exit codes: 0 done, 1 bad input, 2 bad usage, 3 no key is free. See stint-pool(1), "
               "stint-spec(7).",
    };
    char name[] = "stint pool";
    puts("stint pool: several API keys, accounts or egress addresses, each with a quota:\n"
         "which may be used now, or when?\n");
    for (int verb = 0; verb < POOL_VERBS; verb++)
        printf("%s stint pool %s %s%s[OPTION...]\n", verb == 0 ? "Usage:" : "      ",
               pool_verb_names[verb], verbs[verb].arguments != NULL ? verbs[verb].arguments : "",
               verbs[verb].arguments != NULL ? " " : "");
    puts("");
    argp_help(&argp, stdout, ARGP_HELP_LONG | ARGP_HELP_POST_DOC, name);
}
