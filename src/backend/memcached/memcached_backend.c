/* SPDX-License-Identifier: MIT */
/*
 * A request on one key is one decision of its cell. With several keys all are peeked first; without
 * contention a refusal is found here, and leaves no trace. Then each is charged; if one refuses
 * after all, because another node was faster, the other keys get refunds. Meanwhile, other requests
 * may see units as taken that are not, never the reverse. A ticket over several keys has a record
 * at each, which is closed by itself.
 */
#include "backend/memcached/memcached_backend.h"

#include "backend/memcached/memcached_cells.h"
#include "backend/store_key.h"
#include "limiter/list.h"

#include <assert.h>
#include <stdlib.h>

#define BUSY_RETRY_NS (10 * NS_PER_MS)
#define UNDO_NS NS_PER_S /* so that taking back may go on after the caller's deadline */

enum phase {
    PHASE_ONLY,    /* the requested verb, and no later phase */
    PHASE_LOOKING, /* at all keys of a list */
    PHASE_TAKING,
    PHASE_UNDOING,
};

/* One key of a request under one quota; equal items are merged. */
struct part {
    struct cell_ask ask;
    struct work *work;
    struct stint_quota quota;
    struct memcached_key key;
    unsigned server;
    uint32_t cost;   /* the sum over equal ones */
    uint32_t kept;   /* of a ticket that is never settled, the same; or STINT_KEEP_ALL */
    uint32_t times;  /* how many were equal */
    uint8_t index;   /* the first of them */
    uint8_t outcome; /* enum cell_outcome of the last phase */
    bool is_waiting;
    struct stint_decision decision;
};

/* One request in progress. */
struct work {
    struct work *next, *previous;
    struct store *store;
    struct backend_op *op; /* NULL: cancelled */
    uint64_t at_ns, now_ns, deadline_ns;
    uint64_t decided_ns; /* the earliest of its decisions */
    enum phase phase;
    uint8_t verb; /* enum request_verb */
    bool is_virtual, has_failed, is_ticket;
    bool is_denied;             /* the caller was told so: what is charged all the same goes back */
    uint8_t id[BACKEND_ID_LEN]; /* of the ticket */
    uint64_t ticket_ns;         /* for which it is good */
    uint32_t most, each, failed; /* take_upto */
    size_t n_items, n_parts, n_waiting;
    uint8_t part_of[STINT_ITEMS_MAX];
    uint32_t costs[STINT_ITEMS_MAX];
    struct part parts[];
};

struct store {
    struct backend shared;
    struct memcached_backend_options options;
    char prefix[MEMCACHED_PREFIX_MAX]; /* escaped */
    size_t prefix_len;
    unsigned n_servers;
    struct cells *cells;
    struct memcached_metrics metrics;
    struct stint_error fault, cells_fault;
    struct work *first;
    size_t n_works;
    uint64_t earliest_ns; /* no work's deadline is earlier */
    bool is_ending;
};

/* The verbs on a ticket, at each of its keys by itself. */
static bool closes_ticket(uint8_t verb)
{
    return verb == REQUEST_SETTLE || verb == REQUEST_CANCEL || verb == REQUEST_EXPIRE;
}

/* As in an answer. Servers beyond the 64th share a bit with one of the first. */
static uint64_t part_server(const struct part *part)
{
    return UINT64_C(1) << part->server % 64;
}

static void work_go_on(struct work *work, uint64_t now_ns);

/* ---- Answers --------------------------------------------------------------------------------- */

/* Forgets what it waits for, and frees it. */
static void work_end(struct work *work)
{
    struct store *store = work->store;
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].is_waiting)
            cells_forget(&work->parts[i].ask);
    if (work->next != NULL)
        work->next->previous = work->previous;
    *(work->previous != NULL ? &work->previous->next : &store->first) = work->next;
    store->n_works--;
    free(work);
}

/* Answers the caller, which may send a new request at once. */
static void work_tell(struct work *work, uint64_t now_ns)
{
    struct backend_op *op = work->op;
    work->op = NULL;
    if (op == NULL)
        return;
    op->at_work = NULL;
    op->answered(op, now_ns);
}

