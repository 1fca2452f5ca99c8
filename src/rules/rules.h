/* SPDX-License-Identifier: MIT */
/*
 * The rules of a set of files: which quota applies to a descriptor. rules_load.h makes it, any
 * number of threads read it, it never changes; the last rules_unref() frees it. Usage is counted
 * elsewhere.
 */
#ifndef STINT_RULES_RULES_H
#define STINT_RULES_RULES_H

#include "base/span.h"
#include "stint.h"

/* ---- Descriptors: lists of (key, value), like Envoy's; borrowed ------------------------------ */

#define DESCRIPTORS_MAX STINT_ITEMS_MAX /* in one request */
#define ENTRIES_MAX 32                  /* in one descriptor */

struct descriptor_entry {
    struct span key, value;
};

struct descriptor {
    const struct descriptor_entry *entries; /* 1 … ENTRIES_MAX */
    size_t n_entries;
    uint32_t hits;                      /* requested units, where has_hits; 0 only checks */
    bool has_hits;                      /* else the request's cost */
    bool is_refund;                     /* hits are given back, not taken */
    const struct stint_quota *override; /* in place of the matched rule's quota; NULL: none. The
                                           rule's identity is put in where it is used */
};

/* ---- Rules ----------------------------------------------------------------------------------- */

/* The units of envoyproxy/ratelimit's files, with the numbers of Envoy's RateLimit.Unit. */
enum rule_unit {
    RULE_UNIT_NONE = 0, /* the period is none of them */
    RULE_SECOND,
    RULE_MINUTE,
    RULE_HOUR,
    RULE_DAY,
    RULE_MONTH,
    RULE_YEAR,
    RULE_WEEK,
};

enum rule_on_store_error {
    RULE_STORE_ERROR_DENY = 0,
    RULE_STORE_ERROR_ALLOW,
    RULE_STORE_ERROR_LOCAL,
    RULE_STORE_ERROR_ERROR /* the request fails: the store is unavailable */
};

/* The part of a key's name in braces: keys with the same text there are on one server. */
enum rule_tag {
    RULE_TAG_VALUES = 0, /* all values: keys spread, except for those of several limits on them */
    RULE_TAG_FIRST,      /* the first value */
    RULE_TAG_DOMAIN,     /* the domain: each of its decisions is one script */
};

enum rule_lease { RULE_LEASE_NONE = 0, RULE_LEASE_STRICT, RULE_LEASE_FAST };

/* Where the states of a rule are kept, and what decides while that store is unavailable. */
struct rule_store {
    uint8_t at;              /* in the stores that the rules were loaded with, from 1; 0: table */
    uint8_t tag;             /* enum rule_tag */
    uint8_t on_error;        /* enum rule_on_store_error */
    uint8_t local_then;      /* the same, but not LOCAL: once local_for_ns has passed */
    uint8_t lease;           /* enum rule_lease */
    bool local_empty;        /* local states begin with nothing used */
    uint32_t lease_units;    /* the most units of one lease. Default limit / 100, at least 1 */
    uint64_t lease_term_ns;  /* Default a twentieth of the period: 10 ms to 10 s */
    uint64_t local_for_ns;   /* Default 1 min */
    const char *label;       /* name of the store in rules. NULL: the table */
    const char *name;        /* RULE of a key's name, escaped: domain, entries, rate_limit.name */
    const char *shadow_name; /* the same of the candidate; NULL: none. Both NULL without a store */
};
#define RULE_STORE_NAME_MAX 200 /* bytes of a name */

/* How the hits of an Envoy descriptor are handled: decide/evaluation.h. */
enum rule_hits { RULE_HITS_UNSAID = 0, RULE_HITS_TAKE, RULE_HITS_CHARGE };

/* Repeated denials block the key: `after` of them within `within_ns`, for `for_ns` at first. */
struct rule_ban {
    uint32_t after;  /* 0: no ban */
    uint32_t factor; /* each ban in turn is so many times as long. Default 1 */
    uint64_t for_ns;
    uint64_t within_ns; /* default for_ns */
    uint64_t max_ns;    /* no ban is longer. Default 365 days */
};

