/* SPDX-License-Identifier: MIT */
/* Pages that are only read: health, metrics, rules, top keys, the dashboard; and reload. */
#include "base/ns.h"
#include "frontend/http/http_frontend.h"
#include "frontend/http/http_openapi.h"
#include "service/top_keys.h"

#include <inttypes.h>
#include <stdlib.h>

#define TOP_DEFAULT 10
#define TOP_MAX 1000
#define RELOAD_LOOK_NS (5 * NS_PER_MS) /* how often a request checks whether the reload is done */
#define TEXT_PLAIN "text/plain; charset=utf-8"

static struct page *empty_page(struct http_exchange *exchange)
{
    struct page *page = &exchange->frontend->page;
    if (page->size > HTTP_PAGE_KEPT || page->failed)
        page_free(page);
    page->len = 0;
    return page;
}

static struct server_state *server_state_of(const struct http_exchange *exchange)
{
    return service_server_state(exchange->frontend->options.service);
}

void http_page_health(struct http_exchange *exchange)
{
    http_exchange_text(exchange, 200, TEXT_PLAIN, "ok\n");
}

static bool is_ready(const struct http_exchange *exchange)
{
    const struct http_frontend *frontend = exchange->frontend;
    return !frontend->is_draining &&
           server_state_is_ready(server_state_of(exchange), frontend->options.is_ready,
                                 frontend->options.arg);
}

/* Names the unavailable stores; only a needed one makes the server not ready. */
void http_page_ready(struct http_exchange *exchange)
{
    const struct metrics *metrics = server_state_metrics(server_state_of(exchange));
    struct page *page = empty_page(exchange);
    bool ready = is_ready(exchange);
    page_add(page, exchange->frontend->is_draining ? "draining\n"
                   : ready                         ? "ready\n"
                                                   : "not ready\n");
    if (metrics != NULL)
        metrics_tell_stores(metrics, exchange->io_now_ns, page);
    http_exchange_page(exchange, TEXT_PLAIN);
    if (!ready)
        exchange->answer->status = 503;
}

/* The answer of envoyproxy/ratelimit. */
void http_page_healthcheck(struct http_exchange *exchange)
{
    bool ready = is_ready(exchange);
    http_exchange_text(exchange, ready ? 200 : 500, TEXT_PLAIN, ready ? "OK" : "");
}

/* ---- Metrics --------------------------------------------------------------------------------- */

static struct metrics_facts facts_of(const struct http_exchange *exchange)
{
    struct server_state *server_state = server_state_of(exchange);
    struct rules *rules = server_state_rules(server_state);
    struct metrics_facts facts = {
        .table = server_state_table(server_state),
        .table_now_ns = exchange->now_ns,
        .now_ns = exchange->io_now_ns,
        .has_virtual_clock = server_state_clock(server_state)->is_virtual,
        .generation = server_state_generation(server_state),
        .loads = server_state_loads(server_state),
        .rules = rules != NULL ? rules_count(rules) : 0,
    };
    rules_unref(rules);
    return facts;
}

static bool wants_openmetrics(const struct http_message *message)
{
    static const char wanted[] = "application/openmetrics-text";
    struct span accept;
    for (size_t nth = 0; (accept = message->field(message->field_arg, "Accept", nth)).ptr != NULL;
         nth++)
        for (size_t at = 0; at + sizeof(wanted) - 1 <= accept.len; at++)
            if (memcmp(accept.ptr + at, wanted, sizeof(wanted) - 1) == 0)
                return true;
    return false;
}

static bool has_metrics(struct http_exchange *exchange)
{
    if (server_state_metrics(server_state_of(exchange)) != NULL)
        return true;
    http_exchange_refuse(exchange, 404, "nothing is counted here");
    return false;
}

