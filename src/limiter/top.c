/* SPDX-License-Identifier: MIT */
/*
 * Keys by how much they are used, in bounded memory.
 *
 * Scores grow instead of decaying: a later unit counts for more, by a factor that doubles every
 * half-life, so that an old score needs no update (Cormode et al., "Forward Decay", 2009). When the
 * factor gets large, all scores are scaled down. A new key without a free slot replaces the least
 * of a few, and takes over its score (Metwally, Agrawal, El Abbadi, "Efficient computation of
 * frequent and top-k elements in data streams", 2005), so that a key that is used often is found
 * however many others there are.
 */
#define _GNU_SOURCE
#include "limiter/top.h"

#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/siphash.h"
#include "base/wide_int.h"
#include "table/region/system.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TOP_WAYS 8                         /* slots of a set; a new key replaces the least */
#define TOP_STEPS 6000                     /* steps of time in a half-life */
#define TOP_STEP_GROWTH 1.0001155312033088 /* of the factor: 2 to the power of 1 / TOP_STEPS */
#define TOP_FACTOR_MAX 1e100
#define TOP_HALF_LIFE_NS (UINT64_C(60) * NS_PER_S)
#define TOP_KEYS_DEFAULT 1024
#define LN2 0.693147180559945

/* What a search for a key, or for the least, reads: apart from the rest, in two lines. */
struct top_set {
    _Alignas(128) uint64_t ids[TOP_WAYS]; /* 0: free */
    double units[TOP_WAYS];
};

struct top_entry {
    double denied, over_by;
    uint64_t last_ns;
    uint16_t text_len;
    bool is_cut;
    uint8_t text[STINT_TOP_KEY_MAX];
};

struct stint_top {
    /* In lines of its own, since each list belongs to another thread. 1: a reading waits for it; a
     * note does not wait, and is left out. */
    _Alignas(128) uint32_t held;
    size_t n_sets;
    uint64_t half_life_ns, step_ns;
    uint64_t secret[2];
    uint64_t step; /* of time, for which `factor` is right */
    double factor;
    struct top_set *sets;
    struct top_entry *entries; /* TOP_WAYS of each set */
};

/* What holds while the list is held. */
static __attribute__((unused)) bool top_is_valid(const struct stint_top *top)
{
    return top->n_sets > 0 && top->sets != NULL && top->entries != NULL && top->step_ns > 0 &&
           top->factor >= 1 && top->factor < TOP_FACTOR_MAX;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

/*
 * One for all lists of the process, so that equal keys of two lists can be added up. Drawn with the
 * first list; false: the system returns no random bytes.
 */
static bool copy_secret(uint64_t secret[2])
{
    static uint64_t drawn[2];
    static uint32_t state; /* 0: not drawn, 1: being drawn, 2: drawn */
    uint32_t is_new = 0;
    while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != 2) {
        is_new = 0;
        /* acquire, release: a thread that sees 2 sees the bytes. */
        if (!__atomic_compare_exchange_n(&state, &is_new, 1, false, __ATOMIC_ACQUIRE,
                                         __ATOMIC_ACQUIRE))
            continue;
        bool works = getentropy(drawn, sizeof(drawn)) == 0;
        __atomic_store_n(&state, works ? 2 : 0, __ATOMIC_RELEASE);
        if (!works)
            return false;
    }
    memcpy(secret, drawn, sizeof(drawn));
    return true;
}

static int check_options(const struct stint_top_options *options, struct stint_error *error)
{
    if (options->keys > STINT_TOP_KEYS_MAX)
        return err_set(error, STINT_E_RANGE, "a list keeps at most %d keys, found %zu",
                       STINT_TOP_KEYS_MAX, options->keys);
    if (options->half_life_ns != 0 && (options->half_life_ns < STINT_TOP_HALF_LIFE_MIN_NS ||
                                       options->half_life_ns > STINT_TOP_HALF_LIFE_MAX_NS))
        return err_set(error, STINT_E_RANGE,
                       "half_life_ns: expected 1 s to 365 days, or 0 for 1 min");
    return 0;
}

