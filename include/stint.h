/* SPDX-License-Identifier: MIT */
/*
 * stint: a strict rate limiter as a C library.
 *
 * A limiter decides whether a key may take a number of units now and, if not, when it may.
 *
 *     struct stint_quota quota;
 *     struct stint_error error;
 *     struct stint_table *table;
 *
 *     stint_quota_parse(&quota, "window 100/60s", &error);
 *     stint_table_open(&table, NULL, &error);
 *     if (stint_take(table, &quota, "203.0.113.9", 11, 1, stint_now(table)).outcome == STINT_ALLOW)
 *         serve();
 *
 * Time is always an argument: nanoseconds since an origin that the caller chooses, 0 to
 * STINT_NOW_MAX. Decisions at a later time are STINT_NEVER, functions that return a code return
 * STINT_E_RANGE, and neither changes anything. stint_now() returns a table's time.
 * Only these functions allocate memory: stint_table_open(), stint_table_close(),
 * stint_table_snapshot(), stint_waiters_new(), stint_pool_open(), _add() and _remove(),
 * stint_top_open() and _read().
 *
 * Functions that can fail return 0 or a negative enum stint_code, and describe the error in *error
 * (which may be NULL). Decisions cannot fail: a denial is a result, not an error.
 *
 * Thread safety: a quota is read-only after stint_quota_check(). Any number of threads may use a
 * table, a stint_cell8 or a stint_cell16; any number of processes may use those in shared memory.
 * One thread at a time may use a caller-owned state (stint_state_…), a list of waiters, or write to
 * a list of top keys (stint_top_note()).
 */
#ifndef STINT_H
#define STINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define STINT_API __attribute__((visibility("default")))
#else
#define STINT_API
#endif

#define STINT_VERSION "0.1.0"
#define STINT_NOW_MAX ((UINT64_C(1) << 59) - 1) /* 18.2 years */
#define STINT_NEVER_NS UINT64_MAX               /* a wait without end */
#define STINT_KEY_MAX 65536                     /* bytes in one key */
#define STINT_ITEMS_MAX 32                      /* quotas in one all-or-nothing request */
#define STINT_ERROR_MAX 256

/* Every code that a function of this library returns; stint_code_name() returns its name. */
enum stint_code {
    STINT_OK = 0,
    STINT_E_SYNTAX = -1,   /* a SPEC or an address that cannot be parsed */
    STINT_E_RANGE = -2,    /* a value outside its range, or a quota that cannot be kept exactly */
    STINT_E_MISMATCH = -3, /* options that contradict each other, or the table they are used with */
    STINT_E_FULL = -4,     /* no capacity left: quotas, blocks, tickets, waiters or pool keys */
    STINT_E_GONE = -5,     /* no such ticket, state, waiter or key: used, expired or never there */
    STINT_E_SYSTEM = -6,   /* the operating system refused; the message has its reason */
    STINT_E_CORRUPT = -7,  /* a file that is not a table, or a damaged one */
    STINT_E_VERSION = -8,  /* a table file of another version or machine */
    STINT_E_BUSY = -9,     /* another process uses the table and cannot share it */
};

struct stint_error {
    int code;                      /* enum stint_code */
    char message[STINT_ERROR_MAX]; /* what was wrong, where, and what was expected */
};

/* The name of an enum stint_code, a static text; "UNKNOWN" for other values. Any thread. */
STINT_API const char *stint_code_name(int code);
/* STINT_VERSION of the library that is loaded. Any thread. */
STINT_API const char *stint_version(void);

/* ---- Quotas ---------------------------------------------------------------------------------- */

enum stint_algorithm {
    STINT_WINDOW = 1,      /* strict sliding window in 8, 16 or 32 bytes; the default */
    STINT_BUCKETS,         /* strict key cooldown with bounded memory */
    STINT_LOG,             /* strict and exact; memory grows with the limit */
    STINT_GCRA,            /* token bucket; at most burst + ceil(W/T) - 1 in any window */
    STINT_FIXED_WINDOW,    /* at most 2N */
    STINT_SLIDING_COUNTER, /* at most 2N - 1 */
    STINT_CONCURRENCY,     /* N held at once, each until its deadline */
};

/* Where the windows of fixed_window begin. */
enum stint_align {
    STINT_ALIGN_EPOCH = 0, /* multiples of the period since 1970 */
    STINT_ALIGN_FIRST_USE, /* the first use of the key */
    STINT_ALIGN_DAY,       /* calendar days, ISO weeks, months and years at utc_offset_s */
    STINT_ALIGN_WEEK,
    STINT_ALIGN_MONTH,
    STINT_ALIGN_YEAR,
};

/* What happens to a new key when every slot that it may use holds a live state. */
enum stint_when_full {
    STINT_FULL_DEFAULT = 0, /* inherit for window, buckets, log and concurrency; else evict */
    STINT_FULL_INHERIT,     /* no live state is evicted: the new key waits for the first expiry */
    STINT_FULL_EVICT,       /* the state with the least debt is evicted; states that deny stay */
    STINT_FULL_DENY,        /* the new key is denied */
    STINT_FULL_ALLOW,       /* the new key is allowed, and not stored */
};

#define STINT_INITIAL_FULL UINT32_MAX

/* Values that stint_quota_check() derives once, so that no decision divides. Read-only. */
struct stint_derived {
    uint64_t params_hash[2]; /* identifies the parameters, without `rule` and `epoch_ns` */
    uint64_t interval_ticks, capacity_ticks; /* gcra: T and b*T in 1/32 ns */
    uint64_t reciprocal;                     /* floor((2^64 - 1) / period_ns) */
    uint64_t grain_ns;                       /* fixed_window: resolution of the stored end */
    uint32_t bunch, bunches;                 /* window: units per bunch, number of bunches */
    uint32_t state_size;                     /* bytes */
    uint32_t max_buckets;
    uint8_t remainder_bits, place_bits, slot_bits, count_bits;
    uint8_t checked; /* 1 once stint_quota_check() accepted the quota */
    uint8_t displaced_bits;
    uint8_t pad[2];
};

