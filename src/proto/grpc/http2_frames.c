/* SPDX-License-Identifier: MIT */
#include "proto/grpc/http2_frames.h"

#include "base/wide_int.h"

#include <string.h>

enum { TYPE_HEADERS = 1, TYPE_CONTINUATION = 9, FLAG_END_HEADERS = 4 };

bool http2_frames_are_open(const struct http2_frames *frames)
{
    bool is_preface = frames->preface_len > 0 && frames->preface_len < HTTP2_PREFACE;
    return is_preface || frames->head_len > 0 || frames->is_in_block;
}

static void begin_payload(struct http2_frames *frames)
{
    const uint8_t *head = frames->head;
    frames->left = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
    if (head[3] == TYPE_HEADERS || head[3] == TYPE_CONTINUATION)
        frames->is_in_block = (head[4] & FLAG_END_HEADERS) == 0;
}

/* Takes the bytes up to the end of one part (preface, head or payload); returns their number. */
static size_t take_part(struct http2_frames *frames, struct span bytes)
{
    size_t len;
    if (frames->preface_len < HTTP2_PREFACE) {
        len = min_u64(bytes.len, HTTP2_PREFACE - (size_t)frames->preface_len);
        frames->preface_len += (uint8_t)len;
        return len;
    }
    if (frames->head_len < HTTP2_FRAME_HEAD) {
        len = min_u64(bytes.len, HTTP2_FRAME_HEAD - (size_t)frames->head_len);
        memcpy(frames->head + frames->head_len, bytes.ptr, len);
        frames->head_len += (uint8_t)len;
        if (frames->head_len == HTTP2_FRAME_HEAD)
            begin_payload(frames);
    } else {
        len = min_u64(bytes.len, frames->left);
        frames->left -= (uint32_t)len;
    }
    if (frames->head_len == HTTP2_FRAME_HEAD && frames->left == 0)
        frames->head_len = 0;
    return len;
}

bool http2_frames_take(struct http2_frames *frames, struct span bytes)
{
    bool was_closed = !http2_frames_are_open(frames);
    while (bytes.len > 0) {
        size_t len = take_part(frames, bytes);
        bytes = span_of(bytes.ptr + len, bytes.len - len);
        was_closed |= !http2_frames_are_open(frames);
    }
    return was_closed;
}
