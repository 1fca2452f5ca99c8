/* SPDX-License-Identifier: MIT */
/*
 * ShouldRateLimit of Envoy's rate limit service, on a connection of HTTP/2. Its reply has no field
 * for much of a decision, and figures of its own for the rest: it is compared with what it has to
 * be of the decision that a service made, which is then the result.
 */
#include "behaviour/frontend.h"
#include "behaviour/store.h"
#include "proto/grpc/rls.h"
#include "unit/test_grpc_client.h"

static void *open_grpc(const char *yaml, int64_t epoch_ns)
{
    struct grpc_client *grpc = grpc_open_since(yaml, epoch_ns, NULL, NULL);
    store_give(grpc->s.service);
    return grpc;
}

static void close_grpc(void *frontend)
{
    grpc_close(frontend);
}

static unsigned code_of(const struct metrics *metrics)
{
    return strcmp(metrics->outcome, "allow") == 0 ? RLS_CODE_OK : RLS_OVER_LIMIT;
}

/* A DescriptorStatus: code=1, current_limit=2, limit_remaining=3, duration_until_reset=4. */
static bool is_status(struct span status, const struct metrics *metrics)
{
    struct wire_field field;
    bool has_limit = false, has_reset = false;
    uint64_t remaining = wire_number_of(status, 3);
    if (wire_number_of(status, 1) != code_of(metrics))
        return false;
    while (unwire(&status, &field)) {
        has_limit |= field.field == 2;
        has_reset |= field.field == 4;
    }
    if (metrics->limit == METRIC_NONE)
        return !has_limit && !has_reset && (remaining == 0 || remaining == RLS_UNLIMITED);
    /* What is denied and will be allowed once has a time; what never will has none. */
    if (strcmp(metrics->outcome, "allow") != 0 &&
        has_reset != (strcmp(metrics->outcome, "deny") == 0))
        return false;
    return has_limit && remaining == (uint64_t)metrics->remaining;
}

static bool is_response(struct span response, const struct result *result)
{
    struct wire_field field;
    size_t n = 0;
    if (wire_number_of(response, 1) != code_of(&result->all))
        return false;
    while (unwire(&response, &field))
        if (field.field == 2 &&
            (n >= result->n_statuses || !is_status(field.bytes, &result->statuses[n++])))
            return false;
    return n == result->n_statuses;
}

/* The bytes of the reply, for the message of a failure. */
static void write_reply(struct result *result, const struct heard *heard)
{
    size_t at = (size_t)snprintf(result->reply, sizeof(result->reply),
                                 "status %d %s:", heard->status, heard->message);
    for (size_t i = 0; i < heard->len && at < sizeof(result->reply) - 4; i++)
        at += (size_t)snprintf(result->reply + at, sizeof(result->reply) - at, " %02x",
                               heard->data[i]);
}

/* ShouldRateLimit knows takes of descriptors; hits of a descriptor are Envoy's. */
static bool has_words(const struct request *request)
{
    bool has = request->verb == REQUEST_TAKE && request->n_items == 0 && request->id.len == 0;
    for (size_t i = 0; i < request->n_descriptors; i++)
        has &= request->descriptors[i].override == NULL &&
               request->descriptors[i].has_hits == request->has_envoy_hits;
    return has;
}

/* A cost of 0 is a check there, of whether a unit is left: it takes nothing. */
static bool decide_as_envoy(void *beside, const struct request *request, uint64_t now_ns,
                            struct result *expected)
{
    struct descriptor descriptors[STINT_ITEMS_MAX];
    struct request check = *request;
    for (size_t i = 0; i < request->n_descriptors; i++) {
        descriptors[i] = request->descriptors[i];
        descriptors[i].has_hits = true;
    }
    check.descriptors = descriptors;
    check.has_envoy_hits = true;
    return service_decide(beside, &check, now_ns, expected);
}

static bool decide_grpc(void *frontend, void *beside, const struct request *request,
                        uint64_t now_ns, const struct result *exact, struct result *result)
{
    struct grpc_client *grpc = frontend;
    struct wire message;
    struct result expected = *exact;
    if (!has_words(request))
        return service_decide(&grpc->s, request, now_ns, result);
    if (request->cost == 0 && !request->has_envoy_hits &&
        !decide_as_envoy(beside, request, now_ns, &expected))
        return false;
    *result = *exact;
    grpc->s.now_ns = now_ns;
    struct heard *heard = call_path(grpc, SHOULD_RATE_LIMIT, wire_of_request(&message, request));
    exchange(grpc);
    write_reply(result, heard);
    bool is_right = heard->status == GRPC_OK && is_response(message_of(heard), &expected);
    forget_calls(grpc);
    return is_right;
}

const struct frontend frontend_grpc = {"grpc", open_grpc, decide_grpc, close_grpc};
