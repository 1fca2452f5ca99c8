/* SPDX-License-Identifier: MIT */
/*
 * stint: a strict rate limiter as a C library.
 *
 * A limiter answers one question: may this key take these units now, and if not, when?
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
 * Time is always an argument, in nanoseconds since a moment of the caller's choice, from 0 to
 * STINT_NOW_MAX; a later one is answered with STINT_NEVER. stint_now() gives the time of a table.
 * Nothing here allocates, except stint_table_open(), stint_table_close(), stint_waiters_new(),
 * opening, adding to and removing from a pool, and stint_top_open() and stint_top_read().
 *
 * Functions that can fail return 0 or a negative enum stint_code, and explain it in *error (which
 * may be NULL). Decisions cannot fail: "denied" is an answer, not an error.
 *
 * Thread safety: a quota is read only once it is made. Tables, stint_cell8 and stint_cell16 may be
 * used by any number of threads, and tables and cells in shared memory by any number of processes.
 * Caller-owned bytes (stint_state_…) and waiters belong to one thread at a time; so does noting in
 * a list of keys (stint_top_…).
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
#define STINT_NEVER_NS UINT64_MAX               /* a wait that never ends */
#define STINT_KEY_MAX 65536                     /* bytes in one key */
#define STINT_ITEMS_MAX 32                      /* quotas in one all-or-nothing request */
#define STINT_ERROR_MAX 256

/* Every code that a function of this library returns; stint_code_name() gives its name. */
enum stint_code {
    STINT_OK = 0,
    STINT_E_SYNTAX = -1,   /* a SPEC or an address that cannot be read */
    STINT_E_RANGE = -2,    /* a value outside its range, or a quota that cannot be kept exactly */
    STINT_E_MISMATCH = -3, /* options that contradict each other, or the table they are used with */
    STINT_E_FULL = -4,     /* no room: quotas, blocks, tickets or waiters */
    STINT_E_GONE = -5,     /* the ticket was used, has ended, or never was */
    STINT_E_SYSTEM = -6,   /* the operating system refused; the message holds its reason */
    STINT_E_CORRUPT = -7,  /* a table file that is not one, or is damaged */
    STINT_E_VERSION = -8,  /* a table file of another version or machine */
    STINT_E_BUSY = -9,     /* the table is in use by somebody it cannot be shared with */
};

struct stint_error {
    int code;                      /* enum stint_code */
    char message[STINT_ERROR_MAX]; /* what was wrong, where, and what was expected */
};

STINT_API const char *stint_code_name(int code);
STINT_API const char *stint_version(void);

/* ---- Quotas ---------------------------------------------------------------------------------- */

enum stint_algorithm {
    STINT_WINDOW = 1,      /* strict sliding window in 8 or 16 bytes; the default */
    STINT_BUCKETS,         /* strict key cooldown with bounded memory */
    STINT_LOG,             /* strict and exact; memory grows with the limit */
    STINT_GCRA,            /* token bucket; at most burst + ceil(W/T) - 1 in any window */
    STINT_FIXED_WINDOW,    /* at most 2N */
    STINT_SLIDING_COUNTER, /* at most 2N - 1 */
    STINT_CONCURRENCY,     /* N held at once, each until its deadline */
};

/* Where the windows of fixed_window begin. */
enum stint_align {
    STINT_ALIGN_EPOCH = 0, /* multiples of the period since 1970, as others do */
    STINT_ALIGN_FIRST_USE, /* the first use of the key */
    STINT_ALIGN_DAY,       /* calendar days, ISO weeks, months and years at utc_offset_s */
    STINT_ALIGN_WEEK,
    STINT_ALIGN_MONTH,
    STINT_ALIGN_YEAR,
};

/* What happens to a new key when all its places in the table hold live states. */
enum stint_when_full {
    STINT_FULL_DEFAULT = 0, /* inherit for window, buckets, log and concurrency; else evict */
    STINT_FULL_INHERIT,     /* no live state goes: the new key waits until the first one expires */
    STINT_FULL_EVICT,       /* the state with the least debt goes; states that deny stay */
    STINT_FULL_DENY,        /* the new key is denied */
    STINT_FULL_ALLOW,       /* the new key is allowed, and not remembered */
};

#define STINT_INITIAL_FULL UINT32_MAX

