/* SPDX-License-Identifier: MIT */
/* POST /v1/take and the other verbs, and what status and Retry-After add to the body. */
#include "behaviour/frontend.h"
#include "behaviour/store.h"
#include "unit/test_http_client.h"

static void *open_http(const char *yaml, int64_t epoch_ns)
{
    struct stint_error error;
    struct http_client *http = calloc(1, sizeof(*http));
    assert_non_null(http);
    serve_since(&http->s, yaml, epoch_ns);
    store_give(http->s.service);
    if (http_config_new(&http->config, &(struct http_config_options){0}, &error) != 0)
        fail_msg("%s", error.message);
    http->frontend = http_frontend_new(
        &(struct http_frontend_options){.service = http->s.service, .config = http->config});
    assert_non_null(http->frontend);
    http->peer = "127.0.0.1";
    return http;
}

static void close_http(void *frontend)
{
    http_close(frontend);
    free(frontend);
}

static json_t *json_of_span(struct span text)
{
    return json_stringn((const char *)text.ptr, text.len);
}

static json_t *json_of_descriptor(const struct descriptor *descriptor)
{
    json_t *entries = json_array(), *json = json_pack("{s:o}", "entries", entries);
    for (size_t i = 0; i < descriptor->n_entries; i++)
        json_array_append_new(entries, json_pack("{s:o, s:o}", "key",
                                                 json_of_span(descriptor->entries[i].key), "value",
                                                 json_of_span(descriptor->entries[i].value)));
    if (descriptor->has_hits)
        json_object_set_new(json, "hits", json_integer(descriptor->hits));
    if (descriptor->is_refund)
        json_object_set_new(json, "is_refund", json_true());
    if (descriptor->override != NULL) {
        char quota[STINT_ERROR_MAX];
        stint_quota_format(descriptor->override, quota, sizeof(quota));
        json_object_set_new(json, "quota", json_string(quota));
    }
    return json;
}

static json_t *json_of_item(const struct request_item *item)
{
    json_t *json =
        json_pack("{s:o, s:o}", "quota", json_of_span(item->quota), "key", json_of_span(item->key));
    if (item->has_cost)
        json_object_set_new(json, "cost", json_integer(item->cost));
    return json;
}

static void add_target(json_t *body, const struct request *request)
{
    json_t *list = json_array();
    bool is_items = request->n_items > 0;
    json_object_set_new(body, is_items ? "items" : "descriptors", list);
    if (!is_items)
        json_object_set_new(body, "domain", json_of_span(request->domain));
    for (size_t i = 0; i < request->n_items; i++)
        json_array_append_new(list, json_of_item(&request->items[i]));
    for (size_t i = 0; i < request->n_descriptors; i++)
        json_array_append_new(list, json_of_descriptor(&request->descriptors[i]));
}

static void add_counter(json_t *body, const struct request *request)
{
    json_object_set_new(body, "key", json_of_span(request->key));
    if (request->verb == REQUEST_COUNT)
        json_object_set_new(body, "amount", json_integer(request->amount));
    if (request->amount > 0)
        json_object_set_new(body, "expiry_ms",
                            json_integer((json_int_t)(request->lifetime_ns / MS)));
}

/* To be freed. */
static char *body_of(const struct request *request)
{
    static const char *const times[REQUEST_VERBS] = {[REQUEST_RESERVE] = "lifetime_ms",
                                                     [REQUEST_BOOK] = "max_wait_ms",
                                                     [REQUEST_BLOCK] = "for_ms"};
    json_t *body = json_object();
    if (request->key.ptr != NULL)
        add_counter(body, request);
    else if (request->ticket_text.len > 0)
        json_object_set_new(body, "ticket", json_of_span(request->ticket_text));
    else
        add_target(body, request);
    if (!is_without_decision(request->verb) && request->verb != REQUEST_CANCEL)
        json_object_set_new(body, "cost", json_integer(request->cost));
    if (times[request->verb] != NULL)
        json_object_set_new(body, times[request->verb],
                            json_integer((json_int_t)(request->lifetime_ns / MS)));
    if (request->verb == REQUEST_SET_QUOTA)
        json_object_set_new(body, "quota", json_of_span(request->quota));
    if (request->id.len > 0)
        json_object_set_new(body, "request_id", json_of_span(request->id));
    char *text = json_dumps(body, JSON_COMPACT);
    assert_non_null(text);
    json_decref(body);
    return text;
}

