/* SPDX-License-Identifier: MIT */
/* The shared store of a command, used as by a server. */
#define _GNU_SOURCE
#include "cmd/store/shared_session.h"

#include "base/ns.h"
#include "base/wide_int.h"
#include "net/upstream/backends.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

/* ---- The store connection of a worker, without the worker ------------------------------------ */

struct shared_session {
    uv_loop_t loop;
    struct upstream_tls *tls;
    struct store_config config;
    struct stores *stores;
};

static uint64_t read_clock(void *arg)
{
    (void)arg;
    return uv_hrtime();
}

int shared_session_open(struct shared_session **session, const struct store_given *given,
                        const char *prefix, struct stint_error *error)
{
    struct shared_session *made = calloc(1, sizeof(*made));
    if (made == NULL || uv_loop_init(&made->loop) != 0) {
        free(made);
        return err_set(error, STINT_E_SYSTEM, "no memory for a store");
    }
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
    if (code == 0)
        *session = made;
    else
        shared_session_close(made);
    return code;
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

struct backend *shared_session_store(struct shared_session *session)
{
    return stores_all(session->stores)[0];
}

uint64_t shared_session_now_ns(const struct shared_session *session)
{
    (void)session;
    return uv_hrtime();
}

void shared_session_run(struct shared_session *session)
{
    uv_run(&session->loop, UV_RUN_ONCE);
}

uint64_t shared_session_detours(const struct shared_session *session)
{
    const struct router_metrics *metrics = backends_router_metrics(session->stores, 0);
    if (metrics == NULL)
        return 0;
    return atomic_load(&metrics->redirects) + atomic_load(&metrics->retries);
}

/* ---- In virtual time ------------------------------------------------------------------------- */

struct virtual_store {
    struct backend shared;
    struct shared_session *session;
    uint64_t epoch_ns, timeout_ns, spent_ns;
    bool may_have_keys;
};

static struct virtual_store *store_of(struct backend *shared)
{
    return (struct virtual_store *)shared;
}

static struct backend *inner_of(const struct virtual_store *store)
{
    return shared_session_store(store->session);
}

static void take_answer(struct backend_op *op, uint64_t now_ns)
{
    (void)now_ns;
    *(bool *)op->arg = true;
}

static void ask_and_wait(struct virtual_store *store, const struct backend_request *ask,
                         struct backend_op *op)
{
    bool is_answered = false;
    struct backend_op own = {
        .answered = take_answer, .arg = &is_answered, .answer.each = op->answer.each};
    uint64_t begun_ns = uv_hrtime();
    inner_of(store)->ops->ask(inner_of(store), ask, &own);
    while (own.answer.outcome == BACKEND_WAITS && !is_answered)
        shared_session_run(store->session);
    store->spent_ns += uv_hrtime() - begun_ns;
    store->may_have_keys |=
        own.answer.outcome != BACKEND_REFUSED && own.answer.fault != BACKEND_ERROR_UNREACHABLE;
    op->answer = own.answer;
}

static void store_ask(struct backend *shared, const struct backend_request *ask,
                      struct backend_op *op)
{
    struct virtual_store *store = store_of(shared);
    struct backend_item items[BACKEND_ITEMS_MAX];
    struct rule rules[BACKEND_ITEMS_MAX];
    struct backend_request own = *ask;
    if (ask->is_ahead) {
        op->answer.outcome = BACKEND_AHEAD;
        return;
    }
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
    own.now_ns = add_sat(store->epoch_ns, ask->now_ns);
    own.deadline_ns = add_sat(own.now_ns, store->timeout_ns);
    ask_and_wait(store, &own, op);
}

static void store_forget(struct backend *shared, struct backend_op *op)
{
    (void)shared, (void)op; /* no request waits */
}

static int store_accepts(const struct backend *shared, const struct stint_quota *quota,
                         struct stint_error *error)
{
    const struct virtual_store *store = (const struct virtual_store *)shared;
    return inner_of(store)->ops->accepts(inner_of(store), quota, error);
}

static uint64_t store_unavailable_since(const struct backend *shared)
{
    (void)shared;
    return 0;
}

static void store_drain(struct backend *shared, uint64_t deadline_ns, void (*done)(void *arg),
                        void *arg)
{
    (void)shared, (void)deadline_ns;
    done(arg);
}

static void store_free(struct backend *shared)
{
    virtual_store_close(store_of(shared));
}

int virtual_store_open(struct virtual_store **store, const struct store_given *given,
                       const char *prefix, uint64_t epoch_ns, struct stint_error *error)
{
    static const struct backend_ops ops = {
        .ask = store_ask,
        .forget = store_forget,
        .accepts = store_accepts,
        .unavailable_since_ns = store_unavailable_since,
        .drain = store_drain,
        .free = store_free,
    };
    struct virtual_store *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a store");
    *made = (struct virtual_store){
        .shared = {.ops = &ops}, .epoch_ns = epoch_ns, .timeout_ns = given->timeout_ns};
    int code = shared_session_open(&made->session, given, prefix, error);
    if (code == 0)
        *store = made;
    else
        free(made);
    return code;
}

void virtual_store_close(struct virtual_store *store)
{
    if (store == NULL)
        return;
    shared_session_close(store->session);
    free(store);
}

struct backend *virtual_store_shared(struct virtual_store *store)
{
    return &store->shared;
}

bool virtual_store_may_have_keys(const struct virtual_store *store)
{
    return store->may_have_keys;
}

uint64_t virtual_store_ns(const struct virtual_store *store)
{
    return store->spent_ns;
}

uint64_t virtual_store_detours(const struct virtual_store *store)
{
    return shared_session_detours(store->session);
}
