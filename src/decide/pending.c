/* SPDX-License-Identifier: MIT */
/* Store requests in order: sent in the first run that makes them, read in later runs. */
#include "decide/pending.h"

#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A reply of a store, or results of this process. */
struct pending_record {
    struct pending_record *next;
    struct pending *home;
    uint8_t kind;                  /* enum pending_kind */
    size_t n;                      /* items of the request, or results */
    union pending_result *results; /* &one, or several; NULL for a reply */
    union pending_result one;
    /* PENDING_REPLY. */
    struct backend *store;
    uint8_t verb;
    uint64_t asked_ns, answered_ns; /* 0: it was answered at once */
    struct backend_op op;
    struct stint_decision each_one;
    struct stint_decision *each; /* of several items; NULL: &each_one serves */
};

struct pending_text {
    struct pending_text *next;
    char text[];
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
    free(pending->inputs);
    for (struct pending_text *text = pending->texts, *next; text != NULL; text = next) {
        next = text->next;
        free(text);
    }
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

const char *pending_keep(struct pending *pending, const char *text)
{
    if (text == NULL)
        return NULL;
    size_t size = strlen(text) + 1;
    struct pending_text *kept = malloc(sizeof(*kept) + size);
    if (kept == NULL)
        return PENDING_NO_MEMORY;
    memcpy(kept->text, text, size);
    kept->next = pending->texts;
    pending->texts = kept;
    return kept->text;
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
    struct pending_record *record = op->arg;
    record->answered_ns = now_ns;
    op->answer.error = pending_keep(record->home, op->answer.error);
    pending_answered(record->home, now_ns);
}

/*
 * The next record of this run: a new one in the first run, later that of the run before, which has
 * the same inputs and results, and so the same order. NULL: the request is lost.
 */
static struct pending_record *next_record(struct pending *pending, enum pending_kind kind, size_t n,
                                          bool *is_new)
{
    assert(pending_is_valid(pending) && kind <= PENDING_UNAVAILABLE_SINCE && n > 0);
    struct pending_requests *home = pending->home;
    struct pending_record *record = pending->next;
    *is_new = record == NULL;
    if (pending->loss != NULL)
        return NULL;
    if (record != NULL) {
        if (record->kind != kind || record->n != n) {
            pending->loss = "internal error: a request was evaluated in two ways";
            return NULL;
        }
        pending->next = record->next;
        return record;
    }
    record = home->free_records;
    if (record != NULL)
        home->free_records = record->next;
    else
        record = malloc(sizeof(*record));
    if (record == NULL) {
        pending->loss = PENDING_NO_MEMORY;
        return NULL;
    }
    *record = (struct pending_record){.home = pending, .kind = (uint8_t)kind, .n = n};
    *(pending->last != NULL ? &pending->last->next : &pending->first) = record;
    pending->last = record;
    return record;
}

static void send(struct pending *pending, struct pending_record *record, struct backend *store,
                 struct backend_request *asked)
{
    assert(store->ops != NULL && record->store == NULL);
    record->each = asked->n_items > 1 ? calloc(asked->n_items, sizeof(*record->each)) : NULL;
    if (asked->n_items > 1 && record->each == NULL) {
        pending->loss = PENDING_NO_MEMORY;
        return;
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
    if (record->op.answer.outcome != BACKEND_WAITS) {
        record->op.answer.error = pending_keep(pending, record->op.answer.error);
        return;
    }
    record->verb = asked->verb;
    record->asked_ns = asked->now_ns;
    pending->n_waiting++;
}

const struct backend_answer *pending_ask(struct pending *pending, struct backend *store,
                                         struct backend_request *asked)
{
    assert(asked->items != NULL && asked->n_items <= BACKEND_ITEMS_MAX);
    bool is_new;
    struct pending_record *record = next_record(pending, PENDING_REPLY, asked->n_items, &is_new);
    if (record != NULL && is_new)
        send(pending, record, store, asked);
    if (record == NULL || record->store == NULL || record->op.answer.outcome == BACKEND_WAITS)
        return NULL;
    assert(record->store == store);
    return &record->op.answer;
}

union pending_result *pending_note(struct pending *pending, enum pending_kind kind, size_t n,
                                   bool *is_new)
{
    assert(kind != PENDING_REPLY);
    struct pending_record *record = next_record(pending, kind, n, is_new);
    if (record == NULL)
        return NULL;
    if (*is_new)
        record->results = n > 1 ? calloc(n, sizeof(*record->results)) : &record->one;
    if (record->results == NULL)
        pending->loss = PENDING_NO_MEMORY;
    return record->results;
}

void pending_each(const struct pending *pending,
                  void (*see)(void *arg, const struct pending_seen *seen), void *arg)
{
    assert(pending_is_valid(pending));
    for (const struct pending_record *record = pending->first; record != NULL;
         record = record->next)
        if (record->answered_ns > 0)
            see(arg, &(struct pending_seen){record->store, record->verb, record->asked_ns,
                                            record->answered_ns, &record->op.answer});
}