/*
 * A quota: at most `limit` units per `period_ns`. Zero every field, set those that you need, and
 * call stint_quota_check(); or use stint_quota_parse(). A checked quota may be copied.
 */
struct stint_quota {
    uint64_t period_ns;     /* W: 1 us to 10 years. Set by the check for calendar windows */
    uint64_t time_slack_ns; /* buckets: O; 0 = no limit on a bucket's time (form B) */
    uint64_t lease_ns;      /* concurrency: how long a holder lasts without a renewal */
    uint64_t rule;          /* identity of this quota's states in a table; 0: its parameters */
    int64_t epoch_ns;       /* wall clock (since 1970) at now = 0, for aligned windows of caller-
                               owned states; a table uses its own. Default 0 */
    int32_t utc_offset_s;   /* calendar windows: -86399 … 86399. Default 0 */
    uint32_t limit;         /* N: 0 … 2^32-1. 0 denies every cost above 0 with STINT_NEVER. For
                               larger limits, count limits and costs in larger units */
    uint32_t burst;         /* gcra: units that may be taken at once. 0 = limit */
    uint32_t resolution;    /* window: 10 … 112 slots. 0 = 24, or 16 where 24 does not fit */
    uint32_t count_slack;   /* buckets: k; 0 = no limit on a bucket's count (form A) */
    uint32_t initial;       /* units free in a new caller-owned state. Not for tables */
    uint8_t algorithm;      /* enum stint_algorithm; 0 = window */
    uint8_t align;          /* enum stint_align: fixed_window */
    uint8_t when_full;      /* enum stint_when_full */
    bool count_denied; /* charge a refused take or reserve of one key too, but no other list and
                          no take_upto; gcra, fixed_window, sliding_counter */
    bool initial_set;  /* `initial` is used; else a new state has all units free */
    uint8_t pad[3];
    struct stint_derived derived;
};

/*
 * Checks a quota and sets `derived` and defaults. STINT_E_RANGE or STINT_E_MISMATCH for a quota
 * that cannot be enforced exactly: a rate that would be off by more than 0.1 %, times that could
 * overflow within 8 years, a state that is too wide.
 */
STINT_API int stint_quota_check(struct stint_quota *quota, struct stint_error *error);

/*
 * Parses `[ALGORITHM] LIMIT/PERIOD [name=value …]` and checks the quota: "window 100/1m
 * resolution=12", "gcra 100/60s burst=20", "buckets 500/10m time_slack=1m count_slack=50",
 * "log 5/1s", "fixed_window 1000/1mo align=calendar utc_offset=+01:00", "sliding_counter 100/1m",
 * "concurrency 10 lease=30s". The default algorithm is window. Units of durations: ns us ms s m h
 * d w, and mo, y with align=calendar. Names of other systems are accepted: token_bucket,
 * leaky_bucket, sliding_window_log, sliding_window_counter, sliding_window. STINT_E_SYNTAX for
 * text that cannot be parsed, else the codes of stint_quota_check().
 */
STINT_API int stint_quota_parse(struct stint_quota *quota, const char *spec,
                                struct stint_error *error);

/*
 * Writes a checked quota as a SPEC that parses to the same quota. The text is terminated and cut to
 * text_size bytes; returns the length that the whole text has, without the terminator.
 */
STINT_API size_t stint_quota_format(const struct stint_quota *quota, char *text, size_t text_size);

/*
 * The name of an enum stint_algorithm, as in a SPEC; "counter" for STINT_COUNTER. A static text.
 * NULL for any other value.
 */
STINT_API const char *stint_algorithm_name(int algorithm);

/* Bytes of one caller-owned state of a checked quota: 8, 16, or what the algorithm needs (window
 * with a resolution above 24: 32). */
STINT_API size_t stint_state_size(const struct stint_quota *quota);

/* Whether a checked quota never admits more than its limit in any window of its period. */
STINT_API bool stint_is_strict(const struct stint_quota *quota);

/* The most units admitted in any half-open window of the period (concurrency: held at once). */
STINT_API uint64_t stint_max_in_any_window(const struct stint_quota *quota);

/* ---- Decisions ------------------------------------------------------------------------------- */

enum stint_outcome {
    STINT_ALLOW = 0,
    STINT_DENY = 1,  /* not now: the cost fits after retry_after_ns if no other request comes */
    STINT_NEVER = 2, /* this cost can never fit this quota */
};

struct stint_decision {
    uint8_t outcome; /* enum stint_outcome */
    uint8_t binding; /* of a list: index of the quota with the smallest share left */
    uint8_t stored;  /* 0: the key has no slot: when_full decided, or nothing was charged (peek,
                        refund, charge or take_upto of 0, a list that another item refuses) */
    uint8_t pad;
    uint32_t granted;        /* units taken; by refund, charge and cancel: units moved. A charge
                                moves no more than a state can hold: the limit, or the debt */
    uint32_t limit;          /* the largest value of `remaining`: burst for gcra, else limit */
    uint32_t remaining;      /* units that one caller could still take now, rounded down */
    uint64_t retry_after_ns; /* 0 if allowed; STINT_NEVER_NS for STINT_NEVER. After a change of the
                                quota under one rule only an estimate until the next grant */
    uint64_t reset_after_ns; /* time until the state equals a new one */
};

/* ---- Caller-owned states --------------------------------------------------------------------- */

/*
 * One key's state in 8 or 16 bytes, for quotas with that stint_state_size(): a global, a field of a
 * connection, a word in shared memory. A zeroed cell is a new state; stint_cell…_init() makes one
 * that applies `initial`. _take takes `cost` units or none, _ask runs any verb; a now above
 * STINT_NOW_MAX is STINT_NEVER. Lock-free, any thread; use cells only through these functions.
 */
struct stint_cell8 {
    uint64_t word;
};

