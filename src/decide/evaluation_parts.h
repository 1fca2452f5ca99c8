/* SPDX-License-Identifier: MIT */
/* What the files of an evaluation share. */
#ifndef STINT_DECIDE_EVALUATION_PARTS_H
#define STINT_DECIDE_EVALUATION_PARTS_H

#include "decide/evaluation.h"
#include "decide/pending.h"

#define NO_TARGET SIZE_MAX

/* The decision where nothing limits. */
static inline struct stint_decision decision_unlimited(uint32_t cost)
{
    return (struct stint_decision){.outcome = STINT_ALLOW,
                                   .stored = 1,
                                   .granted = cost,
                                   .limit = UINT32_MAX,
                                   .remaining = UINT32_MAX};
}

static inline bool target_asks(const struct target *target)
{
    return target->part == TARGET_LIVE && !target->is_refund;
}

/* The same, all or nothing with others; only where nothing has denied or excluded it yet. */
static inline bool target_takes(const struct target *target)
{
    return target_asks(target) && target->hits == TARGET_HITS_TAKE && !target->banned &&
           !target->excluded;
}

/* Units of a target that stay charged if its reservation is never settled. */
static inline uint32_t evaluation_kept(const struct evaluation *evaluation,
                                       const struct target *target)
{
    if (evaluation->has_on_expiry)
        return evaluation->kept_units;
    return target->rule != NULL && target->rule->has_on_expiry ? target->rule->kept_units
                                                               : STINT_KEEP_ALL;
}

/* The results of this run do not count: the evaluation is to be suspended. */
static inline bool evaluation_is_given_up(const struct evaluation *evaluation)
{
    return evaluation->is_waiting || evaluation->fault != 0;
}

/*
 * For results and effects of this process that later runs of the request repeat: n of them, to make
 * where *is_new, else to read. `space`, for n, serves a request that never waits. NULL: suspended.
 */
static inline union pending_result *evaluation_note(const struct evaluation *evaluation,
                                                    enum pending_kind kind, size_t n,
                                                    union pending_result *space, bool *is_new)
{
    *is_new = true;
    return evaluation->pending != NULL ? pending_note(evaluation->pending, kind, n, is_new) : space;
}

/* One request under a quota on a target's key, wherever its states are. */
struct stint_decision evaluation_ask_one(struct evaluation *evaluation, struct target *target,
                                         const struct stint_quota *quota,
                                         const struct stint_ask *ask);
/* The same, in the table; done once, however often the evaluation runs. */
struct stint_decision evaluation_ask_table(struct evaluation *evaluation,
                                           const struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask);
/* The same, in its store. */
struct stint_decision evaluation_ask_store(struct evaluation *evaluation, struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask);
/*
 * The same in two steps, for requests that run in parallel: all are sent before the first is read,
 * since reading may evaluate the fallback of an unavailable store. NULL: no answer.
 */
const struct backend_answer *evaluation_send(struct evaluation *evaluation, struct target *target,
                                             const struct stint_quota *quota,
                                             const struct stint_ask *ask);
struct stint_decision evaluation_read(struct evaluation *evaluation, struct target *target,
                                      const struct stint_quota *quota, const struct stint_ask *ask,
                                      const struct backend_answer *answer);

/* RULE of a key's name. Without a rule the states belong to the quota's parameters. */
#define EVALUATION_NAME_SIZE 24 /* a mark, and 16 digits */
struct span evaluation_name_of(const struct target *target, const struct stint_quota *quota,
                               char space[EVALUATION_NAME_SIZE]);

/*
 * For the ticket that the evaluation was filled from: the record of all live items, or with a mark
 * that of one limit that is not enforced. NULL: suspended.
 */
const struct backend_answer *evaluation_ask_ticket(struct evaluation *evaluation, uint8_t verb,
                                                   const uint8_t *shadow_mark, size_t item);

/* ---- evaluation_ticket.c: the verbs of evaluation.h, where the states are in a store ------------
 */

