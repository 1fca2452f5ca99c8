/* SPDX-License-Identifier: MIT */
/* The command lines of `stint take`, `peek` and `reset`. */
#define _GNU_SOURCE
#include "cmd/client/ask.h"
#include "cmd/lib/args.h"

#include <string.h>

enum {
    OPTION_QUOTA = 256,
    OPTION_DOMAIN,
    OPTION_JSON,
    /* The options of reset end here. */
    OPTION_COST,
    OPTION_WAIT,
    OPTION_ID,
};

#define TARGET                                                                                     \
    {"quota", OPTION_QUOTA, "SPEC", 0, "What is allowed; the argument is its KEY", 1},             \
        {"domain",                                                                                 \
         OPTION_DOMAIN,                                                                            \
         "DOMAIN",                                                                                 \
         0,                                                                                        \
         "Domain of the server's rules; the words are descriptors, NAME=VALUE[,NAME=VALUE...]",    \
         1},                                                                                       \
    {                                                                                              \
        "json", OPTION_JSON, NULL, 0, "Print the server's answer on one line", 2                   \
    }
#define COST                                                                                       \
    {                                                                                              \
        "cost", OPTION_COST, "N", 0, "Units (default 1)", 1                                        \
    }

static const struct argp_option options_of_take[] = {
    TARGET,
    COST,
    {"wait", OPTION_WAIT, "DURATION", 0,
     "Longest time that the server waits until the request is allowed", 1},
    {"id", OPTION_ID, "ID", 0,
     "Id of the request: a retry with the same ID is charged once and gets the same answer", 1},
    {0},
};
static const struct argp_option options_of_peek[] = {TARGET, COST, {0}};
static const struct argp_option options_of_reset[] = {TARGET, {0}};

#define EXIT_CODES                                                                                 \
    "Exit codes: 0 allowed, 3 denied, 1 no decision, 2 bad usage. See "                            \
    "stint-take(1).\n"                                                                             \
    "(`stint try` and `stint replay` decide locally, without a server.)"

static const char doc_of_take[] =
    "Takes units from a server, for scripts: all of the cost or nothing. Prints nothing "
    "if they were granted; else the wait in seconds, or `never`.\v" EXIT_CODES;
static const char doc_of_peek[] =
    "Asks a server for the result of `stint take`, and takes nothing.\v" EXIT_CODES;
static const char doc_of_reset[] =
    "Resets the used units of a key on a server, and lifts its block.\vExit codes: 0 "
    "done, 1 not done, 2 bad usage. See stint-take(1).";

static void set_quota(struct ask_options *options, struct argp_state *state, const char *spec)
{
    struct stint_quota quota;
    size_t n_quotas = 0;
    if (options->quota != NULL)
        argp_error(state, "expected one --quota; several together need rules on the server");
    args_add_quota(state, &quota, &n_quotas, spec);
    options->quota = spec;
}

static void add_word(struct ask_options *options, struct argp_state *state, char *word)
{
    if (options->n_words == DESCRIPTORS_MAX)
        argp_error(state, "more than %d descriptors", DESCRIPTORS_MAX);
    options->words[options->n_words++] = word;
}

static void check_together(const struct ask_options *options, struct argp_state *state)
{
    if ((options->quota == NULL) == (options->domain == NULL))
        argp_error(state, "expected either --quota SPEC KEY or --domain DOMAIN NAME=VALUE...");
    if (options->quota != NULL && options->n_words != 1)
        argp_error(state, "expected one KEY beside --quota, found %zu", options->n_words);
    if (options->n_words == 0)
        argp_error(state, "expected descriptors beside --domain, such as user=ann");
    if (options->domain != NULL && options->domain[0] == '\0')
        argp_error(state, "the name of the DOMAIN is empty");
    if (options->id != NULL && options->id[0] == '\0')
        argp_error(state, "the ID is empty");
}

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    struct ask_options *options = state->input;
    switch (option) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->client;
        return 0;
    case OPTION_QUOTA:
        set_quota(options, state, value);
        return 0;
    case OPTION_DOMAIN:
        options->domain = value;
        return 0;
    case OPTION_COST:
        options->cost = (uint32_t)args_number(state, "--cost", value, UINT32_MAX);
        return 0;
    case OPTION_WAIT:
        options->wait_ns = args_duration(state, "--wait", value);
        return 0;
    case OPTION_ID:
        options->id = value;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        add_word(options, state, value);
        return 0;
    case ARGP_KEY_END:
        check_together(options, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void ask_options_parse(struct ask_options *options, enum request_verb verb, int argc, char **argv)
{
    static const char args_doc[] = "--quota SPEC KEY\n--domain DOMAIN NAME=VALUE[,NAME=VALUE]...";
    static const struct argp argps[] = {
        [REQUEST_TAKE] = {options_of_take, parse_option, args_doc, doc_of_take, client_children, 0,
                          0},
        [REQUEST_PEEK] = {options_of_peek, parse_option, args_doc, doc_of_peek, client_children, 0,
                          0},
        [REQUEST_RESET] = {options_of_reset, parse_option, args_doc, doc_of_reset, client_children,
                           0, 0},
    };
    *options = (struct ask_options){.verb = verb};
    args_parse(&argps[verb], argc, argv, options);
}