struct stint_cell16 {
#ifdef __cplusplus
    alignas(16) uint64_t word[2];
#else
    _Alignas(16) uint64_t word[2];
#endif
};

STINT_API void stint_cell8_init(const struct stint_quota *quota, struct stint_cell8 *cell,
                                uint64_t now_ns);
STINT_API struct stint_decision stint_cell8_take(const struct stint_quota *quota,
                                                 struct stint_cell8 *cell, uint64_t now_ns,
                                                 uint32_t cost);
STINT_API void stint_cell16_init(const struct stint_quota *quota, struct stint_cell16 *cell,
                                 uint64_t now_ns);
STINT_API struct stint_decision stint_cell16_take(const struct stint_quota *quota,
                                                  struct stint_cell16 *cell, uint64_t now_ns,
                                                  uint32_t cost);

/* The verbs on one state. The comments of stint_take() and the functions after it describe them. */
enum stint_verb {
    STINT_TAKE = 0,
    STINT_TAKE_UPTO, /* grants min(cost, remaining) */
    STINT_PEEK,      /* the decision of a take; changes nothing */
    STINT_CHARGE,    /* records units that were used already, as stint_charge() */
    STINT_REFUND,    /* `at_ns`: when the units were granted */
    STINT_BOOK,      /* `at_ns`: the longest acceptable wait, in ns. gcra and log */
    STINT_UNBOOK,    /* cancels a booking; `at_ns`: when it was to start */
};

struct stint_ask {
    uint64_t now_ns; /* 0 … STINT_NOW_MAX */
    uint64_t at_ns;  /* by verb, see above; else unused */
    uint32_t cost;   /* units */
    uint8_t verb;    /* enum stint_verb */
};

STINT_API struct stint_decision stint_cell8_ask(const struct stint_quota *quota,
                                                struct stint_cell8 *cell,
                                                const struct stint_ask *ask);
STINT_API struct stint_decision stint_cell16_ask(const struct stint_quota *quota,
                                                 struct stint_cell16 *cell,
                                                 const struct stint_ask *ask);

/* Any algorithm, on stint_state_size(quota) bytes aligned to 16. One thread at a time. */
STINT_API void stint_state_init(const struct stint_quota *quota, void *state, uint64_t now_ns);
STINT_API struct stint_decision stint_state_ask(const struct stint_quota *quota, void *state,
                                                const struct stint_ask *ask);

/*
 * expires_at returns the time from which the state equals a new one (0 for a new one). fill makes a
 * state that denies everything until until_ns and is then new: window up to a slot later,
 * sliding_counter less than two periods later, and log, buckets and window no earlier than one
 * period after time 0. gcra has no such state: it owes all the time until then instead, and admits
 * what such a debt leaves.
 */
STINT_API uint64_t stint_state_expires_at(const struct stint_quota *quota, const void *state);
STINT_API void stint_state_fill(const struct stint_quota *quota, void *state, uint64_t until_ns);

/*
 * Moves a caller-owned state to another quota, as stint_set_quota() does. now_ns must not be
 * earlier than any time at which the state was charged; later decisions use at least this time.
 * Units of a `concurrency` state stay held; their holders may get other values.
 */
STINT_API void stint_state_convert(const struct stint_quota *from, const void *from_state,
                                   const struct stint_quota *to, void *to_state, uint64_t now_ns);

/*
 * concurrency on caller-owned bytes. hold takes `cost` units and writes a value that names the
 * holder (0 if denied); release and renew return STINT_E_GONE for a holder that has ended or never
 * was. renew moves the end to now + lease and writes the new value.
 */
STINT_API struct stint_decision stint_state_hold(const struct stint_quota *quota, void *state,
                                                 uint64_t now_ns, uint32_t cost, uint64_t *holder);
STINT_API int stint_state_release(const struct stint_quota *quota, void *state, uint64_t now_ns,
                                  uint64_t holder);
STINT_API int stint_state_renew(const struct stint_quota *quota, void *state, uint64_t now_ns,
                                uint64_t *holder);

/* ---- Tables ---------------------------------------------------------------------------------- */

struct stint_table;

enum stint_memory {
    STINT_MEMORY_HEAP = 0, /* this process only */
    STINT_MEMORY_SHARED,   /* anonymous, shared with processes forked after the open */
    STINT_MEMORY_FILE,     /* `path`: a file, or a name under /dev/shm for shared memory */
};

enum stint_clock {
    STINT_CLOCK_REAL = 0, /* counts suspend, never steps, continues after a reboot */
    STINT_CLOCK_VIRTUAL,  /* stint_now() returns the time that stint_table_set_now() set */
};

/*
 * Zero every field for the defaults. An existing file keeps the sizes that it was created with. If
 * a file is truncated while a table has it open, the process receives SIGBUS, as with any mapped
 * file. The library installs no signal handler; its user may install one (docs/embedding.md).
 */
struct stint_table_options {
    const char *path;       /* for STINT_MEMORY_FILE; created if absent, under a name that is up to
                               24 bytes longer, as a snapshot is */
    uint64_t keys;          /* live keys with 8-byte states at 3/4 fill. Default 65,536 */
    uint64_t keys16;        /* the same with 16-byte states. Default 65,536 */
    uint64_t keys_wide;     /* the same with wider ones. Default 1,024 */
    uint32_t wide_size;     /* bytes of the widest state. Default 4,096 */
    uint32_t tickets;       /* open reservations, bookings and holds. A list counts as one for each
                               quota, and needs neighbouring places. Default 65,536 */
    uint32_t blocks;        /* blocked keys. Default 4,096 */
    uint32_t quotas;        /* different quotas. Default: one for 16 keys, 1,024 … 32,704 */
    uint32_t pools;         /* key pools, by name. Default 16, at most 65,536 */
    uint64_t skew_max_ns;   /* how far the clocks of callers may differ. Default 1 s */
    uint64_t hash_key[2];   /* secret of the hash of keys. Default {0, 0}: random */
    int64_t epoch_ns;       /* virtual clock: wall clock at now = 0 */
    uint8_t memory;         /* enum stint_memory; FILE if path is set */
    uint8_t clock;          /* enum stint_clock */
    bool huge_pages;        /* request huge pages; stint_table_info() returns whether it has them */
    bool trust_after_crash; /* keep states as they are after an unclean boot, not full for one
                               period */
    bool must_exist;        /* do not create the file */
    bool read_only;         /* for inspection: verbs are NEVER, what would change it returns
                               STINT_E_MISMATCH or does nothing */
    uint32_t overrides;     /* keys with a quota of their own, set by a server. Default 4,096 */
    uint32_t requests;      /* answers that a server keeps for retries. Default 0: none */
};

