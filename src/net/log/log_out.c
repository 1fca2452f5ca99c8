/* SPDX-License-Identifier: MIT */
/*
 * O_NONBLOCK belongs to the open file, which the shell and others share: a pipe or terminal is
 * opened again, and a socket gets a flag with each write. Other descriptors are polled for space.
 */
#define _GNU_SOURCE
#include "net/log/log_out.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define END_MS 1000

void log_out_init(struct log_out *out, int fd)
{
    struct stat status;
    char path[32];
    *out = (struct log_out){.fd = fd};
    if (fstat(fd, &status) != 0)
        return;
    out->is_socket = S_ISSOCK(status.st_mode);
    if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode))
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    out->is_own = own >= 0;
    if (out->is_own)
        out->fd = own;
}

void log_out_wait(const struct log_out *out, int ms)
{
    struct pollfd waiting = {.fd = out->fd, .events = POLLOUT};
    poll(&waiting, 1, ms);
}

static ssize_t write_now(const struct log_out *out, const char *text, size_t len)
{
    if (out->is_socket)
        return send(out->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!out->is_own) {
        struct pollfd asked = {.fd = out->fd, .events = POLLOUT};
        if (poll(&asked, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
    }
    return write(out->fd, text, len);
}

/* How many bytes were written; all of them if the reader is gone. */
static size_t write_some(const struct log_out *out, const char *text, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t written = write_now(out, text + done, len - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return done;
        if (written <= 0)
            return len;
        done += (size_t)written;
    }
    return done;
}

static bool write_rest(struct log_out *out)
{
    size_t done = write_some(out, out->rest, out->rest_len);
    memmove(out->rest, out->rest + done, out->rest_len - done);
    out->rest_len -= done;
    return out->rest_len == 0;
}

bool log_out_write(struct log_out *out, const char *line, size_t len)
{
    if (!write_rest(out))
        return false;
    size_t done = write_some(out, line, len);
    if (done == 0)
        return false;
    out->rest_len = len - done;
    memcpy(out->rest, line + done, out->rest_len);
    return true;
}

void log_out_deinit(struct log_out *out)
{
    if (out->rest_len > 0) {
        log_out_wait(out, END_MS);
        write_rest(out);
    }
    if (out->is_own)
        close(out->fd);
}
