/* SPDX-License-Identifier: MIT */
/*
 * A request as text (line, fields, an empty line, body) to a frontend: every answer is one, its
 * JSON can be read, no field breaks out of its line, and a 429 says when to come back, or never.
 */
#define _GNU_SOURCE
#include "bytes.h"

#include "frontend/http/http.h"
#include "rules/yaml/rules_load.h"

#include <jansson.h>
#include <strings.h>

static const char yaml[] =
    "domain: d\n"
    "descriptors:\n"
    "  - key: remote_address\n"
    "    rate_limit: {unit: minute, requests_per_unit: 5}\n"
    "  - key: path\n"
    "    shadow_mode: true\n"
    "    rate_limit: {unit: second, requests_per_unit: 1, algorithm: gcra, name: 'a \"b\"'}\n"
    "  - key: k\n"
    "    rate_limit: {unit: day, requests_per_unit: 0}\n"
    "  - key: free\n"
    "    rate_limit: {unlimited: true}\n";

static struct http_frontend *frontend;
static struct stint_table *table;
static uint64_t now_ns = UINT64_C(1000000000000);

static void open_frontend(void)
{
    static const char *const lists[] = {"address/24,/56", "path, method", "header:k, query:free",
                                        "k=header:k", "path_prefix:/a/, constant:free=1"};
    static const char *const trusted[] = {"127.0.0.0/8", "unix"};
    static const char *const hosts[] = {"stint", "*.example.com"};
    const struct stint_table_options options = {.keys = 64,
                                                .keys16 = 64,
                                                .keys_wide = 16,
                                                .wide_size = 1024,
                                                .tickets = 8,
                                                .blocks = 8,
                                                .quotas = 64,
                                                .clock = STINT_CLOCK_VIRTUAL};
    const struct rules_file file = {.path = "f.yaml", .text = span_of(yaml, sizeof(yaml) - 1)};
    struct rules_diagnostics diagnostics;
    struct http_config *config;
    struct server_state *server_state;
    MUST(stint_table_open(&table, &options, NULL) == 0);
    struct rules *rules = rules_load(&file, 1, &(struct rules_load_options){0}, &diagnostics);
    rules_diagnostics_free(&diagnostics);
    MUST(rules != NULL);
    MUST(server_state_open(
             &server_state,
             &(struct server_state_options){.table = table, .rules = rules, .workers = 1},
             NULL) == 0);
    MUST(http_config_new(&config,
                         &(struct http_config_options){.domain = "d",
                                                       .descriptors = lists,
                                                       .n_descriptors = 5,
                                                       .trusted_proxies = trusted,
                                                       .n_trusted_proxies = 2,
                                                       .hosts = hosts,
                                                       .n_hosts = 2,
                                                       .styles = 7},
                         NULL) == 0);
    struct service *service = service_new(server_state, 0);
    MUST(service != NULL);
    frontend =
        http_frontend_new(&(struct http_frontend_options){.service = service, .config = config});
    MUST(frontend != NULL);
}

/* The blanks behind a colon are no part of a field's value. */
static struct span without_blanks(struct span text)
{
    while (text.len > 0 && text.ptr[0] == ' ')
        text = span_after(text, 1);
    return text;
}

/* The fields are the lines behind the first, "Name: value", up to an empty one. */
static struct span find_field(const void *arg, struct span name, size_t nth)
{
    struct span rest = *(const struct span *)arg;
    while (rest.len > 0) {
        const uint8_t *end = memchr(rest.ptr, '\n', rest.len);
        size_t line_len = end != NULL ? (size_t)(end - rest.ptr) : rest.len;
        struct span line = span_of(rest.ptr, line_len);
        rest = end != NULL ? span_of(end + 1, rest.len - line_len - 1) : (struct span){rest.ptr, 0};
        if (line.len > name.len && line.ptr[name.len] == ':' &&
            strncasecmp((const char *)line.ptr, (const char *)name.ptr, name.len) == 0 &&
            nth-- == 0)
            return without_blanks(span_after(line, name.len + 1));
    }
    return (struct span){NULL, 0};
}

/* Cuts the piece up to `end` off; what stands behind it is left. */
static struct span cut(struct span *rest, const char *end)
{
    const uint8_t *found = memmem(rest->ptr, rest->len, end, strlen(end));
    struct span piece = span_of(rest->ptr, found != NULL ? (size_t)(found - rest->ptr) : rest->len);
    size_t used = found != NULL ? piece.len + strlen(end) : rest->len;
    *rest = span_of(rest->ptr + used, rest->len - used);
    return piece;
}

static const char *field_of(const struct http_answer *answer, const char *name)
{
    for (size_t i = 0; i < answer->n_fields; i++)
        if (strcmp(answer->fields[i].name, name) == 0)
            return answer->fields[i].value;
    return NULL;
}

static void check_json(const struct http_answer *answer)
{
    json_t *body = json_loadb((const char *)answer->body.ptr, answer->body.len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    MUST(json_is_object(body));
    const char *outcome = json_string_value(json_object_get(body, "outcome"));
    const char *retry = field_of(answer, "Retry-After");
    if (outcome != NULL && strcmp(outcome, "never") == 0)
        MUST(retry == NULL);
    else if (answer->status == 429 && outcome != NULL) /* /json does not tell them apart */
        MUST(retry != NULL && atoll(retry) >= 1);
    json_decref(body);
}

static void check(const struct http_answer *answer)
{
    const char *type = field_of(answer, "Content-Type");
    MUST(answer->status >= 200 && answer->status < 600);
    for (size_t i = 0; i < answer->n_fields; i++)
        MUST(strpbrk(answer->fields[i].value, "\r\n") == NULL);
    if (type != NULL && strstr(type, "json") != NULL)
        check_json(answer);
    MUST(type != NULL || answer->body.len == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (frontend == NULL)
        open_frontend();
    uint8_t *copy = bytes_copy(span_of(data, size));
    struct span rest = span_of(copy, size);
    struct span head = cut(&rest, "\n\n");
    struct span line = cut(&head, "\n");
    struct http_message message = {
        .method = cut(&line, " "),
        .target = line,
        .body = rest.len > 0 ? rest : (struct span){0}, /* as of a request without one */
        .peer = size % 3 == 0 ? (struct span){0} : span_of("127.0.0.1", 9),
        .field = find_field,
        .field_arg = &head,
    };
    struct http_answer answer;
    stint_table_set_now(table, now_ns += 1000000);
    http_frontend_ask(frontend, &message, now_ns, now_ns, &answer);
    if (answer.again_at_ns != 0) {
        MUST(answer.again_at_ns > now_ns);
        message.is_urgent = true;
        http_frontend_ask(frontend, &message, now_ns, now_ns, &answer);
        MUST(answer.again_at_ns == 0);
    }
    check(&answer);
    free(copy);
    return 0;
}
