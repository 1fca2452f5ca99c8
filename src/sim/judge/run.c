/* SPDX-License-Identifier: MIT */
/*
 * Requests that depend on no decision are taken a batch at a time, so that the limiter's time can
 * be separated from the simulation's. If clients react, one of many calls is timed by itself.
 */
#include "sim/judge/run.h"

#include "base/ns.h"
#include "base/splitmix.h"
#include "base/wide_int.h"
#include "table/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 256
#define TIMED_ONE_IN 64
#define PERIODS_DEFAULT 100
#define FLOOD_TABLE_KEYS 64
#define CHURN_KEYS_MAX (UINT64_C(1) << 22)
#define SKEW_NS 1 /* one caller, whose time never goes back */

struct run {
    const struct run_options *options;
    struct workload workload;
    struct stint_table *table;
    size_t n_quotas;
    struct stint_quota quotas[STINT_ITEMS_MAX];
    struct oracle oracles[STINT_ITEMS_MAX];
    struct tally_places places;
    struct tally *tally;
    bool judges, listens, steps_back, counts_denied;
    uint64_t latest_ns, end_ns;
    uint64_t timed_ns, timed;
    size_t n_batch;
    struct sim_event events[BATCH];
    struct stint_decision decisions[BATCH];
    uint64_t effective_ns[BATCH]; /* if the clock goes back */
};

/* ---- The table ---- */

uint64_t run_length_ns(const struct run_options *options)
{
    uint64_t longest_ns = 0;
    for (size_t i = 0; i < options->n_quotas; i++)
        longest_ns = max_u64(longest_ns, options->quotas[i].period_ns);
    if (options->length_ns > 0)
        return min_u64(options->length_ns, STINT_NOW_MAX);
    return longest_ns < STINT_NOW_MAX / PERIODS_DEFAULT ? longest_ns * PERIODS_DEFAULT
                                                        : STINT_NOW_MAX;
}

/* Keys that can live at the same time: of a slot under churn, all its owners of a period. */
static uint64_t live_keys(const struct run *run)
{
    const struct run_options *options = run->options;
    const struct workload_spec *spec = &run->workload.spec;
    if (options->table_keys > 0)
        return options->table_keys;
    if (spec->kind == WORKLOAD_FLOOD)
        return FLOOD_TABLE_KEYS;
    uint64_t keys = 2 * max_u64(workload_places(&run->workload), 512), longest_ns = 0;
    for (size_t i = 0; i < options->n_quotas; i++)
        longest_ns = max_u64(longest_ns, run->quotas[i].period_ns);
    if (spec->churn_ns == 0)
        return keys;
    uint64_t owners = min_u64(2 + 2 * longest_ns / spec->churn_ns, CHURN_KEYS_MAX);
    return min_u64(keys * owners, CHURN_KEYS_MAX);
}

static void size_table(struct stint_table_options *table, const struct run *run)
{
    uint64_t keys = live_keys(run);
    for (size_t i = 0; i < run->n_quotas; i++) {
        size_t size = stint_state_size(&run->quotas[i]);
        if (size > table->wide_size && size > 16)
            table->wide_size = (uint32_t)size;
        table->keys += size <= 8 ? keys : 0;
        table->keys16 += size > 8 && size <= 16 ? keys : 0;
        table->keys_wide += size > 16 ? keys : 0;
    }
    /* 0 would mean the default: a class that no quota uses gets the minimum instead. */
    table->keys += table->keys == 0;
    table->keys16 += table->keys16 == 0;
    table->keys_wide += table->keys_wide == 0;
    table->wide_size += table->wide_size == 0 ? 16 : 0;
    table->tickets = 1;
    table->blocks = 1;
}

