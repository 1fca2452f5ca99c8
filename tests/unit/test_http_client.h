/* SPDX-License-Identifier: MIT */
/*
 * For tests that speak HTTP with a frontend, without sockets: messages and answers as text, in
 * virtual time. A message is its request line, fields and, behind an empty line, its body; an
 * answer the same, with a status in the place of the line.
 */
#ifndef STINT_TESTS_TEST_HTTP_CLIENT_H
#define STINT_TESTS_TEST_HTTP_CLIENT_H

#include "unit/test_server.h"

#include "frontend/http/http.h"

#include <strings.h>

#define ANSWER_MAX 65536
/* Between the line of a message and its body. */
#define JSON "\nContent-Type: application/json\n\n"

struct http_client {
    struct test_server s;
    struct http_config *config;
    struct http_frontend *frontend;
    uint64_t asked_ns;       /* of a message that waits; 0: none does */
    struct pending *pending; /* of one that waits for a store */
    bool is_urgent;
    const char *peer;
    char answer[ANSWER_MAX];
};

static inline void http_open(struct http_client *http, const char *yaml,
                             const struct http_config_options *config, struct access_now *access)
{
    struct stint_error error;
    memset(http, 0, sizeof(*http));
    serve(&http->s, yaml);
    if (http_config_new(&http->config, config, &error) != 0)
        fail_msg("%s", error.message);
    http->frontend = http_frontend_new(&(struct http_frontend_options){
        .service = http->s.service, .config = http->config, .access = access});
    assert_non_null(http->frontend);
    http->peer = "127.0.0.1";
}

static inline void http_close(struct http_client *http)
{
    http_frontend_free(http->frontend);
    http_config_free(http->config);
    server_close(&http->s);
}

/* The fields of a message in text: lines "Name: value". */
static inline struct span http_client_field(const void *arg, struct span name, size_t nth)
{
    const char *line = strchr(arg, '\n');
    size_t len = name.len;
    while (line != NULL && line[1] != '\n' && line[1] != '\0') {
        line++;
        if (strncasecmp(line, (const char *)name.ptr, len) == 0 && line[len] == ':' && nth-- == 0)
            return span_of(line + len + 2, strcspn(line, "\n") - len - 2);
        line = strchr(line, '\n');
    }
    return (struct span){NULL, 0};
}

static inline void write_answer(struct http_client *http, const struct http_answer *answer)
{
    int len = snprintf(http->answer, ANSWER_MAX, "%u\n", answer->status);
    for (size_t i = 0; i < answer->n_fields; i++)
        len += snprintf(http->answer + len, ANSWER_MAX - (size_t)len, "%s: %s\n",
                        answer->fields[i].name, answer->fields[i].value);
    snprintf(http->answer + len, ANSWER_MAX - (size_t)len, "\n%.*s", (int)answer->body.len,
             (const char *)answer->body.ptr);
}

/* The answer as text, or NULL where it is to be asked again at *again_ns, or has a pending request.
 */
static inline const char *http_send_or_wait(struct http_client *http, const char *text,
                                            uint64_t *again_ns)
{
    const char *body = strstr(text, "\n\n");
    size_t method_len = strcspn(text, " "), line_len = strcspn(text, "\n");
    struct http_message message = {
        .method = span_of(text, method_len),
        .target = span_of(text + method_len + 1, line_len - method_len - 1),
        .body = body != NULL && body[2] != '\0' ? span_of_text(body + 2) : (struct span){0},
        .peer = span_of_text(http->peer),
        .is_urgent = http->is_urgent,
        .pending = http->pending,
        .field = http_client_field,
        .field_arg = text,
    };
    struct http_answer answer;
    if (http->asked_ns == 0)
        http->asked_ns = http->s.now_ns;
    http_frontend_ask(http->frontend, &message, http->asked_ns, http->s.now_ns, &answer);
    *again_ns = answer.again_at_ns;
    http->pending = answer.pending;
    if (answer.again_at_ns != 0 || answer.pending != NULL) {
        assert_int_equal(answer.status, 0);
        return NULL;
    }
    http->asked_ns = 0;
    write_answer(http, &answer);
    return http->answer;
}

static inline const char *http_send(struct http_client *http, const char *text)
{
    uint64_t again_ns;
    const char *answer = http_send_or_wait(http, text, &again_ns);
    assert_non_null(answer);
    return answer;
}

#define assert_answer(http, text, expected) assert_string_equal(http_send(http, text), "" expected)

static inline unsigned status_of(struct http_client *http, const char *text)
{
    unsigned status = 0;
    assert_int_equal(sscanf(http_send(http, text), "%u", &status), 1);
    return status;
}

/* Whether the answer has this piece of text in it. */
static inline void assert_says(struct http_client *http, const char *text, const char *piece)
{
    if (strstr(http_send(http, text), piece) == NULL)
        fail_msg("%s\n-- is answered --\n%s\n-- without --\n%s", text, http->answer, piece);
}

#endif
