/* SPDX-License-Identifier: MIT */
/*
 * Targets whose states are in stores outside of this process: requests through the pending request,
 * all or nothing with those in the table, and the fallback of an unavailable store.
 * docs/decisions/0036 says why an evaluation is suspended and does not wait.
 */
#include "decide/evaluation_parts.h"

#include "base/buf.h"
#include "base/wide_int.h"
#include "decide/evaluation_local.h"
#include "decide/pending.h"

#include <inttypes.h>

#define STORES_MAX 64                     /* of one request */
#define RETRY_AFTER_NS (1000 * NS_PER_MS) /* of a denial while a store is unavailable */

void evaluation_leave_distant_shadows(struct evaluation *evaluation)
{
    bool decides_in_table = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        if (target_asks(&evaluation->targets[i]) && evaluation->targets[i].store != 0)
            return;
        decides_in_table |= target_asks(&evaluation->targets[i]);
    }
    for (size_t i = 0; decides_in_table && i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_SHADOW && target->store != 0)
            target->part = TARGET_FREE;
    }
}

bool evaluation_asks_stores(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part != TARGET_FREE && evaluation->targets[i].store != 0)
            return true;
    return false;
}

bool evaluation_asks_table(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part != TARGET_FREE && evaluation->targets[i].store == 0)
            return true;
    return false;
}

bool evaluation_is_to_wait(const struct evaluation *evaluation)
{
    return evaluation_is_given_up(evaluation);
}

static struct backend *store_at(const struct evaluation *evaluation, size_t at)
{
    return evaluation->stores->stores[at - 1];
}

/* ---- Requests -------------------------------------------------------------------------------- */

struct span evaluation_name_of(const struct target *target, const struct stint_quota *quota,
                               char space[EVALUATION_NAME_SIZE])
{
    const struct rule *rule = target->rule;
    bool is_apart =
        target->is_override && quota == target->quota && (rule == NULL || quota->rule != rule->id);
    if (rule != NULL && !is_apart)
        return span_of_text(quota == &rule->shadow ? rule->store.shadow_name : rule->store.name);
    if (target->is_throttle)
        return span_of_text("throttle");
    struct buf buf = buf_of(space, EVALUATION_NAME_SIZE);
    uint64_t number = is_apart ? quota->rule : quota->derived.params_hash[0];
    buf_add(&buf, "%c%016" PRIx64, target->is_values ? '+' : '~', number);
    return span_of(space, buf.len);
}

static struct backend_item item_of(const struct evaluation *evaluation, const struct target *target,
                                   const struct stint_quota *quota, uint32_t cost, char *space)
{
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
    return evaluation->id != NULL && store->ops->refuses_ids != NULL &&
           store->ops->refuses_ids(store);
}

