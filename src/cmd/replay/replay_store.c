/* SPDX-License-Identifier: MIT */
/*
 * Requests are sent in the order of the events, a batch at a time, on one connection to each
 * server, so those of one key are decided in their order. A quota's states are named by its
 * parameters; equal quotas of a list share theirs, as in a table.
 */
#define _GNU_SOURCE
#include "cmd/replay/replay_store.h"

#include "base/buf.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/store/shared_session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>
#include <uv.h>

#define BATCH 256
#define NAME_SIZE 20 /* of a quota: 16 digits */

struct replay_store {
    struct replay_store_options options;
    struct shared_session *session;
    char prefix[REPLAY_STORE_PREFIX_SIZE];
    char names[STINT_ITEMS_MAX][NAME_SIZE];
    uint64_t spent_ns;
    size_t n_waiting;   /* of the batch */
    bool may_have_keys; /* an operation was done there, or may have been */
    struct backend_op ops[BATCH];
    struct stint_decision each[BATCH][STINT_ITEMS_MAX];
};

/* ---- Opening and closing --------------------------------------------------------------------- */

int replay_store_name_run(char prefix[REPLAY_STORE_PREFIX_SIZE], struct stint_error *error)
{
    uint64_t run;
    struct buf buf = buf_of(prefix, REPLAY_STORE_PREFIX_SIZE);
    if (getrandom(&run, sizeof(run), 0) != sizeof(run))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    buf_add(&buf, REPLAY_STORE_PREFIX "%016" PRIx64 ":", run);
    return 0;
}

static int check_quotas(struct replay_store *store, struct stint_error *error)
{
    const struct backend *shared = shared_session_store(store->session);
    int code = 0;
    for (size_t i = 0; i < store->options.n_quotas && code == 0; i++) {
        const struct stint_quota *quota = &store->options.quotas[i];
        struct buf buf = buf_of(store->names[i], NAME_SIZE);
        buf_add(&buf, "%016" PRIx64, quota->derived.params_hash[0]);
        code = shared->ops->accepts(shared, quota, error);
    }
    return code;
}

int replay_store_open(struct replay_store **store, const struct replay_store_options *options,
                      struct stint_error *error)
{
    struct replay_store *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a store");
    made->options = *options;
    int code = replay_store_name_run(made->prefix, error);
    if (code == 0)
        code = shared_session_open(&made->session, options->given, made->prefix, error);
    if (code == 0)
        code = check_quotas(made, error);
    if (code == 0)
        *store = made;
    else
        replay_store_close(made);
    return code;
}

void replay_store_close(struct replay_store *store)
{
    if (store == NULL)
        return;
    shared_session_close(store->session);
    free(store);
}

/* ---- Deciding -------------------------------------------------------------------------------- */

static void take_answer(struct backend_op *op, uint64_t now_ns)
{
    struct replay_store *store = op->arg;
    (void)now_ns;
    store->n_waiting--;
}

/* Fills in the items of a list on one key; returns how many there are. */
static size_t make_items(const struct replay_store *store, struct backend_item *items,
                         struct span key, uint32_t cost)
{
    for (size_t i = 0; i < store->options.n_quotas; i++)
        items[i] = (struct backend_item){.quota = &store->options.quotas[i],
                                         .name = span_of_text(store->names[i]),
                                         .key = key,
                                         .cost = cost};
    return store->options.n_quotas;
}

static void begin(struct replay_store *store, size_t at, const struct backend_request *ask)
{
    struct backend *shared = shared_session_store(store->session);
    struct backend_op *op = &store->ops[at];
    *op =
        (struct backend_op){.answered = take_answer, .arg = store, .answer.each = store->each[at]};
    /* Counted first: the answer may come during the call. */
    store->n_waiting++;
    shared->ops->ask(shared, ask, op);
    if (op->answer.outcome != BACKEND_WAITS)
        store->n_waiting--;
}

static void wait_for_all(struct replay_store *store)
{
    while (store->n_waiting > 0)
        shared_session_run(store->session);
}

