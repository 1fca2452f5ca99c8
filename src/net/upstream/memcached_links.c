/* SPDX-License-Identifier: MIT */
/* One upstream for each server. Freeing the backend frees everything here except handles. */
#define _GNU_SOURCE
#include "net/upstream/links.h"

#include "base/ns.h"
#include "net/upstream/upstream.h"
#include "table/clock.h"

#include <assert.h>
#include <gnutls/crypto.h>
#include <stdlib.h>

#define ASKS_MAX_DEFAULT 4096
#define ASK_BYTES 512 /* of one command, approximately */

struct memcached_links {
    struct memcached_io io;
    struct memcached_links_options options;
    struct backend *store; /* NULL: not made yet, or freed */
    struct memcached_conn *conns[STORE_HOSTS_MAX];
    struct upstream *upstreams[STORE_HOSTS_MAX];
    unsigned n_servers, n_opened;
    uv_timer_t timer;
    uint64_t armed_ns; /* STINT_NEVER_NS: the timer is not set */
};

static struct memcached_links *of(struct memcached_io *io)
{
    return (struct memcached_links *)io;
}

/* ---- Callbacks of the backend ---------------------------------------------------------------- */

static uint64_t io_now(struct memcached_io *io)
{
    const struct memcached_links_options *options = &of(io)->options;
    return options->now != NULL ? options->now(options->now_arg) : uv_hrtime();
}

static uint64_t io_wall(struct memcached_io *io)
{
    const struct memcached_links_options *options = &of(io)->options;
    int64_t wall_ns =
        options->wall != NULL ? (int64_t)options->wall(options->now_arg) : clock_wall_ns();
    return wall_ns > 0 ? (uint64_t)wall_ns : 0;
}

void memcached_links_digest(void *arg, struct span bytes, uint8_t out[MEMCACHED_DIGEST_LEN])
{
    int code = gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes.ptr, bytes.len, out);
    (void)arg;
    if (code != 0) /* keys need this hash, and every server must use the same */
        abort();
}

static void io_asked(struct memcached_io *io, unsigned server)
{
    upstream_asked(of(io)->upstreams[server]);
}

static void io_damaged(struct memcached_io *io, uint64_t states)
{
    const struct memcached_links_options *options = &of(io)->options;
    if (options->damaged != NULL)
        options->damaged(options->arg, states);
}

static void io_skewed(struct memcached_io *io, uint64_t skew_ns)
{
    const struct memcached_links_options *options = &of(io)->options;
    if (options->skewed != NULL)
        options->skewed(options->arg, skew_ns);
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void on_time(uv_timer_t *timer);

static void arm(struct memcached_links *links)
{
    uint64_t at_ns = memcached_backend_deadline(links->store), now_ns = io_now(&links->io);
    if (at_ns >= links->armed_ns)
        return;
    uint64_t wait_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    links->armed_ns = at_ns;
    uv_update_time(links->options.loop);
    uv_timer_start(&links->timer, on_time, (wait_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
}

static void on_time(uv_timer_t *timer)
{
    struct memcached_links *links = timer->data;
    links->armed_ns = STINT_NEVER_NS;
    memcached_backend_wake(links->store, io_now(&links->io));
    arm(links);
}

static void io_hurry(struct memcached_io *io)
{
    arm(of(io));
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static void on_closed(uv_handle_t *timer)
{
    free(timer->data);
}

static void io_close(struct memcached_io *io)
{
    struct memcached_links *links = of(io);
    links->store = NULL;
    for (unsigned i = 0; i < links->n_opened; i++)
        upstream_close(links->upstreams[i]);
    uv_close((uv_handle_t *)&links->timer, on_closed);
}

static const struct memcached_io_ops io_ops = {
    .now = io_now,
    .wall = io_wall,
    .digest = memcached_links_digest,
    .asked = io_asked,
    .hurry = io_hurry,
    .skewed = io_skewed,
    .damaged = io_damaged,
    .close = io_close,
};

/* The upstreams' clock needs an argument of its own. */
static uint64_t upstream_now(void *arg)
{
    struct memcached_links *links = arg;
    return io_now(&links->io);
}

static void on_changed(void *arg)
{
    struct memcached_links *links = arg;
    if (links->store != NULL)
        memcached_backend_changed(links->store, io_now(&links->io));
}

static bool open_server(struct memcached_links *links, unsigned server)
{
    const struct memcached_links_options *options = &links->options;
    struct memcached_conn *conn = memcached_conn_new(&(struct link_options){
        .user = options->url->user,
        .password = options->url->password,
        .connect_ns = options->connect_ns,
        .reply_ns = options->reply_ns,
        .commands_max = 2 * options->asks_max,
        .bytes_max = 2 * ASK_BYTES * options->asks_max,
        .seed = options->seed + server,
    });
    if (conn == NULL)
        return false;
    struct upstream_options upstream = {
        .loop = options->loop,
        .path = options->url->path,
        .tls = options->tls,
        .link = memcached_conn_link(conn),
        .now = upstream_now,
        .changed = on_changed,
        .arg = links,
    };
    if (options->url->n_hosts > 0)
        upstream.host = options->url->hosts[server];
    links->conns[server] = conn;
    links->upstreams[server] = upstream_new(&upstream);
    if (links->upstreams[server] == NULL)
        link_free(upstream.link, 0);
    else
        links->n_opened++;
    return links->upstreams[server] != NULL;
}

static bool open_all(struct memcached_links *links)
{
    for (unsigned i = 0; i < links->n_servers; i++)
        if (!open_server(links, i))
            return false;
    return true;
}

struct backend *memcached_links_new(const struct memcached_links_options *options)
{
    struct memcached_links *links = calloc(1, sizeof(*links));
    if (links == NULL)
        return NULL;
    links->io.ops = &io_ops;
    links->options = *options;
    links->armed_ns = STINT_NEVER_NS;
    if (links->options.asks_max == 0)
        links->options.asks_max = ASKS_MAX_DEFAULT;
    links->n_servers = options->url->n_hosts > 0 ? options->url->n_hosts : 1;
    uv_timer_init(options->loop, &links->timer);
    links->timer.data = links;
    if (open_all(links))
        links->store = memcached_backend_new(&(struct memcached_backend_options){
            .url = options->url,
            .io = &links->io,
            .conns = links->conns,
            .prefix = options->prefix,
            .asks_max = links->options.asks_max,
            .skew_max_ns = options->skew_max_ns,
            .seed = options->seed,
        });
    struct backend *store = links->store;
    if (store == NULL)
        io_close(&links->io);
    return store;
}
