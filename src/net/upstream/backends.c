/* SPDX-License-Identifier: MIT */
/* Each chain is made from its end: a layer owns the next one. */
#define _GNU_SOURCE
#include "net/upstream/backends.h"

#include "backend/front/lease.h"
#include "backend/memcached/memcached_state.h"
#include "backend/redis/pool_backend.h"
#include "backend/redis/redis_backend.h"
#include "backend/script/script.h"
#include "backend/store_key.h"
#include "base/err.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "table/clock.h"

#include <gnutls/crypto.h>
#include <stddef.h>
#include <stdlib.h>

#define TICK_MS 1000
/*
 * A few consecutive callers may all wait for a master that has failed, while the other masters
 * work: each of them waits as long as a reply may take.
 */
#define QUIET_REPLIES 4
#define UNAVAILABLE_REPORTED_NS NS_PER_S /* shorter outages are not reported */
#define ASKS_MAX_DEFAULT 4096
#define ASK_BYTES 512 /* of one command of memcached, approximately */

/* One configured store, with its sockets and the timer that wakes its layers. */
struct chain {
    struct dialer dialer;   /* first; of Redis */
    struct memcached_io io; /* of memcached */
    struct stores *home;
    const struct store_config *config;
    /* The end of the chain; the other is NULL. */
    struct backend *redis, *memcached;
    struct backend *lease; /* NULL: no lease layer */
    struct backend *front; /* NULL: no front */
    bool is_reported_unavailable;
    struct memcached_conn *conns[STORE_HOSTS_MAX]; /* to each server of memcached */
    struct upstream *upstreams[STORE_HOSTS_MAX];   /* the same */
    uv_timer_t timer;
    uv_idle_t idle;    /* keeps the loop from waiting: it only */
    uv_check_t check;  /* reads, and then the layers are woken */
    uint64_t armed_ns; /* STINT_NEVER_NS: the timer is not set */
};

struct stores {
    struct stores_options options;
    struct chain chains[STORES_MAX];
    struct backend *all[STORES_MAX]; /* the front of each chain */
    size_t n_stores, n_draining;
    uv_timer_t tick;
    unsigned n_open_handles;
    void (*drained)(void *arg);
    void *drained_arg;
};

