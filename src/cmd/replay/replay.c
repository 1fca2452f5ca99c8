/* SPDX-License-Identifier: MIT */
/*
 * `stint replay`: from the source, through the run, to the report.
 *
 * The run decides events with the limiter, in batches so that its calls can be timed without timing
 * the clock, and counts the results.
 *
 * The table's time: a trace has its own. For logs, 0 is the midnight (UTC) before the first event,
 * so that the same log gives the same decisions wherever its end is cut off; a table in a file
 * keeps the 0 with which it was created. Calendar windows are right in all cases, since the table
 * knows the wall-clock time of its 0.
 */
#define _GNU_SOURCE
#include "cmd/replay/replay.h"

#include "algorithm/spec.h"
#include "backend/memcached/memcached_state.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"
#include "sim/judge/run.h"
#include "table/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- The command line ------------------------------------------------------------------------ */

#define KEYS_MAX (UINT64_C(1) << 32)

static const char doc[] =
    "Decides the events of the FILEs (standard input without one, or for -), plain, gzip or zstd, "
    "at the times in them, and prints which keys would have been limited.\vA trace has "
    "lines TIME KEY [COST], TIME in seconds from 0 on; `#` begins a comment.\n\n"
    "Logs are not in the order of time. Events of files are sorted first, those of a pipe only "
    "with "
    "--sort; else a line that goes back in time is decided at the latest time seen.\n\n"
    "Memory: a table of the size that --keys sets, some 100 bytes for each different key, and at "
    "most 200 MB for sorting; see MEMORY in stint-replay(1).\n\n"
    "With --store the decisions are those of a shared store, made in the time of the "
    "events under keys of their own, which are deleted at the end; the report counts "
    "those that differ from the embedded engine's.\n\n"
    "Exit codes: 0 done, 1 bad input, or interrupted, 2 bad usage, 3 decisions of a --store "
    "differ. See stint-replay(1), stint-spec(7).";

/* By enum stint_verb. */
static const char *const verbs[] = {"take", "take_upto", "peek", NULL};

static const struct args_option options_known[] = {
    {"quota", "SPEC", 1, "What is allowed; several are taken all or nothing",
     ARGS_QUOTAS(struct replay_options, quotas, n_quotas)},
    {"domain", "DOMAIN", 1, "With --rules: the domain of the rules",
     ARGS_TEXT(struct replay_options, rules.domain)},
    {"descriptors", "LISTS", 1,
     "With --rules: which columns of the log are the entries of descriptors, as in 'ip,path;user' "
     "or 'remote_address=ip'",
     ARGS_TEXT(struct replay_options, rules.descriptors)},
    {"verb", "VERB", 1, "take (default), take_upto, or peek",
     ARGS_CHOICE(struct replay_options, verb, verbs)},
    {"decisions", NULL, 4,
     "A line for each event: time, key, cost, outcome, granted, remaining, retry_after_ns, "
     "reset_after_ns, separated by tabs",
     ARGS_FLAG(struct replay_options, decisions)},
    {"json", NULL, 4, "The summary as one JSON object; with --decisions an object for each event",
     ARGS_FLAG(struct replay_options, json)},
    {"popular", "N", 4,
     "Print the N keys with most requests and the N denied most (default: 10 denied most)",
     ARGS_NUMBER(struct replay_options, top_keys, REPLAY_POPULAR_MAX)},
    {"state", "FILE", 5, "Keep the table in FILE, over several replays",
     ARGS_FILE(struct replay_options, state)},
    {"keys", "N", 5, "Capacity for N live keys (default 1048576; fewer if states are wide)",
     ARGS_NUMBER(struct replay_options, keys, KEYS_MAX)},
    {"plot", "FILE", 6, GNUPLOT_HELP, ARGS_PART(struct replay_options, plot, gnuplot_option)},
    {"plot-key", "KEY", 6, "What --plot shows (default: the key denied most)",
     ARGS_TEXT(struct replay_options, plot_key)},
    {0},
};

/* A picture starts with a key that was never used, and shows what was taken. */
static void check_plot(struct argp_state *state, const struct replay_options *options)
{
    if (options->plot.format == GNUPLOT_NONE)
        return;
    if (options->state != NULL)
        argp_error(state, "--plot shows a key from its first use on, which --state may have seen");
    if (options->verb == STINT_PEEK)
        argp_error(state, "--plot shows what is taken; --verb peek takes nothing");
    if (options->plot.format == GNUPLOT_TERMINAL && (options->json || options->decisions))
        argp_error(state, "--plot - and --%s would mix on standard output; name a FILE",
                   options->json ? "json" : "decisions");
}

