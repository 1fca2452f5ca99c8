/* SPDX-License-Identifier: MIT */
/* `stint take`, `peek` and `reset`: one request to a server, with its answer as an exit code. */
#define _GNU_SOURCE
#include "cmd/client/ask.h"

#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int send(struct client *client, const struct ask_options *options, const json_t *body,
                struct client_answer *answer, struct stint_error *error)
{
    char path[32];
    char *text = json_dumps(body, JSON_COMPACT);
    if (text == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    snprintf(path, sizeof(path), "/v1/%s", request_verbs[options->verb].name);
    int code = client_post(client, path, span_of_text(text), options->wait_ns, answer, error);
    free(text);
    return code;
}

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

static int converse(struct client *client, const struct ask_options *options, const json_t *body)
{
    struct client_answer from;
    struct ask_answer answer = {0};
    struct stint_error error;
    int result = CMD_BAD_INPUT;
    if (send(client, options, body, &from, &error) == 0 &&
        ask_answer_read(&answer, options->verb, &from, &error) == 0)
        result = tell(options, &answer);
    else
        print_message("%s", error.message);
    json_decref(answer.object);
    return result;
}

static int ask(enum request_verb verb, int argc, char **argv)
{
    struct ask_options options;
    struct client *client;
    struct stint_error error;
    ask_options_parse(&options, verb, argc, argv);
    json_t *body = ask_body(&options, &error);
    if (body == NULL) {
        print_message("%s", error.message);
        return CMD_BAD_USAGE;
    }
    int result, code = client_open(&client, &options.client, &error);
    if (code == 0) {
        result = converse(client, &options, body);
        client_close(client);
    } else {
        print_message("%s", error.message);
        result = code == STINT_E_SYNTAX ? CMD_BAD_USAGE : CMD_BAD_INPUT;
    }
    json_decref(body);
    return result;
}

int take_main(int argc, char **argv)
{
    return ask(REQUEST_TAKE, argc, argv);
}

int peek_main(int argc, char **argv)
{
    return ask(REQUEST_PEEK, argc, argv);
}

int reset_main(int argc, char **argv)
{
    return ask(REQUEST_RESET, argc, argv);
}
