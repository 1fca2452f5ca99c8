/* SPDX-License-Identifier: MIT */
/* One upstream for each connection. Timers are changed only if they would fire too late. */
#define _GNU_SOURCE
#include "net/upstream/links.h"

#include "base/ns.h"
#include "net/upstream/upstream.h"

#include <assert.h>
#include <stdlib.h>

struct backend_links {
    struct dialer dialer;
    struct backend_links_options options;
    struct router *router;
    uv_timer_t timer;
    uv_idle_t idle;    /* keeps the loop from waiting: it only */
    uv_check_t check;  /* reads, and then the router is woken */
    uint64_t armed_ns; /* STINT_NEVER_NS: the timer is not set */
    unsigned n_open_handles;
};

/* One connection, as the argument of its upstream. */
struct backend_link {
    struct backend_links *home;
    struct upstream *upstream;
    void *arg; /* for router_changed() */
};

static struct backend_links *of(struct dialer *dialer)
{
    return (struct backend_links *)dialer;
}

static uint64_t now(const struct backend_links *links)
{
    return links->options.now != NULL ? links->options.now(links->options.now_arg) : uv_hrtime();
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void on_time(uv_timer_t *timer);

static void arm(struct backend_links *links)
{
    uint64_t at_ns = router_deadline(links->router);
    if (at_ns >= links->armed_ns)
        return;
    uint64_t now_ns = now(links);
    uint64_t wait_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    links->armed_ns = at_ns;
    uv_update_time(links->options.loop);
    uv_timer_start(&links->timer, on_time, (wait_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void on_check(uv_check_t *check)
{
    struct backend_links *links = check->data;
    uv_idle_stop(&links->idle);
    uv_check_stop(check);
    links->armed_ns = STINT_NEVER_NS;
    if (router_deadline(links->router) <= now(links))
        router_wake(links->router, now(links));
    arm(links);
}

/* Replies that came while this thread was delayed came in time: they are read first. */
static void on_time(uv_timer_t *timer)
{
    struct backend_links *links = timer->data;
    uv_idle_start(&links->idle, on_idle);
    uv_check_start(&links->check, on_check);
}

static void op_hurry(struct dialer *dialer)
{
    if (of(dialer)->router != NULL)
        arm(of(dialer));
}

void backend_links_wake(struct dialer *dialer, struct router *router)
{
    of(dialer)->router = router;
    arm(of(dialer));
}

static uint64_t op_now(struct dialer *dialer)
{
    return now(of(dialer));
}

/* ---- Connections ----------------------------------------------------------------------------- */

static uint64_t link_now(void *arg)
{
    const struct backend_link *link = arg;
    return now(link->home);
}

static void on_changed(void *arg)
{
    const struct backend_link *link = arg;
    router_changed(link->arg, now(link->home));
}

static bool op_open(struct dialer *dialer, const struct store_host *host, const char *path,
                    const struct redis_conn_options *options, void *arg, struct dialled *dialled)
{
    struct backend_links *links = of(dialer);
    struct backend_link *link = calloc(1, sizeof(*link));
    struct redis_conn *conn = link != NULL ? redis_conn_new(options) : NULL;
    if (conn == NULL) {
        free(link);
        return false;
    }
    *link = (struct backend_link){.home = links, .arg = arg};
    struct upstream_options upstream = {
        .loop = links->options.loop,
        .path = path,
        .tls = links->options.tls,
        .link = redis_conn_link(conn),
        .now = link_now,
        .changed = on_changed,
        .arg = link,
    };
    if (host != NULL)
        upstream.host = *host;
    link->upstream = upstream_new(&upstream);
    if (link->upstream == NULL) {
        redis_conn_free(conn, now(links));
        free(link);
        return false;
    }
    *dialled = (struct dialled){.conn = conn, .io = link};
    return true;
}

static void op_close(struct dialer *dialer, struct dialled *dialled)
{
    struct backend_link *link = dialled->io;
    (void)dialer;
    upstream_close(link->upstream);
    free(link);
}

static void op_asked(struct dialer *dialer, struct dialled *dialled)
{
    const struct backend_link *link = dialled->io;
    (void)dialer;
    upstream_asked(link->upstream);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct backend_links *links = handle->data;
    if (--links->n_open_handles == 0)
        free(links);
}

static void op_free(struct dialer *dialer)
{
    struct backend_links *links = of(dialer);
    uv_close((uv_handle_t *)&links->timer, on_closed);
    uv_close((uv_handle_t *)&links->idle, on_closed);
    uv_close((uv_handle_t *)&links->check, on_closed);
}

static const struct dialer_ops ops = {
    .now = op_now,
    .open = op_open,
    .close = op_close,
    .asked = op_asked,
    .hurry = op_hurry,
    .free = op_free,
};

struct dialer *backend_links_new(const struct backend_links_options *options)
{
    struct backend_links *links = calloc(1, sizeof(*links));
    if (links == NULL)
        return NULL;
    links->dialer.ops = &ops;
    links->options = *options;
    links->armed_ns = STINT_NEVER_NS;
    uv_timer_init(options->loop, &links->timer);
    uv_idle_init(options->loop, &links->idle);
    uv_check_init(options->loop, &links->check);
    links->timer.data = links->idle.data = links->check.data = links;
    links->n_open_handles = 3;
    return &links->dialer;
}