static bool is_answered(const struct part *part)
{
    return part->outcome == CELL_DECIDED || part->outcome == CELL_GONE;
}

static uint64_t failed_servers(const struct work *work)
{
    uint64_t failed = 0;
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].is_waiting || !is_answered(&work->parts[i]))
            failed |= part_server(&work->parts[i]);
    return failed;
}

/* Answers the caller with a failure. */
static void work_fail(struct work *work, enum backend_error fault, const char *why, uint64_t now_ns)
{
    if (work->op != NULL) {
        work->op->answer.fault = (uint8_t)fault;
        work->op->answer.failed = failed_servers(work);
        err_set(&work->store->fault, STINT_E_GONE, "%s", why);
        work->op->answer.outcome = BACKEND_FAILED;
        work->op->answer.error = work->store->fault.message;
    }
    work_tell(work, now_ns);
}

static struct stint_decision sum_of(const struct work *work)
{
    struct list list = {.n_parts = 0};
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < work->n_parts; i++) {
        const struct part *part = &work->parts[i];
        if (closes_ticket(work->verb) && part->outcome == CELL_GONE)
            continue;
        list.parts[list.n_parts++] =
            (struct list_part){.index = part->index, .decision = part->decision};
        least = (uint32_t)min_u64(least, part->decision.granted);
    }
    struct stint_decision sum = list_sum(&list);
    bool moves =
        work->verb == REQUEST_CHARGE || work->verb == REQUEST_REFUND || closes_ticket(work->verb);
    if (moves && sum.outcome == STINT_ALLOW)
        sum.granted = least;
    return sum;
}

/* A list was refused by its peeks, which show what a charge would leave: nothing was charged. */
static void show_at_rest(struct work *work)
{
    for (size_t i = 0; i < work->n_parts; i++) {
        struct part *part = &work->parts[i];
        if (part->decision.outcome != STINT_ALLOW || part->ask.step.verb != STINT_PEEK)
            continue;
        part->decision.granted = 0;
        part->decision.remaining = part->ask.at_rest.remaining;
        part->decision.reset_after_ns = part->ask.at_rest.reset_after_ns;
    }
}

static bool all_gone(const struct work *work)
{
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].outcome != CELL_GONE)
            return false;
    return true;
}

/*
 * A grant is dealt out to equal items in their order; take_upto grants each the same. A ticket does
 * not know its items: the first of equal ones shows what was moved.
 */
static void show_each(struct work *work, struct stint_decision *each)
{
    for (size_t i = 0; i < work->n_items; i++) {
        struct stint_decision *decision = &work->parts[work->part_of[i]].decision;
        uint32_t most = work->each > 0              ? work->each
                        : closes_ticket(work->verb) ? UINT32_MAX
                                                    : work->costs[i];
        each[i] = *decision;
        each[i].granted = (uint32_t)min_u64(each[i].granted, most);
        decision->granted -= each[i].granted;
    }
}

static void work_answer(struct work *work, uint64_t now_ns)
{
    if (work->op != NULL && closes_ticket(work->verb) && all_gone(work)) {
        work->op->answer.outcome = BACKEND_GONE;
    } else if (work->op != NULL) {
        struct backend_answer *answer = &work->op->answer;
        answer->outcome = BACKEND_DECIDED;
        answer->at_ns = work->decided_ns;
        answer->count = work->parts[0].ask.count;
        answer->sum = sum_of(work);
        if (answer->sum.outcome != STINT_ALLOW && work->phase == PHASE_LOOKING)
            show_at_rest(work);
        if (work->each > 0 && answer->sum.outcome == STINT_ALLOW)
            answer->sum.granted = work->each;
        show_each(work, answer->each);
    }
    work_tell(work, now_ns);
}

/* ---- Phases ---------------------------------------------------------------------------------- */

static void take_decision(struct cell_ask *ask, enum cell_outcome outcome, uint64_t now_ns)
{
    struct part *part = ask->arg;
    struct work *work = part->work;
    part->is_waiting = false;
    part->outcome = (uint8_t)outcome;
    if (work->phase != PHASE_UNDOING && is_answered(part)) {
        part->decision = ask->decision;
        if (ask->at_ns < work->decided_ns)
            work->decided_ns = ask->at_ns;
    }
    if (--work->n_waiting == 0)
        work_go_on(work, now_ns);
}