/* NULL where there is no answer yet, or never will be: evaluation.is_waiting or .fault. */
static const struct backend_answer *ask(struct evaluation *evaluation, size_t store,
                                        struct backend_request *asked)
{
    asked->now_ns = evaluation->now_ns;
    asked->is_ahead = evaluation->is_ahead;
    const struct backend_answer *answer =
        pending_ask(evaluation->pending, store_at(evaluation, store), asked);
    if (evaluation->pending->is_lost) {
        evaluation->fault = BACKEND_FAILED;
        evaluation->fault_message = "the quotas of the request changed while it waited";
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
    return answer;
}

/* ---- Fallback -------------------------------------------------------------------------------- */

/* A cost above this node's share may fit the whole, once the store is back. */
static bool fits(const struct stint_quota *local, uint8_t verb, uint32_t cost)
{
    bool is_whole = verb == BACKEND_TAKE || verb == BACKEND_PEEK;
    return local->limit > 0 && (!is_whole || cost <= most_units(local));
}

static uint64_t unavailable_since(struct evaluation *evaluation, const struct target *target)
{
    struct backend *store = store_at(evaluation, target->store);
    uint64_t since_ns = store->ops->unavailable_since_ns(store);
    return since_ns == 0 || since_ns > evaluation->now_ns ? evaluation->now_ns : since_ns;
}

static uint8_t policy_of(struct evaluation *evaluation, struct target *target, uint8_t verb,
                         uint64_t unavailable_since_ns)
{
    struct stint_quota *local = &evaluation->locals[target - evaluation->targets];
    if (!evaluation_local_quota(evaluation->stores, target, unavailable_since_ns,
                                evaluation->now_ns, local))
        return target->rule != NULL ? target->rule->store.local_then : RULE_STORE_ERROR_DENY;
    uint64_t full_until_ns = evaluation_local_full_until(target, unavailable_since_ns);
    target->fallback_wait_ns = sub_floor(full_until_ns, evaluation->now_ns);
    if (target->hits == TARGET_HITS_CHARGE)
        verb = BACKEND_CHARGE; /* a peek goes before it */
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
    bool is_new;
    if (target->on_error != RULE_STORE_ERROR_LOCAL)
        return target->on_error;
    union pending_result *note =
        pending_note(evaluation->pending, PENDING_UNAVAILABLE_SINCE, 1, &is_new);
    if (note == NULL)
        return RULE_STORE_ERROR_DENY;
    if (is_new)
        note->unavailable_since_ns = unavailable_since(evaluation, target);
    return policy_of(evaluation, target, verb, note->unavailable_since_ns);
}

static void fallback(struct evaluation *evaluation, struct target *target, uint8_t verb,
                     const char *why)
{
    static const uint8_t fallbacks[] = {[RULE_STORE_ERROR_DENY] = FALLBACK_DENY,
                                        [RULE_STORE_ERROR_ALLOW] = FALLBACK_ALLOW,
                                        [RULE_STORE_ERROR_LOCAL] = FALLBACK_LOCAL};
    if (target->fallback != FALLBACK_NONE)
        return;
    if (target->on_error == RULE_STORE_ERROR_ERROR) {
        evaluation->fault = BACKEND_FAILED;
        evaluation->fault_message = why;
        return;
    }
    target->fallback = fallbacks[note_policy(evaluation, target, verb)];
}

static struct stint_decision fell_back(const struct target *target, uint8_t verb, uint32_t cost)
{
    uint32_t limit = most_units(target->quota);
    bool is_denied = target->fallback == FALLBACK_DENY && verb != BACKEND_REFUND;
    uint64_t wait_ns = target->fallback_wait_ns > 0 ? target->fallback_wait_ns : RETRY_AFTER_NS;
    if (is_denied && verb != BACKEND_PEEK && cost > limit)
        return algorithm_never(limit);
    return (struct stint_decision){
        .outcome = is_denied && cost > 0 ? STINT_DENY : STINT_ALLOW,
        .limit = limit,
        .remaining = is_denied ? 0 : limit,
        .granted = is_denied || verb == BACKEND_PEEK ? 0 : cost,
        .retry_after_ns = is_denied && cost > 0 ? wait_ns : 0,
        .reset_after_ns = is_denied ? wait_ns : 0,
    };
}

/* ---- One quota by itself --------------------------------------------------------------------- */

static struct stint_decision nothing_known(const struct stint_quota *quota)
{
    return (struct stint_decision){.outcome = STINT_DENY, .limit = most_units(quota)};
}

/* Quotas that refuse the id go first: grants under an id by others could not be given back. */
static size_t store_to_ask(const struct evaluation *evaluation, size_t store)
{
    for (size_t i = 0; evaluation->id != NULL && i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->part != TARGET_FREE && target->store != 0 &&
            refuses_id(evaluation, target->store))
            return target->store;
    }
    return store;
}

/* Each limit that is not enforced has a record of its own under the ticket. */
static void make_shadow_id(const struct evaluation *evaluation, uint8_t mark,
                           uint8_t id[BACKEND_ID_LEN])
{
    memcpy(id, evaluation->id, BACKEND_ID_LEN);
    id[0] ^= mark / 2;
    id[1] ^= (uint8_t)(2 + mark % 2);
}

static bool makes_record(const struct evaluation *evaluation, const struct target *target,
                         const struct stint_ask *one)
{
    return evaluation->is_ticket && one->verb == STINT_TAKE &&
           target->store == evaluation->ticket_store;
}

const struct backend_answer *evaluation_send(struct evaluation *evaluation, struct target *target,
                                             const struct stint_quota *quota,
                                             const struct stint_ask *one)
{
    char space[EVALUATION_NAME_SIZE];
    const struct backend_item item = item_of(evaluation, target, quota, one->cost, space);
    struct backend_request asked = {
        .verb = one->verb, .items = &item, .n_items = 1, .at_ns = one->at_ns};
    uint8_t id[BACKEND_ID_LEN];
    size_t store = target->store;
    if (one->verb == STINT_BOOK) {
        add_id(evaluation, &asked);
    } else if (makes_record(evaluation, target, one)) {
        size_t at = (size_t)(target - evaluation->targets);
        make_shadow_id(evaluation, (uint8_t)(at * 2 + (quota != target->quota)), id);
        add_id(evaluation, &asked);
        asked.id = id;
    } else if (evaluation->id != NULL && (one->verb == STINT_CHARGE || one->verb == STINT_REFUND)) {
        /*
         * Each has a request of its own, and equal keys, or those of one tag, keep their ids
         * together.
         */
        memcpy(id, evaluation->id, sizeof(id));
        id[0] ^= (uint8_t)(target - evaluation->targets);
        id[1] ^= quota != target->quota;
        add_id(evaluation, &asked);
        asked.id = id;
        store = store_to_ask(evaluation, store);
    }
    return ask(evaluation, store, &asked);
}