/*
 * Opens or creates a table. NULL options are the defaults. *table is set only on success. Errors:
 * SYNTAX, RANGE, MISMATCH, SYSTEM, CORRUPT, VERSION and BUSY.
 */
STINT_API int stint_table_open(struct stint_table **table,
                               const struct stint_table_options *options,
                               struct stint_error *error);
/* No thread of this process may use the table any more; other processes may. NULL is accepted. */
STINT_API void stint_table_close(struct stint_table *table);

/*
 * The table's time now, in ns. Never decreases, also over restarts and reboots. Any thread; a time
 * that another thread has read may be up to a microsecond later. NULL: the time since the boot of
 * the machine, for states of the caller's own.
 */
STINT_API uint64_t stint_now(const struct stint_table *table);
/* Sets the time of a table with STINT_CLOCK_VIRTUAL; an earlier time, or one above STINT_NOW_MAX,
 * has no effect. Any thread. */
STINT_API void stint_table_set_now(struct stint_table *table, uint64_t now_ns);
/* Wall-clock time (ns since 1970) at the table's time 0; calendar windows follow from it. */
STINT_API int64_t stint_epoch_ns(const struct stint_table *table);

/*
 * 0 if the table can hold states of this quota; the table then stores the quota. Else
 * STINT_E_MISMATCH for a quota that was not checked, has `initial`, or whose states are wider than
 * the table's, or a table opened read-only; STINT_E_FULL for one quota too many. Verbs decide
 * STINT_NEVER for a quota that is not accepted. Exception: STINT_E_FULL under gcra with a burst of
 * at most 2^30; then all verbs work but reserve, book and set_quota.
 */
STINT_API int stint_table_accepts(struct stint_table *table, const struct stint_quota *quota,
                                  struct stint_error *error);

/*
 * Takes the whole cost or nothing. A refused take leaves the state bit-identical. Cost 0 takes
 * nothing. The quota must have passed stint_quota_check(). key_len above STINT_KEY_MAX is
 * STINT_NEVER. Any thread, as all verbs of a table.
 */
STINT_API struct stint_decision stint_take(struct stint_table *table,
                                           const struct stint_quota *quota, const void *key,
                                           size_t key_len, uint32_t cost, uint64_t now_ns);
/* stint_take() at stint_now(table), and faster: the clock is read while memory is fetched. */
STINT_API struct stint_decision stint_take_now(struct stint_table *table,
                                               const struct stint_quota *quota, const void *key,
                                               size_t key_len, uint32_t cost);

/* Many independent takes; their memory is prefetched, which makes large tables faster. */
struct stint_item {
    const struct stint_quota *quota;
    const void *key;
    size_t key_len;
    uint32_t cost;
};
STINT_API void stint_take_batch(struct stint_table *table, const struct stint_item *items,
                                struct stint_decision *decisions, size_t n_items, uint64_t now_ns);

/*
 * All or nothing over up to STINT_ITEMS_MAX items: NEVER if any is NEVER, else DENY if any denies,
 * else ALLOW. If one refuses, none is charged when the call returns. The wait is the longest; the
 * other values are those of the binding quota. n_items of 1 is the plain verb. An empty list, or
 * one that is too long, is STINT_NEVER.
 */
STINT_API struct stint_decision stint_take_all(struct stint_table *table,
                                               const struct stint_item *items, size_t n_items,
                                               uint64_t now_ns);
/* Best effort: takes min(cost, remaining), the same number from every quota; 0 is a DENY. */
STINT_API struct stint_decision stint_take_upto(struct stint_table *table,
                                                const struct stint_item *items, size_t n_items,
                                                uint64_t now_ns);
/*
 * The decision that a take would return, without the charge that a refusal makes under
 * count_denied; changes nothing. Two items of one key and rule with different quotas are not added
 * up: a take may deny what the peek allows.
 */
STINT_API struct stint_decision stint_peek(struct stint_table *table,
                                           const struct stint_item *items, size_t n_items,
                                           uint64_t now_ns);
/*
 * Records units that were used already. It is refused only under a limit of 0, for a new key
 * without a slot in a full table, and while the rule's state is of another size and holds more than
 * the new limit. `granted` is the least number that any state could record.
 * gcra, fixed_window and sliding_counter go into debt, at most one capacity below zero; a cost of
 * 0, which is allowed otherwise, is denied until the debt is gone. Strict quotas keep the newest
 * `limit` units: the others displace the oldest, which count until the oldest that are left come
 * back. So all that was used in the last part of a period is recorded, or the whole limit is.
 * While units are displaced a refund returns these first, and under window in whole bunches.
 */
STINT_API struct stint_decision stint_charge(struct stint_table *table,
                                             const struct stint_item *items, size_t n_items,
                                             uint64_t now_ns);
/*
 * Gives back `cost` units that were granted at granted_at_ns and not used. `granted` is how many
 * came back; the rest stays charged until its time. A caller can void a bound in two ways: with
 * STINT_NEVER_NS, which counts as granted at now, and by giving the same units back twice, by
 * refunds or by a refund and their ticket.
 *
 * Give back units before a change of quota: a refund after the change may admit as many more units
 * as came back (gcra: and part of a unit), since no state records under which quota a unit was
 * granted. gcra keeps no time of grants: a refund whose now is behind the latest charge may gain
 * the units of that time, at most a burst (a table uses the latest now that it has seen, to within
 * 1 ms). A caller-owned gcra state gives nothing back while it owes more than a burst, since that
 * may be a booking.
 */
