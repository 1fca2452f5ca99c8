/* SPDX-License-Identifier: MIT */
/*
 * Files are read in blocks. A table has the kinds of packed data: how they begin, and what unpacks
 * them, or which command does.
 */
#define _GNU_SOURCE
#define ZLIB_CONST /* input is not written */
#include "cmd/lib/input.h"

#include "base/err.h"
#include "base/wide_int.h"
#include "cmd/lib/signals.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define PACKED_SIZE (256u * 1024u)

/* ---- Codecs ---------------------------------------------------------------------------------- */

#define MAGIC_SIZE 4               /* bytes that tell the kinds apart */
#define GZIP_WINDOW_BITS (15 + 16) /* selects gzip members for zlib, not raw zlib */

/* One step of unpacking: from the bytes that are there, into those that are free. */
struct step {
    const uint8_t *in;
    size_t in_len; /* left; what was consumed is cut off */
    uint8_t *out;
    size_t out_size, n_out;
    bool ended;      /* a member ended */
    const char *why; /* the data is damaged; NULL: it is not */
    bool no_memory;
};

struct codec {
    const char *name;
    uint8_t magic[MAGIC_SIZE], loose[MAGIC_SIZE]; /* bits that are set in `loose` may differ */
    const char *command;                          /* that unpacks it, if there is no `open` */
    void *(*open)(void);                          /* NULL: no memory */
    void (*close)(void *stream);
    void (*unpack)(void *stream, struct step *step);
};

static void *gzip_open(void)
{
    z_stream *stream = calloc(1, sizeof(*stream));
    if (stream != NULL && inflateInit2(stream, GZIP_WINDOW_BITS) != Z_OK) {
        free(stream);
        return NULL;
    }
    return stream;
}

static void gzip_close(void *stream)
{
    inflateEnd(stream);
    free(stream);
}

static void gzip_unpack(void *arg, struct step *step)
{
    z_stream *stream = arg;
    stream->next_in = step->in;
    stream->avail_in = (uInt)step->in_len;
    stream->next_out = step->out;
    stream->avail_out = (uInt)step->out_size;
    int result = inflate(stream, Z_NO_FLUSH);
    step->in = stream->next_in;
    step->in_len = stream->avail_in;
    step->n_out = step->out_size - stream->avail_out;
    step->ended = result == Z_STREAM_END;
    step->no_memory = result == Z_MEM_ERROR;
    if (step->ended)
        inflateReset(stream);
    else if (result != Z_OK && result != Z_BUF_ERROR)
        step->why = stream->msg != NULL ? stream->msg : "the packed data is invalid";
}

/*
 * zstd drops what a call has unpacked before damage that the same call finds. A call that is given
 * no more than the library asks for unpacks one block.
 */
struct zstd {
    ZSTD_DStream *stream;
    size_t wanted; /* bytes */
};

static void *zstd_open(void)
{
    struct zstd *zstd = calloc(1, sizeof(*zstd));
    if (zstd != NULL && (zstd->stream = ZSTD_createDStream()) == NULL) {
        free(zstd);
        return NULL;
    }
    if (zstd != NULL)
        zstd->wanted = ZSTD_initDStream(zstd->stream);
    return zstd;
}

static void zstd_close(void *arg)
{
    struct zstd *zstd = arg;
    ZSTD_freeDStream(zstd->stream);
    free(zstd);
}

static void zstd_unpack(void *arg, struct step *step)
{
    struct zstd *zstd = arg;
    ZSTD_inBuffer in = {step->in, min_u64(step->in_len, zstd->wanted), 0};
    ZSTD_outBuffer out = {step->out, step->out_size, 0};
    size_t result = ZSTD_decompressStream(zstd->stream, &out, &in);
    step->in += in.pos;
    step->in_len -= in.pos;
    step->n_out = out.pos;
    step->ended = result == 0;
    if (ZSTD_isError(result))
        step->why = ZSTD_getErrorName(result);
    else
        zstd->wanted = result > 0 ? result : ZSTD_initDStream(zstd->stream);
}

#define GZIP .open = gzip_open, .close = gzip_close, .unpack = gzip_unpack
#define ZSTD .open = zstd_open, .close = zstd_close, .unpack = zstd_unpack

static const struct codec codecs[] = {
    {"gzip", {0x1f, 0x8b}, {0, 0, 0xff, 0xff}, GZIP},
    {"zstd", {0x28, 0xb5, 0x2f, 0xfd}, ZSTD},
    {"zstd", {0x50, 0x2a, 0x4d, 0x18}, {0x0f}, ZSTD}, /* notes, which may come before data */
    {"xz", {0xfd, '7', 'z', 'X'}, .command = "xzcat"},
    {"bzip2", {'B', 'Z', 'h', '0'}, {0, 0, 0, 0x0f}, .command = "bzcat"},
    {"lz4", {0x04, 0x22, 0x4d, 0x18}, .command = "lz4cat"},
    {"zip", {'P', 'K', 3, 4}, .command = "unzip -p"},
};
#define N_CODECS (sizeof(codecs) / sizeof(codecs[0]))

/* Whether data of this kind may begin with these bytes, of which only the first may be there. */
static bool begins(const struct codec *codec, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len && i < MAGIC_SIZE; i++)
        if (((bytes[i] ^ codec->magic[i]) & ~codec->loose[i]) != 0)
            return false;
    return true;
}

static const struct codec *find_codec(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < N_CODECS; i++)
        if (begins(&codecs[i], bytes, len))
            return &codecs[i];
    return NULL;
}

