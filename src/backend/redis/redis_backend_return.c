/* SPDX-License-Identifier: MIT */
/*
 * Units granted in one slot that the request does not keep go back: by the id that they were
 * charged under, or as a refund at the time of the grant. A return without an answer is not sent
 * again, since it may have been done: then units stay charged until they expire, and no caller gets
 * more.
 */
#include "backend/redis/redis_backend_parts.h"
#include "backend/store_key.h"
#include "base/ns.h"

#include <assert.h>
#include <stdlib.h>

#define RETURN_NS (1 * NS_PER_S) /* how long it is tried where nothing was done */

static void on_returned(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                        uint64_t now_ns)
{
    struct redis_backend *store = arg;
    (void)outcome;
    (void)reply;
    (void)now_ns;
    store->n_pending--;
    redis_backend_settle(store);
}

static void send_return(struct part *part, bool is_repeatable, uint64_t now_ns)
{
    struct redis_backend *store = part->job->store;
    const struct router_command command = {
        .slot = part->slot,
        .words = store->command.words,
        .n_words = store->command.n_words,
        .script = store->command.script->text,
        .deadline_ns = now_ns + RETURN_NS,
        .is_repeatable = is_repeatable,
        .answered = on_returned,
        .arg = store,
    };
    if (router_ask(store->router, &command, now_ns) != NULL)
        store->n_pending++;
}

/* The items of a part, with `kept` taken off what each was granted; returns how many. */
static size_t items_of(const struct part *part, uint32_t granted, uint32_t kept,
                       struct script_item items[STINT_ITEMS_MAX])
{
    const struct job *job = part->job;
    size_t n_items = 0;
    for (size_t i = 0; i < job->n_items; i++) {
        const struct job_item *item = &job->items[i];
        if (&job->parts[item->part] != part)
            continue;
        uint32_t had = job->verb == BACKEND_TAKE_UPTO ? granted : item->cost;
        items[n_items++] = (struct script_item){
            .quota = &item->quota,
            .key = item->key,
            .cost = had > kept ? had - kept : 0,
        };
    }
    return n_items;
}

static void make_words(struct part *part, const struct script_item *items, size_t n_items,
                       const struct script_ask *ask)
{
    struct script_command *command = &part->job->store->command;
    if (n_items == 1)
        script_command_one(command, items, ask);
    else
        script_command_list(command, items, n_items, ask);
}

/* All that the id was charged there: this request charged it. */
static void undo(struct part *part, uint64_t now_ns)
{
    const struct job *job = part->job;
    struct script_item items[STINT_ITEMS_MAX];
    size_t n_items = items_of(part, 0, 0, items), len = part->head.len + STORE_ID_KEY_MORE;
    char *id_key = malloc(len);
    if (id_key == NULL)
        return;
    struct script_id id = job->id_words;
    id.key = span_of(id_key, store_id_key(part->head, job->id, id_key, len));
    const struct script_ask ask = {
        .verb = BACKEND_UNDO, .now_ns = job->now_ns, .is_virtual = job->is_virtual, .id = &id};
    make_words(part, items, n_items, &ask);
    send_return(part, true, now_ns);
    free(id_key);
}

/* Slots are returned by their holders, one for each key, in the order in which keys came. */
static void release(struct part *part, const struct script_item *items, size_t n_items,
                    struct script_ask *ask, uint64_t now_ns)
{
    size_t n_released = 0;
    for (size_t i = 0; i < n_items && n_released < part->n_holders; i++) {
        bool is_first = true;
        for (size_t j = 0; j < i; j++)
            if (items[j].key.len == items[i].key.len &&
                memcmp(items[j].key.ptr, items[i].key.ptr, items[i].key.len) == 0)
                is_first = false;
        if (items[i].quota->algorithm != STINT_CONCURRENCY || items[i].quota->limit == 0 ||
            !is_first)
            continue;
        ask->verb = BACKEND_RELEASE;
        ask->holder = part->holders[n_released++];
        script_command_one(&part->job->store->command, &items[i], ask);
        send_return(part, true, now_ns);
    }
}

void part_return(struct part *part, uint32_t kept, uint64_t now_ns)
{
    const struct job *job = part->job;
    struct script_item all[STINT_ITEMS_MAX], units[STINT_ITEMS_MAX];
    struct script_ask ask = {.verb = BACKEND_REFUND,
                             .at_ns = part->now_ns,
                             .now_ns = job->now_ns,
                             .is_virtual = job->is_virtual};
    size_t n_units = 0, n_all = items_of(part, part->sum.granted, kept, all);
    if (job->has_id) {
        undo(part, now_ns);
        return;
    }
    for (size_t i = 0; i < n_all; i++)
        if (all[i].quota->algorithm != STINT_CONCURRENCY && all[i].cost > 0)
            units[n_units++] = all[i];
    if (n_units > 0) {
        make_words(part, units, n_units, &ask);
        send_return(part, false, now_ns);
    }
    if (n_units < n_all && kept == 0)
        release(part, all, n_all, &ask, now_ns);
}
