/* SPDX-License-Identifier: MIT */
/*
 * Asks where the states are: the table, which answers at once, or a store outside of this process,
 * whose answers belong to the pending request. While a store is unavailable, its fallback decides.
 * docs/decisions/0036 says why an evaluation is suspended and does not wait.
 */
#include "decide/evaluation_parts.h"

#include "algorithm/expiring_counter.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define RETRY_AFTER_NS (1000 * NS_PER_MS) /* of a denial while a store is unavailable */

static struct backend *store_at(const struct evaluation *evaluation, size_t at)
{
    assert(at >= 1 && at <= evaluation->stores->n_stores);
    return evaluation->stores->stores[at - 1];
}

/* ---- Requests -------------------------------------------------------------------------------- */

struct span evaluation_name_of(const struct target *target, const struct stint_quota *quota,
                               char space[EVALUATION_NAME_SIZE])
{
    assert(quota != NULL);
    const struct rule *rule = target->rule;
    bool is_apart =
        target->is_override && quota == target->quota && (rule == NULL || quota->rule != rule->id);
    if (rule != NULL && !is_apart)
        return span_of_text(quota == &rule->shadow ? rule->store.shadow_name : rule->store.name);
    if (target->is_throttle)
        return span_of_text("throttle");
    if (quota->algorithm == STINT_COUNTER)
        return span_of_text("");
    struct buf buf = buf_of(space, EVALUATION_NAME_SIZE);
    uint64_t number = is_apart ? quota->rule : quota->derived.params_hash[0];
    buf_add(&buf, "%c%016" PRIx64, target->is_values ? '+' : '~', number);
    return span_of(space, buf.len);
}

static struct backend_item item_of(const struct evaluation *evaluation, const struct target *target,
                                   const struct stint_quota *quota, uint32_t cost, char *space)
{
    assert(quota != NULL && target->store != 0);
    return (struct backend_item){
        .quota = quota,
        .rule = target->rule,
        .name = evaluation_name_of(target, quota, space),
        .key = target->key,
        .is_values = target->is_values,
        .cost = cost,
        .kept = evaluation->longer_ns > 0 ? evaluation_kept(evaluation, target) : STINT_KEEP_ALL};
}

static void add_id(const struct evaluation *evaluation, struct backend_request *asked)
{
    assert(evaluation->id != NULL || !evaluation->is_ticket);
    asked->id = evaluation->id;
    asked->body = evaluation->body;
    asked->id_lifetime_ns = evaluation->id_lifetime_ns;
    asked->is_ticket = evaluation->is_ticket;
    asked->ticket_ns = evaluation->ticket_ns;
    asked->longer_ns = evaluation->longer_ns;
}

static bool refuses_id(const struct evaluation *evaluation, size_t at)
{
    const struct backend *store = store_at(evaluation, at);
    return store->ops->refuses_ids != NULL && store->ops->refuses_ids(store);
}

static void fail(struct evaluation *evaluation, const char *why)
{
    evaluation->fault = BACKEND_FAILED;
    evaluation->fault_message = why;
}

/* NULL where there is no answer yet, or never will be: evaluation.is_waiting or .fault. */
static const struct backend_answer *ask(struct evaluation *evaluation, size_t store,
                                        struct backend_request *asked)
{
    assert(evaluation->pending != NULL && asked->n_items >= 1);
    asked->now_ns = evaluation->now_ns;
    asked->is_ahead = evaluation->is_ahead;
    const struct backend_answer *answer =
        pending_ask(evaluation->pending, store_at(evaluation, store), asked);
    if (evaluation->pending->loss != NULL) {
        fail(evaluation, evaluation->pending->loss);
        return NULL;
    }
    if (answer == NULL) {
        evaluation->is_waiting = true;
        return NULL;
    }
    if (answer->outcome == BACKEND_AHEAD || (asked->is_ahead && !evaluation->is_waiting)) {
        evaluation->is_waiting = evaluation->is_too_early = true;
        return NULL;
    }
    if (answer->outcome == BACKEND_REFUSED || answer->outcome == BACKEND_CONFLICT ||
        answer->outcome == BACKEND_GONE) {
        evaluation->fault = answer->outcome;
        evaluation->fault_message = answer->error;
        return NULL;
    }
    assert(answer->outcome == BACKEND_DECIDED || answer->outcome == BACKEND_FAILED);
    return answer;
}