static int open_table(struct run *run, struct stint_error *error)
{
    const struct workload_spec *spec = &run->workload.spec;
    /* The table's secret, too: collisions of keys must not differ from run to run. */
    uint64_t state = run->options->seed, secret = splitmix_next(&state) | 1;
    struct stint_table_options options = {
        .clock = STINT_CLOCK_VIRTUAL,
        .epoch_ns = run->options->epoch_ns,
        .skew_max_ns = run->steps_back ? 2 * spec->step_ns : SKEW_NS,
        .hash_key = {secret, splitmix_next(&state)},
    };
    size_table(&options, run);
    int code = stint_table_open(&run->table, &options, error);
    for (size_t i = 0; code == 0 && i < run->n_quotas; i++)
        code = stint_table_accepts(run->table, &run->quotas[i], error);
    return code;
}

/* ---- Decisions ---- */

static size_t fill_items(struct run *run, const struct sim_event *event, struct stint_item *items)
{
    for (size_t i = 0; i < run->n_quotas; i++)
        items[i] =
            (struct stint_item){&run->quotas[i], &event->key, sizeof(event->key), event->cost};
    return run->n_quotas;
}

static void take_singly(struct run *run)
{
    for (size_t i = 0; i < run->n_batch; i++) {
        const struct sim_event *event = &run->events[i];
        run->decisions[i] = stint_take(run->table, run->quotas, &event->key, sizeof(event->key),
                                       event->cost, event->at_ns);
    }
}

static void take_lists(struct run *run)
{
    struct stint_item items[STINT_ITEMS_MAX];
    for (size_t i = 0; i < run->n_batch; i++) {
        const struct sim_event *event = &run->events[i];
        size_t n_items = fill_items(run, event, items);
        run->decisions[i] = stint_take_all(run->table, items, n_items, event->at_ns);
    }
}

/*
 * Whether the wait of the client can be checked: no other request was served meanwhile, and no
 * denial was charged.
 */
static bool can_try_wait(const struct run *run, const struct sim_event *event)
{
    const struct tally_key *key = &run->places.keys[sim_event_place(event)];
    return event->as_promised && event->stamp == key->admitted && run->latest_ns < event->at_ns &&
           !run->counts_denied;
}

static void try_wait(struct run *run, const struct sim_event *event)
{
    struct stint_item items[STINT_ITEMS_MAX];
    size_t n_items = fill_items(run, event, items);
    run->tally->waits_tried++;
    if (stint_peek(run->table, items, n_items, event->at_ns - 1).outcome == STINT_ALLOW)
        run->tally->waits_too_long++;
    if (stint_peek(run->table, items, n_items, event->at_ns).outcome != STINT_ALLOW)
        run->tally->waits_too_short++;
}

static void decide_all(struct run *run)
{
    uint64_t begun_ns = 0;
    bool timed = run->options->clock_ns != NULL &&
                 (!run->listens || run->tally->decisions % TIMED_ONE_IN == 0);
    for (size_t i = 0; run->steps_back && i < run->n_batch; i++)
        run->effective_ns[i] = table_effective_now(run->table, run->events[i].at_ns);
    if (timed)
        begun_ns = run->options->clock_ns();
    if (run->n_quotas == 1)
        take_singly(run);
    else
        take_lists(run);
    if (timed) {
        run->timed_ns += run->options->clock_ns() - begun_ns;
        run->timed += run->n_batch;
    }
}

/* ---- Judgement ---- */

/* Earlier results stay; no more are added. */
static int stop_judging(struct run *run, int code)
{
    run->judges = false;
    run->tally->oracle_full = code == STINT_E_FULL;
    return code == STINT_E_FULL ? 0 : code;
}

/* Whether the cost could ever fit: then NEVER is not a valid answer, but an unjustified denial. */
static bool fits_all(const struct run *run, uint32_t cost)
{
    for (size_t q = 0; q < run->n_quotas; q++)
        if (cost > most_units(&run->quotas[q]))
            return false;
    return true;
}

static int judge_admission(struct run *run, const struct oracle_ask *ask, struct stint_error *error)
{
    for (size_t q = 0; q < run->n_quotas; q++) {
        int code = oracle_admit(&run->oracles[q], ask, error);
        if (code != 0)
            return stop_judging(run, code);
    }
    return 0;
}

