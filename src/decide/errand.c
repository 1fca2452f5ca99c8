/* SPDX-License-Identifier: MIT */
/* Asks in their order: sent in the first run that meets them, read again in those after it. */
#include "decide/errand.h"

#include "base/wide_int.h"

#include <stdlib.h>

/* One ask, or one note. What was asked is kept as a number, to be known again. */
struct errand_ask {
    struct errand_ask *next;
    struct errand *home;
    struct shared_store *store; /* NULL: a note */
    uint64_t fingerprint;
    struct shared_op op;
    struct stint_decision one;   /* op.answer.each of a single item */
    struct stint_decision *list; /* of several; NULL: none */
};

/* ---- Memory ---------------------------------------------------------------------------------- */

struct errand *errand_new(struct errands *home, uint64_t now_ns, uint64_t timeout_ns)
{
    struct errand *errand = home->free_errands;
    if (errand != NULL)
        home->free_errands = errand->next_free;
    else
        errand = malloc(sizeof(*errand));
    if (errand == NULL)
        return NULL;
    *errand =
        (struct errand){.home = home, .now_ns = now_ns, .deadline_ns = add_sat(now_ns, timeout_ns)};
    return errand;
}

void errand_free(struct errand *errand)
{
    if (errand == NULL)
        return;
    struct errands *home = errand->home;
    if (errand->extra != NULL)
        errand->extra->free(errand->extra);
    for (struct errand_ask *ask = errand->first, *next; ask != NULL; ask = next) {
        next = ask->next;
        if (ask->store != NULL && ask->op.answer.outcome == SHARED_WAITS)
            ask->store->ops->forget(ask->store, &ask->op);
        free(ask->list);
        ask->next = home->free_asks;
        home->free_asks = ask;
    }
    errand->next_free = home->free_errands;
    home->free_errands = errand;
}

void errands_deinit(struct errands *home)
{
    while (home->free_errands != NULL) {
        struct errand *errand = home->free_errands;
        home->free_errands = errand->next_free;
        free(errand);
    }
    while (home->free_asks != NULL) {
        struct errand_ask *ask = home->free_asks;
        home->free_asks = ask->next;
        free(ask);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

void errand_rewind(struct errand *errand)
{
    errand->next = errand->first;
}

/* Mixes as multiplying by an odd number does: each bit reaches all above it, then all below. */
static uint64_t mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 32;
}

static uint64_t mix_bytes(uint64_t sum, struct span bytes)
{
    size_t i = 0;
    for (; i + sizeof(uint64_t) <= bytes.len; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes.ptr + i, sizeof(word));
        sum = mix(sum, word);
    }
    uint64_t rest = bytes.len;
    for (; i < bytes.len; i++)
        rest = rest << 8 | bytes.ptr[i];
    return mix(sum, rest);
}

/*
 * What tells one ask from another of the same request. They differ by what changed in this process
 * between two runs, and not by what a caller chose, so that no secret is needed.
 */
static uint64_t fingerprint_of(const struct shared_ask *ask)
{
    uint64_t sum = ask->verb * UINT64_C(64) + ask->n_items;
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct shared_item *item = &ask->items[i];
        sum = mix(sum, item->quota->derived.params_hash[0]);
        sum = mix(sum, item->quota->rule);
        sum = mix_bytes(mix(sum, item->cost), item->key);
    }
    return sum;
}

void errand_answered(struct errand *errand, uint64_t now_ns)
{
    errand->heard_ns = max_u64(errand->heard_ns, now_ns);
    if (--errand->n_waiting == 0 && errand->done != NULL)
        errand->done(errand->arg, now_ns);
}

static void take_answer(struct shared_op *op, uint64_t now_ns)
{
    errand_answered(((struct errand_ask *)op->arg)->home, now_ns);
}

/* Behind those that there are; NULL, and the errand is lost, without memory. */
static struct errand_ask *add_ask(struct errand *errand, size_t n_decisions)
{
    struct errands *home = errand->home;
    struct errand_ask *ask = home->free_asks;
    if (ask != NULL)
        home->free_asks = ask->next;
    else
        ask = malloc(sizeof(*ask));
    if (ask == NULL) {
        errand->is_lost = true;
        return NULL;
    }
    *ask = (struct errand_ask){.home = errand, .op = {.answered = take_answer, .arg = ask}};
    *(errand->last != NULL ? &errand->last->next : &errand->first) = ask;
    errand->last = ask;
    if (n_decisions > 1)
        ask->list = calloc(n_decisions, sizeof(*ask->list));
    ask->op.answer.each = n_decisions > 1 ? ask->list : &ask->one;
    errand->is_lost = ask->op.answer.each == NULL;
    return errand->is_lost ? NULL : ask;
}

static const struct shared_answer *send(struct errand *errand, struct shared_store *store,
                                        struct shared_ask *asked, uint64_t fingerprint)
{
    struct errand_ask *ask = add_ask(errand, asked->n_items);
    if (ask == NULL)
        return NULL;
    ask->store = store;
    ask->fingerprint = fingerprint;
    asked->is_ahead = asked->is_ahead && !errand->has_asked;
    errand->has_asked = true;
    asked->deadline_ns = errand->deadline_ns;
    /* Else one who is asked late would have the whole time once more. */
    asked->now_ns = max_u64(asked->now_ns, errand->heard_ns);
    store->ops->ask(store, asked, &ask->op);
    if (ask->op.answer.outcome != SHARED_WAITS)
        return &ask->op.answer;
    errand->n_waiting++;
    return NULL;
}

const struct shared_answer *errand_ask(struct errand *errand, struct shared_store *store,
                                       struct shared_ask *asked)
{
    if (errand->is_lost)
        return NULL;
    uint64_t fingerprint = fingerprint_of(asked);
    struct errand_ask *ask = errand->next;
    if (ask == NULL)
        return send(errand, store, asked, fingerprint);
    errand->next = ask->next;
    if (ask->fingerprint != fingerprint || ask->store != store) {
        errand->is_lost = true;
        return NULL;
    }
    return ask->op.answer.outcome != SHARED_WAITS ? &ask->op.answer : NULL;
}

struct stint_decision *errand_note(struct errand *errand, size_t n, bool *is_new)
{
    struct errand_ask *ask = errand->next;
    if (errand->is_lost)
        return NULL;
    *is_new = ask == NULL;
    if (ask == NULL) {
        ask = add_ask(errand, n);
        if (ask != NULL)
            ask->fingerprint = n;
        return ask != NULL ? ask->op.answer.each : NULL;
    }
    errand->next = ask->next;
    errand->is_lost = ask->store != NULL || ask->fingerprint != n;
    return errand->is_lost ? NULL : ask->op.answer.each;
}
