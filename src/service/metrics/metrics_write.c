/* SPDX-License-Identifier: MIT */
/*
 * Metrics in Prometheus' text format 0.0.4, and in OpenMetrics 1.0, which differ in the name of a
 * counter's family and in the last line.
 */
#include "service/metrics/metrics_parts.h"

#include "table/table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#define SECONDS(ns) ((double)(ns) / 1e9)

struct writing {
    struct metrics *metrics;
    const struct metrics_facts *facts;
    enum metrics_format format;
    struct page *page;
    const char *name, *end; /* of the family's lines: stint_NAMEEND */
};

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Names of counters are given without _total. */
static void family(struct writing *writing, const char *name, const char *type, const char *help)
{
    bool is_counter = strcmp(type, "counter") == 0;
    const char *end = is_counter && writing->format == METRICS_PROMETHEUS ? "_total" : "";
    page_print(writing->page, "# HELP stint_%s%s %s\n# TYPE stint_%s%s %s\n", name, end, help, name,
               end, type);
    writing->name = name;
    writing->end = is_counter ? "_total" : "";
}

/* The values of a series as one text, which differs for any two lists of values. */
static void add_values(struct page *page, const char *values)
{
    const char end[] = {METRICS_VALUE_END, '\0'};
    bool is_list = strchr(values, METRICS_VALUE_END) != NULL;
    for (size_t len; *values != '\0'; values += len) {
        len = strcspn(values, is_list ? (const char[]){METRICS_VALUE_END, ' ', '\0'} : end);
        page_add_label(page, span_of(values, len));
        if (values[len] != '\0')
            page_add(page, values[len++] == ' ' ? "\\\\x20" : " ");
    }
}

static void label(const struct writing *writing, const char *name, const char *value, bool is_first)
{
    page_print(writing->page, "%s%s=\"", is_first ? "{" : ",", name);
    page_add_label(writing->page, span_of_text(value));
    page_add(writing->page, "\"");
}

/* A line of the family up to its value. Labels are names and values, until NULL. */
static void begin(struct writing *writing, const char *const labels[4])
{
    page_print(writing->page, "stint_%s%s", writing->name, writing->end);
    for (int i = 0; i < 4 && labels[i] != NULL; i += 2)
        label(writing, labels[i], labels[i + 1], i == 0);
    page_add(writing->page, labels[0] != NULL ? "}" : "");
}

static void value(struct writing *writing, uint64_t n)
{
    page_print(writing->page, " %" PRIu64 "\n", n);
}

static void line2(struct writing *writing, const char *const labels[4], uint64_t n)
{
    begin(writing, labels);
    value(writing, n);
}

static void line(struct writing *writing, const char *label_name, const char *label_value,
                 uint64_t n)
{
    assert((label_name == NULL) == (label_value == NULL));
    line2(writing, (const char *const[4]){label_name, label_value}, n);
}

static void gauge(struct writing *writing, const char *name, const char *help, uint64_t n)
{
    family(writing, name, "gauge", help);
    line(writing, NULL, NULL, n);
}

static void counter(struct writing *writing, const char *name, const char *help, uint64_t n)
{
    family(writing, name, "counter", help);
    line(writing, NULL, NULL, n);
}

