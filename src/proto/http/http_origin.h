/* SPDX-License-Identifier: MIT */
/*
 * Whose request is it? A proxy asks on behalf of a client, and tells of the client's request in
 * fields that anybody can write. They are believed where the socket's other end is trusted, and of
 * the addresses that a request went through only those that a trusted one has written.
 */
#ifndef STINT_PROTO_HTTP_HTTP_ORIGIN_H
#define STINT_PROTO_HTTP_HTTP_ORIGIN_H

#include "base/err.h"
#include "proto/http/http_message.h"

#define HTTP_PROXIES_MAX 64 /* networks that are trusted */

struct http_proxies; /* networks that are trusted; never changed */

/* Texts "10.0.0.0/8", "2001:db8::/32", "192.0.2.1", and "unix" for Unix sockets. */
int http_proxies_new(struct http_proxies **proxies, const char *const *texts, size_t n_texts,
                     struct stint_error *error);
void http_proxies_free(struct http_proxies *proxies); /* NULL is fine */
/* An address as text, maybe with a port or brackets; empty: a Unix socket. */
bool http_proxies_trust(const struct http_proxies *proxies, struct span address);

/*
 * Which fields are read. NULL: one of the names that are in use. Two of those in one request are
 * refused, for a proxy writes one, and passes on what its client wrote in the other: so whoever
 * runs behind a proxy that does not clear the others names the one that counts.
 */
struct http_origin_fields {
    const char *address; /* NULL: X-Forwarded-For or Forwarded */
    const char *uri;     /* NULL: X-Original-URI (nginx) or X-Forwarded-Uri (Traefik, Caddy) */
    const char *method;  /* NULL: X-Original-Method or X-Forwarded-Method */
};

/* What /auth is asked about. Borrowed from the message. */
struct http_origin {
    bool is_forwarded;   /* a trusted proxy asks */
    struct span address; /* of the client, as it was written; empty: a Unix socket */
    struct span method;
    struct span target;
};

/* STINT_E_MISMATCH, with a message, for a request that says two things. */
int http_origin_find(struct http_origin *origin, const struct http_proxies *proxies,
                     const struct http_origin_fields *fields, const struct http_message *message,
                     struct stint_error *error);

#endif
