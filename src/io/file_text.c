/* SPDX-License-Identifier: MIT */
/* Reads until the end, whatever size the file system tells. */
#define _GNU_SOURCE
#include "io/file_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_all(int fd, const char *path, char *text, size_t max, size_t *len,
                    struct stint_error *error)
{
    *len = 0;
    while (*len <= max) {
        ssize_t got = read(fd, text + *len, max + 1 - *len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(error, STINT_E_SYSTEM, "%s: %s", path, strerror(errno));
        if (got == 0)
            return 0;
        *len += (size_t)got;
    }
    return err_set(error, STINT_E_RANGE, "%s: a file of at most %zu bytes is expected", path, max);
}

int file_text_read(const char *path, size_t max, char **text, struct stint_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(error, STINT_E_SYSTEM, "%s: %s", path, strerror(errno));
    char *all = malloc(max + 2);
    if (all == NULL) {
        close(fd);
        return err_set(error, STINT_E_SYSTEM, "%s: no memory to read it", path);
    }
    size_t len = 0;
    int code = read_all(fd, path, all, max, &len, error);
    close(fd);
    if (code == 0 && memchr(all, '\0', len) != NULL)
        code = err_set(error, STINT_E_SYNTAX, "%s: there is a zero byte in it", path);
    if (code != 0) {
        free(all);
        return code;
    }
    all[len] = '\0';
    char *fitting = realloc(all, len + 1);
    if (fitting != NULL)
        all = fitting;
    *text = all;
    return 0;
}

void file_folder(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    int len = slash == path ? 1 : slash != NULL ? (int)(slash - path) : 0;
    snprintf(folder, size, "%.*s", len > 0 ? len : 1, len > 0 ? path : ".");
}
