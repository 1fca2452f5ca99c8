/* SPDX-License-Identifier: MIT */
/* Plain bytes go straight into the caller's memory; only the first ones are checked for gzip. */
#define _GNU_SOURCE
#include "cmd/lib/input.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define PACKED_SIZE (256u * 1024u)
#define GZIP_FIRST 0x1f            /* the byte that every member begins with */
#define GZIP_WINDOW_BITS (15 + 16) /* selects gzip members for zlib, not raw zlib */

static int failed(const struct input *input, const char *what, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "cannot %s %s: %s", what, input->name, strerror(errno));
}

static long read_some(struct input *input, uint8_t *bytes, size_t size, struct stint_error *error)
{
    ssize_t n;
    do
        n = read(input->fd, bytes, size);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return failed(input, "read", error);
    input->bytes_read += (uint64_t)n;
    return n;
}

static int begin_inflate(struct input *input, struct stint_error *error)
{
    input->inflate = calloc(1, sizeof(*input->inflate));
    if (input->inflate == NULL || inflateInit2(input->inflate, GZIP_WINDOW_BITS) != Z_OK) {
        free(input->inflate);
        input->inflate = NULL;
        return err_set(error, STINT_E_SYSTEM, "out of memory for inflating %s", input->name);
    }
    return 0;
}

/* Reads until the two bytes that identify gzip are there; a pipe may return them one by one. */
static int look_at_first_bytes(struct input *input, struct stint_error *error)
{
    while (input->packed_end < 2) {
        long n = read_some(input, input->packed + input->packed_end,
                           PACKED_SIZE - input->packed_end, error);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return 0;
        input->packed_end += (size_t)n;
    }
    bool is_gzip = input->packed[0] == GZIP_FIRST && input->packed[1] == 0x8b;
    return is_gzip ? begin_inflate(input, error) : 0;
}

static int open_fd(struct input *input, const char *path, struct stint_error *error)
{
    bool is_stdin = path == NULL || strcmp(path, "-") == 0;
    struct stat stat;
    input->name = is_stdin ? "standard input" : path;
    input->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0)
        return failed(input, "open", error);
    if (fstat(input->fd, &stat) == 0 && S_ISREG(stat.st_mode))
        input->size = (uint64_t)stat.st_size;
    /* Only a hint: some files cannot be read ahead. */
    (void)posix_fadvise(input->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

int input_open(struct input *input, const char *path, struct stint_error *error)
{
    *input = (struct input){.fd = -1};
    int code = open_fd(input, path, error);
    if (code != 0)
        return code;
    input->packed = malloc(PACKED_SIZE);
    code = input->packed == NULL ? err_set(error, STINT_E_SYSTEM, "out of memory")
                                 : look_at_first_bytes(input, error);
    if (code != 0)
        input_close(input);
    return code;
}

void input_close(struct input *input)
{
    if (input->inflate != NULL)
        inflateEnd(input->inflate);
    free(input->inflate);
    free(input->packed);
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    *input = (struct input){.fd = -1};
}

/* Reads more gzip bytes if none are left; 1 if there are some, 0 at the end of the file. */
static int more_packed(struct input *input, struct stint_error *error)
{
    if (input->packed_at < input->packed_end)
        return 1;
    long n = read_some(input, input->packed, PACKED_SIZE, error);
    if (n < 0)
        return (int)n;
    input->packed_at = 0;
    input->packed_end = (size_t)n;
    return n > 0;
}

/* The offset of the first byte that was not consumed. */
static int damaged(const struct input *input, const char *how, struct stint_error *error)
{
    uint64_t offset = input->bytes_read - (input->packed_end - input->packed_at);
    return err_set(error, STINT_E_SYNTAX,
                   "%s is damaged at byte %" PRIu64 ": %s (after %" PRIu64 " inflated bytes)",
                   input->name, offset, how, input->bytes_given);
}

/*
 * One call of inflate() on the available bytes; returns how many bytes it produced. Output before
 * damage is returned first: the next call finds the damage again.
 */
static long inflate_some(struct input *input, uint8_t *bytes, size_t size,
                         struct stint_error *error)
{
    z_stream *stream = input->inflate;
    stream->next_in = input->packed + input->packed_at;
    stream->avail_in = (uInt)(input->packed_end - input->packed_at);
    stream->next_out = bytes;
    stream->avail_out = (uInt)size;
    int result = inflate(stream, Z_NO_FLUSH);
    input->packed_at = input->packed_end - stream->avail_in;
    long n = (long)(size - stream->avail_out);
    input->in_member = result != Z_STREAM_END;
    /* Logs are appended to and rotated, so a file may have several members. */
    if (result == Z_STREAM_END)
        inflateReset(stream);
    if (n > 0 || result == Z_STREAM_END || result == Z_OK || result == Z_BUF_ERROR)
        return n;
    if (result == Z_MEM_ERROR)
        return err_set(error, STINT_E_SYSTEM, "out of memory for inflating %s", input->name);
    return damaged(input, stream->msg != NULL ? stream->msg : "its gzip data is wrong", error);
}

/*
 * Some writers pad with zeros between members; these are skipped. 1 if a member begins, 0 if no
 * bytes are left here, or a negative code.
 */
static int find_member(struct input *input, struct stint_error *error)
{
    while (input->packed_at < input->packed_end && input->packed[input->packed_at] == 0)
        input->packed_at++;
    if (input->packed_at == input->packed_end)
        return 0;
    return input->packed[input->packed_at] == GZIP_FIRST
               ? 1
               : damaged(input, "what follows its gzip data is none", error);
}

/* At the end of the file inflate() is called once more for output that did not fit before. */
static long fill_inflated(struct input *input, uint8_t *bytes, size_t size,
                          struct stint_error *error)
{
    for (;;) {
        int more = more_packed(input, error);
        if (more < 0 || (more == 0 && !input->in_member))
            return more;
        int found = input->in_member ? 1 : find_member(input, error);
        if (found < 0)
            return found;
        if (found == 0)
            continue;
        long n = inflate_some(input, bytes, size, error);
        if (n != 0)
            return n;
        if (more == 0 && input->in_member)
            return damaged(input, "its gzip data ends too early", error);
    }
}

static long fill_plain(struct input *input, uint8_t *bytes, size_t size, struct stint_error *error)
{
    size_t left = input->packed_end - input->packed_at;
    if (left == 0)
        return read_some(input, bytes, size, error);
    size_t n = left < size ? left : size;
    memcpy(bytes, input->packed + input->packed_at, n);
    input->packed_at += n;
    return (long)n;
}

long input_fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error)
{
    struct input *input = arg;
    assert(size > 0);
    long n = input->inflate != NULL ? fill_inflated(input, bytes, size, error)
                                    : fill_plain(input, bytes, size, error);
    input->bytes_given += n > 0 ? (uint64_t)n : 0;
    return n;
}
