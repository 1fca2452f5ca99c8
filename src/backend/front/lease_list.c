/* SPDX-License-Identifier: MIT */
/*
 * Lists with quotas of which units are leased: first each of those by itself, then the others as
 * one list. If another one denies, what was taken is given back, to its lease where it has one. In
 * between, another list may be denied falsely.
 *
 * Units taken under an id stay taken: a retry with the id is answered that it has them.
 */
#include "backend/front/lease_parts.h"
#include "backend/item_copy.h"
#include "backend/script/script.h"
#include "base/wide_int.h"

#include <stdlib.h>

/* One item and its result. */
struct entry {
    bool is_leased;
    bool is_taken; /* may be given back: `taken` units, as of at_ns */
    uint32_t taken;
    uint64_t at_ns;
    struct stint_decision decision;
};

struct lease_list {
    struct backend *leased, *plain;
    struct backend_op *asker; /* its answer.each is NULL once it has cancelled */
    struct backend_op op;     /* of the step in progress */
    struct stint_decision each[BACKEND_ITEMS_MAX];
    struct backend_request ask; /* without items */
    uint8_t id[BACKEND_ID_LEN];
    struct backend_item *items; /* copies */
    struct entry *entries;
    size_t n_items, n_plain;
    size_t step; /* n_items: the plain ones; above: returns */
    struct backend_answer answer;
    bool is_denied, is_over, is_local, is_replayed;
    bool is_take; /* the items of the step in progress */
    uint32_t least;
};

