/* SPDX-License-Identifier: MIT */
/* For tests that ask a service: rules out of YAML text, a table in virtual time, and short words.
 */
#ifndef STINT_TESTS_TEST_SERVER_H
#define STINT_TESTS_TEST_SERVER_H

#include "unit/test_quota.h"

#include "rules/yaml/rules_load.h"
#include "service/access/access.h"
#include "service/service.h"

#define START (1000 * MINUTE) /* where aligned windows begin, too */

static const struct caller anybody = {.name = "", .roles = ACCESS_ALL};

/* Rules may name the stores "red" and "blue"; which ones they are, service_set_stores() says. */
static inline struct rules *rules_of(const char *yaml)
{
    static const char *const stores[] = {"red", "blue"};
    struct rules_diagnostics diagnostics;
    const struct rules_file file = {.path = "test.yaml", .text = span_of_text(yaml)};
    const struct rules_load_options options = {
        .default_algorithm = STINT_WINDOW, .stores = stores, .n_stores = 2};
    struct rules *rules = rules_load(&file, 1, &options, &diagnostics);
    if (rules == NULL)
        fail_msg("%u:%u: %s", diagnostics.diagnostics[0].line, diagnostics.diagnostics[0].column,
                 diagnostics.diagnostics[0].message);
    rules_diagnostics_free(&diagnostics);
    return rules;
}

static inline struct stint_table *table_for_tests(int64_t epoch_ns)
{
    const struct stint_table_options options = {.keys = 4096,
                                                .keys16 = 4096,
                                                .keys_wide = 256,
                                                .wide_size = 1024,
                                                .tickets = 64,
                                                .blocks = 64,
                                                .requests = 1024,
                                                .epoch_ns = epoch_ns,
                                                .clock = STINT_CLOCK_VIRTUAL};
    return must_open_table(&options);
}

struct test_server {
    struct stint_table *table;
    struct server_state *server_state;
    struct service *service;
    uint64_t now_ns;
    struct reply reply;
};

/* Of servers that are opened from now on. NULL: none. */
static const struct traces_options *test_traces;

/* The table's time 0 is so much of the wall clock. */
static inline void serve_since(struct test_server *server, const char *yaml, int64_t epoch_ns)
{
    struct stint_error error;
    struct rules *rules = yaml != NULL ? rules_of(yaml) : NULL;
    *server = (struct test_server){.table = table_for_tests(epoch_ns), .now_ns = START};
    const struct server_state_options options = {
        .table = server->table, .rules = rules, .workers = 2, .traces = test_traces};
    if (server_state_open(&server->server_state, &options, &error) != 0)
        fail_msg("%s", error.message);
    rules_unref(rules);
    server->service = service_new(server->server_state, 0);
    assert_non_null(server->service);
}

static inline void serve(struct test_server *server, const char *yaml)
{
    serve_since(server, yaml, 0);
}

static inline void server_close(struct test_server *server)
{
    service_free(server->service);
    server_state_close(server->server_state);
    stint_table_close(server->table);
    server->service = NULL;
    server->server_state = NULL;
    server->table = NULL;
}

static inline const struct reply *ask(struct test_server *server, const struct request *request)
{
    service_ask(server->service, request, &anybody, server->now_ns, &server->reply);
    return &server->reply;
}

/* Descriptors as text: "key=value key=value; key=value". Room for one request. */
struct asked {
    struct descriptor_entry entries[STINT_ITEMS_MAX][4];
    struct descriptor descriptors[STINT_ITEMS_MAX];
    struct request request;
    char text[512];
};

static inline void add_entry(struct descriptor *descriptor, struct descriptor_entry *entry,
                             char *text)
{
    char *value = strchr(text, '=');
    size_t key_len = value != NULL ? (size_t)(value - text) : strlen(text);
    entry->key = span_of(text, key_len);
    entry->value = value != NULL ? span_of_text(value + 1) : span_of_text("");
    descriptor->n_entries++;
}

/* In domain "d"; the cost is that of the request. */
static inline struct request *descriptors_of(struct asked *asked, const char *text)
{
    char *rest = asked->text, *list;
    assert_true(strlen(text) < sizeof(asked->text));
    strcpy(asked->text, text);
    asked->request = (struct request){.verb = REQUEST_TAKE,
                                      .cost = 1,
                                      .domain = span_of_text("d"),
                                      .descriptors = asked->descriptors};
    while (rest != NULL) {
        struct descriptor *descriptor = &asked->descriptors[asked->request.n_descriptors];
        list = rest;
        rest = strchr(rest, ';');
        if (rest != NULL)
            *rest++ = '\0';
        *descriptor = (struct descriptor){.entries = asked->entries[asked->request.n_descriptors]};
        for (char *word = list, *next; word != NULL; word = next) {
            while (*word == ' ')
                word++;
            next = strchr(word, ' ');
            if (next != NULL)
                *next++ = '\0';
            if (*word != '\0')
                add_entry(descriptor,
                          &asked->entries[asked->request.n_descriptors][descriptor->n_entries],
                          word);
        }
        asked->request.n_descriptors++;
    }
    return &asked->request;
}

static inline const struct reply *ask_verb(struct test_server *server, uint8_t verb, uint32_t cost,
                                           const char *text)
{
    struct asked asked;
    struct request *request = descriptors_of(&asked, text);
    request->verb = verb;
    request->cost = cost;
    return ask(server, request);
}

static inline int outcome(struct test_server *server, const char *text)
{
    const struct reply *reply = ask_verb(server, REQUEST_TAKE, 1, text);
    if (reply->error != REPLY_DECIDED)
        fail_msg("%s: %s", text, reply->message);
    return reply->decision.outcome;
}

/* How many requests of one unit are allowed in a row, at most 1,000. */
static inline unsigned allowed_in_a_row(struct test_server *server, const char *text)
{
    unsigned n = 0;
    while (n < 1000 && outcome(server, text) == STINT_ALLOW)
        n++;
    return n;
}

/* What is left under the rule of one descriptor. */
static inline uint32_t left(struct test_server *server, const char *text)
{
    return ask_verb(server, REQUEST_PEEK, 0, text)->statuses[0].decision.remaining;
}

#endif
