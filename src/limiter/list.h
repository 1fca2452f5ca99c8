/* SPDX-License-Identifier: MIT */
/*
 * Several (quota, key, cost) charged all or none: what take, take_upto, reserve and book share.
 */
#ifndef STINT_LIMITER_LIST_H
#define STINT_LIMITER_LIST_H

#include "table/table.h"

/* One quota of a request, equal ones merged. */
struct list_part {
    const struct stint_quota *quota;
    const void *key; /* NULL if only the hash is known */
    size_t key_len;
    struct hash128 hash;
    uint32_t cost;   /* the sum over equal ones */
    uint32_t times;  /* how many were equal */
    uint8_t index;   /* of the first of them in the request */
    uint64_t holder; /* concurrency: the value that take returned */
    struct undo undo;
    struct stint_decision decision;
};

struct list {
    struct stint_table *table;
    struct list_part parts[STINT_ITEMS_MAX];
    size_t n_parts;
    uint8_t part_of[STINT_ITEMS_MAX]; /* set by list_init(): the part of each item */
    size_t n_items;
    uint64_t now_ns;
    bool is_hashed; /* by list_init_hashed() */
};

/* Between calls: parts and items are within their bounds, and each item has a part. */
bool list_is_valid(const struct list *list);

/* False for a request that can never be allowed: empty, too long, or a cost that overflows. */
bool list_init(struct list *list, struct stint_table *table, const struct stint_item *items,
               size_t n_items, uint64_t now_ns);

/* The same for states whose hashes are known, all different; blocks of keys are not checked. */
void list_init_hashed(struct list *list, struct stint_table *table, uint64_t now_ns);
void list_add_hashed(struct list *list, const struct stint_quota *quota, struct hash128 hash,
                     uint32_t cost);

/*
 * Runs `verb` on every part with its own cost, charging nothing back; keeps the decisions. Their
 * sum: charge and refund return the least that any part moved.
 */
struct stint_decision list_ask(struct list *list, uint8_t verb, uint64_t at_ns);

/* The same for one part. */
struct stint_decision list_ask_part(struct list *list, size_t part, uint8_t verb, uint64_t at_ns);

/* Gives back what the first n parts were charged, each its own cost; `verb`: REFUND or UNBOOK. */
void list_take_back(struct list *list, size_t n, uint8_t verb);

/* Whether a has a smaller share of its limit left than b; under a limit of 0 it is none. */
bool list_has_less(const struct stint_decision *a, const struct stint_decision *b);

/* Combines the decisions of all parts: docs/semantics.md, 3.2. */
struct stint_decision list_sum(const struct list *list);

/* Takes every part's cost, or none. */
struct stint_decision list_take(struct list *list);

/* The same number of units from every part, as many as all allow, at most `most`. */
struct stint_decision list_take_upto(struct list *list, uint32_t most);

#endif
