/* SPDX-License-Identifier: MIT */
/* Key pools: /v1/pools/NAME/next, give_back, report, status, add, remove. */
#include "base/err.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "frontend/http/http_exchange.h"
#include "service/pools/pools.h"

#include <stddef.h>

#define PREFIX_LEN (sizeof("/v1/pools/") - 1)
#define STATUS_TEXT_SIZE 512 /* of one key, without its name */

/* Rows of pool_members, as bits. */
enum pool_member_bit {
    COST = 1 << 0,
    PROBE = 1 << 1,
    WAIT = 1 << 2,
    KEY = 1 << 3,
    GRANTED_AT = 1 << 4,
    OUTCOME = 1 << 5,
    COOLDOWN = 1 << 6,
    QUOTAS = 1 << 7,
    WEIGHT = 1 << 8,
    REQUEST_ID = 1 << 9,
};

struct pool_body {
    uint32_t cost, weight;
    bool probe;
    uint64_t wait_ns, granted_at_ns, cooldown_ns;
    struct span key, id;
    int outcome;
    size_t n_quotas;
    struct span quotas[STINT_POOL_QUOTAS_MAX];
};

static int read_outcome(void *to, const struct http_value *value)
{
    static const char *const names[] = {
        [STINT_POOL_OK] = "ok",
        [STINT_POOL_COOL] = "cool",
        [STINT_POOL_BACK_OFF] = "back_off",
        [STINT_POOL_OUT] = "out",
    };
    const struct http_json_node *node = value->node;
    for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
        if (node->kind == HTTP_JSON_STRING &&
            span_equals(span_of(node->text, node->count), names[i])) {
            *(int *)to = i;
            return 0;
        }
    }
    return http_json_fault(value, "expected \"ok\", \"cool\", \"back_off\" or \"out\"");
}

static int read_quotas(void *to, const struct http_value *value)
{
    struct pool_body *body = to;
    body->n_quotas = value->node->count;
    return http_json_array(value, STINT_POOL_QUOTAS_MAX, "quotas", http_json_text, body->quotas,
                           sizeof(body->quotas[0]));
}

static int read_weight(void *to, const struct http_value *value)
{
    const struct http_json_node *node = value->node;
    _Static_assert(STINT_POOL_WEIGHT_MAX == 1000, "the message has it");
    if (node->kind != HTTP_JSON_INTEGER || node->integer < 1 ||
        node->integer > STINT_POOL_WEIGHT_MAX)
        return http_json_expected(value, "a whole number of 1 to 1000");
    *(uint32_t *)to = (uint32_t)node->integer;
    return 0;
}

/* In the order of enum pool_member_bit. */
#define AT(member) offsetof(struct pool_body, member)
static const struct http_member pool_members[] = {
    {"cost", NULL, http_json_u32, AT(cost), 0, NULL},
    {"probe", NULL, http_json_bool, AT(probe), 0, NULL},
    {"wait_ms", NULL, http_json_ms, AT(wait_ns), HTTP_WAIT_MAX_MS, NULL},
    {"key", NULL, http_json_text, AT(key), 0, NULL},
    {"granted_at", NULL, http_json_stamp, AT(granted_at_ns), POOLS_AT_MAX_NS, NULL},
    {"outcome", NULL, read_outcome, AT(outcome), 0, NULL},
    {"cooldown_ms", NULL, http_json_ms, AT(cooldown_ns), HTTP_LIFETIME_MAX_MS, NULL},
    {"quotas", NULL, read_quotas, 0, 0, NULL},
    {"weight", NULL, read_weight, AT(weight), 0, NULL},
    {"request_id", NULL, http_json_text, AT(id), HTTP_ID_MAX, HTTP_ID_EXPECTED},
};
#define N_POOL_MEMBERS (sizeof(pool_members) / sizeof(pool_members[0]))

/* One request to a pool. */
struct pool_ask {
    struct http_exchange *exchange;
    struct pools *pools;
    struct pools_caller caller;
    struct span pool;
    struct pool_body body;
};

struct pool_route {
    const char *name;
    unsigned method;
    unsigned role;
    uint32_t allowed, required;
    int (*answer)(struct pool_ask *ask, struct stint_error *error);
};

