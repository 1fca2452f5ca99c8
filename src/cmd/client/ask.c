/* SPDX-License-Identifier: MIT */
/* `stint take`, `peek` and `reset`: one request to a server, with its answer as an exit code. */
#define _GNU_SOURCE
#include "algorithm/spec.h"
#include "base/ns.h"
#include "cmd/client/client.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "decide/request.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The command line ------------------------------------------------------------------------ */

struct ask_options {
    enum request_verb verb;
    struct client_options client;
    const char *quota;  /* a SPEC; the only word is the key. NULL with a domain */
    const char *domain; /* the words are descriptors. NULL with a quota */
    char *words[DESCRIPTORS_MAX];
    size_t n_words;
    const char *id; /* NULL: none */
    uint64_t wait_ns;
    uint32_t cost; /* 0: not given */
    bool json;
};

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

static void parse_options(struct ask_options *options, enum request_verb verb, int argc,
                          char **argv)
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

/* ---- What is sent ---------------------------------------------------------------------------- */

static int out_of_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "out of memory");
}

static int put_span(json_t *object, const char *name, const char *what, struct span text,
                    struct stint_error *error)
{
    json_t *value = json_stringn((const char *)text.ptr, text.len);
    if (value == NULL)
        return err_set(error, STINT_E_SYNTAX, "the %s is not UTF-8, as JSON must be", what);
    return json_object_set_new(object, name, value) == 0 ? 0 : out_of_memory(error);
}

static int put_text(json_t *object, const char *name, const char *what, const char *text,
                    struct stint_error *error)
{
    return text == NULL ? 0 : put_span(object, name, what, span_of_text(text), error);
}

static int add_descriptor(json_t *descriptors, char *word, struct stint_error *error)
{
    struct descriptor_entry cut[ENTRIES_MAX];
    size_t n_cut = 0;
    json_t *entries = json_array();
    if (json_array_append_new(descriptors, json_pack("{s:o}", "entries", entries)) != 0)
        return out_of_memory(error);
    int code = descriptor_word_cut(word, cut, &n_cut, error);
    for (size_t i = 0; code == 0 && i < n_cut; i++) {
        json_t *entry = json_object();
        if (json_array_append_new(entries, entry) != 0)
            return out_of_memory(error);
        code = put_span(entry, "key", "name in a descriptor", cut[i].key, error);
        if (code == 0)
            code = put_span(entry, "value", "value in a descriptor", cut[i].value, error);
    }
    return code;
}

/*
 * The body of the request; NULL with a message if a descriptor is no KEY=VALUE[,KEY=VALUE …],
 * something is not UTF-8, or there is no memory. The words are modified.
 */
static json_t *ask_body(struct ask_options *options, struct stint_error *error)
{
    uint64_t wait_ms = options->wait_ns / NS_PER_MS + (options->wait_ns % NS_PER_MS != 0);
    json_t *descriptors = options->domain != NULL ? json_array() : NULL;
    json_t *body = json_pack("{s:o*, s:o*, s:o*}", "descriptors", descriptors, "cost",
                             options->cost > 0 ? json_integer(options->cost) : NULL, "wait_ms",
                             wait_ms > 0 ? json_integer((json_int_t)wait_ms) : NULL);
    int code = body != NULL ? 0 : out_of_memory(error);
    if (code == 0)
        code = put_text(body, "quota", "SPEC", options->quota, error);
    if (code == 0 && options->quota != NULL)
        code = put_text(body, "key", "KEY", options->words[0], error);
    if (code == 0)
        code = put_text(body, "domain", "DOMAIN", options->domain, error);
    for (size_t i = 0; code == 0 && options->domain != NULL && i < options->n_words; i++)
        code = add_descriptor(descriptors, options->words[i], error);
    if (code == 0)
        code = put_text(body, "request_id", "ID", options->id, error);
    if (code == 0)
        return body;
    json_decref(body);
    return NULL;
}

/* ---- The answer ------------------------------------------------------------------------------ */

struct ask_answer {
    json_t *object;  /* as the server sent it; NULL if it sent none */
    uint8_t outcome; /* enum stint_outcome */
    uint64_t retry_after_ns;
};

static int refused(const struct client_answer *from, const json_t *object,
                   struct stint_error *error)
{
    const char *message = json_string_value(json_object_get(object, "detail"));
    if (message == NULL)
        message = json_string_value(json_object_get(object, "title"));
    return err_set(error, STINT_E_SYSTEM, "the server answers %d%s%s", from->status,
                   message != NULL ? ": " : ", without a reason", message != NULL ? message : "");
}

static int no_decision(const struct client_answer *from, struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX,
                   "expected a decision, found %zu bytes of '%s' with status %d; is it a stint "
                   "server?",
                   from->body.len, from->type, from->status);
}