/* What stint_quota_check() works out once, so that no decision divides. Do not touch. */
struct stint_derived {
    uint64_t params_hash[2]; /* names these parameters; `rule` and `epoch_ns` are not among them */
    uint64_t interval_ticks, capacity_ticks; /* gcra: T and b*T in 1/32 ns */
    uint64_t reciprocal;                     /* floor((2^64 - 1) / period_ns) */
    uint64_t grain_ns;                       /* fixed_window: resolution of the stored start */
    uint32_t bunch, bunches;                 /* window: units per bunch, number of bunches */
    uint32_t state_size;                     /* bytes */
    uint32_t max_buckets;
    uint8_t remainder_bits, place_bits, slot_bits, count_bits;
    uint8_t checked; /* 1 once stint_quota_check() accepted the quota */
    uint8_t displaced_bits;
    uint8_t pad[2];
};

/*
 * The promise: at most `limit` units per `period_ns`. Zero every field, fill in what you need, and
 * call stint_quota_check(); or use stint_quota_parse(). Copy it freely.
 */
struct stint_quota {
    uint64_t period_ns;     /* W: 1 us to 10 years. For calendars it is set for you */
    uint64_t time_slack_ns; /* buckets: O; 0 = no limit on a bucket's time (form B) */
    uint64_t lease_ns;      /* concurrency: how long a holder may stay without renewing */
    uint64_t rule;          /* identity of this quota's states in a table; 0 = its parameters */
    int64_t epoch_ns;       /* wall clock (since 1970) at now = 0, for aligned windows of caller-
                               owned states; a table uses its own. Default 0 */
    int32_t utc_offset_s;   /* calendar windows: -86399 … 86399. Default 0 */
    uint32_t limit;         /* N: 0 … 2^32-1. 0 denies every cost above 0 with STINT_NEVER. For
                               more, count limits and costs in larger units */
    uint32_t burst;         /* gcra: units that may be taken at once. 0 = limit */
    uint32_t resolution;    /* window: 10 … 24 slots. 0 = 24, or 16 where 24 does not fit */
    uint32_t count_slack;   /* buckets: k; 0 = no limit on a bucket's count (form A) */
    uint32_t initial;       /* units free in a new caller-owned state. Not for tables */
    uint8_t algorithm;      /* enum stint_algorithm; 0 = window */
    uint8_t align;          /* enum stint_align: fixed_window */
    uint8_t when_full;      /* enum stint_when_full */
    bool count_denied;      /* charge refused requests too; gcra, fixed_window, sliding_counter */
    bool initial_set;       /* initial counts; else a new state has all units free */
    uint8_t pad[3];
    struct stint_derived derived;
};

/*
 * Checks a quota and derives what decisions need. STINT_E_RANGE or STINT_E_MISMATCH, with a
 * message, for a quota that cannot be kept: a rate that would be off by more than 0.1 %, times
 * that could overflow within 8 years, a state that is too wide.
 */
STINT_API int stint_quota_check(struct stint_quota *quota, struct stint_error *error);

/*
 * Reads `[ALGORITHM] LIMIT/PERIOD [name=value …]`, e.g. "window 100/1m resolution=12",
 * "gcra 100/60s burst=20", "buckets 500/10m time_slack=1m count_slack=50", "log 5/1s",
 * "fixed_window 1000/1mo align=calendar utc_offset=+01:00", "sliding_counter 100/1m",
 * "concurrency 10 lease=30s". The algorithm may be left out: window. Durations: ns us ms s m h d w,
 * and mo, y with align=calendar. Other systems' names are known: token_bucket, leaky_bucket,
 * sliding_window_log, sliding_window_counter, sliding_window.
 */
STINT_API int stint_quota_parse(struct stint_quota *quota, const char *spec,
                                struct stint_error *error);

/* Writes a checked quota as a SPEC that parses to the same quota; returns the length it needs. */
STINT_API size_t stint_quota_format(const struct stint_quota *quota, char *text, size_t text_size);

/* The name of an algorithm as a SPEC has it; NULL for none. */
STINT_API const char *stint_algorithm_name(int algorithm);

/* Bytes of one caller-owned state: 8, 16, or what the algorithm needs. */
STINT_API size_t stint_state_size(const struct stint_quota *quota);

/* Whether the quota never admits more than its limit in any window of its period. */
STINT_API bool stint_is_strict(const struct stint_quota *quota);

/* The most units admitted in any half-open window of the period (concurrency: held at once). */
STINT_API uint64_t stint_max_in_any_window(const struct stint_quota *quota);

/* ---- Decisions ------------------------------------------------------------------------------- */

enum stint_outcome {
    STINT_ALLOW = 0,
    STINT_DENY = 1,  /* not now: the same cost fits after retry_after_ns if nobody else asks */
    STINT_NEVER = 2, /* this cost can never fit this quota */
};

