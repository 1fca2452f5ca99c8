/* SPDX-License-Identifier: MIT */
/*
 * From a request to commands, and from their replies to one answer: first of
 * each part, then of all parts together.
 */
#include "backend/redis/redis_backend.h"

#include "algorithm/algorithm.h"
#include "backend/redis/redis_backend_parts.h"
#include "backend/redis/redis_names.h"
#include "backend/script/script.h"
#include "backend/store_key.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>

#define ID_LIFETIME_MIN_NS NS_PER_MS
#define RETURN_NS (1 * NS_PER_S) /* how long a return is tried where nothing was done */

enum part_state { PART_DUE, PART_DECIDED, PART_FAILED, PART_LOST, PART_CONFLICT, PART_GONE };

/* Items of one slot: one script, all or nothing. */
struct part {
    struct job *job;
    struct router_ask *ask; /* while it is in progress */
    enum part_state state;
    bool is_replayed;
    unsigned slot;
    uint8_t turn;    /* as redis_named */
    uint64_t server; /* router_server_bit() */
    size_t n_items;
    struct span head; /* of its keys, up to the tag's brace */
    struct stint_decision sum;
    uint64_t now_ns; /* by the store's clock */
    struct script_holder holders[STINT_ITEMS_MAX];
    size_t n_holders;
};

/* An item of a request of several parts, which may have to be given back. */
struct job_item {
    struct stint_quota quota;
    struct span key;
    uint32_t cost;
    uint8_t part;
};

/* One request. With a single part no items are kept: there is nothing to give back. */
struct job {
    struct job *next; /* of those that are free */
    struct redis_backend *store;
    struct backend_op *op; /* NULL: cancelled */
    uint64_t offset_ns;    /* from the router's clock to the caller's */
    uint8_t verb;
    bool is_virtual, has_id, is_counter;
    uint64_t now_ns; /* where is_virtual */
    uint8_t id[BACKEND_ID_LEN];
    struct script_id id_words; /* without the key, which differs in each part */
    const char *error;         /* why a part was not decided */
    uint8_t fault;             /* enum backend_error */
    size_t n_items, n_parts, n_due;
    struct job_item *items; /* NULL: a single part */
    struct part *parts;
    struct part only;
};

/* ---- Requests in progress -------------------------------------------------------------------- */

static struct job *new_job(struct redis_backend *store, const struct backend_request *ask,
                           size_t n_parts, size_t n_bytes)
{
    struct job *job = NULL;
    if (n_parts == 1 && store->free_jobs != NULL) {
        job = store->free_jobs;
        store->free_jobs = job->next;
    } else
        job = malloc(sizeof(*job) + (n_parts == 1
                                         ? 0
                                         : n_parts * sizeof(struct part) +
                                               ask->n_items * sizeof(struct job_item) + n_bytes));
    if (job == NULL)
        return NULL;
    uint64_t now_ns = store->dialer->ops->now(store->dialer);
    memset(job, 0, offsetof(struct job, only));
    job->store = store;
    job->verb = ask->verb;
    job->is_virtual = ask->is_virtual;
    job->is_counter = ask->items[0].quota->algorithm == STINT_COUNTER;
    assert(!job->is_counter || (ask->n_items == 1 && ask->id == NULL));
    job->now_ns = ask->now_ns;
    job->offset_ns = ask->now_ns - now_ns;
    job->n_items = ask->n_items;
    job->n_parts = n_parts;
    job->parts = n_parts == 1 ? &job->only : (struct part *)(void *)(job + 1);
    job->items = n_parts == 1 ? NULL : (struct job_item *)(void *)(job->parts + n_parts);
    if (ask->id != NULL) {
        job->has_id = true;
        memcpy(job->id, ask->id, BACKEND_ID_LEN);
        job->id_words = (struct script_id){
            .body = ask->body,
            .lifetime_ns = max_u64(ask->id_lifetime_ns, ask->is_ticket ? 0 : ID_LIFETIME_MIN_NS),
            .is_ticket = ask->is_ticket,
            .ticket_ns = ask->ticket_ns,
            .longer_ns = ask->longer_ns,
        };
    }
    store->n_pending++;
    if (!ask->is_virtual)
        store->offset_ns = job->offset_ns;
    return job;
}

static void job_free(struct job *job)
{
    struct redis_backend *store = job->store;
    store->n_pending--;
    if (job->n_parts > 1) {
        free(job);
        return;
    }
    job->next = store->free_jobs;
    store->free_jobs = job;
}