struct stint_decision evaluation_reserve_shared(struct evaluation *evaluation, uint64_t lifetime_ns,
                                                bool *has_ticket);
struct stint_decision evaluation_book_shared(struct evaluation *evaluation, uint64_t max_wait_ns,
                                             bool *has_ticket);

/*
 * For verbs that charge several states and return one time: moves on to the latest time at which
 * any of these states was charged. A log then has units at exactly that time.
 */
void evaluation_go_on(struct evaluation *evaluation);

/*
 * Denies targets whose key is blocked, for every verb that decides. Runs before any unit is
 * charged: so neither siblings nor the ban itself count it.
 */
void evaluation_find_blocks(struct evaluation *evaluation);
/* After a denial: counts it for the bans of the rules that denied. */
void evaluation_count_denials(struct evaluation *evaluation);

/*
 * Collects the live targets in the table that take part and are not blocked or excluded; false if
 * there are none.
 */
bool evaluation_gather(struct evaluation *evaluation);
/* The collected targets, as a list. False: never allowed; the targets then have that result. */
bool evaluation_list(struct evaluation *evaluation);
/* The list's decisions, copied to their targets. */
void evaluation_hand_out(struct evaluation *evaluation);

/* ---- evaluation_hits.c: targets that check or charge, each by itself ----------------------------
 */

/* A target under its own quota or its candidate, and its store's answer. */
struct evaluation_counted {
    struct target *target;
    const struct stint_quota *quota;
    const struct backend_answer *looked, *charged; /* NULL: no request, or no answer yet */
};

/* Sends the store request of such a target, if it has a store; `charges`: hits may be charged. */
void evaluation_send_hits(struct evaluation *evaluation, struct evaluation_counted *counted,
                          bool charges);
/*
 * Reads the answers, or evaluates in the table. Whether the units did not fit: then the decision is
 * a denial, with the wait until one unit fits.
 */
bool evaluation_read_hits(struct evaluation *evaluation, const struct evaluation_counted *counted,
                          bool charges, struct stint_decision *decision);
/* All live ones: before any other unit is taken. */
void evaluation_ask_hits(struct evaluation *evaluation, bool charges);

/* Keeps their decisions for later runs where is_new, else repeats those of an earlier one. */
void evaluation_note_gathered(struct evaluation *evaluation, union pending_result *notes,
                              bool is_new);
/* Decides what was collected. */
void evaluation_ask_gathered(struct evaluation *evaluation, bool charges);
/* The same by best effort: how many units each was charged. */
uint32_t evaluation_upto_gathered(struct evaluation *evaluation, uint32_t most);
/* All that take, those in stores as well; the units may have to be given back. */
void evaluation_take_shared(struct evaluation *evaluation, bool charges);
uint32_t evaluation_take_upto_shared(struct evaluation *evaluation, uint32_t most);

/* Whether the live targets, as decided, deny the request; one may be left out. */
bool evaluation_is_denied(const struct evaluation *evaluation, size_t except);
/* Excludes targets in quota_mode that are over; false if there were none. */
bool evaluation_exclude(struct evaluation *evaluation);

/*
 * Decides the live targets, blocks first. Those in quota_mode that are over are excluded, and the
 * others are evaluated again: one more round for each at most. Whether the request is denied, where
 * it is not suspended.
 */
bool evaluation_ask_live(struct evaluation *evaluation, bool charges);

/* The numbers of a target with no request: neither debt nor a booking denies it. */
struct stint_decision evaluation_stands(struct evaluation *evaluation, struct target *target);

/* For a refused request, the targets that had capacity: their numbers, as nothing was taken. */
void evaluation_look_again(struct evaluation *evaluation);

/* The decision of the request from those of its targets. */
struct stint_decision evaluation_sum(const struct evaluation *evaluation);

/*
 * Shadow targets and candidates, once the live ones are decided: with `verb` where they are to be
 * charged, each its own cost or `most`. Else they are only peeked.
 */
void evaluation_ask_shadows(struct evaluation *evaluation, uint8_t verb, uint32_t most);

#endif