struct stint_decision {
    uint8_t outcome; /* enum stint_outcome */
    uint8_t binding; /* over a list: index of the quota with the least left */
    uint8_t stored;  /* 0: the table had no place, when_full decided */
    uint8_t pad;
    uint32_t granted;        /* units taken; by refund, charge and cancel: units moved. A charge
                                moves no more than a state can hold: the limit, or the debt */
    uint32_t limit;          /* the most `remaining` can be: burst for gcra, else limit */
    uint32_t remaining;      /* units one caller could still take now, rounded down */
    uint64_t retry_after_ns; /* 0 if allowed; STINT_NEVER_NS for STINT_NEVER */
    uint64_t reset_after_ns; /* until the state is the same as never used */
};

/* ---- Caller-owned states --------------------------------------------------------------------- */

/*
 * One key's state in 8 or 16 bytes, for quotas whose stint_state_size() is that: a global, a field
 * of a connection, a word in shared memory. Zeroed is "never used"; stint_cell…_init() honours
 * `initial`. Lock-free; touch them only through these calls.
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

/* The verbs that work on one state; what each does is in the comments of stint_take() … below. */
enum stint_verb {
    STINT_TAKE = 0,
    STINT_TAKE_UPTO, /* grants min(cost, remaining) */
    STINT_PEEK,      /* what take would say; changes nothing */
    STINT_CHARGE,    /* records what was used anyway; never refused */
    STINT_REFUND,    /* `at_ns`: when the units were granted */
    STINT_BOOK,      /* `at_ns`: the longest wait that is acceptable. gcra and log */
    STINT_UNBOOK,    /* gives back a booked place; `at_ns`: when it was to start */
};

struct stint_ask {
    uint64_t now_ns;
    uint64_t at_ns;
    uint32_t cost;
    uint8_t verb; /* enum stint_verb */
};

STINT_API struct stint_decision stint_cell8_ask(const struct stint_quota *quota,
                                                struct stint_cell8 *cell,
                                                const struct stint_ask *ask);
STINT_API struct stint_decision stint_cell16_ask(const struct stint_quota *quota,
                                                 struct stint_cell16 *cell,
                                                 const struct stint_ask *ask);

/* Any algorithm on stint_state_size(quota) bytes of the caller's, aligned to 16. One thread. */
STINT_API void stint_state_init(const struct stint_quota *quota, void *state, uint64_t now_ns);
STINT_API struct stint_decision stint_state_ask(const struct stint_quota *quota, void *state,
                                                const struct stint_ask *ask);

/*
 * The instant from which the state is the same as never used (0 for a new one), and a state that
 * denies everything until an instant and is then new; gcra, which cannot say so, owes all the time
 * until then instead, and lets through what such a debt leaves. Both for the caller's bookkeeping.
 */
STINT_API uint64_t stint_state_expires_at(const struct stint_quota *quota, const void *state);
STINT_API void stint_state_fill(const struct stint_quota *quota, void *state, uint64_t until_ns);

/*
 * Moves a caller-owned state to another quota, as stint_set_quota() does. now_ns is to be as late
 * as any with which the state was charged: from then on it is the least that decisions go by.
 */
STINT_API void stint_state_convert(const struct stint_quota *from, const void *from_state,
                                   const struct stint_quota *to, void *to_state, uint64_t now_ns);

/* concurrency on caller-owned bytes: a holder is named by the value that take wrote. */
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
    STINT_CLOCK_REAL = 0, /* counts suspend, never steps, goes on over a reboot */
    STINT_CLOCK_VIRTUAL,  /* stint_now() says what stint_table_set_now() set */
};

/*
 * Zero every field for the defaults. An existing file keeps the sizes it was made with. A file that
 * is made shorter while a table has it open ends the process with SIGBUS, as with any mapped file:
 * the library installs no signal handler, so that its user may (docs/embedding.md).
 */
struct stint_table_options {
    const char *path;       /* for STINT_MEMORY_FILE; made if absent */
    uint64_t keys;          /* live keys with 8-byte states at 3/4 fill. Default 65,536 */
    uint64_t keys16;        /* the same with 16-byte states. Default 65,536 */
    uint64_t keys_wide;     /* the same with wider ones. Default 1,024 */
    uint32_t wide_size;     /* bytes of the widest state. Default 4,096 */
    uint32_t tickets;       /* open reservations. Default 65,536 */
    uint32_t blocks;        /* blocked keys. Default 4,096 */
    uint32_t quotas;        /* different quotas. Default: one for 16 keys, 1,024 … 32,704 */
    uint32_t pools;         /* key pools, by name. Default 16, at most 65,536 */
    uint64_t skew_max_ns;   /* how far the clocks of callers may differ. Default 1 s */
    uint64_t hash_key[2];   /* secret that spreads keys. Default 0, 0 = random */
    int64_t epoch_ns;       /* virtual clock: wall clock at now = 0 */
    uint8_t memory;         /* enum stint_memory; FILE if path is set */
    uint8_t clock;          /* enum stint_clock */
    bool huge_pages;        /* ask for huge pages; stint_table_info says what came of it */
    bool trust_after_crash; /* keep states as they are after an unclean boot, not full for one
                               period */
    bool must_exist;        /* do not make the file */
    bool read_only;         /* for inspection: no decisions */
    uint32_t overrides;     /* keys with a quota of their own, set by a server. Default 4,096 */
    uint32_t requests;      /* answers that a server keeps for retries. Default 0: none */
};

