/* SPDX-License-Identifier: MIT */
/*
 * For tests that speak HTTP with a frontend, without sockets: messages and answers as text, in
 * virtual time. A message is its request line, fields and, behind an empty line, its body; an
 * answer the same, with a status in the place of the line.
 */
#ifndef STINT_TESTS_TALKING_H
#define STINT_TESTS_TALKING_H

#include "unit/serving.h"

#include "frontend/http/http.h"

#include <strings.h>

#define ANSWER_MAX 65536
/* Between the line of a message and its body. */
#define JSON "\nContent-Type: application/json\n\n"

struct talking {
    struct serving s;
    struct http_config *config;
    struct http_frontend *frontend;
    uint64_t asked_ns;       /* of a message that waits; 0: none does */
    struct pending *pending; /* of one that waits for a store */
    bool is_urgent;
    const char *peer;
    char answer[ANSWER_MAX];
};

static inline void talk_at(struct talking *talking, const char *yaml,
                           const struct http_config_options *config, struct access_now *access)
{
    struct stint_error error;
    memset(talking, 0, sizeof(*talking));
    serve(&talking->s, yaml);
    if (http_config_new(&talking->config, config, &error) != 0)
        fail_msg("%s", error.message);
    talking->frontend = http_frontend_new(&(struct http_frontend_options){
        .service = talking->s.service, .config = talking->config, .access = access});
    assert_non_null(talking->frontend);
    talking->peer = "127.0.0.1";
}

static inline void talk_no_more(struct talking *talking)
{
    http_frontend_free(talking->frontend);
    http_config_free(talking->config);
    serve_no_more(&talking->s);
}

/* The fields of a message in text: lines "Name: value". */
static inline struct span talking_field(const void *arg, struct span name, size_t nth)
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

static inline void write_answer(struct talking *talking, const struct http_answer *answer)
{
    int len = snprintf(talking->answer, ANSWER_MAX, "%u\n", answer->status);
    for (size_t i = 0; i < answer->n_fields; i++)
        len += snprintf(talking->answer + len, ANSWER_MAX - (size_t)len, "%s: %s\n",
                        answer->fields[i].name, answer->fields[i].value);
    snprintf(talking->answer + len, ANSWER_MAX - (size_t)len, "\n%.*s", (int)answer->body.len,
             (const char *)answer->body.ptr);
}

/* The answer as text, or NULL where it is to be asked again at *again_ns, or has a pending request.
 */
static inline const char *talk_or_wait(struct talking *talking, const char *text,
                                       uint64_t *again_ns)
{
    const char *body = strstr(text, "\n\n");
    size_t method_len = strcspn(text, " "), line_len = strcspn(text, "\n");
    struct http_message message = {
        .method = span_of(text, method_len),
        .target = span_of(text + method_len + 1, line_len - method_len - 1),
        .body = body != NULL && body[2] != '\0' ? span_of_text(body + 2) : (struct span){0},
        .peer = span_of_text(talking->peer),
        .is_urgent = talking->is_urgent,
        .pending = talking->pending,
        .field = talking_field,
        .field_arg = text,
    };
    struct http_answer answer;
    if (talking->asked_ns == 0)
        talking->asked_ns = talking->s.now_ns;
    http_frontend_ask(talking->frontend, &message, talking->asked_ns, talking->s.now_ns, &answer);
    *again_ns = answer.again_at_ns;
    talking->pending = answer.pending;
    if (answer.again_at_ns != 0 || answer.pending != NULL) {
        assert_int_equal(answer.status, 0);
        return NULL;
    }
    talking->asked_ns = 0;
    write_answer(talking, &answer);
    return talking->answer;
}

static inline const char *talk(struct talking *talking, const char *text)
{
    uint64_t again_ns;
    const char *answer = talk_or_wait(talking, text, &again_ns);
    assert_non_null(answer);
    return answer;
}

#define assert_answer(talking, text, expected) assert_string_equal(talk(talking, text), "" expected)

static inline unsigned status_of(struct talking *talking, const char *text)
{
    unsigned status = 0;
    assert_int_equal(sscanf(talk(talking, text), "%u", &status), 1);
    return status;
}

/* Whether the answer has this piece of text in it. */
static inline void assert_says(struct talking *talking, const char *text, const char *piece)
{
    if (strstr(talk(talking, text), piece) == NULL)
        fail_msg("%s\n-- is answered --\n%s\n-- without --\n%s", text, talking->answer, piece);
}

#endif
