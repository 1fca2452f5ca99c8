/* SPDX-License-Identifier: MIT */
/* `stint rls`: its subcommands, and the two that make one call. */
#define _GNU_SOURCE
#include "cmd/rls/rls.h"

#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/group.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/health.h"
#include "proto/grpc/rls_limit.h"
#include "table/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>

int rls_main(int argc, char **argv)
{
    static const struct cmd commands[] = {
        {"ask", "one question, as Envoy asks it", rls_ask_main},
        {"load", "questions at a steady rate, and how long they take", rls_load_main},
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

/* ---- One call -------------------------------------------------------------------------------- */

struct one_call {
    const struct rls_options *options;
    bool is_over;
    int exit;
};

static int tell_limits(const struct rls_options *options, struct span message)
{
    struct stint_error error;
    int code = rls_message_code(message, &error);
    if (code < 0) {
        print_message("%s: %s", options->link.server, error.message);
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
        print_message("%s: %s", options->link.server,
                      status < 0 ? error.message : "no such status");
        return CMD_BAD_INPUT;
    }
    if (options->json)
        (void)json_text_print(json_pack("{s:s}", "status", names[status]), false);
    else
        puts(names[status]);
    return status == HEALTH_SERVING ? CMD_DONE : CMD_DENIED;
}

static void on_answer(void *arg, const struct rls_answer *answer)
{
    struct one_call *call = arg;
    const struct rls_options *options = call->options;
    call->is_over = true;
    if (answer->grpc_status == GRPC_OK) {
        call->exit = options->mode == RLS_ASK ? tell_limits(options, answer->message)
                                              : tell_health(options, answer->message);
        return;
    }
    const char *name = grpc_status_name(answer->grpc_status);
    print_message("%s: %s%s%s", options->link.server, name, name[0] != '\0' ? ": " : "",
                  answer->status_message);
    call->exit = CMD_BAD_INPUT;
}

static int wait_for_answer(struct rls_client *client, const struct one_call *call,
                           struct stint_error *error)
{
    const struct rls_options *options = call->options;
    uint64_t ends_ns = clock_boot_ns() + options->timeout_ns;
    int code = 0;
    while (!call->is_over && code == 0) {
        uint64_t now_ns = clock_boot_ns();
        if (now_ns >= ends_ns)
            return err_set(error, STINT_E_SYSTEM, "%s: no answer came in time",
                           options->link.server);
        uint64_t wait_ms = (ends_ns - now_ns) / NS_PER_MS + 1;
        struct pollfd fd = {rls_link_fd(client->link), rls_client_events(client), 0};
        if (poll(&fd, 1, wait_ms > INT_MAX ? INT_MAX : (int)wait_ms) < 0 && errno != EINTR)
            return err_set(error, STINT_E_SYSTEM, "poll: %s", strerror(errno));
        code = rls_client_move(client, error);
    }
    return call->is_over ? 0 : code;
}

static int send_evaluation(struct rls_client *client, const struct rls_options *options,
                           struct stint_error *error)
{
    uint8_t health[RLS_HEALTH_SIZE];
    if (options->mode == RLS_HEALTH) {
        size_t len = rls_health_write(health, options->service);
        if (len == 0 && options->service[0] != '\0')
            return err_set(error, STINT_E_RANGE, "the service's name is longer than 255 bytes");
        return rls_session_ask(client->session, RLS_HEALTH_PATH, span_of(health, len),
                               options->timeout_ns, 0, error);
    }
    struct rls_writer *writer = rls_writer_new(&options->evaluation);
    if (writer == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    int code = rls_session_ask(client->session, RLS_PATH, rls_writer_write(writer, 0),
                               options->timeout_ns, 0, error);
    rls_writer_free(writer);
    return code;
}

static int call_once(enum rls_mode mode, int argc, char **argv)
{
    struct rls_options options;
    struct rls_client client;
    struct stint_error error;
    char token[TOKEN_FILE_SPACE];
    rls_options_parse(&options, mode, argc, argv);
    struct one_call call = {.options = &options, .exit = CMD_BAD_INPUT};
    int code = options.token_file != NULL ? token_file_read(options.token_file, token, &error) : 0;
    if (code == 0)
        code = rls_client_open(&client, &options, options.token_file != NULL ? token : NULL,
                               on_answer, &call, &error);
    explicit_bzero(token, sizeof(token));
    if (code != 0) {
        print_message("%s", error.message);
        return code == STINT_E_SYNTAX ? CMD_BAD_USAGE : CMD_BAD_INPUT;
    }
    code = send_evaluation(&client, &options, &error);
    if (code == 0)
        code = wait_for_answer(&client, &call, &error);
    if (code != 0)
        print_message("%s", error.message);
    rls_client_close(&client);
    return call.exit;
}

int rls_ask_main(int argc, char **argv)
{
    return call_once(RLS_ASK, argc, argv);
}

int rls_health_main(int argc, char **argv)
{
    return call_once(RLS_HEALTH, argc, argv);
}