struct stint_decision evaluation_read(struct evaluation *evaluation, struct target *target,
                                      const struct stint_quota *quota, const struct stint_ask *one,
                                      const struct backend_answer *answer)
{
    if (answer == NULL)
        return nothing_known(quota);
    if (answer->outcome == BACKEND_DECIDED) {
        evaluation->at_ns = max_u64(evaluation->at_ns, answer->at_ns);
        evaluation->is_replayed |= answer->is_replayed;
        if (makes_record(evaluation, target, one) && answer->sum.outcome == STINT_ALLOW)
            *(quota != target->quota ? &target->is_candidate_reserved : &target->is_reserved) =
                true;
        return answer->each[0];
    }
    /* A candidate does not decide and needs no fallback. */
    if (quota != target->quota)
        return (struct stint_decision){.outcome = STINT_ALLOW, .granted = one->cost};
    fallback(evaluation, target, one->verb, answer->error);
    if (target->fallback == FALLBACK_LOCAL) {
        struct stint_ask local = *one;
        if (local.verb == STINT_BOOK)
            local.verb = STINT_TAKE; /* a share has no queue */
        return evaluation_ask_table(evaluation, target,
                                    &evaluation->locals[target - evaluation->targets], &local);
    }
    return fell_back(target, one->verb, one->cost);
}

struct stint_decision evaluation_ask_store(struct evaluation *evaluation, struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *one)
{
    return evaluation_read(evaluation, target, quota, one,
                           evaluation_send(evaluation, target, quota, one));
}

const struct backend_answer *evaluation_ask_ticket(struct evaluation *evaluation, uint8_t verb,
                                                   const uint8_t *shadow_mark, size_t item)
{
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
        make_shadow_id(evaluation, *shadow_mark, id);
        asked.id = id;
    }
    const struct backend_answer *answer = ask(evaluation, evaluation->targets[0].store, &asked);
    if (answer == NULL || answer->outcome == BACKEND_DECIDED)
        return answer;
    evaluation->fault = BACKEND_FAILED;
    evaluation->fault_message = answer->error;
    return NULL;
}

/* ---- Groups: the live targets of one store --------------------------------------------------- */

/* For one evaluation, the request to each store and its answer. */
struct group {
    const struct backend_answer *answer; /* NULL: no request */
    uint32_t granted;                    /* at most, of each item; 0: denied or peeked */
};

static bool is_in(const struct target *target, size_t store)
{
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
            items[n] = item_of(evaluation, target, target->quota, cost, spaces[n]);
            n++;
        }
    }
    return n;
}

static void ask_group(struct evaluation *evaluation, size_t store, uint8_t verb, uint32_t most,
                      struct group *group)
{
    struct backend_item items[TARGETS_MAX];
    char spaces[TARGETS_MAX][EVALUATION_NAME_SIZE];
    size_t n = gather_group(evaluation, store, most, items, spaces);
    struct backend_request asked = {.verb = verb, .items = items, .n_items = n};
    if (n == 0)
        return;
    if (verb == BACKEND_TAKE || verb == BACKEND_TAKE_UPTO)
        add_id(evaluation, &asked);
    group->answer = ask(evaluation, store, &asked);
}

