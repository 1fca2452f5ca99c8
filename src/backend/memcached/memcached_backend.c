/* SPDX-License-Identifier: MIT */
/* The backend's interface: which requests are valid, how long they wait, and how the store ends. */
#include "backend/memcached/memcached_parts.h"
#include "backend/store_key.h"

#include <assert.h>
#include <stdlib.h>

#define UNDO_NS NS_PER_S /* so that taking back may go on after the caller's deadline */

static struct store *store_of(struct backend *shared)
{
    return (struct store *)shared;
}

static const struct store *const_store_of(const struct backend *shared)
{
    return (const struct store *)shared;
}

static uint64_t now_of(const struct store *store)
{
    return store->options.io->ops->now(store->options.io);
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Equal items keep the sum of what each of them keeps. */
static void add_kept(struct part *part, const struct backend_item *item)
{
    if (item->kept == STINT_KEEP_ALL && part->kept == STINT_KEEP_ALL)
        return;
    part->kept = (uint32_t)min_u64(part->kept, part->cost);
    part->kept += (uint32_t)min_u64(item->kept, item->cost);
}

/* False: no memory, or a sum of costs that is too high. */
static bool add_item(struct work *work, const struct backend_item *item, size_t index,
                     bool *overflows)
{
    struct store *store = work->store;
    struct part *part = &work->parts[work->n_parts];
    struct memcached_io *io = store->options.io;
    *part = (struct part){
        .work = work, .quota = *item->quota, .cost = item->cost, .kept = item->kept, .times = 1};
    struct span prefix = span_of(store->prefix, store->prefix_len);
    if (!memcached_key_write(&part->key, prefix, item, io->ops->digest, io))
        return false;
    part->index = (uint8_t)index;
    for (size_t i = 0; i < work->n_parts; i++) {
        struct part *known = &work->parts[i];
        if (known->key.len != part->key.len ||
            memcmp(known->key.text, part->key.text, part->key.len) != 0)
            continue;
        work->part_of[index] = (uint8_t)i;
        known->times++;
        add_kept(known, item);
        *overflows |= item->cost > UINT32_MAX - known->cost;
        known->cost = (uint32_t)min_u64((uint64_t)known->cost + item->cost, UINT32_MAX);
        return true;
    }
    part->server = memcached_key_server(store->options.url, span_of(part->key.text, part->key.len));
    work->part_of[index] = (uint8_t)work->n_parts++;
    return true;
}

static struct work *new_work(struct store *store, const struct backend_request *ask,
                             struct backend_op *op, bool *overflows)
{
    struct work *work = malloc(sizeof(*work) + ask->n_items * sizeof(work->parts[0]));
    if (work == NULL)
        return NULL;
    *work = (struct work){
        .store = store,
        .op = op,
        .at_ns = ask->at_ns,
        .now_ns = ask->now_ns,
        .deadline_ns = ask->deadline_ns,
        .verb = ask->verb,
        .is_virtual = ask->is_virtual,
        .is_ticket = ask->is_ticket,
        .ticket_ns = ask->ticket_ns - ask->ticket_ns % NS_PER_US,
        .most = UINT32_MAX,
        .n_items = ask->n_items,
    };
    if (ask->is_ticket)
        memcpy(work->id, ask->id, BACKEND_ID_LEN);
    for (size_t i = 0; i < ask->n_items; i++) {
        if (!add_item(work, &ask->items[i], i, overflows)) {
            free(work);
            return NULL;
        }
        if (ask->items[i].cost < work->most)
            work->most = ask->items[i].cost;
    }
    return work;
}

static void fail_at_once(struct backend_op *op, enum backend_error fault, const char *why,
                         const struct backend_request *ask)
{
    op->answer.outcome = ask->is_ahead ? BACKEND_AHEAD : BACKEND_FAILED;
    op->answer.fault = (uint8_t)fault;
    op->answer.error = why;
}

static const char *why_never(const struct backend_request *ask)
{
    if (ask->verb == BACKEND_BOOK || ask->verb == BACKEND_EXTEND)
        return "memcached supports neither bookings nor slots of concurrency: use Redis or Valkey";
    if (ask->id != NULL && (!ask->is_ticket || ask->id_lifetime_ns > 0))
        return "memcached cannot recognize a repeated id, and would charge twice: send no id, or "
               "use Redis or Valkey";
    if (ask->verb == BACKEND_LEASE || ask->verb == BACKEND_RETURN)
        return "memcached supports no leases: use Redis or Valkey";
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct backend_item *item = &ask->items[i];
        if (memcached_state_accepts(item->quota, NULL) != 0)
            return "memcached supports no concurrency, and only periods of whole microseconds up "
                   "to four years: change the quota, or use Redis or Valkey";
        if (item->rule != NULL && item->rule->store.lease != RULE_LEASE_NONE)
            return "memcached supports no leases: use a rule without lease, or Redis or Valkey";
    }
    return NULL;
}

