/* SPDX-License-Identifier: MIT */
/* An HTTP request and its answer, without their meaning. */
#ifndef STINT_PROTO_HTTP_HTTP_MESSAGE_H
#define STINT_PROTO_HTTP_HTTP_MESSAGE_H

#include "base/span.h"

#include <stdbool.h>
#include <strings.h>

struct pending; /* decide/pending.h */

/* All borrowed. */
struct http_message {
    struct span method;
    struct span target; /* of the request line, unchanged: path and query */
    struct span body;   /* empty if there was none */
    struct span peer;   /* the address of the socket's other end as text; empty: a Unix socket */
    bool is_urgent;     /* decide now, even if the request allows a wait */
    /* The pending request of a message that waits for a store. The frontend takes it. */
    struct pending *pending;
    uint64_t reload; /* the number of the reload that the message waits for; 0: none yet */
    /*
     * The value of the nth field (from 0) of that name, in any case; an empty span with a NULL ptr
     * if there are not so many.
     */
    struct span (*field)(const void *arg, struct span name, size_t nth);
    const void *field_arg;
};

/* In any case of ASCII letters. */
static inline bool http_is_same(struct span a, struct span b)
{
    return a.len == b.len &&
           (a.len == 0 || strncasecmp((const char *)a.ptr, (const char *)b.ptr, a.len) == 0);
}

static inline struct span http_message_field(const struct http_message *message, const char *name,
                                             size_t nth)
{
    return message->field(message->field_arg, span_of_text(name), nth);
}

#define HTTP_ANSWER_FIELDS_MAX 12

struct http_answer_field {
    const char *name;
    const char *value; /* terminated; no CR, LF or NUL in it */
};

struct http_answer {
    unsigned status;
    bool ends_connection;
    struct span body;
    size_t n_fields; /* including Content-Type; lengths, Date and Connection are not among them */
    struct http_answer_field fields[HTTP_ANSWER_FIELDS_MAX];
    uint64_t again_at_ns; /* not 0: no answer yet; repeat the call at this time of decisions */
    uint64_t look_at_ns;  /* the same at this time of I/O, with message->reload = reload */
    uint64_t reload;
    /* Not NULL: no answer yet; a store request is pending. */
    struct pending *pending;
};

#endif