/* ---- The table ------------------------------------------------------------------------------- */

/* A shadow or a candidate charged by a reservation: the ticket covers these units, too. */
static struct stint_decision take_reserved(struct evaluation *evaluation,
                                           const struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask)
{
    assert(evaluation->reservation != NULL && evaluation->pending == NULL);
    bool holds = quota->algorithm == STINT_CONCURRENCY;
    uint64_t holder = 0;
    struct undo undo;
    struct stint_decision decision = table_ask(evaluation->table, quota, target->key.ptr,
                                               target->key.len, ask, &undo, holds ? &holder : NULL);
    if (decision.outcome == STINT_ALLOW)
        reservation_add_shadow(
            evaluation->reservation, quota,
            table_hash(evaluation->table, quota, target->key.ptr, target->key.len), ask->cost,
            evaluation_kept(evaluation, target), holder != 0 ? holder : undo.entered_ns);
    return decision;
}

struct stint_decision evaluation_ask_table(struct evaluation *evaluation,
                                           const struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask)
{
    assert(quota != NULL && ask->verb <= STINT_UNBOOK);
    bool is_new;
    union pending_result space, *note;
    if (evaluation->reservation != NULL && ask->verb == STINT_TAKE)
        return take_reserved(evaluation, target, quota, ask);
    note = evaluation_note(evaluation, PENDING_DECISION, 1, &space, &is_new);
    if (note == NULL) /* the pending request is lost: its caller gets an error */
        return (struct stint_decision){.outcome = STINT_DENY};
    if (is_new)
        note->decision =
            table_ask(evaluation->table, quota, target->key.ptr, target->key.len, ask, NULL, NULL);
    return note->decision;
}

/* ---- Fallback -------------------------------------------------------------------------------- */

/* A cost above this node's share may fit the whole, once the store is back. */
static bool fits(const struct stint_quota *local, uint8_t verb, uint32_t cost)
{
    bool is_whole = verb == REQUEST_TAKE || verb == REQUEST_PEEK;
    return local->limit > 0 && (!is_whole || cost <= most_units(local));
}

static uint8_t policy_of(struct evaluation *evaluation, struct target *target, uint8_t verb,
                         uint64_t unavailable_since_ns)
{
    assert(target->on_error == RULE_STORE_ERROR_LOCAL && target->store != 0);
    struct stint_quota *local = &evaluation->locals[evaluation_index(evaluation, target)];
    if (!evaluation_local_quota(evaluation->stores, target, unavailable_since_ns,
                                evaluation->now_ns, local))
        return target->rule != NULL ? target->rule->store.local_then : RULE_STORE_ERROR_DENY;
    uint64_t full_until_ns = evaluation_local_full_until(target, unavailable_since_ns);
    target->fallback_wait_ns = sub_floor(full_until_ns, evaluation->now_ns);
    if (target->hits == TARGET_HITS_CHARGE)
        verb = REQUEST_CHARGE; /* a peek goes before it */
    return target->fallback_wait_ns > 0 || !fits(local, verb, target->cost)
               ? RULE_STORE_ERROR_DENY
               : RULE_STORE_ERROR_LOCAL;
}

/*
 * The same for all runs of a request: only the time since when the store is unavailable may change
 * between runs, so it is noted. The rest comes from the request or its rules.
 */