STINT_API struct stint_decision stint_refund(struct stint_table *table,
                                             const struct stint_item *items, size_t n_items,
                                             uint64_t granted_at_ns, uint64_t now_ns);

/* Identifies a reservation, a booking, or the holders of a concurrency quota; valid once. */
struct stint_ticket {
    uint64_t slot, nonce;
};

/*
 * reserve charges an estimate. settle corrects it to what was used, before the ticket's deadline,
 * now + lifetime_ns; cancel gives everything back. A ticket that is never settled stays charged as
 * estimated, unless stint_reserve_expiring() made it.
 *
 * Under concurrency units are held until the lease ends, whatever the lifetime is; renew moves that
 * end to now + lease. A lifetime of 0 is the longest lease in the list. A ticket whose lifetime is
 * shorter than the lease ends first: from then on the units cannot be given back or renewed.
 */
STINT_API struct stint_decision stint_reserve(struct stint_table *table,
                                              const struct stint_item *items, size_t n_items,
                                              uint64_t lifetime_ns, uint64_t now_ns,
                                              struct stint_ticket *ticket);
/* The fate of a reservation that is never settled. */
enum stint_expiry {
    STINT_EXPIRY_KEEP = 0, /* it stays charged as estimated */
    STINT_EXPIRY_FLOOR,    /* a number of units stays charged, at most the estimate */
    STINT_EXPIRY_RELEASE,  /* nothing stays charged */
};
#define STINT_KEEP_ALL UINT32_MAX

/*
 * As stint_reserve(), with the units of each item that stay charged if the ticket is not settled
 * by its deadline: kept[i], at most the item's cost; 0 releases it, STINT_KEEP_ALL keeps it. NULL
 * keeps all. Such a reservation is settled with min(cost, kept[i]) by the rules of refund: what
 * cannot be returned stays charged, and is counted (expiry_kept_units). Units of concurrency
 * quotas are free when their lease ends, whatever kept[i] is. Call stint_expire() regularly.
 */
STINT_API struct stint_decision stint_reserve_expiring(struct stint_table *table,
                                                       const struct stint_item *items,
                                                       size_t n_items, uint64_t lifetime_ns,
                                                       const uint32_t *kept, uint64_t now_ns,
                                                       struct stint_ticket *ticket);
/*
 * Closes reservations whose deadlines have passed. Examines at most slots_max slots of the ring of
 * tickets; 65,536 take about a millisecond. Returns how many slots this pass still has to examine;
 * 0: this pass has ended, and what had ended when it began is closed; or another thread is at it.
 * Call it regularly, such as once a second, from any thread of any process that has the table open;
 * concurrent calls are safe. Otherwise a reservation is closed when its slot in the ring is used
 * again.
 */
STINT_API uint64_t stint_expire(struct stint_table *table, uint64_t now_ns, uint64_t slots_max);

/*
 * 0, or STINT_E_GONE: for a ticket that is closed, and for one that held only concurrency units
 * whose leases have ended. *decision (may be NULL) is that of the refund or charge that was made.
 * renew returns STINT_E_MISMATCH for a ticket without concurrency units, and STINT_E_GONE also if
 * some of them have ended: the others are renewed, and the ticket stays good for them.
 */
STINT_API int stint_settle(struct stint_table *table, struct stint_ticket ticket, uint32_t actual,
                           uint64_t now_ns, struct stint_decision *decision);
STINT_API int stint_cancel(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns,
                           struct stint_decision *decision);
STINT_API int stint_renew(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns);

/*
 * Charges a time in the future, for pacing: on ALLOW, retry_after_ns is the wait until it starts
 * (0 = now), at most max_wait_ns and 365 days. It can be cancelled until it starts. One log, or any
 * number of gcra quotas; NEVER for others. Each gcra quota is charged at its own start, which may
 * be before the common one: its bound holds for the former.
 */
STINT_API struct stint_decision stint_book(struct stint_table *table,
                                           const struct stint_item *items, size_t n_items,
                                           uint64_t max_wait_ns, uint64_t now_ns,
                                           struct stint_ticket *ticket);

/*
 * Denies the key, under every quota of the table, until until_ns; survives restart and eviction.
 * STINT_E_FULL when no place is free: when `blocks` keys are blocked, or earlier, since a key has
 * few places, and a block that has ended keeps its own for skew_max. STINT_E_RANGE for until_ns
 * above STINT_NOW_MAX or a key that is too long. A later until_ns moves the end of a block, and
 * an earlier one does not: only stint_reset() removes a block.
 */
STINT_API int stint_block(struct stint_table *table, const void *key, size_t key_len,
                          uint64_t until_ns, uint64_t now_ns);
/* Forgets the key's state under the quota, and removes a block of the key. */
STINT_API void stint_reset(struct stint_table *table, const struct stint_quota *quota,
                           const void *key, size_t key_len, uint64_t now_ns);

/*
 * Carries a key's state from one quota to another. Period unchanged: use in any window stays
 * within the larger of the two bounds (between two gcra: within their sum), and within the new one
 * after one period; several changes within a period add up what they raise. Else the units still
 * held are carried at their latest possible time. Places that are booked and have not begun count
 * from the change: at their start the new quota may admit units beside them. STINT_E_FULL if the
 * key finds no slot under the new quota: the old state stays. Else the codes of
 * stint_table_accepts(). While the key is carried, other callers may be denied; if the process is
 * killed meanwhile, the key is full until its old units are over.
 *
 * Quotas with the same `rule` need no call: the next grant carries the state, also while callers
 * use both at once. Where their states differ in size, the same holds for others meanwhile.
 *
 * A caller whose clock is behind, by skew_max at most, may gain units that were over at the change.
 */
STINT_API int stint_set_quota(struct stint_table *table, const struct stint_quota *from,
                              const struct stint_quota *to, const void *key, size_t key_len,
                              uint64_t now_ns);

