/* SPDX-License-Identifier: MIT */
/* The target of a request, "/a/b?c=d": its parts, and one spelling for equivalent paths. */
#ifndef STINT_PROTO_HTTP_HTTP_TARGET_H
#define STINT_PROTO_HTTP_HTTP_TARGET_H

#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>

struct http_target {
    struct span path, query; /* unchanged; query without its '?' */
};

/*
 * Also accepts "http://host/path", which proxies may receive; an empty path is "/". A fragment is
 * left out.
 */
struct http_target http_target_of(struct span target);

/* "host:80" of "http://host:80/path", which replaces Host; NULL ptr: none. */
struct span http_target_authority(struct span target);

/*
 * Writes the path as servers interpret it, so that no other spelling of a path has a limit of its
 * own: %xx becomes its byte (%2F stays: it is no separator; %25 as well, so that no two paths
 * become one), repeated slashes become one, "." and ".." are resolved, the first slash may be
 * missing. `text` has space for path.len + 1 bytes. Returns the length.
 */
size_t http_target_path(struct span path, uint8_t *text);

/* Decodes %xx into `text`, which has space for as much; returns the length. */
size_t http_target_decode(struct span from, uint8_t *text);

/*
 * Takes the next NAME=VALUE off the query. Both are decoded (%xx, '+' for a space) into `text`,
 * which has space for query->len bytes. False at its end; a parameter without a name is skipped.
 */
bool http_target_next(struct span *query, uint8_t *text, struct span *name, struct span *value);

/* The first parameter of that name; `text` as above. */
bool http_target_find(struct span query, const char *wanted, uint8_t *text, struct span *value);

#endif
