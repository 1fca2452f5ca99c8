/* SPDX-License-Identifier: MIT */
/* What the files of a question share. */
#ifndef STINT_DECIDE_QUESTION_PARTS_H
#define STINT_DECIDE_QUESTION_PARTS_H

#include "decide/errand.h"
#include "decide/question.h"

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
           !target->stepped_back;
}

/* Units of a target that stay charged if its reservation is never settled. */
static inline uint32_t question_kept(const struct question *question, const struct target *target)
{
    if (question->has_on_expiry)
        return question->kept_units;
    return target->rule != NULL && target->rule->has_on_expiry ? target->rule->kept_units
                                                               : STINT_KEEP_ALL;
}

/* Where this run says nothing: it is to be given up. */
static inline bool question_is_given_up(const struct question *question)
{
    return question->is_waiting || question->fault != 0;
}

/* One ask under a quota on a target's key, wherever its states are. */
struct stint_decision question_ask_one(struct question *question, struct target *target,
                                       const struct stint_quota *quota,
                                       const struct stint_ask *ask);
/* The same, in the table; once, however often the request is run. */
struct stint_decision question_ask_table(struct question *question, const struct target *target,
                                         const struct stint_quota *quota,
                                         const struct stint_ask *ask);
/* The same, in its store. */
struct stint_decision question_ask_store(struct question *question, struct target *target,
                                         const struct stint_quota *quota,
                                         const struct stint_ask *ask);
/*
 * The same in two steps, for asks that are to be on their way together: all are sent before the
 * first is read, since what stands in for a store that is away may be asked then. NULL: no answer.
 */
const struct shared_answer *question_send(struct question *question, struct target *target,
                                          const struct stint_quota *quota,
                                          const struct stint_ask *ask);
struct stint_decision question_read(struct question *question, struct target *target,
                                    const struct stint_quota *quota, const struct stint_ask *ask,
                                    const struct shared_answer *answer);

/* RULE of a key's name. Without a rule the states are those of the quota's parameters. */
#define QUESTION_NAME_SIZE 24 /* a mark, and 16 digits */
struct span question_name_of(const struct target *target, const struct stint_quota *quota,
                             char room[QUESTION_NAME_SIZE]);

/*
 * Of the ticket that the question was filled from: the record of all live items, or where a mark is
 * given that of one which is not enforced. NULL: given up.
 */
const struct shared_answer *question_ask_ticket(struct question *question, uint8_t verb,
                                                const uint8_t *shadow_mark, size_t item);

/* ---- question_ticket.c: the verbs of question.h, where the states are in a store ------------- */

struct stint_decision question_reserve_shared(struct question *question, uint64_t lifetime_ns,
                                              bool *has_ticket);
struct stint_decision question_book_shared(struct question *question, uint64_t max_wait_ns,
                                           bool *has_ticket);

/*
 * For verbs that charge several states, and have one time to tell: goes on to the latest time that
 * any of these states was charged at. A log has units under exactly that time then.
 */
void question_go_on(struct question *question);

/*
 * Denies targets whose key is blocked, for every verb that asks. Before any unit is charged: so
 * that neither siblings nor the ban itself count it.
 */
void question_find_blocks(struct question *question);
/* After a denial: counts it for the bans of the rules that denied. */
void question_count_denials(struct question *question);

/*
 * The live targets in the table that ask and are neither blocked nor have stepped back; false if
 * there is none.
 */
bool question_gather(struct question *question);
/* What was gathered, as a list. False for what can never be allowed: then its targets say so. */
bool question_list(struct question *question);
/* The list's decisions, to the targets they are of. */
void question_hand_out(struct question *question);

/* ---- question_hits.c: targets that check or charge, each by itself --------------------------- */

/* A target under its own quota or its candidate, and what its store has answered. */
struct question_counted {
    struct target *target;
    const struct stint_quota *quota;
    const struct shared_answer *looked, *charged; /* NULL: not asked, or no answer yet */
};

/* Asks the store of such a target, if it has one; `charges`: hits that are to be charged are. */
void question_send_hits(struct question *question, struct question_counted *counted, bool charges);
/*
 * Reads the answers, or asks the table. Whether the units did not fit: then the decision is a
 * denial, with the wait until one unit fits.
 */
bool question_read_hits(struct question *question, const struct question_counted *counted,
                        bool charges, struct stint_decision *decision);
/* All that are live: before any other unit is taken. */
void question_ask_hits(struct question *question, bool charges);

/* Decides what was gathered. */
void question_ask_gathered(struct question *question, bool charges);
/* The same by best effort: how many each was charged. */
uint32_t question_upto_gathered(struct question *question, uint32_t most);
/* All that take, those in stores as well; perhaps to be given up. */
void question_take_shared(struct question *question, bool charges);
uint32_t question_take_upto_shared(struct question *question, uint32_t most);

/* Whether the live targets, as they were decided, deny the request; one may be left out. */
bool question_is_denied(const struct question *question, size_t except);
/* Targets in quota_mode that are over step back; false if none did. */
bool question_step_back(struct question *question);

/*
 * Decides the live targets, blocks first. Those in quota_mode that are over step back, and the
 * others are asked again: one round more for each at most. Whether the request is denied, where it
 * is not given up.
 */
bool question_ask_live(struct question *question, bool charges);

/*
 * The figures of a target that is not asked for anything: debt, or a booking, does not deny it.
 */
struct stint_decision question_stands(struct question *question, struct target *target);

/* Of a refused request, those that had room: how they stand, now that nothing was taken. */
void question_look_again(struct question *question);

/* The decision of the request out of those of its targets. */
struct stint_decision question_sum(const struct question *question);

/*
 * Shadow targets and candidates, once the live ones are decided: with `verb` where they are to be
 * charged, each its own cost or `most`. Else they are asked what they would say.
 */
void question_ask_shadows(struct question *question, uint8_t verb, uint32_t most);

#endif