/* ---- Counters -------------------------------------------------------------------------------- */

/*
 * A counter that expires: what INCR with EXPIRE is to a cache. It has no limit and denies nothing.
 * Its state is 16 bytes (`keys16`), apart from all states of quotas: a key may have both.
 */
#define STINT_COUNT_MAX ((UINT64_C(1) << 52) - 1) /* a count that would exceed it stays at it */
#define STINT_COUNT_EXPIRY_MAX_NS (UINT64_C(3650) * 24 * 3600 * 1000000000)
#define STINT_COUNTER 8 /* the `algorithm` of a counter's entry; stint_quota_check() refuses it */

struct stint_counter {
    uint64_t count;            /* 0 … STINT_COUNT_MAX */
    uint64_t expires_after_ns; /* 0: there is no counter */
};

/*
 * Adds an amount and returns the count with it: of callers at once no two get the same. The first
 * amount above 0 begins the counter, which expires expiry_ns later (1 to STINT_COUNT_EXPIRY_MAX_NS)
 * and is then as if never used. Later amounts do not move the expiry. An amount below 0 subtracts,
 * down to 0; 0 reads. Both begin no counter and ignore expiry_ns.
 *
 * 0; or, with *counter zeroed and nothing counted, STINT_E_RANGE for an amount beyond +/-(2^32-1),
 * an expiry, a time or a key; STINT_E_FULL for a new counter without a slot in a full table
 * (by the table's policy; by default it takes the slot of the lowest counter or least used
 * quota), or without an entry for its quota; STINT_E_MISMATCH for a table opened read-only, which
 * can be read alone; STINT_E_CORRUPT for a damaged table. After an unclean boot a counter goes on
 * with the count that the file has.
 */
STINT_API int stint_count(struct stint_table *table, const void *key, size_t key_len,
                          int64_t amount, uint64_t expiry_ns, uint64_t now_ns,
                          struct stint_counter *counter, struct stint_error *error);
/* Forgets the counter. STINT_E_RANGE for a key, STINT_E_MISMATCH for a table opened read-only. */
STINT_API int stint_count_reset(struct stint_table *table, const void *key, size_t key_len,
                                struct stint_error *error);

/* ---- Inspection ------------------------------------------------------------------------------ */

struct stint_table_info {
    uint64_t bytes;    /* of the whole region */
    uint64_t slots[3]; /* for 8-byte, 16-byte and wide states */
    uint64_t live[3];  /* states that have not expired */
    uint64_t blocked;  /* keys */
    uint32_t quotas, quotas_max;
    uint32_t tickets, wide_size;
    uint32_t pools, pools_max; /* names that were ever opened, and the most that can be */
    uint64_t skew_max_ns, mark_ns;
    int64_t epoch_ns;                   /* wall clock at now = 0 */
    uint64_t evictions_lossless;        /* slots of expired states that were reused */
    uint64_t evictions_inherit;         /* decisions on new keys that wait: none evicted */
    uint64_t evictions_evict;           /* live states that were evicted */
    uint64_t full_denied, full_allowed; /* decisions on new keys without a slot */
    uint64_t undo_kept_units;           /* charged by a refused list, and could not be given back */
    uint64_t tickets_dropped;           /* closed while open: no free place in 64 searches */
    uint64_t owners_displaced;
    uint64_t states_damaged; /* at openings: set to full for one period, or forgotten */
    uint8_t memory, clock;
    bool huge_pages;
    bool restored; /* an existing file was opened */
    bool filled;   /* after an unclean boot: live states were set to full for one period */
    uint32_t overrides, overrides_max; /* keys with a quota of their own */
    uint64_t requests, requests_max;   /* answers kept for retries */
    uint64_t requests_dropped;         /* answers dropped early, since all slots were in use */
    uint64_t forgotten_units;          /* units in use that evicted states held */
    uint64_t reservations_expired[3];  /* never settled; by enum stint_expiry */
    uint64_t expiry_kept_units;        /* units of these that could not be given back */
};

#if defined(__cplusplus) && defined(__GNUC__) && !defined(__clang__)
/* g++ takes the function for one that hides the constructor of the struct of that name. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
/* Fills *info with counters and sizes; `live` counts every slot, which takes time. Any thread. */
STINT_API void stint_table_info(const struct stint_table *table, uint64_t now_ns,
                                struct stint_table_info *info);
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

struct stint_entry {
    struct stint_quota quota;
    uint64_t key_hash; /* keyed: identifies the key within this table only */
    uint64_t expires_at_ns;
    /*
     * The state with nothing taken: `remaining` units are left, the state equals a new one after
     * `reset_after_ns`; `outcome` and `retry_after_ns` are those of a take of one unit. Blocks of
     * the key are ignored.
     */
    struct stint_decision decision;
    uint64_t count; /* of a counter, whose quota.algorithm is STINT_COUNTER; else 0 */
};

/*
 * each calls the function for every live state, in no order, while other threads decide; it stops
 * when the function returns false. find reads one key's state without changing it: 0, or
 * STINT_E_GONE if it has none.
 */
STINT_API void stint_table_each(const struct stint_table *table, uint64_t now_ns,
                                bool (*visit)(const struct stint_entry *entry, void *arg),
                                void *arg);
STINT_API int stint_find(const struct stint_table *table, const struct stint_quota *quota,
                         const void *key, size_t key_len, uint64_t now_ns,
                         struct stint_entry *entry);

/*
 * Writes a copy of the table, each state consistent in itself, to a file that stint_table_open()
 * accepts. The file appears whole, with space on its disk for all keys, or not at all.
 * STINT_E_SYSTEM if it cannot be written, STINT_E_SYNTAX for a path that is too long,
 * STINT_E_MISMATCH for the file of this table.
 */
STINT_API int stint_table_snapshot(const struct stint_table *table, const char *path,
                                   struct stint_error *error);

/* ---- Waiters --------------------------------------------------------------------------------- */