/* Whether a needed server has been unavailable for longer than this request can wait. */
static const char *why_not_now(struct store *store, const struct work *work, uint64_t now_ns,
                               enum backend_error *fault, uint64_t *unavailable)
{
    *fault = BACKEND_ERROR_OVERLOAD;
    if (store->is_ending || store->n_works == store->options.asks_max)
        return "too many requests wait for memcached";
    *fault = BACKEND_ERROR_UNREACHABLE;
    if (work->deadline_ns <= now_ns)
        return "the deadline of a request passed before it could be sent to memcached";
    for (size_t i = 0; i < work->n_parts; i++) {
        struct memcached_conn *conn = store->options.conns[work->parts[i].server];
        uint64_t since_ns = memcached_conn_unavailable_since(conn);
        if (since_ns == 0 || now_ns - since_ns <= work->deadline_ns - now_ns)
            continue;
        err_set(&store->fault, STINT_E_GONE, "memcached is unavailable: %s",
                link_fault(memcached_conn_link(conn)));
        *unavailable = part_server(&work->parts[i]);
        return store->fault.message;
    }
    return NULL;
}

static void answer_never(struct backend_op *op, const struct backend_request *ask)
{
    op->answer.outcome = ask->is_ahead ? BACKEND_AHEAD : BACKEND_DECIDED;
    op->answer.sum = algorithm_never(0);
    for (size_t i = 0; i < ask->n_items; i++)
        op->answer.each[i] = algorithm_never(most_units(ask->items[i].quota));
}

static void begin(struct store *store, struct work *work, const struct backend_request *ask,
                  struct backend_op *op, uint64_t now_ns)
{
    enum backend_error fault = BACKEND_ERROR_STOPPED;
    uint64_t servers = 0, unavailable = 0;
    for (size_t i = 0; i < work->n_parts; i++)
        servers |= part_server(&work->parts[i]);
    if (ask->is_virtual) /* it has as long as it should have in its own time */
        work->deadline_ns = add_sat(now_ns, ask->deadline_ns - ask->now_ns);
    const char *why = (servers & ask->stopped) != 0
                          ? "requests to the server of a key are stopped now"
                          : why_not_now(store, work, now_ns, &fault, &unavailable);
    if (why != NULL) {
        free(work);
        op->answer.servers = op->answer.failed = unavailable;
        fail_at_once(op, fault, why, ask);
        return;
    }
    op->answer.servers = servers;
    op->answer.outcome = BACKEND_WAITS;
    op->at_work = work;
    work_start(work, now_ns);
    if (work->n_waiting > 0)
        return;
    op->at_work = NULL;
    work_end(work);
    fail_at_once(op, BACKEND_ERROR_OTHER, "no memory for a request to memcached", ask);
}

static void store_ask(struct backend *shared, const struct backend_request *ask,
                      struct backend_op *op)
{
    struct store *store = store_of(shared);
    const char *why = why_never(ask);
    bool overflows = false;
    assert(ask->n_items > 0 && ask->n_items <= BACKEND_ITEMS_MAX);
    store->metrics.asks++;
    if (why != NULL) {
        op->answer.outcome = BACKEND_REFUSED;
        op->answer.error = why;
        return;
    }
    struct work *work = new_work(store, ask, op, &overflows);
    if (work == NULL) {
        fail_at_once(op, BACKEND_ERROR_OTHER, "no memory for a request to memcached", ask);
    } else if (overflows && !closes_ticket(ask->verb)) {
        free(work);
        answer_never(op, ask);
    } else
        begin(store, work, ask, op, now_of(store));
}

static void store_forget(struct backend *shared, struct backend_op *op)
{
    struct work *work = op->at_work;
    (void)shared;
    op->at_work = NULL;
    work->op = NULL;
    if (!work_must_go_on(work))
        work_end(work);
}

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t memcached_backend_deadline(const struct backend *shared)
{
    const struct store *store = const_store_of(shared);
    uint64_t clock_ns = memcached_clock_deadline(&store->clock);
    return min_u64(min_u64(clock_ns, store->earliest_ns), cells_deadline(store->cells));
}

/* No caller waits longer. Units to be taken back get a little more time, and then stay charged. */
static void end_late(struct work *work, uint64_t now_ns)
{
    bool was_wanted = work->op != NULL;
    work_be_late(work, now_ns);
    if (was_wanted && work_must_go_on(work))
        work->deadline_ns = now_ns + UNDO_NS;
    else
        work_end(work);
}

static struct work *find_late(struct store *store, uint64_t now_ns)
{
    struct work *work = store->first;
    while (work != NULL && work->deadline_ns > now_ns)
        work = work->next;
    return work;
}

void memcached_backend_wake(struct backend *shared, uint64_t now_ns)
{
    struct store *store = store_of(shared);
    memcached_clock_wake(&store->clock, now_ns);
    cells_wake(store->cells, now_ns);
    if (store->earliest_ns > now_ns)
        return;
    /* A callback may send or cancel requests. */
    for (struct work *late; (late = find_late(store, now_ns)) != NULL;)
        end_late(late, now_ns);
    store->earliest_ns = STINT_NEVER_NS;
    for (const struct work *work = store->first; work != NULL; work = work->next)
        if (work->deadline_ns < store->earliest_ns)
            store->earliest_ns = work->deadline_ns;
}

