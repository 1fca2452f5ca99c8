/* SPDX-License-Identifier: MIT */
/* The command lines of `stint take`, `peek` and `reset`. */
#define _GNU_SOURCE
#include "cmd/client/ask.h"
#include "cmd/lib/args.h"

#include <string.h>

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

static void set_quota(struct argp_state *state, void *input, char *spec)
{
    struct ask_options *options = input;
    struct stint_quota quota;
    size_t n_quotas = 0;
    if (options->quota != NULL)
        argp_error(state, "expected one --quota; several together need rules on the server");
    args_add_quota(state, &quota, &n_quotas, spec);
    options->quota = spec;
}

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct ask_options *options = input;
    if (options->n_words == DESCRIPTORS_MAX)
        argp_error(state, "more than %d descriptors", DESCRIPTORS_MAX);
    options->words[options->n_words++] = word;
}

#define FOR(verb) (1u << (verb))

static const struct args_option options_known[] = {
    {"quota", "SPEC", 1, "What is allowed; the argument is its KEY", ARGS_OWN(set_quota)},
    {"domain", "DOMAIN", 1,
     "Domain of the server's rules; the words are descriptors, NAME=VALUE[,NAME=VALUE...]",
     ARGS_TEXT(struct ask_options, domain)},
    {"json", NULL, 2, "Print the server's answer on one line", ARGS_FLAG(struct ask_options, json)},
    {"cost", "N", 1, "Units (default 1)", ARGS_NUMBER(struct ask_options, cost, UINT32_MAX),
     .verbs = FOR(REQUEST_TAKE) | FOR(REQUEST_PEEK)},
    {"wait", "DURATION", 1, "Longest time that the server waits until the request is allowed",
     ARGS_DURATION(struct ask_options, wait_ns), .verbs = FOR(REQUEST_TAKE)},
    {"id", "ID", 1,
     "Id of the request: a retry with the same ID is charged once and gets the same answer",
     ARGS_TEXT(struct ask_options, id), .verbs = FOR(REQUEST_TAKE)},
    {0},
};

static void check_together(struct argp_state *state, void *input)
{
    const struct ask_options *options = input;
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

void ask_options_parse(struct ask_options *options, enum request_verb verb, int argc, char **argv)
{
    static const char *const docs[] = {
        [REQUEST_TAKE] = doc_of_take, [REQUEST_PEEK] = doc_of_peek, [REQUEST_RESET] = doc_of_reset};
    const struct args_command command = {
        .set = {options_known, .word = add_word, .end = check_together},
        .children = {CLIENT_CHILD(client_set, offsetof(struct ask_options, client))},
        .arguments = "--quota SPEC KEY\n--domain DOMAIN NAME=VALUE[,NAME=VALUE]...",
        .doc = docs[verb],
        .verb = FOR(verb),
    };
    *options = (struct ask_options){.verb = verb};
    args_parse(&command, argc, argv, options);
}
