/* SPDX-License-Identifier: MIT */
/*
 * What a checked quota promises, in words and in its own numbers. Each call appends one or more
 * whole messages without a line break.
 */
#ifndef STINT_ALGORITHM_LABEL_H
#define STINT_ALGORITHM_LABEL_H

#include "base/buf.h"

/* The algorithm: what is allowed. */
void label_algorithm(struct buf *buf, const struct stint_quota *quota);

/* The most that is admitted in any window of the period, and what that leaves out. */
void label_bound(struct buf *buf, const struct stint_quota *quota);

/* When it may deny although the exact count has room; "never" where it does not. */
void label_slack(struct buf *buf, const struct stint_quota *quota);

/* Bytes of one key's state. */
void label_bytes(struct buf *buf, const struct stint_quota *quota);

/*
 * Which policy it runs under when the table is full, and what that does to the bound: of a server
 * with default settings and of the library, where they differ.
 */
void label_policy(struct buf *buf, const struct stint_quota *quota);

#endif
