/* SPDX-License-Identifier: MIT */
/* The figures of one run: what was asked, what was decided, and how that stands to what was due. */
#ifndef STINT_SIM_JUDGE_TALLY_H
#define STINT_SIM_JUDGE_TALLY_H

#include "sim/judge/oracle.h"
#include "sim/workload/workload.h"

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
    uint64_t state_bytes, table_bytes;
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

/* ---- While a run goes on: what is remembered of each place ---- */

struct tally_key {
    uint32_t owner;    /* high half of the key that the place belongs to */
    uint32_t admitted; /* times, modulo 2^32: whether something came between */
    uint64_t units;
    uint64_t last_ns; /* of what was admitted last, by the effective time */
    uint64_t false_since_ns;
    uint32_t false_run;
    uint32_t denied; /* times, up to 2^32-1 */
    bool asked;
};

/* One key's current period under one quota. */
struct tally_period {
    uint64_t ends_ns; /* 0: none yet */
    uint64_t asked, used;
};

struct tally_places {
    struct tally_key *keys;
    struct tally_period *periods; /* n_quotas for each place */
    uint64_t *client_units;       /* NULL where the workload has none */
    uint32_t n_places, n_clients;
    size_t n_quotas;
    uint64_t lengths_ns[STINT_ITEMS_MAX];
    uint64_t limits[STINT_ITEMS_MAX];
    uint64_t end_ns; /* of the run, if it is whole */
};

int tally_places_init(struct tally_places *places, const struct workload *workload,
                      const struct stint_quota *quotas, size_t n_quotas, struct stint_error *error);
void tally_places_deinit(struct tally_places *places);

/* Sums up the place's owner, who is gone. */
void tally_leave(struct tally *tally, struct tally_places *places, uint32_t place);
/* Counts decisions: of the periods of their keys, of their clients, and the totals. */
void tally_count(struct tally *tally, struct tally_places *places, const struct sim_event *events,
                 const struct stint_decision *decisions, size_t n_events);
/* Counts a decision of its key. */
static inline void tally_remember(struct tally_key *key, const struct stint_decision *decision,
                                  const struct oracle_ask *ask)
{
    key->asked = true;
    if (decision->outcome != STINT_ALLOW) {
        key->denied += key->denied < UINT32_MAX;
        return;
    }
    key->admitted++;
    key->units += ask->cost;
    key->last_ns = ask->counted_ns;
    key->false_run = 0;
}

/* A denial, by what the oracles say. */
void tally_judge(struct tally *tally, struct tally_key *key, struct oracle_view view,
                 const struct oracle_ask *ask);
/* Sums up everybody; periods that end later than end_ns were not whole. */
void tally_finish(struct tally *tally, struct tally_places *places, uint64_t end_ns);

#endif
