/* SPDX-License-Identifier: MIT */
/* `stint rls`: its subcommands, which make one call each. */
#define _GNU_SOURCE
#include "cmd/rls/rls.h"

#include "cmd/lib/cmd.h"
#include "cmd/lib/group.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/health.h"
#include "proto/grpc/rls_limit.h"

#include <stdlib.h>

int rls_main(int argc, char **argv)
{
    static const struct cmd commands[] = {
        {"ask", "one question, as Envoy asks it", rls_ask_main},
        {"health", "whether a server serves", rls_health_main},
        {NULL, NULL, NULL},
    };
    static const struct cmd_group group = {
        .name = "rls",
        .summary = "asks Envoy's rate limit service (gRPC)",
        .bad_input = "no answer could be had",
        .commands = commands,
    };
    return cmd_group_run(&group, argc, argv);
}

static int tell_limits(const struct rls_options *options, struct span message)
{
    struct stint_error error;
    int code = rls_message_code(message, &error);
    if (code < 0) {
        print_message("%s: %s", options->server, error.message);
        return CMD_BAD_INPUT;
    }
    if (options->json)
        (void)json_text_print(rls_message_json(message, &error), false);
    else
        (void)rls_message_print(stdout, message, &options->evaluation, &error);
    return code == RLS_CODE_OK ? CMD_DONE : CMD_DENIED;
}

static int tell_health(const struct rls_options *options, struct span message)
{
    static const char *const names[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
    struct stint_error error;
    int status = rls_health_read(message, &error);
    if (status < 0 || status > HEALTH_SERVICE_UNKNOWN) {
        print_message("%s: %s", options->server, status < 0 ? error.message : "no such status");
        return CMD_BAD_INPUT;
    }
    if (options->json)
        (void)json_text_print(json_pack("{s:s}", "status", names[status]), false);
    else
        puts(names[status]);
    return status == HEALTH_SERVING ? CMD_DONE : CMD_DENIED;
}

static int tell(const struct rls_options *options, const struct rls_answer *answer)
{
    if (answer->grpc_status == GRPC_OK)
        return options->mode == RLS_ASK ? tell_limits(options, answer->message)
                                        : tell_health(options, answer->message);
    const char *name = grpc_status_name(answer->grpc_status);
    print_message("%s: %s%s%s", options->server, name, name[0] != '\0' ? ": " : "", answer->reason);
    return CMD_BAD_INPUT;
}

static int call(enum rls_mode mode, int argc, char **argv)
{
    struct rls_options options;
    struct rls_answer answer;
    struct stint_error error;
    size_t len = 0;
    rls_options_parse(&options, mode, argc, argv);
    uint8_t *request = mode == RLS_ASK ? rls_message_write(&options.evaluation, &len)
                                       : rls_health_write(options.service, &len);
    if (request == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    int code = rls_client_call(&options, mode == RLS_ASK ? RLS_PATH : RLS_HEALTH_PATH,
                               span_of(request, len), &answer, &error);
    if (code != 0)
        print_message("%s", error.message);
    int exit_code = code == 0                ? tell(&options, &answer)
                    : code == STINT_E_SYNTAX ? CMD_BAD_USAGE
                                             : CMD_BAD_INPUT;
    rls_client_release(&answer);
    free(request);
    return exit_code;
}

int rls_ask_main(int argc, char **argv)
{
    return call(RLS_ASK, argc, argv);
}

int rls_health_main(int argc, char **argv)
{
    return call(RLS_HEALTH, argc, argv);
}
