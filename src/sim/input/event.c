/* SPDX-License-Identifier: MIT */
/* Merge sort from below. Logs are nearly sorted, so most merges have nothing to do. */
#include "sim/input/event.h"

#include <stdlib.h>
#include <string.h>

void event_list_deinit(struct event_list *list)
{
    free(list->entries);
    *list = (struct event_list){0};
}

int event_list_add(struct event_list *list, struct event_entry entry, struct stint_error *error)
{
    if (list->n_entries == list->size) {
        size_t size = list->size == 0 ? 4096 : list->size * 2;
        struct event_entry *entries = realloc(list->entries, size * sizeof(*entries));
        if (entries == NULL)
            return err_set(error, STINT_E_SYSTEM, "out of memory for sorting: %zu events so far",
                           list->n_entries);
        list->entries = entries;
        list->size = size;
    }
    list->entries[list->n_entries++] = entry;
    return 0;
}

/* Merges two sorted neighbours, [0, n_left) and [n_left, n), of `from` into `to`. */
static void merge(struct event_entry *to, const struct event_entry *from, size_t n_left, size_t n)
{
    if (n_left == n || from[n_left - 1].at_ns <= from[n_left].at_ns) {
        memcpy(to, from, n * sizeof(*to));
        return;
    }
    size_t left = 0, right = n_left;
    for (size_t i = 0; i < n; i++) {
        /* On equal times the left one goes first: this keeps their order. */
        bool take_left = right == n || (left < n_left && from[left].at_ns <= from[right].at_ns);
        to[i] = take_left ? from[left++] : from[right++];
    }
}

static bool is_sorted(const struct event_list *list)
{
    for (size_t i = 1; i < list->n_entries; i++)
        if (list->entries[i].at_ns < list->entries[i - 1].at_ns)
            return false;
    return true;
}

int event_list_sort(struct event_list *list, struct stint_error *error)
{
    size_t n = list->n_entries;
    if (is_sorted(list))
        return 0;
    struct event_entry *from = list->entries, *to = malloc(n * sizeof(*to));
    if (to == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for sorting %zu events", n);
    for (size_t half = 1; half < n; half *= 2) {
        for (size_t at = 0; at < n; at += 2 * half) {
            size_t n_here = n - at < 2 * half ? n - at : 2 * half;
            merge(to + at, from + at, half < n_here ? half : n_here, n_here);
        }
        struct event_entry *swap = from;
        from = to;
        to = swap;
    }
    free(to);
    list->entries = from;
    list->size = n;
    return 0;
}