/* Starts one part; a part that cannot start counts as refused. */
static void ask_part(struct part *part, uint8_t verb, uint32_t cost, uint64_t at_ns,
                     uint64_t now_ns)
{
    struct work *work = part->work;
    bool is_reset = verb == REQUEST_RESET;
    part->ask = (struct cell_ask){
        .step = {.quota = &part->quota,
                 .now_ns = work->now_ns,
                 .at_ns = at_ns,
                 .cost = cost,
                 .verb = is_reset ? (uint8_t)STINT_PEEK : verb,
                 .is_virtual = work->is_virtual},
        .deadline_ns = work->deadline_ns,
        .is_reset = is_reset,
        .answered = take_decision,
        .arg = part,
    };
    if (work->is_ticket && verb != STINT_PEEK)
        part->ask.step.ticket =
            (struct memcached_step_ticket){work->id, work->ticket_ns, part->kept};
    part->is_waiting = cells_ask(work->store->cells, part->server, &part->key, &part->ask, now_ns);
    part->outcome = CELL_REFUSED;
    work->n_waiting += part->is_waiting;
}

static uint32_t cost_of(const struct work *work, const struct part *part)
{
    return work->each > 0 ? work->each * part->times : part->cost;
}

static void ask_all(struct work *work, enum phase phase, uint8_t verb, uint64_t now_ns)
{
    work->phase = phase;
    work->decided_ns = STINT_NEVER_NS;
    for (size_t i = 0; i < work->n_parts; i++) {
        struct part *part = &work->parts[i];
        bool looks_for_space = phase == PHASE_LOOKING && work->verb == REQUEST_TAKE_UPTO;
        uint32_t cost = looks_for_space ? (work->most > 0 ? part->times : 0) : cost_of(work, part);
        ask_part(part, verb, cost, work->at_ns, now_ns);
    }
}

static bool all_decided(const struct work *work)
{
    for (size_t i = 0; i < work->n_parts; i++)
        if (!is_answered(&work->parts[i]))
            return false;
    return true;
}

static bool all_allowed(const struct work *work)
{
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].decision.outcome != STINT_ALLOW)
            return false;
    return true;
}

static bool was_charged(const struct part *part)
{
    return part->outcome == CELL_DECIDED && part->decision.outcome == STINT_ALLOW &&
           (part->decision.granted > 0 || part->work->is_ticket);
}

/* Gives back what the list as a whole did not get; for a ticket, by its record. */
static void work_undo(struct work *work, uint64_t now_ns)
{
    work->has_failed = !all_decided(work);
    work->phase = PHASE_UNDOING;
    for (size_t i = 0; i < work->n_parts; i++)
        if (was_charged(&work->parts[i]))
            ask_part(&work->parts[i], work->is_ticket ? REQUEST_CANCEL : STINT_REFUND,
                     work->parts[i].decision.granted, work->parts[i].ask.at_ns, now_ns);
}

/* Returned units count as if never taken; the rest stays charged, and is counted. */
static void count_undone(struct work *work)
{
    for (size_t i = 0; i < work->n_parts; i++) {
        struct part *part = &work->parts[i];
        bool is_undone = part->outcome == CELL_DECIDED;
        uint8_t verb = part->ask.step.verb;
        if (part->decision.outcome != STINT_ALLOW ||
            (verb != STINT_REFUND && verb != REQUEST_CANCEL))
            continue;
        work->store->metrics.kept +=
            part->ask.step.cost - (is_undone ? part->ask.decision.granted : 0);
        part->decision.granted = 0;
        if (!is_undone)
            continue;
        part->decision.remaining = part->ask.decision.remaining;
        part->decision.reset_after_ns = part->ask.decision.reset_after_ns;
    }
}