static uint64_t now(const struct stores *stores)
{
    return stores->options.now != NULL ? stores->options.now(stores->options.now_arg) : uv_hrtime();
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void on_time(uv_timer_t *timer);

static uint64_t last_deadline(const struct chain *chain)
{
    return chain->redis != NULL       ? router_deadline(redis_backend_router(chain->redis))
           : chain->memcached != NULL ? memcached_backend_deadline(chain->memcached)
                                      : STINT_NEVER_NS;
}

/* The timer is changed only if it would fire too late. */
static void arm(void *arg)
{
    struct chain *chain = arg;
    uint64_t at_ns = last_deadline(chain), now_ns = now(chain->home);
    if (chain->lease != NULL)
        at_ns = min_u64(at_ns, lease_deadline(chain->lease));
    if (at_ns >= chain->armed_ns)
        return;
    chain->armed_ns = at_ns;
    uv_update_time(chain->home->options.loop);
    uv_timer_start(&chain->timer, on_time, (sub_floor(at_ns, now_ns) + NS_PER_MS - 1) / NS_PER_MS,
                   0);
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void on_check(uv_check_t *check)
{
    struct chain *chain = check->data;
    uint64_t now_ns = now(chain->home);
    uv_idle_stop(&chain->idle);
    uv_check_stop(check);
    chain->armed_ns = STINT_NEVER_NS;
    if (last_deadline(chain) <= now_ns && chain->redis != NULL)
        router_wake(redis_backend_router(chain->redis), now_ns);
    else if (last_deadline(chain) <= now_ns)
        memcached_backend_wake(chain->memcached, now_ns);
    if (chain->lease != NULL && lease_deadline(chain->lease) <= now_ns)
        lease_wake(chain->lease, now_ns);
    arm(chain);
}

/* Replies that came while this thread was delayed came in time: they are read first. */
static void on_time(uv_timer_t *timer)
{
    struct chain *chain = timer->data;
    uv_idle_start(&chain->idle, on_idle);
    uv_check_start(&chain->check, on_check);
}

static void open_handles(struct chain *chain)
{
    uv_loop_t *loop = chain->home->options.loop;
    uv_timer_init(loop, &chain->timer);
    uv_idle_init(loop, &chain->idle);
    uv_check_init(loop, &chain->check);
    chain->timer.data = chain->idle.data = chain->check.data = chain;
    chain->armed_ns = STINT_NEVER_NS;
    chain->home->n_open_handles += 3;
}

static void on_closed(uv_handle_t *handle)
{
    struct chain *chain = handle->data;
    if (--chain->home->n_open_handles == 0)
        free(chain->home);
}

static void close_handles(struct chain *chain)
{
    uv_close((uv_handle_t *)&chain->timer, on_closed);
    uv_close((uv_handle_t *)&chain->idle, on_closed);
    uv_close((uv_handle_t *)&chain->check, on_closed);
}

static struct upstream *open_upstream(const struct chain *chain, struct upstream_options options)
{
    options.loop = chain->home->options.loop;
    options.tls = chain->config->url.is_tls ? chain->config->tls : NULL;
    options.now = chain->home->options.now;
    options.now_arg = chain->home->options.now_arg;
    return upstream_new(&options);
}

/* ---- Redis: one upstream for each connection of its router ----------------------------------- */

static struct chain *of_dialer(struct dialer *dialer)
{
    return (struct chain *)dialer;
}

static uint64_t dialer_now(struct dialer *dialer)
{
    return now(of_dialer(dialer)->home);
}

static bool dialer_open(struct dialer *dialer, const struct store_host *host, const char *path,
                        const struct redis_conn_options *options, void *arg,
                        struct dialled *dialled)
{
    struct redis_conn *conn = redis_conn_new(options);
    if (conn == NULL)
        return false;
    struct upstream *upstream = open_upstream(
        of_dialer(dialer), (struct upstream_options){
                               .host = host != NULL ? *host : (struct store_host){.port = 0},
                               .path = path,
                               .link = redis_conn_link(conn),
                               .changed = router_changed,
                               .arg = arg,
                           });
    if (upstream == NULL)
        redis_conn_free(conn, dialer_now(dialer));
    *dialled = (struct dialled){.conn = conn, .io = upstream};
    return upstream != NULL;
}

static void dialer_close(struct dialer *dialer, struct dialled *dialled)
{
    (void)dialer;
    upstream_close(dialled->io);
}

static void dialer_asked(struct dialer *dialer, struct dialled *dialled)
{
    (void)dialer;
    upstream_asked(dialled->io);
}

static void dialer_hurry(struct dialer *dialer)
{
    arm(of_dialer(dialer));
}

static void dialer_free(struct dialer *dialer)
{
    of_dialer(dialer)->redis = NULL;
}

static const struct dialer_ops dialer_ops = {
    .now = dialer_now,
    .open = dialer_open,
    .close = dialer_close,
    .asked = dialer_asked,
    .hurry = dialer_hurry,
    .free = dialer_free,
};

static struct backend *new_redis(struct chain *chain, uint64_t seed)
{
    const struct store_config *config = chain->config;
    chain->dialer.ops = &dialer_ops;
    chain->redis = redis_backend_new(&(struct redis_backend_options){
        .router = {.url = &config->url,
                   .dialer = &chain->dialer,
                   .reply_ns = config->reply_ns,
                   .connect_ns = config->connect_ns,
                   .asks_max = config->asks_max,
                   .seed = seed},
        .prefix = config->prefix,
    });
    if (chain->redis != NULL)
        arm(chain);
    return chain->redis;
}

/* ---- memcached: one upstream for each server ------------------------------------------------- */

static struct chain *of_io(struct memcached_io *io)
{
    return (struct chain *)(void *)((char *)io - offsetof(struct chain, io));
}

static uint64_t io_now(struct memcached_io *io)
{
    return now(of_io(io)->home);
}

static uint64_t io_wall(struct memcached_io *io)
{
    const struct stores_options *options = &of_io(io)->home->options;
    int64_t wall_ns = options->wall != NULL ? (int64_t)options->wall() : clock_wall_ns();
    return wall_ns > 0 ? (uint64_t)wall_ns : 0;
}

void stores_digest(void *arg, struct span bytes, uint8_t out[MEMCACHED_DIGEST_LEN])
{
    int code = gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes.ptr, bytes.len, out);
    (void)arg;
    if (code != 0) /* keys need this hash, and every server must use the same */
        abort();
}

static void io_asked(struct memcached_io *io, unsigned server)
{
    upstream_asked(of_io(io)->upstreams[server]);
}

static void io_hurry(struct memcached_io *io)
{
    arm(of_io(io));
}

static void io_skewed(struct memcached_io *io, uint64_t skew_ns)
{
    const struct stores_options *options = &of_io(io)->home->options;
    if (options->skewed != NULL)
        options->skewed(options->skewed_arg, skew_ns);
}

static void io_damaged(struct memcached_io *io, uint64_t states)
{
    const struct stores_options *options = &of_io(io)->home->options;
    if (options->damaged != NULL)
        options->damaged(options->skewed_arg, states);
}

static void io_close(struct memcached_io *io)
{
    struct chain *chain = of_io(io);
    chain->memcached = NULL;
    for (unsigned i = 0; i < STORE_HOSTS_MAX; i++)
        upstream_close(chain->upstreams[i]);
}

static const struct memcached_io_ops io_ops = {
    .now = io_now,
    .wall = io_wall,
    .digest = stores_digest,
    .asked = io_asked,
    .hurry = io_hurry,
    .skewed = io_skewed,
    .damaged = io_damaged,
    .close = io_close,
};

static void on_changed(void *arg, uint64_t now_ns)
{
    const struct chain *chain = arg;
    if (chain->memcached != NULL)
        memcached_backend_changed(chain->memcached, now_ns);
}

static bool open_server(struct chain *chain, unsigned server, size_t asks_max, uint64_t seed)
{
    const struct store_url *url = &chain->config->url;
    struct memcached_conn *conn = memcached_conn_new(&(struct link_options){
        .user = url->user,
        .password = url->password,
        .connect_ns = chain->config->connect_ns,
        .reply_ns = chain->config->reply_ns,
        .commands_max = 2 * asks_max,
        .bytes_max = 2 * ASK_BYTES * asks_max,
        .seed = seed,
    });
    if (conn == NULL)
        return false;
    chain->conns[server] = conn;
    chain->upstreams[server] =
        open_upstream(chain, (struct upstream_options){
                                 .host = url->hosts[server], /* no name: the Unix socket */
                                 .path = url->path,
                                 .link = memcached_conn_link(conn),
                                 .changed = on_changed,
                                 .arg = chain,
                             });
    if (chain->upstreams[server] == NULL)
        link_free(memcached_conn_link(conn), 0);
    return chain->upstreams[server] != NULL;
}

static struct backend *new_memcached(struct chain *chain, uint64_t seed)
{
    const struct store_config *config = chain->config;
    size_t asks_max = config->asks_max > 0 ? config->asks_max : ASKS_MAX_DEFAULT;
    unsigned n_servers = config->url.n_hosts > 0 ? config->url.n_hosts : 1, i = 0;
    chain->io.ops = &io_ops;
    while (i < n_servers && open_server(chain, i, asks_max, seed + i))
        i++;
    if (i == n_servers)
        chain->memcached = memcached_backend_new(&(struct memcached_backend_options){
            .url = &config->url,
            .io = &chain->io,
            .conns = chain->conns,
            .prefix = config->prefix,
            .asks_max = asks_max,
            .seed = seed,
        });
    if (chain->memcached == NULL)
        io_close(&chain->io);
    return chain->memcached;
}

static uint64_t failovers(void *arg)
{
    const struct chain *chain = arg;
    if (chain->memcached != NULL)
        return atomic_load_explicit(&memcached_backend_metrics(chain->memcached)->restarts,
                                    memory_order_relaxed);
    return atomic_load_explicit(&redis_backend_metrics(chain->redis)->failovers,
                                memory_order_relaxed);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static uint64_t chain_now(void *arg)
{
    return now(((const struct chain *)arg)->home);
}

/* 0: none is cached. */
static uint64_t deny_cache_max_ns(const struct store_config *config)
{
    if (config->denials == 0)
        return 0;
    return config->deny_cache_max_ns > 0 ? config->deny_cache_max_ns : NS_PER_S;
}

static struct backend *new_lease(struct chain *chain, struct backend_metrics *metrics)
{
    const uint64_t *secret = chain->home->options.secret;
    chain->lease = lease_new(&(struct lease_options){
        .inner = chain->front,
        .now = chain_now,
        .hurry = arm,
        .arg = chain,
        .secret = {secret[0], secret[1]},
        .keys = chain->config->lease_keys,
        .denied_max_ns = deny_cache_max_ns(chain->config),
        .waiting = chain->config->asks_max,
        .metrics = metrics,
    });
    return chain->lease;
}

static struct backend *new_front(struct chain *chain, struct backend *inner,
                                 struct backend_metrics *metrics)
{
    const struct store_config *config = chain->config;
    const uint64_t *secret = chain->home->options.secret;
    struct breaker_options breaker = config->breaker;
    if (breaker.quiet_ns == 0)
        breaker.quiet_ns =
            QUIET_REPLIES * (config->reply_ns > 0 ? config->reply_ns : LINK_REPLY_NS);
    chain->front = front_new(&(struct front_options){
        .inner = inner,
        .breaker = breaker,
        .denials = config->denials,
        .deny_cache_max_ns = deny_cache_max_ns(config),
        .secret = {secret[0], secret[1]},
        .failover_policy = config->failover_policy,
        .failovers = failovers,
        .arg = chain,
        .metrics = metrics,
    });
    return chain->front;
}

/* The layers of one store, from the last to the first. NULL: no memory. */
static struct backend *stores_chain(struct stores *stores, size_t index)
{
    struct chain *chain = &stores->chains[index];
    struct backend_metrics *metrics = stores->options.metrics[index];
    uint64_t seed = stores->options.seed + index;
    chain->home = stores;
    chain->config = &stores->options.configs[index];
    open_handles(chain);
    bool is_memcached = chain->config->url.kind == STORE_MEMCACHED;
    struct backend *last = is_memcached ? new_memcached(chain, seed) : new_redis(chain, seed);
    if (last == NULL || chain->config->without_front)
        return last;
    if (new_front(chain, last, metrics) == NULL) {
        last->ops->free(last);
        return NULL;
    }
    /*
     * Leases need scripts, which memcached lacks. They come before the front: leased units are also
     * granted while the front lets no request through.
     */
    if (is_memcached || new_lease(chain, metrics) != NULL)
        return is_memcached ? chain->front : chain->lease;
    chain->front->ops->free(chain->front);
    return NULL;
}

int stores_accept(const struct store_config *config, const struct rule *rule,
                  const struct stint_quota *quota, struct stint_error *error)
{
    bool is_memcached = config->url.kind == STORE_MEMCACHED;
    if (is_memcached && rule->store.lease != RULE_LEASE_NONE)
        return err_set(error, STINT_E_MISMATCH, "memcached has no scripts, and so no leases");
    return is_memcached ? memcached_state_accepts(quota, error) : script_accepts(quota, error);
}

int stores_pool_list(const struct store_config *config, const struct backend_pool_definition *given,
                     struct backend_pool_list **list, struct stint_error *error)
{
    if (config->url.kind == STORE_MEMCACHED)
        return err_set(error, STINT_E_MISMATCH,
                       "memcached has no scripts, and so no pools of keys");
    return redis_backend_pool_list(config->prefix, given, list, error);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static void show_metrics(struct chain *chain, struct backend_metrics *metrics)
{
    backend_metric_set(&metrics->failovers, failovers(chain));
    if (chain->memcached == NULL)
        return;
    const struct memcached_metrics *from = memcached_backend_metrics(chain->memcached);
    backend_metric_set(&metrics->conflicts, from->conflicts);
    backend_metric_set(&metrics->busy, from->busy);
    backend_metric_set(&metrics->damaged, from->damaged);
    backend_metric_set(&metrics->expired_floor, from->expired_floor);
    backend_metric_set(&metrics->expired_release, from->expired_release);
    backend_metric_set(&metrics->expiry_kept_units, from->expiry_kept_units);
    backend_metric_set(&metrics->tickets_dropped, from->tickets_dropped);
    backend_metric_set(&metrics->clock_skew_ns, from->skew_ns);
}

/* The last connection error; "" if there was none. */
static const char *fault_of(const struct chain *chain)
{
    return chain->redis != NULL ? redis_backend_error(chain->redis)
                                : memcached_backend_fault(chain->memcached);
}

/* Reports an outage, and its end once a request shows it. */
static void tell_unavailable(struct stores *stores, size_t index)
{
    struct chain *chain = &stores->chains[index];
    const struct backend *last = chain->redis != NULL ? chain->redis : chain->memcached;
    const struct backend *shown = chain->front != NULL ? chain->front : last;
    uint64_t since_ns = shown->ops->unavailable_since_ns(shown);
    bool is_unavailable =
        since_ns != 0 && (chain->is_reported_unavailable ||
                          sub_floor(now(stores), since_ns) >= UNAVAILABLE_REPORTED_NS);
    if (is_unavailable == chain->is_reported_unavailable)
        return;
    chain->is_reported_unavailable = is_unavailable;
    const char *why =
        last->ops->unavailable_since_ns(last) != 0 ? fault_of(chain) : front_error(chain->front);
    stores->options.unavailable(stores->options.unavailable_arg, index,
                                is_unavailable ? why : NULL);
}

static void on_second(uv_timer_t *tick)
{
    struct stores *stores = tick->data;
    for (size_t i = 0; i < stores->n_stores; i++) {
        struct chain *chain = &stores->chains[i];
        if (chain->front != NULL)
            front_tick(chain->front, now(stores));
        if (stores->options.metrics[i] != NULL)
            show_metrics(chain, stores->options.metrics[i]);
        if (stores->options.unavailable != NULL)
            tell_unavailable(stores, i);
    }
}

static int refuse(const struct store_config *config, struct stint_error *error)
{
    bool is_memcached = config->url.kind == STORE_MEMCACHED;
    size_t prefix_max = is_memcached ? MEMCACHED_PREFIX_MAX : REDIS_STORE_PREFIX_MAX;
    struct span prefix = span_of_text(config->prefix != NULL ? config->prefix : "");
    size_t len = is_memcached ? store_key_escape(prefix, NULL, 0) : prefix.len;
    if (len > prefix_max)
        return err_set(error, STINT_E_RANGE,
                       "the prefix of a store's keys is too long: expected at most %zu bytes",
                       prefix_max);
    return 0;
}

int stores_open(struct stores **stores, const struct stores_options *options,
                struct stint_error *error)
{
    if (options->n_configs > STORES_MAX)
        return err_set(error, STINT_E_RANGE, "too many stores: expected at most %d", STORES_MAX);
    for (size_t i = 0; i < options->n_configs; i++) {
        int code = refuse(&options->configs[i], error);
        if (code != 0)
            return code;
    }
    struct stores *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for stores");
    made->options = *options;
    uv_timer_init(options->loop, &made->tick);
    made->tick.data = made;
    made->n_open_handles = 1;
    uv_timer_start(&made->tick, on_second, TICK_MS, TICK_MS);
    for (; made->n_stores < options->n_configs; made->n_stores++) {
        made->all[made->n_stores] = stores_chain(made, made->n_stores);
        if (made->all[made->n_stores] == NULL) {
            stores_close(made);
            return err_set(error, STINT_E_SYSTEM, "no memory for a store's connections");
        }
    }
    *stores = made;
    return 0;
}

static void on_tick_closed(uv_handle_t *tick)
{
    struct stores *stores = tick->data;
    if (--stores->n_open_handles == 0)
        free(stores);
}

void stores_close(struct stores *stores)
{
    if (stores == NULL)
        return;
    for (size_t i = 0; i < stores->n_stores; i++)
        stores->all[i]->ops->free(stores->all[i]);
    for (size_t i = 0; i < STORES_MAX; i++)
        if (stores->chains[i].home != NULL)
            close_handles(&stores->chains[i]);
    uv_close((uv_handle_t *)&stores->tick, on_tick_closed);
}

static void on_drained(void *arg)
{
    struct stores *stores = arg;
    if (--stores->n_draining == 0)
        stores->drained(stores->drained_arg);
}

void stores_drain(struct stores *stores, uint64_t deadline_ns, void (*done)(void *arg), void *arg)
{
    stores->drained = done;
    stores->drained_arg = arg;
    stores->n_draining = stores->n_stores + 1;
    for (size_t i = 0; i < stores->n_stores; i++)
        stores->all[i]->ops->drain(stores->all[i], deadline_ns, on_drained, stores);
    on_drained(stores);
}

/* ---- Access ---------------------------------------------------------------------------------- */

struct backend *const *stores_all(const struct stores *stores)
{
    return stores->all;
}

struct backend_pools *stores_pools(const struct stores *stores, size_t index)
{
    const struct chain *chain = &stores->chains[index];
    if (chain->redis == NULL)
        return NULL;
    struct backend_pools *pools = redis_backend_pools(chain->redis);
    return chain->front != NULL ? front_pools(chain->front, pools) : pools;
}

const struct router_metrics *backends_router_metrics(const struct stores *stores, size_t index)
{
    const struct chain *chain = &stores->chains[index];
    return chain->redis != NULL ? redis_backend_metrics(chain->redis) : NULL;
}