/* A limit (or `unlimited`) at one position in a file. Strings live as long as the rules. */
struct rule {
    const char *domain;
    const char *path; /* its entries as text, for users and metrics: "path=/login.remote_address" */
    const char *name; /* rate_limit.name; "" */
    const char *file; /* or the resource of a control plane, which has no lines */
    uint32_t line, column;     /* of its entry in the file, from 1; 0: it has none */
    uint32_t index;            /* among all rules of the set, from 0: the index of its counters */
    uint64_t id;               /* hash of (domain, entries, name): the same after a reload. Not 0 */
    struct stint_quota quota;  /* checked; quota.rule is id. Not where `unlimited` */
    struct stint_quota shadow; /* candidate beside it, where has_shadow; its own quota.rule */
    struct rule_ban ban;
    struct rule_store store;
    const char *const *replaces; /* names, n_replaces of them */
    size_t n_replaces;
    struct span metadata;       /* of its entry: one object of compact JSON. Empty: none */
    uint32_t requests_per_unit; /* as written; the limit where the file has no such key */
    uint8_t unit;               /* enum rule_unit */
    uint8_t hits;               /* enum rule_hits */
    bool unlimited, shadow_mode, quota_mode, detailed_metric;
    bool value_to_metric, share_threshold; /* of its entry, or of one above it */
    bool has_shadow;
    bool has_on_expiry;
    uint32_t kept_units; /* has_on_expiry: of a reservation that is never settled */
    uint32_t shown;      /* bit i: metrics show the request's value of entry i */
    const char *metric;  /* its entries for metrics: RULE_METRIC_ENTRY and the others */
};

/*
 * rule.metric: KEY, then VALUE of the file after RULE_METRIC_VALUE if there is one, then
 * RULE_METRIC_SHOWN if a request's value replaces it; RULE_METRIC_ENTRY between entries.
 */
#define RULE_METRIC_ENTRY '\x1f'
#define RULE_METRIC_VALUE '\x1e'
#define RULE_METRIC_SHOWN '\x1d'

/* "FILE:LINE", or the file alone where it has no lines. */
struct rule_position {
    char text[256];
};
struct rule_position rule_position(const struct rule *rule);

/* The length of a unit of files and of overrides; months have 30 days, years 365. 0: none. */
uint64_t rule_unit_ns(int unit);

/* How long an admitted unit counts at most; of gcra, how long a whole burst takes to return. */
uint64_t rule_counts_for_ns(const struct stint_quota *quota);

/*
 * The same where the unit was admitted by another clock: how long a share counts as used. Units of
 * a lease are used until its term ends. `store` may be NULL.
 */
uint64_t rule_full_locally_ns(const struct stint_quota *quota, const struct rule_store *store);

struct rules;

struct rules *rules_ref(struct rules *rules);
void rules_unref(struct rules *rules); /* NULL is fine */

size_t rules_count(const struct rules *rules);
const struct rule *rules_at(const struct rules *rules, size_t index);
/* Domains in the order of their files; NULL past the last. */
const char *rules_domain(const struct rules *rules, size_t index);
size_t rules_n_domains(const struct rules *rules);
/* Its number among them; SIZE_MAX: there is no such domain. */
size_t rules_find_domain(const struct rules *rules, struct span domain);
static inline bool rules_has_domain(const struct rules *rules, struct span domain)
{
    return rules_find_domain(rules, domain) != SIZE_MAX;
}
/* Of limits that name none: as rules_load_options has it. */
uint8_t rules_default_algorithm(const struct rules *rules);

#define RULES_KEY_MAX STINT_KEY_MAX

/*
 * The match of a descriptor. `key` names the state: the rule's id, then each value with its length,
 * so that no two descriptors share one by accident (those of share_threshold do on purpose).
 */
struct rule_match {
    const struct rule *rule; /* NULL: no limit applies; allowed */
    size_t key_len;          /* 0 where rule is NULL */
};

/*
 * Writes a key: an id, then each text after its length, so that no two lists of texts have the same
 * bytes. Returns its length; where that is above `size`, nothing is written.
 */
size_t rules_write_key(uint8_t *key, size_t size, uint64_t id, const struct span *texts, size_t n);

/* The last step at one level: what an entry below a node has found. */
struct rules_step {
    struct descriptor_entry entry;
    uint32_t above, key, found; /* numbers of nodes */
};

/* The matches of a request's descriptors, all in one domain. */
struct rules_walk {
    const struct rules *rules;
    uint32_t domain;
    size_t n_levels; /* that were reached so far */
    struct rules_step levels[ENTRIES_MAX];
};

/* Keeps pointers to the rules and to the texts of descriptors: while these last. */
void rules_walk_begin(struct rules_walk *walk, const struct rules *rules, struct span domain);

/*
 * Finds the rule of a descriptor in the walk's domain, as docs/rules.md describes: at each level
 * the exact value, then wildcards in the order of the file, then the bare key; the limit must be at
 * the descriptor's last entry. Writes the key at `key`. STINT_E_RANGE for a key that would be
 * longer than key_size. The cost does not grow with the number of values at a level, but with that
 * of the patterns of a key: each is compared with the value in turn.
 */
int rules_match(struct rules_walk *walk, const struct descriptor *descriptor, uint8_t *key,
                size_t key_size, struct rule_match *match, struct stint_error *error);

#endif
