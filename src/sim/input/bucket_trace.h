/* SPDX-License-Identifier: MIT */
/*
 * The uses that have the most buckets of a quota alive at once, played through its own algorithm.
 * That no uses can have more alive than the formula says is proved; this shows how near they come.
 */
#ifndef STINT_SIM_INPUT_BUCKET_TRACE_H
#define STINT_SIM_INPUT_BUCKET_TRACE_H

#include "base/err.h"

struct bucket_use {
    uint64_t at_ns;
    uint32_t units;
    uint32_t alive; /* buckets, after it */
};

struct bucket_trace {
    struct bucket_use *uses;
    size_t n_uses;
    uint32_t most_alive;
};

/* The quota is one of `buckets`; it must have passed stint_quota_check(). */
int bucket_trace_init(struct bucket_trace *trace, const struct stint_quota *quota,
                      struct stint_error *error);
void bucket_trace_deinit(struct bucket_trace *trace);

#endif
