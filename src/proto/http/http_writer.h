/* SPDX-License-Identifier: MIT */
/* An answer as the bytes of HTTP/1.1. */
#ifndef STINT_PROTO_HTTP_HTTP_WRITER_H
#define STINT_PROTO_HTTP_HTTP_WRITER_H

#include "base/byte_queue.h"
#include "proto/http/http_message.h"

/* The parameters of an answer beside itself. */
struct http_framing {
    const char *date;      /* in the format of RFC 9110. NULL: none is sent */
    bool is_head;          /* the request was HEAD: no body follows */
    bool ends_connection;  /* Connection: close */
    bool names_keep_alive; /* an HTTP/1.0 client requested it */
};

/* False: no memory, and nothing was written. */
bool http_writer_answer(struct byte_queue *out, const struct http_answer *answer,
                        const struct http_framing *framing);
bool http_writer_continue(struct byte_queue *out); /* 100 Continue */

#endif