/* NULL options are the defaults. *table is set only on success. */
STINT_API int stint_table_open(struct stint_table **table,
                               const struct stint_table_options *options,
                               struct stint_error *error);
/* Nobody else in this process may use the table any more; other processes may. NULL is fine. */
STINT_API void stint_table_close(struct stint_table *table);

/* The table's time now: never goes back, also not over restarts and reboots. */
STINT_API uint64_t stint_now(const struct stint_table *table);
/* For STINT_CLOCK_VIRTUAL. */
STINT_API void stint_table_set_now(struct stint_table *table, uint64_t now_ns);
/* Which wall-clock time (ns since 1970) the table's time 0 is: from this its calendars are told. */
STINT_API int64_t stint_epoch_ns(const struct stint_table *table);

/*
 * 0 if the table can hold states of this quota, which then has its place among the table's quotas;
 * else why not: STINT_E_MISMATCH for a quota that was not checked, has `initial`, or whose states
 * are wider than the table's, or a table opened read-only; STINT_E_FULL for one quota too many.
 * Verbs answer what is not accepted with STINT_NEVER, without a reason. Except for STINT_E_FULL
 * under gcra with a burst of at most 2^30: then all but reserve, book and set_quota work.
 */
STINT_API int stint_table_accepts(struct stint_table *table, const struct stint_quota *quota,
                                  struct stint_error *error);

/*
 * take: the whole cost or nothing. A refused take leaves the state bit-identical. Cost 0 asks
 * without taking. The quota must have passed stint_quota_check().
 */
STINT_API struct stint_decision stint_take(struct stint_table *table,
                                           const struct stint_quota *quota, const void *key,
                                           size_t key_len, uint32_t cost, uint64_t now_ns);

/* Many independent single takes, their memory fetched ahead: the fast way through a big table. */
struct stint_item {
    const struct stint_quota *quota;
    const void *key;
    size_t key_len;
    uint32_t cost;
};
STINT_API void stint_take_batch(struct stint_table *table, const struct stint_item *items,
                                struct stint_decision *decisions, size_t n_items, uint64_t now_ns);

/*
 * All or nothing over up to STINT_ITEMS_MAX (quota, key, cost): NEVER if any is NEVER, else DENY
 * if any denies, else ALLOW; if one refuses, none is charged once the call returns. The wait is the
 * longest; the other figures are those of the binding quota. n_items of 1 is the plain verb.
 * A list that is empty or too long is STINT_NEVER.
 */
STINT_API struct stint_decision stint_take_all(struct stint_table *table,
                                               const struct stint_item *items, size_t n_items,
                                               uint64_t now_ns);
/* Best effort: min(cost, remaining), the same number from every quota; 0 is a DENY. */
STINT_API struct stint_decision stint_take_upto(struct stint_table *table,
                                                const struct stint_item *items, size_t n_items,
                                                uint64_t now_ns);
/* The decision that take would give; changes nothing. */
STINT_API struct stint_decision stint_peek(struct stint_table *table,
                                           const struct stint_item *items, size_t n_items,
                                           uint64_t now_ns);
/*
 * Records units that were used anyway; never refused, but under a limit of 0 and where a new key
 * finds no slot in a full table; `granted` is the least that any state could hold. gcra,
 * fixed_window and sliding_counter go into debt, at most one capacity below zero; then a cost of 0,
 * which is allowed otherwise, is denied until the debt is gone. Strict quotas keep the newest
 * `limit` units: what does not fit displaces the oldest, which count until the oldest that are left
 * come back. So of what was used in the last part of a period, all is recorded, or the whole limit
 * is. While units are displaced a refund returns these first, and to window in whole bunches.
 */
STINT_API struct stint_decision stint_charge(struct stint_table *table,
                                             const struct stint_item *items, size_t n_items,
                                             uint64_t now_ns);