/* Whether all of the first n ops were decided. */
static int check_answers(struct replay_store *store, size_t n, struct stint_error *error)
{
    for (size_t i = 0; i < n; i++)
        store->may_have_keys |= store->ops[i].answer.outcome != BACKEND_REFUSED &&
                                store->ops[i].answer.fault != BACKEND_ERROR_UNREACHABLE;
    for (size_t i = 0; i < n; i++) {
        const struct backend_answer *answer = &store->ops[i].answer;
        if (answer->outcome == BACKEND_REFUSED)
            return err_set(error, STINT_E_MISMATCH, "--store: %s", answer->error);
        if (answer->outcome != BACKEND_DECIDED)
            return err_set(error, STINT_E_GONE, "--store: %s; `stint store check URL` tests it",
                           answer->error != NULL ? answer->error : "no answer came in time");
    }
    return 0;
}

static int decide_batch(struct replay_store *store, const struct replay_store_event *events,
                        size_t n_events, struct stint_error *error)
{
    struct backend_item items[STINT_ITEMS_MAX];
    for (size_t i = 0; i < n_events; i++) {
        const struct replay_store_event *event = &events[i];
        const struct backend_request ask = {
            .verb = (uint8_t)store->options.verb,
            .is_virtual = true,
            .items = items,
            .n_items = make_items(store, items, event->key, event->cost),
            .now_ns = event->now_ns,
            .deadline_ns = add_sat(event->now_ns, store->options.given->timeout_ns),
        };
        begin(store, i, &ask);
    }
    wait_for_all(store);
    for (size_t i = 0; i < n_events; i++)
        *events[i].decision = store->ops[i].answer.sum;
    return check_answers(store, n_events, error);
}

int replay_store_decide(struct replay_store *store, const struct replay_store_event *events,
                        size_t n_events, struct stint_error *error)
{
    uint64_t begun_ns = uv_hrtime();
    int code = 0;
    for (size_t i = 0; i < n_events && code == 0; i += BATCH)
        code = decide_batch(store, events + i, n_events - i < BATCH ? n_events - i : BATCH, error);
    store->spent_ns += uv_hrtime() - begun_ns;
    return code;
}

/* ---- Cleaning up ----------------------------------------------------------------------------- */

/* Deletes key by key: a SCAN would pass over all other keys, and memcached has none. */
static int clean_batch(struct replay_store *store, const struct key_set *names, size_t first,
                       size_t n, struct stint_error *error)
{
    struct backend_item items[STINT_ITEMS_MAX];
    for (size_t i = 0; i < n; i++) {
        const struct backend_request ask = {
            .verb = REQUEST_RESET,
            .is_virtual = true,
            .items = items,
            .n_items = make_items(store, items, key_set_name(names, (uint32_t)(first + i)), 0),
            .deadline_ns = store->options.given->timeout_ns,
        };
        begin(store, i, &ask);
    }
    wait_for_all(store);
    return check_answers(store, n, error);
}

int replay_store_clean(struct replay_store *store, const struct key_set *names,
                       struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < names->n_keys && code == 0 && store->may_have_keys; i += BATCH)
        code = clean_batch(store, names, i, names->n_keys - i < BATCH ? names->n_keys - i : BATCH,
                           error);
    return code;
}

/* ---- Results --------------------------------------------------------------------------------- */

struct replay_store_summary replay_store_summary(const struct replay_store *store)
{
    return (struct replay_store_summary){store->prefix, store->spent_ns,
                                         shared_session_detours(store->session) > 0};
}

static uint64_t to_us(uint64_t ns)
{
    return ns == STINT_NEVER_NS ? ns : ns / NS_PER_US + (ns % NS_PER_US != 0);
}

bool replay_store_agrees(const struct stint_decision *engine, const struct stint_decision *store)
{
    return engine->outcome == store->outcome && engine->granted == store->granted &&
           engine->limit == store->limit && engine->remaining == store->remaining &&
           to_us(engine->retry_after_ns) == to_us(store->retry_after_ns) &&
           to_us(engine->reset_after_ns) == to_us(store->reset_after_ns);
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t replay_store_epoch_ns(const struct stint_quota *quotas, size_t n_quotas, uint64_t first_ns)
{
    const uint64_t most_ns = STINT_NOW_MAX / 2;
    uint64_t multiple_ns = NS_PER_DAY;
    for (size_t i = 0; i < n_quotas; i++) {
        uint64_t period_ns = quotas[i].period_ns;
        if (quotas[i].algorithm == STINT_CONCURRENCY || period_ns == 0)
            continue;
        uint64_t times = period_ns / common_divisor(multiple_ns, period_ns);
        if (times > most_ns / multiple_ns)
            return first_ns - first_ns % NS_PER_DAY;
        multiple_ns *= times;
    }
    return first_ns - first_ns % multiple_ns;
}
