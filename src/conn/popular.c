/* SPDX-License-Identifier: MIT */
/*
 * Keys by how much they are asked. Scores grow rather than decay: what comes later counts for more,
 * by a factor that doubles every half-life, so that an old score needs no touching (Cormode et al.,
 * "Forward Decay", 2009). Where the factor gets large, all scores of a worker are scaled down.
 *
 * A worker that is asked a lot notes one request of several, with that many times its units.
 */
#include "conn/popular.h"

#include "base/ns.h"
#include "base/siphash.h"
#include "base/wide_int.h"

#include <gnutls/crypto.h>
#include <stdlib.h>

#define WAYS 8                         /* among which the least makes room */
#define STEP_NS (10 * NS_PER_MS)       /* time goes by in these */
#define STEP_GROWTH 1.0001155312033088 /* of the factor: 2 to the power of STEP_NS / half-life */
#define FACTOR_MAX 1e100
#define EPOCH_NS (100 * NS_PER_MS) /* how often it is found out how much is asked */
#define NOTES_PER_EPOCH 500        /* of one worker, about */
#define STRIDE_MAX 64
#define LN2 0.693147180559945

_Static_assert(POPULAR_HALF_LIFE_NS == 6000 * STEP_NS, "STEP_GROWTH counts on it");

/* What is looked at to find a key, or the least of some: apart from the rest, in two lines. */
struct set {
    _Alignas(128) uint64_t ids[WAYS]; /* 0: free */
    double asked[WAYS];
};

struct popular_entry {
    double denied, over_by;
    uint64_t last_asked_ns;
    char domain[64], rule[96];
    uint8_t name[POPULAR_NAME_MAX];
    uint8_t name_len;
    bool cut;
};

/* What one worker notes. */
struct shard {
    /* 1: held. Whoever reads waits for it; the worker does not, and goes without a note then. */
    _Alignas(128) uint32_t held;
    uint32_t until_next; /* requests that are not noted before the next that is */
    uint32_t stride;     /* requests that a note stands for, on average */
    uint32_t random;
    uint64_t epoch_ns, asked_in_epoch;
    uint64_t step; /* of time, for which `factor` is right */
    double factor;
    struct set *sets;
    struct popular_entry *entries; /* WAYS of each set */
};

struct popular {
    unsigned workers;
    size_t n_sets; /* of each */
    uint64_t secret[2];
    struct shard *shards;
};

struct popular *popular_new(unsigned workers, size_t keys)
{
    struct popular *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    keys = keys > 0 ? keys : POPULAR_KEYS_DEFAULT;
    keys = keys < POPULAR_KEYS_MAX ? keys : POPULAR_KEYS_MAX;
    made->workers = workers;
    made->n_sets = (keys + WAYS - 1) / WAYS;
    made->shards = aligned_alloc(128, workers * sizeof(*made->shards));
    bool works = made->shards != NULL &&
                 gnutls_rnd(GNUTLS_RND_NONCE, made->secret, sizeof(made->secret)) == 0;
    if (made->shards != NULL)
        memset(made->shards, 0, workers * sizeof(*made->shards));
    for (unsigned i = 0; works && i < workers; i++) {
        struct shard *shard = &made->shards[i];
        shard->factor = 1;
        shard->stride = 1;
        shard->random = i + 1;
        shard->sets = aligned_alloc(128, made->n_sets * sizeof(*shard->sets));
        shard->entries = calloc(made->n_sets * WAYS, sizeof(*shard->entries));
        works = shard->sets != NULL && shard->entries != NULL;
        if (shard->sets != NULL)
            memset(shard->sets, 0, made->n_sets * sizeof(*shard->sets));
    }
    if (!works) {
        popular_free(made);
        return NULL;
    }
    return made;
}

void popular_free(struct popular *popular)
{
    if (popular == NULL)
        return;
    for (unsigned i = 0; popular->shards != NULL && i < popular->workers; i++) {
        free(popular->shards[i].sets);
        free(popular->shards[i].entries);
    }
    free(popular->shards);
    free(popular);
}

static bool try_hold(struct shard *shard)
{
    /* acquire: what the last holder wrote is seen. */
    return __atomic_exchange_n(&shard->held, 1, __ATOMIC_ACQUIRE) == 0;
}