static uint8_t note_policy(struct evaluation *evaluation, struct target *target, uint8_t verb)
{
    assert(target->fallback == FALLBACK_NONE);
    bool is_new;
    if (target->on_error != RULE_STORE_ERROR_LOCAL)
        return target->on_error;
    union pending_result *note =
        pending_note(evaluation->pending, PENDING_UNAVAILABLE_SINCE, 1, &is_new);
    if (note == NULL)
        return RULE_STORE_ERROR_DENY;
    if (is_new) {
        struct backend *store = store_at(evaluation, target->store);
        uint64_t since_ns = store->ops->unavailable_since_ns(store);
        note->unavailable_since_ns =
            since_ns == 0 ? evaluation->now_ns : min_u64(since_ns, evaluation->now_ns);
    }
    return policy_of(evaluation, target, verb, note->unavailable_since_ns);
}

static void fallback(struct evaluation *evaluation, struct target *target, uint8_t verb,
                     const char *why)
{
    assert(target->store != 0 && target->on_error <= RULE_STORE_ERROR_ERROR);
    if (target->fallback != FALLBACK_NONE)
        return;
    if (target->on_error == RULE_STORE_ERROR_ERROR) {
        fail(evaluation, why);
        return;
    }
    target->fallback = (uint8_t)(note_policy(evaluation, target, verb) + 1);
}

static struct stint_decision fell_back(const struct target *target, uint8_t verb, uint32_t cost)
{
    assert(target->store != 0 && target->quota != NULL);
    uint32_t limit = most_units(target->quota);
    bool is_denied = target->fallback == FALLBACK_DENY && verb != REQUEST_REFUND;
    uint64_t wait_ns = target->fallback_wait_ns > 0 ? target->fallback_wait_ns : RETRY_AFTER_NS;
    if (is_denied && verb != REQUEST_PEEK && cost > limit)
        return algorithm_never(limit);
    return (struct stint_decision){
        .outcome = is_denied && cost > 0 ? STINT_DENY : STINT_ALLOW,
        .limit = limit,
        .remaining = is_denied ? 0 : limit,
        .granted = is_denied || verb == REQUEST_PEEK ? 0 : cost,
        .retry_after_ns = is_denied && cost > 0 ? wait_ns : 0,
        .reset_after_ns = is_denied ? wait_ns : 0,
    };
}

/* ---- One quota by itself --------------------------------------------------------------------- */

/* Quotas that refuse the id go first: grants under an id by others could not be given back. */
static size_t store_to_ask(const struct evaluation *evaluation, size_t store)
{
    assert(store != 0);
    for (size_t i = 0; evaluation->id != NULL && i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->part != TARGET_FREE && target->store != 0 &&
            refuses_id(evaluation, target->store))
            return target->store;
    }
    return store;
}

/* Requests that a store knows by an id of their own, derived from that of the whole. */
enum id_kind {
    ID_MOVE = 0,   /* a charge or a refund */
    ID_RECORD = 2, /* under a ticket, of a limit that is not enforced */
};

/*
 * Equal keys, or those of one tag, keep their ids together, so each target has its own, and its
 * candidate another.
 */
static void derive_id(const struct evaluation *evaluation, enum id_kind kind, size_t index,
                      bool is_candidate, uint8_t id[BACKEND_ID_LEN])
{
    assert(evaluation->id != NULL && index <= UINT8_MAX); /* it may be any of a client's ticket */
    memcpy(id, evaluation->id, BACKEND_ID_LEN);
    id[0] ^= (uint8_t)index;
    id[1] ^= (uint8_t)(kind + is_candidate);
}

static bool makes_record(const struct evaluation *evaluation, const struct target *target,
                         const struct stint_ask *one)
{
    return evaluation->is_ticket && one->verb == STINT_TAKE &&
           target->store == evaluation->ticket_store;
}