/* As list_take_upto(): how many fit under every quota; 0 and a refusal where none do. */
static void choose_each(struct work *work)
{
    uint32_t each = work->most;
    for (size_t i = 0; i < work->n_parts; i++) {
        const struct stint_decision *peek = &work->parts[i].decision;
        bool fits = peek->outcome == STINT_ALLOW;
        each = (uint32_t)min_u64(each, fits ? peek->remaining / work->parts[i].times + 1 : 0);
    }
    if (work->failed > 0 && each >= work->failed)
        each = work->failed / 2;
    work->each = each;
}

static void work_look(struct work *work, uint64_t now_ns)
{
    work->each = 0;
    ask_all(work, PHASE_LOOKING, STINT_PEEK, now_ns);
}

/* All have been peeked: the next phase. True: it continues. */
static bool go_on_from_look(struct work *work, uint64_t now_ns)
{
    if (work->is_denied || !all_decided(work) || !all_allowed(work))
        return false;
    if (work->verb == REQUEST_TAKE_UPTO) {
        if (work->most == 0)
            return false;
        choose_each(work);
        if (work->each == 0) { /* other nodes were faster again and again */
            work->parts[0].decision.outcome = STINT_DENY;
            work->parts[0].decision.retry_after_ns = NS_PER_US;
            return false;
        }
    }
    ask_all(work, PHASE_TAKING, STINT_TAKE, now_ns);
    return true;
}

/* What was charged stays if all was, and the caller was not told otherwise meanwhile. */
static bool go_on_from_taking(struct work *work, uint64_t now_ns)
{
    bool is_short = work->phase == PHASE_TAKING && !(all_decided(work) && all_allowed(work));
    if (!work->is_denied && !is_short)
        return false;
    work_undo(work, now_ns);
    return true;
}

static bool go_on_from_undoing(struct work *work, uint64_t now_ns)
{
    count_undone(work);
    if (work->has_failed || work->verb != REQUEST_TAKE_UPTO || work->op == NULL)
        return false;
    work->failed = work->each;
    work_look(work, now_ns);
    return true;
}

/* If something may have been done, the answer is that. */
static enum backend_error fault_of(const struct work *work)
{
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].outcome == CELL_LOST || work->parts[i].outcome == CELL_LATE)
            return work->parts[i].outcome == CELL_LOST ? BACKEND_ERROR_LOST : BACKEND_ERROR_LATE;
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].outcome == CELL_REFUSED && !work->parts[i].is_waiting)
            return BACKEND_ERROR_OTHER;
    return BACKEND_ERROR_STATE;
}

static bool has_failed(const struct work *work)
{
    for (size_t i = 0; i < work->n_parts; i++)
        if (!work->parts[i].is_waiting && !is_answered(&work->parts[i]))
            return true;
    return false;
}

static void tell_result(struct work *work, uint64_t now_ns)
{
    if (work->has_failed || (work->phase != PHASE_UNDOING && !all_decided(work)))
        work_fail(work, fault_of(work), work->store->cells_fault.message, now_ns);
    else
        work_answer(work, now_ns);
}

/* All parts are in: the next phase, or the answer. */
static void work_go_on(struct work *work, uint64_t now_ns)
{
    bool goes_on = false;
    do
        goes_on = work->phase == PHASE_LOOKING   ? go_on_from_look(work, now_ns)
                  : work->phase == PHASE_UNDOING ? go_on_from_undoing(work, now_ns)
                                                 : go_on_from_taking(work, now_ns);
    while (goes_on && work->n_waiting == 0);
    if (goes_on)
        return;
    tell_result(work, now_ns);
    work_end(work);
}

