/* SPDX-License-Identifier: MIT */
/* A call may move less than it was asked to, or be interrupted. */
#define _GNU_SOURCE /* pread, pwrite */
#include "cmd/lib/file_at.h"

#include <errno.h>
#include <unistd.h>

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
