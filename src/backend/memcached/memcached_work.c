/* SPDX-License-Identifier: MIT */
/*
 * A request on one key is one decision of its cell. With several keys all are peeked first; without
 * contention a refusal is found here, and leaves no trace. Then each is charged; if one refuses
 * after all, because another node was faster, the other keys get refunds. Meanwhile, other requests
 * may see units as taken that are not, never the reverse. A ticket over several keys has a record
 * at each, which is closed by itself.
 */
#include "backend/memcached/memcached_parts.h"
#include "limiter/list.h"

#include <stdlib.h>

#define BUSY_RETRY_NS (10 * NS_PER_MS)

static void go_on(struct work *work, uint64_t now_ns);

/* ---- Answers --------------------------------------------------------------------------------- */

void work_end(struct work *work)
{
    struct store *store = work->store;
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].is_waiting)
            cells_forget(store->cells, &work->parts[i].ask);
    if (work->next != NULL)
        work->next->previous = work->previous;
    *(work->previous != NULL ? &work->previous->next : &store->first) = work->next;
    store->n_works--;
    free(work);
}

/* Answers the caller, which may send a new request at once. */
static void tell(struct work *work, uint64_t now_ns)
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

void work_fail(struct work *work, enum backend_error fault, const char *why, uint64_t now_ns)
{
    if (work->op != NULL) {
        work->op->answer.fault = (uint8_t)fault;
        work->op->answer.failed = failed_servers(work);
        err_set(&work->store->fault, STINT_E_GONE, "%s", why);
        work->op->answer.outcome = BACKEND_FAILED;
        work->op->answer.error = work->store->fault.message;
    }
    tell(work, now_ns);
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
        if (part->decision.granted < least)
            least = part->decision.granted;
    }
    struct stint_decision sum = list_sum(&list);
    bool moves =
        work->verb == BACKEND_CHARGE || work->verb == BACKEND_REFUND || closes_ticket(work->verb);
    if (moves && sum.outcome == STINT_ALLOW)
        sum.granted = least;
    return sum;
}

/* A peek returns what a charge would leave; if the list is refused, nothing was charged. */
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

static void answer(struct work *work, uint64_t now_ns)
{
    if (work->op != NULL && closes_ticket(work->verb) && all_gone(work)) {
        work->op->answer.outcome = BACKEND_GONE;
    } else if (work->op != NULL) {
        struct backend_answer *answer = &work->op->answer;
        answer->outcome = BACKEND_DECIDED;
        answer->at_ns = work->decided_ns;
        answer->sum = sum_of(work);
        if (answer->sum.outcome != STINT_ALLOW && work->phase != PHASE_UNDOING)
            show_at_rest(work);
        if (work->each > 0 && answer->sum.outcome == STINT_ALLOW)
            answer->sum.granted = work->each;
        for (size_t i = 0; i < work->n_items; i++)
            answer->each[i] = work->parts[work->part_of[i]].decision;
    }
    tell(work, now_ns);
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
        go_on(work, now_ns);
}

/* Starts one part; a part that cannot start counts as refused. */
static void ask_part(struct part *part, uint8_t verb, uint32_t cost, uint64_t at_ns,
                     uint64_t now_ns)
{
    struct work *work = part->work;
    bool is_reset = verb == BACKEND_RESET;
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
        bool looks_for_space = phase == PHASE_LOOKING && work->verb == BACKEND_TAKE_UPTO;
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
static void undo(struct work *work, uint64_t now_ns)
{
    work->has_failed = !all_decided(work);
    work->phase = PHASE_UNDOING;
    for (size_t i = 0; i < work->n_parts; i++)
        if (was_charged(&work->parts[i]))
            ask_part(&work->parts[i], work->is_ticket ? BACKEND_CANCEL : STINT_REFUND,
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
            (verb != STINT_REFUND && verb != BACKEND_CANCEL))
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
        uint32_t space =
            peek->outcome == STINT_ALLOW ? peek->remaining / work->parts[i].times + 1 : 0;
        each = space < each ? space : each;
    }
    if (work->failed > 0 && each >= work->failed)
        each = work->failed / 2;
    work->each = each;
}

static void look(struct work *work, uint64_t now_ns)
{
    work->each = 0;
    ask_all(work, PHASE_LOOKING, STINT_PEEK, now_ns);
}

