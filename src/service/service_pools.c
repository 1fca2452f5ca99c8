/* SPDX-License-Identifier: MIT */
/*
 * Calls on key pools with an id, charged once. The answer is kept in the table as those of requests
 * are (table/requests.h): of the key that was chosen, a hash of its name.
 */
#include "service/service_parts.h"

#include "base/err.h"
#include "limiter/pool.h"

#include <assert.h>

enum { NEXT = 1, GIVE_BACK = 2 }; /* in the fingerprints of calls */

/* One call with an id. */
struct once {
    struct service *service;
    struct service_pool_call *call;
    struct stint_pool *pool; /* set by begin() */
    struct requests_claim claim;
    struct requests_answer answer;
};

/* 0: the call is claimed, or call->replayed is set and the answer is the earlier one. */
static int begin(struct once *once, const struct pool_call_digest *digest, uint64_t now_ns,
                 struct stint_error *error)
{
    assert(service_is_valid(once->service) && digest->id.len > 0);
    const struct server_state *server_state = once->service->server_state;
    int code = pools_in_table(server_state->pools, digest->pool, &once->pool, error);
    if (code != 0)
        return code;
    struct requests_ask ask = {.now_ns = now_ns,
                               .lifetime_ns = server_state->options.id_lifetime_ns};
    request_digest_pool(once->service->table, digest, &ask);
    switch (requests_begin(once->service->table, &ask, &once->claim, &once->answer)) {
    case REQUESTS_NEW:
        return 0;
    case REQUESTS_SAME:
        once->call->replayed = true;
        metrics_event(once->service->metrics, METRICS_REPLAYED, 1);
        return 0;
    case REQUESTS_OTHER_BODY:
        return err_set(error, STINT_E_MISMATCH, SERVICE_ID_OTHER);
    case REQUESTS_BUSY:
        return err_set(error, STINT_E_MISMATCH, SERVICE_ID_BUSY);
    case REQUESTS_NONE:
        break;
    }
    return err_set(error, STINT_E_SYSTEM, SERVICE_ID_NONE);
}

/* ---- NEXT ------------------------------------------------------------------------------------ */

static int next_again(struct once *once, struct stint_pool_answer *answer,
                      struct stint_error *error)
{
    *answer = (struct stint_pool_answer){.name = pool_name_of(once->pool, once->answer.ticket.slot),
                                         .granted_at_ns = once->answer.at_ns,
                                         .probe = once->answer.ticket.nonce != 0,
                                         .decision = once->answer.decision};
    if (answer->name != NULL)
        return 0;
    return err_set(error, STINT_E_GONE, "the key that this id was given is not in the pool");
}

static void record_next(struct once *once, int code, const struct stint_pool_answer *answer)
{
    bool is_kept = code == 0 && answer->name != NULL;
    if (is_kept)
        once->answer = (struct requests_answer){
            .decision = answer->decision,
            .ticket = {.slot = pool_name_hash(once->pool, answer->name), .nonce = answer->probe},
            .at_ns = answer->granted_at_ns,
        };
    requests_end(once->service->table, &once->claim, is_kept ? &once->answer : NULL);
}

int service_pool_next(struct service *service, struct service_pool_call *call,
                      const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
                      struct stint_error *error)
{
    struct pools *pools = service->server_state->pools;
    if (call->id.len == 0)
        return pools_next(pools, call->context, call->pool, ask, answer, error);
    struct once once = {.service = service, .call = call};
    const struct pool_call_digest digest = {
        call->caller, call->pool, call->id, {NULL, 0}, {NEXT, ask->cost, ask->probe}};
    int code = begin(&once, &digest, ask->now_ns, error);
    if (code != 0)
        return code;
    if (call->replayed)
        return next_again(&once, answer, error);
    code = pools_next(pools, call->context, call->pool, ask, answer, error);
    record_next(&once, code, answer);
    return code;
}

/* ---- GIVEBACK -------------------------------------------------------------------------------- */

int service_pool_give_back(struct service *service, struct service_pool_call *call,
                           const struct pools_return *back, uint64_t now_ns, uint32_t *given_back,
                           struct stint_error *error)
{
    struct pools *pools = service->server_state->pools;
    if (call->id.len == 0)
        return pools_give_back(pools, call->context, call->pool, back, now_ns, given_back, error);
    struct once once = {.service = service, .call = call};
    const struct pool_call_digest digest = {call->caller,
                                            call->pool,
                                            call->id,
                                            back->key,
                                            {GIVE_BACK, back->cost, back->granted_at_ns}};
    int code = begin(&once, &digest, now_ns, error);
    if (code == 0 && !call->replayed) {
        code = pools_give_back(pools, call->context, call->pool, back, now_ns,
                               &once.answer.decision.granted, error);
        requests_end(service->table, &once.claim, code == 0 ? &once.answer : NULL);
    }
    *given_back = once.answer.decision.granted;
    return code;
}
