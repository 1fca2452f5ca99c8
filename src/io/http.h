/* SPDX-License-Identifier: MIT */
/*
 * HTTP in a worker's loop: libmicrohttpd reads requests and sends answers, conn/http.h answers.
 *
 * One `struct http` serves the connections that a worker hands over to it; who listens, accepts and
 * counts connections (in all, and by address) is the worker. A worker may have several: one plain
 * and one with TLS, or one with new certificates while the one with the old ones drains. All calls
 * are for the thread of the loop.
 */
#ifndef STINT_IO_HTTP_H
#define STINT_IO_HTTP_H

#include "conn/http.h"

#include <sys/socket.h>
#include <uv.h>

/* Zero is the default. */
struct http_limits {
    size_t connections; /* of this `struct http`; one more is closed. Default 16,384 */
    /*
     * Of a request's line and fields, else 431. A connection costs as much memory, and 2 KiB for
     * the fields of its answer, which libmicrohttpd zeroes with each request. Default 6,144, at
     * least 2,048.
     */
    size_t header_bytes;
    size_t body_bytes;   /* else 413. Default 262,144: a key may have 64 KiB, escaped */
    uint64_t idle_ns;    /* from one answer to the end of the next request's fields. Default 75 s */
    uint64_t request_ns; /* from a request's line to the end of its body. Default 10 s */
    uint64_t answer_ns;  /* until the client has read its answer. Default 30 s */
};

/* PEM as text, kept as long as the `struct http`. */
struct http_tls {
    const char *certificate, *key;
    const char *client_ca;  /* a certificate signed by it is demanded. NULL: none is asked for */
    const char *priorities; /* as GnuTLS has them. NULL: "NORMAL" without TLS 1.0 and 1.1 */
};

struct http_options {
    struct http_door_options door; /* what answers */
    struct http_limits limits;
    const struct http_tls *tls;                   /* NULL: none */
    void (*closed)(void *arg, void *owner_of_fd); /* a connection that was handed over has ended */
    void *closed_arg;
};

struct http;

int http_open(struct http **http, uv_loop_t *loop, const struct http_options *options,
              struct stint_error *error);

/*
 * Hands an accepted socket over, which is closed here whatever comes of it. Returns 0, and later
 * calls closed(owner) once; or a negative code, and never calls it.
 */
int http_adopt(struct http *http, int fd, const struct sockaddr *peer, socklen_t peer_len,
               void *owner);

/* Open connections, idle ones too. */
size_t http_connections(const struct http *http);

/* Ends each connection with its next answer: idle ones are left alone, others may accept now. */
void http_linger(struct http *http);
/* Ends idle connections at once and the others after their answer; adopts no more. */
void http_drain(struct http *http);

/* Ends all connections now; `closed` (may be NULL) is called from the loop when all is freed. */
void http_close(struct http *http, void (*closed)(void *arg), void *arg);

#endif
