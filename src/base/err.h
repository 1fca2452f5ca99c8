/* SPDX-License-Identifier: MIT */
/*
 * Errors.
 *
 * A function that can fail returns 0 or a negative enum stint_code and fills a struct stint_error
 * with one message: what was wrong, where, what was expected. The caller forwards both unchanged.
 * Parsers return > 0 for bytes consumed, 0 for "more is needed", < 0 for a code. Denied, full and
 * gone are normal results and are values, not errors. A state that only a bug in this code can
 * cause is an assert.
 */
#ifndef STINT_BASE_ERR_H
#define STINT_BASE_ERR_H

#include "stint.h"

#if defined(__GNUC__)
#define ERR_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define ERR_PRINTF(format_at, args_at)
#endif

/* Fills *error (which may be NULL) and returns code. A message too long is cut, never overrun. */
int err_set(struct stint_error *error, int code, const char *format, ...) ERR_PRINTF(3, 4);

#define ERR_PATH_MAX 100 /* bytes of a path in a message: the reason must follow */

/* A path for a message: if it is long, its end after "...". */
struct err_path {
    char text[ERR_PATH_MAX + 1];
};
struct err_path err_path(const char *path);

/*
 * What to do about an errno of a file or folder, to follow its strerror(): "; check the path and
 * its folder", a static text. "" if nothing is known.
 */
const char *err_advice(int reason);

/* From now on a lack of permission may be due to the sandbox. While there is one thread. */
void err_in_sandbox(void);

#endif
