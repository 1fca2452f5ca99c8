/* SPDX-License-Identifier: MIT */
/* One unary call of gRPC: a POST over HTTP/2, whose status is a field of the answer's trailers. */
#define _GNU_SOURCE
#include "cmd/rls/rls.h"

#include "base/ns.h"
#include "base/wide_int.h"
#include "proto/grpc/grpc.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define TIMEOUT_MS_MAX 99999999 /* eight digits: more than a day */

/* ---- What comes back ------------------------------------------------------------------------- */

/* %XX is one byte, as it was meant. */
static void read_reason(char reason[STINT_ERROR_MAX], struct span value)
{
    size_t n = 0;
    for (size_t i = 0; i < value.len && n + 1 < STINT_ERROR_MAX; n++) {
        unsigned byte = value.ptr[i++];
        if (byte == '%' && value.len - i >= 2 && isxdigit(value.ptr[i]) != 0 &&
            isxdigit(value.ptr[i + 1]) != 0) {
            const char digits[] = {(char)value.ptr[i], (char)value.ptr[i + 1], '\0'};
            byte = (unsigned)strtoul(digits, NULL, 16);
            i += 2;
        }
        reason[n] = (char)byte;
    }
    reason[n] = '\0';
}

static int read_status(struct span value)
{
    int status = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9' || i == 3)
            return -1;
        status = status * 10 + (value.ptr[i] - '0');
    }
    return value.len > 0 ? status : -1;
}

static bool is_refused(const struct rls_answer *answer)
{
    return answer->grpc_status > GRPC_OK;
}

/*
 * A head that refuses the call is the whole answer, even where the request is not yet sent. OK is
 * for trailers to say: an answer may be cut short before them.
 */
static bool on_field(void *arg, struct span name, struct span value)
{
    struct rls_answer *answer = arg;
    if (span_equals(name, "grpc-status"))
        answer->grpc_status = read_status(value);
    else if (span_equals(name, "grpc-message"))
        read_reason(answer->reason, value);
    else if (name.len == 0 && !is_refused(answer))
        answer->grpc_status = -1;
    return name.len > 0 || !is_refused(answer);
}

/* The one message of an answer; what is none is an error of the server's. */
static void read_message(struct rls_answer *answer, struct span body)
{
    struct grpc_frame frame = {.is_compressed = false};
    struct stint_error error;
    int len = grpc_frame_read(body, CLIENT_ANSWER_MAX, &frame, &error);
    if (len > 0 && (size_t)len == body.len && !frame.is_compressed) {
        answer->message = frame.message;
        return;
    }
    answer->grpc_status = GRPC_INTERNAL;
    snprintf(answer->reason, sizeof(answer->reason),
             "the answer is not one message that was not compressed");
}

/* ---- A call ---------------------------------------------------------------------------------- */

/* Compressed answers are not asked for. */
static int open_client(const struct rls_options *options, struct rls_answer *answer,
                       struct stint_error *error)
{
    char timeout[sizeof("grpc-timeout: m") + 8];
    const char *const fields[] = {"Content-Type: application/grpc", "TE: trailers", timeout,
                                  "Accept:", NULL};
    struct client_options with = options->client;
    uint64_t timeout_ns = with.timeout_ns > 0 ? with.timeout_ns : CLIENT_TIMEOUT_NS_DEFAULT;
    uint64_t timeout_ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0);
    snprintf(timeout, sizeof(timeout), "grpc-timeout: %um",
             (unsigned)min_u64(timeout_ms, TIMEOUT_MS_MAX));
    with.is_http2 = true;
    with.fields = fields;
    with.on_field = on_field;
    with.on_field_arg = answer;
    return client_open(&answer->client, &with, error);
}

int rls_client_call(const struct rls_options *options, const char *path, struct span request,
                    struct rls_answer *answer, struct stint_error *error)
{
    struct client_answer told;
    *answer = (struct rls_answer){.grpc_status = -1};
    int code = open_client(options, answer, error);
    if (code == 0)
        code = client_post(answer->client, path, request, 0, &told, error);
    if (code == STINT_E_MISMATCH)
        return err_set(error, code,
                       "%s is another host: the token would go there unencrypted; expected --tls, "
                       "or --insecure",
                       options->server);
    if (is_refused(answer))
        return 0;
    if (code != 0)
        return code;
    if (answer->grpc_status == GRPC_OK)
        read_message(answer, told.body);
    else
        snprintf(answer->reason, sizeof(answer->reason), "HTTP status %d, and none of gRPC",
                 told.status);
    return 0;
}

void rls_client_release(struct rls_answer *answer)
{
    client_close(answer->client);
    answer->client = NULL;
}