void http_page_metrics(struct http_exchange *exchange)
{
    bool open = wants_openmetrics(exchange->message);
    struct metrics_facts facts;
    if (!has_metrics(exchange))
        return;
    facts = facts_of(exchange);
    metrics_write(server_state_metrics(server_state_of(exchange)), &facts,
                  open ? METRICS_OPENMETRICS : METRICS_PROMETHEUS, empty_page(exchange));
    http_exchange_page(exchange, open ? METRICS_OPENMETRICS_TYPE : METRICS_PROMETHEUS_TYPE);
}

void http_page_stats(struct http_exchange *exchange)
{
    struct metrics_facts facts;
    if (!has_metrics(exchange))
        return;
    facts = facts_of(exchange);
    metrics_json(server_state_metrics(server_state_of(exchange)), &facts, empty_page(exchange));
    http_exchange_page(exchange, HTTP_TYPE_JSON);
}

void http_page_envoy_stats(struct http_exchange *exchange)
{
    struct metrics_facts facts;
    if (!has_metrics(exchange))
        return;
    if (!metrics_has_envoy_names(server_state_metrics(server_state_of(exchange)))) {
        http_exchange_refuse(exchange, 404, "metrics_names has to be envoyproxy or both");
        return;
    }
    facts = facts_of(exchange);
    metrics_envoy_stats(server_state_metrics(server_state_of(exchange)), &facts,
                        empty_page(exchange));
    http_exchange_page(exchange, TEXT_PLAIN);
}

/* ---- Top keys -------------------------------------------------------------------------------- */

static void add_json(struct page *page, const char *name, struct span text)
{
    char space[6 * 256 + 3];
    struct http_text out = http_text_at(space, sizeof(space));
    http_text_json(&out, text);
    page_add(page, name);
    page_add_span(page, span_of(out.text, out.len));
}

static void add_top_key(struct page *page, const struct top_key *key)
{
    add_json(page, "{\"key\":", span_of(key->name, key->name_len));
    add_json(page, ",\"domain\":", span_of_text(key->domain));
    add_json(page, ",\"rule\":", span_of_text(key->rule));
    page_print(page, ",\"is_cut\":%s,\"asked\":%.3f,\"denied\":%.3f,\"over_by\":%.3f",
               key->cut ? "true" : "false", key->asked, key->denied, key->over_by);
    page_print(page, ",\"asked_per_s\":%.3f,\"denied_per_s\":%.3f}", key->asked_per_s,
               key->denied_per_s);
}

/* ?n=10, ?order=asked or denied. False: the answer reports what was expected. */
static bool read_top_query(struct http_exchange *exchange, size_t *n, enum top_keys_order *order)
{
    struct span query = exchange->target.query, name, value;
    uint8_t *space = (uint8_t *)exchange->frontend->arena;
    bool is_good = query.len <= HTTP_ARENA_SIZE;
    while (is_good && http_target_next(&query, space, &name, &value)) {
        if (span_equals(name, "order") && span_equals(value, "denied")) {
            *order = TOP_KEYS_DENIED;
        } else if (span_equals(name, "n") && value.len > 0 && value.len <= 4) {
            *n = 0;
            for (size_t i = 0; i < value.len && is_good; i++) {
                is_good = value.ptr[i] >= '0' && value.ptr[i] <= '9';
                *n = *n * 10 + (size_t)(value.ptr[i] - '0');
            }
            is_good = is_good && *n >= 1 && *n <= TOP_MAX;
        } else {
            is_good = span_equals(name, "order") && span_equals(value, "asked");
        }
    }
    if (!is_good)
        http_exchange_refuse(exchange, 400, "expected ?n=1 … 1000 and ?order=asked or denied");
    return is_good;
}

