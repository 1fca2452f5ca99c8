/* SPDX-License-Identifier: MIT */
/* Codes and their names; the message is written where the error is found. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

struct err_path err_path(const char *path)
{
    struct err_path shown;
    size_t len = strlen(path);
    bool is_long = len > ERR_PATH_MAX;
    snprintf(shown.text, sizeof(shown.text), "%s%s", is_long ? "..." : "",
             is_long ? path + len - (ERR_PATH_MAX - 3) : path);
    return shown;
}

static bool is_in_sandbox;

void err_in_sandbox(void)
{
    is_in_sandbox = true;
}

const char *err_advice(int reason)
{
    switch (reason) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
        return "; check the path and its folder";
    case ENAMETOOLONG:
        return "; choose a shorter name";
    case EACCES:
    case EPERM:
        return is_in_sandbox
                   ? "; the sandbox reads the folders that were there at the start, and none that "
                     "took the place of one: put the files into the old folder, or restart; if it "
                     "is the old folder, use chmod or chown"
                   : "; give this user permission with chmod or chown";
    case EISDIR:
        return "; give the path of a file";
    case EROFS:
    case ENOSPC:
    case EDQUOT:
        return "; choose a folder with space that can be written";
    case EMFILE:
        return "; raise the limit of open files, ulimit -n";
    default:
        return "";
    }
}

const char *stint_code_name(int code)
{
    static const char *const names[] = {
        [-STINT_OK] = "OK",
        [-STINT_E_SYNTAX] = "SYNTAX",
        [-STINT_E_RANGE] = "RANGE",
        [-STINT_E_MISMATCH] = "MISMATCH",
        [-STINT_E_FULL] = "FULL",
        [-STINT_E_GONE] = "GONE",
        [-STINT_E_SYSTEM] = "SYSTEM",
        [-STINT_E_CORRUPT] = "CORRUPT",
        [-STINT_E_VERSION] = "VERSION",
        [-STINT_E_BUSY] = "BUSY",
    };
    int most = (int)(sizeof(names) / sizeof(names[0])) - 1;
    return code <= 0 && code >= -most ? names[-code] : "UNKNOWN";
}

const char *stint_version(void)
{
    return STINT_VERSION;
}
