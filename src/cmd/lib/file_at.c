/* SPDX-License-Identifier: MIT */
/* Files without a name, and reads and writes: a call may move less, or be interrupted. */
#define _GNU_SOURCE /* pread, pwrite, mkostemp */
#include "cmd/lib/file_at.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *folder_temporary(const char *usual)
{
    const char *path = getenv("TMPDIR");
    return path != NULL && path[0] != '\0' ? path : usual;
}

int file_unnamed(const char *usual)
{
    char path[4096];
    int len = snprintf(path, sizeof(path), "%s/stint-XXXXXX", folder_temporary(usual));
    int fd = len < (int)sizeof(path) ? mkostemp(path, O_CLOEXEC) : -1;
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* Whether there is more to move: counts what a call has moved. */
static bool count(ssize_t moved, size_t *done)
{
    if (moved == 0)
        errno = EIO;
    *done += moved > 0 ? (size_t)moved : 0;
    return moved > 0 || (moved < 0 && errno == EINTR);
}

bool file_read_at(int fd, void *bytes, size_t size, off_t at)
{
    for (size_t done = 0; done < size;)
        if (!count(pread(fd, (char *)bytes + done, size - done, at + (off_t)done), &done))
            return false;
    return true;
}

bool file_write_at(int fd, const void *bytes, size_t size, off_t at)
{
    for (size_t done = 0; done < size;)
        if (!count(pwrite(fd, (const char *)bytes + done, size - done, at + (off_t)done), &done))
            return false;
    return true;
}
