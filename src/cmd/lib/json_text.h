/* SPDX-License-Identifier: MIT */
/* JSON values that jansson does not create directly. */
#ifndef STINT_CMD_LIB_JSON_TEXT_H
#define STINT_CMD_LIB_JSON_TEXT_H

#include "base/span.h"

#include <jansson.h>
#include <stdbool.h>

/* A key as text; bytes that are not UTF-8 become U+FFFD, as JSON has no others. */
json_t *json_text_key(struct span key);

/* A number; null for STINT_NEVER_NS and everything else that JSON's integers cannot hold. */
json_t *json_text_ns(uint64_t ns);

/*
 * Prints the object on one line (pretty: on several) and frees it. 0, or -1 if it is NULL or there
 * is no memory, which is reported, or if standard output cannot be written.
 */
int json_text_print(json_t *object, bool pretty);

#endif
