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

/* What is remembered of each place while a run goes on. */
struct tally_key {
    uint32_t owner;    /* high half of the key that the place belongs to */
    uint32_t admitted; /* times, modulo 2^32: whether something came between */
    uint64_t units;
    uint64_t last_ns; /* of what was admitted last, by the effective time */
    uint64_t false_since_ns;
    uint32_t false_run;
    uint32_t denied; /* times, up to 2^32-1 */
    bool asked;
};

/* One key's current period under one quota. */
struct tally_period {
    uint64_t ends_ns; /* 0: none yet */
    uint64_t asked, used;
    uint32_t owner; /* of the place, under churn */
};

struct run {
    const struct run_options *options;
    struct workload workload;
    struct stint_table *table;
    size_t n_quotas;
    struct stint_quota quotas[STINT_ITEMS_MAX];
    struct oracle oracles[STINT_ITEMS_MAX];
    struct tally_key *keys;       /* by place */
    struct tally_period *periods; /* n_quotas for each place */
    uint64_t *client_units;
    uint32_t n_places, n_clients; /* no clients: the workload has none */
    struct tally *tally;
    bool judges, listens, steps_back, counts_denied;
    uint64_t latest_ns, end_ns;
    uint64_t timed_ns, timed;
    size_t n_batch;
    struct sim_event events[BATCH];
    struct stint_decision decisions[BATCH];
    uint64_t effective_ns[BATCH]; /* if the clock goes back */
};

/* ---- The figures ---- */

#define WARM_PERIODS 2 /* no state remembers longer */

double tally_fairness(const struct tally_shares *shares)
{
    return shares->squares > 0 ? shares->sum * shares->sum / (shares->n * shares->squares) : 1.0;
}

double tally_utilisation(const struct tally_quota *quota)
{
    return quota->usable_units > 0 ? (double)quota->used_units / (double)quota->usable_units : -1;
}

double tally_share_of_limit(const struct tally *tally, size_t i)
{
    const struct tally_quota *quota = &tally->quotas[i];
    double units = quota->weighed_limit * (double)tally->keys;
    return units > 0 ? quota->weighed_units / units : -1;
}

bool tally_is_broken(const struct tally *tally)
{
    for (size_t i = 0; i < tally->n_quotas; i++)
        if (tally->quotas[i].bound_broken)
            return true;
    return tally->unjustified > 0 || tally->waits_too_long > 0 || tally->waits_too_short > 0;
}

static int open_places(struct run *run, struct stint_error *error)
{
    size_t n = workload_places(&run->workload);
    assert(n > 0 && run->n_quotas > 0);
    run->n_places = (uint32_t)n;
    run->n_clients = workload_clients(&run->workload);
    run->keys = calloc(n, sizeof(*run->keys));
    run->periods = calloc(n * run->n_quotas, sizeof(*run->periods));
    run->client_units = calloc(run->n_clients + 1u, sizeof(*run->client_units));
    if (run->keys != NULL && run->periods != NULL && run->client_units != NULL)
        return 0;
    return err_set(error, STINT_E_SYSTEM, "out of memory for the figures of %zu keys", n);
}

static void add_share(struct tally_shares *shares, uint64_t units)
{
    shares->n += 1;
    shares->sum += (double)units;
    shares->squares += (double)units * (double)units;
}

static void end_period(struct run *run, size_t quota, struct tally_period *period)
{
    struct tally_quota *tally = &run->tally->quotas[quota];
    tally->usable_units += min_u64(period->asked, run->quotas[quota].limit);
    tally->used_units += period->used;
    *period = (struct tally_period){0};
}

/* Sums up the place's owner, who is gone. */
static void leave(struct run *run, uint32_t place)
{
    struct tally *tally = run->tally;
    struct tally_key *key = &run->keys[place];
    if (!key->asked)
        return;
    tally->keys++;
    add_share(&tally->key_shares, key->units);
    if (key->denied > tally->denied_most) {
        tally->denied_most = key->denied;
        tally->denied_most_key = (uint64_t)key->owner << 32 | place;
    }
    *key = (struct tally_key){.admitted = key->admitted + 1};
}