static void let_go(struct shard *shard)
{
    __atomic_store_n(&shard->held, 0, __ATOMIC_RELEASE);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* STEP_GROWTH to the power of n; FACTOR_MAX where it is more. */
static double growth(uint64_t n)
{
    double result = 1, base = STEP_GROWTH;
    for (; n > 0 && result < FACTOR_MAX; n >>= 1) {
        if ((n & 1) != 0)
            result *= base;
        base = base < FACTOR_MAX ? base * base : base;
    }
    return result < FACTOR_MAX ? result : FACTOR_MAX;
}

static void scale_down(const struct popular *popular, struct shard *shard, double by)
{
    for (size_t i = 0; i < popular->n_sets * WAYS; i++) {
        shard->sets[i / WAYS].asked[i % WAYS] /= by;
        shard->entries[i].denied /= by;
        shard->entries[i].over_by /= by;
    }
}

static void go_on(const struct popular *popular, struct shard *shard, uint64_t now_ns)
{
    uint64_t step = now_ns / STEP_NS;
    if (step <= shard->step)
        return;
    shard->factor *= growth(step - shard->step);
    shard->step = step;
    if (shard->factor >= FACTOR_MAX) {
        scale_down(popular, shard, shard->factor);
        shard->factor = 1;
    }
}

/* ---- Noting ---------------------------------------------------------------------------------- */

static uint32_t stride_for(uint64_t asked)
{
    uint32_t stride = 1;
    while (stride < STRIDE_MAX && asked / (2 * stride) >= NOTES_PER_EPOCH)
        stride *= 2;
    return stride;
}

/* How many go by before the next note: 0 … 2 (stride - 1), so that no rhythm escapes it. */
static uint32_t draw_gap(struct shard *shard)
{
    shard->random = shard->random * 1664525u + 1013904223u;
    uint32_t choices = 2 * shard->stride - 1;
    return (uint32_t)(((uint64_t)shard->random * choices) >> 32);
}

static void count_epoch(struct shard *shard, uint64_t now_ns)
{
    if (now_ns < shard->epoch_ns + EPOCH_NS)
        return;
    /* An epoch that nobody asked in for long says nothing of now: begin with every request. */
    bool is_old = now_ns >= shard->epoch_ns + 2 * EPOCH_NS;
    shard->stride = is_old ? 1 : stride_for(shard->asked_in_epoch);
    shard->epoch_ns = now_ns;
    shard->asked_in_epoch = 0;
}

static uint64_t id_of(const struct popular *popular, const struct popular_ask *ask)
{
    uint64_t rule = ask->rule != NULL ? ask->rule->id : 0;
    uint64_t id = siphash13_128(popular->secret, rule, ask->key.ptr, ask->key.len).lo;
    return id | (id == 0);
}

static void copy_cut(char *to, size_t size, const char *from)
{
    size_t len = 0;
    while (len < size - 1 && from[len] != '\0')
        len++;
    memcpy(to, from, len);
    to[len] = '\0';
}

/* The newcomer takes over the score of whom it displaces: it may have been asked as often. */
static void settle(struct popular_entry *entry, double score, const struct popular_ask *ask)
{
    entry->over_by = score;
    entry->denied = 0;
    copy_cut(entry->domain, sizeof(entry->domain), ask->rule != NULL ? ask->rule->domain : "");
    copy_cut(entry->rule, sizeof(entry->rule), ask->rule != NULL ? ask->rule->path : "");
    entry->cut = ask->key.len > POPULAR_NAME_MAX;
    entry->name_len = (uint8_t)(entry->cut ? POPULAR_NAME_MAX : ask->key.len);
    if (entry->name_len > 0)
        memcpy(entry->name, ask->key.ptr, entry->name_len);
}

/* The way of an id in its set; that of the least, made its own, if it is new. */
static size_t way_of(struct set *set, struct popular_entry *entries, uint64_t id,
                     const struct popular_ask *ask)
{
    size_t least = 0;
    for (size_t way = 0; way < WAYS; way++) {
        if (set->ids[way] == id)
            return way;
        if (set->asked[way] < set->asked[least])
            least = way;
    }
    set->ids[least] = id;
    settle(&entries[least], set->asked[least], ask);
    return least;
}

static void add(const struct popular *popular, struct shard *shard, const struct popular_ask *ask,
                double score)
{
    uint64_t id = id_of(popular, ask);
    size_t number = (size_t)(((id >> 32) * popular->n_sets) >> 32);
    struct set *set = &shard->sets[number];
    struct popular_entry *entries = &shard->entries[number * WAYS];
    size_t way = way_of(set, entries, id, ask);
    set->asked[way] += score;
    if (ask->denied)
        entries[way].denied += score;
    entries[way].last_asked_ns = max_u64(entries[way].last_asked_ns, ask->now_ns);
}

void popular_note(struct popular *popular, unsigned worker, const struct popular_ask *ask)
{
    struct shard *shard = &popular->shards[worker];
    shard->asked_in_epoch++;
    if (shard->until_next > 0) {
        shard->until_next--;
        return;
    }
    count_epoch(shard, ask->now_ns);
    double units = (double)(ask->units > 0 ? ask->units : 1) * shard->stride;
    shard->until_next = draw_gap(shard);
    if (!try_hold(shard))
        return;
    go_on(popular, shard, ask->now_ns);
    add(popular, shard, ask, units * shard->factor);
    let_go(shard);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* A key of one worker, or of all once they are added up; and where its name stands. */
struct found {
    uint64_t id;
    double asked, denied, over_by;
    uint64_t last_asked_ns;
    unsigned worker;
    size_t index;
};

/* What is asked at the time of the reading counts 1. */
static size_t collect(struct popular *popular, unsigned worker, uint64_t now_ns,
                      struct found *found)
{
    struct shard *shard = &popular->shards[worker];
    size_t n = 0;
    while (!try_hold(shard)) {
    }
    go_on(popular, shard, now_ns);
    for (size_t i = 0; i < popular->n_sets * WAYS; i++) {
        const struct popular_entry *entry = &shard->entries[i];
        const struct set *set = &shard->sets[i / WAYS];
        if (set->ids[i % WAYS] != 0)
            found[n++] = (struct found){set->ids[i % WAYS],
                                        set->asked[i % WAYS] / shard->factor,
                                        entry->denied / shard->factor,
                                        entry->over_by / shard->factor,
                                        entry->last_asked_ns,
                                        worker,
                                        i};
    }
    let_go(shard);
    return n;
}

static int by_id(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return x->id != y->id ? (x->id < y->id ? -1 : 1) : 0;
}

/* Adds up those of one id; how many there are then. */
static size_t merge(struct found *found, size_t n)
{
    size_t merged = 0;
    if (n > 1)
        qsort(found, n, sizeof(*found), by_id);
    for (size_t i = 0; i < n; i++) {
        if (merged == 0 || found[merged - 1].id != found[i].id) {
            found[merged++] = found[i];
            continue;
        }
        struct found *sum = &found[merged - 1];
        sum->asked += found[i].asked;
        sum->denied += found[i].denied;
        sum->over_by += found[i].over_by;
        sum->last_asked_ns = max_u64(sum->last_asked_ns, found[i].last_asked_ns);
    }
    return merged;
}

static int by_score(double x, double y, const struct found *a, const struct found *b)
{
    if (x != y)
        return x > y ? -1 : 1;
    return by_id(a, b);
}

static int by_asked(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return by_score(x->asked, y->asked, x, y);
}

static int by_denied(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return by_score(x->denied, y->denied, x, y);
}

/* False if the key has lost its place meanwhile. */
static bool describe(struct popular *popular, const struct found *found, struct popular_key *key)
{
    struct shard *shard = &popular->shards[found->worker];
    const struct popular_entry *entry = &shard->entries[found->index];
    const double per_s = LN2 / ((double)POPULAR_HALF_LIFE_NS / (double)NS_PER_S);
    while (!try_hold(shard)) {
    }
    bool is_there = shard->sets[found->index / WAYS].ids[found->index % WAYS] == found->id;
    *key = (struct popular_key){.name_len = entry->name_len, .cut = entry->cut};
    memcpy(key->domain, entry->domain, sizeof(key->domain));
    memcpy(key->rule, entry->rule, sizeof(key->rule));
    memcpy(key->name, entry->name, sizeof(key->name));
    let_go(shard);
    key->asked = found->asked;
    key->denied = found->denied;
    key->over_by = found->over_by;
    key->asked_per_s = found->asked * per_s;
    key->denied_per_s = found->denied * per_s;
    key->last_asked_ns = found->last_asked_ns;
    return is_there;
}

size_t popular_read(struct popular *popular, enum popular_order order, uint64_t now_ns,
                    struct popular_key *keys, size_t most)
{
    struct found *found = calloc(popular->workers * popular->n_sets * WAYS, sizeof(*found));
    size_t n = 0, told = 0;
    if (found == NULL)
        return 0;
    for (unsigned worker = 0; worker < popular->workers; worker++)
        n += collect(popular, worker, now_ns, found + n);
    n = merge(found, n);
    if (n > 1)
        qsort(found, n, sizeof(*found), order == POPULAR_ASKED ? by_asked : by_denied);
    for (size_t i = 0; i < n && told < most; i++) {
        bool counts = order == POPULAR_ASKED || found[i].denied > 0;
        told += counts && describe(popular, &found[i], &keys[told]);
    }
    free(found);
    return told;
}
