/* SPDX-License-Identifier: MIT */
/* Items of a request: copies, for what goes on when its caller is gone, and comparison. */
#ifndef STINT_BACKEND_ITEM_COPY_H
#define STINT_BACKEND_ITEM_COPY_H

#include "decide/backend.h"

/*
 * With their quotas, names, keys, and of their rules the domain and the store: in one block of
 * memory, for free(). NULL: no memory.
 */
struct backend_item *item_copy(const struct backend_item *items, size_t n_items);

/* Whether two items are of one state: quota, name and key. */
bool item_is_same(const struct backend_item *a, const struct backend_item *b);

#endif
