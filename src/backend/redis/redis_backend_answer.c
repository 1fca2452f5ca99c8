/* SPDX-License-Identifier: MIT */
/* From replies to one answer: first of each part, then of all parts together. */
#include "backend/redis/redis_backend_parts.h"
#include "base/ns.h"
#include "limiter/list.h"

#include <assert.h>

/* ---- One part -------------------------------------------------------------------------------- */

static const char *message_of(struct span text)
{
    switch (redis_error_of(text)) {
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
    default:
        return "the store rejects the command";
    }
}

static bool read_integers(const struct redis_reply *reply, int64_t values[SCRIPT_REPLY_MAX])
{
    if (reply->type != REDIS_ARRAY || reply->n_items > SCRIPT_REPLY_MAX)
        return false;
    for (size_t i = 0; i < reply->n_items; i++) {
        if (reply->items[i].type != REDIS_INTEGER)
            return false;
        values[i] = reply->items[i].number;
    }
    return true;
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

static void take_reply(struct part *part, const struct redis_reply *reply)
{
    int64_t values[SCRIPT_REPLY_MAX];
    struct script_reply read;
    if (!read_integers(reply, values) ||
        !script_reply_read(&read, part->n_items > 1 ? part->n_items : 0, values, reply->n_items)) {
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

enum backend_error redis_backend_error_of(enum router_outcome outcome)
{
    switch (outcome) {
    case ROUTER_LATE:
        return BACKEND_ERROR_LATE;
    case ROUTER_LOST:
        return BACKEND_ERROR_LOST;
    case ROUTER_FAILED:
        return BACKEND_ERROR_UNREACHABLE;
    default:
        return BACKEND_ERROR_OTHER;
    }
}

const char *redis_backend_reason(const struct redis_backend *store, enum router_outcome outcome,
                                 const struct redis_reply *reply)
{
    if (outcome == ROUTER_REFUSED)
        return message_of(reply->text);
    if (outcome == ROUTER_DONE)
        return "the store's reply is not that of a stint script";
    if (router_unavailable_since(store->router) == 0)
        return "the store has not answered in time";
    const char *fault = router_error(store->router);
    return fault[0] != '\0' ? fault : "the store is not connected yet";
}

static void take_outcome(struct part *part, enum router_outcome outcome,
                         const struct redis_reply *reply)
{
    const struct redis_backend *store = part->job->store;
    part->ask = NULL;
    if (outcome == ROUTER_DONE) {
        take_reply(part, reply);
        return;
    }
    if (outcome == ROUTER_REFUSED && script_is_conflict(reply->text)) {
        part->state = PART_CONFLICT;
        return;
    }
    if (outcome == ROUTER_REFUSED && script_is_gone(reply->text)) {
        part->state = PART_GONE;
        return;
    }
    part->state = outcome == ROUTER_LATE || outcome == ROUTER_LOST ? PART_LOST : PART_FAILED;
    part->job->fault = redis_backend_error_of(outcome);
    part->job->error = redis_backend_reason(store, outcome, reply);
}

/* ---- Several parts --------------------------------------------------------------------------- */

static bool any_part_is(const struct job *job, enum part_state state)
{
    for (size_t i = 0; i < job->n_parts; i++)
        if (job->parts[i].state == state)
            return true;
    return false;
}

static bool takes(const struct job *job)
{
    return job->verb == BACKEND_TAKE || job->verb == BACKEND_TAKE_UPTO;
}

/* The worst outcome of those that have decided. */
static uint8_t outcome_of(const struct job *job)
{
    uint8_t outcome = STINT_ALLOW;
    for (size_t i = 0; i < job->n_parts; i++)
        if (job->parts[i].state == PART_DECIDED && job->parts[i].sum.outcome > outcome)
            outcome = job->parts[i].sum.outcome;
    return outcome;
}

static uint32_t least_granted(const struct job *job)
{
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < job->n_parts; i++)
        if (job->parts[i].state == PART_DECIDED && job->parts[i].sum.granted < least)
            least = job->parts[i].sum.granted;
    return least;
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
        else if (job->verb == BACKEND_TAKE_UPTO && !job->has_id && part->sum.granted > least)
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
        uint32_t kept = !is_allowed ? 0 : job->verb == BACKEND_TAKE_UPTO ? least : each->granted;
        if (each->granted > kept)
            give_back(each, each->granted - kept);
        each->granted = kept;
    }
}

/* One decision out of all: docs/store-scripts.md, "Several quotas". */
static struct stint_decision sum_of(const struct job *job, uint32_t least)
{
    const struct stint_decision *each = job->op->answer.each;
    size_t binding = 0;
    uint64_t retry_ns = 0;
    for (size_t i = 0; i < job->n_items; i++) {
        if (each[i].outcome > each[binding].outcome ||
            (each[i].outcome == each[binding].outcome && list_has_less(&each[i], &each[binding])))
            binding = i;
        if (each[i].retry_after_ns > retry_ns)
            retry_ns = each[i].retry_after_ns;
    }
    struct stint_decision sum = each[binding];
    sum.binding = (uint8_t)binding;
    sum.retry_after_ns = sum.outcome == STINT_ALLOW   ? 0
                         : sum.outcome == STINT_NEVER ? STINT_NEVER_NS
                                                      : retry_ns;
    if (sum.outcome != STINT_ALLOW)
        sum.granted = 0;
    else if (job->verb != BACKEND_TAKE)
        sum.granted = least;
    return sum;
}

/* The earliest: a refund with a later time would take units that live longer. */
static uint64_t at_of(const struct job *job)
{
    uint64_t at_ns = UINT64_MAX;
    for (size_t i = 0; i < job->n_parts; i++)
        if (job->parts[i].state == PART_DECIDED && job->parts[i].now_ns < at_ns)
            at_ns = job->parts[i].now_ns;
    return at_ns;
}

static bool all_replayed(const struct job *job)
{
    for (size_t i = 0; i < job->n_parts; i++)
        if (!job->parts[i].is_replayed)
            return false;
    return true;
}

static void clear_missing(const struct job *job)
{
    for (size_t i = 0; i < job->n_items; i++)
        if (job->parts[job->items[i].part].state != PART_DECIDED)
            job->op->answer.each[i] = (struct stint_decision){.outcome = STINT_ALLOW, .stored = 1};
}

static enum backend_outcome join(struct job *job, uint64_t now_ns)
{
    bool is_conflict = any_part_is(job, PART_CONFLICT);
    bool is_missing = any_part_is(job, PART_FAILED) || any_part_is(job, PART_LOST);
    uint8_t outcome = outcome_of(job);
    bool is_allowed = !is_conflict && !is_missing && outcome == STINT_ALLOW;
    uint32_t least = least_granted(job);
    if (takes(job) && !job->store->is_ending)
        return_parts(job, is_allowed, least, now_ns);
    if (is_conflict)
        return BACKEND_CONFLICT;
    /* A list that one quota denies is denied, whatever the missing answers are. */
    bool is_denied = takes(job) && outcome != STINT_ALLOW;
    if (is_missing && !is_denied)
        return BACKEND_FAILED;
    if (!any_part_is(job, PART_DECIDED))
        return BACKEND_GONE;
    if (job->op == NULL)
        return BACKEND_DECIDED;
    clear_missing(job);
    if (takes(job))
        settle_each(job, is_allowed, least);
    job->op->answer.sum = sum_of(job, least);
    job->op->answer.at_ns = at_of(job);
    job->op->answer.is_replayed = all_replayed(job);
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
        if (job->verb == BACKEND_LEASE && part->n_holders > 0) {
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
        op->answer.fault = outcome == BACKEND_FAILED ? (uint8_t)job->fault : 0;
        op->answer.failed = failed_servers(job);
    }
    job_free(job);
    return op;
}

void part_answered(void *arg, enum router_outcome outcome, const struct redis_reply *reply,
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