/* A list may be denied where no item would be: equal keys, or other servers were faster. */
static void show_binding(struct evaluation *evaluation, size_t store,
                         const struct backend_answer *answer)
{
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
                         struct group *group)
{
    const struct backend_answer *answer = group->answer;
    size_t n = 0;
    if (answer == NULL)
        return;
    bool is_decided = answer->outcome == BACKEND_DECIDED;
    bool is_granted = is_decided && verb != BACKEND_PEEK && answer->sum.outcome == STINT_ALLOW;
    group->granted = !is_granted ? 0 : verb == BACKEND_TAKE ? UINT32_MAX : answer->sum.granted;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (!is_in(target, store))
            continue;
        if (is_decided) {
            target->decision = answer->each[n++];
            target->is_settled = !is_granted && verb != BACKEND_PEEK; /* counts as taken */
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
static void take_back(struct evaluation *evaluation, size_t store, const struct group *group,
                      uint32_t units)
{
    struct backend_item items[TARGETS_MAX];
    char spaces[TARGETS_MAX][EVALUATION_NAME_SIZE];
    size_t n = 0;
    if (group->answer == NULL || group->granted == 0 || evaluation->id != NULL)
        return;
    struct backend_request asked = {.verb = BACKEND_REFUND,
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

static void take_back_all(struct evaluation *evaluation, const struct group *groups, uint32_t units)
{
    for (size_t store = 1; store <= evaluation->stores->n_stores; store++)
        take_back(evaluation, store, &groups[store - 1], units);
}

/* Those that refuse the id go first: grants under an id by others could not be given back. */
static void ask_groups(struct evaluation *evaluation, uint8_t verb, uint32_t most,
                       struct group *groups)
{
    size_t n_stores = evaluation->stores->n_stores;
    for (size_t store = 1; store <= n_stores; store++) {
        groups[store - 1] = (struct group){.answer = NULL};
        if (refuses_id(evaluation, store))
            ask_group(evaluation, store, verb, most, &groups[store - 1]);
    }
    if (evaluation_is_given_up(evaluation))
        return;
    for (size_t store = 1; store <= n_stores; store++)
        if (!refuses_id(evaluation, store))
            ask_group(evaluation, store, verb, most, &groups[store - 1]);
    if (evaluation_is_given_up(evaluation))
        return;
    for (size_t store = 1; store <= n_stores; store++)
        settle_group(evaluation, store, verb, &groups[store - 1]);
}

/* ---- All or nothing -------------------------------------------------------------------------- */

static bool anyone_is_over(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (target_takes(&evaluation->targets[i]) && evaluation->targets[i].over)
            return true;
    return false;
}

/*
 * Two steps where stores and the table both decide: peek in the table, then charge the stores; if
 * the table has no capacity left by then, the stores get their units back. The table is charged
 * also where the stores know the request's id: it may have denied then.
 */
void evaluation_take_shared(struct evaluation *evaluation, bool charges)
{
    struct group groups[STORES_MAX];
    if (evaluation_gather(evaluation)) {
        evaluation_ask_gathered(evaluation, false);
        charges = charges && !anyone_is_over(evaluation);
    }
    ask_groups(evaluation, charges ? BACKEND_TAKE : BACKEND_PEEK, UINT32_MAX, groups);
    if (evaluation_is_given_up(evaluation))
        return;
    bool is_denied = anyone_is_over(evaluation);
    if (evaluation_gather(evaluation)) { /* with those that are decided locally now */
        evaluation_ask_gathered(evaluation, charges && !is_denied);
        is_denied = anyone_is_over(evaluation);
    }
    if (charges && is_denied)
        take_back_all(evaluation, groups, UINT32_MAX);
}

/* Equal targets share what is left. */
static uint32_t times_gathered(const struct evaluation *evaluation, size_t i)
{
    const struct stint_item *item = &evaluation->items[i];
    uint32_t times = 0;
    for (size_t j = 0; j < evaluation->n_items; j++) {
        const struct stint_item *other = &evaluation->items[j];
        times += other->key_len == item->key_len && other->quota->rule == item->quota->rule &&
                 memcmp(other->key, item->key, item->key_len) == 0;
    }
    return times;
}

/* The most that the table would grant of each; targets that have nothing are over. */
static uint32_t look_at_table(struct evaluation *evaluation, uint32_t most)
{
    if (!evaluation_gather(evaluation))
        return most;
    evaluation_ask_gathered(evaluation, false);
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        const struct stint_decision *decision = &target->decision;
        uint32_t times = times_gathered(evaluation, i), cost = evaluation->items[i].cost;
        bool fits = decision->outcome == STINT_ALLOW;
        uint32_t left = fits ? cost : decision->remaining / times;
        target->over = left == 0;
        if (left == 0) { /* the wait is for one unit of each */
            const struct stint_ask ask = {
                .now_ns = evaluation->now_ns, .cost = times, .verb = STINT_PEEK};
            target->decision =
                evaluation_ask_table(evaluation, target, evaluation->items[i].quota, &ask);
        }
        most = (uint32_t)min_u64(most, left);
    }
    return most;
}

/* The table is peeked first here as well: units given back may stay charged a while longer. */
uint32_t evaluation_take_upto_shared(struct evaluation *evaluation, uint32_t most)
{
    struct group groups[STORES_MAX];
    uint32_t granted = look_at_table(evaluation, most);
    if (granted == 0) {
        ask_groups(evaluation, BACKEND_PEEK, 1, groups);
        return 0;
    }
    ask_groups(evaluation, BACKEND_TAKE_UPTO, granted, groups);
    if (evaluation_is_given_up(evaluation))
        return 0;
    for (size_t store = 0; store < evaluation->stores->n_stores; store++)
        if (groups[store].answer != NULL)
            granted = (uint32_t)min_u64(granted, groups[store].granted);
    if (anyone_is_over(evaluation))
        granted = 0;
    if (granted > 0 && evaluation_gather(evaluation))
        granted = evaluation_upto_gathered(evaluation, granted);
    for (size_t store = 1; store <= evaluation->stores->n_stores; store++)
        if (groups[store - 1].granted > granted)
            take_back(evaluation, store, &groups[store - 1], groups[store - 1].granted - granted);
    return granted;
}