int stint_top_open(struct stint_top **top, const struct stint_top_options *options,
                   struct stint_error *error)
{
    static const struct stint_top_options defaults = {0};
    options = options != NULL ? options : &defaults;
    int code = check_options(options, error);
    if (code != 0)
        return code;
    struct stint_top *made = aligned_alloc(128, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    *made = (struct stint_top){.factor = 1};
    size_t keys = options->keys > 0 ? options->keys : TOP_KEYS_DEFAULT;
    made->n_sets = (keys + TOP_WAYS - 1) / TOP_WAYS;
    made->half_life_ns = options->half_life_ns > 0 ? options->half_life_ns : TOP_HALF_LIFE_NS;
    made->step_ns = made->half_life_ns / TOP_STEPS;
    made->sets = aligned_alloc(128, made->n_sets * sizeof(*made->sets));
    made->entries = calloc(made->n_sets * TOP_WAYS, sizeof(*made->entries));
    bool has_memory = made->sets != NULL && made->entries != NULL;
    if (!has_memory || !copy_secret(made->secret)) {
        stint_top_close(made);
        return err_set(error, STINT_E_SYSTEM,
                       has_memory ? "the system gives no random bytes"
                                  : "no memory for a list of %zu keys",
                       keys);
    }
    memset(made->sets, 0, made->n_sets * sizeof(*made->sets));
    assert(top_is_valid(made));
    *top = made;
    return 0;
}

void stint_top_close(struct stint_top *top)
{
    if (top == NULL)
        return;
    free(top->sets);
    free(top->entries);
    free(top);
}

static bool try_hold(struct stint_top *top)
{
    /* acquire: what the last holder wrote is visible. */
    return __atomic_exchange_n(&top->held, 1, __ATOMIC_ACQUIRE) == 0;
}

static void let_go(struct stint_top *top)
{
    assert(__atomic_load_n(&top->held, __ATOMIC_RELAXED) == 1);
    __atomic_store_n(&top->held, 0, __ATOMIC_RELEASE);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* TOP_STEP_GROWTH to the power of n; TOP_FACTOR_MAX where it is more. */
static double growth(uint64_t n)
{
    double result = 1, base = TOP_STEP_GROWTH;
    for (; n > 0 && result < TOP_FACTOR_MAX; n >>= 1) {
        if ((n & 1) != 0)
            result *= base;
        base = base < TOP_FACTOR_MAX ? base * base : base;
    }
    assert(result >= 1);
    return result < TOP_FACTOR_MAX ? result : TOP_FACTOR_MAX;
}

static void scale_down(struct stint_top *top, double by)
{
    assert(by > 0);
    for (size_t i = 0; i < top->n_sets * TOP_WAYS; i++) {
        top->sets[i / TOP_WAYS].units[i % TOP_WAYS] /= by;
        top->entries[i].denied /= by;
        top->entries[i].over_by /= by;
    }
}

static void go_on(struct stint_top *top, uint64_t now_ns)
{
    assert(top_is_valid(top));
    uint64_t step = now_ns / top->step_ns;
    if (step <= top->step)
        return;
    top->factor *= growth(step - top->step);
    top->step = step;
    if (top->factor >= TOP_FACTOR_MAX) {
        scale_down(top, top->factor);
        top->factor = 1;
    }
}

/* ---- Noting ---------------------------------------------------------------------------------- */

static uint64_t id_of(const struct stint_top *top, const struct top_use *use)
{
    assert(use->key.ptr != NULL || use->key.len == 0);
    uint64_t id = siphash13_128(top->secret, use->kind, use->key.ptr, use->key.len).lo;
    return id | (id == 0);
}

/* Stores the kept part of a key, and of its labels. */
static void write_text(struct top_entry *entry, const struct top_use *use)
{
    size_t at = 0;
    for (size_t i = 0; i < TOP_LABELS && use->labels[i] != NULL; i++) {
        assert(use->label_sizes[i] <= TOP_LABEL_SIZE);
        size_t len = 0;
        while (len < use->label_sizes[i] - 1 && use->labels[i][len] != '\0')
            len++;
        memcpy(entry->text + at, use->labels[i], len);
        entry->text[at + len] = '\0';
        at += len + 1;
    }
    entry->is_cut = use->key.len > use->key_max;
    size_t kept = entry->is_cut ? use->key_max : use->key.len;
    assert(at + kept <= sizeof(entry->text));
    if (kept > 0)
        memcpy(entry->text + at, use->key.ptr, kept);
    entry->text_len = (uint16_t)(at + kept);
}

/* The index of an id in its set; a new id replaces the least. */
static size_t way_of(struct top_set *set, struct top_entry *entries, uint64_t id,
                     const struct top_use *use)
{
    assert(id != 0);
    size_t least = 0;
    for (size_t way = 0; way < TOP_WAYS; way++) {
        if (set->ids[way] == id)
            return way;
        if (set->units[way] < set->units[least])
            least = way;
    }
    set->ids[least] = id;
    /* It takes over the score that it replaces: it may have been used as often. */
    entries[least].over_by = set->units[least];
    entries[least].denied = 0;
    entries[least].last_ns = 0;
    write_text(&entries[least], use);
    return least;
}

void top_note(struct stint_top *top, const struct top_use *use)
{
    assert(use->key_max <= STINT_TOP_KEY_MAX);
    if (!try_hold(top))
        return;
    go_on(top, use->now_ns);
    uint64_t id = id_of(top, use);
    size_t number = (size_t)(((id >> 32) * top->n_sets) >> 32);
    struct top_set *set = &top->sets[number];
    struct top_entry *entries = &top->entries[number * TOP_WAYS];
    double score = (double)use->units * top->factor;
    size_t way = way_of(set, entries, id, use);
    set->units[way] += score;
    if (use->is_denied)
        entries[way].denied += score;
    entries[way].last_ns = max_u64(entries[way].last_ns, use->now_ns);
    let_go(top);
}

void stint_top_note(struct stint_top *top, const void *key, size_t key_len, uint32_t units,
                    bool is_denied, uint64_t now_ns)
{
    assert(key != NULL || key_len == 0);
    top_note(top, &(struct top_use){.key = span_of(key, key_len),
                                    .key_max = STINT_TOP_KEY_MAX,
                                    .units = units > 0 ? units : 1,
                                    .is_denied = is_denied,
                                    .now_ns = now_ns});
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* A key of one list, or of all once they are added up; and a pointer to its text. */
struct top_found {
    uint64_t id;
    double units, denied, over_by, units_per_s, denied_per_s;
    uint64_t last_ns;
    struct stint_top *top;
    size_t index;
    double score; /* by which they are sorted */
};

/* Collects scores, scaled so that a use at the time of the reading counts 1. */
static size_t collect(struct stint_top *top, uint64_t now_ns, struct top_found *found)
{
    const double per_s = LN2 / ((double)top->half_life_ns / (double)NS_PER_S);
    size_t n = 0;
    while (!try_hold(top)) {
    }
    go_on(top, now_ns);
    for (size_t i = 0; i < top->n_sets * TOP_WAYS; i++) {
        const struct top_entry *entry = &top->entries[i];
        const struct top_set *set = &top->sets[i / TOP_WAYS];
        double units = set->units[i % TOP_WAYS] / top->factor, denied = entry->denied / top->factor;
        if (set->ids[i % TOP_WAYS] != 0)
            found[n++] = (struct top_found){set->ids[i % TOP_WAYS],
                                            units,
                                            denied,
                                            entry->over_by / top->factor,
                                            units * per_s,
                                            denied * per_s,
                                            entry->last_ns,
                                            top,
                                            i,
                                            0};
    }
    let_go(top);
    return n;
}

static int by_id(const void *a, const void *b)
{
    const struct top_found *x = a, *y = b;
    return x->id != y->id ? (x->id < y->id ? -1 : 1) : 0;
}

/* Adds up the entries of each id; returns how many remain. */
static size_t merge(struct top_found *found, size_t n)
{
    size_t merged = 0;
    if (n > 1)
        qsort(found, n, sizeof(*found), by_id);
    for (size_t i = 0; i < n; i++) {
        if (merged == 0 || found[merged - 1].id != found[i].id) {
            found[merged++] = found[i];
            continue;
        }
        struct top_found *sum = &found[merged - 1];
        sum->units += found[i].units;
        sum->denied += found[i].denied;
        sum->over_by += found[i].over_by;
        sum->units_per_s += found[i].units_per_s;
        sum->denied_per_s += found[i].denied_per_s;
        sum->last_ns = max_u64(sum->last_ns, found[i].last_ns);
    }
    return merged;
}

static int by_score(const void *a, const void *b)
{
    const struct top_found *x = a, *y = b;
    int order = (x->score < y->score) - (x->score > y->score);
    return order != 0 ? order : by_id(a, b);
}

/* False if the key was replaced meanwhile. */
static bool describe(const struct top_found *found, struct stint_top_key *key)
{
    assert(found->index < found->top->n_sets * TOP_WAYS);
    struct stint_top *top = found->top;
    const struct top_entry *entry = &top->entries[found->index];
    while (!try_hold(top)) {
    }
    bool is_there = top->sets[found->index / TOP_WAYS].ids[found->index % TOP_WAYS] == found->id;
    *key = (struct stint_top_key){.units = found->units,
                                  .denied = found->denied,
                                  .over_by = found->over_by,
                                  .units_per_s = found->units_per_s,
                                  .denied_per_s = found->denied_per_s,
                                  .last_ns = found->last_ns,
                                  .key_len = entry->text_len,
                                  .is_cut = entry->is_cut};
    memcpy(key->key, entry->text, entry->text_len);
    let_go(top);
    return is_there;
}

int stint_top_read(struct stint_top *const *tops, size_t n_tops, int order, uint64_t now_ns,
                   struct stint_top_key *keys, size_t keys_max)
{
    assert(tops != NULL || n_tops == 0);
    size_t space = 0, n = 0, written = 0;
    for (size_t i = 0; i < n_tops; i++)
        space += tops[i]->n_sets * TOP_WAYS;
    struct top_found *found = calloc(space > 0 ? space : 1, sizeof(*found));
    if (found == NULL)
        return STINT_E_SYSTEM;
    for (size_t i = 0; i < n_tops; i++)
        n += collect(tops[i], now_ns, found + n);
    n = merge(found, n);
    for (size_t i = 0; i < n; i++)
        found[i].score = order == STINT_TOP_DENIED ? found[i].denied : found[i].units;
    if (n > 1)
        qsort(found, n, sizeof(*found), by_score);
    keys_max = keys_max < INT_MAX ? keys_max : INT_MAX;
    for (size_t i = 0; i < n && written < keys_max; i++)
        if (order != STINT_TOP_DENIED || found[i].denied > 0)
            written += describe(&found[i], &keys[written]);
    free(found);
    return (int)written;
}
