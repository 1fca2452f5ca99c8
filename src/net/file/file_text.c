/* SPDX-License-Identifier: MIT */
/* Reads until the end, whatever size the file system reports. */
#define _GNU_SOURCE
#include "net/file/file_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PIPEFS_MAGIC 0x50495045 /* linux/magic.h */

/* An anonymous pipe, made by pipe(): the process that made it has passed it on, so it has a
 * writer. */
static bool is_handed_over(int fd, const struct stat *status)
{
    struct statfs system;
    return S_ISFIFO(status->st_mode) && fstatfs(fd, &system) == 0 &&
           (unsigned long)system.f_type == PIPEFS_MAGIC;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a named pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

int file_open(const char *path, struct stint_error *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_set(error, STINT_E_SYSTEM, "%s: %s%s", path, strerror(errno), err_advice(errno));
    int code = 0;
    if (fstat(fd, &status) != 0)
        code = err_set(error, STINT_E_SYSTEM, "%s: %s%s", path, strerror(errno), err_advice(errno));
    else if (is_handed_over(fd, &status))
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    else if (!S_ISREG(status.st_mode))
        code = err_set(error, STINT_E_SYSTEM, "%s: this is %s; give the path of a regular file",
                       path, kind_of(status.st_mode));
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

int file_check(const char *path, struct stint_error *error)
{
    int fd = file_open(path, error);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

static int read_all(int fd, const char *path, char *text, size_t max, size_t *len,
                    struct stint_error *error)
{
    *len = 0;
    while (*len <= max) {
        ssize_t got = read(fd, text + *len, max + 1 - *len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(error, STINT_E_SYSTEM, "%s: %s%s", path, strerror(errno),
                           err_advice(errno));
        if (got == 0)
            return 0;
        *len += (size_t)got;
    }
    return err_set(error, STINT_E_RANGE, "%s: a file of at most %zu bytes is expected", path, max);
}

int file_text_read(const char *path, size_t max, char **text, struct stint_error *error)
{
    int fd = file_open(path, error);
    if (fd < 0)
        return fd;
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
