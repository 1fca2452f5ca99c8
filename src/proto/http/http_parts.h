/* SPDX-License-Identifier: MIT */
/*
 * How the request that a proxy describes becomes descriptors. Each list makes one descriptor of its
 * parts, in this order, with commas between them:
 *
 *     header:NAME           a field of the request; key NAME in small letters
 *     query:NAME            a parameter of its query; key NAME
 *     path                  the path, in one spelling (http_target_path), without its query
 *     path_prefix:/a        "/a" where the path is /a or below it; key path_prefix
 *     method                as it was sent
 *     address[/V4][/V6]     the client's, its first V4 or V6 bits (32, 128); key remote_address
 *     constant:KEY=VALUE    these words
 *     KEY=PART              any but constant, under another key
 *
 * "address/24,/56" is "address/24/56". A comma in a value follows a backslash. If a part is absent
 * from a request, its descriptor is left out, as Envoy does.
 */
#ifndef STINT_PROTO_HTTP_HTTP_PARTS_H
#define STINT_PROTO_HTTP_HTTP_PARTS_H

#include "proto/http/http_origin.h"
#include "proto/http_text.h"
#include "rules/rules.h"

struct http_parts;

/* STINT_E_SYNTAX or STINT_E_RANGE with a message that names the list and the part. */
int http_parts_new(struct http_parts **parts, const char *const *lists, size_t n_lists,
                   struct stint_error *error);
void http_parts_free(struct http_parts *parts); /* NULL is allowed */

struct http_parts_space {
    struct descriptor *descriptors;   /* DESCRIPTORS_MAX */
    struct descriptor_entry *entries; /* DESCRIPTORS_MAX * ENTRIES_MAX */
    struct http_text *text;           /* for values that are not part of the message */
};

/* The number of descriptors; STINT_E_RANGE where `text` is too small. */
int http_parts_describe(const struct http_parts *parts, const struct http_message *message,
                        const struct http_origin *origin, const struct http_parts_space *space);

#endif
