/* SPDX-License-Identifier: MIT */
/*
 * Lists of the keys used most, as a server has them: a key may have a kind, such as its rule, and
 * two labels before its text. stint.h describes a list.
 */
#ifndef STINT_LIMITER_TOP_H
#define STINT_LIMITER_TOP_H

#include "base/span.h"

#include "stint.h"

#define TOP_LABELS 2
#define TOP_LABEL_SIZE 96 /* of each, with its end */

/* One use of a key. */
struct top_use {
    uint64_t kind;                  /* equal keys of two kinds are different */
    const char *labels[TOP_LABELS]; /* kept as "LABEL\0LABEL\0KEY", each cut. NULL: only the key */
    size_t label_sizes[TOP_LABELS]; /* with their terminators, at most TOP_LABEL_SIZE */
    struct span key;
    size_t key_max; /* bytes of it that are kept */
    uint64_t units;
    bool is_denied;
    uint64_t now_ns;
};

void top_note(struct stint_top *top, const struct top_use *use);

#endif
