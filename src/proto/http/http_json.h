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
#include <stdlib.h>

#define HTTP_JSON_DEPTH_MAX 16   /* nesting of objects and arrays */
#define HTTP_JSON_NODES_MAX 8192 /* values and names of members; a request of 32 * 32 has 5,200 */

enum http_json_kind {
    HTTP_JSON_OBJECT, /* count: members; each is a string node, its name, followed by its value */
    HTTP_JSON_ARRAY,  /* count: elements */
    HTTP_JSON_STRING, /* text, count: its bytes, without escapes */
    HTTP_JSON_INTEGER,
    HTTP_JSON_REAL, /* not whole, or beyond 64 bits; text, count: as it is written */
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

/* Zeroed is empty. */
static inline void http_json_deinit(struct http_json *json)
{
    free(json->space);
    json->space = NULL;
    json->space_size = 0;
}

/*
 * Parses the bytes as an object, nodes[0], which points into them. STINT_E_SYNTAX with line and
 * column for anything else: no object, text that is not UTF-8, too much depth.
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

/* ---- Typed reading --------------------------------------------------------------------------- */

/* A value, its position for error messages ("descriptors[0].entries[2].value"), and its reader. */
struct http_value {
    const struct http_json_node *node;
    const struct http_value *in;      /* NULL: this is the document */
    const struct http_member *member; /* NULL: an element of an array */
    size_t index;
    void *state; /* what the document is read into */
    /* proto3's JSON: null is the same as an absent member, and a string may contain a number. */
    bool is_proto3;
    struct stint_error *error;
};

/* 0 or a negative code. *to has the type that the function reads. */
typedef int http_json_reader(void *to, const struct http_value *value);

/* A known member: read() gets its value, and what is `at` bytes into what the object is read into.
 */
struct http_member {
    const char *name;
    const char *other_name; /* NULL: none */
    http_json_reader *read;
    size_t at;
    uint64_t most;        /* for the reader: of bytes, of milliseconds or of a stamp */
    const char *expected; /* message of the reader; NULL: its own */
};

/* An object: each of these has a bit for each row that is allowed or required (1 << its index). */
struct http_object {
    const struct http_member *members;
    size_t n_members;
    uint32_t allowed, required;
    bool is_proto3; /* of the document */
};

/* Sets the message "POSITION: expected …, not a number" and returns STINT_E_SYNTAX. */
int http_json_expected(const struct http_value *value, const char *what);
/* The same with another message: "POSITION: MESSAGE". */
int http_json_fault(const struct http_value *value, const char *message);

/*
 * Reads each member by its row. Other members are rejected by name, and so are duplicates and
 * missing ones. *seen gets the bits of the members that were read. Spans are valid as long as the
 * document.
 */
int http_json_object(const struct http_value *value, const struct http_object *object,
                     uint32_t *seen, void *to);
/* Parses a document and reads it. */
int http_json_read(struct http_json *json, struct span bytes, const struct http_object *object,
                   uint32_t *seen, void *to, struct stint_error *error);
/* An array of 1 to `most` elements of `size` bytes at `to`; `what` names them in the message. */
int http_json_array(const struct http_value *value, size_t most, const char *what,
                    http_json_reader *read, void *to, size_t size);

/* A struct span; with `expected` of 1 to `most` bytes. */
http_json_reader http_json_text;
http_json_reader http_json_u32;
/* A uint64_t of ns: a whole number of milliseconds, at most `most`. */
http_json_reader http_json_ms;
http_json_reader http_json_ms_above_0;
http_json_reader http_json_bool;
/* A uint64_t: the `at` of a reply, a string of digits: numbers of JavaScript are too small for it.
 */
http_json_reader http_json_stamp;

#endif