/* All quotas together: each must have free units, and one that may deny is enough. */
static struct oracle_view look(struct run *run, const struct oracle_ask *ask)
{
    struct oracle_view all = oracle_look(&run->oracles[0], ask);
    for (size_t q = 1; q < run->n_quotas; q++) {
        struct oracle_view view = oracle_look(&run->oracles[q], ask);
        all.has_space &= view.has_space;
        all.is_justified |= view.is_justified;
    }
    return all;
}

static void judge_refusal(struct run *run, size_t i, struct tally_key *key,
                          const struct oracle_ask *ask)
{
    const struct stint_decision *decision = &run->decisions[i];
    bool never = decision->outcome == STINT_NEVER;
    if (never && (!fits_all(run, ask->cost) || run->events[i].at_ns >= TABLE_LIFE_NS)) {
        key->false_run = 0;
        return;
    }
    struct oracle_view view = look(run, ask);
    view.is_justified = (view.is_justified || decision->stored == 0) && !never;
    tally_judge(run->tally, key, view, ask);
}

static int judge(struct run *run, size_t i, struct tally_key *key, const struct oracle_ask *ask,
                 struct stint_error *error)
{
    run->tally->judged++;
    if (run->decisions[i].outcome == STINT_ALLOW)
        return judge_admission(run, ask, error);
    judge_refusal(run, i, key, ask);
    return 0;
}

/* Under churn a slot gets another owner, of which nothing is known. */
static void welcome(struct run *run, const struct sim_event *event)
{
    uint32_t place = sim_event_place(event);
    tally_leave(run->tally, &run->places, place);
    run->places.keys[place].owner = (uint32_t)(event->key >> 32);
    for (size_t q = 0; run->judges && q < run->n_quotas; q++)
        oracle_forget(&run->oracles[q], place);
}

static void tell(struct run *run, struct sim_event *event, const struct stint_decision *decision)
{
    const struct tally_key *key = &run->places.keys[sim_event_place(event)];
    /* A wait from the policy of a full table is no promise of a state. */
    event->stamp = decision->stored != 0 ? key->admitted : key->admitted - 1;
    workload_tell(&run->workload, event, decision);
}

static int settle(struct run *run, size_t i, struct stint_error *error)
{
    struct sim_event *event = &run->events[i];
    const struct stint_decision *decision = &run->decisions[i];
    struct tally_key *key = &run->places.keys[sim_event_place(event)];
    if (key->owner != event->key >> 32)
        welcome(run, event);
    uint64_t now_ns = run->steps_back ? run->effective_ns[i] : event->at_ns;
    const struct oracle_ask ask = {.key = sim_event_place(event),
                                   .cost = event->cost,
                                   .now_ns = now_ns,
                                   .counted_ns = max_u64(now_ns, key->last_ns)};
    int code = run->judges ? judge(run, i, key, &ask, error) : 0;
    tally_remember(key, decision, &ask);
    if (run->options->sees != NULL)
        run->options->sees(run->options->arg, event, decision);
    if (run->listens)
        tell(run, event, decision);
    return code;
}

static int settle_all(struct run *run, struct stint_error *error)
{
    for (size_t i = 0; i < run->n_batch; i++) {
        int code = settle(run, i, error);
        if (code != 0)
            return code;
    }
    tally_count(run->tally, &run->places, run->events, run->decisions, run->n_batch);
    return 0;
}

/* ---- The loop ---- */

static bool fill_batch(struct run *run)
{
    uint64_t most = run->options->decisions_max;
    uint64_t left = most > 0 ? most - min_u64(most, run->tally->decisions) : UINT64_MAX;
    size_t size = run->listens ? 1 : BATCH;
    run->n_batch = workload_next_many(&run->workload, run->events, min_u64(size, left));
    run->tally->decisions_full = left == 0;
    return run->n_batch > 0;
}

static bool is_to_go_on(const struct run *run)
{
    const struct run_options *options = run->options;
    return options->goes_on == NULL || run->tally->decisions % BATCH != 0 ||
           options->goes_on(options->arg, run->tally->decisions, run->latest_ns);
}

