/* SPDX-License-Identifier: MIT */
/*
 * JSON of RFC 8259 from untrusted clients, into an array of nodes without memory of their own, and
 * typed reading of them: each error has the position and what was expected there. A whole number
 * may have any spelling, 1.0 and 1e0 too; otherwise nothing is converted: "5" is not a number.
 */
#ifndef STINT_PROTO_HTTP_HTTP_JSON_H
#define STINT_PROTO_HTTP_HTTP_JSON_H

#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

#define HTTP_JSON_DEPTH_MAX 16   /* nesting of objects and arrays */
#define HTTP_JSON_NODES_MAX 8192 /* values and names of members; a request of 32 * 32 has 5,200 */

enum http_json_kind {
    HTTP_JSON_OBJECT, /* count: members; each is a string node, its name, followed by its value */
    HTTP_JSON_ARRAY,  /* count: elements */
    HTTP_JSON_STRING, /* text, count: its bytes, without escapes */
    HTTP_JSON_INTEGER,
    HTTP_JSON_REAL, /* not whole, or with an exponent beyond 64 bits */
    HTTP_JSON_TRUE,
    HTTP_JSON_FALSE,
    HTTP_JSON_NULL,
};

/* The content of an object or array follows its node; the next value is `skip` nodes further. */
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
 * Parses the bytes as an object, nodes[0], which points into them. STINT_E_SYNTAX with line and
 * column for anything else: no object, text that is not UTF-8, integers beyond 64 bits, too much
 * depth.
 */
int http_json_parse(struct http_json *json, struct span bytes, struct stint_error *error);

/* Reads a whole number in JSON notation from a text, as proto3 allows in strings. */
bool http_json_number(struct span text, int64_t *number);

/* The first node in an object or array that is not empty, and the node after another. */
static inline const struct http_json_node *http_json_first(const struct http_json_node *node)
{
    return node + 1;
}

static inline const struct http_json_node *http_json_after(const struct http_json_node *node)
{
    return node + node->skip;
}

/* A position in a document, for error messages: "descriptors[0].entries[2].value". */
struct http_place {
    const struct http_place *in; /* NULL: the document */
    const char *name;            /* NULL: an element of an array */
    size_t index;
};

/* Sets the message "POSITION: expected …, not a number" and returns STINT_E_SYNTAX. */
int http_json_expected(const struct http_place *place, const char *what,
                       const struct http_json_node *found, struct stint_error *error);
/* The same with another message: "POSITION: MESSAGE". */
int http_json_fault(const struct http_place *place, const char *message, struct stint_error *error);

/* 0 or a negative code. Spans are valid as long as the document. */
int http_json_text(const struct http_json_node *value, const struct http_place *place,
                   struct span *text, struct stint_error *error);
int http_json_u32(const struct http_json_node *value, const struct http_place *place,
                  uint32_t *number, struct stint_error *error);
/* A whole number of milliseconds, at most `most_ms`. */
int http_json_ms(const struct http_json_node *value, const struct http_place *place,
                 uint64_t most_ms, uint64_t *ns, struct stint_error *error);
int http_json_bool(const struct http_json_node *value, const struct http_place *place, bool *yes,
                   struct stint_error *error);
/* An array of 1 to `most` elements; `what` names them in the error message. */
int http_json_array(const struct http_json_node *value, const struct http_place *place, size_t most,
                    const char *what, struct stint_error *error);
/* The `at` of a reply, a string of digits: the numbers of JavaScript are too small for it. */
int http_json_stamp(const struct http_json_node *value, const struct http_place *place,
                    uint64_t most_ns, uint64_t *at_ns, struct stint_error *error);

/* A known member: read() gets its value, and what is `at` bytes into the reader's state. */
struct http_member {
    const char *name;
    const char *other_name; /* NULL: none */
    int (*read)(void *to, const struct http_json_node *value, const struct http_place *place,
                struct stint_error *error);
    size_t at;
};

/* As read(), into a struct span, a uint32_t, a bool. */
int http_json_text_member(void *text, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error);
int http_json_u32_member(void *number, const struct http_json_node *value,
                         const struct http_place *place, struct stint_error *error);
int http_json_bool_member(void *yes, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error);

/*
 * Reads each member of an object by its row in the table; `allowed` has a bit for each row that is
 * allowed (1 << its index). Other members are rejected by name, and so are duplicates. *seen gets
 * the bits of the members that were read.
 */
int http_json_members(const struct http_json_node *object, const struct http_place *place,
                      const struct http_member *members, size_t n_members, uint32_t allowed,
                      uint32_t *seen, void *state, struct stint_error *error);
/* An error where `missing` has a bit; it names the first of these rows. */
int http_json_require(const struct http_member *members, uint32_t missing,
                      struct stint_error *error);

#endif
