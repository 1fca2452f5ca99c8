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
#include "net/upstream/links.h"

#include <stdlib.h>

#define TICK_MS 1000
#define REPLY_NS (50 * NS_PER_MS) /* the default time for a reply */
/*
 * A few consecutive callers may all wait for a master that has failed, while the other masters
 * work: each of them waits as long as a reply may take.
 */
#define QUIET_REPLIES 4
#define UNAVAILABLE_REPORTED_NS NS_PER_S /* shorter outages are not reported */
#define REFUSES "it rejects requests, or does not answer in time"

/* One configured store. */
struct chain {
    struct stores *home;
    /* The end of the chain; the other is NULL. */
    struct backend *redis, *memcached;
    struct backend *lease; /* NULL: neither a lease layer nor its timer */
    struct backend *front; /* NULL: no front */
    bool is_reported_unavailable;
    uv_timer_t lease_timer;
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

/* ---- Chains ---------------------------------------------------------------------------------- */

static struct backend *new_redis(struct stores *stores, size_t index)
{
    const struct store_config *config = &stores->options.configs[index];
    struct dialer *dialer = backend_links_new(&(struct backend_links_options){
        .loop = stores->options.loop,
        .tls = config->url.is_tls ? config->tls : NULL,
        .now = stores->options.now,
        .now_arg = stores->options.now_arg,
    });
    if (dialer == NULL)
        return NULL;
    struct backend *store = redis_backend_new(&(struct redis_backend_options){
        .router = {.url = &config->url,
                   .dialer = dialer,
                   .reply_ns = config->reply_ns,
                   .connect_ns = config->connect_ns,
                   .asks_max = config->asks_max,
                   .seed = stores->options.seed + index},
        .prefix = config->prefix,
    });
    if (store == NULL)
        dialer->ops->free(dialer);
    else
        backend_links_wake(dialer, redis_backend_router(store));
    return store;
}

static struct backend *new_memcached(struct stores *stores, size_t index)
{
    const struct stores_options *options = &stores->options;
    const struct store_config *config = &options->configs[index];
    return memcached_links_new(&(struct memcached_links_options){
        .loop = options->loop,
        .url = &config->url,
        .tls = config->url.is_tls ? config->tls : NULL,
        .prefix = config->prefix,
        .reply_ns = config->reply_ns,
        .connect_ns = config->connect_ns,
        .asks_max = config->asks_max,
        .seed = options->seed + index,
        .now = options->now,
        .now_arg = options->now_arg,
        .skewed = options->skewed,
        .damaged = options->damaged,
        .arg = options->skewed_arg,
    });
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

/* ---- Leases ---------------------------------------------------------------------------------- */

static void on_lease_time(uv_timer_t *timer);

static void arm_lease(struct chain *chain)
{
    uint64_t at_ns = lease_deadline(chain->lease), now_ns = now(chain->home);
    if (at_ns == STINT_NEVER_NS)
        return;
    uint64_t wait_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    uv_update_time(chain->home->options.loop);
    uv_timer_start(&chain->lease_timer, on_lease_time, (wait_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
}

static void on_lease_time(uv_timer_t *timer)
{
    struct chain *chain = timer->data;
    lease_wake(chain->lease, now(chain->home));
    arm_lease(chain);
}

static void on_lease_hurry(void *arg)
{
    struct chain *chain = arg;
    if (chain->lease != NULL)
        arm_lease(chain);
}

static uint64_t lease_now(void *arg)
{
    return now(((const struct chain *)arg)->home);
}

static struct backend *new_lease(struct chain *chain, size_t index, struct backend *inner)
{
    const struct stores_options *options = &chain->home->options;
    const struct store_config *config = &options->configs[index];
    chain->lease = lease_new(&(struct lease_options){
        .inner = inner,
        .now = lease_now,
        .hurry = on_lease_hurry,
        .arg = chain,
        .secret = {options->secret[0], options->secret[1]},
        .keys = config->lease_keys,
        .waiting = config->asks_max,
        .metrics = options->metrics[index],
    });
    if (chain->lease == NULL)
        return NULL;
    uv_timer_init(options->loop, &chain->lease_timer);
    chain->lease_timer.data = chain;
    chain->home->n_open_handles++;
    return chain->lease;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static struct backend *new_front(struct chain *chain, size_t index, struct backend *inner)
{
    const struct stores_options *options = &chain->home->options;
    const struct store_config *config = &options->configs[index];
    struct breaker_options breaker = config->breaker;
    if (breaker.quiet_ns == 0)
        breaker.quiet_ns = QUIET_REPLIES * (config->reply_ns > 0 ? config->reply_ns : REPLY_NS);
    return front_new(&(struct front_options){
        .inner = inner,
        .breaker = breaker,
        .denials = config->denials,
        .deny_cache_max_ns = config->deny_cache_max_ns,
        .secret = {options->secret[0], options->secret[1]},
        .failover_policy = config->failover_policy,
        .failovers = failovers,
        .arg = chain,
        .metrics = options->metrics[index],
    });
}

/* The layers of one store, from the last to the first. NULL: no memory. */
static struct backend *stores_chain(struct stores *stores, size_t index)
{
    struct chain *chain = &stores->chains[index];
    bool is_memcached = stores->options.configs[index].url.kind == STORE_MEMCACHED;
    chain->home = stores;
    struct backend *last = is_memcached ? new_memcached(stores, index) : new_redis(stores, index);
    *(is_memcached ? &chain->memcached : &chain->redis) = last;
    if (last == NULL || stores->options.configs[index].without_front)
        return last;
    chain->front = new_front(chain, index, last);
    if (chain->front == NULL) {
        last->ops->free(last);
        return NULL;
    }
    /*
     * Leases need scripts, which memcached lacks. They come before the front: leased units are also
     * granted while the front lets no request through.
     */
    struct backend *front = is_memcached ? chain->front : new_lease(chain, index, chain->front);
    if (front == NULL)
        chain->front->ops->free(chain->front);
    return front;
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

void stores_pool_list_free(struct backend_pool_list *list)
{
    pool_backend_free(list);
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

static void on_tick(uv_timer_t *tick)
{
    struct stores *stores = tick->data;
    for (size_t i = 0; i < stores->n_stores; i++) {
        struct chain *chain = &stores->chains[i];
        if (chain->front != NULL)
            front_tick(chain->front, now(stores));
        if (stores->options.metrics[i] != NULL)
            show_metrics(chain, stores->options.metrics[i]);
    }
}

/* The last connection error; "" if there was none. */
static const char *fault_of(const struct chain *chain)
{
    return chain->redis != NULL ? redis_backend_error(chain->redis)
                                : memcached_backend_fault(chain->memcached);
}

/* Reports an outage and its end: the front's metrics have the time, the connections the reason. */
static void tell_unavailable(struct stores *stores, size_t index)
{
    struct chain *chain = &stores->chains[index];
    const struct backend *last = chain->redis != NULL ? chain->redis : chain->memcached;
    const struct backend_metrics *metrics = stores->options.metrics[index];
    uint64_t since_ns = metrics != NULL ? backend_metric(&metrics->unavailable_since_ns) : 0;
    bool is_unavailable =
        since_ns != 0 && (chain->is_reported_unavailable ||
                          sub_floor(now(stores), since_ns) >= UNAVAILABLE_REPORTED_NS);
    if (is_unavailable == chain->is_reported_unavailable)
        return;
    chain->is_reported_unavailable = is_unavailable;
    const char *why = last->ops->unavailable_since_ns(last) != 0 ? fault_of(chain) : REFUSES;
    stores->options.unavailable(stores->options.unavailable_arg, index,
                                is_unavailable ? why : NULL);
}

static void on_second(uv_timer_t *tick)
{
    struct stores *stores = tick->data;
    on_tick(tick);
    for (size_t i = 0; stores->options.unavailable != NULL && i < stores->n_stores; i++)
        tell_unavailable(stores, i);
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

static void close_one(struct stores *stores)
{
    if (--stores->n_open_handles == 0)
        free(stores);
}

static void on_closed(uv_handle_t *tick)
{
    close_one(tick->data);
}

static void on_lease_closed(uv_handle_t *timer)
{
    close_one(((struct chain *)timer->data)->home);
}

void stores_close(struct stores *stores)
{
    if (stores == NULL)
        return;
    for (size_t i = 0; i < stores->n_stores; i++)
        stores->all[i]->ops->free(stores->all[i]);
    for (size_t i = 0; i < STORES_MAX; i++)
        if (stores->chains[i].lease != NULL)
            uv_close((uv_handle_t *)&stores->chains[i].lease_timer, on_lease_closed);
    uv_close((uv_handle_t *)&stores->tick, on_closed);
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

size_t stores_count(const struct stores *stores)
{
    return stores->n_stores;
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