/* ---- Answers --------------------------------------------------------------------------------- */

static unsigned status_of(int code)
{
    return code == STINT_E_GONE       ? 404
           : code == STINT_E_MISMATCH ? 409
           : code == STINT_E_FULL     ? 507
           : code == STINT_E_SYSTEM   ? 503
                                      : 400;
}

static struct service_pool_call call_of(struct pool_ask *ask)
{
    return (struct service_pool_call){.pool = ask->pool,
                                      .id = ask->body.id,
                                      .caller = ask->exchange->caller.name,
                                      .context = &ask->caller};
}

static int answer_ok(struct pool_ask *ask)
{
    http_exchange_text(ask->exchange, 200, HTTP_TYPE_JSON, span_of_text("{\"ok\":true}"));
    return 0;
}

static void write_answer(struct http_text *out, const struct stint_pool_answer *answer,
                         bool replayed)
{
    http_text_add(out, "\"key\":");
    if (answer->name != NULL)
        http_text_json(out, span_of_text(answer->name));
    else
        http_text_add(out, "null");
    http_text_member_ms(out, "wait_ms", answer->wait_ns);
    http_text_add(out, ",\"at\":\"");
    http_text_u64(out, answer->granted_at_ns);
    http_text_add(out, "\",\"probe\":");
    http_text_add_text(out, answer->probe ? "true" : "false");
    http_text_member_u64(out, "limit", answer->decision.limit);
    http_text_member_u64(out, "remaining", answer->decision.remaining);
    http_text_member_ms(out, "reset_after_ms", answer->decision.reset_after_ns);
    http_text_add_text(out, replayed ? ",\"replayed\":true}" : "}");
}

/* No key is free: a problem with the time when one is. The violated policy is the pool. */
static void answer_none(struct pool_ask *ask, const struct stint_pool_answer *answer)
{
    struct http_text out = http_frontend_text(ask->exchange->frontend);
    if (answer->wait_ns != STINT_NEVER_NS) {
        http_text_u64(&out, http_fields_retry_s(answer->wait_ns));
        http_answer_add(ask->exchange->answer, "Retry-After", http_text_end(&out, 0));
    }
    size_t start = out.len;
    http_denial_begin(&out, "No key is free; wait_ms is the time until one is.");
    http_text_json(&out, ask->pool);
    http_text_add(&out, "],");
    write_answer(&out, answer, false);
    http_exchange_text(ask->exchange, 429, HTTP_TYPE_PROBLEM,
                       span_of(out.text + start, out.len - start));
}

static int pool_next(struct pool_ask *ask, struct stint_error *error)
{
    struct http_exchange *exchange = ask->exchange;
    uint64_t now_ns = exchange->now_ns;
    struct stint_pool_ask evaluation = {now_ns, ask->body.cost, ask->body.probe};
    struct stint_pool_answer answer;
    struct service_pool_call call = call_of(ask);
    int code =
        service_pool_next(exchange->frontend->options.service, &call, &evaluation, &answer, error);
    if (code != 0)
        return code;
    if (answer.name == NULL) {
        uint64_t patience_ends_ns = add_sat(exchange->asked_ns, ask->body.wait_ns);
        uint64_t again_ns = add_sat(now_ns, max_u64(answer.wait_ns, 1));
        if (ask->body.wait_ns > 0 && !exchange->message->is_urgent && again_ns <= patience_ends_ns)
            exchange->answer->again_at_ns = again_ns;
        else
            answer_none(ask, &answer);
        return 0;
    }
    struct http_text out = http_frontend_text(exchange->frontend);
    http_text_add(&out, "{");
    write_answer(&out, &answer, call.replayed);
    http_exchange_text(exchange, 200, HTTP_TYPE_JSON, span_of(out.text, out.len));
    return 0;
}

