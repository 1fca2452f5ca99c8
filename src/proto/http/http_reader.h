/* SPDX-License-Identifier: MIT */
/*
 * HTTP/1.0 and 1.1 requests from bytes that come in pieces of any size. llhttp reads the grammar; a
 * scan of line ends beside it finds where a head ends, and refuses what RFC 9112 lets a recipient
 * forgive: what one recipient forgives and another does not is how requests are smuggled.
 */
#ifndef STINT_PROTO_HTTP_HTTP_READER_H
#define STINT_PROTO_HTTP_HTTP_READER_H

#include "base/byte_queue.h"
#include "proto/http/http_message.h"

#include <llhttp/llhttp.h>

/* A request that is read, or was. Zeroed it is empty; used for one request after another. */
struct http_request {
    struct http_request *next; /* the owner's */
    struct byte_queue text;    /* the target, then each field, then the body */
    uint32_t target_len, body_at;
    uint64_t name_bits; /* of its fields */
    uint8_t method;     /* llhttp's number */
    uint8_t minor;      /* of HTTP/1.minor */
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
    HTTP_EVENT_NONE,    /* all bytes are used, the request is not whole */
    HTTP_EVENT_HEAD,    /* the head is whole, a body follows: the instant for 100 Continue */
    HTTP_EVENT_MESSAGE, /* the request is whole */
    HTTP_EVENT_REFUSED, /* status and detail say why. Nothing more can be read */
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
    bool is_field_open; /* the last field's value is not whole */
    bool is_head_whole, is_whole;
    uint32_t field_at; /* where the last field stands */
};

void http_reader_init(struct http_reader *reader, const struct http_reader_limits *limits);

/*
 * Reads up to the next event; *used bytes are consumed. Needs a request. After HTTP_EVENT_MESSAGE
 * the next call begins another.
 */
enum http_event http_reader_read(struct http_reader *reader, struct span bytes, size_t *used);

/* Whether a request has begun and is not whole. Empty lines before it do not count. */
bool http_reader_is_within(const struct http_reader *reader);

#endif
