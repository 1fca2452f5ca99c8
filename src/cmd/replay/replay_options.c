/* SPDX-License-Identifier: MIT */
/* The command line of `stint replay`. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/replay/replay.h"

#include <string.h>

#define KEYS_MAX (UINT64_C(1) << 32)

static const char doc[] =
    "Decides the events of FILE (standard input without one, or for -), plain or gzip, "
    "at the times in it, and prints which keys would have been limited.\vA trace has "
    "lines TIME KEY [COST], TIME in seconds from 0 on; `#` begins a comment.\n\n"
    "Lines that go back in time are decided at the latest time seen, unless --sort.\n\n"
    "Memory: the table has the size that --keys asks for. The report needs more: some "
    "100 bytes and the name of each different key, and 16 bytes for each time within the "
    "longest period at which a key was admitted something; --sort needs 24 bytes for "
    "each event, 48 while it sorts; --plot needs 24 bytes for each event, or for each of "
    "--plot-key.\n\n"
    "With --store the decisions are those of a shared store, made in the time of the "
    "events under keys of their own, which are deleted at the end; the report counts "
    "those that differ from the embedded engine's.\n\n"
    "Exit codes: 0 done, 1 bad input, 2 bad usage, 3 decisions of a --store differ. See "
    "stint-replay(1), stint-spec(7).";

/* By enum stint_verb. */
static const char *const verbs[] = {"take", "take_upto", "peek", NULL};

static const struct args_option options_known[] = {
    {"quota", "SPEC", 1, "What is allowed; several are taken all or nothing",
     ARGS_QUOTAS(struct replay_options, quotas, n_quotas)},
    {"domain", "DOMAIN", 1, "With --rules: the domain of the rules",
     ARGS_TEXT(struct replay_options, rules.domain)},
    {"descriptors", "LISTS", 1,
     "With --rules: which columns of the log are the entries of descriptors, as in 'ip,path;user' "
     "or 'remote_address=ip'",
     ARGS_TEXT(struct replay_options, rules.descriptors)},
    {"verb", "VERB", 1, "take (default), take_upto, or peek",
     ARGS_CHOICE(struct replay_options, verb, verbs)},
    {"format", "FORMAT", 2, "trace (default), combined (access logs), or jsonl",
     ARGS_CHOICE(struct replay_options, source.format, source_formats)},
    {"key", "EXPR", 2,
     "combined: ip (default), ip/BITS for IPv6 by prefix, user, path, method, status; jsonl: names "
     "of members (default key). Joined by +: ip+path",
     ARGS_TEXT(struct replay_options, source.key)},
    {"time", "MEMBER", 2, "jsonl: seconds or RFC 3339 (default time)",
     ARGS_TEXT(struct replay_options, source.time)},
    {"cost", "MEMBER", 2, "jsonl: units of each event (default: 1 each)",
     ARGS_TEXT(struct replay_options, source.cost)},
    {"sort", NULL, 3, "Put the events into the order of time first, in memory",
     ARGS_FLAG(struct replay_options, source.sort)},
    {"strict", NULL, 3, "Stop at the first malformed line",
     ARGS_FLAG(struct replay_options, source.strict)},
    {"decisions", NULL, 4,
     "A line for each event: time, key, cost, outcome, granted, remaining, retry_after_ns, "
     "reset_after_ns, separated by tabs",
     ARGS_FLAG(struct replay_options, decisions)},
    {"json", NULL, 4, "The summary as one JSON object; with --decisions an object for each event",
     ARGS_FLAG(struct replay_options, json)},
    {"popular", "N", 4,
     "Print the N keys with most requests and the N denied most (default: 10 denied most)",
     ARGS_NUMBER(struct replay_options, top_keys, REPLAY_POPULAR_MAX)},
    {"state", "FILE", 5, "Keep the table in FILE, over several replays",
     ARGS_FILE(struct replay_options, state)},
    {"keys", "N", 5, "Capacity for N live keys (default 1048576; fewer if states are wide)",
     ARGS_NUMBER(struct replay_options, keys, KEYS_MAX)},
    {"plot", "FILE", 6, GNUPLOT_HELP, ARGS_PART(struct replay_options, plot, gnuplot_option)},
    {"plot-key", "KEY", 6, "What --plot shows (default: the key denied most)",
     ARGS_TEXT(struct replay_options, plot_key)},
    {0},
};

/* A picture starts with a key that was never used, and shows what was taken. */
static void check_plot(struct argp_state *state, const struct replay_options *options)
{
    if (options->plot.format == GNUPLOT_NONE)
        return;
    if (options->state != NULL)
        argp_error(state, "--plot shows a key from its first use on, which --state may have seen");
    if (options->verb == STINT_PEEK)
        argp_error(state, "--plot shows what is taken; --verb peek takes nothing");
    if (options->plot.format == GNUPLOT_TERMINAL && (options->json || options->decisions))
        argp_error(state, "--plot - and --%s would mix on standard output; name a FILE",
                   options->json ? "json" : "decisions");
}

static void check_rules(struct argp_state *state, const struct replay_options *options)
{
    const struct replay_rules_options *rules = &options->rules;
    bool has_rules = rules->files.n_paths > 0;
    if (!has_rules && (rules->domain != NULL || rules->descriptors != NULL))
        argp_error(state, "--domain and --descriptors are for --rules");
    if (!has_rules)
        return;
    if (options->n_quotas > 0 || options->source.key != NULL)
        argp_error(state, "--rules has its own quotas and keys; expected no --%s",
                   options->n_quotas > 0 ? "quota" : "key");
    if (rules->domain == NULL || rules->descriptors == NULL)
        argp_error(state, "--rules needs --domain D and --descriptors, such as 'ip,path;user'");
    if (options->plot.format != GNUPLOT_NONE)
        argp_error(state, "--plot shows what one quota does to a key; --rules has several");
}

static void check_store(struct argp_state *state, const struct replay_options *options)
{
    if (options->store.text == NULL)
        return;
    if (options->state != NULL)
        argp_error(state, "--store keeps nothing of a run; expected no --state");
}

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct replay_options *options = input;
    args_file(state, &options->source.path, word);
}

static void check_together(struct argp_state *state, void *input)
{
    const struct replay_options *options = input;
    check_rules(state, options);
    check_store(state, options);
    if (options->n_quotas == 0 && options->rules.files.n_paths == 0)
        argp_error(state, "expected --quota, for example --quota '100/60s', or --rules PATH");
    source_check(&options->source, state);
    if (options->top_keys > 0 && options->decisions)
        argp_error(state, "--popular is part of the summary, which --decisions replaces");
    if (options->plot.format == GNUPLOT_NONE && options->plot_key != NULL)
        argp_error(state, "--plot-key chooses the key for --plot; expected --plot too");
    check_plot(state, options);
}

void replay_options_parse(struct replay_options *options, int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_word, .end = check_together},
        .children = {{&rules_given_set, offsetof(struct replay_options, rules.files), NULL, 1},
                     {&store_given_set, offsetof(struct replay_options, store), NULL, 1}},
        .arguments = "[FILE]",
        .doc = doc,
    };
    *options = (struct replay_options){.verb = STINT_TAKE};
    args_parse(&command, argc, argv, options);
}