static bool read_outcome(const json_t *object, uint8_t *outcome)
{
    const char *name = json_string_value(json_object_get(object, "outcome"));
    for (uint8_t i = 0; name != NULL && i <= STINT_NEVER; i++)
        if (strcmp(name, outcome_names[i]) == 0) {
            *outcome = i;
            return true;
        }
    return false;
}

/* A wait is given only if the request is denied for now. */
static bool read_wait(struct ask_answer *answer)
{
    const json_t *wait = json_object_get(answer->object, "retry_after_ms");
    answer->retry_after_ns = answer->outcome == STINT_NEVER ? STINT_NEVER_NS : 0;
    if (answer->outcome != STINT_DENY)
        return true;
    if (!json_is_integer(wait) || json_integer_value(wait) < 0 ||
        (uint64_t)json_integer_value(wait) > STINT_NOW_MAX / NS_PER_MS)
        return false;
    answer->retry_after_ns = (uint64_t)json_integer_value(wait) * NS_PER_MS;
    return true;
}

/*
 * Reads a decision, or the confirmation of a reset. STINT_E_SYSTEM with the server's message if it
 * reports an error, STINT_E_SYNTAX for any other answer. The caller frees the object in both cases.
 */
static int ask_answer_read(struct ask_answer *answer, enum request_verb verb,
                           const struct client_answer *from, struct stint_error *error)
{
    *answer = (struct ask_answer){.outcome = STINT_ALLOW};
    bool good = from->status >= 200 && from->status < 300;
    if (from->body.len > 0)
        answer->object =
            json_loadb((const char *)from->body.ptr, from->body.len, JSON_ALLOW_NUL, NULL);
    if (verb == REQUEST_RESET && good && (json_is_object(answer->object) || from->body.len == 0))
        return 0;
    if (!good && from->status != 429)
        return refused(from, answer->object, error);
    /* A 429 without a decision comes from a proxy, or from the server's connection limits. */
    if (!read_outcome(answer->object, &answer->outcome))
        return good ? no_decision(from, error) : refused(from, answer->object, error);
    return read_wait(answer) ? 0 : no_decision(from, error);
}

/* ---- The commands ---------------------------------------------------------------------------- */

/* A warning for people: the request is allowed since no rule limits it; a name may be mistyped. */
static void tell_unmatched(const struct ask_options *options, const json_t *object)
{
    size_t i;
    const json_t *status;
    json_array_foreach(json_object_get(object, "statuses"), i, status)
    {
        const char *why = json_string_value(json_object_get(status, "unmatched"));
        if (why == NULL)
            continue;
        bool is_domain = strcmp(why, "domain") == 0;
        print_message(is_domain
                          ? "nothing limits descriptor %zu: no rules have the domain '%s'"
                          : "nothing limits descriptor %zu: no rule of the domain '%s' matches it",
                      i + 1, options->domain);
    }
}

/* Prints what a script needs; returns an enum cmd_exit. */
static int tell(const struct ask_options *options, const struct ask_answer *answer)
{
    struct formatted wait;
    bool allowed = answer->outcome == STINT_ALLOW;
    if (options->verb != REQUEST_RESET)
        tell_unmatched(options, answer->object);
    if (options->json && answer->object != NULL)
        (void)json_text_print(json_incref(answer->object), false);
    else if (!allowed)
        puts(format_wait(&wait, answer->retry_after_ns));
    return allowed ? CMD_DONE : CMD_DENIED;
}

static int converse(struct client *client, const struct ask_options *options, const char *body)
{
    char path[32];
    struct client_answer from;
    struct ask_answer answer = {0};
    struct stint_error error;
    const struct span text = span_of_text(body);
    snprintf(path, sizeof(path), "/v1/%s", request_verbs[options->verb].name);
    int result = client_ask(client, path, &text, options->wait_ns, &from, &error) == 0 &&
                         ask_answer_read(&answer, options->verb, &from, &error) == 0
                     ? tell(options, &answer)
                     : print_failure("%s", error.message);
    json_decref(answer.object);
    return result;
}

int ask_main(int argc, char **argv)
{
    enum request_verb verb = REQUEST_TAKE;
    struct ask_options options;
    struct client *client;
    struct stint_error error;
    while (strcmp(request_verbs[verb].name, strrchr(argv[0], ' ') + 1) != 0)
        verb++;
    parse_options(&options, verb, argc, argv);
    json_t *body = ask_body(&options, &error);
    if (body == NULL) {
        print_message("%s", error.message);
        return CMD_BAD_USAGE;
    }
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (text == NULL)
        return print_failure("out of memory");
    int result, code = client_open(&client, &options.client, &error);
    if (code == 0) {
        result = converse(client, &options, text);
        client_close(client);
    } else {
        result = print_failure("%s", error.message);
    }
    free(text);
    return code == STINT_E_SYNTAX ? CMD_BAD_USAGE : result;
}