/*
 * Gives back `cost` units that were granted at granted_at_ns and not used; `granted` says how many
 * came back, the rest stays charged until its time. STINT_NEVER_NS counts as granted just now: the
 * one way in which a caller can void a bound.
 *
 * Units granted before a change of quota are to be given back before it: a refund that comes after
 * it may let as many more through as came back (gcra: and part of a unit), since no state knows
 * under which quota a unit was granted. gcra keeps no time: a refund whose now is behind the latest
 * charge may gain the units of that time, at most a burst (a table goes by the latest now it has
 * seen, known to 1 ms); and a caller-owned state gives nothing back while it owes more than a
 * burst, for so it would if a place were booked in it.
 */
STINT_API struct stint_decision stint_refund(struct stint_table *table,
                                             const struct stint_item *items, size_t n_items,
                                             uint64_t granted_at_ns, uint64_t now_ns);

/* Names a reservation, a booking, or the holders of a concurrency quota; good once. */
struct stint_ticket {
    uint64_t slot, nonce;
};

/*
 * reserve charges an estimate; settle corrects it to what was used, before the ticket's deadline;
 * cancel gives everything back. A ticket never settled stays charged as estimated, unless it was
 * made by stint_reserve_expiring(). For concurrency quotas the ticket holds the places until the
 * lease ends; renew moves that end to now + lease.
 */
STINT_API struct stint_decision stint_reserve(struct stint_table *table,
                                              const struct stint_item *items, size_t n_items,
                                              uint64_t lifetime_ns, uint64_t now_ns,
                                              struct stint_ticket *ticket);
/* What becomes of a reservation that is never settled. */
enum stint_expiry {
    STINT_EXPIRY_KEEP = 0, /* it stays charged as estimated */
    STINT_EXPIRY_FLOOR,    /* a number of units stays charged, at most the estimate */
    STINT_EXPIRY_RELEASE,  /* nothing does */
};
#define STINT_KEEP_ALL UINT32_MAX

/*
 * The same, and what stays charged of each item if the ticket is not settled by its deadline:
 * kept[i] units, at most its cost; 0 releases it, STINT_KEEP_ALL keeps it. NULL keeps all. So an
 * unsettled reservation is settled with min(cost, kept[i]), by the rule of refund: what cannot be
 * returned stays charged, and is counted (expiry_kept_units). Places of concurrency quotas are
 * free when their lease ends, whatever is said here. Somebody has to call stint_expire().
 */
STINT_API struct stint_decision stint_reserve_expiring(struct stint_table *table,
                                                       const struct stint_item *items,
                                                       size_t n_items, uint64_t lifetime_ns,
                                                       const uint32_t *kept, uint64_t now_ns,
                                                       struct stint_ticket *ticket);
/*
 * Closes reservations whose deadlines have passed, looking at slots_max places of the ring of
 * tickets at most: 65,536 take about a millisecond. Returns how many places this pass has left to
 * look at; 0: all that ended by now are closed. Call it now and then, such as once a second, from
 * any thread of any process that has the table open; two at once do no harm. Without it they are
 * closed when their place in the ring is used again.
 */
STINT_API uint64_t stint_expire(struct stint_table *table, uint64_t now_ns, uint64_t slots_max);

/*
 * 0, or STINT_E_GONE, also where all that the ticket held were places and their leases have ended;
 * *decision (may be NULL) is as by refund or charge.
 */
STINT_API int stint_settle(struct stint_table *table, struct stint_ticket ticket, uint32_t actual,
                           uint64_t now_ns, struct stint_decision *decision);
STINT_API int stint_cancel(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns,
                           struct stint_decision *decision);
STINT_API int stint_renew(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns);

/*
 * Charges a place in the future, for pacing: on ALLOW, retry_after_ns is the wait until it starts
 * (0 = now), at most max_wait_ns and 365 days. Cancellable until it starts. gcra and log; NEVER for
 * others.
 */
STINT_API struct stint_decision stint_book(struct stint_table *table,
                                           const struct stint_item *items, size_t n_items,
                                           uint64_t max_wait_ns, uint64_t now_ns,
                                           struct stint_ticket *ticket);

/*
 * Denies the key, under every quota of the table, until an instant; survives restart and eviction.
 * STINT_E_FULL when `blocks` keys are blocked already. stint_reset() lifts it.
 */
STINT_API int stint_block(struct stint_table *table, const void *key, size_t key_len,
                          uint64_t until_ns, uint64_t now_ns);
/* Forgets the key's state under the quota, and lifts a block. */
STINT_API void stint_reset(struct stint_table *table, const struct stint_quota *quota,
                           const void *key, size_t key_len, uint64_t now_ns);

