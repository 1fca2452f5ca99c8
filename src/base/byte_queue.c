/* SPDX-License-Identifier: MIT */
/* Doubles its memory when full and moves its content only then: each byte moves once or twice. */
#include "base/byte_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MIN 256

void byte_queue_deinit(struct byte_queue *queue)
{
    free(queue->bytes);
    *queue = (struct byte_queue){0};
}

uint8_t *byte_queue_grow(struct byte_queue *queue, size_t n)
{
    size_t len = byte_queue_len(queue), size = queue->size > 0 ? queue->size : SIZE_MIN;
    if (n > SIZE_MAX / 4 - len)
        return NULL;
    while (size - len < n || size < 2 * len)
        size *= 2;
    if (size > queue->size) {
        uint8_t *bytes = realloc(queue->bytes, size);
        if (bytes == NULL)
            return NULL;
        queue->bytes = bytes;
        queue->size = size;
    }
    if (len > 0 && queue->start > 0)
        memmove(queue->bytes, queue->bytes + queue->start, len);
    queue->start = 0;
    queue->end = len;
    return queue->bytes + len;
}

void byte_queue_take(struct byte_queue *queue, size_t n, size_t size_kept)
{
    assert(n <= byte_queue_len(queue));
    queue->start += n;
    if (queue->start == queue->end)
        byte_queue_clear(queue, size_kept);
}

void byte_queue_clear(struct byte_queue *queue, size_t size_kept)
{
    queue->start = queue->end = 0;
    if (queue->size > size_kept)
        byte_queue_deinit(queue);
}
