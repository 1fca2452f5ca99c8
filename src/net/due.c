/* SPDX-License-Identifier: MIT */
/* A binary heap in an array from 1 on: the children of n are 2n and 2n + 1. */
#include "net/due.h"

#include <assert.h>
#include <stdlib.h>

void dues_deinit(struct dues *dues)
{
    free(dues->heap);
    *dues = (struct dues){0};
}

bool dues_reserve(struct dues *dues, size_t n_dues)
{
    if (n_dues < dues->capacity)
        return true;
    size_t capacity = dues->capacity == 0 ? 64 : dues->capacity;
    while (capacity <= n_dues)
        capacity *= 2;
    struct due **heap = realloc(dues->heap, capacity * sizeof(struct due *));
    if (heap == NULL)
        return false;
    dues->heap = heap;
    dues->capacity = capacity;
    return true;
}

static void put(struct dues *dues, struct due *due, size_t place)
{
    dues->heap[place] = due;
    due->place = place;
}

static void rise(struct dues *dues, struct due *due)
{
    size_t place = due->place;
    for (; place > 1 && dues->heap[place / 2]->at_ns > due->at_ns; place /= 2)
        put(dues, dues->heap[place / 2], place);
    put(dues, due, place);
}

static void sink(struct dues *dues, struct due *due)
{
    size_t place = due->place;
    for (size_t child; (child = 2 * place) <= dues->n_dues; place = child) {
        if (child < dues->n_dues && dues->heap[child + 1]->at_ns < dues->heap[child]->at_ns)
            child++;
        if (dues->heap[child]->at_ns >= due->at_ns)
            break;
        put(dues, dues->heap[child], place);
    }
    put(dues, due, place);
}

static void take_out(struct dues *dues, struct due *due)
{
    struct due *last = dues->heap[dues->n_dues--];
    if (last != due) {
        put(dues, last, due->place);
        rise(dues, last);
        sink(dues, last);
    }
    due->place = 0;
}

void due_set(struct dues *dues, struct due *due, uint64_t at_ns)
{
    if (at_ns == STINT_NEVER_NS) {
        if (due->place != 0)
            take_out(dues, due);
        return;
    }
    due->at_ns = at_ns;
    if (due->place == 0) {
        assert(dues->n_dues + 1 < dues->capacity);
        put(dues, due, ++dues->n_dues);
    }
    rise(dues, due);
    sink(dues, due);
}

struct due *dues_first(const struct dues *dues)
{
    return dues->n_dues > 0 ? dues->heap[1] : NULL;
}
