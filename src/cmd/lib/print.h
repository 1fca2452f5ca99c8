/* SPDX-License-Identifier: MIT */
/* Messages beside the results: one line each, on standard error. */
#ifndef STINT_CMD_LIB_PRINT_H
#define STINT_CMD_LIB_PRINT_H

#include "base/err.h"
#include "base/span.h"

#include <stdio.h>

/*
 * Prints "stint: …
 *
 * ", as format_text() shows it: a part of it may come out of a log.
 */
void print_message(const char *format, ...) ERR_PRINTF(1, 2);

/* Replaces control characters by `?` in an untrusted text that is to be printed. */
void hide_controls(char *text);

/*
 * An untrusted text, such as a key, for a terminal: on one line, and visible. ASCII controls and
 * bytes that are not UTF-8 become \xHH, and the other characters that utf8_is_hidden() knows \u{H}.
 * Returns `to`, cut before what does not fit.
 */
const char *format_text(char *to, size_t size, struct span text);
void print_escaped(FILE *out, struct span key);

#endif