/* Sends the request to the target's store; NULL: no answer yet. The table needs no request. */
static const struct backend_answer *
send(struct evaluation *evaluation, const struct evaluation_step *step, const struct stint_ask *one)
{
    const struct target *target = step->target;
    const struct stint_quota *quota = step->quota;
    assert(target->part != TARGET_FREE);
    assert(target->store == 0 || evaluation->pending != NULL);
    char space[EVALUATION_NAME_SIZE];
    uint8_t id[BACKEND_ID_LEN];
    size_t store = target->store;
    if (store == 0)
        return NULL;
    const struct backend_item item = item_of(evaluation, target, quota, one->cost, space);
    struct backend_request asked = {
        .verb = one->verb, .items = &item, .n_items = 1, .at_ns = one->at_ns};
    bool is_record = makes_record(evaluation, target, one);
    bool is_move = one->verb == STINT_CHARGE || one->verb == STINT_REFUND;
    if (one->verb == STINT_BOOK)
        add_id(evaluation, &asked);
    if (is_record || (is_move && evaluation->id != NULL)) {
        derive_id(evaluation, is_record ? ID_RECORD : ID_MOVE, evaluation_index(evaluation, target),
                  quota != target->quota, id);
        add_id(evaluation, &asked);
        asked.id = id;
        store = is_move ? store_to_ask(evaluation, store) : store;
    }
    return ask(evaluation, store, &asked);
}

/*
 * A refund of what a store granted: its time counts from 1970, which is far ahead here. The table
 * knows no grant of that time. Taken for one of just now, it would give back units again that have
 * come back by themselves. A clock of another worker may be a little ahead.
 */
static bool is_dated_by_store(const struct evaluation *evaluation, const struct stint_ask *one)
{
    return one->verb == STINT_REFUND && one->at_ns != STINT_NEVER_NS &&
           one->at_ns > add_sat(evaluation->now_ns, NS_PER_S);
}

static struct stint_decision ask_here(struct evaluation *evaluation, const struct target *target,
                                      const struct stint_quota *quota, const struct stint_ask *one)
{
    struct stint_ask asked = *one;
    if (is_dated_by_store(evaluation, one))
        asked.cost = 0;
    return evaluation_ask_table(evaluation, target, quota, &asked);
}

/*
 * The answer, once all requests were sent: reading may evaluate the fallback of an unavailable
 * store. The table is asked now.
 */
static struct stint_decision read_answer(struct evaluation *evaluation,
                                         const struct evaluation_step *step,
                                         const struct stint_ask *one,
                                         const struct backend_answer *answer)
{
    struct target *target = step->target;
    const struct stint_quota *quota = step->quota;
    assert(answer == NULL || target->store != 0);
    if (target->store == 0)
        return ask_here(evaluation, target, quota, one);
    if (answer == NULL)
        return (struct stint_decision){.outcome = STINT_DENY, .limit = most_units(quota)};
    if (answer->outcome == BACKEND_DECIDED) {
        evaluation->at_ns = max_u64(evaluation->at_ns, answer->at_ns);
        evaluation->is_replayed |= answer->is_replayed;
        evaluation->count = answer->count;
        if (makes_record(evaluation, target, one) && answer->sum.outcome == STINT_ALLOW)
            *(quota != target->quota ? &target->is_candidate_reserved : &target->is_reserved) =
                true;
        return answer->each[0];
    }
    uint32_t limit = most_units(quota);
    if (quota == target->quota && one->verb == REQUEST_RESET) { /* it decides nothing */
        fail(evaluation, answer->error);
        return (struct stint_decision){.outcome = STINT_ALLOW, .limit = limit};
    }
    /* A limit in shadow mode allows where it fails. */
    if (quota != target->quota ||
        (target->on_error == RULE_STORE_ERROR_ERROR && target->part != TARGET_LIVE))
        return (struct stint_decision){
            .outcome = STINT_ALLOW, .granted = one->cost, .limit = limit, .remaining = limit};
    fallback(evaluation, target, one->verb, answer->error);
    if (target->fallback == FALLBACK_LOCAL) {
        struct stint_ask local = *one;
        if (local.verb == STINT_BOOK)
            local.verb = STINT_TAKE; /* a share has no queue */
        return ask_here(evaluation, target,
                        &evaluation->locals[evaluation_index(evaluation, target)], &local);
    }
    return fell_back(target, one->verb, one->cost);
}

