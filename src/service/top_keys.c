/* SPDX-License-Identifier: MIT */
/*
 * A list of keys for each worker, read together. A busy worker notes one request of several, with
 * its units multiplied by as many.
 */
#include "service/top_keys.h"

#include "base/ns.h"
#include "limiter/top.h"

#include <assert.h>
#include <stdlib.h>

#define EPOCH_NS (100 * NS_PER_MS) /* how often the rate of requests is measured */
#define NOTES_PER_EPOCH 100        /* of one worker, on average */
#define STRIDE_MAX 64
#define DOMAIN_SIZE sizeof(((struct top_key *)NULL)->domain)
#define RULE_SIZE sizeof(((struct top_key *)NULL)->rule)

_Static_assert(DOMAIN_SIZE + RULE_SIZE + TOP_KEYS_NAME_MAX <= STINT_TOP_KEY_MAX, "all is kept");

/* What one worker notes. */
struct worker {
    _Alignas(64) struct stint_top *top;
    uint32_t until_next; /* requests that are not noted before the next note */
    uint32_t stride;     /* requests that a note represents, on average */
    uint32_t random;
    uint64_t epoch_ns, asked_in_epoch;
};

/* For assertions. */
__attribute__((unused)) static bool worker_is_valid(const struct worker *worker)
{
    return worker->top != NULL && worker->stride >= 1 && worker->stride <= STRIDE_MAX &&
           worker->until_next <= 2 * (worker->stride - 1);
}

struct top_keys {
    unsigned n_workers;
    uint64_t half_life_ns;
    struct worker *workers;
    struct stint_top **tops; /* of all workers */
};

struct top_keys *top_keys_new(unsigned workers, size_t keys, uint64_t half_life_ns)
{
    assert(workers > 0);
    struct top_keys *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->n_workers = workers;
    made->half_life_ns = half_life_ns > 0 ? half_life_ns : TOP_KEYS_HALF_LIFE_NS;
    made->workers = aligned_alloc(64, workers * sizeof(*made->workers));
    made->tops = calloc(workers, sizeof(struct stint_top *));
    const struct stint_top_options options = {
        .keys = keys < TOP_KEYS_MAX ? keys : TOP_KEYS_MAX,
        .half_life_ns = made->half_life_ns,
    };
    bool works = made->workers != NULL && made->tops != NULL;
    for (unsigned i = 0; works && i < workers; i++) {
        works = stint_top_open(&made->tops[i], &options, NULL) == 0;
        made->workers[i] = (struct worker){.top = made->tops[i], .stride = 1, .random = i + 1};
    }
    if (!works) {
        top_keys_free(made);
        return NULL;
    }
    return made;
}

void top_keys_free(struct top_keys *top_keys)
{
    if (top_keys == NULL)
        return;
    for (unsigned i = 0; top_keys->tops != NULL && i < top_keys->n_workers; i++)
        stint_top_close(top_keys->tops[i]);
    free(top_keys->tops);
    free(top_keys->workers);
    free(top_keys);
}

uint64_t top_keys_half_life_ns(const struct top_keys *top_keys)
{
    assert(top_keys->half_life_ns > 0);
    return top_keys->half_life_ns;
}

/* ---- Noting ---------------------------------------------------------------------------------- */

static uint32_t stride_for(uint64_t asked)
{
    uint32_t stride = 1;
    while (stride < STRIDE_MAX && asked / (2 * stride) >= NOTES_PER_EPOCH)
        stride *= 2;
    return stride;
}

/* How many requests to skip before the next note: 0 … 2 (stride - 1), without a pattern. */
static uint32_t draw_gap(struct worker *worker)
{
    assert(worker->stride > 0);
    worker->random = worker->random * 1664525u + 1013904223u;
    uint32_t choices = 2 * worker->stride - 1;
    return (uint32_t)(((uint64_t)worker->random * choices) >> 32);
}

static void count_epoch(struct worker *worker, uint64_t now_ns)
{
    if (now_ns < worker->epoch_ns + EPOCH_NS)
        return;
    /* After a long epoch without requests the rate is unknown: begin with every request. */
    bool is_old = now_ns >= worker->epoch_ns + 2 * EPOCH_NS;
    worker->stride = is_old ? 1 : stride_for(worker->asked_in_epoch);
    worker->epoch_ns = now_ns;
    worker->asked_in_epoch = 0;
}

void top_keys_note(struct top_keys *top_keys, unsigned number, const struct top_keys_ask *ask)
{
    assert(number < top_keys->n_workers);
    assert(worker_is_valid(&top_keys->workers[number]));
    struct worker *worker = &top_keys->workers[number];
    worker->asked_in_epoch++;
    if (worker->until_next > 0) {
        worker->until_next--;
        return;
    }
    count_epoch(worker, ask->now_ns);
    const struct top_use use = {
        .kind = ask->rule != NULL ? ask->rule->id : 0,
        .labels = {ask->rule != NULL ? ask->rule->domain : "",
                   ask->rule != NULL ? ask->rule->path : ""},
        .label_sizes = {DOMAIN_SIZE, RULE_SIZE},
        .key = ask->key,
        .key_max = TOP_KEYS_NAME_MAX,
        .units = (uint64_t)(ask->units > 0 ? ask->units : 1) * worker->stride,
        .is_denied = ask->denied,
        .now_ns = ask->now_ns,
    };
    worker->until_next = draw_gap(worker);
    assert(worker_is_valid(worker));
    top_note(worker->top, &use);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* "DOMAIN\0RULE\0NAME" */
static void describe(struct top_key *key, const struct stint_top_key *from)
{
    const char *text = (const char *)from->key;
    size_t domain_size = strlen(text) + 1, rule_size = strlen(text + domain_size) + 1;
    size_t labels_size = domain_size + rule_size;
    *key = (struct top_key){.name_len = (uint8_t)(from->key_len - labels_size),
                            .cut = from->is_cut,
                            .asked = from->units,
                            .denied = from->denied,
                            .over_by = from->over_by,
                            .asked_per_s = from->units_per_s,
                            .denied_per_s = from->denied_per_s,
                            .last_asked_ns = from->last_ns};
    assert(domain_size <= sizeof(key->domain) && rule_size <= sizeof(key->rule));
    assert(from->key_len - labels_size <= sizeof(key->name));
    memcpy(key->domain, text, domain_size);
    memcpy(key->rule, text + domain_size, rule_size);
    memcpy(key->name, text + labels_size, key->name_len);
}

size_t top_keys_read(struct top_keys *top_keys, enum top_keys_order order, uint64_t now_ns,
                     struct top_key *keys, size_t most)
{
    assert(keys != NULL && most > 0);
    struct stint_top_key *found = calloc(most, sizeof(*found));
    if (found == NULL)
        return 0;
    int n = stint_top_read(top_keys->tops, top_keys->n_workers,
                           order == TOP_KEYS_DENIED ? STINT_TOP_DENIED : STINT_TOP_UNITS, now_ns,
                           found, most);
    for (int i = 0; i < n; i++)
        describe(&keys[i], &found[i]);
    free(found);
    return n > 0 ? (size_t)n : 0;
}
