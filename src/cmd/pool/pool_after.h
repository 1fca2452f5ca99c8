/* SPDX-License-Identifier: MIT */
/* Reads Retry-After: seconds, or a date in any of the forms of RFC 9110. */
#ifndef STINT_CMD_POOL_POOL_AFTER_H
#define STINT_CMD_POOL_POOL_AFTER_H

#include "base/err.h"

/* `wall_ns` is the time since 1970. A date in the past gives 0. */
int pool_after_read(const char *text, int64_t wall_ns, uint64_t *after_ns,
                    struct stint_error *error);

#endif