void http_page_top(struct http_exchange *exchange)
{
    struct top_keys *top_keys = server_state_top_keys(server_state_of(exchange));
    enum top_keys_order order = TOP_KEYS_ASKED;
    size_t n = TOP_DEFAULT;
    if (!read_top_query(exchange, &n, &order))
        return;
    struct top_key *keys = calloc(n, sizeof(*keys));
    if (keys == NULL) {
        http_exchange_refuse(exchange, 503, "no memory for so many keys");
        return;
    }
    n = top_keys == NULL ? 0 : top_keys_read(top_keys, order, exchange->now_ns, keys, n);
    struct page *page = empty_page(exchange);
    page_add(page, "{\"keys\":[");
    for (size_t i = 0; i < n; i++) {
        page_add(page, i > 0 ? "," : "");
        add_top_key(page, &keys[i]);
    }
    page_print(page, "],\"half_life_ns\":%" PRIu64 "}",
               top_keys != NULL ? top_keys_half_life_ns(top_keys) : TOP_KEYS_HALF_LIFE_NS);
    free(keys);
    http_exchange_page(exchange, HTTP_TYPE_JSON);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* One line as in envoyproxy/ratelimit, with additional fields at its end. */
static void add_rule(struct page *page, const struct rule *rule)
{
    static const char *const units[] = {"",    "SECOND", "MINUTE", "HOUR",
                                        "DAY", "MONTH",  "YEAR",   "WEEK"};
    char spec[256];
    page_print(page, "%s.%s: ", rule->domain, rule->path);
    if (rule->unlimited) {
        page_add(page, "unlimited");
    } else {
        if (rule->unit != RULE_UNIT_NONE)
            page_print(page, "unit=%s requests_per_unit=%u, ", units[rule->unit],
                       rule->requests_per_unit);
        stint_quota_format(&rule->quota, spec, sizeof(spec));
        page_print(page, "quota: %s, shadow_mode: %s", spec, rule->shadow_mode ? "true" : "false");
    }
    if (rule->name[0] != '\0')
        page_print(page, ", name: %s", rule->name);
    page_print(page, " (%s:%u)\n", rule->file, rule->line);
}

void http_page_rules(struct http_exchange *exchange)
{
    struct rules *rules = server_state_rules(server_state_of(exchange));
    struct page *page = empty_page(exchange);
    for (size_t i = 0; rules != NULL && i < rules_count(rules); i++)
        add_rule(page, rules_at(rules, i));
    rules_unref(rules);
    http_exchange_page(exchange, TEXT_PLAIN);
}

void http_page_reload(struct http_exchange *exchange)
{
    const struct http_frontend_options *options = &exchange->frontend->options;
    struct stint_error error = {0};
    if (options->reload == NULL) {
        http_exchange_refuse(exchange, 501, "this server has nothing to reload");
        return;
    }
    int code = options->reload(options->arg, &error);
    if (code == STINT_E_BUSY) {
        exchange->answer->look_at_ns = exchange->io_now_ns + RELOAD_LOOK_NS;
        return;
    }
    if (code < 0) {
        http_exchange_refuse(exchange, 500, error.message);
        return;
    }
    struct page *page = empty_page(exchange);
    page_print(page, "{\"ok\":true,\"generation\":%llu}",
               (unsigned long long)server_state_generation(server_state_of(exchange)));
    http_exchange_page(exchange, HTTP_TYPE_JSON);
}

/* ---- Built-in pages -------------------------------------------------------------------------- */

void http_page_dashboard(struct http_exchange *exchange)
{
    struct http_answer *answer = exchange->answer;
    struct span page = exchange->frontend->options.site->dashboard;
    if (page.len == 0) {
        http_exchange_refuse(exchange, 404, "there is no dashboard here");
        return;
    }
    answer->status = 200;
    answer->body = page;
    http_answer_add(answer, "Content-Type", "text/html; charset=utf-8");
    http_answer_add(answer, "Content-Security-Policy",
                    exchange->frontend->options.site->dashboard_policy);
    http_answer_add(answer, "X-Content-Type-Options", "nosniff");
    http_answer_add(answer, "Referrer-Policy", "no-referrer");
}

void http_page_openapi(struct http_exchange *exchange)
{
    struct http_answer *answer = exchange->answer;
    answer->status = 200;
    answer->body = span_of(http_openapi, http_openapi_len);
    http_answer_add(answer, "Content-Type", HTTP_TYPE_JSON);
}
