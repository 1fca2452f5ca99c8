/* SPDX-License-Identifier: MIT */
/*
 * ShouldRateLimit of Envoy's rate limit service, on a connection of HTTP/2. Its answer has no room
 * for all that other frontends tell, and figures of its own for the rest: what it says is held
 * against what it has to say of the decision, and the decision is then told in its place.
 */
#include "behaviour/frontend.h"
#include "behaviour/store.h"
#include "proto/grpc/rls.h"
#include "unit/calling.h"

struct talk_of_grpc {
    struct calling *calling;
    void *service; /* of the same rules: what the answer leaves out */
};

static void *open_grpc(const char *yaml, int64_t epoch_ns)
{
    struct talk_of_grpc *talk = malloc(sizeof(*talk));
    assert_non_null(talk);
    talk->calling = call_since(yaml, epoch_ns, NULL, NULL);
    store_give(talk->calling->s.service);
    talk->service = frontend_service.open(yaml, epoch_ns);
    return talk;
}

static void close_grpc(void *frontend)
{
    struct talk_of_grpc *talk = frontend;
    frontend_service.close(talk->service);
    call_no_more(talk->calling);
    free(talk);
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
    if (metrics->limit == TOLD_NONE)
        return !has_limit && !has_reset && (remaining == 0 || remaining == RLS_UNLIMITED);
    /* What is denied and will be allowed once has a time; what never will has none. */
    if (strcmp(metrics->outcome, "allow") != 0 &&
        has_reset != (strcmp(metrics->outcome, "deny") == 0))
        return false;
    return has_limit && remaining == (uint64_t)metrics->remaining;
}

static bool is_response(struct span response, const struct told *told)
{
    struct wire_field field;
    size_t n = 0;
    if (wire_number_of(response, 1) != code_of(&told->all))
        return false;
    while (unwire(&response, &field))
        if (field.field == 2 &&
            (n >= told->n_statuses || !is_status(field.bytes, &told->statuses[n++])))
            return false;
    return n == told->n_statuses;
}

/* What was answered, for whoever reads of a failure. */
static void write_answer(struct told *told, const struct heard *heard)
{
    size_t at = (size_t)snprintf(told->answer, sizeof(told->answer), "status %d %s:", heard->status,
                                 heard->message);
    for (size_t i = 0; i < heard->len && at < sizeof(told->answer) - 4; i++)
        at +=
            (size_t)snprintf(told->answer + at, sizeof(told->answer) - at, " %02x", heard->data[i]);
}

/* What the answer is held against: a cost of 0 is a check there, of whether a unit is left. */
static bool ask_as_envoy(struct talk_of_grpc *talk, const struct request *request, uint64_t now_ns,
                         struct told *told)
{
    struct descriptor descriptors[STINT_ITEMS_MAX];
    struct request check = *request;
    for (size_t i = 0; i < request->n_descriptors; i++) {
        descriptors[i] = request->descriptors[i];
        descriptors[i].has_hits = true;
    }
    check.descriptors = descriptors;
    check.has_envoy_hits = true;
    return frontend_service.ask(talk->service, request->cost == 0 ? &check : request, now_ns, told);
}

static bool ask_grpc(void *frontend, const struct request *request, uint64_t now_ns,
                     struct told *told)
{
    struct talk_of_grpc *talk = frontend;
    struct calling *calling = talk->calling;
    struct wire message;
    struct told expected;
    if (!ask_as_envoy(talk, request, now_ns, &expected) ||
        (request->cost == 0 && !frontend_service.ask(talk->service, request, now_ns, told)))
        return false;
    if (request->cost > 0)
        *told = expected;
    calling->s.now_ns = now_ns;
    struct heard *heard = call_path(calling, SHOULD_RATE_LIMIT, wire_of_request(&message, request));
    exchange(calling);
    write_answer(told, heard);
    bool is_right = heard->status == GRPC_OK && is_response(message_of(heard), &expected);
    forget_calls(calling);
    return is_right;
}

const struct frontend frontend_grpc = {"grpc", open_grpc, ask_grpc, close_grpc};