/* ---- Replies of one part --------------------------------------------------------------------- */

static const char *message_of(enum redis_error error)
{
    switch (error) {
    case REDIS_ERROR_OUT_OF_MEMORY:
        return "the store is out of memory";
    case REDIS_ERROR_CANNOT_WRITE:
        return "the store takes no writes now: MISCONF or NOREPLICAS";
    case REDIS_ERROR_DENIED:
        return "the store does not permit the command: NOAUTH, WRONGPASS or NOPERM";
    case REDIS_ERROR_MOVED:
    case REDIS_ERROR_ASK:
        return "the store is a node of a cluster: expected redis-cluster:// in its URL";
    case REDIS_ERROR_CROSSSLOT:
        return "the store reports keys of one script in several slots";
    case REDIS_ERROR_KEY:
        return "the key in the store holds no state that this version can read";
    default:
        return "the store rejects the command";
    }
}

static void tell_each(const struct part *part, const struct script_reply *reply)
{
    const struct job *job = part->job;
    size_t at = 0;
    if (job->op == NULL)
        return;
    for (size_t i = 0; i < job->n_items; i++)
        if (job->n_parts == 1 || &job->parts[job->items[i].part] == part)
            job->op->answer.each[i] = part->n_items == 1 ? reply->decision : reply->each[at++];
}

/* A counter without a count must not be taken for one of 0. */
static bool has_count(const struct job *job, const struct script_reply *read)
{
    return !job->is_counter || job->verb == REQUEST_RESET ||
           (read->n_holders == 1 && read->holders[0].deadline_us <= STINT_COUNT_MAX);
}

static void take_reply(struct part *part, const struct redis_reply *reply)
{
    int64_t values[SCRIPT_REPLY_MAX];
    struct script_reply read;
    if (!redis_reply_integers(reply, values, SCRIPT_REPLY_MAX) ||
        !script_reply_read(&read, part->n_items > 1 ? part->n_items : 0, values, reply->n_items) ||
        !has_count(part->job, &read)) {
        part->state = PART_LOST;
        part->job->error = "the store's reply is not that of a stint script";
        return;
    }
    part->state = PART_DECIDED;
    part->is_replayed = read.is_replayed;
    part->sum = read.decision;
    part->now_ns = read.now_ns;
    part->n_holders = read.n_holders;
    memcpy(part->holders, read.holders, read.n_holders * sizeof(read.holders[0]));
    tell_each(part, &read);
}

const char *redis_backend_reason(const struct redis_backend *store, enum link_outcome outcome,
                                 const struct redis_reply *reply, uint8_t *fault)
{
    static const uint8_t faults[] = {[LINK_UNSENT] = BACKEND_ERROR_UNREACHABLE,
                                     [LINK_LATE] = BACKEND_ERROR_LATE,
                                     [LINK_LOST] = BACKEND_ERROR_LOST};
    const char *why = router_error(store->router);
    *fault = faults[outcome];
    if (outcome == LINK_REFUSED) {
        enum redis_error error = redis_error_of(reply->text);
        *fault = error == REDIS_ERROR_KEY ? BACKEND_ERROR_STATE : BACKEND_ERROR_OTHER;
        return message_of(error);
    }
    if (outcome == LINK_DONE)
        return "the store's reply is not that of a stint script";
    if (router_unavailable_since(store->router) == 0)
        return "the store has not answered in time";
    return why[0] != '\0' ? why : "the store is not connected yet";
}

static void take_outcome(struct part *part, enum link_outcome outcome,
                         const struct redis_reply *reply)
{
    const struct redis_backend *store = part->job->store;
    part->ask = NULL;
    if (outcome == LINK_DONE)
        take_reply(part, reply);
    else if (outcome == LINK_REFUSED && script_is_conflict(reply->text))
        part->state = PART_CONFLICT;
    else if (outcome == LINK_REFUSED && script_is_gone(reply->text))
        part->state = PART_GONE;
    else {
        part->state = outcome == LINK_LATE || outcome == LINK_LOST ? PART_LOST : PART_FAILED;
        part->job->error = redis_backend_reason(store, outcome, reply, &part->job->fault);
    }
}

/* ---- Returns --------------------------------------------------------------------------------- */

/*
 * Units granted in one slot that the request does not keep go back: by the id that they were
 * charged under, or as a refund at the time of the grant. A return without an answer is not sent
 * again, since it may have been done: then units stay charged until they expire, and no caller gets
 * more.
 */