struct stint_counter evaluation_count(struct evaluation *evaluation, uint8_t verb, int64_t amount)
{
    assert(verb == REQUEST_COUNT || verb == REQUEST_COUNT_RESET);
    assert(evaluation->n_targets == 1 && evaluation->pending != NULL);
    struct target *target = &evaluation->targets[0];
    struct stint_ask ask = counter_ask_of(amount, 0, evaluation->now_ns);
    if (verb == REQUEST_COUNT_RESET)
        ask.verb = REQUEST_RESET;
    evaluation->count = 0;
    const struct evaluation_step step = {.target = target, .quota = target->quota};
    const struct backend_answer *answer = send(evaluation, &step, &ask);
    struct stint_decision decision = read_answer(evaluation, &step, &ask, answer);
    return (struct stint_counter){evaluation->count, decision.reset_after_ns};
}

/* ---- Hits of Envoy's descriptors ------------------------------------------------------------- */

/*
 * Checks before a request, and charges of its cost afterwards. Before a charge goes a peek of the
 * same cost, which returns whether it fits. A store gets both at once: units are recorded there
 * even if the caller does not wait for the answer.
 */
static struct stint_ask ask_of(const struct evaluation *evaluation, uint8_t verb, uint32_t cost)
{
    return (struct stint_ask){.now_ns = evaluation->now_ns, .cost = cost, .verb = verb};
}

/* Of a peek: one unit, or the units to be charged. Only debt denies a cost of 0. */
static uint32_t look_cost(const struct evaluation *evaluation, const struct evaluation_step *step)
{
    assert(step->hits != TARGET_HITS_TAKE);
    if (step->hits == TARGET_HITS_CHARGE)
        return step->target->cost;
    return !evaluation->checks_debt || !algorithm_has_debt(step->quota);
}

static bool charges_now(const struct evaluation_step *step)
{
    return step->charges && step->hits == TARGET_HITS_CHARGE;
}

static void send_step(struct evaluation *evaluation, struct evaluation_step *step)
{
    assert(step->target->store != 0 && step->looked == NULL);
    struct stint_ask look = step->ask;
    const struct stint_ask charge = ask_of(evaluation, STINT_CHARGE, step->target->cost);
    if (step->hits != TARGET_HITS_TAKE)
        look = ask_of(evaluation, STINT_PEEK, look_cost(evaluation, step));
    step->looked = send(evaluation, step, &look);
    if (charges_now(step))
        step->charged = send(evaluation, step, &charge);
}

/* Of a store, the answer to the peek that was sent. */
static struct stint_decision peek(struct evaluation *evaluation, const struct evaluation_step *step,
                                  uint32_t cost)
{
    const struct stint_ask ask = ask_of(evaluation, STINT_PEEK, cost);
    return read_answer(evaluation, step, &ask, step->looked);
}

/*
 * A store gets one request, and the numbers of an allowed peek are those of a take: one unit less.
 * The table, which is cheap, is read again for the current numbers.
 */
static struct stint_decision check(struct evaluation *evaluation,
                                   const struct evaluation_step *step)
{
    assert(step->hits == TARGET_HITS_CHECK);
    bool wants_one = look_cost(evaluation, step) > 0;
    struct stint_decision decision;
    if (step->target->store == 0) {
        decision = peek(evaluation, step, 0);
        if (decision.outcome == STINT_ALLOW && (decision.remaining > 0 || !wants_one))
            return decision;
    }
    decision = peek(evaluation, step, 1);
    if (decision.outcome != STINT_ALLOW || !wants_one)
        return decision;
    decision.granted = 0;
    decision.remaining = (uint32_t)min_u64((uint64_t)decision.remaining + 1, decision.limit);
    if (decision.remaining == decision.limit)
        decision.reset_after_ns = 0;
    return decision;
}

