/* SPDX-License-Identifier: MIT */
/*
 * JSON of RFC 8259 from unauthenticated clients, into a row of nodes without memory of their own,
 * and typed reading of them: each fault says at which place what was expected. A whole number is
 * one in any spelling, 1.0 and 1e0 too; otherwise nothing is converted: "5" is no number.
 */
#ifndef STINT_PROTO_HTTP_HTTP_JSON_H
#define STINT_PROTO_HTTP_HTTP_JSON_H

#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

#define HTTP_JSON_DEPTH_MAX 16   /* objects and arrays within one another */
#define HTTP_JSON_NODES_MAX 8192 /* values and names of members; a request of 32 * 32 has 5,200 */

enum http_json_kind {
    HTTP_JSON_OBJECT, /* count: members; each is a string node, its name, and its value behind */
    HTTP_JSON_ARRAY,  /* count: elements */
    HTTP_JSON_STRING, /* text, count: its bytes, escapes followed */
    HTTP_JSON_INTEGER,
    HTTP_JSON_REAL, /* not whole, or with an exponent beyond 64 bits */
    HTTP_JSON_TRUE,
    HTTP_JSON_FALSE,
    HTTP_JSON_NULL,
};

/* What an object or array holds stands behind its node; `skip` nodes on is what comes after it. */
struct http_json_node {
    union {
        const uint8_t *text;
        int64_t integer;
    };
    uint32_t count;
    uint16_t skip;
    uint8_t kind; /* enum http_json_kind */
};

struct http_json {
    size_t n_nodes;
    uint8_t *space; /* strings that had escapes; grows to the size of the longest document */
    size_t space_size, space_len;
    struct http_json_node nodes[HTTP_JSON_NODES_MAX];
};

void http_json_deinit(struct http_json *json); /* zeroed is empty */

/*
 * The object that the bytes are is nodes[0]; it points into them. STINT_E_SYNTAX for anything else,
 * with line and column: no object, text that is not UTF-8, integers beyond 64 bits, too much depth.
 */
int http_json_parse(struct http_json *json, struct span bytes, struct stint_error *error);

/* The whole number that a text is as JSON spells numbers, as proto3 has them in strings. */
bool http_json_number(struct span text, int64_t *number);

/* The first node in an object or array that is not empty, and the one after a node's own. */
static inline const struct http_json_node *http_json_first(const struct http_json_node *node)
{
    return node + 1;
}

static inline const struct http_json_node *http_json_after(const struct http_json_node *node)
{
    return node + node->skip;
}

/* A place in a document, for faults: "descriptors[0].entries[2].value". */
struct http_place {
    const struct http_place *in; /* NULL: the document */
    const char *name;            /* NULL: an element of an array */
    size_t index;
};

/* Sets the message "PLACE: expected …, not a number" and returns STINT_E_SYNTAX. */
int http_json_expected(const struct http_place *place, const char *what,
                       const struct http_json_node *found, struct stint_error *error);
/* The same with a message of its own: "PLACE: SENTENCE". */
int http_json_fault(const struct http_place *place, const char *message, struct stint_error *error);

/* 0 or a negative code. What a span points to lives as long as the document. */
int http_json_text(const struct http_json_node *value, const struct http_place *place,
                   struct span *text, struct stint_error *error);
int http_json_u32(const struct http_json_node *value, const struct http_place *place,
                  uint32_t *number, struct stint_error *error);
/* A whole number of milliseconds, at most `most_ms`. */
int http_json_ms(const struct http_json_node *value, const struct http_place *place,
                 uint64_t most_ms, uint64_t *ns, struct stint_error *error);
int http_json_bool(const struct http_json_node *value, const struct http_place *place, bool *yes,
                   struct stint_error *error);
/* An array of 1 to `most` elements; `what` names them for the fault. */
int http_json_array(const struct http_json_node *value, const struct http_place *place, size_t most,
                    const char *what, struct stint_error *error);
/* The `at` of a reply, a string of digits: it does not fit the numbers of JavaScript. */
int http_json_stamp(const struct http_json_node *value, const struct http_place *place,
                    uint64_t most_ns, uint64_t *at_ns, struct stint_error *error);

/* A member that is known: read() gets its value; `state` is what http_json_members() was given. */
struct http_member {
    const char *name;
    const char *other_name; /* NULL: none */
    int (*read)(void *state, const struct http_json_node *value, const struct http_place *place,
                struct stint_error *error);
};

/*
 * Reads each member of an object by its row in the table; `allowed` has a bit for each row that may
 * come (1 << its index). Others are refused by name, and so is one that comes twice. *seen gets the
 * bits of those that came.
 */
int http_json_members(const struct http_json_node *object, const struct http_place *place,
                      const struct http_member *members, size_t n_members, uint32_t allowed,
                      uint32_t *seen, void *state, struct stint_error *error);

#endif
