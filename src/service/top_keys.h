/* SPDX-License-Identifier: MIT */
/*
 * The keys requested most and denied most, by name, in bounded memory: a list of stint.h, in which
 * rules distinguish keys.
 *
 * Each worker notes for itself; a reader adds up the lists. Names are kept unescaped, their first
 * TOP_KEYS_NAME_MAX bytes; output has to escape them.
 */
#ifndef STINT_SERVICE_TOP_KEYS_H
#define STINT_SERVICE_TOP_KEYS_H

#include "base/span.h"
#include "rules/rules.h"

#define TOP_KEYS_HALF_LIFE_NS (UINT64_C(60) * 1000000000) /* by default */
#define TOP_KEYS_NAME_MAX 96
#define TOP_KEYS_MAX STINT_TOP_KEYS_MAX

enum top_keys_order { TOP_KEYS_ASKED, TOP_KEYS_DENIED };

struct top_keys;

/*
 * keys: how many each worker keeps; 0 = as stint_top_open(). half_life_ns: of scores, 0 =
 * TOP_KEYS_HALF_LIFE_NS. NULL: no memory.
 */
struct top_keys *top_keys_new(unsigned workers, size_t keys, uint64_t half_life_ns);
void top_keys_free(struct top_keys *top_keys); /* NULL is allowed */
uint64_t top_keys_half_life_ns(const struct top_keys *top_keys);

/* One request for a key. */
struct top_keys_ask {
    const struct rule *rule; /* NULL: a quota that the caller brought along */
    struct span key;         /* as people know it: the values of the descriptor, or the item's key.
                                rule and key together are what is counted */
    uint32_t units;          /* requested; 0 counts as 1 */
    bool denied;
    uint64_t now_ns; /* a time of one clock, the same for all */
};

/* One thread at a time for each worker. */
void top_keys_note(struct top_keys *top_keys, unsigned worker, const struct top_keys_ask *ask);

/* A key at the time of the reading. Scores count requested units, also denied ones. */
struct top_key {
    char domain[64]; /* "" where there was no rule; cut where they are longer */
    char rule[96];   /* its path */
    uint8_t name[TOP_KEYS_NAME_MAX];
    uint8_t name_len;
    bool cut;             /* the name was longer */
    double asked, denied; /* units, halved for every half-life since the request */
    double over_by;       /* at most this part of `asked` belongs to other keys */
    double asked_per_s;   /* the steady rate that gives this score */
    double denied_per_s;
    uint64_t last_asked_ns; /* time of the last request */
};

/*
 * Writes the keys with the greatest scores, in descending order; returns their number, at most
 * `most`. Any thread, while workers go on noting.
 */
size_t top_keys_read(struct top_keys *top_keys, enum top_keys_order order, uint64_t now_ns,
                     struct top_key *keys, size_t most);

#endif
