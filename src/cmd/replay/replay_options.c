/* SPDX-License-Identifier: MIT */
/* The command line of `stint replay`. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/replay/replay.h"

#include <string.h>

#define KEYS_MAX (UINT64_C(1) << 32)

enum {
    OPTION_QUOTA = 256,
    OPTION_VERB,
    OPTION_DECISIONS,
    OPTION_JSON,
    OPTION_STATE,
    OPTION_KEYS,
    OPTION_PLOT,
    OPTION_PLOT_KEY,
    OPTION_POPULAR,
    OPTION_DOMAIN,
    OPTION_DESCRIPTORS,
};

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

static const struct argp_option options_known[] = {
    {"quota", OPTION_QUOTA, "SPEC", 0, "What is allowed; several are taken all or nothing", 1},
    {"domain", OPTION_DOMAIN, "DOMAIN", 0, "With --rules: the domain of the rules", 1},
    {"descriptors", OPTION_DESCRIPTORS, "LISTS", 0,
     "With --rules: which columns of the log are the entries of descriptors, as in 'ip,path;user' "
     "or 'remote_address=ip'",
     1},
    {"verb", OPTION_VERB, "VERB", 0, "take (default), take_upto, or peek", 1},
    {"format", SOURCE_FORMAT, "FORMAT", 0, "trace (default), combined (access logs), or jsonl", 2},
    {"key", SOURCE_KEY, "EXPR", 0,
     "combined: ip (default), ip/BITS for IPv6 by prefix, user, path, method, status; jsonl: names "
     "of members (default key). Joined by +: ip+path",
     2},
    {"time", SOURCE_TIME, "MEMBER", 0, "jsonl: seconds or RFC 3339 (default time)", 2},
    {"cost", SOURCE_COST, "MEMBER", 0, "jsonl: units of each event (default: 1 each)", 2},
    {"sort", SOURCE_SORT, NULL, 0, "Put the events into the order of time first, in memory", 3},
    {"strict", SOURCE_STRICT, NULL, 0, "Stop at the first malformed line", 3},
    {"decisions", OPTION_DECISIONS, NULL, 0,
     "A line for each event: time, key, cost, outcome, granted, remaining, retry_after_ns, "
     "reset_after_ns, separated by tabs",
     4},
    {"json", OPTION_JSON, NULL, 0,
     "The summary as one JSON object; with --decisions an object for each event", 4},
    {"popular", OPTION_POPULAR, "N", 0,
     "Print the N keys with most requests and the N denied most (default: 10 denied most)", 4},
    {"state", OPTION_STATE, "FILE", 0, "Keep the table in FILE, over several replays", 5},
    {"keys", OPTION_KEYS, "N", 0,
     "Capacity for N live keys (default 1048576; fewer if states are wide)", 5},
    {"plot", OPTION_PLOT, "FILE", 0, GNUPLOT_HELP, 6},
    {"plot-key", OPTION_PLOT_KEY, "KEY", 0, "What --plot shows (default: the key denied most)", 6},
    {0},
};

/* By enum stint_verb. */
static const char *const verbs[] = {"take", "take_upto", "peek", NULL};

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

static void check_together(struct argp_state *state, const struct replay_options *options)
{
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

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    struct replay_options *options = state->input;
    switch (option) {
    case OPTION_QUOTA:
        args_add_quota(state, options->quotas, &options->n_quotas, value);
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->rules.files;
        state->child_inputs[1] = &options->store;
        return 0;
    case OPTION_DOMAIN:
        options->rules.domain = value;
        return 0;
    case OPTION_DESCRIPTORS:
        options->rules.descriptors = value;
        return 0;
    case OPTION_VERB:
        options->verb = (enum stint_verb)args_choice(state, "--verb", value, verbs);
        return 0;
    case OPTION_DECISIONS:
        options->decisions = true;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_STATE:
        args_file(state, &options->state, value);
        return 0;
    case OPTION_KEYS:
        options->keys = args_number(state, "--keys", value, KEYS_MAX);
        return 0;
    case OPTION_PLOT:
        gnuplot_option(state, &options->plot, value);
        return 0;
    case OPTION_POPULAR:
        options->top_keys = args_number(state, "--popular", value, REPLAY_POPULAR_MAX);
        return 0;
    case OPTION_PLOT_KEY:
        options->plot_key = value;
        return 0;
    case ARGP_KEY_END:
        check_together(state, options);
        return 0;
    default:
        return source_option(&options->source, option, value, state);
    }
}

void replay_options_parse(struct replay_options *options, int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&rules_given_argp, 0, NULL, 1}, {&store_given_argp, 0, NULL, 1}, {0}};
    static const struct argp argp = {.options = options_known,
                                     .parser = parse_option,
                                     .args_doc = "[FILE]",
                                     .doc = doc,
                                     .children = children};
    *options = (struct replay_options){.verb = STINT_TAKE};
    args_parse(&argp, argc, argv, options);
}
