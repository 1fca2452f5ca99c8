/* SPDX-License-Identifier: MIT */
/*
 * gzip of messages, by zlib. Both streams are made when they are first needed and then only reset;
 * an output that grew past SPACE_KEPT is freed at the next call.
 */
#include "proto/grpc/grpc.h"

#include "base/err.h"

#include <assert.h>
#include <stdlib.h>
#define ZLIB_CONST /* zlib's input is const */
#include <zlib.h>

#define SPACE_FIRST 4096
#define SPACE_KEPT 65536
#define GZIP_WINDOW (15 + 16) /* selects gzip in zlib */

struct zip_space {
    uint8_t *bytes;
    size_t size;
};

struct grpc_zip {
    z_stream inflater, deflater;
    bool has_inflater, has_deflater;
    struct zip_space plain, packed;
};

struct grpc_zip *grpc_zip_new(void)
{
    return calloc(1, sizeof(struct grpc_zip));
}

void grpc_zip_free(struct grpc_zip *zip)
{
    if (zip == NULL)
        return;
    if (zip->has_inflater)
        inflateEnd(&zip->inflater);
    if (zip->has_deflater)
        deflateEnd(&zip->deflater);
    free(zip->plain.bytes);
    free(zip->packed.bytes);
    free(zip);
}

static bool space_grow(struct zip_space *space, size_t size)
{
    assert(size > 0);
    uint8_t *bytes = realloc(space->bytes, size);
    if (bytes == NULL)
        return false;
    space->bytes = bytes;
    space->size = size;
    return true;
}

/* Allocates the initial size, or keeps the current one if it is small. */
static bool space_begin(struct zip_space *space)
{
    if (space->bytes != NULL && space->size <= SPACE_KEPT)
        return true;
    free(space->bytes);
    *space = (struct zip_space){0};
    return space_grow(space, SPACE_FIRST);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool inflater_begin(struct grpc_zip *zip)
{
    if (zip->has_inflater)
        return inflateReset(&zip->inflater) == Z_OK;
    zip->has_inflater = inflateInit2(&zip->inflater, GZIP_WINDOW) == Z_OK;
    return zip->has_inflater;
}

/* Doubles the space, up to one byte more than is allowed, which detects too long an output. */
static bool space_double(struct zip_space *space, size_t max)
{
    size_t size = space->size <= max / 2 ? 2 * space->size : max + 1;
    return space_grow(space, size);
}

int grpc_zip_read(struct grpc_zip *zip, struct span message, size_t max, struct span *plain,
                  struct stint_error *error)
{
    z_stream *stream = &zip->inflater;
    size_t len = 0;
    int code = Z_OK;
    if (max >= UINT32_MAX || message.len >= UINT32_MAX)
        return err_set(error, STINT_E_RANGE, "expected a message of less than 4 GiB");
    if (!space_begin(&zip->plain) || !inflater_begin(zip))
        return err_set(error, STINT_E_SYSTEM, "there is no memory to inflate a message");
    stream->next_in = message.ptr;
    stream->avail_in = (uInt)message.len;
    while (code == Z_OK) {
        if (len == zip->plain.size && !space_double(&zip->plain, max))
            return err_set(error, STINT_E_SYSTEM, "there is no memory to inflate a message");
        stream->next_out = zip->plain.bytes + len;
        stream->avail_out = (uInt)(zip->plain.size - len);
        code = inflate(stream, Z_NO_FLUSH);
        len = zip->plain.size - stream->avail_out;
        if (len > max)
            return err_set(error, STINT_E_RANGE,
                           "expected a message of at most %zu bytes when it is inflated", max);
        if (code == Z_BUF_ERROR && stream->avail_out == 0)
            code = Z_OK; /* all was read, and more output follows */
    }
    if (code == Z_MEM_ERROR)
        return err_set(error, STINT_E_SYSTEM, "there is no memory to inflate a message");
    if (code != Z_STREAM_END || stream->avail_in > 0)
        return err_set(error, STINT_E_SYNTAX, "expected one gzip member that is whole");
    *plain = span_of(zip->plain.bytes, len);
    return 0;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static bool deflater_begin(struct grpc_zip *zip)
{
    if (zip->has_deflater)
        return deflateReset(&zip->deflater) == Z_OK;
    zip->has_deflater = deflateInit2(&zip->deflater, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW,
                                     8, Z_DEFAULT_STRATEGY) == Z_OK;
    return zip->has_deflater;
}

bool grpc_zip_write(struct grpc_zip *zip, struct span plain, struct span *message)
{
    z_stream *stream = &zip->deflater;
    if (plain.len >= UINT32_MAX / 2 || !space_begin(&zip->packed) || !deflater_begin(zip))
        return false;
    size_t bound = deflateBound(stream, plain.len);
    if (zip->packed.size < bound && !space_grow(&zip->packed, bound))
        return false;
    stream->next_in = plain.ptr;
    stream->avail_in = (uInt)plain.len;
    stream->next_out = zip->packed.bytes;
    stream->avail_out = (uInt)zip->packed.size;
    if (deflate(stream, Z_FINISH) != Z_STREAM_END)
        return false;
    *message = span_of(zip->packed.bytes, zip->packed.size - stream->avail_out);
    return true;
}
