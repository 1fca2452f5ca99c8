/* SPDX-License-Identifier: MIT */
/* What the files of a question share. */
#ifndef STINT_DECIDE_EVALUATION_PARTS_H
#define STINT_DECIDE_EVALUATION_PARTS_H

#include "decide/evaluation.h"
#include "decide/pending.h"

#define NO_TARGET SIZE_MAX

/* What is said of whatever nothing limits. */
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

/* The same, all or nothing with others, where nothing else has denied or let it go yet. */
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

/* Where this run says nothing: it is to be given up. */
static inline bool evaluation_is_given_up(const struct evaluation *evaluation)
{
    return evaluation->is_waiting || evaluation->fault != 0;
}

/* One ask under a quota on a target's key, wherever its states are. */
struct stint_decision evaluation_ask_one(struct evaluation *evaluation, struct target *target,
                                         const struct stint_quota *quota,
                                         const struct stint_ask *ask);
/* The same, in the table; once, however often the request is run. */
struct stint_decision evaluation_ask_table(struct evaluation *evaluation,
                                           const struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask);
/* The same, in its store. */
struct stint_decision evaluation_ask_store(struct evaluation *evaluation, struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask);
/*
 * The same in two steps, for asks that are to be on their way together: all are sent before the
 * first is read, since what replaces a store that is away may be asked then. NULL: no answer.
 */
const struct backend_answer *evaluation_send(struct evaluation *evaluation, struct target *target,
                                             const struct stint_quota *quota,
                                             const struct stint_ask *ask);
struct stint_decision evaluation_read(struct evaluation *evaluation, struct target *target,
                                      const struct stint_quota *quota, const struct stint_ask *ask,
                                      const struct backend_answer *answer);

/* RULE of a key's name. Without a rule the states are those of the quota's parameters. */
#define EVALUATION_NAME_SIZE 24 /* a mark, and 16 digits */
struct span evaluation_name_of(const struct target *target, const struct stint_quota *quota,
                               char space[EVALUATION_NAME_SIZE]);

/*
 * Of the ticket that the question was filled from: the record of all live items, or where a mark is
 * given that of one which is not enforced. NULL: given up.
 */
const struct backend_answer *evaluation_ask_ticket(struct evaluation *evaluation, uint8_t verb,
                                                   const uint8_t *shadow_mark, size_t item);

/* ---- evaluation_ticket.c: the verbs of question.h, where the states are in a store -------------
 */

struct stint_decision evaluation_reserve_shared(struct evaluation *evaluation, uint64_t lifetime_ns,
                                                bool *has_ticket);
struct stint_decision evaluation_book_shared(struct evaluation *evaluation, uint64_t max_wait_ns,
                                             bool *has_ticket);

/*
 * For verbs that charge several states, and have one time to tell: goes on to the latest time that
 * any of these states was charged at. A log has units under exactly that time then.
 */
void evaluation_go_on(struct evaluation *evaluation);

/*
 * Denies targets whose key is blocked, for every verb that asks. Before any unit is charged: so
 * that neither siblings nor the ban itself count it.
 */
void evaluation_find_blocks(struct evaluation *evaluation);
/* After a denial: counts it for the bans of the rules that denied. */
void evaluation_count_denials(struct evaluation *evaluation);

/*
 * The live targets in the table that ask and are neither blocked nor have was excluded; false if
 * there is none.
 */
bool evaluation_gather(struct evaluation *evaluation);
/* What was gathered, as a list. False for what can never be allowed: then its targets say so. */
bool evaluation_list(struct evaluation *evaluation);
/* The list's decisions, to the targets they are of. */
void evaluation_hand_out(struct evaluation *evaluation);

/* ---- evaluation_hits.c: targets that check or charge, each by itself ---------------------------
 */

/* A target under its own quota or its candidate, and what its store has answered. */
struct evaluation_counted {
    struct target *target;
    const struct stint_quota *quota;
    const struct backend_answer *looked, *charged; /* NULL: not asked, or no answer yet */
};

/* Asks the store of such a target, if it has one; `charges`: hits that are to be charged are. */
void evaluation_send_hits(struct evaluation *evaluation, struct evaluation_counted *counted,
                          bool charges);
/*
 * Reads the answers, or asks the table. Whether the units did not fit: then the decision is a
 * denial, with the wait until one unit fits.
 */
bool evaluation_read_hits(struct evaluation *evaluation, const struct evaluation_counted *counted,
                          bool charges, struct stint_decision *decision);
/* All that are live: before any other unit is taken. */
void evaluation_ask_hits(struct evaluation *evaluation, bool charges);

/* Decides what was gathered. */
void evaluation_ask_gathered(struct evaluation *evaluation, bool charges);
/* The same by best effort: how many each was charged. */
uint32_t evaluation_upto_gathered(struct evaluation *evaluation, uint32_t most);
/* All that take, those in stores as well; perhaps to be given up. */
void evaluation_take_shared(struct evaluation *evaluation, bool charges);
uint32_t evaluation_take_upto_shared(struct evaluation *evaluation, uint32_t most);

/* Whether the live targets, as they were decided, deny the request; one may be left out. */
bool evaluation_is_denied(const struct evaluation *evaluation, size_t except);
/* Targets in quota_mode that are over step back; false if none did. */
bool evaluation_exclude(struct evaluation *evaluation);

/*
 * Decides the live targets, blocks first. Those in quota_mode that are over step back, and the
 * others are asked again: one round more for each at most. Whether the request is denied, where it
 * is not given up.
 */
bool evaluation_ask_live(struct evaluation *evaluation, bool charges);

/*
 * The figures of a target that is not asked for anything: debt, or a booking, does not deny it.
 */
struct stint_decision evaluation_stands(struct evaluation *evaluation, struct target *target);

/* Of a refused request, those that had room: how they stand, now that nothing was taken. */
void evaluation_look_again(struct evaluation *evaluation);

/* The decision of the request out of those of its targets. */
struct stint_decision evaluation_sum(const struct evaluation *evaluation);

/*
 * Shadow targets and candidates, once the live ones are decided: with `verb` where they are to be
 * charged, each its own cost or `most`. Else they are asked what they would say.
 */
void evaluation_ask_shadows(struct evaluation *evaluation, uint8_t verb, uint32_t most);

#endif
