/* SPDX-License-Identifier: MIT */
/* on_store_error: local. What the table decides by while a store cannot be asked. */
#ifndef STINT_RULES_QUESTION_LOCAL_H
#define STINT_RULES_QUESTION_LOCAL_H

#include "rules/question.h"

/*
 * This node's share of a target's quota, over which all nodes together admit no more than it
 * allows. False once local_for_ns has passed since the store could be asked: local_then holds.
 */
bool question_local_quota(const struct question_stores *stores, const struct target *target,
                          uint64_t away_since_ns, uint64_t now_ns, struct stint_quota *local);

/*
 * Before the key is asked under it: a key that has no state of its own begins with all of its share
 * used at away_since_ns, unless the rule says otherwise. To be called as often as one likes.
 */
void question_local_begin(struct question *question, const struct target *target,
                          const struct stint_quota *local, uint64_t away_since_ns);

#endif
