/* SPDX-License-Identifier: MIT */
/* `stint pool`: reads the command line of a verb, of one list of options for all, and runs it. */
#define _GNU_SOURCE
#include "cmd/pool/pool.h"

#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "sim/input/timestamp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The command line ------------------------------------------------------------------------ */

#define SPACE_MAX (UINT64_C(1) << 20)

#define FOR(verb) (1u << (verb))

static const struct {
    const char *arguments, *doc;
    size_t words_max;
} forms[POOL_VERBS] = {
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
    if (options->n_words == forms[options->verb].words_max)
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

/* Options that are valid one by one but would have no effect together are refused. */
static void check_together(struct argp_state *state, const struct pool_options *options)
{
    bool has_file = options->keys != NULL && options->keys[0] == '@';
    if (options->state == NULL)
        argp_error(state, "expected --state FILE, the file with the states of the pool");
    if (options->keys == NULL)
        argp_error(state, "expected --keys, for example --keys a,b,c or --keys @FILE");
    if (has_file && options->keys[1] == '\0')
        argp_error(state, "--keys: the name of the FILE is empty");
    if (options->n_quotas == 0 && options->n_quota_for == 0)
        argp_error(state, "expected --quota, for example --quota '500/10m'");
    if ((options->secret || options->both) && options->json)
        argp_error(state, "--json never has a secret in it");
    if (options->secret && options->both)
        argp_error(state, "expected --secret or --both, found both of them");
    if ((options->secret || options->both) && !has_file)
        argp_error(state, "secrets are in the FILE of --keys @FILE; a list has only names");
    if (options->plot.format == GNUPLOT_TERMINAL && options->json)
        argp_error(state, "--json and --plot - would both use standard output");
    if (options->wait && options->has_now)
        argp_error(state, "--wait waits in real time, which does not pass with --now");
    if (options->retry_after != NULL && !options->has_status)
        argp_error(state, "--retry-after belongs to an answer; say its --status too");
    if ((options->verb == POOL_ADD || options->verb == POOL_REMOVE) && !has_file)
        argp_error(state,
                   "change a list in --keys itself; this command changes the FILE of --keys @FILE");
}

/* The words after the NAME of `report`. */
static void read_outcome(struct argp_state *state, struct pool_options *options)
{
    const char *time = options->n_words > 2 ? options->words[2] : NULL;
    if (options->n_words < 2)
        argp_error(state, "expected --status CODE, or one of ok, cool TIME, back-off, out");
    int outcome = args_choice(state, "what is reported", options->words[1], pool_outcome_names);
    options->outcome = (enum stint_pool_outcome)outcome;
    if (outcome != STINT_POOL_COOL && time != NULL)
        argp_error(state, "'%s' takes no TIME, found '%s'", options->words[1], time);
    if (outcome != STINT_POOL_COOL)
        return;
    if (time == NULL)
        argp_error(state, "expected for how long, for example cool 30s");
    options->cool_ns = args_duration(state, "cool", time);
    if (options->cool_ns == 0)
        argp_error(state, "a cooldown must be longer than 0; ok ends one");
}

static void check_words(struct argp_state *state, struct pool_options *options)
{
    bool wants_name = options->verb != POOL_NEXT && options->verb != POOL_STATUS;
    if (wants_name && options->n_words == 0)
        argp_error(state, "expected the NAME of a key");
    if (options->verb != POOL_REPORT)
        return;
    if (!options->has_status)
        read_outcome(state, options);
    else if (options->n_words > 1)
        argp_error(state, "'%s' and --status say it twice", options->words[1]);
}

static void check(struct argp_state *state, void *options)
{
    check_together(state, options);
    check_words(state, options);
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

static void parse_options(struct pool_options *options, enum pool_verb verb, int argc, char **argv)
{
    const struct args_command command = {
        .set = set,
        .arguments = forms[verb].arguments,
        .doc = forms[verb].doc,
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

static void free_options(struct pool_options *options)
{
    free(options->quota_for);
    free(options->weight);
}

/* ---- The command ----------------------------------------------------------------------------- */

static int run(const struct pool_options *options)
{
    struct pool_session session;
    struct stint_error error;
    int result;
    if (pool_session_open(&session, options, &error) == 0) {
        result = pool_verbs[options->verb](&session);
    } else {
        print_message("%s", error.message);
        result = session.bad_usage ? CMD_BAD_USAGE : CMD_BAD_INPUT;
    }
    pool_session_close(&session);
    return result;
}

static int pool_main(enum pool_verb verb, int argc, char **argv)
{
    struct pool_options options;
    parse_options(&options, verb, argc, argv);
    int result = run(&options);
    free_options(&options);
    return result;
}

#define POOL_MAIN(name, verb)                                                                      \
    static int name(int argc, char **argv)                                                         \
    {                                                                                              \
        return pool_main(verb, argc, argv);                                                        \
    }

POOL_MAIN(pool_next_main, POOL_NEXT)
POOL_MAIN(pool_report_main, POOL_REPORT)
POOL_MAIN(pool_give_back_main, POOL_GIVE_BACK)
POOL_MAIN(pool_status_main, POOL_STATUS)
POOL_MAIN(pool_add_main, POOL_ADD)
POOL_MAIN(pool_remove_main, POOL_REMOVE)

const struct cmd pool_commands[] = {
    {"next", "choose the key to use now, and charge it", .run = pool_next_main},
    {"report", "report the remote service's answer for a key", .run = pool_report_main},
    {"give-back", "refund units of a key that were not used", .run = pool_give_back_main},
    {"status", "print the state of each key", .run = pool_status_main},
    {"add", "add a key to the file of keys", .run = pool_add_main},
    {"remove", "remove a key from the file of keys", .run = pool_remove_main},
    {.name = NULL},
};
