/* SPDX-License-Identifier: MIT */
/* Store requests in order: sent in the first run that makes them, read in later runs. */
#include "decide/pending.h"

#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>

/* A reply of a store, or results of this process. */
struct pending_record {
    struct pending_record *next;
    struct pending *home;
    uint8_t kind;         /* enum pending_kind */
    uint64_t fingerprint; /* what later runs must repeat: a hash of the request; how many results */
    union pending_result *results; /* &one, or several; NULL for a reply */
    union pending_result one;
    /* PENDING_REPLY. */
    struct backend *store;
    struct backend_op op;
    struct stint_decision each_one;
    struct stint_decision *each; /* of several items; NULL: &each_one serves */
};

bool pending_is_valid(const struct pending *pending)
{
    return pending->home != NULL && (pending->first == NULL) == (pending->last == NULL) &&
           (pending->last == NULL || pending->last->next == NULL) &&
           (pending->next == NULL || pending->first != NULL) &&
           (pending->n_waiting == 0 || pending->first != NULL || pending->extra != NULL) &&
           pending->blocks <= PENDING_BLOCKS_NOTED;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

struct pending *pending_new(struct pending_requests *home, uint64_t now_ns, uint64_t timeout_ns)
{
    assert(home != NULL);
    struct pending *pending = home->free_pending_requests;
    if (pending != NULL)
        home->free_pending_requests = pending->next_free;
    else
        pending = malloc(sizeof(*pending));
    if (pending == NULL)
        return NULL;
    *pending = (struct pending){
        .home = home, .now_ns = now_ns, .deadline_ns = add_sat(now_ns, timeout_ns)};
    assert(pending_is_valid(pending));
    return pending;
}

void pending_free(struct pending *pending)
{
    if (pending == NULL)
        return;
    struct pending_requests *home = pending->home;
    assert(pending_is_valid(pending));
    if (pending->extra != NULL)
        pending->extra->free(pending->extra);
    for (struct pending_record *record = pending->first, *next; record != NULL; record = next) {
        next = record->next;
        if (record->store != NULL && record->op.answer.outcome == BACKEND_WAITS)
            record->store->ops->forget(record->store, &record->op);
        if (record->results != &record->one)
            free(record->results);
        free(record->each);
        record->next = home->free_records;
        home->free_records = record;
    }
    pending->next_free = home->free_pending_requests;
    home->free_pending_requests = pending;
}

void pending_requests_deinit(struct pending_requests *home)
{
    assert(home != NULL);
    while (home->free_pending_requests != NULL) {
        struct pending *pending = home->free_pending_requests;
        home->free_pending_requests = pending->next_free;
        free(pending);
    }
    while (home->free_records != NULL) {
        struct pending_record *record = home->free_records;
        home->free_records = record->next;
        free(record);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

void pending_rewind(struct pending *pending)
{
    assert(pending_is_valid(pending));
    pending->next = pending->first;
}

/* Mixes as multiplying by an odd number does: each bit reaches all above it, then all below. */
static uint64_t mix(uint64_t sum, const void *bytes, size_t len)
{
    assert(bytes != NULL || len == 0);
    for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t left = len - i;
        memcpy(&word, (const uint8_t *)bytes + i, left < sizeof(word) ? left : sizeof(word));
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 32;
    }
    return sum + len;
}

/*
 * Distinguishes the store requests of one evaluation. They can differ by what changed in this
 * process between two runs, never by a caller's choice, so the hash needs no secret.
 */
static uint64_t fingerprint_of(const struct backend_request *ask)
{
    assert(ask->n_items >= 1 && ask->n_items <= BACKEND_ITEMS_MAX);
    uint64_t sum = ask->verb * UINT64_C(64) + ask->n_items;
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct backend_item *item = &ask->items[i];
        const uint64_t quota[] = {item->quota->derived.params_hash[0], item->quota->rule,
                                  item->cost};
        sum = mix(mix(sum, quota, sizeof(quota)), item->key.ptr, item->key.len);
    }
    return sum;
}

void pending_answered(struct pending *pending, uint64_t now_ns)
{
    assert(pending_is_valid(pending) && pending->n_waiting > 0);
    pending->heard_ns = max_u64(pending->heard_ns, now_ns);
    if (--pending->n_waiting == 0 && pending->done != NULL)
        pending->done(pending->arg, now_ns);
}

static void take_answer(struct backend_op *op, uint64_t now_ns)
{
    assert(op->arg != NULL && op->answer.outcome != BACKEND_WAITS);
    pending_answered(((struct pending_record *)op->arg)->home, now_ns);
}

/* Appends; NULL, and the pending request is lost, without memory. */
static struct pending_record *add_record(struct pending *pending, enum pending_kind kind,
                                         uint64_t fingerprint)
{
    assert(pending->next == NULL && kind <= PENDING_GRANTED);
    struct pending_requests *home = pending->home;
    struct pending_record *record = home->free_records;
    if (record != NULL)
        home->free_records = record->next;
    else
        record = malloc(sizeof(*record));
    if (record == NULL) {
        pending->is_lost = true;
        return NULL;
    }
    *record =
        (struct pending_record){.home = pending, .kind = (uint8_t)kind, .fingerprint = fingerprint};
    *(pending->last != NULL ? &pending->last->next : &pending->first) = record;
    pending->last = record;
    assert(pending_is_valid(pending));
    return record;
}

/* The next record of an earlier run, which has to be the same; NULL: the pending request is lost.
 */
static struct pending_record *repeat(struct pending *pending, enum pending_kind kind,
                                     uint64_t fingerprint)
{
    assert(pending->next != NULL && !pending->is_lost);
    struct pending_record *record = pending->next;
    pending->next = record->next;
    pending->is_lost = record->kind != kind || record->fingerprint != fingerprint;
    return pending->is_lost ? NULL : record;
}

static const struct backend_answer *answer_of(const struct pending_record *record)
{
    assert(record->kind == PENDING_REPLY && record->store != NULL);
    return record->op.answer.outcome != BACKEND_WAITS ? &record->op.answer : NULL;
}

static const struct backend_answer *send(struct pending *pending, struct backend *store,
                                         struct backend_request *asked, uint64_t fingerprint)
{
    assert(store->ops != NULL && asked->n_items >= 1);
    struct pending_record *record = add_record(pending, PENDING_REPLY, fingerprint);
    if (record == NULL)
        return NULL;
    if (asked->n_items > 1)
        record->each = calloc(asked->n_items, sizeof(*record->each));
    if (asked->n_items > 1 && record->each == NULL) {
        pending->is_lost = true;
        return NULL;
    }
    record->op = (struct backend_op){
        .answered = take_answer,
        .arg = record,
        .answer.each = asked->n_items > 1 ? record->each : &record->each_one,
    };
    record->store = store;
    asked->is_ahead = asked->is_ahead && !pending->has_asked;
    pending->has_asked = true;
    asked->deadline_ns = pending->deadline_ns;
    /* Else a late store request would get the whole time once more. */
    asked->now_ns = max_u64(asked->now_ns, pending->heard_ns);
    store->ops->ask(store, asked, &record->op);
    if (record->op.answer.outcome == BACKEND_WAITS)
        pending->n_waiting++;
    return answer_of(record);
}

const struct backend_answer *pending_ask(struct pending *pending, struct backend *store,
                                         struct backend_request *asked)
{
    assert(pending_is_valid(pending) && asked->items != NULL);
    if (pending->is_lost)
        return NULL;
    uint64_t fingerprint = fingerprint_of(asked);
    if (pending->next == NULL)
        return send(pending, store, asked, fingerprint);
    struct pending_record *record = repeat(pending, PENDING_REPLY, fingerprint);
    if (record != NULL && record->store != store)
        pending->is_lost = true;
    return pending->is_lost ? NULL : answer_of(record);
}

union pending_result *pending_note(struct pending *pending, enum pending_kind kind, size_t n,
                                   bool *is_new)
{
    assert(pending_is_valid(pending) && n > 0 && kind != PENDING_REPLY);
    if (pending->is_lost)
        return NULL;
    *is_new = pending->next == NULL;
    struct pending_record *record =
        *is_new ? add_record(pending, kind, n) : repeat(pending, kind, n);
    if (record == NULL)
        return NULL;
    if (*is_new)
        record->results = n > 1 ? calloc(n, sizeof(*record->results)) : &record->one;
    pending->is_lost = record->results == NULL;
    return record->results;
}