static int pool_give_back(struct pool_ask *ask, struct stint_error *error)
{
    struct pools_return back = {ask->body.key, ask->body.cost, ask->body.granted_at_ns};
    uint32_t given_back;
    struct service_pool_call call = call_of(ask);
    int code = service_pool_give_back(ask->exchange->frontend->options.service, &call, &back,
                                      ask->exchange->now_ns, &given_back, error);
    if (code != 0)
        return code;
    struct http_text out = http_frontend_text(ask->exchange->frontend);
    http_text_add(&out, "{\"given_back\":");
    http_text_u64(&out, given_back);
    http_text_add(&out, "}");
    http_exchange_text(ask->exchange, 200, HTTP_TYPE_JSON, span_of(out.text, out.len));
    return 0;
}

static int pool_report(struct pool_ask *ask, struct stint_error *error)
{
    struct pools_report report = {ask->body.key, ask->body.outcome, ask->body.cooldown_ns};
    if ((report.outcome == STINT_POOL_COOL) != (report.cooldown_ns > 0))
        return err_set(error, STINT_E_SYNTAX,
                       "\"cool\" wants a cooldown_ms above 0, and nothing else has one");
    int code =
        pools_report(ask->pools, &ask->caller, ask->pool, &report, ask->exchange->now_ns, error);
    return code != 0 ? code : answer_ok(ask);
}

static int pool_add(struct pool_ask *ask, struct stint_error *error)
{
    struct pools_key key = {ask->body.key, ask->body.quotas, ask->body.n_quotas, ask->body.weight};
    int code = pools_add(ask->pools, ask->pool, &key, ask->exchange->now_ns, error);
    return code != 0 ? code : answer_ok(ask);
}

static int pool_remove(struct pool_ask *ask, struct stint_error *error)
{
    int code = pools_remove(ask->pools, &ask->caller, ask->pool, ask->body.key,
                            ask->exchange->now_ns, error);
    return code != 0 ? code : answer_ok(ask);
}

static bool add_status(const struct stint_pool_status *status, void *arg)
{
    static const char *const standings[] = {
        [STINT_POOL_FREE] = "free",       [STINT_POOL_USED_UP] = "used_up",
        [STINT_POOL_COOLING] = "cooling", [STINT_POOL_BACKING_OFF] = "backing_off",
        [STINT_POOL_IS_OUT] = "out",
    };
    struct page *page = arg;
    char text[STATUS_TEXT_SIZE];
    struct http_text out = http_text_at(text, sizeof(text));
    page_add_json(page, page->text[page->len - 1] == '[' ? "{\"key\":" : ",{\"key\":",
                  span_of_text(status->name));
    http_text_add(&out, ",\"standing\":\"");
    http_text_add_text(&out, standings[status->standing]);
    http_text_add(&out, "\"");
    http_text_member_ms(&out, "returns_after_ms", status->returns_after_ns);
    http_text_member_u64(&out, "weight", status->weight);
    http_text_member_u64(&out, "failures", status->failures);
    http_text_member_u64(&out, "limit", status->decision.limit);
    http_text_member_u64(&out, "remaining", status->decision.remaining);
    http_text_add(&out, "}");
    page_add_span(page, span_of(out.text, out.len));
    return !page->failed;
}

static int pool_status(struct pool_ask *ask, struct stint_error *error)
{
    struct page *page = http_frontend_page(ask->exchange->frontend);
    page_add(page, "{\"keys\":[");
    if (!page->failed) {
        int code = pools_each(ask->pools, &ask->caller, ask->pool, ask->exchange->now_ns,
                              add_status, page, error);
        if (code != 0)
            return code;
    }
    page_add(page, "]}");
    http_exchange_page(ask->exchange, HTTP_TYPE_JSON);
    return 0;
}

static const struct pool_route pool_routes[] = {
    {"next", ROUTE_POST, ACCESS_ASK, COST | PROBE | WAIT | REQUEST_ID, 0, pool_next},
    {"give_back", ROUTE_POST, ACCESS_ASK, KEY | COST | GRANTED_AT | REQUEST_ID, KEY,
     pool_give_back},
    {"report", ROUTE_POST, ACCESS_ASK, KEY | OUTCOME | COOLDOWN, KEY | OUTCOME, pool_report},
    {"status", ROUTE_GET, ACCESS_ASK, 0, 0, pool_status},
    {"add", ROUTE_POST, ACCESS_ADMINISTER, KEY | QUOTAS | WEIGHT, KEY | QUOTAS, pool_add},
    {"remove", ROUTE_POST, ACCESS_ADMINISTER, KEY, KEY, pool_remove},
};

