/* SPDX-License-Identifier: MIT */
/*
 * Typed reading of JSON from strangers: each fault says at which place what was expected.
 * Nothing is converted: a number with a fraction is no whole number, "5" is no number.
 */
#ifndef STINT_PROTO_HTTP_JSON_H
#define STINT_PROTO_HTTP_JSON_H

#include "base/err.h"
#include "base/span.h"

#include <jansson.h>
#include <stdbool.h>

#define HTTP_JSON_DEPTH_MAX 16 /* objects and arrays within one another */

/*
 * The object that the bytes are, to be given to json_decref(), or NULL. Refused are: what is no
 * object, a name that comes twice, numbers beyond 64 bits, text that is not UTF-8, too much depth.
 */
json_t *http_json_object(struct span bytes, struct stint_error *error);

/* A place in a document, for faults: "descriptors[0].entries[2].value". */
struct http_place {
    const struct http_place *in; /* NULL: the document */
    const char *name;            /* NULL: an element of an array */
    size_t index;
};

/* Sets the sentence "PLACE: expected …, not a number" and returns STINT_E_SYNTAX. */
int http_json_expected(const struct http_place *place, const char *what, const json_t *found,
                       struct stint_error *error);
/* The same with a sentence of its own: "PLACE: SENTENCE". */
int http_json_fault(const struct http_place *place, const char *sentence,
                    struct stint_error *error);

/* 0 or a negative code. What a span points to lives as long as the value. */
int http_json_text(const json_t *value, const struct http_place *place, struct span *text,
                   struct stint_error *error);
int http_json_u32(const json_t *value, const struct http_place *place, uint32_t *number,
                  struct stint_error *error);
/* A whole number of milliseconds, at most `most_ms`. */
int http_json_ms(const json_t *value, const struct http_place *place, uint64_t most_ms,
                 uint64_t *ns, struct stint_error *error);
int http_json_bool(const json_t *value, const struct http_place *place, bool *yes,
                   struct stint_error *error);

/* The `at` of a reply, a string of digits: it does not fit the numbers of JavaScript. */
int http_json_stamp(const json_t *value, const struct http_place *place, uint64_t *at_ns,
                    struct stint_error *error);

/* A member that is known: read() gets its value; `state` is what http_json_members() was given. */
struct http_member {
    const char *name;
    const char *other_name; /* NULL: none */
    int (*read)(void *state, const json_t *value, const struct http_place *place,
                struct stint_error *error);
};

/*
 * Reads each member of an object by its row in the table; `allowed` has a bit for each row that may
 * come (1 << its index). Others are refused by name. *seen gets the bits of those that came.
 */
int http_json_members(const json_t *object, const struct http_place *place,
                      const struct http_member *members, size_t n_members, uint32_t allowed,
                      uint32_t *seen, void *state, struct stint_error *error);

#endif
