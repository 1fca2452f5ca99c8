/* SPDX-License-Identifier: MIT */
/* A binary heap in an array from 1 on: the children of n are 2n and 2n + 1. */
#include "service/timer_queue.h"

#include <assert.h>
#include <stdlib.h>

void timer_queue_deinit(struct timer_queue *timer_queue)
{
    free(timer_queue->heap);
    *timer_queue = (struct timer_queue){0};
}

bool timer_queue_reserve(struct timer_queue *timer_queue, size_t n_timers)
{
    if (n_timers < timer_queue->capacity)
        return true;
    size_t capacity = timer_queue->capacity == 0 ? 64 : timer_queue->capacity;
    while (capacity <= n_timers)
        capacity *= 2;
    struct timer **heap = realloc(timer_queue->heap, capacity * sizeof(struct timer *));
    if (heap == NULL)
        return false;
    timer_queue->heap = heap;
    timer_queue->capacity = capacity;
    return true;
}

static void put(struct timer_queue *timer_queue, struct timer *timer, size_t place)
{
    timer_queue->heap[place] = timer;
    timer->place = place;
}

static void rise(struct timer_queue *timer_queue, struct timer *timer)
{
    size_t place = timer->place;
    for (; place > 1 && timer_queue->heap[place / 2]->at_ns > timer->at_ns; place /= 2)
        put(timer_queue, timer_queue->heap[place / 2], place);
    put(timer_queue, timer, place);
}

static void sink(struct timer_queue *timer_queue, struct timer *timer)
{
    size_t place = timer->place;
    for (size_t child; (child = 2 * place) <= timer_queue->n_timers; place = child) {
        if (child < timer_queue->n_timers &&
            timer_queue->heap[child + 1]->at_ns < timer_queue->heap[child]->at_ns)
            child++;
        if (timer_queue->heap[child]->at_ns >= timer->at_ns)
            break;
        put(timer_queue, timer_queue->heap[child], place);
    }
    put(timer_queue, timer, place);
}

static void take_out(struct timer_queue *timer_queue, struct timer *timer)
{
    struct timer *last = timer_queue->heap[timer_queue->n_timers--];
    if (last != timer) {
        put(timer_queue, last, timer->place);
        rise(timer_queue, last);
        sink(timer_queue, last);
    }
    timer->place = 0;
}

void timer_queue_set(struct timer_queue *timer_queue, struct timer *timer, uint64_t at_ns)
{
    if (at_ns == STINT_NEVER_NS) {
        if (timer->place != 0)
            take_out(timer_queue, timer);
        return;
    }
    timer->at_ns = at_ns;
    if (timer->place == 0) {
        assert(timer_queue->n_timers + 1 < timer_queue->capacity);
        put(timer_queue, timer, ++timer_queue->n_timers);
    }
    rise(timer_queue, timer);
    sink(timer_queue, timer);
}

struct timer *timer_queue_first(const struct timer_queue *timer_queue)
{
    return timer_queue->n_timers > 0 ? timer_queue->heap[1] : NULL;
}
