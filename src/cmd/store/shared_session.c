/* SPDX-License-Identifier: MIT */
/* The store connection of a worker, without the worker. */
#define _GNU_SOURCE
#include "cmd/store/shared_session.h"

#include "net/upstream/backends.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

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
