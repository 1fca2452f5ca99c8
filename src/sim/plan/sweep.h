/* SPDX-License-Identifier: MIT */
/*
 * How much of a limit its callers get to use: many quotas of the same limit and period decide over
 * the same demands, and the units that each admits are held against limit and exact count.
 *
 * Quotas are compared seed by seed, on the same requests: what the demand itself leaves unused is
 * the same for all of them, and drops out.
 */
#ifndef STINT_SIM_PLAN_SWEEP_H
#define STINT_SIM_PLAN_SWEEP_H

#include "base/err.h"
#include "base/span.h"

#define SWEEP_SETTINGS_MAX 2048
#define SWEEP_DEMANDS_MAX 16
#define SWEEP_SEEDS_MAX 999
#define SWEEP_PERIODS_MAX 100000
#define SWEEP_ASKS_MAX 1e9 /* of one quota in one round */
#define SWEEP_NAME_MAX 32

/* ---- Demands ---- */

/* All but `greedy` ask for single units, `demand` times the limit in a period on average. */
enum sweep_burstiness {
    SWEEP_SMOOTH,  /* at equal distances */
    SWEEP_POISSON, /* at random, each unit by itself */
    SWEEP_ONOFF,   /* at random while on; on and off last as long as a Pareto algorithm says */
    SWEEP_GREEDY,  /* takes all that is free at every instant */
};

struct sweep_demand {
    enum sweep_burstiness burstiness;
    double on_share;           /* SWEEP_ONOFF: of the time */
    uint64_t cycle_ns;         /* SWEEP_ONOFF: on and off together, on average; 0: a period */
    char name[SWEEP_NAME_MAX]; /* as it was given */
};

/* Reads smooth, poisson, greedy, or onoff:SHARE%[/CYCLE] with a share from 1% to 99%. */
int sweep_demand_parse(struct sweep_demand *demand, struct span name, struct stint_error *error);

/* ---- Settings ---- */

enum sweep_group {
    SWEEP_EXACT,  /* `log`, the yardstick: always the first setting, and the only one of its kind */
    SWEEP_WINDOW, /* `window` of one resolution */
    SWEEP_SPLIT,  /* `buckets` that share a number of buckets between time and count */
    SWEEP_GRID,   /* `buckets` of one time_slack and one count_slack */
    SWEEP_ALSO,   /* any other quota */
};

struct sweep_setting {
    struct stint_quota quota;
    enum sweep_group group;
    uint32_t buckets;    /* SWEEP_SPLIT: how many may be alive */
    uint32_t timed;      /* and how many of these are there for time: W / O, rounded up */
    uint32_t most_alive; /* buckets that were seen alive at once */
    size_t state_at;     /* where its state is, in words of 8 bytes */
};

struct sweep_terms {
    uint32_t limit;
    uint64_t period_ns;
    double demand;    /* as a multiple of the limit */
    uint64_t seed;    /* of the first; the others follow it */
    uint32_t seeds;   /* rounds for each demand */
    uint32_t periods; /* that a round measures */
};

struct sweep {
    struct sweep_terms terms;
    struct sweep_demand demands[SWEEP_DEMANDS_MAX];
    struct sweep_setting *settings;
    size_t n_demands, n_settings;
    size_t rounds;  /* that are done, of n_demands * seeds */
    uint64_t asked; /* decisions, in all */
    size_t states_size;
    uint64_t *states; /* of all settings, zeroed for every round */
    double *weighed;  /* by setting: units of this round, each by its weight */
    double *shares;   /* by demand, seed and setting */
};

/* Takes the terms over and adds the exact count. A message for terms that cannot be met. */
int sweep_init(struct sweep *sweep, const struct sweep_terms *terms, struct stint_error *error);
void sweep_deinit(struct sweep *sweep);

int sweep_add_demand(struct sweep *sweep, const struct sweep_demand *demand,
                     struct stint_error *error);
int sweep_add_window(struct sweep *sweep, uint32_t resolution, struct stint_error *error);
/*
 * Every split of so many buckets: none for time (form B), then a = 1, 2, … of them with O = W / a
 * and the k that the others suffice for (form AB), then all but one for time alone (form A).
 */
int sweep_add_splits(struct sweep *sweep, uint32_t buckets, struct stint_error *error);
/* A slack of 0 is none; not both. */
struct sweep_slack {
    uint64_t time_ns;
    uint32_t count;
};
int sweep_add_grid(struct sweep *sweep, struct sweep_slack slack, struct stint_error *error);
int sweep_add_quota(struct sweep *sweep, const struct stint_quota *quota,
                    struct stint_error *error);

/* ---- Running ---- */

/* All settings and demands are in: makes room for states and results. */
int sweep_begin(struct sweep *sweep, struct stint_error *error);
static inline size_t sweep_rounds(const struct sweep *sweep)
{
    return sweep->n_demands * sweep->terms.seeds;
}
/* One seed of one demand; the demands take turns, so that none is ahead by more than one seed. */
int sweep_round(struct sweep *sweep, struct stint_error *error);

/* ---- Results ---- */

/* Over the seeds: the median, and the ends of the middle half. */
struct sweep_spread {
    double low, median, high;
};

/* Rounds of this demand that are done. */
uint32_t sweep_seeds_done(const struct sweep *sweep, size_t demand);
/* One round's: units admitted in a period, as a share of the limit. */
double sweep_share(const struct sweep *sweep, size_t setting, size_t demand, uint32_t seed);
/* The same as a share of what the exact count admitted of the same requests. */
double sweep_of_exact(const struct sweep *sweep, size_t setting, size_t demand, uint32_t seed);
struct sweep_spread sweep_spread(const struct sweep *sweep, size_t setting, size_t demand,
                                 double (*figure)(const struct sweep *sweep, size_t setting,
                                                  size_t demand, uint32_t seed));

/* How many of n seeds have to agree that chance alone would not have them do so 1 time in 20. */
uint32_t sweep_agreeing(uint32_t n);
/* Whether setting `than` admits more on so many seeds that it is no accident. */
bool sweep_is_worse(const struct sweep *sweep, size_t setting, size_t than, size_t demand);
/* The setting with the highest median among the splits of so many buckets. */
size_t sweep_best_split(const struct sweep *sweep, uint32_t buckets, size_t demand);

#endif