static void work_start(struct work *work, uint64_t now_ns)
{
    struct store *store = work->store;
    bool is_earlier = work->deadline_ns < store->earliest_ns;
    bool is_list = work->n_parts > 1 || work->parts[0].times > 1;
    bool looks = (work->verb == REQUEST_TAKE && work->n_parts > 1) ||
                 (work->verb == REQUEST_TAKE_UPTO && is_list);
    work->next = store->first;
    if (store->first != NULL)
        store->first->previous = work;
    store->first = work;
    store->n_works++;
    if (looks)
        work_look(work, now_ns);
    else
        ask_all(work, PHASE_ONLY, work->verb, now_ns);
    if (!is_earlier)
        return;
    store->earliest_ns = work->deadline_ns;
    store->options.io->ops->hurry(store->options.io);
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

/* What may be charged, and is not to stay so. */
static bool work_must_go_on(const struct work *work)
{
    bool is_taken = work->phase == PHASE_TAKING || work->phase == PHASE_UNDOING;
    return work->is_denied || (work->n_parts > 1 && is_taken);
}

/* The worst state of any of its keys. */
static enum cell_wait wait_of(const struct work *work, uint64_t now_ns)
{
    bool waits_for[] = {false, false, false};
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].is_waiting)
            waits_for[cells_wait(&work->parts[i].ask, now_ns)] = true;
    return waits_for[CELL_WAITS_FOR_REPLY]        ? CELL_WAITS_FOR_REPLY
           : waits_for[CELL_WAITS_FOR_CONNECTION] ? CELL_WAITS_FOR_CONNECTION
                                                  : CELL_WAITS_FOR_TURN;
}

/* Only a swap that is in progress may still charge something; it is waited for. */
static void withdraw(struct work *work)
{
    work->is_denied = true;
    for (size_t i = 0; i < work->n_parts; i++) {
        struct part *part = &work->parts[i];
        if (!part->is_waiting || cells_withdraw(&part->ask))
            continue;
        part->is_waiting = false;
        work->n_waiting--;
    }
}

/* Keys that wait are denied; of the others nothing stays charged. */
static void show_busy(struct work *work, struct backend_answer *answer)
{
    show_at_rest(work);
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].is_waiting)
            work->parts[i].decision =
                (struct stint_decision){.outcome = STINT_DENY,
                                        .stored = 1,
                                        .limit = most_units(&work->parts[i].quota),
                                        .retry_after_ns = BUSY_RETRY_NS};
    answer->sum = sum_of(work);
    for (size_t i = 0; i < work->n_items; i++) {
        struct stint_decision each = work->parts[work->part_of[i]].decision;
        each.remaining = (uint32_t)min_u64(add_sat(each.remaining, each.granted), each.limit);
        each.granted = 0;
        answer->each[i] = each;
    }
}

/*
 * Other stores were faster each time. A denial, since memcached answers: the policy for an
 * unavailable store might admit all.
 */
static void deny_busy(struct work *work, uint64_t now_ns)
{
    struct memcached_io *io = work->store->options.io;
    work->op->answer.outcome = BACKEND_DECIDED;
    work->op->answer.fault = BACKEND_ERROR_BUSY;
    work->op->answer.at_ns = io->ops->wall(io);
    show_busy(work, &work->op->answer);
    withdraw(work);
    work_tell(work, now_ns);
}

/* Its deadline has passed: answers with what is known. */
static void work_be_late(struct work *work, uint64_t now_ns)
{
    enum cell_wait wait = wait_of(work, now_ns);
    bool may_deny = work->verb == REQUEST_TAKE || work->verb == REQUEST_TAKE_UPTO;
    if (work->phase == PHASE_UNDOING || has_failed(work)) {
        tell_result(work, now_ns);
        return;
    }
    work->store->metrics.busy += wait == CELL_WAITS_FOR_TURN;
    if (wait == CELL_WAITS_FOR_TURN && may_deny)
        deny_busy(work, now_ns);
    else if (wait == CELL_WAITS_FOR_TURN)
        work_fail(work, BACKEND_ERROR_BUSY,
                  "other servers changed a state in memcached each time before this one could; "
                  "send the request again",
                  now_ns);
    else
        work_fail(work,
                  wait == CELL_WAITS_FOR_REPLY ? BACKEND_ERROR_LATE : BACKEND_ERROR_UNREACHABLE,
                  "memcached has not answered in time", now_ns);
}

