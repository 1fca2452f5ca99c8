/* SPDX-License-Identifier: MIT */
/* Store requests in order: sent in the first run that makes them, read in later runs. */
#include "decide/pending.h"

#include "base/wide_int.h"

#include <stdlib.h>

/* One store request, or one note. A hash of the request identifies it in later runs. */
struct pending_ask {
    struct pending_ask *next;
    struct pending *home;
    struct backend *store; /* NULL: a note */
    uint64_t fingerprint;
    struct backend_op op;
    struct stint_decision one;   /* op.answer.each of a single item */
    struct stint_decision *list; /* of several; NULL: none */
};

/* ---- Memory ---------------------------------------------------------------------------------- */

struct pending *pending_new(struct pending_requests *home, uint64_t now_ns, uint64_t timeout_ns)
{
    struct pending *pending = home->free_pending_requests;
    if (pending != NULL)
        home->free_pending_requests = pending->next_free;
    else
        pending = malloc(sizeof(*pending));
    if (pending == NULL)
        return NULL;
    *pending = (struct pending){
        .home = home, .now_ns = now_ns, .deadline_ns = add_sat(now_ns, timeout_ns)};
    return pending;
}

void pending_free(struct pending *pending)
{
    if (pending == NULL)
        return;
    struct pending_requests *home = pending->home;
    if (pending->extra != NULL)
        pending->extra->free(pending->extra);
    for (struct pending_ask *ask = pending->first, *next; ask != NULL; ask = next) {
        next = ask->next;
        if (ask->store != NULL && ask->op.answer.outcome == BACKEND_WAITS)
            ask->store->ops->forget(ask->store, &ask->op);
        free(ask->list);
        ask->next = home->free_asks;
        home->free_asks = ask;
    }
    pending->next_free = home->free_pending_requests;
    home->free_pending_requests = pending;
}

void pending_requests_deinit(struct pending_requests *home)
{
    while (home->free_pending_requests != NULL) {
        struct pending *pending = home->free_pending_requests;
        home->free_pending_requests = pending->next_free;
        free(pending);
    }
    while (home->free_asks != NULL) {
        struct pending_ask *ask = home->free_asks;
        home->free_asks = ask->next;
        free(ask);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

void pending_rewind(struct pending *pending)
{
    pending->next = pending->first;
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
 * Distinguishes the store requests of one evaluation. They can differ by what changed in this
 * process between two runs, never by a caller's choice, so the hash needs no secret.
 */
static uint64_t fingerprint_of(const struct backend_request *ask)
{
    uint64_t sum = ask->verb * UINT64_C(64) + ask->n_items;
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct backend_item *item = &ask->items[i];
        sum = mix(sum, item->quota->derived.params_hash[0]);
        sum = mix(sum, item->quota->rule);
        sum = mix_bytes(mix(sum, item->cost), item->key);
    }
    return sum;
}

void pending_answered(struct pending *pending, uint64_t now_ns)
{
    pending->heard_ns = max_u64(pending->heard_ns, now_ns);
    if (--pending->n_waiting == 0 && pending->done != NULL)
        pending->done(pending->arg, now_ns);
}

static void take_answer(struct backend_op *op, uint64_t now_ns)
{
    pending_answered(((struct pending_ask *)op->arg)->home, now_ns);
}

/* Appends; NULL, and the pending request is lost, without memory. */
static struct pending_ask *add_ask(struct pending *pending, size_t n_decisions)
{
    struct pending_requests *home = pending->home;
    struct pending_ask *ask = home->free_asks;
    if (ask != NULL)
        home->free_asks = ask->next;
    else
        ask = malloc(sizeof(*ask));
    if (ask == NULL) {
        pending->is_lost = true;
        return NULL;
    }
    *ask = (struct pending_ask){.home = pending, .op = {.answered = take_answer, .arg = ask}};
    *(pending->last != NULL ? &pending->last->next : &pending->first) = ask;
    pending->last = ask;
    if (n_decisions > 1)
        ask->list = calloc(n_decisions, sizeof(*ask->list));
    ask->op.answer.each = n_decisions > 1 ? ask->list : &ask->one;
    pending->is_lost = ask->op.answer.each == NULL;
    return pending->is_lost ? NULL : ask;
}

static const struct backend_answer *send(struct pending *pending, struct backend *store,
                                         struct backend_request *asked, uint64_t fingerprint)
{
    struct pending_ask *ask = add_ask(pending, asked->n_items);
    if (ask == NULL)
        return NULL;
    ask->store = store;
    ask->fingerprint = fingerprint;
    asked->is_ahead = asked->is_ahead && !pending->has_asked;
    pending->has_asked = true;
    asked->deadline_ns = pending->deadline_ns;
    /* Else a late store request would get the whole time once more. */
    asked->now_ns = max_u64(asked->now_ns, pending->heard_ns);
    store->ops->ask(store, asked, &ask->op);
    if (ask->op.answer.outcome != BACKEND_WAITS)
        return &ask->op.answer;
    pending->n_waiting++;
    return NULL;
}

const struct backend_answer *pending_ask(struct pending *pending, struct backend *store,
                                         struct backend_request *asked)
{
    if (pending->is_lost)
        return NULL;
    uint64_t fingerprint = fingerprint_of(asked);
    struct pending_ask *ask = pending->next;
    if (ask == NULL)
        return send(pending, store, asked, fingerprint);
    pending->next = ask->next;
    if (ask->fingerprint != fingerprint || ask->store != store) {
        pending->is_lost = true;
        return NULL;
    }
    return ask->op.answer.outcome != BACKEND_WAITS ? &ask->op.answer : NULL;
}

struct stint_decision *pending_note(struct pending *pending, size_t n, bool *is_new)
{
    struct pending_ask *ask = pending->next;
    if (pending->is_lost)
        return NULL;
    *is_new = ask == NULL;
    if (ask == NULL) {
        ask = add_ask(pending, n);
        if (ask != NULL)
            ask->fingerprint = n;
        return ask != NULL ? ask->op.answer.each : NULL;
    }
    pending->next = ask->next;
    pending->is_lost = ask->store != NULL || ask->fingerprint != n;
    return pending->is_lost ? NULL : ask->op.answer.each;
}
