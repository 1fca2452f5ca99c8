/* SPDX-License-Identifier: MIT */
/*
 * The guarantees of a checked quota, in words and with its own numbers. Each call appends one or
 * more complete statements without a line break.
 */
#ifndef STINT_ALGORITHM_LABEL_H
#define STINT_ALGORITHM_LABEL_H

#include "base/buf.h"

/* What the algorithm allows. */
void label_algorithm(struct buf *buf, const struct stint_quota *quota);

/* The most that is admitted in any window of the period, and the exceptions. */
void label_bound(struct buf *buf, const struct stint_quota *quota);

/* When it may deny although the exact count would fit; "never" where it does not. */
void label_slack(struct buf *buf, const struct stint_quota *quota);
/* Why a wait may be longer than the period; nothing if it never is. */
void label_wait(struct buf *buf, const struct stint_quota *quota);

/* Bytes of one key's state. */
void label_bytes(struct buf *buf, const struct stint_quota *quota);

/*
 * The policy when the table is full, and its effect on the bound: that of a server with default
 * settings and that of the library, where they differ.
 */
void label_policy(struct buf *buf, const struct stint_quota *quota);

#endif