static void check_rules(struct argp_state *state, const struct replay_options *options)
{
    const struct replay_rules_options *rules = &options->rules;
    bool has_rules = rules->files.n_paths > 0;
    if (!has_rules && (rules->domain != NULL || rules->descriptors != NULL))
        argp_error(state, "--domain and --descriptors are for --rules");
    if (!has_rules)
        return;
    if (options->n_quotas > 0 || options->source.key != NULL)
        argp_error(state, "--rules has its own quotas and keys; expected no --%s",
                   options->n_quotas > 0 ? "quota" : "key");
    if (rules->domain == NULL || rules->descriptors == NULL)
        argp_error(state, "--rules needs --domain D and --descriptors, such as 'ip,path;user'");
    struct stint_error error;
    if (replay_rules_check(rules, &error) != 0)
        argp_error(state, "%s", error.message);
    if (options->plot.format != GNUPLOT_NONE)
        argp_error(state, "--plot shows what one quota does to a key; --rules has several");
}

static void check_store(struct argp_state *state, const struct replay_options *options)
{
    if (options->store.text == NULL)
        return;
    if (options->state != NULL)
        argp_error(state, "--store keeps nothing of a run; expected no --state");
}

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct replay_options *options = input;
    source_add_path(state, &options->source, word);
}

static void check_together(struct argp_state *state, void *input)
{
    const struct replay_options *options = input;
    check_rules(state, options);
    check_store(state, options);
    if (options->n_quotas == 0 && options->rules.files.n_paths == 0)
        argp_error(state, "expected --quota, for example --quota '100/60s', or --rules PATH");
    if (options->top_keys > 0 && options->decisions)
        argp_error(state, "--popular is part of the summary, which --decisions replaces");
    if (options->plot.format == GNUPLOT_NONE && options->plot_key != NULL)
        argp_error(state, "--plot-key chooses the key for --plot; expected --plot too");
    check_plot(state, options);
}

static void parse_options(struct replay_options *options, int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_word, .end = check_together},
        .children = {{&rules_given_set, offsetof(struct replay_options, rules.files), NULL, 1},
                     {&store_given_set, offsetof(struct replay_options, store), NULL, 1},
                     {&source_set, offsetof(struct replay_options, source), NULL, 0}},
        .arguments = "[FILE...]",
        .doc = doc,
    };
    *options = (struct replay_options){.verb = STINT_TAKE};
    args_parse(&command, argc, argv, options);
}

/* ---- The run: decisions on events ------------------------------------------------------------ */

#define DIFFERENCES_NAMED 5
#define LATE_EVENTS_MIN 1000 /* fewer give no share before the end */

static int run_init(struct replay_run *run, struct stint_error *error)
{
    const struct replay_options *options = &run->options;
    uint64_t periods_ns[STINT_ITEMS_MAX], secret[3];
    struct buf prefix = buf_of(run->prefix, sizeof(run->prefix));
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    for (size_t i = 0; i < options->n_quotas; i++)
        periods_ns[i] = options->quotas[i].period_ns;
    buf_add(&prefix, REPLAY_STORE_PREFIX "%016" PRIx64 ":", secret[2]);
    key_set_init(&run->names, secret);
    if (run->rules == NULL) /* else each rule has an exact count of its own */
        exact_init(&run->exact, periods_ns, options->n_quotas);
    return 0;
}

