/* SPDX-License-Identifier: MIT */
/*
 * The position between the frames of an HTTP/2 connection (RFC 9113, 3.4, 4.1 and 4.3): in the
 * preface, a frame, or a block of header fields that consists of several frames. nghttp2 does not
 * report the end of frames that it skips, so its callbacks cannot enforce a time limit for a frame.
 */
#ifndef STINT_PROTO_GRPC_HTTP2_FRAMES_H
#define STINT_PROTO_GRPC_HTTP2_FRAMES_H

#include "base/span.h"

#include <stdbool.h>

#define HTTP2_PREFACE 24
#define HTTP2_FRAME_HEAD 9

/* Zeroed before the first byte. */
struct http2_frames {
    uint32_t left; /* bytes of the payload that are still to come */
    uint8_t head[HTTP2_FRAME_HEAD];
    uint8_t head_len;
    uint8_t preface_len;
    bool is_in_block; /* HEADERS came without END_HEADERS, and no CONTINUATION with it since */
};

/* True if one of these bytes is at a boundary: it completes an item, or no item was open. */
bool http2_frames_take(struct http2_frames *frames, struct span bytes);

/* Whether an item is incomplete after the last byte: a preface, a frame or a block. */
bool http2_frames_are_open(const struct http2_frames *frames);

#endif
