/* SPDX-License-Identifier: MIT */
/* What a connection holds for its peer: counted memory, and its output. */
#include "frontend/grpc/grpc_output.h"

#include <assert.h>
#include <stdlib.h>

/* ---- Memory ---------------------------------------------------------------------------------- */

bool grpc_bytes_reserve(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held, size_t more)
{
    size_t size = bytes->size > 0 ? bytes->size : 256;
    if (bytes->size - bytes->len >= more)
        return true;
    while (size - bytes->len < more)
        size *= 2;
    uint8_t *ptr = realloc(bytes->ptr, size);
    if (ptr == NULL)
        return false;
    *held += size - bytes->size;
    conn->frontend->held_bytes += size - bytes->size;
    bytes->ptr = ptr;
    bytes->size = size;
    return true;
}

bool grpc_bytes_add(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held,
                    struct span more)
{
    if (bytes->at > bytes->len - bytes->at) {
        bytes->len -= bytes->at;
        memmove(bytes->ptr, bytes->ptr + bytes->at, bytes->len);
        bytes->at = 0;
    }
    if (!grpc_bytes_reserve(conn, bytes, held, more.len))
        return false;
    memcpy(bytes->ptr + bytes->len, more.ptr, more.len);
    bytes->len += more.len;
    return true;
}

void grpc_bytes_release(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held)
{
    assert(*held >= bytes->size && conn->frontend->held_bytes >= bytes->size);
    *held -= bytes->size;
    conn->frontend->held_bytes -= bytes->size;
    free(bytes->ptr);
    *bytes = (struct grpc_bytes){0};
}

/* ---- Output ---------------------------------------------------------------------------------- */

bool grpc_output_write(struct grpc_conn *conn)
{
    const uint8_t *frame;
    while (!grpc_output_is_unread(conn)) {
        ssize_t len = nghttp2_session_mem_send(conn->session, &frame);
        if (len == 0)
            return true;
        if (len < 0 ||
            !grpc_bytes_add(conn, &conn->out, &conn->buffer_bytes, span_of(frame, (size_t)len))) {
            conn->is_broken = conn->is_over = true;
            return false;
        }
    }
    return false;
}

void grpc_output_settle(struct grpc_conn *conn)
{
    /* A peer that does not speak HTTP/2 gets no frames. */
    if (conn->is_over || !conn->has_begun || !grpc_output_write(conn))
        return;
    if (!nghttp2_session_want_read(conn->session) && !nghttp2_session_want_write(conn->session)) {
        conn->is_over = true;
        if (conn->leaving == GRPC_STAYS && !conn->is_left)
            grpc_count_malformed(conn->frontend);
    } else if (conn->leaving == GRPC_LEAVES && conn->n_calls == 0)
        conn->is_over = true;
}