static int run_all(struct run *run, struct stint_error *error)
{
    while (fill_batch(run)) {
        if (run->listens && can_try_wait(run, run->events))
            try_wait(run, run->events);
        decide_all(run);
        int code = settle_all(run, error);
        if (code != 0)
            return code;
        run->latest_ns = max_u64(run->latest_ns, run->events[run->n_batch - 1].at_ns);
        if (!is_to_go_on(run)) {
            run->tally->partial = true;
            return 0;
        }
    }
    return 0;
}

static int begin(struct run *run, struct stint_error *error)
{
    const struct run_options *options = run->options;
    run->workload = *options->workload;
    run->end_ns = run_length_ns(options);
    for (size_t i = 0; i < options->n_quotas; i++) {
        run->quotas[i] = options->quotas[i];
        run->quotas[i].epoch_ns = options->epoch_ns;
        run->counts_denied = run->counts_denied || options->quotas[i].count_denied;
    }
    const struct stint_quota *own = options->workload_quota;
    const struct workload_terms terms = {.quota = own != NULL ? own : run->quotas,
                                         .seed = options->seed,
                                         .end_ns = run->end_ns,
                                         .epoch_ns = options->epoch_ns};
    int code = workload_begin(&run->workload, &terms, error);
    run->listens = workload_listens(&run->workload);
    run->steps_back = run->workload.spec.kind == WORKLOAD_CLOCK_STEPS;
    run->judges = !options->without_oracle;
    run->tally->has_oracle = run->judges;
    if (code == 0)
        code = open_table(run, error);
    if (code == 0)
        code =
            tally_places_init(&run->places, &run->workload, run->quotas, options->n_quotas, error);
    uint64_t bytes =
        options->oracle_bytes_max > 0 ? options->oracle_bytes_max : RUN_ORACLE_BYTES_DEFAULT;
    for (size_t i = 0; code == 0 && run->judges && i < options->n_quotas; i++)
        code = oracle_init(&run->oracles[i], &run->quotas[i], run->places.n_places,
                           bytes / options->n_quotas, error);
    return code;
}

static void finish_quota(struct run *run, size_t i)
{
    struct tally_quota *quota = &run->tally->quotas[i];
    const struct exact_most *most = oracle_most(&run->oracles[i]);
    quota->bound = stint_max_in_any_window(&run->quotas[i]);
    quota->most = most->units;
    quota->most_at_ns = most->at_ns;
    quota->bound_broken = quota->most > quota->bound && run->tally->evicted == 0;
    run->tally->oracle_bytes += run->oracles[i].exact.bytes;
    run->tally->state_bytes += stint_state_size(&run->quotas[i]);
}

static void finish(struct run *run)
{
    struct tally *tally = run->tally;
    struct stint_table_info info;
    bool whole = !tally->partial && !tally->decisions_full;
    stint_table_info(run->table, max_u64(run->latest_ns, tally->last_ns), &info);
    tally->table_bytes = info.bytes;
    tally->evicted = info.evictions_evict + info.full_allowed;
    tally->dropped = run->workload.dropped;
    for (size_t i = 0; i < run->n_quotas; i++)
        finish_quota(run, i);
    tally_finish(tally, &run->places, whole ? run->end_ns : tally->last_ns);
    if (run->timed > 0)
        tally->ns_per_decision = (double)run->timed_ns / (double)run->timed;
}

int run_simulate(const struct run_options *options, struct tally *tally, struct stint_error *error)
{
    assert(options->n_quotas > 0 && options->n_quotas <= STINT_ITEMS_MAX);
    struct run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    memset(tally, 0, sizeof(*tally));
    tally->n_quotas = options->n_quotas;
    run->options = options;
    run->n_quotas = options->n_quotas;
    run->tally = tally;
    int code = begin(run, error);
    if (code == 0)
        code = run_all(run, error);
    if (code == 0)
        finish(run);
    for (size_t i = 0; i < options->n_quotas; i++)
        oracle_deinit(&run->oracles[i]);
    tally_places_deinit(&run->places);
    stint_table_close(run->table);
    workload_end(&run->workload);
    free(run);
    return code;
}
