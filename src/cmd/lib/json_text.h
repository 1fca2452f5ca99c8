/* SPDX-License-Identifier: MIT */
/* The few JSON values that jansson does not make by itself. */
#ifndef STINT_CMD_LIB_JSON_TEXT_H
#define STINT_CMD_LIB_JSON_TEXT_H

#include "base/span.h"

#include <jansson.h>
#include <stdbool.h>

/* A key in text; bytes that are not UTF-8 become U+FFFD, as JSON has no others. */
json_t *json_text_key(struct span key);

/* A number; null for STINT_NEVER_NS and whatever else JSON's integers cannot hold. */
json_t *json_text_ns(uint64_t ns);

/*
 * Prints the object on a line of its own (pretty: over several) and frees it. 0, or -1 where it is
 * NULL or memory does not suffice, which is said, or where standard output takes no more.
 */
int json_text_print(json_t *object, bool pretty);

#endif
