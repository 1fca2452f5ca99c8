/* SPDX-License-Identifier: MIT */
/*
 * A sorted ring of words in a state, for `log` and `concurrency`. Its header is as it was read,
 * once: other processes may be able to write to the state, so whatever that holds, `head` is below
 * `size` and `len` at most `size` (both 0 under a size of 0), and no word is ever an index.
 */
#ifndef STINT_ALGORITHM_RING_H
#define STINT_ALGORITHM_RING_H

#include "base/read_once.h"
#include "base/wide_int.h"

#include <assert.h>

struct ring {
    uint64_t *entry; /* in the state */
    uint32_t size;   /* words that the state has space for: the quota's limit */
    uint32_t head;   /* where in entry[] the smallest is */
    uint32_t len;    /* words in use */
};

static inline struct ring ring_of(const uint64_t *entry, uint32_t size, const uint32_t *head,
                                  const uint32_t *len)
{
    uint32_t seen = read_once32(head);
    return (struct ring){
        .entry = (uint64_t *)(uintptr_t)entry,
        .size = size,
        .head = seen < size ? seen : 0,
        .len = (uint32_t)min_u64(read_once32(len), size),
    };
}

static inline uint64_t *ring_at(const struct ring *ring, uint32_t at)
{
    assert(ring->head < ring->size && at <= ring->size);
    uint32_t index = ring->head + at; /* both at most the limit, which is small */
    return &ring->entry[index >= ring->size ? index - ring->size : index];
}

static inline uint64_t ring_get(const struct ring *ring, uint32_t at)
{
    return read_once64(ring_at(ring, at));
}

/* How many words are smaller than `value`, without their low bits. */
static inline uint32_t ring_before(const struct ring *ring, uint64_t value, unsigned low_bits)
{
    uint32_t low = 0, high = ring->len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (ring_get(ring, mid) >> low_bits < value)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Opens a gap for one word at `at`, by moving the shorter side. */
static inline void ring_open(struct ring *ring, uint32_t at)
{
    assert(ring->len < ring->size);
    uint32_t len = ring->len++;
    if (at >= len / 2) {
        for (uint32_t to = len; to > at; to--)
            *ring_at(ring, to) = ring_get(ring, to - 1);
        return;
    }
    ring->head = ring->head == 0 ? ring->size - 1 : ring->head - 1;
    for (uint32_t to = 0; to < at; to++)
        *ring_at(ring, to) = ring_get(ring, to + 1);
}

/* Removes n words from `at` on, by moving the shorter side. */
static inline void ring_remove(struct ring *ring, uint32_t at, uint32_t n)
{
    assert(at + n <= ring->len);
    uint32_t after = ring->len - at - n;
    if (at < after) {
        for (uint32_t moved = at; moved > 0; moved--)
            *ring_at(ring, moved - 1 + n) = ring_get(ring, moved - 1);
        ring->head += n;
        if (ring->head >= ring->size)
            ring->head -= ring->size;
    } else {
        for (uint32_t moved = 0; moved < after; moved++)
            *ring_at(ring, at + moved) = ring_get(ring, at + n + moved);
    }
    ring->len -= n;
}

#endif