/* Whole seconds, rounded up, where waiting helps; else the field is not there. */
static bool has_right_retry_after(const struct request *request, const struct result *result)
{
    long seconds = 0;
    const char *field = strstr(result->reply, "\nRetry-After: ");
    bool is_refused = request->verb != REQUEST_PEEK && request->verb != REQUEST_EXPLAIN &&
                      strcmp(result->all.outcome, "deny") == 0;
    if (field == NULL || !is_refused)
        return field == NULL && !is_refused;
    return sscanf(field, "\nRetry-After: %ld\n", &seconds) == 1 &&
           seconds == (result->all.retry_after_ms + 999) / 1000;
}

static bool has_words(const struct request *request)
{
    return !request->has_envoy_hits && (request->verb != REQUEST_SET_QUOTA ||
                                        (request->n_items == 0 && request->quota.len > 0));
}

/* Of a reply without a decision. */
static bool read_status(unsigned status, struct result *result)
{
    static const unsigned statuses[] = {
        [REPLY_DECIDED] = 200,    [REPLY_BAD_REQUEST] = 400, [REPLY_FORBIDDEN] = 403,
        [REPLY_GONE] = 410,       [REPLY_CONFLICT] = 409,    [REPLY_FULL] = 507,
        [REPLY_UNAVAILABLE] = 503};
    for (size_t i = 0; i < N(statuses); i++)
        if (statuses[i] == status)
            strcpy(result->all.outcome, i == REPLY_DECIDED ? "ok" : error_names[i]);
    return result->all.outcome[0] != '\0';
}

static bool read_answer(const struct request *request, struct result *result)
{
    unsigned status, is_look = request->verb == REQUEST_PEEK || request->verb == REQUEST_EXPLAIN;
    const char *body = strstr(result->reply, "\n\n");
    if (body == NULL || sscanf(result->reply, "%u", &status) != 1)
        return false;
    json_t *members = json_loads(body + 2, JSON_REJECT_DUPLICATES, NULL);
    bool is_read, is_decision = json_object_get(members, "outcome") != NULL;
    if (is_decision)
        is_read = result_read(result, members, json_null()) &&
                  status == (is_look || strcmp(result->all.outcome, "allow") == 0 ? 200 : 429) &&
                  has_right_retry_after(request, result);
    else
        is_read = read_status(status, result) && (request->verb != REQUEST_COUNT || status != 200 ||
                                                  result_read_count(result, members));
    json_decref(members);
    return is_read;
}

static bool decide_http(void *frontend, void *beside, const struct request *request,
                        uint64_t now_ns, const struct result *exact, struct result *result)
{
    struct http_client *http = frontend;
    (void)beside, (void)exact;
    if (!has_words(request))
        return service_decide(&http->s, request, now_ns, result);
    char message[8192], *body = body_of(request);
    bool is_quota = request->verb == REQUEST_SET_QUOTA;
    int len = snprintf(message, sizeof(message), "%s /v1/%s\nContent-Type: application/json\n\n%s",
                       is_quota ? "PUT" : "POST",
                       is_quota ? "overrides" : request_verbs[request->verb].name, body);
    free(body);
    assert_true(len > 0 && (size_t)len < sizeof(message));
    http->s.now_ns = now_ns;
    memset(result, 0, sizeof(*result));
    const char *answer = http_send(http, message);
    assert_true(strlen(answer) < sizeof(result->reply));
    strcpy(result->reply, answer);
    return read_answer(request, result);
}

const struct frontend frontend_http = {"http", open_http, decide_http, close_http};
