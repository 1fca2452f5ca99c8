/* SPDX-License-Identifier: MIT */
/* Codes and their names; the message is written where the error is found. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

int err_set(struct stint_error *error, int code, const char *format, ...)
{
    if (error == NULL)
        return code;
    va_list args;
    va_start(args, format);
    error->code = code;
    vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
    return code;
}

const char *stint_code_name(int code)
{
    switch (code) {
#define ERR_CASE(value, name)                                                                      \
    case value:                                                                                    \
        return name;
        ERR_CODES(ERR_CASE)
#undef ERR_CASE
    default:
        return "UNKNOWN";
    }
}

const char *stint_version(void)
{
    return STINT_VERSION;
}
