/* SPDX-License-Identifier: MIT */
/*
 * The client of a request. A proxy sends a request on behalf of a client, and describes the
 * client's request in fields that any sender can write. They are trusted only if the address of the
 * socket's peer is, and so are only those addresses that a trusted host has added.
 */
#ifndef STINT_PROTO_HTTP_HTTP_ORIGIN_H
#define STINT_PROTO_HTTP_HTTP_ORIGIN_H

#include "base/err.h"
#include "proto/http/http_message.h"

#define HTTP_PROXIES_MAX 64 /* trusted networks */

struct http_proxies; /* trusted networks; immutable */

/* Texts "10.0.0.0/8", "2001:db8::/32", "192.0.2.1", and "unix" for Unix sockets. */
int http_proxies_new(struct http_proxies **proxies, const char *const *texts, size_t n_texts,
                     struct stint_error *error);
void http_proxies_free(struct http_proxies *proxies); /* NULL is allowed */
/* An address as text, maybe with a port or brackets; empty: a Unix socket. */
bool http_proxies_trust(const struct http_proxies *proxies, struct span address);

/*
 * The fields to read. NULL: any of the usual names. Two of those in one request are rejected: a
 * proxy writes one, and passes on the other from its client. So behind a proxy that does not remove
 * the others, the field must be configured by name.
 */
struct http_origin_fields {
    const char *address; /* NULL: X-Forwarded-For or Forwarded */
    const char *uri;     /* NULL: X-Original-URI (nginx) or X-Forwarded-Uri (Traefik, Caddy) */
    const char *method;  /* NULL: X-Original-Method or X-Forwarded-Method */
};

/* The request that /auth decides about. Borrowed from the message. */
struct http_origin {
    bool is_forwarded;   /* from a trusted proxy */
    struct span address; /* of the client, as in the field; empty: a Unix socket */
    struct span method;
    struct span target;
};

/* STINT_E_MISMATCH, with a message, for a request with contradictory fields. */
int http_origin_find(struct http_origin *origin, const struct http_proxies *proxies,
                     const struct http_origin_fields *fields, const struct http_message *message,
                     struct stint_error *error);

#endif
