/* SPDX-License-Identifier: MIT */
/*
 * Replies as one line of text, types included: OK, -ERR why, 5, "bulk", null, [1, 2], {"a": 1},
 * ,1.5 for doubles and =txt:… for verbatim ones. A reader of its own, so that what the server
 * writes is not read by what wrote it.
 */
#ifndef STINT_TESTS_REPLY_TEXT_H
#define STINT_TESTS_REPLY_TEXT_H

#include "base/span.h"

#include <stdio.h>

/* Writes one reply; returns its bytes, 0 if it is not whole, -1 if it is none. */
long reply_text(FILE *out, struct span bytes);

#endif
