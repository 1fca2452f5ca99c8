/* SPDX-License-Identifier: MIT */
/*
 * Decides events with the limiter, in batches so that its calls can be timed without timing the
 * clock, and counts the results.
 *
 * The table's time: a trace has its own. For logs, 0 is the midnight (UTC) before the first event,
 * so that the same log gives the same decisions wherever its end is cut off; a table in a file
 * keeps the 0 with which it was created. Calendar windows are right in all cases, since the table
 * knows the wall-clock time of its 0.
 */
#define _GNU_SOURCE
#include "backend/memcached/memcached_state.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/lib/print.h"
#include "cmd/replay/replay.h"
#include "cmd/replay/replay_rules_store.h"
#include "table/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define KEYS_DEFAULT (UINT64_C(1) << 20)
#define WIDE_BYTES_DEFAULT (UINT64_C(1) << 28)
#define DIFFERENCES_NAMED 5

int replay_run_init(struct replay_run *run, const struct replay_options *options,
                    struct replay_rules *rules, struct stint_error *error)
{
    uint64_t periods_ns[STINT_ITEMS_MAX], secret[2];
    memset(run, 0, sizeof(*run));
    run->options = options;
    run->rules = rules;
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    for (size_t i = 0; i < options->n_quotas; i++) {
        const struct stint_quota *quota = &options->quotas[i];
        bool holds = quota->algorithm == STINT_CONCURRENCY;
        periods_ns[i] = holds ? quota->lease_ns : quota->period_ns;
    }
    key_set_init(&run->names, secret);
    if (rules == NULL) /* else each rule has an exact count of its own */
        exact_init(&run->exact, periods_ns, options->n_quotas);
    return 0;
}

void replay_run_deinit(struct replay_run *run)
{
    replay_store_close(run->store);
    stint_table_close(run->table);
    key_set_deinit(&run->names);
    exact_deinit(&run->exact);
    replay_plot_deinit(&run->plot);
    free(run->tallies);
}

/* States of some 10 kB for a million keys would not fit: wide ones get this much memory. */
static uint64_t keys_of(const struct replay_options *options, size_t state_size)
{
    if (options->keys > 0)
        return options->keys;
    return state_size <= 16 ? KEYS_DEFAULT : min_u64(KEYS_DEFAULT, WIDE_BYTES_DEFAULT / state_size);
}

/* Capacity for every key under every quota, by width of state. */
static void size_table(struct stint_table_options *table, const struct replay_options *options)
{
    for (size_t i = 0; i < options->n_quotas; i++) {
        size_t size = stint_state_size(&options->quotas[i]);
        if (size > 16 && size > table->wide_size)
            table->wide_size = (uint32_t)size;
    }
    for (size_t i = 0; i < options->n_quotas; i++) {
        size_t size = stint_state_size(&options->quotas[i]);
        if (size <= 8)
            table->keys += keys_of(options, size);
        else if (size <= 16)
            table->keys16 += keys_of(options, size);
        else
            table->keys_wide += keys_of(options, table->wide_size);
    }
    /* 0 would mean the default: a class that no quota uses gets the minimum instead. */
    table->keys += table->keys == 0;
    table->keys16 += table->keys16 == 0;
    table->keys_wide += table->keys_wide == 0;
    table->wide_size += table->wide_size == 0 ? 16 : 0;
    table->tickets = 1;
    table->blocks = 1;
}

/* The library's message names options that this program does not have. */
static int refused(const struct replay_options *options, int code, struct stint_error *error)
{
    struct stint_error why = *error;
    if (code != STINT_E_MISMATCH || options->state == NULL)
        return code;
    return err_set(error, code, "%s; --state goes on with what a replay under such quotas has made",
                   why.message);
}