/*
 * A FIFO of callers that wait for units, for programs that block or have an event loop. Time is an
 * argument here too; nothing sleeps. Only the first waiter's cost is requested, so that small
 * requests behind a big one do not starve it. One thread at a time.
 */
struct stint_waiters;

/* waiters_max: 1 … 2^32-2. NULL: out of range, or no memory. free accepts NULL. */
STINT_API struct stint_waiters *stint_waiters_new(size_t waiters_max);
STINT_API void stint_waiters_free(struct stint_waiters *waiters);
/* Appends a waiter; *id names it. STINT_E_FULL when waiters_max callers wait already. */
STINT_API int stint_waiters_add(struct stint_waiters *waiters, uint32_t cost, uint64_t deadline_ns,
                                uint64_t *id);
/* STINT_E_GONE if it is no longer waiting. */
STINT_API int stint_waiters_cancel(struct stint_waiters *waiters, uint64_t id);

struct stint_wake {
    uint64_t id;      /* the waiter to wake; 0: none now */
    bool expired;     /* its deadline passed: it gets no units */
    uint64_t next_ns; /* when to call again at the latest; STINT_NEVER_NS if none waits */
    struct stint_decision decision;
};
/* Takes units for the first waiter if they are free, and returns its id. Call until id is 0. */
STINT_API struct stint_wake stint_waiters_wake(struct stint_waiters *waiters,
                                               struct stint_table *table,
                                               const struct stint_quota *quota, const void *key,
                                               size_t key_len, uint64_t now_ns);

/* ---- Key pools ------------------------------------------------------------------------------- */

/*
 * Several keys (API keys, accounts, egress addresses), each with its own quotas: a pool returns one
 * that may be used now, or when. A pool is this process's list of keys. What each key has used, and
 * which keys cool down, is in the table, under the pool's name and the key's name. So processes
 * that share a table share the pool, also over restarts. No key ever exceeds its quotas.
 *
 * Every key has a state of its own in the table, and is available again as its own quotas allow. A
 * pool without free units answers without reading its keys until the first of them is available
 * again, or a caller gives units back or reports.
 *
 * Any number of threads may use a pool, also while another adds or removes keys; stint_pool_close()
 * must be the last call. The table must outlive it. The pool keeps the names of keys alone, for as
 * long as it is open: never pass it a secret.
 */
struct stint_pool;

#define STINT_POOL_NAME_MAX 255 /* bytes in the name of a pool or of a key */
#define STINT_POOL_QUOTAS_MAX 4
#define STINT_POOL_KEYS_MAX 65536
#define STINT_POOL_WEIGHT_MAX 1000

enum stint_pool_order {
    STINT_ROUND_ROBIN = 0, /* in turn, in the order of their names */
    STINT_FILL_FIRST,      /* the first added that has units */
    STINT_LEAST_USED,      /* the one with the smallest share used */
};

struct stint_pool_options {
    const char *name; /* pools of the same name in a table share their states. NULL = "" */
    size_t keys_max;  /* default 1,024, at most STINT_POOL_KEYS_MAX */
    uint8_t order;    /* enum stint_pool_order */
};

/* Borrowed during the call: the pool keeps copies. */
struct stint_pool_key {
    const char *name;                 /* printable, without blanks */
    const struct stint_quota *quotas; /* all or nothing; not concurrency, no count_denied. In a
                                         full table a key is denied, whatever when_full is */
    size_t n_quotas;                  /* 1 … STINT_POOL_QUOTAS_MAX */
    uint32_t weight; /* 0 = 1, at most STINT_POOL_WEIGHT_MAX. round_robin: turns in a round;
                        least_used: a key of weight 2 counts as half as much used */
};

/*
 * STINT_E_FULL if the table has `pools` names already, STINT_E_MISMATCH for a table opened
 * read-only; else SYNTAX, RANGE or SYSTEM. NULL options are the defaults; close accepts NULL.
 */
STINT_API int stint_pool_open(struct stint_pool **pool, struct stint_table *table,
                              const struct stint_pool_options *options, struct stint_error *error);
STINT_API void stint_pool_close(struct stint_pool *pool);

/*
 * add returns STINT_E_MISMATCH for a name that the pool has, STINT_E_FULL above keys_max, the codes
 * of stint_table_accepts(), SYNTAX, RANGE or SYSTEM. Earlier use and cooldowns count. remove takes
 * a key out of this process's list (STINT_E_GONE if it is not there) and ends STINT_POOL_OUT; what
 * the key used stays.
 */
STINT_API int stint_pool_add(struct stint_pool *pool, const struct stint_pool_key *key,
                             uint64_t now_ns, struct stint_error *error);
STINT_API int stint_pool_remove(struct stint_pool *pool, const char *name, uint64_t now_ns,
                                struct stint_error *error);

struct stint_pool_ask {
    uint64_t now_ns;
    uint32_t cost; /* units; 0 takes nothing */
    bool probe;    /* if all keys cool down, try the one whose cooldown ends first */
};

struct stint_pool_answer {
    const char *name;       /* the key; NULL: none is free. Valid until the pool is closed */
    uint64_t wait_ns;       /* none is free: until the first is; STINT_NEVER_NS if none ever */
    uint64_t granted_at_ns; /* for give_back */
    bool probe;             /* the key still cools down: try it, and report the outcome */
    struct stint_decision decision; /* of the key; of the next available one if none is free */
};

/*
 * Chooses a key and charges all its quotas in one step: a process that is killed meanwhile leaves
 * the key charged or not. If no other caller takes units, no key is free at now + wait - 1 ns, and
 * one is at now + wait. The call changes no cooldown.
 */
STINT_API struct stint_pool_answer stint_pool_next(struct stint_pool *pool,
                                                   const struct stint_pool_ask *ask);

/*
 * Gives back `cost` units of a grant that were not used, as stint_refund() does; *given_back (may
 * be NULL) is how many came back. STINT_E_GONE for an unknown name, STINT_E_RANGE for a time.
 */
