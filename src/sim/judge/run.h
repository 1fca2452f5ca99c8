/* SPDX-License-Identifier: MIT */
/*
 * Runs a workload's requests against the limiter, on virtual time, and tallies the results. The
 * limiter is an ordinary table; its decisions are judged by an oracle that knows only what was
 * admitted.
 */
#ifndef STINT_SIM_JUDGE_RUN_H
#define STINT_SIM_JUDGE_RUN_H

#include "sim/judge/oracle.h"
#include "sim/workload/workload.h"

#define RUN_ORACLE_BYTES_DEFAULT (UINT64_C(1) << 30)

struct run_options {
    const struct stint_quota *quotas; /* several: all or nothing */
    size_t n_quotas;
    const struct workload *workload;          /* as parsed; a copy of it is run */
    const struct stint_quota *workload_quota; /* to which it refers; NULL: the first */
    uint64_t seed;
    uint64_t length_ns;     /* virtual time from 0 on; 0 = 100 of the longest period */
    uint64_t decisions_max; /* 0 = no maximum */
    int64_t epoch_ns;       /* wall clock at 0 */
    uint64_t table_keys;    /* the table's capacity for live keys; 0 = twice as many as come */
    bool without_oracle;
    uint64_t oracle_bytes_max; /* of all quotas together; 0 = RUN_ORACLE_BYTES_DEFAULT */
    /*
     * May be NULL: a clock for the time that decisions take; whether to continue, called now and
     * then; and a function that receives each decision, with the time that was counted.
     */
    uint64_t (*clock_ns)(void);
    bool (*goes_on)(void *arg, uint64_t decisions, uint64_t now_ns);
    void (*sees)(void *arg, const struct sim_event *event, const struct stint_decision *decision);
    void *arg;
};

/* ---- The figures of one run: what was asked, what was decided, and what was due ---- */

/* How evenly units are spread: Jain's index is sum^2 / (n squares), 1 where all have the same. */
struct tally_shares {
    double n, sum, squares;
};

/* What is said of one quota. */
struct tally_quota {
    uint64_t most, most_at_ns; /* admitted to one key in any window, and its last instant */
    uint64_t bound;            /* stint_max_in_any_window() */
    bool bound_broken;
    uint64_t usable_units; /* of whole periods: the lesser of what was asked for and the limit */
    uint64_t used_units;   /* of these periods: what was admitted */
    /* Admitted after the first two periods; of the first and the last period after them, by part,
     * rising and falling, so that it does not matter where in a period units come back at once. */
    double weighed_units;
    double weighed_limit; /* of one key in that time; 0: the run was too short, or was ended */
};

struct tally {
    uint64_t decisions, allowed, denied, never;
    uint64_t units_asked, units_allowed;
    uint64_t last_ns; /* of the last request */
    uint64_t keys;    /* different ones */
    struct tally_shares key_shares, client_shares;
    uint64_t denied_most; /* times, of one key */
    uint64_t denied_most_key;
    uint64_t unstored; /* decided by what the full table's policy says, not by a state */
    uint64_t evicted;  /* live states that the table gave away: then no bound is claimed */
    uint64_t dropped;  /* repeats that were not made, for want of memory */
    /* Reported waits that were tried with no other request in between. */
    uint64_t waits_tried;
    uint64_t waits_too_long;  /* the same would have been allowed a nanosecond before */
    uint64_t waits_too_short; /* the same was denied when it was told to come */
    /* By the oracle, over the first `judged` decisions: all, unless its memory was used up. */
    bool has_oracle, oracle_full;
    uint64_t judged, oracle_bytes;
    uint64_t false_units;                     /* that these were denied */
    uint64_t false_denials;                   /* every exact count had room */
    uint64_t false_longest, false_longest_ns; /* of one key, with nothing admitted between */
    uint64_t unjustified;                     /* denials outside of all stated slack: a defect */
    uint64_t unjustified_at_ns;               /* the first such */
    uint64_t state_bytes;
    double ns_per_decision; /* in the limiter; 0: not measured */
    bool partial;           /* the run was stopped */
    bool decisions_full;    /* the run ended since it was long enough, before its time was over */
    size_t n_quotas;
    struct tally_quota quotas[STINT_ITEMS_MAX];
};

/* 0 … 1; 1 where nothing was shared out. */
double tally_fairness(const struct tally_shares *shares);
/* used / usable; negative where no whole period was asked for. */
double tally_utilisation(const struct tally_quota *quota);
/* Units admitted in a period, as a share of the limit of all keys; negative where unknown. */
double tally_share_of_limit(const struct tally *tally, size_t quota);
/* Whether something was seen that must not be: a broken bound, an unjustified denial, a wrong wait.
 */
bool tally_is_broken(const struct tally *tally);

/* ---- The run ---- */

/*
 * Capacity for `keys` under every quota, by width of state; of wide states only as many as fit into
 * wide_bytes_max.
 */
void run_size_table(struct stint_table_options *table, const struct stint_quota *quotas,
                    size_t n_quotas, uint64_t keys, uint64_t wide_bytes_max);

/* The virtual time that a run takes, after its defaults. */
uint64_t run_length_ns(const struct run_options *options);

/* 0 or a negative code; *tally is complete if it is 0. */
int run_simulate(const struct run_options *options, struct tally *tally, struct stint_error *error);

#endif