static int open_store(struct replay_run *run, const struct stint_table_options *table,
                      struct stint_error *error)
{
    const struct replay_options *options = run->options;
    const struct replay_store_options store = {.given = &options->store,
                                               .quotas = options->quotas,
                                               .n_quotas = options->n_quotas,
                                               .verb = options->verb};
    if (options->store.text == NULL)
        return 0;
    return run->rules != NULL ? replay_rules_store_open(&run->rules->store, run->rules,
                                                        &options->store, table, error)
                              : replay_store_open(&run->store, &store, error);
}

/* The time at which the windows of a table begin together with the store's. */
static uint64_t store_epoch_of(const struct replay_run *run, uint64_t first_ns)
{
    const struct replay_options *options = run->options;
    if (options->store.url.kind == STORE_MEMCACHED)
        return memcached_state_epoch_ns(first_ns);
    if (run->rules == NULL)
        return replay_store_epoch_ns(options->quotas, options->n_quotas, first_ns);
    size_t n = rules_count(run->rules->loaded.rules);
    struct stint_quota *quotas = calloc(2 * n + 1, sizeof(*quotas));
    for (size_t i = 0; quotas != NULL && i < n; i++) {
        const struct rule *rule = rules_at(run->rules->loaded.rules, i);
        quotas[2 * i] = rule->quota; /* a missing quota has no period */
        quotas[2 * i + 1] = rule->shadow;
    }
    uint64_t epoch_ns = replay_store_epoch_ns(quotas, quotas != NULL ? 2 * n : 0, first_ns);
    free(quotas);
    return epoch_ns;
}

static uint64_t epoch_of(const struct replay_run *run, uint64_t first_ns)
{
    if (run->options->source.format == REPLAY_TRACE)
        return 0;
    if (run->options->store.text == NULL)
        return first_ns - first_ns % NS_PER_DAY;
    return store_epoch_of(run, first_ns);
}

int replay_run_open(struct replay_run *run, uint64_t first_ns, struct stint_error *error)
{
    const struct replay_options *options = run->options;
    struct stint_table_options table = {
        .path = options->state,
        .clock = STINT_CLOCK_VIRTUAL,
        .epoch_ns = (int64_t)epoch_of(run, first_ns),
        .skew_max_ns = 1, /* one caller, whose time never goes back */
    };
    if (run->rules != NULL)
        replay_rules_size(run->rules, options->keys, &table);
    else
        size_table(&table, options);
    int code = stint_table_open(&run->table, &table, error);
    if (code == 0 && run->rules != NULL)
        code = replay_rules_begin(run->rules, run->table, error);
    for (size_t i = 0; code == 0 && i < options->n_quotas; i++)
        code = stint_table_accepts(run->table, &options->quotas[i], error);
    if (code == 0)
        code = open_store(run, &table, error);
    if (code != 0)
        return refused(options, code, error);
    run->epoch_ns = (uint64_t)stint_epoch_ns(run->table);
    run->latest_ns = stint_now(run->table);
    run->first_ns = first_ns;
    return 0;
}

