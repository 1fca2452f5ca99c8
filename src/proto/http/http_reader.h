/* SPDX-License-Identifier: MIT */
/*
 * HTTP/1.0 and 1.1 requests from bytes in pieces of any size. llhttp parses the grammar; a separate
 * scan of line ends finds the end of the head, and rejects everything that RFC 9112 lets a
 * recipient tolerate: differences in tolerance enable request smuggling.
 */
#ifndef STINT_PROTO_HTTP_HTTP_READER_H
#define STINT_PROTO_HTTP_HTTP_READER_H

#include "base/byte_queue.h"
#include "proto/http/http_message.h"

#include <llhttp/llhttp.h>

/* A request that is being read, or was read. Zeroed it is empty; reused. */
struct http_request {
    struct http_request *next; /* for the owner */
    struct byte_queue text;    /* the target, then each field, then the body */
    uint32_t target_len, body_at;
    uint64_t name_bits;     /* of its fields */
    uint64_t repeated_bits; /* of those that follow a field with the same bit */
    uint8_t method;         /* llhttp's number */
    uint8_t minor;          /* of HTTP/1.minor */
    bool keeps_alive;
    bool wants_continue; /* Expect: 100-continue, and a body follows */
};

void http_request_deinit(struct http_request *request);
void http_request_clear(struct http_request *request, size_t size_kept);

/* Fills method, target, body, field and field_arg; all borrowed from the request. */
void http_request_message(const struct http_request *request, struct http_message *message);

struct http_reader_limits {
    size_t head_bytes; /* request line and fields, line ends included. Chunk lines, too */
    size_t body_bytes;
};

enum http_event {
    HTTP_EVENT_NONE,    /* all bytes are used, the request is incomplete */
    HTTP_EVENT_HEAD,    /* the head is complete, a body follows: time for 100 Continue */
    HTTP_EVENT_MESSAGE, /* the request is complete */
    HTTP_EVENT_REFUSED, /* status and detail give the reason. Nothing more can be read */
};

struct http_reader {
    llhttp_t parser;
    struct http_request *request; /* set by the owner before a request begins */
    const struct http_reader_limits *limits;
    const char *detail;    /* of a refusal */
    size_t head_bytes;     /* of this request so far; 0: it has not begun */
    ptrdiff_t extra_bytes; /* of chunk lines and trailers */
    uint16_t status;       /* of a refusal; 0: none */
    uint8_t state;
    uint8_t line;       /* of the scan */
    bool has_begun;     /* a line that is not empty has come */
    bool is_field_open; /* the last field's value is incomplete */
    bool is_head_whole, is_whole;
    uint32_t field_at; /* position of the last field */
    uint32_t line_len; /* of the request line, with its end */
};

void http_reader_init(struct http_reader *reader, const struct http_reader_limits *limits);

/*
 * Reads up to the next event; *used bytes are consumed. Needs a request. After HTTP_EVENT_MESSAGE
 * the next call begins another.
 */
enum http_event http_reader_read(struct http_reader *reader, struct span bytes, size_t *used);

/* Whether a request is incomplete. Empty lines before it do not count. */
bool http_reader_is_within(const struct http_reader *reader);

#endif