STINT_API int stint_pool_give_back(struct stint_pool *pool, const char *name, uint32_t cost,
                                   uint64_t granted_at_ns, uint64_t now_ns, uint32_t *given_back);

/* The outcome of a call to the upstream service. */
enum stint_pool_outcome {
    STINT_POOL_OK = 0, /* ends every cooldown, and forgets failures */
    STINT_POOL_COOL,   /* 429 with a time: cooling down for cooldown_ns, at most 365 days. While the
                          key cools down, only a longer cooldown than its own moves the end */
    STINT_POOL_BACK_OFF, /* 429 without one: cooling down for 1 s, doubled with each failure in turn
                            up to 1 h; a failure is remembered for as long again. Changes nothing
                            while the key cools down */
    STINT_POOL_OUT,      /* 401, 403: cooling down until it is reported OK, or removed */
};

/*
 * Holds for all that share the pool. cooldown_ns is for COOL, else 0 (STINT_E_MISMATCH).
 * STINT_E_GONE for an unknown name, STINT_E_FULL when `blocks` of the table are in use, or RANGE.
 */
STINT_API int stint_pool_report(struct stint_pool *pool, const char *name, int outcome,
                                uint64_t cooldown_ns, uint64_t now_ns, struct stint_error *error);

enum stint_pool_standing {
    STINT_POOL_FREE = 0,
    STINT_POOL_USED_UP, /* its quotas have no unit left */
    STINT_POOL_COOLING,
    STINT_POOL_BACKING_OFF,
    STINT_POOL_IS_OUT,
};

struct stint_pool_status {
    const char *name;
    uint32_t weight;
    uint8_t standing; /* enum stint_pool_standing */
    uint8_t failures; /* consecutive, without a time, and not yet forgotten */
    uint8_t pad[2];
    uint64_t returns_after_ns;      /* until one unit may be taken; STINT_NEVER_NS if never */
    struct stint_decision decision; /* of its quotas, without the cooldown; nothing taken */
};

/* Calls the function for each key, oldest first, until it returns false. It may use the pool. */
STINT_API void stint_pool_each(struct stint_pool *pool, uint64_t now_ns,
                               bool (*visit)(const struct stint_pool_status *status, void *arg),
                               void *arg);

/* ---- Keys used most -------------------------------------------------------------------------- */

/*
 * A list of the keys that are used most, and denied most, in bounded memory, however many keys
 * there are. It limits nothing: it counts uses that are noted in it.
 *
 * Each key in the list has a score: a unit counts 1 when it is noted, half after a half-life, a
 * quarter after two. A new key without a free slot replaces the lowest of a few keys and takes over
 * its score. So a key that is used often is in the list, but a score may be too high, by over_by at
 * most. Memory: 320 bytes a key.
 *
 * One thread at a time may note. Any thread may read meanwhile; a note during a reading is left
 * out. For several threads give each a list of its own, and read them together.
 */
#define STINT_TOP_KEY_MAX 256    /* bytes that are kept of a key */
#define STINT_TOP_KEYS_MAX 65536 /* keys in a list */
#define STINT_TOP_HALF_LIFE_MIN_NS UINT64_C(1000000000)
#define STINT_TOP_HALF_LIFE_MAX_NS (UINT64_C(365) * 24 * 3600 * 1000000000)

struct stint_top;

/* Zero every field for the defaults. */
struct stint_top_options {
    size_t keys;           /* keys that are kept, rounded up to a multiple of 8. Default 1,024 */
    uint64_t half_life_ns; /* 1 s to 365 days. Default 1 min */
};

/* options: NULL for the defaults. STINT_E_RANGE for a field, STINT_E_SYSTEM without memory. */
STINT_API int stint_top_open(struct stint_top **top, const struct stint_top_options *options,
                             struct stint_error *error);
STINT_API void stint_top_close(struct stint_top *top); /* NULL is fine */

/*
 * Notes that a key took `units`, or was denied them (is_denied). 0 units count as one. Keys are
 * compared by all their bytes, of which the first STINT_TOP_KEY_MAX are kept. A time before the
 * latest one of the list counts as the latest.
 */
STINT_API void stint_top_note(struct stint_top *top, const void *key, size_t key_len,
                              uint32_t units, bool is_denied, uint64_t now_ns);

enum stint_top_order { STINT_TOP_UNITS = 0, STINT_TOP_DENIED };

struct stint_top_key {
    double units, denied; /* scores: of all units noted; of those denied since it is in the list */
    double over_by;       /* at most this part of `units` belongs to other keys */
    double units_per_s;   /* the constant rate that has this score in the long run */
    double denied_per_s;
    uint64_t last_ns; /* the latest time with which it was noted */
    uint16_t key_len;
    bool is_cut; /* the key was longer */
    uint8_t pad[5];
    uint8_t key[STINT_TOP_KEY_MAX];
};

/*
 * The keys of all these lists with the highest scores, equal keys added up, in descending `order`
 * (enum stint_top_order); under STINT_TOP_DENIED only those with a denied unit. Returns their
 * number, at most keys_max, or STINT_E_SYSTEM without memory. Any thread.
 */
STINT_API int stint_top_read(struct stint_top *const *tops, size_t n_tops, int order,
                             uint64_t now_ns, struct stint_top_key *keys, size_t keys_max);

/* ---- Keys from addresses --------------------------------------------------------------------- */

/*
 * The key of an IP address in text: its first v4_bits (0 … 32) or v6_bits (0 … 128), the rest
 * zero, in canonical text without a length ("2001:db8::"). Brackets, a port and a zone are dropped;
 * v4-mapped v6 addresses are treated as IPv4. Returns the length written, STINT_E_SYNTAX for what
 * is no address, or STINT_E_RANGE for bits or text_size (46 always suffices). Any thread.
 */
STINT_API int stint_address_key(char *text, size_t text_size, const char *address,
                                size_t address_len, unsigned v4_bits, unsigned v6_bits);

#ifdef __cplusplus
}
#endif
#endif