static bool takes(const struct lease_list *list)
{
    return list->ask.verb == REQUEST_TAKE || list->ask.verb == REQUEST_TAKE_UPTO;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void list_free(struct lease_list *list)
{
    free(list->items);
    free(list->entries);
    free(list);
}

static struct lease_list *list_new(const struct backend_request *ask)
{
    struct lease_list *list = calloc(1, sizeof(*list));
    if (list == NULL)
        return NULL;
    *list = (struct lease_list){.ask = *ask,
                                .n_items = ask->n_items,
                                .items = item_copy(ask->items, ask->n_items),
                                .entries = calloc(ask->n_items, sizeof(struct entry)),
                                .answer.at_ns = UINT64_MAX,
                                .is_local = true,
                                .is_replayed = true,
                                .least = UINT32_MAX};
    if (list->items == NULL || list->entries == NULL) {
        list_free(list);
        return NULL;
    }
    if (ask->id != NULL)
        memcpy(list->id, ask->id, BACKEND_ID_LEN);
    for (size_t i = 0; i < list->n_items; i++) {
        list->entries[i].is_leased = script_is_leased(&list->items[i]);
        list->n_plain += !list->entries[i].is_leased;
    }
    return list;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void on_step(struct backend_op *op, uint64_t now_ns);

/* The request for the items of a step; each has an id of its own. */
static struct backend_request asked_of(struct lease_list *list, struct backend_item *items,
                                       uint8_t id[BACKEND_ID_LEN])
{
    struct backend_request asked = list->ask;
    asked.items = items;
    asked.n_items = 0;
    asked.is_ahead = false;
    list->is_take = takes(list) && !list->is_denied;
    if (takes(list) && !list->is_take)
        asked.verb = REQUEST_PEEK;
    if (asked.id != NULL) {
        memcpy(id, list->id, BACKEND_ID_LEN);
        id[0] ^= (uint8_t)(list->step + 1);
        asked.id = id;
    }
    for (size_t i = 0; i < list->n_items; i++) {
        if (list->step < list->n_items ? i != list->step : list->entries[i].is_leased)
            continue;
        items[asked.n_items] = list->items[i];
        if (list->ask.verb == REQUEST_TAKE_UPTO && list->items[i].cost > list->least)
            items[asked.n_items].cost = list->least;
        asked.n_items++;
    }
    return asked;
}

static void ask_step(struct lease_list *list, const struct backend_request *asked, bool is_plain)
{
    struct backend *backend = is_plain ? list->plain : list->leased;
    list->op =
        (struct backend_op){.answer = {.each = list->each}, .answered = on_step, .arg = list};
    backend->ops->ask(backend, asked, &list->op);
}

static void take_step(struct lease_list *list)
{
    const struct backend_answer *answer = &list->op.answer;
    size_t at = 0;
    if (answer->outcome != BACKEND_DECIDED) {
        list->is_over = true;
        list->is_denied = true;
        list->answer.outcome = answer->outcome;
        list->answer.fault = answer->fault;
        list->answer.error = answer->error;
        return;
    }
    list->is_local = list->is_local && answer->is_local;
    list->is_replayed = list->is_replayed && answer->is_replayed;
    list->answer.at_ns = min_u64(list->answer.at_ns, answer->at_ns);
    for (size_t i = 0; i < list->n_items; i++) {
        struct entry *entry = &list->entries[i];
        if (list->step < list->n_items ? i != list->step : entry->is_leased)
            continue;
        entry->decision = list->each[at++];
        entry->is_taken = list->is_take && answer->sum.outcome == STINT_ALLOW &&
                          !answer->is_replayed && list->ask.id == NULL &&
                          entry->decision.granted > 0;
        entry->taken = entry->decision.granted;
        entry->at_ns = answer->at_ns;
    }
    if (answer->sum.outcome != STINT_ALLOW && takes(list))
        list->is_denied = true;
    else if (answer->sum.granted < list->least)
        list->least = answer->sum.granted;
}

/* The units of an entry that stay taken in the end. */
static uint32_t kept_of(const struct lease_list *list, const struct entry *entry)
{
    if (list->is_denied)
        return 0;
    return list->ask.verb == REQUEST_TAKE_UPTO && entry->taken > list->least ? list->least
                                                                             : entry->taken;
}

/* False: nothing of this entry is to be given back. */
static bool give_back(struct lease_list *list, size_t i)
{
    struct entry *entry = &list->entries[i];
    uint32_t kept = kept_of(list, entry);
    if (!entry->is_taken || entry->taken == kept)
        return false;
    struct backend_item item = list->items[i];
    struct backend_request asked = list->ask;
    item.cost = entry->taken - kept;
    entry->decision.remaining =
        (uint32_t)min_u64((uint64_t)entry->decision.remaining + item.cost, entry->decision.limit);
    asked.items = &item;
    asked.n_items = 1;
    asked.verb = REQUEST_REFUND;
    asked.at_ns = entry->at_ns;
    asked.is_ahead = false;
    entry->taken = kept;
    ask_step(list, &asked, !entry->is_leased);
    return true;
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* Leaves the answer, and frees the list. */
static void finish(struct lease_list *list)
{
    struct backend_op *asker = list->asker;
    struct stint_decision *each = asker->answer.each;
    if (each != NULL && !list->is_over) {
        list->answer.outcome = BACKEND_DECIDED;
        list->answer.is_local = list->is_local;
        list->answer.is_replayed = list->is_replayed;
        for (size_t i = 0; i < list->n_items; i++) {
            if (takes(list))
                list->entries[i].decision.granted = kept_of(list, &list->entries[i]);
            each[i] = list->entries[i].decision;
        }
        list->answer.sum = script_sum(each, list->n_items);
        if (list->answer.sum.outcome == STINT_ALLOW && list->ask.verb != REQUEST_TAKE)
            list->answer.sum.granted = list->least;
    }
    asker->answer = list->answer;
    asker->answer.each = each;
    list_free(list);
}

/* Until a step waits. True: all is done. */
static bool go_on(struct lease_list *list)
{
    struct backend_item items[BACKEND_ITEMS_MAX];
    uint8_t id[BACKEND_ID_LEN];
    for (; list->step <= list->n_items && !list->is_over; list->step++) {
        bool is_plain = list->step == list->n_items;
        if (is_plain ? list->n_plain == 0 : !list->entries[list->step].is_leased)
            continue;
        struct backend_request asked = asked_of(list, items, id);
        ask_step(list, &asked, is_plain);
        if (list->op.answer.outcome == BACKEND_WAITS)
            return false;
        take_step(list);
    }
    for (size_t i = 0; i < list->n_items; i++) {
        list->step = list->n_items + 1;
        if (give_back(list, i) && list->op.answer.outcome == BACKEND_WAITS)
            return false;
    }
    return true;
}

static void on_step(struct backend_op *op, uint64_t now_ns)
{
    struct lease_list *list = op->arg;
    list->ask.now_ns = max_u64(list->ask.now_ns, now_ns); /* else each would have its whole time */
    if (list->step <= list->n_items) {
        take_step(list);
        list->step++;
    }
    if (!go_on(list))
        return;
    struct backend_op *asker = list->asker;
    finish(list);
    asker->answered(asker, now_ns);
}

struct lease_list *lease_list_ask(struct backend *leased, struct backend *plain,
                                  const struct backend_request *ask, struct backend_op *op)
{
    struct lease_list *list = list_new(ask);
    if (list == NULL) {
        op->answer.outcome = BACKEND_FAILED;
        op->answer.error = "no memory for a request to the store";
        return NULL;
    }
    op->answer.outcome = BACKEND_WAITS;
    list->leased = leased;
    list->plain = plain;
    list->asker = op;
    if (!go_on(list))
        return list;
    finish(list);
    return NULL;
}

void lease_list_forget(struct lease_list *list)
{
    list->asker->answer.each = NULL;
    list->is_denied = list->is_denied || takes(list);
}
