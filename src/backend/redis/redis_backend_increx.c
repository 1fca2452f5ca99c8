/* SPDX-License-Identifier: MIT */
/*
 * Takes by INCREX, where the server has it. Three commands in a row to one server; what they cannot
 * decide, and did not do, the script does.
 */
#include "backend/redis/redis_backend_parts.h"
#include "backend/script/increx.h"
#include "base/ns.h"

#include <stdlib.h>

struct counted {
    struct counting *counting;
    struct router_ask *ask; /* while it is due */
};

/* One take on its way, and what its script would need. */
struct counting {
    struct part *part;
    struct counted commands[INCREX_COMMANDS];
    unsigned n_due;
    struct increx increx;
    enum router_outcome outcome; /* of the first */
    enum increx_reply meaning;   /* of its reply, where there is one */
    bool knows_left, knows_time;
    struct stint_quota quota;
    uint64_t deadline_ns;
    size_t key_len;
    uint8_t key[];
};

/* ---- Whether it is there --------------------------------------------------------------------- */

/* Another server may have another version. */
static uint64_t stamp_of(const struct redis_backend *store)
{
    const struct router_metrics *metrics = router_metrics(store->router);
    return metrics->generation + metrics->reconnects + metrics->failovers + metrics->servers_ready;
}

static void info_answered(void *arg, enum router_outcome outcome, const struct redis_reply *reply,
                          uint64_t now_ns)
{
    struct redis_backend *store = arg;
    (void)now_ns;
    if (store->increx != INCREX_ASKED)
        return;
    store->increx = outcome == ROUTER_DONE && increx_is_there(reply)      ? INCREX_THERE
                    : outcome == ROUTER_DONE || outcome == ROUTER_REFUSED ? INCREX_NOT_THERE
                                                                          : INCREX_UNASKED;
}

/* Nobody waits for it: takes go by their script until it is known. */
static void ask_info(struct redis_backend *store, const struct backend_request *ask,
                     uint64_t now_ns)
{
    const struct span words[] = {span_of_text("COMMAND"), span_of_text("INFO"),
                                 span_of_text("increx")};
    uint64_t left_ns = ask->deadline_ns > ask->now_ns ? ask->deadline_ns - ask->now_ns : 0;
    const struct router_command command = {
        .words = words,
        .n_words = 3,
        .deadline_ns = now_ns + left_ns,
        .is_repeatable = true,
        .answered = info_answered,
        .arg = store,
    };
    store->increx_stamp = stamp_of(store);
    store->increx = INCREX_ASKED;
    if (router_ask(store->router, &command, now_ns) == NULL)
        store->increx = INCREX_UNASKED;
}

