/* SPDX-License-Identifier: MIT */
/*
 * Bytes that are appended at one end and taken at the other: input that waits to be read, output
 * that waits to be sent. Memory grows with what is queued; a large empty queue returns its memory.
 * A zeroed queue is empty.
 */
#ifndef STINT_BASE_BYTE_QUEUE_H
#define STINT_BASE_BYTE_QUEUE_H

#include "base/span.h"

#include <stdbool.h>

struct byte_queue {
    uint8_t *bytes;
    size_t start, end, size; /* queued: bytes[start] to bytes[end - 1] */
};

void byte_queue_deinit(struct byte_queue *queue);

/* byte_queue_reserve() where the memory is too small. */
uint8_t *byte_queue_grow(struct byte_queue *queue, size_t n);

/* n writable bytes after the last queued one; NULL: no memory. Count them with end += n. */
static inline uint8_t *byte_queue_reserve(struct byte_queue *queue, size_t n)
{
    return queue->size - queue->end >= n ? queue->bytes + queue->end : byte_queue_grow(queue, n);
}

/* False: no memory. */
static inline bool byte_queue_append(struct byte_queue *queue, struct span bytes)
{
    if (bytes.len == 0)
        return true;
    uint8_t *at = byte_queue_reserve(queue, bytes.len);
    if (at == NULL)
        return false;
    memcpy(at, bytes.ptr, bytes.len);
    queue->end += bytes.len;
    return true;
}

/* Takes n bytes off the start; an empty queue keeps at most size_kept bytes of memory. */
void byte_queue_take(struct byte_queue *queue, size_t n, size_t size_kept);
void byte_queue_clear(struct byte_queue *queue, size_t size_kept);

static inline size_t byte_queue_len(const struct byte_queue *queue)
{
    return queue->end - queue->start;
}

/* Valid until the queue changes; with a NULL ptr if it is empty. */
static inline struct span byte_queue_span(const struct byte_queue *queue)
{
    size_t len = byte_queue_len(queue);
    return len == 0 ? span_of(NULL, 0) : span_of(queue->bytes + queue->start, len);
}

#endif
