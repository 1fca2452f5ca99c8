/* SPDX-License-Identifier: MIT */
/* The store connection of a worker, without the worker. */
#define _GNU_SOURCE
#include "cmd/store/shared_session.h"

#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- One request after the other ------------------------------------------------------------- */

static void take_answer(struct backend_op *op, uint64_t now_ns)
{
    (void)now_ns;
    *(bool *)op->arg = true;
}

static void ask_and_wait(struct shared_session *session, const struct backend_request *ask,
                         struct backend_op *op)
{
    bool is_answered = false;
    struct backend_op own = {
        .answered = take_answer, .arg = &is_answered, .answer.each = op->answer.each};
    uint64_t begun_ns = uv_hrtime();
    session->store->ops->ask(session->store, ask, &own);
    while (own.answer.outcome == BACKEND_WAITS && !is_answered)
        shared_session_run(session);
    session->spent_ns += uv_hrtime() - begun_ns;
    shared_session_note(session, &own.answer);
    if (own.answer.outcome != BACKEND_DECIDED && session->why == NULL)
        session->why = own.answer.error;
    op->answer = own.answer;
}

/* Leases end by the store's clock, and not in virtual time. */
static void ask_virtual(struct shared_session *session, const struct backend_request *ask,
                        struct backend_op *op)
{
    struct backend_item items[BACKEND_ITEMS_MAX];
    struct rule rules[BACKEND_ITEMS_MAX];
    struct backend_request own = *ask;
    for (size_t i = 0; i < ask->n_items; i++) {
        items[i] = ask->items[i];
        if (items[i].rule == NULL || items[i].rule->store.lease == RULE_LEASE_NONE)
            continue;
        rules[i] = *items[i].rule;
        rules[i].store.lease = RULE_LEASE_NONE;
        items[i].rule = &rules[i];
    }
    own.items = items;
    own.is_virtual = true;
    own.now_ns = add_sat(session->epoch_ns, ask->now_ns);
    own.deadline_ns = add_sat(own.now_ns, session->timeout_ns);
    ask_and_wait(session, &own, op);
}

static void blocking_ask(struct backend *blocking, const struct backend_request *ask,
                         struct backend_op *op)
{
    struct shared_session *session = (struct shared_session *)blocking;
    if (ask->is_ahead)
        op->answer.outcome = BACKEND_AHEAD;
    else if (session->epoch_ns == SHARED_SESSION_REAL_TIME)
        ask_and_wait(session, ask, op);
    else
        ask_virtual(session, ask, op);
}

static void blocking_forget(struct backend *blocking, struct backend_op *op)
{
    (void)blocking, (void)op; /* no request waits */
}

static int blocking_accepts(const struct backend *blocking, const struct stint_quota *quota,
                            struct stint_error *error)
{
    const struct shared_session *session = (const struct shared_session *)blocking;
    return session->store->ops->accepts(session->store, quota, error);
}

static uint64_t blocking_unavailable_since(const struct backend *blocking)
{
    (void)blocking;
    return 0;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static uint64_t read_clock(void *arg)
{
    (void)arg;
    return uv_hrtime();
}

int shared_session_open(struct shared_session **session, const struct store_given *given,
                        const char *prefix, uint64_t epoch_ns, struct stint_error *error)
{
    static const struct backend_ops ops = {
        .ask = blocking_ask,
        .forget = blocking_forget,
        .accepts = blocking_accepts,
        .unavailable_since_ns = blocking_unavailable_since,
    };
    struct shared_session *made = calloc(1, sizeof(*made));
    if (made == NULL || uv_loop_init(&made->loop) != 0) {
        free(made);
        return err_set(error, STINT_E_SYSTEM, "no memory for a store");
    }
    made->blocking.ops = &ops;
    made->epoch_ns = epoch_ns;
    made->timeout_ns = given->timeout_ns;
    int code = store_given_tls(given, &made->tls, error);
    made->config = (struct store_config){.url = given->url,
                                         .tls = made->tls,
                                         .prefix = prefix,
                                         .without_front = true,
                                         .reply_ns = given->timeout_ns,
                                         .connect_ns = given->timeout_ns};
    const struct stores_options options = {.loop = &made->loop,
                                           .configs = &made->config,
                                           .n_configs = 1,
                                           .now = read_clock,
                                           .seed = uv_hrtime() ^ (uint64_t)getpid() << 32};
    if (code == 0)
        code = stores_open(&made->stores, &options, error);
    if (code != 0) {
        shared_session_close(made);
        return code;
    }
    made->store = stores_all(made->stores)[0];
    *session = made;
    return 0;
}

void shared_session_close(struct shared_session *session)
{
    if (session == NULL)
        return;
    stores_close(session->stores);
    uv_run(&session->loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&session->loop);
    assert(left == 0);
    (void)left;
    upstream_tls_free(session->tls);
    free(session);
}

/* ---- Use ------------------------------------------------------------------------------------- */

void shared_session_run(struct shared_session *session)
{
    uv_run(&session->loop, UV_RUN_ONCE);
}

void shared_session_note(struct shared_session *session, const struct backend_answer *answer)
{
    session->may_have_keys |=
        answer->outcome != BACKEND_REFUSED && answer->fault != BACKEND_ERROR_UNREACHABLE;
}

uint64_t shared_session_detours(const struct shared_session *session)
{
    const struct router_metrics *metrics = backends_router_metrics(session->stores, 0);
    if (metrics == NULL)
        return 0;
    return atomic_load(&metrics->redirects) + atomic_load(&metrics->retries);
}