static void run_deinit(struct replay_run *run)
{
    shared_session_close(run->session);
    stint_table_close(run->table);
    key_set_deinit(&run->names);
    exact_deinit(&run->exact);
    free(run->plot.events);
    free(run->tallies);
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

static int open_store(struct replay_run *run, struct stint_error *error)
{
    const struct replay_options *options = &run->options;
    int code = options->store.text == NULL ? 0
                                           : shared_session_open(&run->session, &options->store,
                                                                 run->prefix, run->epoch_ns, error);
    for (size_t i = 0; run->session != NULL && i < options->n_quotas && code == 0; i++) {
        const struct stint_quota *quota = &options->quotas[i];
        struct buf name = buf_of(run->quota_names[i], sizeof(run->quota_names[i]));
        buf_add(&name, "%016" PRIx64, quota->derived.params_hash[0]);
        code = run->session->store->ops->accepts(run->session->store, quota, error);
    }
    return code;
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

/* The time at which the windows of a table begin together with the store's. */
static uint64_t store_epoch_of(const struct replay_run *run, uint64_t first_ns)
{
    const struct replay_options *options = &run->options;
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
    if (run->source.format == SOURCE_TRACE)
        return 0;
    if (run->options.store.text == NULL)
        return first_ns - first_ns % NS_PER_DAY;
    return store_epoch_of(run, first_ns);
}

/* With the first event: its time determines the time 0 of the table and of the store. */
static int run_open(struct replay_run *run, uint64_t first_ns, struct stint_error *error)
{
    const struct replay_options *options = &run->options;
    struct stint_table_options table = {
        .path = options->state,
        .clock = STINT_CLOCK_VIRTUAL,
        .epoch_ns = (int64_t)epoch_of(run, first_ns),
        .skew_max_ns = 1, /* one caller, whose time never goes back */
    };
    if (run->rules != NULL)
        replay_rules_size(run->rules, options->keys, &table);
    else
        /* States of some 10 kB for a million keys would not fit: wide ones get this much memory. */
        run_size_table(&table, options->quotas, options->n_quotas,
                       options->keys > 0 ? options->keys : REPLAY_KEYS_DEFAULT,
                       options->keys > 0 ? UINT64_MAX : REPLAY_WIDE_BYTES_DEFAULT);
    int code = stint_table_open(&run->table, &table, error);
    for (size_t i = 0; code == 0 && i < options->n_quotas; i++)
        code = stint_table_accepts(run->table, &options->quotas[i], error);
    if (code == 0) {
        run->epoch_ns = (uint64_t)stint_epoch_ns(run->table);
        code = open_store(run, error);
    }
    if (code == 0 && run->rules != NULL)
        code = replay_rules_begin(run->rules, run->table, &table, run->session, error);
    if (code != 0)
        return refused(options, code, error);
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

/* Counts and names a decision of the store that differs from that of the engine. */
static void compare(struct replay_run *run, size_t i, const struct stint_decision *engine,
                    const struct stint_decision *store)
{
    if (replay_store_agrees(engine, store))
        return;
    if (run->differing < DIFFERENCES_NAMED)
        print_message("event %" PRIu64 ": the store says %s, %" PRIu32
                      " left, and the engine %s, %" PRIu32 " left",
                      run->events + i + 1, outcome_names[store->outcome], store->remaining,
                      outcome_names[engine->outcome], engine->remaining);
    else if (run->differing == DIFFERENCES_NAMED)
        print_message("further decisions that differ are counted, not named");
    run->differing++;
}

static int ask_rules(struct replay_run *run, size_t i, struct stint_error *error)
{
    const struct event_entry *entry = &run->pending[i];
    const struct replay_rules_event event = {.key = key_set_name(&run->names, entry->key),
                                             .number = entry->key,
                                             .cost = entry->cost,
                                             .now_ns = run->pending_now_ns[i],
                                             .verb = (uint8_t)run->options.verb};
    struct stint_decision engine;
    int code = replay_rules_decide(run->rules, &event, &run->decisions[i], &engine, error);
    if (code == 0)
        compare(run, i, &engine, &run->decisions[i]);
    return code;
}

static struct stint_decision ask_table(struct replay_run *run, struct stint_item *items, size_t i)
{
    const struct replay_options *options = &run->options;
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

/* With --plot-key, only that key. */
static bool is_wanted(const struct replay_run *run, uint32_t key)
{
    const char *wanted = run->options.plot_key;
    return wanted == NULL || span_equals(key_set_name(&run->names, key), wanted);
}

/* The result of an event: for peek, the result that take would have had. */
static int count(struct replay_run *run, size_t i, struct stint_error *error)
{
    const struct event_entry *entry = &run->pending[i];
    const struct stint_decision *decision = &run->decisions[i];
    bool allowed = decision->outcome == STINT_ALLOW;
    uint32_t units = run->options.verb == STINT_TAKE_UPTO ? decision->granted
                     : allowed                            ? entry->cost
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
    if (run->options.plot.format != GNUPLOT_NONE) {
        struct history_event event = {run->pending_now_ns[i], entry->cost, units, entry->key};
        if (is_wanted(run, entry->key) && !history_events_add(&run->plot, event))
            return err_set(error, STINT_E_SYSTEM, "out of memory for --plot: %zu events so far",
                           run->plot.n_events);
    }
    if (units == 0 || run->options.verb == STINT_PEEK || run->rules != NULL)
        return 0;
    return exact_add(&run->exact, entry->key, (struct exact_run){run->pending_now_ns[i], units},
                     error);
}

/* ---- The store ---- */

/*
 * Requests are sent in the order of the events, a batch at a time, on one connection to each
 * server, so those of one key are decided in their order. A quota's states are named by its
 * parameters; equal quotas of a list share theirs, as in a table.
 */

static void take_answer(struct backend_op *op, uint64_t now_ns)
{
    struct replay_run *run = op->arg;
    (void)now_ns;
    run->n_waiting--;
}

/* All quotas on one key; at: of the batch. */
static void send_request(struct replay_run *run, size_t at, struct backend_request ask,
                         uint32_t key, uint32_t cost)
{
    const struct replay_options *options = &run->options;
    struct backend *store = run->session->store;
    struct backend_item items[STINT_ITEMS_MAX];
    struct backend_op *op = &run->ops[at];
    for (size_t i = 0; i < options->n_quotas; i++)
        items[i] = (struct backend_item){.quota = &options->quotas[i],
                                         .name = span_of_text(run->quota_names[i]),
                                         .key = key_set_name(&run->names, key),
                                         .cost = cost};
    ask.is_virtual = true;
    ask.items = items;
    ask.n_items = options->n_quotas;
    ask.deadline_ns = add_sat(ask.now_ns, options->store.timeout_ns);
    *op = (struct backend_op){.answered = take_answer, .arg = run, .answer.each = run->each[at]};
    /* Counted first: the answer may come during the call. */
    run->n_waiting++;
    store->ops->ask(store, &ask, op);
    if (op->answer.outcome != BACKEND_WAITS)
        run->n_waiting--;
}

/* Waits for the answers to the first n requests of the batch: all must be decided. */
static int receive_answers(struct replay_run *run, size_t n, struct stint_error *error)
{
    while (run->n_waiting > 0)
        shared_session_run(run->session);
    for (size_t i = 0; i < n; i++)
        shared_session_note(run->session, &run->ops[i].answer);
    for (size_t i = 0; i < n; i++) {
        const struct backend_answer *answer = &run->ops[i].answer;
        if (answer->outcome == BACKEND_REFUSED)
            return err_set(error, STINT_E_MISMATCH, "--store: %s", answer->error);
        if (answer->outcome != BACKEND_DECIDED)
            return err_set(error, STINT_E_GONE, "--store: %s; `stint store check URL` tests it",
                           answer->error != NULL ? answer->error : "no answer came in time");
    }
    return 0;
}

/* The store's decision replaces the table's. */
static int ask_store(struct replay_run *run, struct stint_error *error)
{
    uint64_t begun_ns = uv_hrtime();
    for (size_t i = 0; i < run->n_pending; i++) {
        const struct backend_request ask = {.verb = (uint8_t)run->options.verb,
                                            .now_ns = run->epoch_ns + run->pending_now_ns[i]};
        send_request(run, i, ask, run->pending[i].key, run->pending[i].cost);
    }
    int code = receive_answers(run, run->n_pending, error);
    run->session->spent_ns += uv_hrtime() - begun_ns;
    for (size_t i = 0; i < run->n_pending && code == 0; i++) {
        const struct stint_decision *decision = &run->ops[i].answer.sum;
        compare(run, i, &run->decisions[i], decision);
        run->decisions[i] = *decision;
    }
    return code;
}

/* Deletes key by key: a SCAN would pass over all other keys, and memcached has none. */
static int reset_keys(struct replay_run *run, struct stint_error *error)
{
    const struct backend_request ask = {.verb = REQUEST_RESET};
    uint32_t n_keys = run->names.n_keys;
    int code = 0;
    for (uint32_t key = 0; key < n_keys && code == 0;) {
        size_t n = 0;
        for (; n < REPLAY_BATCH && key < n_keys; n++, key++)
            send_request(run, n, ask, key, 0);
        code = receive_answers(run, n, error);
    }
    return code;
}

/* Deletes its keys from the store, if it has one. */
static int run_clean(struct replay_run *run, struct stint_error *error)
{
    struct stint_error why;
    if (run->session == NULL || !run->session->may_have_keys)
        return 0;
    int code = run->rules == NULL ? reset_keys(run, &why)
                                  : replay_rules_clean(run->rules, &run->names, &why);
    return code == 0 ? 0
                     : err_set(error, code, "%s; keys that begin with %s may be left there",
                               why.message, run->prefix);
}

/*
 * Where more than 1 % of the lines are late: says so once, before any result of a long input is
 * complete. The caller knows that a --state has a time of its own, and what --no-sort does.
 */
static void name_late(struct replay_run *run)
{
    struct formatted late, events;
    if (run->late_named || run->late * 100 <= run->events || event_source_sorts(&run->source) ||
        run->options.source.no_sort)
        return;
    run->late_named = true;
    print_message("%s: %s of %s lines are out of order: earlier than a line before them. They are "
                  "decided at the latest time seen, which denies more than at their own time; read "
                  "the file instead of a pipe, or use --sort",
                  run->source.name, format_count(&late, run->late),
                  format_count(&events, run->events));
}

/* Decides the events that were added. */
static int run_flush(struct replay_run *run, struct stint_error *error)
{
    struct stint_item items[STINT_ITEMS_MAX] = {0};
    for (size_t q = 0; q < run->options.n_quotas; q++)
        items[q].quota = &run->options.quotas[q];
    uint64_t begun_ns = clock_boot_ns();
    int code = 0;
    for (size_t i = 0; i < run->n_pending && code == 0; i++) {
        if (run->rules != NULL)
            code = ask_rules(run, i, error);
        else
            run->decisions[i] = ask_table(run, items, i);
    }
    run->decide_ns += clock_boot_ns() - begun_ns;
    if (code == 0 && run->session != NULL && run->rules == NULL)
        code = ask_store(run, error);
    size_t n = run->n_pending;
    run->n_pending = 0; /* an operation that may have been done is not repeated */
    for (size_t i = 0; i < n && code == 0; i++) {
        code = count(run, i, error);
        if (code == 0 && run->options.decisions)
            replay_print_decision(run, &run->pending[i], &run->decisions[i]);
    }
    if (code != 0)
        return code;
    if (run->events >= LATE_EVENTS_MIN)
        name_late(run);
    if (run->table != NULL)
        stint_table_set_now(run->table, run->latest_ns);
    return 0;
}

/* Adds the next event; decides once REPLAY_BATCH are there. */
static int run_add(struct replay_run *run, struct event_entry entry, struct stint_error *error)
{
    assert(run->table != NULL);
    if (run->n_pending == REPLAY_BATCH) {
        int code = run_flush(run, error);
        if (code != 0)
            return code;
    }
    uint64_t now_ns = entry.at_ns > run->epoch_ns ? entry.at_ns - run->epoch_ns : 0;
    if (now_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE,
                       "the events are more than 18 years later than the table in %s",
                       run->options.state != NULL ? run->options.state : "memory");
    if (run->options.store.text != NULL) /* which counts in whole microseconds */
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

/* ---- The command ----------------------------------------------------------------------------- */

#define STDOUT_BUFFER (1u << 20)

/* Decides the next event; opens the table for the first one. */
static int decide_event(struct replay_run *run, struct event_entry entry, struct stint_error *error)
{
    int code = run->table != NULL ? 0 : run_open(run, entry.at_ns, error);
    return code != 0 ? code : run_add(run, entry, error);
}

/* Reads all events, and decides them at once or, if they are to be sorted, keeps them. */
static int read_all(struct replay_run *run, struct stint_error *error)
{
    struct event event;
    bool sorts = event_source_sorts(&run->source);
    int code;
    for (uint64_t n = 0; (code = event_source_next(&run->source, &event, error)) > 0; n++) {
        struct event_entry entry = {
            .at_ns = event.at_ns, .cost = event.cost, .decimals = event.decimals};
        code = key_set_add(&run->names, event.key, &entry.key, error);
        if (code == 0)
            code = sorts ? event_sorter_add(&run->sorter, entry, error)
                         : decide_event(run, entry, error);
        if (code != 0)
            return code;
        if (n % REPLAY_BATCH != 0)
            continue;
        progress_step(&run->progress, event_source_bytes_read(&run->source));
        if (ferror(stdout) || interrupts_seen() > 0)
            return 0; /* no output is read any more; see main.c */
    }
    return code;
}

static int decide_sorted(struct replay_run *run, struct stint_error *error)
{
    struct event_entry entry;
    int code = 0;
    while (code == 0 && !ferror(stdout) && interrupts_seen() == 0) {
        int found = event_sorter_next(&run->sorter, &entry, error);
        if (found <= 0)
            return found;
        code = decide_event(run, entry, error);
    }
    return code;
}

/*
 * If the input breaks off, the decisions up to there are made, and are shown. So they are if the
 * user ends reading, but for a store, which is left soon: the next interrupt then ends deciding.
 */
static int replay_all(struct replay_run *run, struct stint_error *error)
{
    struct stint_error ignored;
    int code = read_all(run, error);
    run->interrupted = run->options.store.text == NULL ? interrupt_take() : interrupts_seen() > 0;
    int sorted = decide_sorted(run, code == 0 ? error : &ignored);
    code = code == 0 ? sorted : code;
    int flushed = run_flush(run, code == 0 ? error : &ignored);
    run->interrupted = run->interrupted || interrupts_seen() > 0;
    progress_end(&run->progress);
    return code != 0 ? code : flushed;
}

static int report(struct replay_run *run)
{
    if (run->events == 0 && run->source.malformed > 0)
        return print_failure("no line of %s could be read", run->source.name);
    name_late(run);
    if (run->interrupted)
        print_message("interrupted: these are the decisions until then");
    int code = replay_report(run);
    if (code != CMD_DONE)
        return code;
    return run->differing > 0 ? CMD_DENIED : run->interrupted ? CMD_BAD_INPUT : CMD_DONE;
}

/* The columns of the descriptors are the key. */
static int open_rules(struct replay_run *run, struct stint_error *error)
{
    static const char *const store_names[] = {RULES_STORE_DEFAULT};
    struct replay_options *options = &run->options;
    struct rules_load_options *load = &options->rules.files.load;
    if (options->rules.files.n_paths == 0)
        return 0;
    if (options->store.text != NULL) { /* the store of rules that name none */
        load->stores = store_names;
        load->n_stores = load->default_store = 1;
    }
    int code = replay_rules_open(&run->rules, &options->rules, error);
    if (code != 0)
        return code;
    options->source.key = run->rules->key_expr;
    return 0;
}

static int open_input(struct replay_run *run, struct stint_error *error)
{
    const struct source_options *source = &run->options.source;
    int code = open_rules(run, error);
    if (code != 0)
        return code;
    if (source->n_paths == 0 && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        fputs("Reading events from standard input; ^D ends.\n", stderr);
    return event_source_open(&run->source, source, error);
}

static int open_and_run(struct replay_run *run)
{
    struct stint_error error;
    int result = CMD_BAD_INPUT;
    if (open_input(run, &error) != 0) {
        print_message("%s", error.message);
        return result;
    }
    progress_begin(&run->progress, run->source.size);
    event_sorter_init(&run->sorter, EVENT_SORTER_HELD_MAX);
    if (run_init(run, &error) != 0 || replay_all(run, &error) != 0)
        print_message("%s", error.message);
    else
        result = report(run);
    if (run_clean(run, &error) != 0) {
        print_message("%s", error.message);
        result = CMD_BAD_INPUT;
    }
    run_deinit(run);
    event_sorter_deinit(&run->sorter);
    event_source_close(&run->source);
    return result;
}

int replay_main(int argc, char **argv)
{
    struct replay_run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return print_failure("out of memory");
    parse_options(&run->options, argc, argv);
    setvbuf(stdout, NULL, _IOFBF, STDOUT_BUFFER);
    if (run->options.store.text != NULL) { /* it is to be left as it was */
        interrupt_catch_all(NULL);
        signal(SIGPIPE, SIG_IGN);
    } else {
        interrupt_catch();
    }
    int result = open_and_run(run);
    replay_rules_close(run->rules);
    rules_args_free(&run->options.rules.files);
    free(run);
    return result;
}
