/* SPDX-License-Identifier: MIT */
/* The content of a request: lists of (key, value), like Envoy's descriptors. All borrowed. */
#ifndef STINT_RULES_DESCRIPTOR_H
#define STINT_RULES_DESCRIPTOR_H

#include "base/span.h"
#include "stint.h"

#define DESCRIPTORS_MAX STINT_ITEMS_MAX /* in one request */
#define ENTRIES_MAX 32                  /* in one descriptor */

struct descriptor_entry {
    struct span key, value;
};

struct descriptor {
    const struct descriptor_entry *entries; /* 1 … ENTRIES_MAX */
    size_t n_entries;
    uint32_t hits;                      /* requested units, where has_hits; 0 only checks */
    bool has_hits;                      /* else the request's cost */
    bool is_refund;                     /* hits are given back, not taken */
    const struct stint_quota *override; /* in place of the matched rule's quota; NULL: none. The
                                           rule's identity is put in where it is used */
};

#endif
