/* SPDX-License-Identifier: MIT */
/* What the program tells its user beside its results: one line each, on standard error. */
#ifndef STINT_CMD_SAY_H
#define STINT_CMD_SAY_H

#include "base/err.h"
#include "base/span.h"

#include <stdio.h>

/* Prints "stint: …\n". Control bytes, which may come out of a log, are shown as `?`. */
void say(const char *format, ...) ERR_PRINTF(1, 2);

/* Shows control bytes as `?` in a text that somebody else wrote, and that is to be printed. */
void say_plainly(char *text);

/* Prints the bytes of a key on one line: control bytes as \xHH. */
void say_key(FILE *out, struct span key);

#endif