/* Of a store, or of none. The ends of the buckets double. */
static void histogram(struct writing *writing, const char *store, const uint64_t *buckets,
                      unsigned n_buckets, uint64_t first_ns, uint64_t sum_ns)
{
    const char *const labels[4] = {store != NULL ? "store" : NULL, store};
    uint64_t count = 0;
    writing->end = "_bucket";
    for (unsigned i = 0; i < n_buckets; i++) {
        char bound[32] = "+Inf";
        count += buckets[i];
        if (i + 1 < n_buckets)
            snprintf(bound, sizeof(bound), "%.9g", SECONDS(first_ns << i));
        if (store != NULL)
            line2(writing, (const char *const[4]){"store", store, "le", bound}, count);
        else
            line(writing, "le", bound, count);
    }
    writing->end = "_sum";
    begin(writing, labels);
    page_print(writing->page, " %.9f\n", SECONDS(sum_ns));
    writing->end = "_count";
    line2(writing, labels, count);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* stint_NAME{domain="…",rule="…"[,value="…"] without the closing brace. */
static void begin_series(const struct writing *writing, const struct series *series)
{
    assert(!series->is_domain);
    page_print(writing->page, "stint_%s%s", writing->name, writing->end);
    label(writing, "domain", series->domain, true);
    label(writing, "rule", series->rule, false);
    if (series->value == NULL)
        return;
    page_add(writing->page, ",value=\"");
    add_values(writing->page, series->value);
    page_add(writing->page, "\"");
}

/* Rules in force are written from the start, so that a first denial shows as a rise from 0. */
static bool is_shown(const struct writing *writing, const struct series *series, unsigned outcome,
                     uint64_t n)
{
    assert(outcome < METRICS_OUTCOMES);
    bool is_plain = outcome == METRICS_ALLOW || outcome == METRICS_DENY;
    return n > 0 || (is_plain && series->number > SERIES_OTHER &&
                     (series->value != NULL || series->in_force >= writing->metrics->bindings));
}

enum series_number { SERIES_OUTCOMES, SERIES_UNITS, SERIES_CANDIDATES };

static void write_series(struct writing *writing, const struct series *series,
                         enum series_number which)
{
    assert(series->number < writing->metrics->n_series);
    struct series_metrics sum = metrics_sum_series(writing->metrics, series->number);
    const uint64_t *numbers = which == SERIES_OUTCOMES ? sum.outcomes
                              : which == SERIES_UNITS  ? &sum.units
                                                       : &sum.candidate_over;
    for (unsigned i = 0; i < (which == SERIES_OUTCOMES ? METRICS_OUTCOMES : 1); i++) {
        if (numbers[i] == 0 &&
            (which == SERIES_CANDIDATES || !is_shown(writing, series, i, numbers[i])))
            continue;
        begin_series(writing, series);
        if (which == SERIES_OUTCOMES)
            label(writing, "outcome", metrics_outcome_names[i], false);
        page_add(writing->page, "}");
        value(writing, numbers[i]);
    }
}

static void each_series(struct writing *writing, const char *name, const char *help,
                        bool with_value, enum series_number which)
{
    assert(writing->metrics->n_series > SERIES_OTHER);
    const struct metrics *metrics = writing->metrics;
    family(writing, name, "counter", help);
    for (size_t i = 0; i < metrics->n_series; i++)
        if (!metrics->series[i]->is_domain && (metrics->series[i]->value != NULL) == with_value)
            write_series(writing, metrics->series[i], which);
}

static void write_rules(struct writing *writing)
{
    each_series(writing, "decisions", "Descriptors decided, by outcome.", false, SERIES_OUTCOMES);
    each_series(writing, "units", "Units granted.", false, SERIES_UNITS);
    each_series(writing, "candidate_over",
                "Descriptors that the candidate quota beside a rule would have denied.", false,
                SERIES_CANDIDATES);
    if (writing->metrics->details == NULL)
        return;
    each_series(writing, "detailed_decisions", "The same by value, for rules that show values.",
                true, SERIES_OUTCOMES);
    each_series(writing, "detailed_units", "Units granted by value.", true, SERIES_UNITS);
}

/* ---- Frontends ------------------------------------------------------------------------------- */

/*
 * Counters of each frontend: one, or several with a label. Of these a counter of 0 is left out
 * where there are many; else it is written, so that the first event shows as a rise from 0.
 */
struct frontend_metric {
    const char *name, *help;
    size_t at, n; /* in struct frontend_metrics */
    const char *label;
    const char *const *values;
    bool has_zeros;
};

static void write_frontend_metric(struct writing *writing, const struct frontend_metrics *frontends,
                                  const struct frontend_metric *metric)
{
    assert(metric->at + metric->n * sizeof(uint64_t) <= sizeof(*frontends));
    family(writing, metric->name, "counter", metric->help);
    for (unsigned frontend = 0; frontend < METRICS_FRONTENDS; frontend++) {
        const void *at = (const char *)&frontends[frontend] + metric->at;
        const uint64_t *counters = at;
        for (size_t i = 0; i < metric->n; i++)
            if (metric->label == NULL)
                line(writing, "frontend", metrics_frontend_names[frontend], counters[i]);
            else if (counters[i] > 0 || metric->has_zeros)
                line2(writing,
                      (const char *const[4]){"frontend", metrics_frontend_names[frontend],
                                             metric->label, metric->values[i]},
                      counters[i]);
    }
}

static void write_frontends(struct writing *writing, const struct frontend_metrics *frontends)
{
#define AT(member) offsetof(struct frontend_metrics, member)
#define ONE(name, help, counter)                                                                   \
    {                                                                                              \
        name, help, AT(counters[counter]), 1, NULL, NULL, false                                    \
    }
    const char *verbs[REQUEST_VERBS];
    for (int verb = 0; verb < REQUEST_VERBS; verb++)
        verbs[verb] = request_verbs[verb].name;
    const struct frontend_metric metrics[] = {
        {"requests", "Requests answered, by verb.", AT(verbs), REQUEST_VERBS, "verb", verbs, false},
        {"request_errors", "Requests answered with an error, by kind.", AT(errors), METRICS_ERRORS,
         "error", metrics_error_names, false},
        {"connections_refused",
         "Connections that were not served, or ended by the server, by the limit that they met.",
         AT(refused), METRICS_REFUSALS, "reason", metrics_refusal_names, true},
        ONE("connections_opened", "Connections accepted.", METRICS_OPENED),
        ONE("malformed", "Inputs that were not a valid request of the protocol.",
            METRICS_MALFORMED),
        ONE("wrong_secrets", "Wrong secrets, and secrets rejected after too many wrong ones.",
            METRICS_WRONG_SECRETS),
        ONE("received_bytes", "Bytes received.", METRICS_BYTES_IN),
        ONE("sent_bytes", "Bytes sent.", METRICS_BYTES_OUT),
    };
#undef ONE
#undef AT
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
        write_frontend_metric(writing, frontends, &metrics[i]);
    family(writing, "connections", "gauge", "Connections open now.");
    for (unsigned i = 0; i < METRICS_FRONTENDS; i++) /* not both are read at the same instant */
        line(writing, "frontend", metrics_frontend_names[i],
             sub_floor(frontends[i].counters[METRICS_OPENED],
                       frontends[i].counters[METRICS_CLOSED]));
}

/* ---- Other metrics --------------------------------------------------------------------------- */

/* No label is text of a client: these are the domains of the rules. */
static void write_unmatched(struct writing *writing)
{
    const struct metrics *metrics = writing->metrics;
    family(writing, "unmatched_descriptors", "counter",
           "Descriptors that matched no rule of their domain.");
    for (size_t i = 0; i < metrics->n_series; i++) {
        const struct series *series = metrics->series[i];
        uint64_t n = series->is_domain ? metrics_sum_series(metrics, series->number).units : 0;
        if (n > 0)
            line(writing, "domain", series->domain, n);
    }
}

static void write_events(struct writing *writing, const struct total_metrics *total)
{
    write_unmatched(writing);
    counter(writing, "unknown_domain_descriptors", "Descriptors in a domain that has no rules.",
            total->events[METRICS_DOMAIN_UNKNOWN]);
    counter(writing, "all_shadow_requests",
            "Requests that were allowed, since every rule is in shadow mode.",
            total->events[METRICS_ALL_SHADOW]);
    counter(writing, "replayed_answers", "Replies repeated for a request with the same id.",
            total->events[METRICS_REPLAYED]);
    counter(writing, "bans", "Keys blocked for repeated denials.", total->events[METRICS_BANS]);
    counter(writing, "bans_lost", "Keys not blocked, as the table had no free space for blocks.",
            total->events[METRICS_BANS_LOST]);
}

static void write_spans(struct writing *writing)
{
    const struct metrics *metrics = writing->metrics;
    if (!metrics->has_spans)
        return;
    family(writing, "trace_spans", "counter",
           "Spans of sampled requests: sent (accepted by the collector), dropped (no space until "
           "they are sent), refused by the collector, lost (not accepted in time).");
    for (unsigned i = 0; i < METRICS_SPANS; i++)
        line(writing, "outcome", metrics_span_names[i],
             __atomic_load_n(&metrics->spans[i], __ATOMIC_RELAXED));
}

static void write_table_fill(struct writing *writing, const struct stint_table_info *info)
{
    static const char *const sizes[] = {"8", "16", "wide"};
    family(writing, "table_keys", "gauge",
           "Keys with a live state, by its size in bytes; estimated from a sample of the table.");
    for (int i = 0; i < 3; i++)
        line(writing, "size", sizes[i], info->live[i]);
    family(writing, "table_places", "gauge", "Slots for keys, by the size of their states.");
    for (int i = 0; i < 3; i++)
        line(writing, "size", sizes[i], info->slots[i]);
    family(writing, "evictions", "counter",
           "States whose slots were reused for other keys: expired ones, and live ones.");
    line(writing, "lossless", "true", info->evictions_lossless);
    line(writing, "lossless", "false", info->evictions_evict);
    counter(writing, "forgotten_units",
            "Units that evicted states still counted: their keys may use so many more.",
            info->forgotten_units);
    family(
        writing, "table_full", "counter",
        "Decisions on new keys that found no free slot: inherit (they wait, nothing is evicted), "
        "evict (a live state goes), deny, allow.");
    line(writing, "outcome", "inherit", info->evictions_inherit);
    line(writing, "outcome", "evict", info->evictions_evict);
    line(writing, "outcome", "deny", info->full_denied);
    line(writing, "outcome", "allow", info->full_allowed);
}

/* In the table, and in stores those that this server has closed. */
static void write_expired(struct writing *writing, const struct stint_table_info *info,
                          const struct total_metrics *total)
{
    const uint64_t counts[] = {
        [STINT_EXPIRY_KEEP] = info->reservations_expired[STINT_EXPIRY_KEEP],
        [STINT_EXPIRY_FLOOR] =
            info->reservations_expired[STINT_EXPIRY_FLOOR] + total->events[METRICS_EXPIRED_FLOOR],
        [STINT_EXPIRY_RELEASE] = info->reservations_expired[STINT_EXPIRY_RELEASE] +
                                 total->events[METRICS_EXPIRED_RELEASE]};
    static const char *const actions[] = {[STINT_EXPIRY_KEEP] = "keep",
                                          [STINT_EXPIRY_FLOOR] = "floor",
                                          [STINT_EXPIRY_RELEASE] = "release"};
    family(writing, "reservations_expired", "counter",
           "Reservations that were not settled by their deadline, by outcome.");
    for (unsigned i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        line(writing, "action", actions[i], counts[i]);
    counter(writing, "expiry_kept_units",
            "Units of these that were to be released, but could not be returned.",
            info->expiry_kept_units + total->events[METRICS_EXPIRY_KEPT_UNITS]);
    counter(writing, "expiries_lost",
            "Reservations in stores that stay charged as estimated, as too many were open, or "
            "their store could not be asked in time.",
            total->events[METRICS_EXPIRIES_LOST]);
}

static void write_table(struct writing *writing, const struct total_metrics *total)
{
    struct stint_table_info info;
    if (writing->facts->table == NULL)
        return;
    table_metrics(writing->facts->table, writing->facts->table_now_ns, METRICS_SETS_LOOKED_AT,
                  &info);
    write_table_fill(writing, &info);
    gauge(writing, "table_bytes", "Memory of the table.", info.bytes);
    gauge(writing, "table_quotas", "Different quotas known to the table.", info.quotas);
    gauge(writing, "table_quotas_max", "Different quotas that the table can hold.",
          info.quotas_max);
    gauge(writing, "blocked_keys", "Keys blocked now, by a ban or a command.", info.blocked);
    gauge(writing, "overrides", "Keys with a quota of their own.", info.overrides);
    gauge(writing, "kept_answers", "Replies kept for retries.", info.requests);
    counter(writing, "answers_dropped", "Kept replies that were dropped before they expired.",
            info.requests_dropped);
    counter(writing, "tickets_dropped", "Reservations closed as estimated, as the ring was full.",
            info.tickets_dropped);
    write_expired(writing, &info, total);
    counter(writing, "undo_kept_units",
            "Units charged by a denied list of quotas that could not be returned.",
            info.undo_kept_units);
    counter(writing, "owners_displaced",
            "States whose lock was taken over from a process that had ended or was stuck.",
            info.owners_displaced);
    counter(writing, "states_damaged", "States found damaged when the table was opened.",
            info.states_damaged);
}

/* The names of pools are those of the config file. */
static void write_pools(struct writing *writing)
{
    static const char *const results[POOLS_RESULTS] = {"key", "wait", "never", "error"};
    const struct pools *pools = writing->facts->pools;
    family(writing, "pool_next", "counter", "Requests for a key of a pool, by result.");
    for (size_t i = 0; pools != NULL && i < pools_count(pools); i++)
        for (unsigned result = 0; result < POOLS_RESULTS; result++)
            line2(writing,
                  (const char *const[4]){"pool", pools_name(pools, i), "result", results[result]},
                  pools_results(pools, i, (enum pools_result)result));
}

static void write_config(struct writing *writing)
{
    const struct metrics *metrics = writing->metrics;
    gauge(writing, "config_generation", "How often rules were put in force.",
          writing->facts->generation);
    gauge(writing, "rules", "Rules in force.", writing->facts->rules);
    gauge(writing, "clock_virtual", "1: decisions use a virtual clock, for tests; 0: a real one.",
          writing->facts->has_virtual_clock);
    family(writing, "config_reloads", "counter", "Reloads of the rules, by result.");
    line(writing, "result", "success", metrics->reloads[true]);
    line(writing, "result", "failure", metrics->reloads[false]);
    gauge(writing, "config_last_reload_successful", "Whether the last reload succeeded.",
          metrics->reload_error[0] == '\0');
    family(writing, "build_info", "gauge", "The version of the program.");
    line(writing, "version", stint_version(), 1);
}

/* ---- Control planes -------------------------------------------------------------------------- */

/* Writes nothing where there are none. */
static void write_control_planes(struct writing *writing)
{
    const struct metrics *metrics = writing->metrics;
    const struct metrics_control_plane *all = metrics->control_planes;
    const size_t n = metrics->n_control_planes;
    if (n == 0)
        return;
    family(writing, "xds_connected", "gauge", "Whether a control plane is connected.");
    for (size_t i = 0; i < n; i++)
        line(writing, "control_plane", all[i].url, all[i].is_connected);
    family(writing, "xds_updates", "counter", "Responses of a control plane that were accepted.");
    for (size_t i = 0; i < n; i++)
        line(writing, "control_plane", all[i].url, all[i].answers[true]);
    family(writing, "xds_nacks", "counter", "Responses of a control plane that were refused.");
    for (size_t i = 0; i < n; i++)
        line(writing, "control_plane", all[i].url, all[i].answers[false]);
    family(writing, "xds_update_age_seconds", "gauge",
           "Time since a response of a control plane was accepted; NaN: none was.");
    for (size_t i = 0; i < n; i++) {
        double age_s = SECONDS(sub_floor(writing->facts->now_ns, all[i].updated_ns));
        begin(writing, (const char *const[4]){"control_plane", all[i].url});
        if (all[i].updated_ns > 0)
            page_print(writing->page, " %.3f\n", age_s);
        else
            page_add(writing->page, " NaN\n");
    }
    family(writing, "xds_version_info", "gauge",
           "1, and the version that was accepted last; 0: none was.");
    for (size_t i = 0; i < n; i++)
        line2(writing,
              (const char *const[4]){"control_plane", all[i].url, "version", all[i].version},
              all[i].updated_ns > 0);
}

/* ---- Shared stores --------------------------------------------------------------------------- */

static uint64_t errors_of(const struct backend_metrics *sum)
{
    assert(sum->state < STORE_STATES);
    uint64_t n = sum->refused;
    for (unsigned error = 0; error < BACKEND_ERRORS; error++)
        n += sum->errors[error];
    return n;
}

void metrics_tell_stores(const struct metrics *metrics, uint64_t now_ns, struct page *page)
{
    assert(metrics_is_valid(metrics));
    for (size_t i = 0; i < metrics->n_stores; i++) {
        struct backend_metrics sum = metrics_sum_store(metrics, i);
        if (sum.unavailable_since_ns > 0)
            page_print(page, "store %s: unavailable for %.1f s\n", metrics->stores[i].name,
                       metrics_unavailable_s(&sum, now_ns));
    }
}

void metrics_info_stores(const struct metrics *metrics, uint64_t now_ns, struct page *page)
{
    assert(metrics_is_valid(metrics));
    page_print(page, "# Stores\r\nstores:%zu\r\n", metrics->n_stores);
    for (size_t i = 0; i < metrics->n_stores; i++) {
        struct backend_metrics sum = metrics_sum_store(metrics, i);
        page_print(page,
                   "store%zu:name=%s,state=%s,away_s=%.1f,asks=%" PRIu64 ",errors=%" PRIu64
                   ",deny_cache_hits=%" PRIu64 ",lease_units=%" PRIu64 "\r\n",
                   i, metrics->stores[i].name, metrics_store_state_names[sum.state],
                   metrics_unavailable_s(&sum, now_ns), sum.asks, errors_of(&sum), sum.denials_hit,
                   sum.lease_units);
    }
}

/* One number of each store. */
struct store_metric {
    const char *name, *type, *help;
    size_t at; /* in struct backend_metrics */
};

static void write_store_metric(struct writing *writing, const struct store_metric *metric,
                               const struct backend_metrics *sums)
{
    assert(metric->at + sizeof(uint64_t) <= sizeof(*sums));
    family(writing, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < writing->metrics->n_stores; i++) {
        uint64_t n;
        memcpy(&n, (const char *)&sums[i] + metric->at, sizeof(n));
        line(writing, "store", writing->metrics->stores[i].name, n);
    }
}

static void write_store_errors(struct writing *writing, const struct backend_metrics *sums)
{
    family(writing, "store_errors", "counter", "Store requests without a decision, by reason.");
    for (size_t i = 0; i < writing->metrics->n_stores; i++) {
        const char *labels[4] = {"store", writing->metrics->stores[i].name, "reason", "refused"};
        line2(writing, labels, sums[i].refused);
        for (unsigned error = 0; error < BACKEND_ERRORS; error++) {
            labels[3] = metrics_store_error_names[error];
            line2(writing, labels, sums[i].errors[error]);
        }
    }
}

static void store_seconds(struct writing *writing, size_t store, int digits, double s)
{
    assert(digits >= 0 && s >= 0);
    begin(writing, (const char *const[4]){"store", writing->metrics->stores[store].name});
    page_print(writing->page, " %.*f\n", digits, s);
}

#define COUNTER(name, help, member)                                                                \
    {                                                                                              \
        name, "counter", help, offsetof(struct backend_metrics, member)                            \
    }
#define GAUGE(name, help, member)                                                                  \
    {                                                                                              \
        name, "gauge", help, offsetof(struct backend_metrics, member)                              \
    }

/* Writes nothing where there are no stores. No lock is needed. */
static void write_stores(struct writing *writing)
{
    static const struct store_metric asks = COUNTER(
        "store_asks", "Decisions and pool calls of a store, also by its denial cache.", asks);
    static const struct store_metric state = GAUGE(
        "store_state", "State of a store's breaker: closed (0), probing (1), open (2).", state);
    static const struct store_metric others[] = {
        COUNTER("deny_cache_hits", "Store requests denied by the denial cache.", denials_hit),
        COUNTER("store_cautious",
                "Store requests for a key without a state after a failover, which were denied or "
                "charged.",
                cautious),
        GAUGE("lease_units", "Units leased from a store and not used yet.", lease_units),
        COUNTER("store_failovers", "Servers of a store that restarted, or were replaced.",
                failovers),
        COUNTER("store_conflicts",
                "Updates of a state in memcached that conflicted with another server's.",
                conflicts),
        COUNTER("store_busy", "Requests to memcached that timed out after repeated conflicts.",
                busy),
        COUNTER("store_damaged",
                "States in memcached that were damaged, and were replaced by exhausted ones.",
                damaged),
        COUNTER("store_tickets_dropped",
                "Reservations over memcached closed as estimated, as their key had too many open.",
                tickets_dropped),
    };
    const struct metrics *metrics = writing->metrics;
    struct backend_metrics sums[RULES_STORES_MAX];
    if (metrics->n_stores == 0)
        return;
    for (size_t i = 0; i < metrics->n_stores; i++)
        sums[i] = metrics_sum_store(metrics, i);
    write_store_metric(writing, &asks, sums);
    write_store_errors(writing, sums);
    family(writing, "store_latency_seconds", "histogram",
           "Time from a store request to its reply or timeout.");
    for (size_t i = 0; i < metrics->n_stores; i++)
        histogram(writing, metrics->stores[i].name, sums[i].buckets, STORE_BUCKETS, STORE_BUCKET_NS,
                  sums[i].duration_ns);
    write_store_metric(writing, &state, sums);
    family(writing, "store_away_seconds", "gauge",
           "How long a store has been unavailable; 0: it is available.");
    for (size_t i = 0; i < metrics->n_stores; i++)
        store_seconds(writing, i, 3, metrics_unavailable_s(&sums[i], writing->facts->now_ns));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        write_store_metric(writing, &others[i], sums);
    family(writing, "store_clock_skew_seconds", "gauge",
           "The largest time by which another server's clock was ahead, over memcached.");
    for (size_t i = 0; i < metrics->n_stores; i++)
        store_seconds(writing, i, 6, SECONDS(sums[i].clock_skew_ns));
}

/* ---- The page -------------------------------------------------------------------------------- */

void metrics_write(struct metrics *metrics, const struct metrics_facts *facts,
                   enum metrics_format format, struct page *page)
{
    assert(metrics_is_valid(metrics));
    assert(facts != NULL && page != NULL);
    struct writing writing = {.metrics = metrics, .facts = facts, .format = format, .page = page};
    struct frontend_metrics frontends[METRICS_FRONTENDS];
    pthread_mutex_lock(&metrics->lock);
    struct total_metrics total = metrics_sum_total(metrics);
    for (unsigned frontend = 0; frontend < METRICS_FRONTENDS; frontend++)
        frontends[frontend] = metrics_sum_frontend(metrics, frontend);
    bool is_ours = (metrics->names & METRICS_NAMES_STINT) != 0;
    if (is_ours) {
        write_rules(&writing);
        write_frontends(&writing, frontends);
        family(&writing, "decision_duration_seconds", "histogram",
               "Durations of the decisions that were measured.");
        histogram(&writing, NULL, total.buckets, METRICS_BUCKETS, METRICS_BUCKET_NS,
                  total.duration_ns);
        write_events(&writing, &total);
        write_spans(&writing);
        write_config(&writing);
        write_control_planes(&writing);
    }
    if ((metrics->names & METRICS_NAMES_ENVOY) != 0)
        metrics_write_envoy(metrics, facts, format, page);
    pthread_mutex_unlock(&metrics->lock);
    if (is_ours) {
        write_table(&writing, &total);
        write_pools(&writing);
        write_stores(&writing);
    }
    if (format == METRICS_OPENMETRICS)
        page_add(page, "# EOF\n");
}