/* After a charge that did not fit: the wait until there is a unit again. */
static struct stint_decision deny(struct evaluation *evaluation, const struct evaluation_step *step,
                                  struct stint_decision charged)
{
    struct stint_decision decision = charged;
    decision.outcome = STINT_DENY;
    decision.retry_after_ns = max_u64(charged.reset_after_ns, 1);
    if (step->target->store == 0) {
        struct stint_decision one = peek(evaluation, step, 1);
        if (one.outcome != STINT_ALLOW)
            decision = one;
    }
    decision.granted = charged.granted;
    return decision;
}

static bool charge(struct evaluation *evaluation, const struct evaluation_step *step,
                   struct stint_decision *decision)
{
    assert(step->hits == TARGET_HITS_CHARGE && step->charges);
    struct target *target = step->target;
    const struct stint_ask ask = ask_of(evaluation, STINT_CHARGE, target->cost);
    struct stint_decision before = peek(evaluation, step, target->cost);
    *decision = read_answer(evaluation, step, &ask, step->charged);
    bool fits = before.outcome == STINT_ALLOW && decision->outcome == STINT_ALLOW;
    if (step->quota == target->quota)
        target->fitted = fits ? target->cost : (uint32_t)min_u64(before.remaining, target->cost);
    assert(target->fitted <= target->cost);
    if (!fits)
        *decision = deny(evaluation, step, *decision);
    return !fits;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Best effort that got less than it wanted was also limited. */
static void end_step(struct evaluation *evaluation, const struct evaluation_step *step,
                     evaluation_step_end *end)
{
    assert(step->quota != NULL && step->target->part != TARGET_FREE);
    struct stint_decision decision;
    bool is_over = false;
    if (charges_now(step))
        is_over = charge(evaluation, step, &decision);
    else if (step->hits == TARGET_HITS_CHARGE)
        decision = peek(evaluation, step, step->target->cost);
    else if (step->hits == TARGET_HITS_CHECK)
        decision = check(evaluation, step);
    else
        decision = read_answer(evaluation, step, &step->ask, step->looked);
    if (!charges_now(step))
        is_over = decision.outcome != STINT_ALLOW ||
                  (step->ask.verb == STINT_TAKE_UPTO && decision.granted < step->ask.cost);
    end(evaluation, step, &decision, is_over);
}

void evaluation_run_steps(struct evaluation *evaluation, struct evaluation_step *steps, size_t n,
                          evaluation_step_end *end)
{
    assert(evaluation_is_valid(evaluation) && n <= 2 * (size_t)TARGETS_MAX);
    size_t n_in_stores = 0;
    for (size_t i = 0; i < n; i++)
        if (steps[i].target->store == 0)
            end_step(evaluation, &steps[i], end);
        else
            n_in_stores++;
    if (n_in_stores == 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (steps[i].target->store != 0)
            send_step(evaluation, &steps[i]);
    for (size_t i = 0; i < n && !evaluation_is_to_wait(evaluation); i++)
        if (steps[i].target->store != 0)
            end_step(evaluation, &steps[i], end);
}

static void end_look(struct evaluation *evaluation, const struct evaluation_step *step,
                     const struct stint_decision *decision, bool is_over)
{
    assert(step->ask.verb == STINT_PEEK && step->ask.cost == 0);
    (void)evaluation;
    (void)is_over;
    step->target->decision = *decision;
    step->target->decision.outcome = STINT_ALLOW;
    step->target->decision.retry_after_ns = 0;
}

void evaluation_look(struct evaluation *evaluation, struct target *const *targets, size_t n)
{
    assert(n <= TARGETS_MAX);
    struct evaluation_step steps[TARGETS_MAX];
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        assert(targets[i]->part != TARGET_FREE);
        steps[i] = (struct evaluation_step){.target = targets[i],
                                            .quota = targets[i]->quota,
                                            .ask = ask_of(evaluation, STINT_PEEK, 0)};
    }
    evaluation_run_steps(evaluation, steps, n, end_look);
}

/* ---- The records of a ticket ----------------------------------------------------------------- */

const struct backend_answer *evaluation_ask_ticket(struct evaluation *evaluation, uint8_t verb,
                                                   const uint8_t *shadow_mark, size_t item)
{
    assert(evaluation_is_valid(evaluation) && evaluation->is_ticket);
    assert(verb >= REQUEST_SETTLE && item < evaluation->n_targets);
    struct backend_item items[TARGETS_MAX];
    char spaces[TARGETS_MAX][EVALUATION_NAME_SIZE];
    uint8_t id[BACKEND_ID_LEN];
    struct backend_request asked = {.verb = verb, .items = items};
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (shadow_mark != NULL ? i == item : target->part == TARGET_LIVE)
            items[asked.n_items++] =
                item_of(evaluation, target, target->quota, target->cost, spaces[i]);
    }
    add_id(evaluation, &asked);
    if (shadow_mark != NULL) {
        derive_id(evaluation, ID_RECORD, *shadow_mark / 2, *shadow_mark % 2, id);
        asked.id = id;
    }
    const struct backend_answer *answer = ask(evaluation, evaluation->targets[0].store, &asked);
    if (answer == NULL || answer->outcome == BACKEND_DECIDED)
        return answer;
    fail(evaluation, answer->error);
    return NULL;
}