/* All have been peeked: the next phase. True: it continues. */
static bool go_on_from_look(struct work *work, uint64_t now_ns)
{
    if (!all_decided(work) || !all_allowed(work))
        return false;
    if (work->verb == BACKEND_TAKE_UPTO) {
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

static bool go_on_from_taking(struct work *work, uint64_t now_ns)
{
    if (all_decided(work) && all_allowed(work))
        return false;
    undo(work, now_ns);
    return true;
}

static bool go_on_from_undoing(struct work *work, uint64_t now_ns)
{
    count_undone(work);
    if (work->has_failed || work->verb != BACKEND_TAKE_UPTO || work->op == NULL)
        return false;
    work->failed = work->each;
    look(work, now_ns);
    return true;
}

/* If something may have been done, the answer is that. */
static enum backend_error fault_of(const struct work *work)
{
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].outcome == CELL_LOST || work->parts[i].outcome == CELL_LATE)
            return work->parts[i].outcome == CELL_LOST ? BACKEND_ERROR_LOST : BACKEND_ERROR_LATE;
    for (size_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].outcome == CELL_REFUSED)
            return BACKEND_ERROR_OTHER;
    return BACKEND_ERROR_STATE;
}

/* All parts are in: the next phase, or the answer. */
static void go_on(struct work *work, uint64_t now_ns)
{
    bool goes_on = false;
    do {
        if (work->phase == PHASE_LOOKING)
            goes_on = go_on_from_look(work, now_ns);
        else if (work->phase == PHASE_TAKING)
            goes_on = go_on_from_taking(work, now_ns);
        else if (work->phase == PHASE_UNDOING)
            goes_on = go_on_from_undoing(work, now_ns);
        else
            goes_on = false;
    } while (goes_on && work->n_waiting == 0);
    if (goes_on)
        return;
    if (work->has_failed || (work->phase != PHASE_UNDOING && !all_decided(work)))
        work_fail(work, fault_of(work), cells_fault(work->store->cells), now_ns);
    else
        answer(work, now_ns);
    work_end(work);
}

static void start_all(struct work *work, uint64_t now_ns)
{
    bool is_list = work->n_parts > 1 || work->parts[0].times > 1;
    bool looks = (work->verb == BACKEND_TAKE && work->n_parts > 1) ||
                 (work->verb == BACKEND_TAKE_UPTO && is_list);
    if (looks)
        look(work, now_ns);
    else
        ask_all(work, PHASE_ONLY, work->verb, now_ns);
}

void work_start(struct work *work, uint64_t now_ns)
{
    struct store *store = work->store;
    bool is_earlier = work->deadline_ns < store->earliest_ns;
    work->next = store->first;
    if (store->first != NULL)
        store->first->previous = work;
    store->first = work;
    store->n_works++;
    start_all(work, now_ns);
    if (!is_earlier)
        return;
    store->earliest_ns = work->deadline_ns;
    store->options.io->ops->hurry(store->options.io);
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

bool work_must_go_on(const struct work *work)
{
    return work->n_parts > 1 && (work->phase == PHASE_TAKING || work->phase == PHASE_UNDOING);
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

/*
 * Other stores were faster each time. A denial, since memcached answers: the policy for an
 * unavailable store might admit all.
 */
static void deny_busy(struct work *work, uint64_t now_ns)
{
    const struct stint_decision denial = {
        .outcome = STINT_DENY, .stored = 1, .retry_after_ns = BUSY_RETRY_NS};
    struct backend_op *op = work->op;
    if (op == NULL)
        return;
    op->answer.outcome = BACKEND_DECIDED;
    op->answer.at_ns = work->store->options.io->ops->wall(work->store->options.io);
    for (size_t i = 0; i < work->n_items; i++) {
        const struct part *part = &work->parts[work->part_of[i]];
        op->answer.each[i] = denial;
        op->answer.each[i].limit = most_units(&part->quota);
    }
    op->answer.sum = op->answer.each[0];
    tell(work, now_ns);
}

void work_be_late(struct work *work, uint64_t now_ns)
{
    enum cell_wait wait = wait_of(work, now_ns);
    bool may_deny = work->verb == BACKEND_TAKE || work->verb == BACKEND_TAKE_UPTO;
    if (wait == CELL_WAITS_FOR_TURN && work->op != NULL)
        work->store->metrics.busy++;
    if (work->phase == PHASE_UNDOING && !work->has_failed)
        answer(work, now_ns);
    else if (wait == CELL_WAITS_FOR_TURN && may_deny)
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