static void on_returned(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                        uint64_t now_ns)
{
    struct redis_backend *store = arg;
    (void)outcome, (void)reply, (void)now_ns;
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
        uint32_t had = job->verb == REQUEST_TAKE_UPTO ? granted : item->cost;
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
    uint8_t own[BACKEND_ID_LEN];
    redis_names_part_id(own, job->id, part->turn);
    id.key = span_of(id_key, store_id_key(part->head, own, id_key, len));
    const struct script_ask ask = {
        .verb = REQUEST_UNDO, .now_ns = job->now_ns, .is_virtual = job->is_virtual, .id = &id};
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
        ask->verb = REQUEST_RELEASE;
        ask->holder = part->holders[n_released++];
        script_command_one(&part->job->store->command, &items[i], ask);
        send_return(part, true, now_ns);
    }
}

/* Gives back what a part of the request was granted beyond `kept` units of each item. */
static void part_return(struct part *part, uint32_t kept, uint64_t now_ns)
{
    const struct job *job = part->job;
    struct script_item all[STINT_ITEMS_MAX], units[STINT_ITEMS_MAX];
    struct script_ask ask = {.verb = REQUEST_REFUND,
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

/* ---- Replies of several parts ---------------------------------------------------------------- */

/* What the parts of a request came to. */
struct joined {
    bool has_conflict, is_missing, is_decided, is_replayed;
    uint8_t outcome; /* the worst of those that have decided */
    uint32_t least;  /* that one of them granted */
    uint64_t at_ns; /* the earliest: a refund with a later time would take units that live longer */
};

static struct joined join_parts(const struct job *job)
{
    struct joined all = {
        .is_replayed = true, .outcome = STINT_ALLOW, .least = UINT32_MAX, .at_ns = UINT64_MAX};
    for (size_t i = 0; i < job->n_parts; i++) {
        const struct part *part = &job->parts[i];
        all.has_conflict |= part->state == PART_CONFLICT;
        all.is_missing |= part->state == PART_FAILED || part->state == PART_LOST;
        all.is_replayed &= part->is_replayed;
        if (part->state != PART_DECIDED)
            continue;
        all.is_decided = true;
        all.outcome = part->sum.outcome > all.outcome ? part->sum.outcome : all.outcome;
        all.least = part->sum.granted < all.least ? part->sum.granted : all.least;
        all.at_ns = min_u64(all.at_ns, part->now_ns);
    }
    return all;
}

static bool takes(const struct job *job)
{
    return job->verb == REQUEST_TAKE || job->verb == REQUEST_TAKE_UPTO;
}

/*
 * Takes that one slot granted and another did not are given back. Not those that an id was or may
 * have been granted before: that caller may already have the answer.
 */
static void return_parts(struct job *job, bool is_allowed, uint32_t least, uint64_t now_ns)
{
    for (size_t i = 0; i < job->n_parts; i++) {
        struct part *part = &job->parts[i];
        if (part->state != PART_DECIDED || part->sum.outcome != STINT_ALLOW || part->is_replayed)
            continue;
        if (!is_allowed)
            part_return(part, 0, now_ns);
        else if (job->verb == REQUEST_TAKE_UPTO && !job->has_id && part->sum.granted > least)
            part_return(part, least, now_ns);
    }
}

/* The state of an item once `more` units of it are given back. */
static void give_back(struct stint_decision *each, uint32_t more)
{
    each->remaining = more < each->limit - each->remaining ? each->remaining + more : each->limit;
}

static void settle_each(const struct job *job, bool is_allowed, uint32_t least)
{
    for (size_t i = 0; i < job->n_items; i++) {
        struct stint_decision *each = &job->op->answer.each[i];
        const struct part *part = &job->parts[job->items[i].part];
        if (part->state != PART_DECIDED || part->sum.outcome != STINT_ALLOW)
            continue;
        uint32_t kept = !is_allowed ? 0 : job->verb == REQUEST_TAKE_UPTO ? least : each->granted;
        if (each->granted > kept)
            give_back(each, each->granted - kept);
        each->granted = kept;
    }
}

/* The sum of what is known. Items of a slot that gave no decision show only their limit. */
static struct stint_decision sum_of(const struct job *job)
{
    struct stint_decision decided[STINT_ITEMS_MAX], *each = job->op->answer.each;
    uint8_t index[STINT_ITEMS_MAX];
    size_t n_decided = 0;
    for (size_t i = 0; i < job->n_items; i++) {
        const struct job_item *item = &job->items[i];
        if (job->parts[item->part].state == PART_DECIDED) {
            index[n_decided] = (uint8_t)i;
            decided[n_decided++] = each[i];
        } else
            each[i] = (struct stint_decision){
                .outcome = STINT_ALLOW, .stored = 1, .limit = most_units(&item->quota)};
    }
    assert(n_decided > 0);
    struct stint_decision sum = script_sum(decided, n_decided);
    sum.binding = index[sum.binding];
    return sum;
}

static enum backend_outcome join(struct job *job, uint64_t now_ns)
{
    const struct joined all = join_parts(job);
    bool is_allowed = !all.has_conflict && !all.is_missing && all.outcome == STINT_ALLOW;
    if (takes(job) && !job->store->is_ending)
        return_parts(job, is_allowed, all.least, now_ns);
    if (all.has_conflict)
        return BACKEND_CONFLICT;
    /* A list that one quota denies is denied, whatever the missing answers are. */
    bool is_denied = takes(job) && all.outcome != STINT_ALLOW;
    if (all.is_missing && !is_denied)
        return BACKEND_FAILED;
    if (!all.is_decided)
        return BACKEND_GONE;
    if (job->op == NULL)
        return BACKEND_DECIDED;
    if (takes(job))
        settle_each(job, is_allowed, all.least);
    struct stint_decision *sum = &job->op->answer.sum;
    *sum = sum_of(job);
    if (sum->outcome == STINT_ALLOW && job->verb != REQUEST_TAKE)
        sum->granted = all.least;
    job->op->answer.at_ns = all.at_ns;
    job->op->answer.is_replayed = all.is_replayed;
    return BACKEND_DECIDED;
}

static enum backend_outcome take_only(struct job *job)
{
    const struct part *part = &job->only;
    struct backend_answer *answer = job->op != NULL ? &job->op->answer : NULL;
    if (part->state == PART_CONFLICT)
        return BACKEND_CONFLICT;
    if (part->state == PART_GONE)
        return BACKEND_GONE;
    if (part->state != PART_DECIDED)
        return BACKEND_FAILED;
    if (answer != NULL) {
        answer->sum = part->sum;
        answer->at_ns = part->now_ns;
        answer->is_replayed = part->is_replayed;
        if (job->is_counter && part->n_holders > 0)
            answer->count = part->holders[0].deadline_us;
        if (job->verb == REQUEST_LEASE && part->n_holders > 0) {
            answer->lease_ends_ns = part->holders[0].deadline_us * NS_PER_US;
            answer->leases = part->holders[0].count;
        }
    }
    return BACKEND_DECIDED;
}

static uint64_t failed_servers(const struct job *job)
{
    uint64_t failed = 0;
    for (size_t i = 0; i < job->n_parts; i++)
        if (job->parts[i].state == PART_FAILED || job->parts[i].state == PART_LOST)
            failed |= job->parts[i].server;
    return failed;
}

/* All parts are in: the answer, or NULL where no caller waits for it. Frees the request. */
static struct backend_op *complete(struct job *job, uint64_t now_ns)
{
    enum backend_outcome outcome = job->n_parts == 1 ? take_only(job) : join(job, now_ns);
    struct backend_op *op = job->op;
    if (op != NULL) {
        op->at_work = NULL;
        op->answer.outcome = (uint8_t)outcome;
        op->answer.error = outcome == BACKEND_FAILED ? job->error : NULL;
        op->answer.fault = outcome == BACKEND_FAILED ? job->fault : 0;
        op->answer.failed = failed_servers(job);
    }
    job_free(job);
    return op;
}

static void part_answered(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                          uint64_t now_ns)
{
    struct part *part = arg;
    struct job *job = part->job;
    struct redis_backend *store = job->store;
    uint64_t offset_ns = job->offset_ns;
    take_outcome(part, outcome, reply);
    if (--job->n_due > 0)
        return;
    struct backend_op *op = complete(job, now_ns);
    if (op != NULL)
        op->answered(op, now_ns + offset_ns);
    redis_backend_settle(store);
}

/* ---- Commands -------------------------------------------------------------------------------- */

/* What may have to be given back outlives the request. */
static void keep_items(struct job *job, const struct backend_request *ask,
                       const struct redis_named *named)
{
    uint8_t *bytes = (uint8_t *)(job->items + job->n_items);
    for (size_t i = 0; i < job->n_items; i++) {
        const struct span key = redis_names_key(&job->store->names, &named[i]);
        memcpy(bytes, key.ptr, key.len);
        job->items[i] = (struct job_item){
            .quota = *ask->items[i].quota,
            .key = span_of(bytes, named[i].len),
            .cost = ask->items[i].cost,
            .part = named[i].part,
        };
        struct part *part = &job->parts[named[i].part];
        if (part->n_items == 0)
            part->head = span_of(bytes, named[i].tag_len);
        part->n_items++;
        bytes += named[i].len;
    }
}

/* Whether doing it twice is harmless. A second use of a ticket would get the answer "gone". */
static bool is_repeatable(const struct job *job)
{
    bool closes =
        job->verb == REQUEST_SETTLE || job->verb == REQUEST_CANCEL || job->verb == REQUEST_EXPIRE;
    return (job->has_id && !closes) || job->verb == REQUEST_PEEK;
}

static bool ask_part(struct job *job, size_t part_index, const struct backend_request *ask,
                     const struct redis_named *named)
{
    struct redis_backend *store = job->store;
    struct part *part = &job->parts[part_index];
    struct script_item items[BACKEND_ITEMS_MAX];
    struct script_id id = job->id_words;
    bool is_leased = false;
    size_t n_items = 0;
    for (size_t i = 0; i < ask->n_items; i++) {
        if (named[i].part != part_index)
            continue;
        is_leased = named[i].is_leased;
        items[n_items++] = (struct script_item){
            .quota = ask->items[i].quota,
            .key = redis_names_key(&store->names, &named[i]),
            .cost = ask->items[i].cost,
        };
        part->slot = named[i].slot;
        part->turn = named[i].turn;
        part->server = named[i].server;
        if (n_items == 1 && job->has_id)
            id.key = redis_names_id(&store->names, &named[i], job->id);
    }
    uint64_t now_ns = ask->now_ns - job->offset_ns;
    uint64_t left_ns = ask->deadline_ns > ask->now_ns ? ask->deadline_ns - ask->now_ns : 0;
    part->n_items = n_items;
    part->job = job;
    const struct script_ask asked = {
        .verb = ask->verb,
        .at_ns = ask->at_ns,
        .now_ns = ask->now_ns,
        .is_virtual = ask->is_virtual,
        .id = job->has_id ? &id : NULL,
    };
    if (n_items > 1)
        script_command_list(&store->command, items, n_items, &asked);
    else if (!is_leased)
        script_command_one(&store->command, items, &asked);
    else
        script_command_leased(&store->command, items, redis_names_leases(&store->names, items->key),
                              &asked, ask);
    part->ask = router_ask(store->router,
                           &(struct router_command){
                               .slot = part->slot,
                               .words = store->command.words,
                               .n_words = store->command.n_words,
                               .script = store->command.script->text,
                               .deadline_ns = add_sat(now_ns, left_ns),
                               .is_repeatable = is_repeatable(job),
                               .answered = part_answered,
                               .arg = part,
                           },
                           now_ns);
    return part->ask != NULL;
}

/* Whether this store can do every item at all. */
static bool can_ask(struct redis_backend *store, const struct backend_request *ask)
{
    for (size_t i = 0; i < ask->n_items; i++)
        if (script_accepts(ask->items[i].quota, &store->refusal) != 0)
            return false;
    return true;
}

static enum backend_outcome begin(struct redis_backend *store, const struct backend_request *ask,
                                  struct backend_op *op)
{
    static const char no_memory[] = "no memory for a request to the store";
    struct redis_named named[BACKEND_ITEMS_MAX];
    assert(ask->n_items > 0 && ask->n_items <= BACKEND_ITEMS_MAX);
    op->answer.error = store->refusal.message;
    if (!can_ask(store, ask))
        return BACKEND_REFUSED;
    op->answer.error = no_memory;
    const struct span prefix = span_of(store->prefix, store->prefix_len);
    size_t names_len = store->is_ending ? 0 : redis_names_write(&store->names, prefix, ask, named);
    if (names_len == 0)
        return BACKEND_FAILED;
    uint64_t servers, now_ns = store->dialer->ops->now(store->dialer);
    size_t n_parts = redis_names_parts(&store->names, store->router, ask, named, &servers, now_ns);
    if ((servers & ask->stopped) != 0) {
        op->answer.error = "requests to the server of a key are stopped now";
        op->answer.fault = BACKEND_ERROR_STOPPED;
        return BACKEND_FAILED;
    }
    struct job *job = new_job(store, ask, n_parts, names_len);
    if (job == NULL)
        return BACKEND_FAILED;
    memset(job->parts, 0, n_parts * sizeof(struct part));
    if (n_parts > 1)
        keep_items(job, ask, named);
    for (size_t i = 0; i < n_parts; i++)
        if (ask_part(job, i, ask, named)) {
            job->n_due++;
            op->answer.servers |= job->parts[i].server;
        } else {
            job->parts[i].job = job;
            job->parts[i].server = 0;
            job->parts[i].state = PART_FAILED;
            job->error = "too many requests wait for the store";
            job->fault = BACKEND_ERROR_OVERLOAD;
        }
    if (job->n_due == 0) {
        op->answer.error = job->error;
        op->answer.fault = job->fault;
        job_free(job);
        return BACKEND_FAILED;
    }
    job->op = op;
    op->at_work = job;
    return BACKEND_WAITS;
}

static void op_ask(struct backend *store, const struct backend_request *ask, struct backend_op *op)
{
    enum backend_outcome outcome = begin((struct redis_backend *)store, ask, op);
    op->answer.outcome = (uint8_t)outcome;
    if (outcome == BACKEND_WAITS)
        op->answer.error = NULL;
    else if (ask->is_ahead)
        op->answer.outcome = BACKEND_AHEAD;
}

/* Unfinished requests go on: units that were granted in one slot may have to be given back. */
static void op_forget(struct backend *store, struct backend_op *op)
{
    struct job *job = op->at_work;
    assert(job != NULL && job->op == op);
    job->op = NULL;
    op->at_work = NULL;
    if (job->n_parts > 1)
        return;
    router_forget(job->only.ask);
    job_free(job);
    redis_backend_settle((struct redis_backend *)store);
}

/* ---- The other operations -------------------------------------------------------------------- */

static int op_accepts(const struct backend *store, const struct stint_quota *quota,
                      struct stint_error *error)
{
    (void)store;
    return script_accepts(quota, error);
}

static uint64_t op_unavailable_since_ns(const struct backend *shared)
{
    const struct redis_backend *store = (const struct redis_backend *)shared;
    uint64_t since_ns = router_unavailable_since(store->router);
    return since_ns == 0 ? 0 : since_ns + store->offset_ns;
}

static void op_drain(struct backend *shared, uint64_t deadline_ns, void (*done)(void *arg),
                     void *arg)
{
    struct redis_backend *store = (struct redis_backend *)shared;
    store->drained = done;
    store->drained_arg = arg;
    router_end_by(store->router, deadline_ns - store->offset_ns);
    redis_backend_settle(store);
}

static void op_free(struct backend *shared)
{
    struct redis_backend *store = (struct redis_backend *)shared;
    store->is_ending = true;
    router_free(store->router);
    assert(store->n_pending == 0);
    while (store->free_jobs != NULL) {
        struct job *job = store->free_jobs;
        store->free_jobs = job->next;
        free(job);
    }
    free(store->names.text);
    pool_command_deinit(&store->pool_command);
    free(store);
}

static const struct backend_ops ops = {
    .ask = op_ask,
    .forget = op_forget,
    .accepts = op_accepts,
    .unavailable_since_ns = op_unavailable_since_ns,
    .drain = op_drain,
    .free = op_free,
};

/* ---- Start and end --------------------------------------------------------------------------- */

struct backend *redis_backend_new(const struct redis_backend_options *options)
{
    const char *prefix = options->prefix != NULL ? options->prefix : REDIS_STORE_PREFIX_DEFAULT;
    if (strlen(prefix) > REDIS_STORE_PREFIX_MAX)
        return NULL;
    struct redis_backend *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return NULL;
    store->store.ops = &ops;
    memcpy(store->plain_prefix, prefix, strlen(prefix) + 1);
    store->prefix_len =
        store_key_escape(span_of_text(prefix), store->prefix, sizeof(store->prefix));
    store->dialer = options->router.dialer;
    store->router = redis_names_reserve(&store->names, 512) ? router_new(&options->router) : NULL;
    if (store->router == NULL) {
        free(store->names.text);
        free(store);
        return NULL;
    }
    return &store->store;
}

const struct router_metrics *redis_backend_metrics(const struct backend *store)
{
    return router_metrics(((const struct redis_backend *)store)->router);
}

const char *redis_backend_error(const struct backend *store)
{
    return router_error(((const struct redis_backend *)store)->router);
}

struct router *redis_backend_router(struct backend *store)
{
    return ((struct redis_backend *)store)->router;
}
