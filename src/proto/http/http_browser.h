/* SPDX-License-Identifier: MIT */
/*
 * Requests that a web page makes through its reader's browser, which may reach where the page's
 * author cannot. A browser says which origin a request comes from (Origin, Sec-Fetch-Site), and a
 * page cannot write these fields, nor Host. It can point its own name at another address (DNS
 * rebinding): then page and server are one origin, and only Host shows the name.
 */
#ifndef STINT_PROTO_HTTP_HTTP_BROWSER_H
#define STINT_PROTO_HTTP_HTTP_BROWSER_H

#include "base/err.h"
#include "proto/http/http_message.h"
#include "proto/http/http_origin.h"

/*
 * The host and port that a request was sent to: the authority of its target, or else Host. Empty:
 * it names none, as HTTP/1.0 may; browsers always do.
 */
struct span http_browser_host(const struct http_message *message);

/*
 * Whether a page of another origin than the request's host has made it: a sibling of the same site
 * and the origin "null" are others, too. False where no browser says so.
 */
bool http_browser_is_foreign(const struct http_message *message);

/*
 * Whether the request has a field that proxies add for the client they speak for. A page of another
 * origin cannot: fields that are not safelisted need a preflight, and no preflight is granted.
 */
bool http_browser_is_forwarded(const struct http_message *message,
                               const struct http_origin_fields *fields);

#define HTTP_HOSTS_MAX 64

struct http_hosts; /* names of hosts; never changed */

/* "stint", "stint.example.com", "*.example.com" (all below it), "*" (any). STINT_E_SYNTAX, _RANGE
 */
int http_hosts_new(struct http_hosts **hosts, const char *const *texts, size_t n_texts,
                   struct stint_error *error);
void http_hosts_free(struct http_hosts *hosts); /* NULL is fine */

/*
 * Whether a host (with or without a port) is one that no DNS answer can turn into another address:
 * an IP address, localhost and names below it, and the names that were given.
 */
bool http_hosts_have(const struct http_hosts *hosts, struct span host);

#endif