/* ---- Groups: the live targets of one store --------------------------------------------------- */

static bool is_in(const struct target *target, size_t store)
{
    assert(store != 0);
    return target->store == store && target->fallback == FALLBACK_NONE && target_takes(target);
}

static size_t gather_group(struct evaluation *evaluation, size_t store, uint32_t most,
                           struct backend_item *items, char (*spaces)[EVALUATION_NAME_SIZE])
{
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (is_in(target, store)) {
            uint32_t cost = (uint32_t)min_u64(target->cost, most);
            if (evaluation->pending->next == NULL) /* else only the answer is read */
                items[n] = item_of(evaluation, target, target->quota, cost, spaces[n]);
            n++;
        }
    }
    return n;
}

static void ask_group(struct evaluation *evaluation, size_t store, uint8_t verb, uint32_t most,
                      struct evaluation_group *group)
{
    assert(group->answer == NULL && most > 0);
    struct backend_item items[TARGETS_MAX];
    char spaces[TARGETS_MAX][EVALUATION_NAME_SIZE];
    size_t n = gather_group(evaluation, store, most, items, spaces);
    struct backend_request asked = {.verb = verb, .items = items, .n_items = n};
    if (n == 0)
        return;
    if (verb == REQUEST_TAKE || verb == REQUEST_TAKE_UPTO)
        add_id(evaluation, &asked);
    group->answer = ask(evaluation, store, &asked);
}

/* A list may be denied where no item would be: equal keys, or other servers were faster. */
static void show_binding(struct evaluation *evaluation, size_t store,
                         const struct backend_answer *answer)
{
    assert(answer->sum.outcome != STINT_ALLOW);
    struct target *binding = NULL;
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (!is_in(target, store))
            continue;
        if (target->over)
            return;
        if (n++ == answer->sum.binding)
            binding = target;
    }
    if (binding == NULL)
        return;
    binding->decision = answer->sum;
    binding->over = true;
}

