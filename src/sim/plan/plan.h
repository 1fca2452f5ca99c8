/* SPDX-License-Identifier: MIT */
/*
 * Finds quotas that deny few: for each key of a log the most units that it requested in any window,
 * counted exactly; from these the candidates for limits; and of those the least one that meets the
 * target when the engine itself decides the log.
 *
 * An exact limiter denies a key something if and only if its peak is above the limit: until the
 * first denial nothing was refused yet. `window` may deny earlier, by its slack, so the search goes
 * up from there, and tries.
 *
 * Memory: 16 bytes for each key beside the traffic, and 16 for each time of one key within the
 * period.
 */
#ifndef STINT_SIM_PLAN_PLAN_H
#define STINT_SIM_PLAN_PLAN_H

#include "base/err.h"
#include "base/span.h"
#include "sim/input/event.h"
#include "sim/judge/exact.h"

/* ---- Traffic --------------------------------------------------------------------------------- */

/*
 * The requests of a log, each key's together and in the order of time, so that a quota can be tried
 * on one key at a time.
 *
 * Memory: 12 bytes for each request and 8 for each key, and while it is made those of the list too.
 */

struct traffic {
    uint64_t *at_ns; /* since the epoch of its creation */
    uint32_t *costs;
    size_t *begins; /* of key k: begins[k] … begins[k + 1] - 1 */
    size_t n_requests;
    uint32_t n_keys;
};

/*
 * The times in the list never go back and are not before epoch_ns; its keys are below n_keys. The
 * list is emptied. 0, or STINT_E_SYSTEM if there is no memory.
 */
int traffic_init(struct traffic *traffic, struct event_list *events, uint32_t n_keys,
                 uint64_t epoch_ns, struct stint_error *error);
void traffic_deinit(struct traffic *traffic);

/* ---- The plan -------------------------------------------------------------------------------- */

/* The target, how many may be denied: `deny at most 0.1 % of keys`. */
#define PLAN_TARGET_DEFAULT "deny at most 0.1 % of keys"

struct plan_target {
    bool of_keys;    /* else of requests */
    bool is_percent; /* then `number` is in billionths of a percent */
    uint64_t number;
};

/* Reads `[deny at most] NUMBER [%] [of] keys|requests`. 0, STINT_E_SYNTAX, or STINT_E_RANGE. */
int plan_target_parse(struct plan_target *target, const char *text, struct stint_error *error);

/* The greatest number that meets it, rounded down, for this many keys or requests. */
uint64_t plan_target_most(const struct plan_target *target, uint64_t n_all);

/* The code of a search that was stopped; its output is then incomplete. */
#define PLAN_STOPPED 1

struct plan_peak {
    uint64_t units; /* the most requested in any window of the period */
    uint32_t key;
};

struct plan {
    const struct traffic *traffic;
    uint64_t period_ns;
    struct plan_peak *peaks; /* the highest first */
    /* Called now and then, with `arg`; NULL: continues to the end. */
    bool (*goes_on)(void *arg);
    void *arg;
};

/* The effect of a quota on the log: keys denied at least once, and requests denied. */
struct plan_touch {
    uint64_t keys, requests;
};

enum plan_found {
    PLAN_FOUND,
    PLAN_REFUSED, /* such a quota is not valid: see the message */
    PLAN_NO_LIMIT /* also the greatest one misses the target */
};

struct plan_proposal {
    enum plan_found found;
    struct stint_quota quota;
    struct plan_touch touch;
    char why[STINT_ERROR_MAX]; /* where it was refused */
};

/* `traffic` is borrowed. 0 or a negative code; then there is nothing to free. */
int plan_init(struct plan *plan, const struct traffic *traffic, struct stint_error *error);
void plan_deinit(struct plan *plan);

/* Counts the peak of each key in any window of the period: to be called first. */
int plan_set_period(struct plan *plan, uint64_t period_ns, struct stint_error *error);

/* Receives each key that is denied something, with the number of its denied requests. */
struct plan_sees {
    void (*denied)(void *arg, uint32_t key, uint64_t requests);
    void *arg;
};

/*
 * Decides the log by the engine under a quota with the plan's period. Keys that the quota's
 * algorithm cannot deny, by their peak, are skipped. `sees` may be NULL.
 */
int plan_try(const struct plan *plan, const struct stint_quota *quota, struct plan_touch *touch,
             const struct plan_sees *sees, struct stint_error *error);

/*
 * The least quota per period that touches no more than the target: `algorithm` is STINT_WINDOW,
 * STINT_LOG or STINT_GCRA. The next smaller limit misses the target. gcra has the limit of window,
 * and the least burst with it: the next smaller burst misses the target.
 */
int plan_least(const struct plan *plan, enum stint_algorithm algorithm,
               const struct plan_target *target, struct plan_proposal *proposal,
               struct stint_error *error);

#endif