/*
 * Carries a key's state from one quota to another. Period unchanged: use in any window stays
 * within the larger of the two bounds (between two gcra: within their sum), and within the new one
 * after one period; several changes within a period add up what they raise. Else the units still
 * held are carried at their latest possible time. STINT_E_FULL if the key finds no place under the
 * new quota: the old state stands.
 *
 * Quotas with the same `rule` need no call: the next grant carries the state, also while callers
 * use both at once. Where their states differ in size, a caller may be denied while another carries
 * the key; should that one be killed in the act, the key is full until its old units are over.
 *
 * A caller who is late after the change, by skew_max at most, may gain units that were over then.
 */
STINT_API int stint_set_quota(struct stint_table *table, const struct stint_quota *from,
                              const struct stint_quota *to, const void *key, size_t key_len,
                              uint64_t now_ns);

/* ---- Looking inside -------------------------------------------------------------------------- */

struct stint_table_info {
    uint64_t bytes;    /* of the whole region */
    uint64_t slots[3]; /* places for 8-byte, 16-byte and wide states */
    uint64_t live[3];  /* states that are not dead now */
    uint64_t blocked;  /* keys */
    uint32_t quotas, quotas_max;
    uint32_t tickets, wide_size;
    uint32_t pools, pools_max; /* names that were ever opened, and how many may be */
    uint64_t skew_max_ns, mark_ns;
    int64_t epoch_ns;                   /* wall clock at now = 0 */
    uint64_t evictions_lossless;        /* dead states reused */
    uint64_t evictions_inherit;         /* decisions on new keys that wait: none evicted */
    uint64_t evictions_evict;           /* live states that were evicted */
    uint64_t full_denied, full_allowed; /* decisions on new keys without a slot */
    uint64_t undo_kept_units; /* charged by a list that was refused, could not be given back */
    uint64_t tickets_dropped; /* unsettled when the ring was full */
    uint64_t owners_displaced;
    uint64_t states_damaged; /* at openings: made full for one period, or forgotten */
    uint8_t memory, clock;
    bool huge_pages;
    bool restored; /* an existing file was opened */
    bool filled;   /* after an unclean boot: live states were made full for one period */
    uint32_t overrides, overrides_max; /* keys with a quota of their own */
    uint64_t requests, requests_max;   /* answers kept for retries */
    uint64_t requests_dropped;         /* before their time, for want of a place */
    uint64_t forgotten_units;          /* that evicted states still held */
    uint64_t reservations_expired[3];  /* never settled; by enum stint_expiry */
    uint64_t expiry_kept_units;        /* of these, that could not be given back */
};

STINT_API void stint_table_info(const struct stint_table *table, uint64_t now_ns,
                                struct stint_table_info *info);

struct stint_entry {
    struct stint_quota quota;
    uint64_t key_hash; /* keyed: names the key within this table only */
    uint64_t expires_at_ns;
    /*
     * How things stand, nothing taken: `remaining` units are left, all is as never used after
     * `reset_after_ns`; `outcome` and `retry_after_ns` are what a take of one unit would be told.
     * A block of the key is not looked at.
     */
    struct stint_decision decision;
};

/*
 * Calls `visit` for every live state, in no order, while others go on deciding; stops when it
 * returns false. stint_find() looks at one key without touching it: 0, or STINT_E_GONE.
 */
STINT_API void stint_table_each(const struct stint_table *table, uint64_t now_ns,
                                bool (*visit)(const struct stint_entry *entry, void *arg),
                                void *arg);
STINT_API int stint_find(const struct stint_table *table, const struct stint_quota *quota,
                         const void *key, size_t key_len, uint64_t now_ns,
                         struct stint_entry *entry);

/* Writes a consistent-per-state copy of the table to a file that stint_table_open() accepts. */
STINT_API int stint_table_snapshot(const struct stint_table *table, const char *path,
                                   struct stint_error *error);

/* ---- Waiters --------------------------------------------------------------------------------- */

/*
 * A FIFO of callers who wait for units, for programs that block or have an event loop. Time is an
 * argument here too; nothing sleeps. The first waiter's cost is asked for alone, so that a big
 * request is not starved by small ones behind it, and each place wakes one waiter.
 */
struct stint_waiters;

STINT_API struct stint_waiters *stint_waiters_new(size_t waiters_max);
STINT_API void stint_waiters_free(struct stint_waiters *waiters);
/* Appends a waiter; *id names it. STINT_E_FULL when waiters_max wait already. */
STINT_API int stint_waiters_add(struct stint_waiters *waiters, uint32_t cost, uint64_t deadline_ns,
                                uint64_t *id);
/* STINT_E_GONE if it is no longer waiting. */
STINT_API int stint_waiters_cancel(struct stint_waiters *waiters, uint64_t id);

