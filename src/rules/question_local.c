/* SPDX-License-Identifier: MIT */
/* A node's share of a quota while the store is away. */
#include "rules/question_local.h"

bool question_local_quota(const struct question_stores *stores, const struct target *target,
                          uint64_t away_since_ns, uint64_t now_ns, struct stint_quota *local)
{
    (void)stores, (void)target, (void)away_since_ns, (void)now_ns, (void)local;
    return false;
}

void question_local_begin(struct question *question, const struct target *target,
                          const struct stint_quota *local, uint64_t away_since_ns)
{
    (void)question, (void)target, (void)local, (void)away_since_ns;
}
