/* SPDX-License-Identifier: MIT */
/*
 * Where the bytes of an HTTP/2 connection stand between its frames (RFC 9113, 3.4, 4.1 and 4.3):
 * the preface, a frame, or a block of header fields that several frames make up. nghttp2 reports
 * no end of the frames that it skips, so a time limit for a frame cannot be kept by its callbacks.
 */
#ifndef STINT_PROTO_GRPC_HTTP2_FRAMES_H
#define STINT_PROTO_GRPC_HTTP2_FRAMES_H

#include "base/span.h"

#include <stdbool.h>

#define HTTP2_PREFACE 24
#define HTTP2_FRAME_HEAD 9

/* All zeros before the first byte. */
struct http2_frames {
    uint32_t left; /* bytes of the payload that are still to come */
    uint8_t head[HTTP2_FRAME_HEAD];
    uint8_t head_len;
    uint8_t preface_len;
    bool is_in_block; /* HEADERS came without END_HEADERS, and no CONTINUATION with it since */
};

/* True if some byte of these stands at a boundary: something was completed, or nothing was open. */
bool http2_frames_take(struct http2_frames *frames, struct span bytes);

/* Whether the last byte that came leaves something open: a preface, a frame or a block. */
bool http2_frames_are_open(const struct http2_frames *frames);

#endif