struct stint_wake {
    uint64_t id;      /* 0: nobody to wake now */
    bool expired;     /* the deadline passed: the waiter goes away without units */
    uint64_t next_ns; /* when to call again at the latest; STINT_NEVER_NS if nobody waits */
    struct stint_decision decision;
};
/* Takes units for the first waiter if they are free, and says whom to wake. Call until id is 0. */
STINT_API struct stint_wake stint_waiters_wake(struct stint_waiters *waiters,
                                               struct stint_table *table,
                                               const struct stint_quota *quota, const void *key,
                                               size_t key_len, uint64_t now_ns);

/* ---- Key pools ------------------------------------------------------------------------------- */

/*
 * Several keys (API keys, accounts, egress addresses), each good for its own quotas: which may be
 * used now, or when? A pool is this process's list of keys; how far each is used, and which are
 * cooling down, stands in the table, under the pool's name and the key's. So processes that share a
 * table share the pool, also over restarts. No key ever passes its quotas.
 *
 * Every key has a state of its own in the table, and is back when its own quotas say so. A pool
 * that is used up answers without a look at its keys until the first of them is back, or something
 * is given back or reported.
 *
 * Any number of threads may use a pool, also while one adds or removes keys; stint_pool_close()
 * must be the last call. The table must outlive it. Names are all that is kept of a key, and
 * for as long as the pool is open: its secret stays with you.
 */
struct stint_pool;

#define STINT_POOL_NAME_MAX 255 /* bytes in the name of a pool or of a key */
#define STINT_POOL_QUOTAS_MAX 4
#define STINT_POOL_KEYS_MAX 65536
#define STINT_POOL_WEIGHT_MAX 1000

enum stint_pool_order {
    STINT_ROUND_ROBIN = 0, /* by turns, in the order of their names */
    STINT_FILL_FIRST,      /* the first that was added and has room */
    STINT_LEAST_USED,      /* the one of which the least share is used */
};

struct stint_pool_options {
    const char *name; /* pools of one name in a table share their states. NULL = "" */
    size_t keys_max;  /* default 1,024, at most STINT_POOL_KEYS_MAX */
    uint8_t order;    /* enum stint_pool_order */
};

/* Borrowed during the call: the pool keeps copies. */
struct stint_pool_key {
    const char *name;                 /* printable, without blanks */
    const struct stint_quota *quotas; /* all or nothing; not concurrency. Where the table is full a
                                         key is denied, whatever their when_full says */
    size_t n_quotas;                  /* 1 … STINT_POOL_QUOTAS_MAX */
    uint32_t weight; /* 0 = 1, at most STINT_POOL_WEIGHT_MAX. round_robin: turns in a round;
                        least_used: a key of weight 2 counts as half as much used */
};

/*
 * STINT_E_FULL where the table knows `pools` names already, STINT_E_MISMATCH for a table opened
 * read-only. NULL options are the defaults; closing NULL is fine.
 */
STINT_API int stint_pool_open(struct stint_pool **pool, struct stint_table *table,
                              const struct stint_pool_options *options, struct stint_error *error);
STINT_API void stint_pool_close(struct stint_pool *pool);

/*
 * add refuses a name that is there already (STINT_E_MISMATCH), and quotas that stint_table_accepts
 * refuses. What the key used before, and a bench, it finds again. remove takes a key from this
 * process's list (STINT_E_GONE if it is not there) and lifts STINT_POOL_OUT; what it used stays.
 */
STINT_API int stint_pool_add(struct stint_pool *pool, const struct stint_pool_key *key,
                             uint64_t now_ns, struct stint_error *error);
STINT_API int stint_pool_remove(struct stint_pool *pool, const char *name, uint64_t now_ns,
                                struct stint_error *error);

struct stint_pool_ask {
    uint64_t now_ns;
    uint32_t cost; /* 0 asks without taking */
    bool probe;    /* if all keys are cooling, try the nearest to recover */
};

struct stint_pool_answer {
    const char *name;       /* the key; NULL: none is free. Valid until the pool is closed */
    uint64_t wait_ns;       /* none is free: until the first is; STINT_NEVER_NS if none ever */
    uint64_t granted_at_ns; /* for give_back */
    bool probe;             /* it is cooling still: try it, and report what comes of it */
    struct stint_decision decision; /* of the key; of the first to return if none is free */
};

/*
 * Chooses a key and charges all its quotas, in one step: whoever is killed in it leaves a key
 * charged or not. With nobody else asking, none is free at now + wait - 1 ns, and one is at now +
 * wait. Asking changes no bench.
 */