static uint64_t now_of(const struct store *store)
{
    return store->options.io->ops->now(store->options.io);
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Equal items keep the sum of what each of them keeps. */
static void add_kept(struct part *part, const struct backend_item *item)
{
    if (item->kept == STINT_KEEP_ALL && part->kept == STINT_KEEP_ALL)
        return;
    part->kept = (uint32_t)min_u64(part->kept, part->cost);
    part->kept += (uint32_t)min_u64(item->kept, item->cost);
}

/* False: no memory, or a sum of costs that is too high. */
static bool add_item(struct work *work, const struct backend_item *item, size_t index,
                     bool *overflows)
{
    struct store *store = work->store;
    struct part *part = &work->parts[work->n_parts];
    struct memcached_io *io = store->options.io;
    *part = (struct part){
        .work = work, .quota = *item->quota, .cost = item->cost, .kept = item->kept, .times = 1};
    struct span prefix = span_of(store->prefix, store->prefix_len);
    if (!memcached_key_write(&part->key, prefix, item, io->ops->digest, io))
        return false;
    part->index = (uint8_t)index;
    for (size_t i = 0; i < work->n_parts; i++) {
        struct part *known = &work->parts[i];
        if (known->quota.derived.params_hash[0] != part->quota.derived.params_hash[0] ||
            known->key.len != part->key.len ||
            memcmp(known->key.text, part->key.text, part->key.len) != 0)
            continue;
        work->part_of[index] = (uint8_t)i;
        known->times++;
        add_kept(known, item);
        *overflows |= item->cost > UINT32_MAX - known->cost;
        known->cost = (uint32_t)min_u64((uint64_t)known->cost + item->cost, UINT32_MAX);
        return true;
    }
    part->server = memcached_key_server(store->options.url, span_of(part->key.text, part->key.len));
    work->part_of[index] = (uint8_t)work->n_parts++;
    return true;
}

static struct work *new_work(struct store *store, const struct backend_request *ask,
                             struct backend_op *op, bool *overflows)
{
    struct work *work = malloc(sizeof(*work) + ask->n_items * sizeof(work->parts[0]));
    if (work == NULL)
        return NULL;
    *work = (struct work){
        .store = store,
        .op = op,
        .at_ns = ask->at_ns,
        .now_ns = ask->now_ns,
        .deadline_ns = ask->deadline_ns,
        .verb = ask->verb,
        .is_virtual = ask->is_virtual,
        .is_ticket = ask->is_ticket,
        .ticket_ns = ask->ticket_ns - ask->ticket_ns % NS_PER_US,
        .most = UINT32_MAX,
        .n_items = ask->n_items,
    };
    if (ask->is_ticket)
        memcpy(work->id, ask->id, BACKEND_ID_LEN);
    for (size_t i = 0; i < ask->n_items; i++) {
        if (!add_item(work, &ask->items[i], i, overflows)) {
            free(work);
            return NULL;
        }
        work->costs[i] = ask->items[i].cost;
        work->most = (uint32_t)min_u64(work->most, ask->items[i].cost);
    }
    return work;
}

static void fail_at_once(struct backend_op *op, enum backend_error fault, const char *why,
                         const struct backend_request *ask)
{
    op->answer.outcome = ask->is_ahead ? BACKEND_AHEAD : BACKEND_FAILED;
    op->answer.fault = (uint8_t)fault;
    op->answer.error = why;
}

/* Whether a needed server has been unavailable for longer than this request can wait. */
static const char *why_not_now(struct store *store, const struct work *work, uint64_t now_ns,
                               enum backend_error *fault, uint64_t *unavailable)
{
    *fault = BACKEND_ERROR_OVERLOAD;
    if (store->is_ending || store->n_works == store->options.asks_max)
        return "too many requests wait for memcached";
    *fault = BACKEND_ERROR_UNREACHABLE;
    if (work->deadline_ns <= now_ns)
        return "the deadline of a request passed before it could be sent to memcached";
    for (size_t i = 0; i < work->n_parts; i++) {
        struct memcached_conn *conn = store->options.conns[work->parts[i].server];
        uint64_t since_ns = memcached_conn_link(conn)->unavailable_since_ns;
        if (since_ns == 0 || now_ns - since_ns <= work->deadline_ns - now_ns)
            continue;
        err_set(&store->fault, STINT_E_GONE, "memcached is unavailable: %s",
                link_fault(memcached_conn_link(conn)));
        *unavailable = part_server(&work->parts[i]);
        return store->fault.message;
    }
    return NULL;
}

static void answer_never(struct backend_op *op, const struct backend_request *ask)
{
    op->answer.outcome = ask->is_ahead ? BACKEND_AHEAD : BACKEND_DECIDED;
    op->answer.sum = algorithm_never(0);
    for (size_t i = 0; i < ask->n_items; i++)
        op->answer.each[i] = algorithm_never(most_units(ask->items[i].quota));
}

static void store_begin(struct store *store, struct work *work, const struct backend_request *ask,
                        struct backend_op *op, uint64_t now_ns)
{
    enum backend_error fault = BACKEND_ERROR_STOPPED;
    uint64_t servers = 0, unavailable = 0;
    for (size_t i = 0; i < work->n_parts; i++)
        servers |= part_server(&work->parts[i]);
    if (ask->is_virtual) /* it has as long as it should have in its own time */
        work->deadline_ns = add_sat(now_ns, ask->deadline_ns - ask->now_ns);
    const char *why = (servers & ask->stopped) != 0
                          ? "requests to the server of a key are stopped now"
                          : why_not_now(store, work, now_ns, &fault, &unavailable);
    if (why != NULL) {
        free(work);
        op->answer.servers = op->answer.failed = unavailable;
        fail_at_once(op, fault, why, ask);
        return;
    }
    op->answer.servers = servers;
    op->answer.outcome = BACKEND_WAITS;
    op->at_work = work;
    work_start(work, now_ns);
    if (work->n_waiting > 0)
        return;
    op->at_work = NULL;
    work_end(work);
    fail_at_once(op, BACKEND_ERROR_OTHER, "no memory for a request to memcached", ask);
}

static void store_ask(struct backend *shared, const struct backend_request *ask,
                      struct backend_op *op)
{
    struct store *store = (struct store *)shared;
    const char *why = memcached_state_refusal(ask);
    bool overflows = false;
    assert(ask->n_items > 0 && ask->n_items <= BACKEND_ITEMS_MAX);
    store->metrics.asks++;
    if (why != NULL) {
        op->answer.outcome = BACKEND_REFUSED;
        op->answer.error = why;
        return;
    }
    struct work *work = new_work(store, ask, op, &overflows);
    if (work == NULL) {
        fail_at_once(op, BACKEND_ERROR_OTHER, "no memory for a request to memcached", ask);
    } else if (overflows && !closes_ticket(ask->verb)) {
        free(work);
        answer_never(op, ask);
    } else
        store_begin(store, work, ask, op, now_of(store));
}

static void store_forget(struct backend *shared, struct backend_op *op)
{
    struct work *work = op->at_work;
    (void)shared;
    op->at_work = NULL;
    work->op = NULL;
    if (!work_must_go_on(work))
        work_end(work);
}

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t memcached_backend_deadline(const struct backend *shared)
{
    const struct store *store = (const struct store *)shared;
    return min_u64(store->earliest_ns, cells_deadline(store->cells));
}

/* No caller waits longer. Units to be taken back get a little more time, and then stay charged. */
static void end_late(struct work *work, uint64_t now_ns)
{
    bool was_wanted = work->op != NULL;
    if (was_wanted)
        work_be_late(work, now_ns);
    if (!was_wanted || !work_must_go_on(work)) {
        if (work->phase == PHASE_UNDOING)
            count_undone(work);
        work_end(work);
        return;
    }
    work->deadline_ns = now_ns + UNDO_NS;
    if (work->n_waiting == 0)
        work_go_on(work, now_ns);
}

static struct work *find_late(struct store *store, uint64_t now_ns)
{
    struct work *work = store->first;
    while (work != NULL && work->deadline_ns > now_ns)
        work = work->next;
    return work;
}

void memcached_backend_wake(struct backend *shared, uint64_t now_ns)
{
    struct store *store = (struct store *)shared;
    cells_wake(store->cells, false, now_ns);
    if (store->earliest_ns > now_ns)
        return;
    /* A callback may send or cancel requests. */
    for (struct work *late = find_late(store, now_ns); late != NULL;
         late = find_late(store, now_ns))
        end_late(late, now_ns);
    store->earliest_ns = STINT_NEVER_NS;
    for (const struct work *work = store->first; work != NULL; work = work->next)
        store->earliest_ns = min_u64(store->earliest_ns, work->deadline_ns);
}

void memcached_backend_changed(struct backend *shared, uint64_t now_ns)
{
    struct store *store = (struct store *)shared;
    uint64_t restarts = 0;
    for (unsigned i = 0; i < store->n_servers; i++)
        restarts += memcached_conn_restarts(store->options.conns[i]);
    store->metrics.restarts = restarts;
    cells_wake(store->cells, true, now_ns);
    store->options.io->ops->hurry(store->options.io);
}

/* ---- State ----------------------------------------------------------------------------------- */

static int store_accepts(const struct backend *shared, const struct stint_quota *quota,
                         struct stint_error *error)
{
    (void)shared;
    return memcached_state_accepts(quota, error);
}

/* One available server is enough: each has its own keys. */
static uint64_t store_unavailable_since(const struct backend *shared)
{
    const struct store *store = (const struct store *)shared;
    uint64_t earliest_ns = 0;
    for (unsigned i = 0; i < store->n_servers; i++) {
        uint64_t since_ns = memcached_conn_link(store->options.conns[i])->unavailable_since_ns;
        if (since_ns == 0)
            return 0;
        if (earliest_ns == 0 || since_ns < earliest_ns)
            earliest_ns = since_ns;
    }
    return earliest_ns;
}

static bool store_refuses_ids(const struct backend *shared)
{
    (void)shared;
    return true;
}

static void store_drain(struct backend *shared, uint64_t deadline_ns, void (*done)(void *arg),
                        void *arg)
{
    (void)shared, (void)deadline_ns;
    done(arg); /* nothing is held */
}

const struct memcached_metrics *memcached_backend_metrics(const struct backend *shared)
{
    return &((const struct store *)shared)->metrics;
}

const char *memcached_backend_fault(const struct backend *shared)
{
    const struct store *store = (const struct store *)shared;
    const char *fault = "";
    for (unsigned i = 0; i < store->n_servers; i++) {
        struct link *link = memcached_conn_link(store->options.conns[i]);
        if (fault[0] == '\0' || !link_is_ready(link))
            fault = link_fault(link);
    }
    return fault;
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void store_free(struct backend *shared)
{
    struct store *store = (struct store *)shared;
    store->is_ending = true;
    while (store->first != NULL) {
        struct work *work = store->first;
        work_fail(work, BACKEND_ERROR_LOST, "the memcached store is closed", now_of(store));
        work_end(work);
        assert(store->first != work);
    }
    store->options.io->ops->close(store->options.io);
    free(store->cells);
    free(store);
}

static const struct backend_ops store_ops = {
    .ask = store_ask,
    .forget = store_forget,
    .accepts = store_accepts,
    .unavailable_since_ns = store_unavailable_since,
    .drain = store_drain,
    .free = store_free,
    .refuses_ids = store_refuses_ids,
};

struct backend *memcached_backend_new(const struct memcached_backend_options *options)
{
    const char *prefix = options->prefix != NULL ? options->prefix : MEMCACHED_PREFIX_DEFAULT;
    struct store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return NULL;
    store->prefix_len =
        store_key_escape(span_of_text(prefix), store->prefix, sizeof(store->prefix));
    if (store->prefix_len > sizeof(store->prefix)) {
        free(store);
        return NULL;
    }
    store->shared.ops = &store_ops;
    store->options = *options;
    store->n_servers = options->url->n_hosts > 0 ? options->url->n_hosts : 1;
    store->earliest_ns = STINT_NEVER_NS;
    if (store->options.asks_max == 0)
        store->options.asks_max = 4096;
    link_set_default(&store->options.skew_max_ns, 100 * NS_PER_MS);
    link_set_default(&store->options.beat_ns, NS_PER_S);
    store->cells = cells_new(&store->options, &store->metrics, &store->cells_fault,
                             span_of(store->prefix, store->prefix_len));
    if (store->cells == NULL) {
        free(store);
        return NULL;
    }
    return &store->shared;
}