/* ---- Routes ---------------------------------------------------------------------------------- */

/* "/v1/pools/NAME/VERB": NULL if there is no such verb, or no name. */
static const struct pool_route *find_pool_route(struct span path, struct span *name)
{
    path = span_of(path.ptr + PREFIX_LEN, path.len - PREFIX_LEN);
    size_t len = path.len;
    while (len > 0 && path.ptr[len - 1] != '/')
        len--;
    if (len < 2 || path.len > HTTP_ARENA_SIZE)
        return NULL;
    *name = span_of(path.ptr, len - 1);
    for (size_t i = 0; i < sizeof(pool_routes) / sizeof(pool_routes[0]); i++)
        if (span_equals(span_of(path.ptr + len, path.len - len), pool_routes[i].name))
            return &pool_routes[i];
    return NULL;
}

static unsigned methods_below(struct span path)
{
    struct span name;
    const struct pool_route *route = find_pool_route(path, &name);
    return route != NULL ? route->method : 0;
}

static int read_body(struct pool_ask *ask, const struct pool_route *route,
                     struct stint_error *error)
{
    const struct http_object object = {pool_members, N_POOL_MEMBERS, route->allowed,
                                       route->required, .is_proto3 = false};
    struct span text = ask->exchange->message->body;
    uint32_t seen;
    ask->body = (struct pool_body){.cost = 1, .granted_at_ns = STINT_NEVER_NS};
    return http_json_read(&ask->exchange->frontend->call.json,
                          text.len > 0 ? text : span_of_text("{}"), &object, &seen, &ask->body,
                          error);
}

/* The pending request stays with the exchange until it has been answered, or becomes that of the
 * answer that waits. */
static void answer_ask(struct pool_ask *ask, const struct pool_route *route)
{
    struct stint_error error = {0};
    struct http_exchange *exchange = ask->exchange;
    service_pools_caller(exchange->frontend->options.service, exchange->pending, &ask->caller);
    int code = route->answer(ask, &error);
    exchange->pending = ask->caller.pending;
    if (code == POOLS_WAITS) {
        exchange->answer->pending = exchange->pending;
        exchange->pending = NULL;
    } else if (code < 0) {
        http_exchange_refuse(exchange, status_of(code), error.message);
    }
}

static void answer_pool(struct http_exchange *exchange)
{
    struct stint_error error = {0};
    struct pool_ask ask = {
        .exchange = exchange,
        .pools = server_state_pools(http_exchange_server(exchange)),
    };
    struct span name;
    const struct pool_route *route = find_pool_route(exchange->target.path, &name);
    if (route == NULL) {
        http_exchange_refuse(exchange, 404,
                             "expected /v1/pools/NAME/VERB, the VERB next, "
                             "give_back, report, status, add or remove");
        return;
    }
    uint8_t *space = (uint8_t *)exchange->frontend->arena;
    ask.pool = span_of(space, http_target_decode(name, space));
    if (!http_exchange_admit(exchange, route->role))
        return;
    if (route->method != ROUTE_GET && read_body(&ask, route, &error) < 0)
        http_exchange_refuse(exchange, 400, error.message);
    else
        answer_ask(&ask, route);
}

static void answer_pools(struct http_exchange *exchange)
{
    const struct pools *pools = server_state_pools(http_exchange_server(exchange));
    struct page *page = http_frontend_page(exchange->frontend);
    page_add(page, "{\"pools\":[");
    size_t n = pools_count(pools);
    for (size_t i = 0; i < n; i++)
        page_add_json(page, i > 0 ? "," : "", span_of_text(pools_name(pools, i)));
    page_add(page, "]}");
    http_exchange_page(exchange, HTTP_TYPE_JSON);
}

static const struct http_route routes[] = {
    {"/v1/pools", ROUTE_GET, false, false, ACCESS_ASK, answer_pools, 0},
    {"/v1/pools/", ROUTE_GET | ROUTE_POST, true, true, HTTP_ROLE_PAGE, answer_pool, 0},
};

const struct http_routes http_pool_routes = {routes, sizeof(routes) / sizeof(routes[0]),
                                             methods_below};