STINT_API struct stint_pool_answer stint_pool_next(struct stint_pool *pool,
                                                   const struct stint_pool_ask *ask);

/*
 * Gives back `cost` units of a grant that was not used, as stint_refund() does; *given_back (may
 * be NULL) says how many came back. STINT_E_GONE for a name that is not there.
 */
STINT_API int stint_pool_give_back(struct stint_pool *pool, const char *name, uint32_t cost,
                                   uint64_t granted_at_ns, uint64_t now_ns, uint32_t *given_back);

/* What the far side said. */
enum stint_pool_outcome {
    STINT_POOL_OK = 0, /* lifts every bench, and forgets failures */
    STINT_POOL_COOL,   /* 429 with a time: cooling down for cooldown_ns, at most 365 days. While it
                          cools, only a longer cooldown than the one it has moves its end */
    STINT_POOL_BACK_OFF, /* 429 without one: cooling down for 1 s, doubled with each failure in turn
                            up to 1 h; a failure is remembered for as long again. Changes nothing
                            while the key cools */
    STINT_POOL_OUT,      /* 401, 403: cooling down until it is reported OK, or removed */
};

/*
 * For all who share the pool. cooldown_ns is for COOL, and 0 else. STINT_E_GONE for a name that is
 * not there, STINT_E_FULL when `blocks` of the table are in use.
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
    const char *name; /* never a secret: there is none here */
    uint32_t weight;
    uint8_t standing; /* enum stint_pool_standing */
    uint8_t failures; /* in turn, without a time and not forgotten */
    uint8_t pad[2];
    uint64_t returns_after_ns;      /* until one unit may be taken; STINT_NEVER_NS if never */
    struct stint_decision decision; /* of its quotas, the bench left aside; nothing taken */
};

/* Calls `visit` for each key, in the order in which they were added, until it returns false. */
STINT_API void stint_pool_each(struct stint_pool *pool, uint64_t now_ns,
                               bool (*visit)(const struct stint_pool_status *status, void *arg),
                               void *arg);

/* ---- Keys used most -------------------------------------------------------------------------- */

/*
 * A list of the keys that are used most, and denied most, in bounded memory, however many keys
 * there are. It limits nothing: it is told of uses, and names the keys behind them.
 *
 * A key kept has a score: each unit noted counts 1 at first, half as much after a half-life, a
 * quarter after two. A new key that finds no place takes that of the lowest of a few scores, and
 * its score: so a key that is used often is in the list, but a score may be too high, by over_by at
 * most. Memory: 320 bytes a key.
 *
 * One thread at a time notes in a list. Any thread may read it meanwhile; a note that meets a
 * reading is left out. For several threads give each a list of its own, and read them together.
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
 * A key was used, or would have been: is_denied. 0 units count as one. Keys are told apart by all
 * their bytes, of which the first STINT_TOP_KEY_MAX are kept. A time before the latest one of the
 * list counts as that.
 */
STINT_API void stint_top_note(struct stint_top *top, const void *key, size_t key_len,
                              uint32_t units, bool is_denied, uint64_t now_ns);

enum stint_top_order { STINT_TOP_UNITS = 0, STINT_TOP_DENIED };

struct stint_top_key {
    double units, denied; /* scores: of all units noted, and of the denied ones among them */
    double over_by;       /* of `units` at most so much was of other keys */
    double units_per_s;   /* the steady use that has this score in the long run */
    double denied_per_s;
    uint64_t last_ns; /* when it was noted last */
    uint16_t key_len;
    bool is_cut; /* the key was longer */
    uint8_t pad[5];
    uint8_t key[STINT_TOP_KEY_MAX];
};

/*
 * The first keys of all these lists, equal ones added up, the highest score first by `order`, an
 * enum stint_top_order; under STINT_TOP_DENIED those with a denied unit alone. Their number, at
 * most keys_max, or STINT_E_SYSTEM without memory.
 */
STINT_API int stint_top_read(struct stint_top *const *tops, size_t n_tops, int order,
                             uint64_t now_ns, struct stint_top_key *keys, size_t keys_max);

/* ---- Keys from addresses --------------------------------------------------------------------- */

/*
 * The key of an IP address in text: its first v4_bits or v6_bits, the rest zero, in canonical
 * text without a length ("2001:db8::"). Brackets, a port and a zone are dropped; v4-mapped v6
 * addresses are their IPv4. Returns the length written (text_size of 46 always suffices), or
 * STINT_E_SYNTAX.
 */
STINT_API int stint_address_key(char *text, size_t text_size, const char *address,
                                size_t address_len, unsigned v4_bits, unsigned v6_bits);

#ifdef __cplusplus
}
#endif
#endif
