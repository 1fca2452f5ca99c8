/* SPDX-License-Identifier: MIT */
/* Everything but decisions and pools: health, metrics, rules, top keys, the dashboard, the clock
 * and reload. */
#include "frontend/http/http_exchange.h"

#include "algorithm/spec.h"
#include "base/ns.h"
#include "base/number.h"
#include "service/top_keys.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#define TOP_DEFAULT 10
#define TOP_MAX 1000
#define RELOAD_LOOK_NS (5 * NS_PER_MS) /* how often a request checks whether the reload is done */
#define TEXT_PLAIN "text/plain; charset=utf-8"

static void answer_health(struct http_exchange *exchange)
{
    http_exchange_text(exchange, 200, TEXT_PLAIN, span_of_text("ok\n"));
}

static bool is_ready(const struct http_exchange *exchange)
{
    const struct http_frontend *frontend = exchange->frontend;
    return !frontend->is_draining &&
           server_state_is_ready(http_exchange_server(exchange), frontend->options.is_ready,
                                 frontend->options.arg);
}

/* Names the unavailable stores; only a needed one makes the server not ready. */
static void answer_ready(struct http_exchange *exchange)
{
    const struct metrics *metrics = server_state_metrics(http_exchange_server(exchange));
    struct page *page = http_frontend_page(exchange->frontend);
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
static void answer_healthcheck(struct http_exchange *exchange)
{
    bool ready = is_ready(exchange);
    http_exchange_text(exchange, ready ? 200 : 500, TEXT_PLAIN, span_of_text(ready ? "OK" : ""));
}

/* ---- Metrics --------------------------------------------------------------------------------- */

static struct metrics_facts facts_of(const struct http_exchange *exchange)
{
    struct server_state *server_state = http_exchange_server(exchange);
    struct rules *rules = server_state_rules(server_state);
    struct metrics_facts facts = {
        .table = server_state_table(server_state),
        .table_now_ns = exchange->now_ns,
        .now_ns = exchange->io_now_ns,
        .has_virtual_clock = server_state_clock(server_state)->is_virtual,
        .generation = server_state_generation(server_state),
        .loads = server_state_loads(server_state),
        .rules = rules != NULL ? rules_count(rules) : 0,
        .pools = server_state_pools(server_state),
    };
    rules_unref(rules);
    return facts;
}

static bool wants_openmetrics(const struct http_message *message)
{
    static const char wanted[] = "application/openmetrics-text";
    struct span accept;
    for (size_t nth = 0; (accept = http_message_field(message, "Accept", nth)).ptr != NULL; nth++)
        for (size_t at = 0; at + sizeof(wanted) - 1 <= accept.len; at++)
            if (memcmp(accept.ptr + at, wanted, sizeof(wanted) - 1) == 0)
                return true;
    return false;
}

/* The metrics, and *facts beside them; NULL: the answer is that there are none. */
static struct metrics *metrics_of(struct http_exchange *exchange, struct metrics_facts *facts)
{
    struct metrics *metrics = server_state_metrics(http_exchange_server(exchange));
    if (metrics != NULL)
        *facts = facts_of(exchange);
    else
        http_exchange_refuse(exchange, 404, "nothing is counted here");
    return metrics;
}

static void answer_metrics(struct http_exchange *exchange)
{
    bool open = wants_openmetrics(exchange->message);
    struct metrics_facts facts;
    struct metrics *metrics = metrics_of(exchange, &facts);
    if (metrics == NULL)
        return;
    metrics_write(metrics, &facts, open ? METRICS_OPENMETRICS : METRICS_PROMETHEUS,
                  http_frontend_page(exchange->frontend));
    http_exchange_page(exchange, open ? METRICS_OPENMETRICS_TYPE : METRICS_PROMETHEUS_TYPE);
}

static void answer_stats(struct http_exchange *exchange)
{
    struct metrics_facts facts;
    struct metrics *metrics = metrics_of(exchange, &facts);
    if (metrics == NULL)
        return;
    metrics_json(metrics, &facts, http_frontend_page(exchange->frontend));
    http_exchange_page(exchange, HTTP_TYPE_JSON);
}

static void answer_envoy_stats(struct http_exchange *exchange)
{
    struct metrics_facts facts;
    struct metrics *metrics = metrics_of(exchange, &facts);
    if (metrics == NULL)
        return;
    if (!metrics_has_envoy_names(metrics)) {
        http_exchange_refuse(exchange, 404, "metrics_names has to be envoyproxy or both");
        return;
    }
    metrics_envoy_stats(metrics, &facts, http_frontend_page(exchange->frontend));
    http_exchange_page(exchange, TEXT_PLAIN);
}

/* ---- Top keys -------------------------------------------------------------------------------- */

static void add_top_key(struct page *page, const struct top_key *key)
{
    page_add_json(page, "{\"key\":", span_of(key->name, key->name_len));
    page_add_json(page, ",\"domain\":", span_of_text(key->domain));
    page_add_json(page, ",\"rule\":", span_of_text(key->rule));
    page_print(page, ",\"is_cut\":%s,\"asked\":%.3f,\"denied\":%.3f,\"over_by\":%.3f",
               key->cut ? "true" : "false", key->asked, key->denied, key->over_by);
    page_print(page, ",\"asked_per_s\":%.3f,\"denied_per_s\":%.3f}", key->asked_per_s,
               key->denied_per_s);
}

/* ?n=10, ?order=asked or denied. False: the answer reports what was expected. */
static bool read_top_query(struct http_exchange *exchange, uint64_t *n, enum top_keys_order *order)
{
    struct span query = exchange->target.query, name, value;
    uint8_t *space = (uint8_t *)exchange->frontend->arena;
    bool is_good = query.len <= HTTP_ARENA_SIZE;
    while (is_good && http_target_next(&query, space, &name, &value)) {
        if (span_equals(name, "order") && span_equals(value, "denied"))
            *order = TOP_KEYS_DENIED;
        else if (span_equals(name, "n"))
            is_good = resp_number_read(value, TOP_MAX, n) && *n > 0;
        else
            is_good = span_equals(name, "order") && span_equals(value, "asked");
    }
    if (!is_good)
        http_exchange_refuse(exchange, 400, "expected ?n=1 … 1000 and ?order=asked or denied");
    return is_good;
}

static void answer_top(struct http_exchange *exchange)
{
    struct top_keys *top_keys = server_state_top_keys(http_exchange_server(exchange));
    enum top_keys_order order = TOP_KEYS_ASKED;
    uint64_t n = TOP_DEFAULT;
    if (!read_top_query(exchange, &n, &order))
        return;
    struct top_key *keys = calloc(n, sizeof(*keys));
    if (keys == NULL) {
        http_exchange_refuse(exchange, 503, "no memory for so many keys");
        return;
    }
    n = top_keys == NULL ? 0 : top_keys_read(top_keys, order, exchange->now_ns, keys, n);
    struct page *page = http_frontend_page(exchange->frontend);
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
    char spec[256];
    page_print(page, "%s.%s: ", rule->domain, rule->path);
    if (rule->unlimited) {
        page_add(page, "unlimited");
    } else {
        if (rule->unit != RULE_UNIT_NONE)
            page_print(page, "unit=%s requests_per_unit=%u, ", rls_unit_names[rule->unit],
                       rule->requests_per_unit);
        stint_quota_format(&rule->quota, spec, sizeof(spec));
        page_print(page, "quota: %s, shadow_mode: %s", spec, rule->shadow_mode ? "true" : "false");
    }
    if (rule->name[0] != '\0')
        page_print(page, ", name: %s", rule->name);
    page_print(page, " (%s)\n", rule_position(rule).text);
}

static void answer_rules(struct http_exchange *exchange)
{
    struct rules *rules = server_state_rules(http_exchange_server(exchange));
    struct page *page = http_frontend_page(exchange->frontend);
    for (size_t i = 0; rules != NULL && i < rules_count(rules); i++)
        add_rule(page, rules_at(rules, i));
    rules_unref(rules);
    http_exchange_page(exchange, TEXT_PLAIN);
}

static void answer_reload(struct http_exchange *exchange)
{
    const struct http_frontend_options *options = &exchange->frontend->options;
    struct stint_error error = {0};
    uint64_t number = exchange->message->reload;
    if (options->reload == NULL) {
        http_exchange_refuse(exchange, 501, "this server has nothing to reload");
        return;
    }
    int code = options->reload(options->arg, &number, &error);
    if (code == STINT_E_BUSY) {
        exchange->answer->reload = number;
        exchange->answer->look_at_ns = exchange->io_now_ns + RELOAD_LOOK_NS;
        return;
    }
    if (code < 0) {
        http_exchange_refuse(exchange, 500, error.message);
        return;
    }
    struct page *page = http_frontend_page(exchange->frontend);
    page_print(page, "{\"ok\":true,\"generation\":%llu}",
               (unsigned long long)server_state_generation(http_exchange_server(exchange)));
    http_exchange_page(exchange, HTTP_TYPE_JSON);
}

/* ---- Built-in pages -------------------------------------------------------------------------- */

static void answer_dashboard(struct http_exchange *exchange)
{
    const struct http_config *config = exchange->frontend->options.config;
    if (config->options.dashboard.len == 0) {
        http_exchange_refuse(exchange, 404, "there is no dashboard here");
        return;
    }
    http_exchange_text(exchange, 200, "text/html; charset=utf-8", config->options.dashboard);
    http_answer_add(exchange->answer, "Content-Security-Policy", config->options.dashboard_policy);
    http_answer_add(exchange->answer, "X-Content-Type-Options", "nosniff");
    http_answer_add(exchange->answer, "Referrer-Policy", "no-referrer");
}

static void answer_openapi(struct http_exchange *exchange)
{
    http_exchange_text(exchange, 200, HTTP_TYPE_JSON, span_of(http_openapi, http_openapi_len));
}

/* ---- The clock ------------------------------------------------------------------------------- */

enum { SET = 1 << 0, ADVANCE = 1 << 1 };

struct clock_body {
    uint64_t set_ns, advance_ns;
};

static int read_advance(void *to, const struct http_value *value)
{
    struct span text;
    int code = http_json_text(&text, value);
    if (code == 0 && spec_parse_duration(text, to) != 0)
        return http_json_fault(value, "expected a time like \"10m\" or \"1h30m\"");
    return code;
}

static int read_body(struct http_exchange *exchange, struct clock_body *body, uint32_t *seen,
                     struct stint_error *error)
{
    static const struct http_member members[] = {
        {"set", NULL, http_json_stamp, offsetof(struct clock_body, set_ns), STINT_NOW_MAX,
         "expected nanoseconds up to 576460752303423487 as a string of digits, \"600000000000\""},
        {"advance", NULL, read_advance, offsetof(struct clock_body, advance_ns), 0, NULL},
    };
    static const struct http_object object = {members, 2, .allowed = SET | ADVANCE};
    int code = http_json_read(&exchange->frontend->call.json, exchange->message->body, &object,
                              seen, body, error);
    if (code == 0 && *seen != SET && *seen != ADVANCE)
        return err_set(error, STINT_E_SYNTAX,
                       "expected either \"set\", a time in ns, or \"advance\", like \"10m\"");
    return code;
}

static void answer_clock(struct http_exchange *exchange)
{
    const struct server_clock *clock = exchange->frontend->clock;
    struct http_text out = http_frontend_text(exchange->frontend);
    http_text_add(&out, "{\"clock\":\"");
    http_text_add_text(&out, clock->is_virtual ? "virtual" : "real");
    http_text_add(&out, "\",\"now\":\"");
    http_text_u64(&out, server_clock_now(clock, exchange->io_now_ns));
    http_text_add(&out, "\"}");
    http_exchange_text(exchange, 200, HTTP_TYPE_JSON, span_of(out.text, out.len));
}

static void answer_clock_move(struct http_exchange *exchange)
{
    struct server_clock *clock = exchange->frontend->clock;
    struct clock_body body = {0};
    struct stint_error error;
    uint32_t seen = 0;
    if (read_body(exchange, &body, &seen, &error) != 0) {
        http_exchange_refuse(exchange, 400, error.message);
        return;
    }
    int code = seen == SET ? server_clock_set(clock, body.set_ns, &error)
                           : server_clock_advance(clock, body.advance_ns, &error);
    if (code != 0)
        http_exchange_refuse(exchange, code == STINT_E_MISMATCH ? 409 : 400, error.message);
    else
        answer_clock(exchange);
}

/* ---- Routes ---------------------------------------------------------------------------------- */

static const struct http_route routes[] = {
    {"/v1/clock", ROUTE_GET, false, false, ACCESS_ASK, answer_clock, 0},
    {"/v1/clock", ROUTE_POST, false, true, ACCESS_ADMINISTER, answer_clock_move, 0},
    {"/v1/top", ROUTE_GET, false, false, ACCESS_METRICS, answer_top, 0},
    {"/v1/stats", ROUTE_GET, false, false, ACCESS_METRICS, answer_stats, 0},
    {"/v1/reload", ROUTE_POST, false, true, ACCESS_ADMINISTER, answer_reload, 0},
    {"/metrics", ROUTE_GET, false, false, ACCESS_METRICS, answer_metrics, 0},
    {"/healthz", ROUTE_GET, false, false, HTTP_ROLE_NONE, answer_health, 0},
    {"/readyz", ROUTE_GET, false, false, HTTP_ROLE_NONE, answer_ready, 0},
    {"/healthcheck", ROUTE_GET, false, false, HTTP_ROLE_NONE, answer_healthcheck, 0},
    {"/stats", ROUTE_GET, false, false, ACCESS_METRICS, answer_envoy_stats, 0},
    {"/rlconfig", ROUTE_GET, false, false, ACCESS_METRICS, answer_rules, 0},
    {"/openapi.json", ROUTE_GET, false, false, HTTP_ROLE_PAGE, answer_openapi, 0},
    {"/", ROUTE_GET, false, false, HTTP_ROLE_PAGE, answer_dashboard, 0},
};

const struct http_routes http_page_routes = {routes, sizeof(routes) / sizeof(routes[0]), NULL};