static uint32_t granted(const struct run *run, size_t i)
{
    return run->decisions[i].outcome == STINT_ALLOW ? run->events[i].cost : 0;
}

/* How much a unit counts that is admitted at this instant. */
static double weight_at(uint64_t at_ns, uint64_t period_ns, uint64_t end_ns)
{
    if (at_ns / period_ns < WARM_PERIODS || at_ns >= end_ns)
        return 0;
    uint64_t inside_ns = min_u64(at_ns - WARM_PERIODS * period_ns, end_ns - at_ns);
    return inside_ns >= period_ns ? 1 : (double)inside_ns / (double)period_ns;
}

/* Periods of all keys lie alike: multiples of their length. */
static void count_periods(struct run *run, size_t quota)
{
    uint64_t length_ns = run->quotas[quota].period_ns;
    for (size_t i = 0; i < run->n_batch; i++) {
        uint64_t at_ns = run->events[i].at_ns;
        size_t place = sim_event_place(&run->events[i]);
        uint32_t owner = (uint32_t)(run->events[i].key >> 32);
        struct tally_period *period = &run->periods[place * run->n_quotas + quota];
        if (at_ns >= period->ends_ns || owner != period->owner) {
            end_period(run, quota, period);
            period->ends_ns = (at_ns / length_ns + 1) * length_ns;
            period->owner = owner;
        }
        uint32_t units = granted(run, i);
        period->asked += run->events[i].cost;
        period->used += units;
        if (units > 0)
            run->tally->quotas[quota].weighed_units +=
                units * weight_at(at_ns, length_ns, run->end_ns);
    }
}

static void count_totals(struct run *run)
{
    struct tally *tally = run->tally;
    uint64_t outcomes[STINT_NEVER + 1] = {0}, asked = 0, allowed = 0, last_ns = tally->last_ns;
    for (size_t i = 0; i < run->n_batch; i++) {
        const struct stint_decision *decision = &run->decisions[i];
        outcomes[decision->outcome]++;
        asked += run->events[i].cost;
        allowed += granted(run, i);
        last_ns = max_u64(last_ns, run->events[i].at_ns);
        if (decision->stored == 0)
            tally->unstored += decision->outcome == STINT_DENY;
    }
    tally->decisions += run->n_batch;
    tally->allowed += outcomes[STINT_ALLOW];
    tally->denied += outcomes[STINT_DENY];
    tally->never += outcomes[STINT_NEVER];
    tally->units_asked += asked;
    tally->units_allowed += allowed;
    tally->last_ns = last_ns;
}

/* Counts decisions: of the periods of their keys, of their clients, and the totals. */
static void count_batch(struct run *run)
{
    count_totals(run);
    for (size_t i = 0; i < run->n_quotas; i++)
        count_periods(run, i);
    for (size_t i = 0; run->n_clients > 0 && i < run->n_batch; i++)
        if (run->events[i].client < run->n_clients)
            run->client_units[run->events[i].client] += granted(run, i);
}

/* A denial, by what the oracles say. */
static void count_judged(struct tally *tally, struct tally_key *key, struct oracle_view view,
                         const struct oracle_ask *ask)
{
    uint64_t at_ns = ask->counted_ns;
    if (!view.is_justified && tally->unjustified++ == 0)
        tally->unjustified_at_ns = at_ns;
    if (!view.has_space) {
        key->false_run = 0;
        return;
    }
    tally->false_denials++;
    tally->false_units += ask->cost;
    if (key->false_run++ == 0)
        key->false_since_ns = at_ns;
    if (key->false_run > tally->false_longest)
        tally->false_longest = key->false_run;
    tally->false_longest_ns =
        max_u64(tally->false_longest_ns, sub_floor(at_ns, key->false_since_ns));
}

