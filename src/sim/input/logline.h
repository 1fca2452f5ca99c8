/* SPDX-License-Identifier: MIT */
/*
 * Reads a line of an access log in the common or the combined format, as Apache and nginx write
 * them, and makes the key of a key expression:
 *
 *     [VHOST] HOST IDENT USER [17/May/2015:10:05:03 +0000] "METHOD PATH PROTOCOL" STATUS BYTES …
 */
#ifndef STINT_SIM_INPUT_LOGLINE_H
#define STINT_SIM_INPUT_LOGLINE_H

#include "sim/input/event.h"
#include "sim/input/timestamp.h"

enum logline_field {
    LOGLINE_IP,
    LOGLINE_USER,
    LOGLINE_METHOD,
    LOGLINE_PATH, /* without the query string */
    LOGLINE_STATUS,
    LOGLINE_FIELDS,
};

#define LOGLINE_ADDRESS_MAX 46 /* bytes of an address in text, with a terminator */

struct logline {
    uint8_t fields[JOINED_KEY_PARTS_MAX]; /* of the key, in order; enum logline_field */
    uint8_t n_fields;
    uint8_t v6_bits;
    char address[LOGLINE_ADDRESS_MAX];
    struct timestamp_clf_cache date;
    struct joined_key joined;
};

/* The names of the fields, by enum logline_field, and NULL. */

/*
 * `key_expr` is FIELD[+FIELD…]; `ip/BITS` keeps the first BITS bits of IPv6 addresses. IPv4 ones,
 * also when mapped into IPv6, are kept whole. A host that is a name stays a name.
 */
int logline_init(struct logline *logline, const char *key_expr, struct stint_error *error);

/* Returns an enum event_line, or a negative code for a line that is malformed. */
int logline_parse(struct logline *logline, struct event *event, struct span line,
                  struct stint_error *error);

#endif