void memcached_backend_changed(struct backend *shared, uint64_t now_ns)
{
    struct store *store = store_of(shared);
    uint64_t restarts = 0;
    for (unsigned i = 0; i < store->n_servers; i++)
        restarts += memcached_conn_restarts(store->options.conns[i]);
    store->metrics.restarts = restarts;
    cells_go_on(store->cells, now_ns);
    memcached_clock_wake(&store->clock, now_ns);
    store->options.io->ops->hurry(store->options.io);
}

/* ---- State ----------------------------------------------------------------------------------- */

static int store_accepts(const struct backend *shared, const struct stint_quota *quota,
                         struct stint_error *error)
{
    (void)shared;
    return memcached_state_accepts(quota, error);
}

/* One available server is enough: each has its own keys. */
static uint64_t store_unavailable_since(const struct backend *shared)
{
    const struct store *store = const_store_of(shared);
    uint64_t earliest_ns = 0;
    for (unsigned i = 0; i < store->n_servers; i++) {
        uint64_t since_ns = memcached_conn_unavailable_since(store->options.conns[i]);
        if (since_ns == 0)
            return 0;
        if (earliest_ns == 0 || since_ns < earliest_ns)
            earliest_ns = since_ns;
    }
    return earliest_ns;
}

static bool store_refuses_ids(const struct backend *shared)
{
    (void)shared;
    return true;
}

static void store_drain(struct backend *shared, uint64_t deadline_ns, void (*done)(void *arg),
                        void *arg)
{
    (void)shared;
    (void)deadline_ns;
    done(arg); /* nothing is held */
}

const struct memcached_metrics *memcached_backend_metrics(const struct backend *shared)
{
    return &const_store_of(shared)->metrics;
}

const char *memcached_backend_fault(const struct backend *shared)
{
    const struct store *store = const_store_of(shared);
    const char *fault = "";
    for (unsigned i = 0; i < store->n_servers; i++) {
        struct link *link = memcached_conn_link(store->options.conns[i]);
        if (fault[0] == '\0' || !link_is_ready(link))
            fault = link_fault(link);
    }
    return fault;
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void store_free(struct backend *shared)
{
    struct store *store = store_of(shared);
    store->is_ending = true;
    while (store->first != NULL) {
        struct work *work = store->first;
        work_fail(work, BACKEND_ERROR_LOST, "the memcached store is closed", now_of(store));
        work_end(work);
    }
    store->options.io->ops->close(store->options.io);
    cells_free(store->cells);
    free(store);
}

static const struct backend_ops store_ops = {
    .ask = store_ask,
    .forget = store_forget,
    .accepts = store_accepts,
    .unavailable_since_ns = store_unavailable_since,
    .drain = store_drain,
    .free = store_free,
    .refuses_ids = store_refuses_ids,
};

static void init_clock(struct store *store)
{
    const struct memcached_backend_options *options = &store->options;
    struct memcached_clock *clock = &store->clock;
    *clock = (struct memcached_clock){
        .io = options->io,
        .metrics = &store->metrics,
        .beat_ns = options->beat_ns,
        .skew_max_ns = options->skew_max_ns,
        .random = options->io->ops->wall(options->io),
    };
    memcpy(clock->key.text, store->prefix, store->prefix_len);
    memcpy(clock->key.text + store->prefix_len, "{clock}", 7);
    clock->key.len = store->prefix_len + 7;
    clock->server = memcached_key_server(options->url, span_of(clock->key.text, clock->key.len));
    clock->conn = options->conns[clock->server];
}

struct backend *memcached_backend_new(const struct memcached_backend_options *options)
{
    const char *prefix = options->prefix != NULL ? options->prefix : MEMCACHED_PREFIX_DEFAULT;
    struct store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return NULL;
    store->prefix_len =
        store_key_escape(span_of_text(prefix), store->prefix, sizeof(store->prefix));
    if (store->prefix_len > sizeof(store->prefix)) {
        free(store);
        return NULL;
    }
    store->shared.ops = &store_ops;
    store->options = *options;
    store->n_servers = options->url->n_hosts > 0 ? options->url->n_hosts : 1;
    store->earliest_ns = STINT_NEVER_NS;
    if (store->options.asks_max == 0)
        store->options.asks_max = 4096;
    if (store->options.skew_max_ns == 0)
        store->options.skew_max_ns = 100 * NS_PER_MS;
    if (store->options.beat_ns == 0)
        store->options.beat_ns = NS_PER_S;
    init_clock(store);
    store->cells = cells_new(&(struct cells_options){
        .conns = options->conns,
        .io = options->io,
        .metrics = &store->metrics,
        .skew_max_ns = store->options.skew_max_ns,
        .prefix_len = store->prefix_len,
        .seed = store->options.seed,
    });
    if (store->cells == NULL) {
        free(store);
        return NULL;
    }
    return &store->shared;
}
