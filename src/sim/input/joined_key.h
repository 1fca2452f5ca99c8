/* SPDX-License-Identifier: MIT */
/*
 * A key made of several parts, `a+b`. Parts hold any bytes, so a plus or a backslash inside a part
 * is written with a backslash before it: two different lists of parts never make the same key. A
 * single part is left as it is.
 */
#ifndef STINT_SIM_INPUT_JOINED_KEY_H
#define STINT_SIM_INPUT_JOINED_KEY_H

#include "base/err.h"
#include "base/span.h"

#define JOINED_KEY_PARTS_MAX 8

struct joined_key {
    size_t len;
    uint8_t bytes[STINT_KEY_MAX];
};

/* *key borrows the parts' own memory or that of `joined`. */
int joined_key_make(struct joined_key *joined, struct span *key, const struct span *parts,
                    size_t n_parts, struct stint_error *error);

#endif