/* The answer of a group, to its targets; or the fallback. */
static void settle_group(struct evaluation *evaluation, size_t store, uint8_t verb,
                         struct evaluation_group *group)
{
    assert(group->granted == 0);
    const struct backend_answer *answer = group->answer;
    size_t n = 0;
    if (answer == NULL)
        return;
    bool is_decided = answer->outcome == BACKEND_DECIDED;
    bool is_granted = is_decided && verb != REQUEST_PEEK && answer->sum.outcome == STINT_ALLOW;
    group->granted = !is_granted ? 0 : verb == REQUEST_TAKE ? UINT32_MAX : answer->sum.granted;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (!is_in(target, store))
            continue;
        if (is_decided) {
            target->decision = answer->each[n++];
            target->is_settled = !is_granted && verb != REQUEST_PEEK; /* counts as taken */
        } else {
            fallback(evaluation, target, verb, answer->error);
            target->decision = fell_back(target, verb, target->cost);
            target->is_settled = true;
        }
        target->over = target->decision.outcome != STINT_ALLOW;
    }
    if (!is_decided) {
        group->answer = NULL; /* no grant is known that could be given back */
        return;
    }
    evaluation->is_replayed |= answer->is_replayed;
    if (is_granted)
        evaluation->at_ns = answer->at_ns;
    else if (answer->sum.outcome != STINT_ALLOW)
        show_binding(evaluation, store, answer);
}

/*
 * Gives back what a group was granted and the request as a whole was not, `units` of each. Grants
 * under an id stay: a retry with the id gets the same grant, and so has to find it charged.
 */
static void take_back(struct evaluation *evaluation, size_t store,
                      const struct evaluation_group *group, uint32_t units)
{
    assert(units > 0 && units <= group->granted);
    struct backend_item items[TARGETS_MAX];
    char spaces[TARGETS_MAX][EVALUATION_NAME_SIZE];
    size_t n = 0;
    if (group->answer == NULL || group->granted == 0 || evaluation->id != NULL)
        return;
    struct backend_request asked = {.verb = REQUEST_REFUND,
                                    .items = items,
                                    .n_items =
                                        gather_group(evaluation, store, units, items, spaces),
                                    .at_ns = group->answer->at_ns};
    const struct backend_answer *answer = ask(evaluation, store, &asked);
    for (size_t i = 0; answer != NULL && i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (!is_in(target, store))
            continue;
        if (answer->outcome == BACKEND_DECIDED)
            target->decision.remaining = answer->each[n++].remaining;
        target->decision.granted -= (uint32_t)min_u64(units, target->decision.granted);
        target->is_settled = true;
    }
}

/* Those that refuse the id go first: grants under an id by others could not be given back. */
void evaluation_ask_groups(struct evaluation *evaluation, uint8_t verb, uint32_t most,
                           struct evaluation_group *groups)
{
    assert(evaluation_is_valid(evaluation) && evaluation->pending != NULL);
    assert(evaluation->stores->n_stores <= EVALUATION_STORES_MAX);
    size_t n_stores = evaluation->stores->n_stores;
    memset(groups, 0, n_stores * sizeof(*groups));
    for (int refusing = evaluation->id != NULL; refusing >= 0 && !evaluation_is_to_wait(evaluation);
         refusing--)
        for (size_t store = 1; store <= n_stores; store++)
            if (evaluation->id == NULL || refuses_id(evaluation, store) == (refusing == 1))
                ask_group(evaluation, store, verb, most, &groups[store - 1]);
    if (evaluation->is_waiting)
        return;
    for (size_t store = 1; store <= n_stores; store++)
        settle_group(evaluation, store, verb, &groups[store - 1]);
}

void evaluation_take_back(struct evaluation *evaluation, const struct evaluation_group *groups,
                          uint32_t kept)
{
    assert(evaluation_is_valid(evaluation) && evaluation->pending != NULL);
    for (size_t store = 1; store <= evaluation->stores->n_stores; store++)
        if (groups[store - 1].granted > kept)
            take_back(evaluation, store, &groups[store - 1], groups[store - 1].granted - kept);
}
