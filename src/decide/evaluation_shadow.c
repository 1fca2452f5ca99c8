/* SPDX-License-Identifier: MIT */
/* Limits that are not enforced: evaluated apart from the live ones, each by itself. */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"

/* One target under a quota that is not enforced: its own or its candidate, with its requests. */
struct aside {
    struct evaluation_counted counted; /* takes and peeks have their answer in `looked` */
    struct stint_ask ask;
    bool charges_hits;
};

static bool is_candidate(const struct aside *aside)
{
    return aside->counted.quota != aside->counted.target->quota;
}

static bool is_in_store(const struct aside *aside)
{
    return aside->counted.target->store != 0;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void send_aside(struct evaluation *evaluation, struct aside *aside)
{
    struct evaluation_counted *counted = &aside->counted;
    if (counted->target->hits != TARGET_HITS_TAKE)
        evaluation_send_hits(evaluation, counted, aside->charges_hits);
    else
        counted->looked = evaluation_send(evaluation, counted->target, counted->quota, &aside->ask);
}

static struct stint_decision read_units(struct evaluation *evaluation, const struct aside *aside)
{
    const struct evaluation_counted *counted = &aside->counted;
    if (!is_in_store(aside))
        return evaluation_ask_table(evaluation, counted->target, counted->quota, &aside->ask);
    return evaluation_read(evaluation, counted->target, counted->quota, &aside->ask,
                           counted->looked);
}

/* Best effort that got less than it wanted would also have been limited. */
static bool is_over(const struct stint_decision *decision, const struct stint_ask *ask)
{
    return decision->outcome != STINT_ALLOW ||
           (ask->verb == STINT_TAKE_UPTO && decision->granted < ask->cost);
}

/* ---- Outcomes -------------------------------------------------------------------------------- */

/*
 * These charges do not depend on other limits, as under an enforced quota. The decision of a shadow
 * rule is reported as ALLOW.
 */
static void read_aside(struct evaluation *evaluation, const struct aside *aside)
{
    struct target *target = aside->counted.target;
    struct stint_decision decision;
    bool over;
    if (target->hits != TARGET_HITS_TAKE) {
        over = evaluation_read_hits(evaluation, &aside->counted, aside->charges_hits, &decision);
    } else {
        decision = read_units(evaluation, aside);
        over = is_over(&decision, &aside->ask);
    }
    if (is_candidate(aside)) {
        target->shadow_over = over;
        target->shadow_retry_after_ns = over ? decision.retry_after_ns : 0;
        return;
    }
    decision.outcome = STINT_ALLOW;
    decision.granted = aside->ask.cost;
    decision.retry_after_ns = 0;
    target->over = over;
    target->decision = decision;
}

/* ---- All of a request ------------------------------------------------------------------------ */

/*
 * The requests of one target: up to two. A candidate decides as if it were live; a limit in shadow
 * mode never decides.
 */
static size_t add_asides(const struct evaluation *evaluation, size_t at, uint8_t verb,
                         uint32_t most, struct target *target, struct aside *asides)
{
    bool has_candidate = target->rule != NULL && target->rule->has_shadow;
    bool is_shadow = target->part == TARGET_SHADOW;
    size_t n = 0;
    if (target->part == TARGET_FREE || target->is_refund || (!is_shadow && !has_candidate))
        return 0;
    bool was_charged = evaluation->has_charged && target->store != evaluation->ticket_store;
    bool is_refused = target->banned || was_charged ||
                      evaluation_is_denied(evaluation, is_shadow ? NO_TARGET : at);
    const struct aside aside = {
        .counted = {.target = target, .quota = target->quota},
        .ask = {.now_ns = evaluation->now_ns,
                .cost = (uint32_t)min_u64(target->cost, most),
                .verb = is_refused ? STINT_PEEK : verb},
        .charges_hits = verb != STINT_PEEK,
    };
    if (is_shadow)
        asides[n++] = aside;
    if (has_candidate) {
        asides[n] = aside;
        asides[n++].counted.quota = &target->rule->shadow;
    }
    return n;
}

/*
 * A store's answers are read after all requests are sent: a fallback may add notes, and a repeated
 * evaluation has to make the same requests in the same order.
 */
void evaluation_ask_shadows(struct evaluation *evaluation, uint8_t verb, uint32_t most)
{
    struct aside asides[2 * TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        n += add_asides(evaluation, i, verb, most, &evaluation->targets[i], &asides[n]);
    for (size_t i = 0; i < n; i++)
        if (is_in_store(&asides[i]))
            send_aside(evaluation, &asides[i]);
        else
            read_aside(evaluation, &asides[i]);
    for (size_t i = 0; i < n; i++)
        if (is_in_store(&asides[i]) && !evaluation_is_given_up(evaluation))
            read_aside(evaluation, &asides[i]);
}