/* ---- The file -------------------------------------------------------------------------------- */

static bool is_stdin(const char *path)
{
    return path == NULL || strcmp(path, "-") == 0;
}

static int failed(const char *name, const char *what, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "cannot %s %s: %s%s", what, name, strerror(errno),
                   err_advice(errno));
}

int input_stat(const char *path, struct input_stat *found, struct stint_error *error)
{
    struct stat stat_;
    const char *name = is_stdin(path) ? "standard input" : path;
    *found = (struct input_stat){0};
    if (is_stdin(path) ? fstat(STDIN_FILENO, &stat_) != 0 : stat(path, &stat_) != 0)
        return failed(name, "open", error);
    if (S_ISDIR(stat_.st_mode))
        return err_set(error, STINT_E_SYSTEM,
                       "%s is a folder; expected a file, such as %s/access.log", name,
                       is_stdin(path) ? "." : path);
    found->is_regular = S_ISREG(stat_.st_mode);
    found->size = found->is_regular ? (uint64_t)stat_.st_size : 0;
    return 0;
}

static long read_some(struct input *input, uint8_t *bytes, size_t size, struct stint_error *error)
{
    ssize_t n;
    input->interrupted = !interrupt_wait(input->fd, STINT_NEVER_NS, 0);
    if (input->interrupted)
        return err_set(error, STINT_E_SYSTEM, "interrupted while reading %s", input->name);
    do
        n = read(input->fd, bytes, size);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return failed(input->name, "read", error);
    input->bytes_read += (uint64_t)n;
    return n;
}

static int begin_unpack(struct input *input, const struct codec *codec, struct stint_error *error)
{
    if (codec->open == NULL)
        return err_set(error, STINT_E_SYNTAX,
                       "%s is %s data, which stint does not unpack; use %s FILE | stint ... "
                       "(replay: with --sort)",
                       input->name, codec->name, codec->command);
    input->stream = codec->open();
    if (input->stream == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for unpacking %s", input->name);
    input->codec = codec;
    return 0;
}

/* Reads until it is clear whether the bytes are packed; a pipe may return them one by one. */
static int look_at_first_bytes(struct input *input, struct stint_error *error)
{
    const struct codec *codec = &codecs[0];
    while (input->packed_end < MAGIC_SIZE && codec != NULL) {
        long n = read_some(input, input->packed + input->packed_end,
                           PACKED_SIZE - input->packed_end, error);
        if (n <= 0)
            return input->interrupted ? 0 : (int)n; /* the first fill finds it again */
        input->packed_end += (size_t)n;
        codec = find_codec(input->packed, input->packed_end);
    }
    return codec != NULL ? begin_unpack(input, codec, error) : 0;
}

/* Does not wait for the writer of a FIFO: reads do, and can be interrupted. */
static int open_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, 0);
    return fd;
}

int input_open(struct input *input, const char *path, struct stint_error *error)
{
    *input = (struct input){.fd = is_stdin(path) ? STDIN_FILENO : open_file(path),
                            .name = is_stdin(path) ? "standard input" : path};
    if (input->fd < 0)
        return failed(input->name, "open", error);
    /* Only a hint: some files cannot be read ahead. */
    (void)posix_fadvise(input->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    input->packed = malloc(PACKED_SIZE);
    int code = input->packed == NULL ? err_set(error, STINT_E_SYSTEM, "out of memory")
                                     : look_at_first_bytes(input, error);
    if (code != 0)
        input_close(input);
    return code;
}

void input_close(struct input *input)
{
    if (input->codec != NULL)
        input->codec->close(input->stream);
    free(input->packed);
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    *input = (struct input){.fd = -1};
}

/* Reads more packed bytes if none are left; 1 if there are some, 0 at the end of the file. */
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
 * One step with the available bytes; returns how many bytes it produced. Output before damage is
 * returned first: the next step finds the damage again.
 */
static long unpack_some(struct input *input, uint8_t *bytes, size_t size, struct stint_error *error)
{
    struct step step = {.in = input->packed + input->packed_at,
                        .in_len = input->packed_end - input->packed_at,
                        .out = bytes,
                        .out_size = size};
    input->codec->unpack(input->stream, &step);
    input->packed_at = input->packed_end - step.in_len;
    /* Logs are appended to and rotated, so a file may have several members. */
    input->in_member = !step.ended;
    if (step.n_out > 0 || step.ended || (step.why == NULL && !step.no_memory))
        return (long)step.n_out;
    if (step.no_memory)
        return err_set(error, STINT_E_SYSTEM, "out of memory for unpacking %s", input->name);
    return damaged(input, step.why, error);
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
    const struct codec *codec = find_codec(input->packed + input->packed_at, 1);
    return codec != NULL && codec->open == input->codec->open
               ? 1
               : damaged(input, "other data follows the packed data", error);
}

/* At the end of the file a step is made once more for output that did not fit before. */
static long fill_unpacked(struct input *input, uint8_t *bytes, size_t size,
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
        long n = unpack_some(input, bytes, size, error);
        if (n != 0)
            return n;
        if (more == 0 && input->in_member)
            return damaged(input, "its packed data ends too early", error);
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
    long n = input->codec != NULL ? fill_unpacked(input, bytes, size, error)
                                  : fill_plain(input, bytes, size, error);
    input->bytes_given += n > 0 ? (uint64_t)n : 0;
    return n;
}
