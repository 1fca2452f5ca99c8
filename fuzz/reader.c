/* SPDX-License-Identifier: MIT */
/*
 * Bytes as a file, plain, gzip or zstd. Whatever a file holds, reading it in blocks and drop by
 * drop must give the same lines or the same mistake; and what was packed must come out again.
 *
 * The first byte chooses: even, the rest is the file; odd, the rest is packed into gzip members
 * first, each run of it repeated, so that lines longer than READER_LINE_MAX come up too.
 */
#define _GNU_SOURCE
#include "bytes.h"

#include "cmd/lib/input.h"
#include "sim/input/reader.h"

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#define PATH_SIZE 32
#define INFLATED_MAX (1u << 20) /* a small file can hold gigabytes of zeros */
#define PLAIN_MAX (160u * 1024u)

/* How a reader gets its bytes, and how many it may get: few at once, but not for long lines. */
struct source {
    struct input input;
    size_t at_once, left;
};

#define DRIP(size) ((size) < 8192 ? 1 : 101)

static long fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error)
{
    struct source *source = arg;
    size = size < source->at_once ? size : source->at_once;
    size = size < source->left ? size : source->left;
    long n = size > 0 ? input_fill(&source->input, bytes, size, error) : 0;
    MUST(n <= (long)size);
    source->left -= n > 0 ? (size_t)n : 0;
    return n;
}

static void make_path(char *path, int fd)
{
    snprintf(path, PATH_SIZE, "/proc/self/fd/%d", fd);
}

static int file_of(struct span bytes)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    MUST(fd >= 0);
    MUST(write(fd, bytes.ptr, bytes.len) == (ssize_t)bytes.len);
    return fd;
}

/* Whether the file begins as something packed does; such as cannot be unpacked is refused. */
static bool is_packed(const char *path)
{
    struct input input;
    struct stint_error error;
    if (input_open(&input, path, &error) != 0) {
        MUST(error.code == STINT_E_SYNTAX && error.message[0] != '\0');
        return true;
    }
    bool has_codec = input.codec != NULL;
    input_close(&input);
    return has_codec;
}

/* Reads the file both ways; returns how the reading ended, and how many lines there were. */
static int check_file(const char *path, size_t size, uint64_t *n_lines)
{
    struct source sources[2] = {{.at_once = SIZE_MAX, .left = INFLATED_MAX},
                                {.at_once = DRIP(size), .left = INFLATED_MAX}};
    struct reader readers[2];
    struct span lines[2];
    struct stint_error errors[2];
    int kind;
    for (int i = 0; i < 2; i++) {
        if (input_open(&sources[i].input, path, NULL) != 0) {
            MUST(i == 0 && is_packed(path));
            return STINT_E_SYNTAX;
        }
        MUST(reader_init(&readers[i], fill, &sources[i], NULL) == 0);
    }
    do {
        kind = reader_next(&readers[0], &lines[0], &errors[0]);
        int other = reader_next(&readers[1], &lines[1], &errors[1]);
        /* How many lines come out of damaged data before the damage depends on the bites. */
        while (kind < 0 && other > READER_END)
            other = reader_next(&readers[1], &lines[1], &errors[1]);
        while (other < 0 && kind > READER_END)
            kind = reader_next(&readers[0], &lines[0], &errors[0]);
        if (sources[0].left == 0 || sources[1].left == 0)
            break;
        MUST(other == kind);
        if (kind == READER_LINE) {
            MUST(lines[0].len == lines[1].len);
            MUST(memcmp(lines[0].ptr, lines[1].ptr, lines[0].len) == 0);
        }
    } while (kind > READER_END);
    *n_lines = readers[0].line_number;
    for (int i = 0; i < 2; i++) {
        reader_deinit(&readers[i]);
        input_close(&sources[i].input);
    }
    return kind;
}

/* Runs of (repeat count, length, bytes), made into plain bytes. */
static struct span unroll(struct span rest, uint8_t *plain)
{
    size_t len = 0;
    while (rest.len > 0 && len < PLAIN_MAX) {
        size_t times = (size_t)bytes_u16(&rest) + 1, n = bytes_u8(&rest);
        n = n < rest.len ? n : rest.len;
        for (size_t i = 0; i < times && len + n <= PLAIN_MAX && n > 0; i++, len += n)
            memcpy(plain + len, rest.ptr, n);
        rest = span_of(rest.ptr + n, rest.len - n);
    }
    return span_of(plain, len);
}

static void pack_member(struct span plain, int fd)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)plain.ptr, .avail_in = (uInt)plain.len};
    MUST(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    uLong size = deflateBound(&stream, plain.len);
    uint8_t *packed = malloc(size);
    MUST(packed != NULL);
    stream.next_out = packed;
    stream.avail_out = (uInt)size;
    MUST(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    ssize_t len = (ssize_t)(size - stream.avail_out);
    MUST(write(fd, packed, (size_t)len) == len);
    deflateEnd(&stream);
    free(packed);
}

static void check_packed(struct span rest)
{
    static const uint8_t padding[3];
    char plain_path[PATH_SIZE], packed_path[PATH_SIZE];
    uint8_t *memory = malloc(PLAIN_MAX);
    MUST(memory != NULL);
    size_t cut = bytes_u16(&rest), n_zeros = cut % 4;
    struct span plain = unroll(rest, memory);
    cut = plain.len > 0 ? cut % plain.len : 0;
    int plain_fd = file_of(plain), packed_fd = file_of(span_of(padding, 0));
    pack_member(span_of(memory, cut), packed_fd);
    MUST(write(packed_fd, padding, n_zeros) == (ssize_t)n_zeros);
    pack_member(span_of(memory + cut, plain.len - cut), packed_fd);
    make_path(plain_path, plain_fd);
    make_path(packed_path, packed_fd);
    uint64_t n_plain, n_packed;
    MUST(check_file(packed_path, plain.len, &n_packed) == READER_END);
    if (!is_packed(plain_path))
        MUST(check_file(plain_path, plain.len, &n_plain) == READER_END && n_plain == n_packed);
    close(plain_fd);
    close(packed_fd);
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH_SIZE];
    uint64_t n_lines;
    struct span rest = span_of(data, size);
    if (bytes_u8(&rest) % 2 == 1) {
        check_packed(rest);
        return 0;
    }
    int fd = file_of(rest);
    make_path(path, fd);
    check_file(path, rest.len * 16, &n_lines);
    close(fd);
    return 0;
}
