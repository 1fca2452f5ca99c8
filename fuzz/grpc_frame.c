/* SPDX-License-Identifier: MIT */
/*
 * Bytes as what gRPC puts around messages: frames out of pieces as out of the whole, gzip within
 * its bound and back, and the texts of header fields.
 */
#include "bytes.h"

#include "proto/grpc/grpc.h"

#define MESSAGE_MAX 4096

static struct grpc_zip *zip;

/* The same as from the whole, and nothing before all of it is there. */
static void check_pieces(struct span bytes, int expected)
{
    struct stint_error error;
    struct grpc_frame frame;
    size_t whole = expected > 0 ? (size_t)expected : bytes.len;
    for (size_t len = 0; len < whole; len += 1 + len / 7) {
        uint8_t *copy = bytes_copy(span_of(bytes.ptr, len));
        int read = grpc_frame_read(span_of(copy, len), MESSAGE_MAX, &frame, &error);
        MUST(read == 0 || (read < 0 && read == expected));
        free(copy);
    }
}

static void check_gzip(struct span message)
{
    struct stint_error error = {0};
    struct span plain, packed, again;
    int code = grpc_zip_read(zip, message, MESSAGE_MAX, &plain, &error);
    MUST(code == 0 || ((code == STINT_E_SYNTAX || code == STINT_E_RANGE) && error.message[0]));
    if (code < 0)
        return;
    MUST(plain.len <= MESSAGE_MAX);
    uint8_t *copy = bytes_copy(plain);
    size_t len = plain.len;
    MUST(grpc_zip_write(zip, span_of(copy, len), &packed));
    MUST(grpc_zip_read(zip, packed, MESSAGE_MAX, &again, &error) == 0);
    MUST(again.len == len && (len == 0 || memcmp(again.ptr, copy, len) == 0));
    free(copy);
}

static int check_frame(struct span bytes)
{
    struct stint_error error = {0};
    struct grpc_frame frame;
    uint8_t prefix[GRPC_PREFIX];
    int read = grpc_frame_read(bytes, MESSAGE_MAX, &frame, &error);
    MUST(read >= 0 || error.message[0] != '\0');
    check_pieces(bytes, read);
    if (read <= 0)
        return read;
    MUST((size_t)read <= bytes.len && frame.message.len == (size_t)read - GRPC_PREFIX);
    MUST(frame.message.ptr == bytes.ptr + GRPC_PREFIX && frame.message.len <= MESSAGE_MAX);
    grpc_frame_write(prefix, frame.is_compressed, frame.message.len);
    MUST(memcmp(prefix, bytes.ptr, GRPC_PREFIX) == 0);
    if (frame.is_compressed)
        check_gzip(frame.message);
    return read;
}

static void check_texts(struct span bytes)
{
    char text[100];
    uint64_t timeout_ns;
    size_t size = bytes.len % sizeof(text);
    size_t len = grpc_message_write(text, size, bytes);
    MUST(len <= size);
    for (size_t i = 0; i < len; i++) {
        MUST(text[i] >= ' ' && text[i] <= '~');
        MUST(text[i] != '%' || i + 2 < len);
    }
    if (grpc_timeout_read(bytes, &timeout_ns))
        MUST(bytes.len >= 2 && bytes.len <= 9);
    bool is_gzip = grpc_encoding_of(bytes) == GRPC_GZIP;
    MUST(grpc_accepts_gzip(bytes) || !is_gzip);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (zip == NULL)
        zip = grpc_zip_new();
    MUST(zip != NULL);
    uint8_t *copy = bytes_copy(span_of(data, size));
    check_texts(span_of(copy, size));
    for (size_t done = 0; done < size;) {
        int read = check_frame(span_of(copy + done, size - done));
        if (read <= 0)
            break;
        done += (size_t)read;
    }
    free(copy);
    return 0;
}
