/* SPDX-License-Identifier: MIT */
/*
 * Requests that a web page sends through a user's browser, which may reach networks that the page's
 * author cannot. A browser gives the origin of a request (Origin, Sec-Fetch-Site), and a page
 * cannot write these fields, nor Host. It can point its own name at another address (DNS
 * rebinding): then page and server have the same origin, and only Host shows the name.
 */
#ifndef STINT_PROTO_HTTP_HTTP_BROWSER_H
#define STINT_PROTO_HTTP_HTTP_BROWSER_H

#include "base/err.h"
#include "proto/http/http_message.h"
#include "proto/http/http_origin.h"

/*
 * The host and port that a request was sent to: the authority of its target, otherwise Host. Empty:
 * there is none, which HTTP/1.0 permits; browsers always send one.
 */
struct span http_browser_host(const struct http_message *message);

/*
 * Whether a page of another origin than the request's host has made it. Another origin of the same
 * site and the origin "null" count as well. False where no browser reports an origin.
 */
bool http_browser_is_foreign(const struct http_message *message);

/*
 * Whether the request has a field that proxies add for their client. A page of another origin
 * cannot add one: fields that are not safelisted need a preflight, and no preflight is granted.
 */
bool http_browser_is_forwarded(const struct http_message *message,
                               const struct http_origin_fields *fields);

#define HTTP_HOSTS_MAX 64

/* "stint", "stint.example.com", "*.example.com" (all below it), "*" (any). STINT_E_SYNTAX, _RANGE
 */
int http_hosts_check(const char *const *names, size_t n_names, struct stint_error *error);

/*
 * Whether no DNS answer can turn a host (with or without a port) into another address: an IP
 * address, localhost and names below it, and the given names.
 */
bool http_hosts_have(const char *const *names, size_t n_names, struct span host);

#endif
