/* SPDX-License-Identifier: MIT */
/* POST /v1/take, and what its status and Retry-After add to the body. */
#include "behaviour/frontend.h"
#include "behaviour/store.h"
#include "unit/talking.h"

static void *open_http(const char *yaml, int64_t epoch_ns)
{
    struct stint_error error;
    struct talking *talking = calloc(1, sizeof(*talking));
    assert_non_null(talking);
    serve_since(&talking->s, yaml, epoch_ns);
    store_give(talking->s.service);
    if (http_config_new(&talking->config, &(struct http_config_options){0}, &error) != 0)
        fail_msg("%s", error.message);
    talking->frontend = http_frontend_new(
        &(struct http_frontend_options){.service = talking->s.service, .config = talking->config});
    assert_non_null(talking->frontend);
    talking->peer = "127.0.0.1";
    return talking;
}

static void close_http(void *frontend)
{
    talk_no_more(frontend);
    free(frontend);
}

static json_t *json_of_span(struct span text)
{
    return json_stringn((const char *)text.ptr, text.len);
}

static json_t *json_of_descriptor(const struct descriptor *descriptor)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < descriptor->n_entries; i++)
        json_array_append_new(entries, json_pack("{s:o, s:o}", "key",
                                                 json_of_span(descriptor->entries[i].key), "value",
                                                 json_of_span(descriptor->entries[i].value)));
    return json_pack("{s:o}", "entries", entries);
}

/* To be freed. */
static char *body_of(const struct request *request)
{
    json_t *descriptors = json_array();
    for (size_t i = 0; i < request->n_descriptors; i++)
        json_array_append_new(descriptors, json_of_descriptor(&request->descriptors[i]));
    json_t *body = json_pack("{s:o, s:o, s:I}", "domain", json_of_span(request->domain),
                             "descriptors", descriptors, "cost", (json_int_t)request->cost);
    char *text = json_dumps(body, JSON_COMPACT);
    assert_non_null(text);
    json_decref(body);
    return text;
}

/* Whole seconds, rounded up, where waiting helps; else the field is not there. */
static bool says_when(const char *answer, const struct metrics *metrics)
{
    long seconds = 0;
    const char *field = strstr(answer, "\nRetry-After: ");
    if (field == NULL || strcmp(metrics->outcome, "deny") != 0)
        return (field == NULL) == (strcmp(metrics->outcome, "deny") != 0);
    return sscanf(field, "\nRetry-After: %ld\n", &seconds) == 1 &&
           seconds == (metrics->retry_after_ms + 999) / 1000;
}

static bool is_of_one_mind(const char *answer, const struct metrics *metrics)
{
    unsigned status = strcmp(metrics->outcome, "allow") == 0 ? 200 : 429, said;
    return sscanf(answer, "%u", &said) == 1 && said == status && says_when(answer, metrics);
}

static bool ask_http(void *frontend, const struct request *request, uint64_t now_ns,
                     struct told *told)
{
    struct talking *talking = frontend;
    char message[4096], *body = body_of(request);
    int len = snprintf(message, sizeof(message),
                       "POST /v1/take\nContent-Type: application/json\n\n%s", body);
    free(body);
    assert_true(len > 0 && (size_t)len < sizeof(message));
    talking->s.now_ns = now_ns;
    const char *answer = talk(talking, message);
    assert_true(strlen(answer) < sizeof(told->answer));
    strcpy(told->answer, answer);
    json_t *members = json_loads(strstr(answer, "\n\n") + 2, JSON_REJECT_DUPLICATES, NULL);
    bool is_told = told_read(told, members, json_null()) && is_of_one_mind(answer, &told->all);
    json_decref(members);
    return is_told;
}

const struct frontend frontend_http = {"http", open_http, ask_http, close_http};