bool redis_backend_counts(struct redis_backend *store, const struct backend_request *ask,
                          uint64_t now_ns)
{
    if (!increx_decides(ask))
        return false;
    if (store->increx != INCREX_ASKED && store->increx_stamp != stamp_of(store))
        store->increx = INCREX_UNASKED;
    if (store->increx == INCREX_UNASKED)
        ask_info(store, ask, now_ns);
    return store->increx == INCREX_THERE;
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void decide(struct counting *counting, uint64_t now_ns)
{
    struct part *part = counting->part;
    part->state = PART_DECIDED;
    part->sum = increx_decision(&counting->increx);
    part->now_ns = (uint64_t)counting->increx.now_us * NS_PER_US;
    if (part->job->op != NULL)
        part->job->op->answer.each[0] = part->sum;
    free(counting);
    part_done(part, now_ns);
}

/* Nothing was done: the script decides, and meets the same error if it is one of the server. */
static void ask_script(struct counting *counting, uint64_t now_ns)
{
    struct part *part = counting->part;
    struct redis_backend *store = part->job->store;
    const struct script_item item = {.quota = &counting->quota,
                                     .key = span_of(counting->key, counting->key_len),
                                     .cost = counting->increx.cost};
    const struct script_ask asked = {.verb = SCRIPT_TAKE};
    script_command_one(&store->command, &item, &asked);
    const struct router_command command = {
        .slot = part->slot,
        .words = store->command.words,
        .n_words = store->command.n_words,
        .script = store->command.script->text,
        .deadline_ns = counting->deadline_ns,
        .answered = part_answered,
        .arg = part,
    };
    part->ask = router_ask(store->router, &command, now_ns);
    free(counting);
    if (part->ask == NULL)
        part_answered(part, ROUTER_FAILED, NULL, now_ns);
}

static void complete(struct counting *counting, uint64_t now_ns)
{
    struct part *part = counting->part;
    struct redis_backend *store = part->job->store;
    bool is_error = counting->outcome == ROUTER_REFUSED;
    part->job->counting = NULL;
    if (is_error && counting->meaning == INCREX_UNKNOWN)
        store->increx = INCREX_NOT_THERE;
    if (is_error && !store->is_ending) {
        ask_script(counting, now_ns);
        return;
    }
    bool is_counted = counting->outcome == ROUTER_DONE && counting->meaning == INCREX_COUNTED;
    if (is_counted && counting->knows_left && counting->knows_time) {
        decide(counting, now_ns);
        return;
    }
    /* It was done, or may have been, but nobody can say how things stand. */
    enum router_outcome outcome =
        counting->outcome == ROUTER_DONE || is_error ? ROUTER_LOST : counting->outcome;
    free(counting);
    part_answered(part, outcome, NULL, now_ns);
}

static void count_answered(void *arg, enum router_outcome outcome, const struct redis_reply *reply,
                           uint64_t now_ns)
{
    struct counted *command = arg;
    struct counting *counting = command->counting;
    struct increx *increx = &counting->increx;
    bool is_done = outcome == ROUTER_DONE;
    command->ask = NULL;
    if (command == &counting->commands[INCREX_COUNT]) {
        counting->outcome = outcome;
        if (is_done || outcome == ROUTER_REFUSED)
            counting->meaning = increx_read_count(increx, reply);
    } else if (command == &counting->commands[INCREX_LEFT]) {
        counting->knows_left = is_done && increx_read_left(increx, reply);
    } else {
        counting->knows_time = is_done && increx_read_time(increx, reply);
    }
    if (--counting->n_due == 0)
        complete(counting, now_ns);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static bool send(struct counting *counting, enum increx_command which, uint64_t now_ns)
{
    struct increx_words words;
    struct counted *counted = &counting->commands[which];
    struct part *part = counting->part;
    increx_write(&words, which, &counting->quota, span_of(counting->key, counting->key_len),
                 counting->increx.cost);
    const struct router_command command = {
        .slot = part->slot,
        .words = words.words,
        .n_words = words.n_words,
        .deadline_ns = counting->deadline_ns,
        .is_repeatable = which != INCREX_COUNT,
        .answered = count_answered,
        .arg = counted,
    };
    counted->counting = counting;
    counted->ask = router_ask(part->job->store->router, &command, now_ns);
    counting->n_due += counted->ask != NULL;
    return counted->ask != NULL;
}

bool redis_backend_count(struct job *job, const struct backend_item *item, struct span key,
                         uint64_t deadline_ns, uint64_t now_ns)
{
    struct counting *counting = malloc(sizeof(*counting) + key.len);
    if (counting == NULL)
        return false;
    *counting = (struct counting){
        .part = &job->only,
        .increx = {.limit = item->quota->limit,
                   .cost = item->cost,
                   .period_ns = item->quota->period_ns},
        .quota = *item->quota,
        .deadline_ns = deadline_ns,
        .key_len = key.len,
    };
    memcpy(counting->key, key.ptr, key.len);
    if (!send(counting, INCREX_COUNT, now_ns)) {
        free(counting);
        return false;
    }
    job->counting = counting;
    /* Where there is no room for these, the take may be done, and is answered as lost. */
    send(counting, INCREX_LEFT, now_ns);
    send(counting, INCREX_TIME, now_ns);
    return true;
}

void redis_backend_forget_count(struct job *job)
{
    struct counting *counting = job->counting;
    for (int i = 0; i < INCREX_COMMANDS; i++)
        if (counting->commands[i].ask != NULL)
            router_forget(job->store->router, counting->commands[i].ask);
    job->counting = NULL;
    free(counting);
}