static int grow_tallies(struct replay_run *run, struct stint_error *error)
{
    size_t old = run->tallies_size, size = old == 0 ? 1024 : old * 2;
    struct replay_tally *tallies = realloc(run->tallies, size * sizeof(*tallies));
    if (tallies == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for %zu keys", size);
    memset(tallies + old, 0, (size - old) * sizeof(*tallies));
    run->tallies = tallies;
    run->tallies_size = size;
    return 0;
}

int replay_run_add(struct replay_run *run, struct event_entry entry, struct stint_error *error)
{
    assert(run->table != NULL);
    if (run->n_pending == REPLAY_BATCH) {
        int code = replay_run_flush(run, error);
        if (code != 0)
            return code;
    }
    uint64_t now_ns = entry.at_ns > run->epoch_ns ? entry.at_ns - run->epoch_ns : 0;
    if (now_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE,
                       "the events are more than 18 years later than the table in %s",
                       run->options->state != NULL ? run->options->state : "memory");
    if (run->options->store.text != NULL) /* which counts in whole microseconds */
        now_ns -= now_ns % NS_PER_US;
    run->late += entry.at_ns < run->epoch_ns || now_ns < run->latest_ns;
    if (now_ns > run->latest_ns)
        run->latest_ns = now_ns;
    if (entry.at_ns < run->first_ns)
        run->first_ns = entry.at_ns;
    if (entry.at_ns > run->last_ns)
        run->last_ns = entry.at_ns;
    run->pending_now_ns[run->n_pending] = run->latest_ns;
    run->pending[run->n_pending++] = entry;
    return 0;
}

static void name_difference(const struct replay_run *run, size_t i,
                            const struct stint_decision *engine, const struct stint_decision *store)
{
    static const char *const outcomes[] = {
        [STINT_ALLOW] = "allow", [STINT_DENY] = "deny", [STINT_NEVER] = "never"};
    if (run->differing < DIFFERENCES_NAMED)
        print_message("event %" PRIu64 ": the store says %s, %" PRIu32
                      " left, and the engine %s, %" PRIu32 " left",
                      run->events + i + 1, outcomes[store->outcome], store->remaining,
                      outcomes[engine->outcome], engine->remaining);
    else if (run->differing == DIFFERENCES_NAMED)
        print_message("further decisions that differ are counted, not named");
}

static int ask_rules(struct replay_run *run, size_t i, struct stint_error *error)
{
    const struct event_entry *entry = &run->pending[i];
    const struct replay_rules_event event = {.key = key_set_name(&run->names, entry->key),
                                             .number = entry->key,
                                             .cost = entry->cost,
                                             .now_ns = run->pending_now_ns[i],
                                             .verb = (uint8_t)run->options->verb};
    struct stint_decision engine;
    int code = replay_rules_decide(run->rules, &event, &run->decisions[i], &engine, error);
    if (code != 0 || replay_store_agrees(&engine, &run->decisions[i]))
        return code;
    name_difference(run, i, &engine, &run->decisions[i]);
    run->differing++;
    return 0;
}

static struct stint_decision ask(struct replay_run *run, struct stint_item *items, size_t i)
{
    const struct replay_options *options = run->options;
    const struct event_entry *entry = &run->pending[i];
    struct span key = key_set_name(&run->names, entry->key);
    uint64_t now_ns = run->pending_now_ns[i];
    if (options->verb == STINT_TAKE && options->n_quotas == 1)
        return stint_take(run->table, options->quotas, key.ptr, key.len, entry->cost, now_ns);
    for (size_t q = 0; q < options->n_quotas; q++) {
        items[q].key = key.ptr;
        items[q].key_len = key.len;
        items[q].cost = entry->cost;
    }
    if (options->verb == STINT_TAKE)
        return stint_take_all(run->table, items, options->n_quotas, now_ns);
    if (options->verb == STINT_TAKE_UPTO)
        return stint_take_upto(run->table, items, options->n_quotas, now_ns);
    return stint_peek(run->table, items, options->n_quotas, now_ns);
}

/* The result of an event: for peek, the result that take would have had. */
static int count(struct replay_run *run, size_t i, struct stint_error *error)
{
    const struct event_entry *entry = &run->pending[i];
    const struct stint_decision *decision = &run->decisions[i];
    bool allowed = decision->outcome == STINT_ALLOW;
    uint32_t units = run->options->verb == STINT_TAKE_UPTO ? decision->granted
                     : allowed                             ? entry->cost
                                                           : 0;
    if (entry->key >= run->tallies_size) {
        int code = grow_tallies(run, error);
        if (code != 0)
            return code;
    }
    struct replay_tally *tally = &run->tallies[entry->key];
    tally->allowed += units;
    tally->denied += entry->cost - units;
    run->units.allowed += units;
    run->units.denied += entry->cost - units;
    run->events++;
    run->allowed += allowed;
    run->denied += decision->outcome == STINT_DENY;
    run->never += decision->outcome == STINT_NEVER;
    if (run->options->plot.format != GNUPLOT_NONE) {
        struct replay_plot_event event = {run->pending_now_ns[i], entry->key, entry->cost, units};
        int code = replay_plot_keep(run, event, error);
        if (code != 0)
            return code;
    }
    if (units == 0 || run->options->verb == STINT_PEEK || run->rules != NULL)
        return 0;
    return exact_add(&run->exact, entry->key, (struct exact_run){run->pending_now_ns[i], units},
                     error);
}

/* The store's decision replaces the table's. */
static int ask_store(struct replay_run *run, struct stint_error *error)
{
    struct replay_store_event events[REPLAY_BATCH];
    struct stint_decision decisions[REPLAY_BATCH];
    if (run->store == NULL)
        return 0;
    for (size_t i = 0; i < run->n_pending; i++)
        events[i] = (struct replay_store_event){
            .key = key_set_name(&run->names, run->pending[i].key),
            .cost = run->pending[i].cost,
            .now_ns = run->epoch_ns + run->pending_now_ns[i],
            .decision = &decisions[i],
        };
    int code = replay_store_decide(run->store, events, run->n_pending, error);
    for (size_t i = 0; i < run->n_pending && code == 0; i++) {
        if (!replay_store_agrees(&run->decisions[i], &decisions[i])) {
            name_difference(run, i, &run->decisions[i], &decisions[i]);
            run->differing++;
        }
        run->decisions[i] = decisions[i];
    }
    return code;
}

int replay_run_clean(struct replay_run *run, struct stint_error *error)
{
    struct stint_error why;
    struct replay_store_told told;
    if (!replay_run_store(run, &told))
        return 0;
    int code = run->store != NULL
                   ? replay_store_clean(run->store, &run->names, &why)
                   : replay_rules_store_clean(run->rules->store, run->rules, &run->names, &why);
    return code == 0 ? 0
                     : err_set(error, code, "%s; keys that begin with %s may be left there",
                               why.message, told.prefix);
}

bool replay_run_store(const struct replay_run *run, struct replay_store_told *told)
{
    const struct replay_rules_store *of_rules = run->rules != NULL ? run->rules->store : NULL;
    if (run->store != NULL)
        *told =
            (struct replay_store_told){replay_store_prefix(run->store), replay_store_ns(run->store),
                                       replay_store_has_detoured(run->store)};
    else if (of_rules != NULL)
        *told = (struct replay_store_told){replay_rules_store_prefix(of_rules),
                                           replay_rules_store_ns(of_rules),
                                           replay_rules_store_has_detoured(of_rules)};
    return run->store != NULL || of_rules != NULL;
}

int replay_run_flush(struct replay_run *run, struct stint_error *error)
{
    struct stint_item items[STINT_ITEMS_MAX] = {0};
    for (size_t q = 0; q < run->options->n_quotas; q++)
        items[q].quota = &run->options->quotas[q];
    uint64_t begun_ns = clock_boot_ns();
    int code = 0;
    for (size_t i = 0; i < run->n_pending && code == 0; i++) {
        if (run->rules != NULL)
            code = ask_rules(run, i, error);
        else
            run->decisions[i] = ask(run, items, i);
    }
    if (code != 0)
        return code;
    run->decide_ns += clock_boot_ns() - begun_ns;
    code = ask_store(run, error);
    if (code != 0) {
        run->n_pending = 0; /* an operation that may have been done is not repeated */
        return code;
    }
    for (size_t i = 0; i < run->n_pending; i++) {
        code = count(run, i, error);
        if (code != 0)
            return code;
        if (run->options->decisions)
            replay_print_decision(run, &run->pending[i], &run->decisions[i]);
    }
    run->n_pending = 0;
    if (run->table != NULL)
        stint_table_set_now(run->table, run->latest_ns);
    return 0;
}
