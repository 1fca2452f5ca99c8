/* SPDX-License-Identifier: MIT */
/*
 * The requests of clients, with times, keys and costs: `NAME [name=value …]`. Everything is drawn
 * from one seed, so that the same text and seed give the same requests to every quota, unless
 * clients react to their decisions.
 */
#ifndef STINT_SIM_WORKLOAD_WORKLOAD_H
#define STINT_SIM_WORKLOAD_WORKLOAD_H

#include "base/limits.h"
#include "sim/input/event.h"
#include "sim/workload/random.h"

#define WORKLOAD_KEYS_MAX RANDOM_ZIPF_MAX
#define WORKLOAD_CLIENTS_MAX (UINT32_C(1) << 20)
#define WORKLOAD_WAITING_MAX (UINT32_C(1) << 22) /* requests that clients are going to repeat */
#define WORKLOAD_PATH_MAX 256

enum workload_kind {
    WORKLOAD_POISSON,
    WORKLOAD_ONOFF,
    WORKLOAD_MMPP,
    WORKLOAD_DIURNAL,
    WORKLOAD_GREEDY,
    WORKLOAD_HERD,
    WORKLOAD_CLOSED,
    WORKLOAD_EDGE,
    WORKLOAD_LATE_BUCKET,
    WORKLOAD_SLOT_EDGE,
    WORKLOAD_IDLE_BURST,
    WORKLOAD_FLOOD,
    WORKLOAD_CLOCK_STEPS,
    WORKLOAD_LOG,
    WORKLOAD_KINDS,
};

/* What a client does after a denial. */
enum workload_retry {
    WORKLOAD_GIVE_UP,
    WORKLOAD_OBEY,    /* repeats the request exactly at the time that the decision gave */
    WORKLOAD_BACKOFF, /* waits at random up to a time that doubles with every try */
    WORKLOAD_IGNORE,  /* repeats the request after a fixed time, whatever the decision was */
};

enum workload_costs { WORKLOAD_CONSTANT, WORKLOAD_LOGNORMAL, WORKLOAD_PARETO, WORKLOAD_UNIFORM };

/*
 * The parsed text. A time of 0 that is not valid as such stands for a default in terms of the
 * quota's period; workload_begin() settles it.
 */
struct workload_spec {
    enum workload_kind kind;
    enum workload_retry retry;
    enum workload_costs costs;
    double cost_a, cost_b; /* constant: a; lognormal: median, sigma; Pareto: least, exponent */
    uint32_t cost_max;
    double rate; /* requests a second, of all keys together; 0: by `load` */
    double load; /* units requested, as a share of what the first quota would allow to all keys */
    double zipf; /* exponent; 0: all keys equally likely */
    double ratio;
    double alpha;
    double depth;
    double scale;
    uint64_t on_ns, off_ns, day_ns, every_ns, jitter_ns, think_ns, again_ns, backoff_ns, churn_ns,
        step_ns;
    uint32_t keys, clients, tries;
    char path[WORKLOAD_PATH_MAX]; /* a log's; the options below are its own */
    char format[16], key[WORKLOAD_PATH_MAX], time[64], cost[64];
};

/* One request. */
struct sim_event {
    uint64_t at_ns;
    uint64_t key; /* low half: its slot, 0 … keys-1; high half: which of the slot's owners */
    uint32_t cost;
    uint32_t client;
    uint32_t stamp;   /* of the judge at the last denial, kept for the next try */
    uint16_t tries;   /* how often this request was denied before */
    bool as_promised; /* it comes exactly when the last denial promised */
};

static inline uint32_t sim_event_place(const struct sim_event *event)
{
    return (uint32_t)event->key;
}

/* A request that will be made, in a heap by time. */
struct workload_waiting {
    struct sim_event event;
    uint64_t order; /* of those at one time: first in, first out */
};

/* A slot's owner under churn. */
struct workload_owner {
    uint64_t until_ns;
    uint32_t number;
};

/* An adversary's plan: each step requests units from one time to another. */
struct workload_step {
    uint64_t from_ns, until_ns;
    uint32_t units; /* at most so many admitted units; 0: any number */
};
#define WORKLOAD_STEPS_MAX (2 + 3 * (WINDOW_SLOTS_MAX + 3)) /* of slot_edge */

struct workload_plan {
    struct workload_step steps[WORKLOAD_STEPS_MAX];
    size_t n_steps, step;
    uint64_t ask_ns;
    uint64_t clock_error_ns; /* clock_steps: the offset of the caller's clock, modulo 2^64 */
    uint32_t admitted;       /* in this step */
    uint32_t stamp;          /* of the event returned last */
    bool as_promised;
};

struct workload {
    struct workload_spec spec;
    struct stint_quota quota; /* the one to which loads and adversaries refer */
    uint64_t end_ns;          /* no request comes at or after it */
    uint32_t cost;            /* of every request; 0: each is drawn */
    struct random arrivals, keys, costs, clients;
    struct random_zipf zipf;
    struct workload_owner *owners;
    /* The stream of requests that do not react to decisions. */
    bool has_arrivals, arrives; /* `arrives`: the next one is known */
    uint64_t arrival_ns, phase_ends_ns;
    double mean_gap_ns, fraction_ns;
    uint32_t herd_next;
    bool is_high;
    /* Those that do. */
    struct workload_waiting *waiting;
    size_t n_waiting, waiting_size;
    uint64_t order;
    uint64_t dropped; /* repeats for which there was no space */
    struct workload_plan plan;
    /* A log, borrowed. */
    const struct event_entry *entries;
    size_t n_entries, entry;
    uint64_t entries_epoch_ns;
};

/* Reads the text; nothing is allocated. */
int workload_parse(struct workload *workload, const char *text, struct stint_error *error);

/* The requests of a log, sorted and borrowed; times count from epoch_ns. Before the beginning. */
void workload_lend(struct workload *workload, const struct event_list *events, uint64_t epoch_ns);

/*
 * Takes from the quota, which is checked, what the text did not set. An error if times do not go
 * together then. The beginning does the same.
 */
int workload_settle(struct workload *workload, const struct stint_quota *quota,
                    struct stint_error *error);

/* The parameters of a run of the workload. */
struct workload_terms {
    const struct stint_quota *quota; /* checked */
    uint64_t seed;
    uint64_t end_ns;
    int64_t epoch_ns; /* wall clock at 0 */
};
int workload_begin(struct workload *workload, const struct workload_terms *terms,
                   struct stint_error *error);
void workload_end(struct workload *workload);

/* The next request, in the order of time but for `clock_steps`; false at the end. */
bool workload_next(struct workload *workload, struct sim_event *event);
/* Up to n_max of them, if no client reacts; returns how many, 0 at the end. */
size_t workload_next_many(struct workload *workload, struct sim_event *events, size_t n_max);

/* Whether the next events depend on the decisions: then each must be reported before the next. */
bool workload_listens(const struct workload *workload);
void workload_tell(struct workload *workload, const struct sim_event *event,
                   const struct stint_decision *decision);

/* Slots that keys can have: sim_event_place() is below it. */
uint32_t workload_places(const struct workload *workload);
/* Clients with other clients on the same key; 0 if there are none. */
uint32_t workload_clients(const struct workload *workload);
static inline bool workload_is_adversary(enum workload_kind kind)
{
    return kind >= WORKLOAD_EDGE && kind <= WORKLOAD_CLOCK_STEPS;
}

#endif
