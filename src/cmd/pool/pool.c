/* SPDX-License-Identifier: MIT */
/* `stint pool`: chooses the verb, and opens the table and the pool in it. */
#define _GNU_SOURCE
#include "cmd/pool/pool.h"

#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const pool_verb_names[] = {
    [POOL_NEXT] = "next",     [POOL_REPORT] = "report", [POOL_GIVE_BACK] = "give-back",
    [POOL_STATUS] = "status", [POOL_ADD] = "add",       [POOL_REMOVE] = "remove",
    [POOL_VERBS] = NULL,
};

bool pool_is_chatty(const struct pool_options *options)
{
    return options->verbose || isatty(STDERR_FILENO) == 1;
}

static int (*const runs[])(struct pool_session *session) = {
    [POOL_NEXT] = pool_next,     [POOL_REPORT] = pool_report, [POOL_GIVE_BACK] = pool_give_back,
    [POOL_STATUS] = pool_status, [POOL_ADD] = pool_add,       [POOL_REMOVE] = pool_remove,
};

static int run(const struct pool_options *options)
{
    struct pool_session session;
    struct stint_error error;
    int result;
    if (pool_session_open(&session, options, &error) == 0) {
        result = runs[options->verb](&session);
    } else {
        print_message("%s", error.message);
        result = session.bad_usage ? CMD_BAD_USAGE : CMD_BAD_INPUT;
    }
    pool_session_close(&session);
    return result;
}

static int wrong_verb(const char *word)
{
    struct args_hint hint;
    if (word == NULL)
        print_message("stint pool expects a verb; %s", args_hint(&hint, "", "", pool_verb_names));
    else
        print_message("stint pool has no verb '%s'; %s", word,
                      args_hint(&hint, "", word, pool_verb_names));
    return CMD_BAD_USAGE;
}

int pool_main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    if (word != NULL && (strcmp(word, "--help") == 0 || strcmp(word, "--usage") == 0)) {
        pool_options_help();
        return CMD_DONE;
    }
    for (int verb = 0; word != NULL && verb < POOL_VERBS; verb++) {
        if (strcmp(word, pool_verb_names[verb]) != 0)
            continue;
        struct pool_options options;
        char name[32];
        snprintf(name, sizeof(name), "stint pool %s", word);
        argv[1] = name;
        pool_options_parse(&options, (enum pool_verb)verb, argc - 1, argv + 1);
        int result = run(&options);
        pool_options_deinit(&options);
        return result;
    }
    return wrong_verb(word);
}