/* Sums up all keys; periods that end later than end_ns were not whole. */
static void finish_places(struct run *run, uint64_t end_ns)
{
    for (uint32_t place = 0; place < run->n_places; place++) {
        struct tally_period *periods = &run->periods[place * run->n_quotas];
        for (size_t i = 0; run->keys[place].asked && i < run->n_quotas; i++)
            if (periods[i].ends_ns <= end_ns)
                end_period(run, i, &periods[i]);
        leave(run, place);
    }
    for (size_t i = 0; i < run->n_quotas && end_ns >= run->end_ns; i++) {
        double periods = (double)run->end_ns / (double)run->quotas[i].period_ns;
        if (periods >= WARM_PERIODS + 2)
            run->tally->quotas[i].weighed_limit =
                (periods - WARM_PERIODS - 1) * (double)run->quotas[i].limit;
    }
    for (uint32_t client = 0; client < run->n_clients; client++)
        add_share(&run->tally->client_shares, run->client_units[client]);
}

/* Counts a decision of its key. */
static void remember(struct tally_key *key, const struct stint_decision *decision,
                     const struct oracle_ask *ask)
{
    key->asked = true;
    if (decision->outcome != STINT_ALLOW) {
        key->denied += key->denied < UINT32_MAX;
        return;
    }
    key->admitted++;
    key->units += ask->cost;
    key->last_ns = ask->counted_ns;
    key->false_run = 0;
}

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

void run_size_table(struct stint_table_options *table, const struct stint_quota *quotas,
                    size_t n_quotas, uint64_t keys, uint64_t wide_bytes_max)
{
    for (size_t i = 0; i < n_quotas; i++) {
        size_t size = stint_state_size(&quotas[i]);
        if (size > 16)
            table->wide_size = (uint32_t)max_u64(table->wide_size, size);
    }
    for (size_t i = 0; i < n_quotas; i++) {
        size_t size = stint_state_size(&quotas[i]);
        if (size <= 8)
            table->keys += keys;
        else if (size <= 16)
            table->keys16 += keys;
        else {
            assert(table->wide_size > 0); /* of this quota, at least */
            table->keys_wide += min_u64(keys, wide_bytes_max / table->wide_size);
        }
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
    run_size_table(&options, run->quotas, run->n_quotas, live_keys(run), UINT64_MAX);
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
    const struct tally_key *key = &run->keys[sim_event_place(event)];
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
    count_judged(run->tally, key, view, ask);
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
    leave(run, place);
    run->keys[place].owner = (uint32_t)(event->key >> 32);
    for (size_t q = 0; run->judges && q < run->n_quotas; q++)
        oracle_forget(&run->oracles[q], place);
}

static void tell(struct run *run, struct sim_event *event, const struct stint_decision *decision)
{
    const struct tally_key *key = &run->keys[sim_event_place(event)];
    /* A wait from the policy of a full table is no promise of a state. */
    event->stamp = decision->stored != 0 ? key->admitted : key->admitted - 1;
    workload_tell(&run->workload, event, decision);
}

static int settle(struct run *run, size_t i, struct stint_error *error)
{
    struct sim_event *event = &run->events[i];
    const struct stint_decision *decision = &run->decisions[i];
    struct tally_key *key = &run->keys[sim_event_place(event)];
    if (key->owner != event->key >> 32)
        welcome(run, event);
    uint64_t now_ns = run->steps_back ? run->effective_ns[i] : event->at_ns;
    const struct oracle_ask ask = {.key = sim_event_place(event),
                                   .cost = event->cost,
                                   .now_ns = now_ns,
                                   .counted_ns = max_u64(now_ns, key->last_ns)};
    int code = run->judges ? judge(run, i, key, &ask, error) : 0;
    remember(key, decision, &ask);
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
    count_batch(run);
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
        code = open_places(run, error);
    uint64_t bytes =
        options->oracle_bytes_max > 0 ? options->oracle_bytes_max : RUN_ORACLE_BYTES_DEFAULT;
    for (size_t i = 0; code == 0 && run->judges && i < options->n_quotas; i++)
        code = oracle_init(&run->oracles[i], &run->quotas[i], run->n_places,
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
    tally->evicted = info.evictions_evict + info.full_allowed;
    tally->dropped = run->workload.dropped;
    for (size_t i = 0; i < run->n_quotas; i++)
        finish_quota(run, i);
    finish_places(run, whole ? run->end_ns : tally->last_ns);
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
    free(run->keys);
    free(run->periods);
    free(run->client_units);
    stint_table_close(run->table);
    workload_end(&run->workload);
    free(run);
    return code;
}
