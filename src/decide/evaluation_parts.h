/* SPDX-License-Identifier: MIT */
/*
 * What the files of an evaluation share. Each file uses those before it: evaluation_ask.c asks the
 * table and the stores; evaluation_blocks.c denies by blocks and bans; evaluation.c fills;
 * evaluation_ticket.c has the tickets of stores; evaluation_move.c has the verbs that move units;
 * evaluation_live.c has those that decide.
 */
#ifndef STINT_DECIDE_EVALUATION_PARTS_H
#define STINT_DECIDE_EVALUATION_PARTS_H

#include "decide/evaluation.h"
#include "decide/pending.h"

#include <assert.h>

/* The decision where nothing limits. */
static inline struct stint_decision decision_unlimited(uint32_t cost)
{
    return (struct stint_decision){.outcome = STINT_ALLOW,
                                   .stored = 1,
                                   .granted = cost,
                                   .limit = UINT32_MAX,
                                   .remaining = UINT32_MAX};
}

static inline size_t evaluation_index(const struct evaluation *evaluation,
                                      const struct target *target)
{
    assert(target >= evaluation->targets && target < evaluation->targets + evaluation->n_targets);
    return (size_t)(target - evaluation->targets);
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

/* The same, once it is decided: units of it were taken. */
static inline bool target_is_charged(const struct target *target)
{
    return target_takes(target) && !target->over;
}

static inline bool target_has_ban(const struct target *target)
{
    return target->rule != NULL && target->rule->ban.after > 0;
}

/*
 * As long as anything in quota mode passes, what is over in it denies nothing. A limit in shadow
 * mode and a descriptor without a limit also pass, where all are in quota mode. An unlimited one
 * does not count.
 */
static inline bool target_passes_in_quota_mode(const struct target *target)
{
    bool is_unlimited = target->quota == NULL && target->rule != NULL && target->rule->unlimited;
    return target->is_quota_mode && !target->is_refund && !is_unlimited &&
           (!target_asks(target) || !target->over);
}

/* The second quota of its rule; NULL: none. */
static inline const struct stint_quota *target_candidate(const struct target *target)
{
    return target->rule != NULL && target->rule->has_shadow ? &target->rule->shadow : NULL;
}

/* Those that distinguish units of different times. */
static inline bool quota_keeps_times(const struct stint_quota *quota)
{
    return quota != NULL && (quota->algorithm == STINT_LOG || quota->algorithm == STINT_BUCKETS);
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

/* Whether units come back after the takes of the request, maybe to one of their states. */
static inline bool evaluation_gives_back(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].is_refund)
            return true;
    return false;
}

/* ---- evaluation_ask.c --------------------------------------------------------------------------
 */

/*
 * One request under a quota on a target's key in the table; done once, however often the
 * evaluation runs.
 */
struct stint_decision evaluation_ask_table(struct evaluation *evaluation,
                                           const struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask);

/* One target under one quota, apart from all others. */
struct evaluation_step {
    struct target *target;
    const struct stint_quota *quota;               /* the target's own, or its candidate */
    const struct backend_answer *looked, *charged; /* of the store; NULL: no request, no answer */
    struct stint_ask ask;                          /* unless it has hits */
    uint8_t hits;                                  /* enum target_hits */
    bool charges;                                  /* hits may be charged */
};
/* is_over: the units did not fit. Of hits the decision is a denial then, until one unit fits. */
typedef void evaluation_step_end(struct evaluation *evaluation, const struct evaluation_step *step,
                                 const struct stint_decision *decision, bool is_over);
/*
 * The table first: it is charged also where no store ever answers. Then all store requests are
 * sent, and read after that: a fallback may add notes, and a later run has to make the same
 * requests in the same order.
 */
void evaluation_run_steps(struct evaluation *evaluation, struct evaluation_step *steps, size_t n,
                          evaluation_step_end *end);
/* The numbers of targets with no request: neither debt nor a booking denies them. */
void evaluation_look(struct evaluation *evaluation, struct target *const *targets, size_t n);

/* The live targets of one store that take, all or nothing: its answer in this evaluation. */
struct evaluation_group {
    const struct backend_answer *answer; /* NULL: no request */
    uint32_t granted;                    /* at most, of each item; 0: denied or peeked */
};
#define EVALUATION_STORES_MAX 64 /* of one request */
/*
 * Sends all of them, at most `most` units of each target, and reads them if none is missing: also
 * where one has a fault, as the others may have been granted units.
 */
void evaluation_ask_groups(struct evaluation *evaluation, uint8_t verb, uint32_t most,
                           struct evaluation_group *groups);
/* Gives back what stores were granted of each item beyond the units kept. */
void evaluation_take_back(struct evaluation *evaluation, const struct evaluation_group *groups,
                          uint32_t kept);

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

/* ---- evaluation_blocks.c ---- */

/*
 * Denies targets whose key is blocked, for every verb that decides. Runs before any unit is
 * charged: so neither siblings nor the ban itself count it. max_wait_ns: of STINT_BOOK.
 */
void evaluation_find_blocks(struct evaluation *evaluation, uint8_t verb, uint64_t max_wait_ns);
/* After a denial: counts it for the bans of the rules that denied. */
void evaluation_count_denials(struct evaluation *evaluation);

/* ---- evaluation.c ---- */

/* Whether the live targets, as decided, deny the request; one may be left out. */
#define NO_TARGET SIZE_MAX
bool evaluation_is_denied(const struct evaluation *evaluation, size_t except);
/* The decision of the request from those of its targets. */
struct stint_decision evaluation_sum(const struct evaluation *evaluation, bool is_denied);

/* ---- evaluation_move.c ---- */

/*
 * For verbs that charge several states and return one time: moves on to the latest time at which
 * any of these states was charged. A log then has units at exactly that time.
 */
void evaluation_go_on(struct evaluation *evaluation);
/* Units that come back with a request that is allowed; else only their numbers. */
void evaluation_ask_refunds(struct evaluation *evaluation, bool charges);

/* ---- evaluation_ticket.c ------------------------------------------------------------------------
 */

/* Before anything is charged. False: no ticket can be made, and evaluation.fault has the reason. */
bool evaluation_begin_ticket(struct evaluation *evaluation, bool books, uint64_t lifetime_ns);

#endif
