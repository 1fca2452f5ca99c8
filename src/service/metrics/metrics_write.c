/* SPDX-License-Identifier: MIT */
/*
 * Metrics in Prometheus' text format 0.0.4, and in OpenMetrics 1.0. They differ in the name of a
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
};

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Names of counters are given without _total. */
static void family(const struct writing *writing, const char *name, const char *type,
                   const char *help)
{
    bool is_counter = strcmp(type, "counter") == 0;
    const char *end = is_counter && writing->format == METRICS_PROMETHEUS ? "_total" : "";
    page_print(writing->page, "# HELP stint_%s%s %s\n# TYPE stint_%s%s %s\n", name, end, help, name,
               end, type);
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

static void value(const struct writing *writing, uint64_t n)
{
    page_print(writing->page, " %" PRIu64 "\n", n);
}

/* stint_NAME{label="of"} n; without a label where it is NULL. */
static void line(const struct writing *writing, const char *name, const char *label_name,
                 const char *label_value, uint64_t n)
{
    assert((label_name == NULL) == (label_value == NULL));
    page_print(writing->page, "stint_%s", name);
    if (label_name != NULL) {
        label(writing, label_name, label_value, true);
        page_add(writing->page, "}");
    }
    value(writing, n);
}

static void gauge(const struct writing *writing, const char *name, const char *help, uint64_t n)
{
    family(writing, name, "gauge", help);
    line(writing, name, NULL, NULL, n);
}

static void counter(const struct writing *writing, const char *name, const char *help, uint64_t n)
{
    char total[64];
    assert(strlen(name) + sizeof("_total") <= sizeof(total));
    snprintf(total, sizeof(total), "%s_total", name);
    family(writing, name, "counter", help);
    line(writing, total, NULL, NULL, n);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* stint_NAME{domain="…",rule="…"[,value="…"] without the closing brace. */
static void begin_series(const struct writing *writing, const char *name,
                         const struct series *series)
{
    assert(!series->is_domain);
    page_print(writing->page, "stint_%s", name);
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

static void write_outcomes(const struct writing *writing, const char *name,
                           const struct series *series)
{
    assert(series->number < writing->metrics->n_series);
    struct series_metrics sum = metrics_sum_series(writing->metrics, series->number);
    for (unsigned outcome = 0; outcome < METRICS_OUTCOMES; outcome++) {
        if (!is_shown(writing, series, outcome, sum.outcomes[outcome]))
            continue;
        begin_series(writing, name, series);
        label(writing, "outcome", metrics_outcome_names[outcome], false);
        page_add(writing->page, "}");
        value(writing, sum.outcomes[outcome]);
    }
}

static void write_units(const struct writing *writing, const char *name,
                        const struct series *series)
{
    assert(series->number < writing->metrics->n_series);
    struct series_metrics sum = metrics_sum_series(writing->metrics, series->number);
    if (!is_shown(writing, series, METRICS_ALLOW, sum.units))
        return;
    begin_series(writing, name, series);
    page_add(writing->page, "}");
    value(writing, sum.units);
}

static void write_candidates(const struct writing *writing, const char *name,
                             const struct series *series)
{
    assert(series->number < writing->metrics->n_series);
    struct series_metrics sum = metrics_sum_series(writing->metrics, series->number);
    if (sum.candidate_over == 0)
        return;
    begin_series(writing, name, series);
    page_add(writing->page, "}");
    value(writing, sum.candidate_over);
}

static void each_series(const struct writing *writing, const char *name, bool with_value,
                        void (*write)(const struct writing *, const char *, const struct series *))
{
    assert(writing->metrics->n_series > SERIES_OTHER);
    const struct metrics *metrics = writing->metrics;
    for (size_t i = 0; i < metrics->n_series; i++)
        if (!metrics->series[i]->is_domain && (metrics->series[i]->value != NULL) == with_value)
            write(writing, name, metrics->series[i]);
}

static void write_rules(const struct writing *writing)
{
    family(writing, "decisions", "counter", "Descriptors decided, by outcome.");
    each_series(writing, "decisions_total", false, write_outcomes);
    family(writing, "units", "counter", "Units granted.");
    each_series(writing, "units_total", false, write_units);
    family(writing, "candidate_over", "counter",
           "Descriptors that the candidate quota beside a rule would have denied.");
    each_series(writing, "candidate_over_total", false, write_candidates);
    if (writing->metrics->details == NULL)
        return;
    family(writing, "detailed_decisions", "counter",
           "The same by value, for rules that show values.");
    each_series(writing, "detailed_decisions_total", true, write_outcomes);
    family(writing, "detailed_units", "counter", "Units granted by value.");
    each_series(writing, "detailed_units_total", true, write_units);
}

/* ---- Frontends ------------------------------------------------------------------------------- */

/* stint_NAME{frontend="…",OTHER="…"} for each counter that is not 0. */
static void write_parts(const struct writing *writing, const char *name, unsigned frontend,
                        const char *part, const char *part_name, uint64_t n)
{
    assert(frontend < METRICS_FRONTENDS);
    if (n == 0)
        return;
    page_print(writing->page, "stint_%s", name);
    label(writing, "frontend", metrics_frontend_names[frontend], true);
    label(writing, part, part_name, false);
    page_add(writing->page, "}");
    value(writing, n);
}

static void write_requests(const struct writing *writing, const struct frontend_metrics *frontends)
{
    family(writing, "requests", "counter", "Requests answered, by verb.");
    for (unsigned frontend = 0; frontend < METRICS_FRONTENDS; frontend++)
        for (int verb = 0; verb < REQUEST_VERBS; verb++)
            if (!request_verbs[verb].is_of_stores)
                write_parts(writing, "requests_total", frontend, "verb", request_verbs[verb].name,
                            frontends[frontend].verbs[verb]);
    family(writing, "request_errors", "counter", "Requests answered with an error, by kind.");
    for (unsigned frontend = 0; frontend < METRICS_FRONTENDS; frontend++)
        for (unsigned error = 1; error < METRICS_ERRORS; error++)
            write_parts(writing, "request_errors_total", frontend, "error",
                        metrics_error_names[error], frontends[frontend].errors[error]);
    family(writing, "connections_refused", "counter",
           "Connections that were not served, or ended by the server, by the limit that they met.");
    for (unsigned frontend = 0; frontend < METRICS_FRONTENDS; frontend++)
        for (unsigned why = 0; why < METRICS_REFUSALS; why++)
            write_parts(writing, "connections_refused_total", frontend, "reason",
                        metrics_refusal_names[why], frontends[frontend].refused[why]);
}

/* One metric of each frontend; `offset` finds it. */
static void write_frontends(const struct writing *writing, const struct frontend_metrics *frontends,
                            const char *name, const char *help, size_t offset)
{
    char total[64];
    assert(strlen(name) + sizeof("_total") <= sizeof(total));
    assert(offset + sizeof(uint64_t) <= sizeof(*frontends));
    snprintf(total, sizeof(total), "%s_total", name);
    family(writing, name, "counter", help);
    for (unsigned frontend = 0; frontend < METRICS_FRONTENDS; frontend++) {
        uint64_t n;
        memcpy(&n, (const char *)&frontends[frontend] + offset, sizeof(n));
        line(writing, total, "frontend", metrics_frontend_names[frontend], n);
    }
}

static void write_connections(const struct writing *writing,
                              const struct frontend_metrics *frontends)
{
    family(writing, "connections", "gauge", "Connections open now.");
    for (unsigned frontend = 0; frontend < METRICS_FRONTENDS; frontend++) {
        uint64_t opened = frontends[frontend].opened, closed = frontends[frontend].closed;
        /* The two counters are not read at the same instant. */
        line(writing, "connections", "frontend", metrics_frontend_names[frontend],
             opened > closed ? opened - closed : 0);
    }
    write_frontends(writing, frontends, "connections_opened", "Connections accepted.",
                    offsetof(struct frontend_metrics, opened));
    write_frontends(writing, frontends, "malformed",
                    "Inputs that were not a valid request of the protocol.",
                    offsetof(struct frontend_metrics, malformed));
    write_frontends(writing, frontends, "wrong_secrets",
                    "Wrong secrets, and secrets rejected after too many wrong ones.",
                    offsetof(struct frontend_metrics, wrong_secrets));
    write_frontends(writing, frontends, "received_bytes", "Bytes received.",
                    offsetof(struct frontend_metrics, bytes_in));
    write_frontends(writing, frontends, "sent_bytes", "Bytes sent.",
                    offsetof(struct frontend_metrics, bytes_out));
}

/* ---- Other metrics --------------------------------------------------------------------------- */

static void write_durations(const struct writing *writing, const struct total_metrics *total)
{
    uint64_t count = 0;
    family(writing, "decision_duration_seconds", "histogram",
           "Durations of the decisions that were measured.");
    for (unsigned i = 0; i < METRICS_BUCKETS; i++) {
        char bound[32] = "+Inf";
        count += total->buckets[i];
        if (i + 1 < METRICS_BUCKETS)
            snprintf(bound, sizeof(bound), "%.9g", SECONDS((uint64_t)METRICS_BUCKET_NS << i));
        line(writing, "decision_duration_seconds_bucket", "le", bound, count);
    }
    page_print(writing->page, "stint_decision_duration_seconds_sum %.9f\n",
               SECONDS(total->duration_ns));
    line(writing, "decision_duration_seconds_count", NULL, NULL, count);
}

/* No label is text of a client: these are the domains of the rules. */
static void write_unmatched(const struct writing *writing)
{
    const struct metrics *metrics = writing->metrics;
    family(writing, "unmatched_descriptors", "counter",
           "Descriptors that matched no rule of their domain.");
    for (size_t i = 0; i < metrics->n_series; i++) {
        const struct series *series = metrics->series[i];
        uint64_t n = series->is_domain ? metrics_sum_series(metrics, series->number).units : 0;
        if (n > 0)
            line(writing, "unmatched_descriptors_total", "domain", series->domain, n);
    }
}

static void write_events(const struct writing *writing, const struct total_metrics *total)
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

static void write_table_fill(const struct writing *writing, const struct stint_table_info *info)
{
    static const char *const sizes[] = {"8", "16", "wide"};
    family(writing, "table_keys", "gauge",
           "Keys with a live state, by its size in bytes; estimated from a sample of the table.");
    for (int i = 0; i < 3; i++)
        line(writing, "table_keys", "size", sizes[i], info->live[i]);
    family(writing, "table_places", "gauge", "Slots for keys, by the size of their states.");
    for (int i = 0; i < 3; i++)
        line(writing, "table_places", "size", sizes[i], info->slots[i]);
    family(writing, "evictions", "counter",
           "States whose slots were reused for other keys: expired ones, and live ones.");
    line(writing, "evictions_total", "lossless", "true", info->evictions_lossless);
    line(writing, "evictions_total", "lossless", "false", info->evictions_evict);
    family(writing, "forgotten_units", "counter",
           "Units that evicted states still counted: their keys may use so many more.");
    line(writing, "forgotten_units_total", NULL, NULL, info->forgotten_units);
    family(
        writing, "table_full", "counter",
        "Decisions on new keys that found no free slot: inherit (they wait, nothing is evicted), "
        "evict (a live state goes), deny, allow.");
    line(writing, "table_full_total", "outcome", "inherit", info->evictions_inherit);
    line(writing, "table_full_total", "outcome", "evict", info->evictions_evict);
    line(writing, "table_full_total", "outcome", "deny", info->full_denied);
    line(writing, "table_full_total", "outcome", "allow", info->full_allowed);
}

/* In the table, and in stores those that this server has closed. */
static void write_expired(const struct writing *writing, const struct stint_table_info *info,
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
        line(writing, "reservations_expired_total", "action", actions[i], counts[i]);
    counter(writing, "expiry_kept_units",
            "Units of these that were to be released, but could not be returned.",
            info->expiry_kept_units + total->events[METRICS_EXPIRY_KEPT_UNITS]);
    counter(writing, "expiries_lost",
            "Reservations in stores that stay charged as estimated, as too many were open.",
            total->events[METRICS_EXPIRIES_LOST]);
}

static void write_table(const struct writing *writing, const struct total_metrics *total)
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
    gauge(writing, "blocked_keys", "Keys blocked now.", info.blocked);
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

static void write_config(const struct writing *writing)
{
    const struct metrics *metrics = writing->metrics;
    gauge(writing, "config_generation", "How often rules were put in force.",
          writing->facts->generation);
    gauge(writing, "rules", "Rules in force.", writing->facts->rules);
    gauge(writing, "clock_virtual", "1: decisions use a virtual clock, for tests; 0: a real one.",
          writing->facts->has_virtual_clock);
    family(writing, "config_reloads", "counter", "Reloads of the rules, by result.");
    line(writing, "config_reloads_total", "result", "success", metrics->reloads[true]);
    line(writing, "config_reloads_total", "result", "failure", metrics->reloads[false]);
    gauge(writing, "config_last_reload_successful", "Whether the last reload succeeded.",
          metrics->reload_error[0] == '\0');
    family(writing, "build_info", "gauge", "The version of the program.");
    line(writing, "build_info", "version", stint_version(), 1);
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

/* stint_NAME{store="…" without the closing brace. */
static void begin_store(const struct writing *writing, const char *name, size_t store)
{
    assert(store < writing->metrics->n_stores);
    page_print(writing->page, "stint_%s", name);
    label(writing, "store", writing->metrics->stores[store].name, true);
}

static void end_store(const struct writing *writing, uint64_t n)
{
    page_add(writing->page, "}");
    value(writing, n);
}

static void end_store_s(const struct writing *writing, int digits, double s)
{
    assert(digits >= 0 && s >= 0);
    page_print(writing->page, "} %.*f\n", digits, s);
}

/* One number of each store. */
struct store_metric {
    const char *name, *type, *help;
    size_t at; /* in struct backend_metrics */
};

static void write_store_metric(const struct writing *writing, const struct store_metric *metric,
                               const struct backend_metrics *sums)
{
    char sample[64];
    assert(strlen(metric->name) + sizeof("_total") <= sizeof(sample));
    assert(metric->at + sizeof(uint64_t) <= sizeof(*sums));
    bool is_counter = strcmp(metric->type, "counter") == 0;
    snprintf(sample, sizeof(sample), "%s%s", metric->name, is_counter ? "_total" : "");
    family(writing, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < writing->metrics->n_stores; i++) {
        uint64_t n;
        memcpy(&n, (const char *)&sums[i] + metric->at, sizeof(n));
        begin_store(writing, sample, i);
        end_store(writing, n);
    }
}

static void write_store_errors(const struct writing *writing, const struct backend_metrics *sums)
{
    family(writing, "store_errors", "counter", "Store requests without a decision, by reason.");
    for (size_t i = 0; i < writing->metrics->n_stores; i++) {
        for (unsigned error = 0; error < BACKEND_ERRORS; error++) {
            begin_store(writing, "store_errors_total", i);
            label(writing, "reason", metrics_store_error_names[error], false);
            end_store(writing, sums[i].errors[error]);
        }
        begin_store(writing, "store_errors_total", i);
        label(writing, "reason", "refused", false);
        end_store(writing, sums[i].refused);
    }
}

static void write_store_latency(const struct writing *writing, size_t store,
                                const struct backend_metrics *sum)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < STORE_BUCKETS; i++) {
        char bound[32] = "+Inf";
        count += sum->buckets[i];
        if (i + 1 < STORE_BUCKETS)
            snprintf(bound, sizeof(bound), "%.9g", SECONDS((uint64_t)STORE_BUCKET_NS << i));
        begin_store(writing, "store_latency_seconds_bucket", store);
        label(writing, "le", bound, false);
        end_store(writing, count);
    }
    begin_store(writing, "store_latency_seconds_sum", store);
    end_store_s(writing, 9, SECONDS(sum->duration_ns));
    begin_store(writing, "store_latency_seconds_count", store);
    end_store(writing, count);
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
static void write_stores(const struct writing *writing)
{
    static const struct store_metric asks =
        COUNTER("store_asks", "Decisions and pool calls that needed a store.", asks);
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
        write_store_latency(writing, i, &sums[i]);
    write_store_metric(writing, &state, sums);
    family(writing, "store_away_seconds", "gauge",
           "How long a store has been unavailable; 0: it is available.");
    for (size_t i = 0; i < metrics->n_stores; i++) {
        begin_store(writing, "store_away_seconds", i);
        end_store_s(writing, 3, metrics_unavailable_s(&sums[i], writing->facts->now_ns));
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        write_store_metric(writing, &others[i], sums);
    family(writing, "store_clock_skew_seconds", "gauge",
           "The largest time by which another server's clock was ahead, over memcached.");
    for (size_t i = 0; i < metrics->n_stores; i++) {
        begin_store(writing, "store_clock_skew_seconds", i);
        end_store_s(writing, 6, SECONDS(sums[i].clock_skew_ns));
    }
}

/* ---- The page -------------------------------------------------------------------------------- */

void metrics_write(struct metrics *metrics, const struct metrics_facts *facts,
                   enum metrics_format format, struct page *page)
{
    assert(metrics_is_valid(metrics));
    assert(facts != NULL && page != NULL);
    const struct writing writing = {metrics, facts, format, page};
    struct frontend_metrics frontends[METRICS_FRONTENDS];
    pthread_mutex_lock(&metrics->lock);
    struct total_metrics total = metrics_sum_total(metrics);
    for (unsigned frontend = 0; frontend < METRICS_FRONTENDS; frontend++)
        frontends[frontend] = metrics_sum_frontend(metrics, frontend);
    bool is_ours = (metrics->names & METRICS_NAMES_STINT) != 0;
    if (is_ours) {
        write_rules(&writing);
        write_requests(&writing, frontends);
        write_connections(&writing, frontends);
        write_durations(&writing, &total);
        write_events(&writing, &total);
        write_config(&writing);
    }
    if ((metrics->names & METRICS_NAMES_ENVOY) != 0)
        metrics_envoy_write(metrics, facts, format, page);
    pthread_mutex_unlock(&metrics->lock);
    if (is_ours) {
        write_table(&writing, &total);
        write_stores(&writing);
    }
    if (format == METRICS_OPENMETRICS)
        page_add(page, "# EOF\n");
}
