/* SPDX-License-Identifier: MIT */
/*
 * Targets whose states are in stores outside of this process: asked through the errand of the
 * request, all or nothing with those in the table, and with what stands in for a store that cannot
 * be asked. docs/decisions/0036 says why a question is given up where it would have to wait.
 */
#include "decide/question_parts.h"

#include "base/buf.h"
#include "base/wide_int.h"
#include "decide/errand.h"
#include "decide/question_local.h"

#include <inttypes.h>

#define STORES_MAX 64                     /* that one request can meet */
#define RETRY_AFTER_NS (1000 * NS_PER_MS) /* said to whom a store that is away denies */

void question_leave_distant_shadows(struct question *question)
{
    bool decides_in_table = false;
    for (size_t i = 0; i < question->n_targets; i++) {
        if (target_asks(&question->targets[i]) && question->targets[i].store != 0)
            return;
        decides_in_table |= target_asks(&question->targets[i]);
    }
    for (size_t i = 0; decides_in_table && i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        if (target->part == TARGET_SHADOW && target->store != 0)
            target->part = TARGET_FREE;
    }
}

bool question_asks_stores(const struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++)
        if (question->targets[i].part != TARGET_FREE && question->targets[i].store != 0)
            return true;
    return false;
}

bool question_asks_table(const struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++)
        if (question->targets[i].part != TARGET_FREE && question->targets[i].store == 0)
            return true;
    return false;
}

bool question_is_to_wait(const struct question *question)
{
    return question_is_given_up(question);
}

static struct shared_store *store_at(const struct question *question, size_t at)
{
    return question->stores->stores[at - 1];
}

/* ---- Asking ---------------------------------------------------------------------------------- */

struct span question_name_of(const struct target *target, const struct stint_quota *quota,
                             char room[QUESTION_NAME_SIZE])
{
    const struct rule *rule = target->rule;
    bool is_apart =
        target->is_override && quota == target->quota && (rule == NULL || quota->rule != rule->id);
    if (rule != NULL && !is_apart)
        return span_of_text(quota == &rule->shadow ? rule->store.shadow_name : rule->store.name);
    if (target->is_throttle)
        return span_of_text("throttle");
    struct buf buf = buf_of(room, QUESTION_NAME_SIZE);
    uint64_t number = is_apart ? quota->rule : quota->derived.params_hash[0];
    buf_add(&buf, "%c%016" PRIx64, target->is_values ? '+' : '~', number);
    return span_of(room, buf.len);
}

static struct shared_item item_of(const struct question *question, const struct target *target,
                                  const struct stint_quota *quota, uint32_t cost, char *room)
{
    return (struct shared_item){.quota = quota,
                                .rule = target->rule,
                                .name = question_name_of(target, quota, room),
                                .key = target->key,
                                .is_values = target->is_values,
                                .cost = cost,
                                .kept = question->longer_ns > 0 ? question_kept(question, target)
                                                                : STINT_KEEP_ALL};
}

static void add_id(const struct question *question, struct shared_ask *asked)
{
    asked->id = question->id;
    asked->body = question->body;
    asked->id_lifetime_ns = question->id_lifetime_ns;
    asked->is_ticket = question->is_ticket;
    asked->ticket_ns = question->ticket_ns;
    asked->longer_ns = question->longer_ns;
}

static bool refuses_id(const struct question *question, size_t at)
{
    const struct shared_store *store = store_at(question, at);
    return question->id != NULL && store->ops->refuses_ids != NULL &&
           store->ops->refuses_ids(store);
}

/* NULL where there is no answer yet, or never will be: question.is_waiting or .fault. */
static const struct shared_answer *ask(struct question *question, size_t store,
                                       struct shared_ask *asked)
{
    asked->now_ns = question->now_ns;
    asked->is_ahead = question->is_ahead;
    const struct shared_answer *answer =
        errand_ask(question->errand, store_at(question, store), asked);
    if (question->errand->is_lost) {
        question->fault = SHARED_FAILED;
        question->fault_sentence = "the quotas of the request have changed while it was asked";
        return NULL;
    }
    if (answer == NULL) {
        question->is_waiting = true;
        return NULL;
    }
    if (answer->outcome == SHARED_AHEAD || (asked->is_ahead && !question->is_waiting)) {
        question->is_waiting = question->is_too_early = true;
        return NULL;
    }
    if (answer->outcome == SHARED_REFUSED || answer->outcome == SHARED_CONFLICT ||
        answer->outcome == SHARED_GONE) {
        question->fault = answer->outcome;
        question->fault_sentence = answer->error;
        return NULL;
    }
    return answer;
}

/* ---- What stands in -------------------------------------------------------------------------- */

/* What does not fit this node's share may fit the whole, once the store is back. */
static bool fits(const struct stint_quota *local, uint8_t verb, uint32_t cost)
{
    bool is_whole = verb == SHARED_TAKE || verb == SHARED_PEEK;
    return local->limit > 0 && (!is_whole || cost <= law_capacity(local));
}

static uint64_t away_since(struct question *question, const struct target *target)
{
    struct shared_store *store = store_at(question, target->store);
    uint64_t since_ns = store->ops->away_since_ns(store);
    return since_ns == 0 || since_ns > question->now_ns ? question->now_ns : since_ns;
}

static uint8_t policy_of(struct question *question, struct target *target, uint8_t verb,
                         uint64_t away_since_ns)
{
    struct stint_quota *local = &question->locals[target - question->targets];
    if (!question_local_quota(question->stores, target, away_since_ns, question->now_ns, local))
        return target->rule != NULL ? target->rule->store.local_then : RULE_STORE_ERROR_DENY;
    uint64_t full_until_ns = question_local_full_until(target, away_since_ns);
    target->stand_in_wait_ns = sub_floor(full_until_ns, question->now_ns);
    if (target->hits == TARGET_HITS_CHARGE)
        verb = SHARED_CHARGE; /* which is asked behind a peek */
    return target->stand_in_wait_ns > 0 || !fits(local, verb, target->cost)
               ? RULE_STORE_ERROR_DENY
               : RULE_STORE_ERROR_LOCAL;
}

/*
 * The same for all runs of a request: since when a store is away may be different by then. All else
 * that it depends on is the request's, or of its rules.
 */
static uint8_t note_policy(struct question *question, struct target *target, uint8_t verb)
{
    bool is_new;
    if (target->on_error != RULE_STORE_ERROR_LOCAL)
        return target->on_error;
    struct stint_decision *note = errand_note(question->errand, 1, &is_new);
    if (note == NULL)
        return RULE_STORE_ERROR_DENY;
    if (is_new)
        note->reset_after_ns = away_since(question, target);
    return policy_of(question, target, verb, note->reset_after_ns);
}

static void stand_in(struct question *question, struct target *target, uint8_t verb,
                     const char *why)
{
    static const uint8_t stand_ins[] = {[RULE_STORE_ERROR_DENY] = STAND_IN_DENY,
                                        [RULE_STORE_ERROR_ALLOW] = STAND_IN_ALLOW,
                                        [RULE_STORE_ERROR_LOCAL] = STAND_IN_LOCAL};
    if (target->stand_in != STAND_IN_NONE)
        return;
    if (target->on_error == RULE_STORE_ERROR_ERROR) {
        question->fault = SHARED_FAILED;
        question->fault_sentence = why;
        return;
    }
    target->stand_in = stand_ins[note_policy(question, target, verb)];
}

static struct stint_decision stood_in(const struct target *target, uint8_t verb, uint32_t cost)
{
    uint32_t limit = law_capacity(target->quota);
    bool is_denied = target->stand_in == STAND_IN_DENY && verb != SHARED_REFUND;
    uint64_t wait_ns = target->stand_in_wait_ns > 0 ? target->stand_in_wait_ns : RETRY_AFTER_NS;
    if (is_denied && verb != SHARED_PEEK && cost > limit)
        return law_never(limit);
    return (struct stint_decision){
        .outcome = is_denied && cost > 0 ? STINT_DENY : STINT_ALLOW,
        .limit = limit,
        .remaining = is_denied ? 0 : limit,
        .granted = is_denied || verb == SHARED_PEEK ? 0 : cost,
        .retry_after_ns = is_denied && cost > 0 ? wait_ns : 0,
        .reset_after_ns = is_denied ? wait_ns : 0,
    };
}

/* ---- One quota by itself --------------------------------------------------------------------- */

static struct stint_decision nothing_known(const struct stint_quota *quota)
{
    return (struct stint_decision){.outcome = STINT_DENY, .limit = law_capacity(quota)};
}

/* Who refuses the id is asked first: what it was granted by others could not be given back. */
static size_t store_to_ask(const struct question *question, size_t store)
{
    for (size_t i = 0; question->id != NULL && i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        if (target->part != TARGET_FREE && target->store != 0 &&
            refuses_id(question, target->store))
            return target->store;
    }
    return store;
}

/* Each limit that is not enforced has a record of its own under the ticket. */
static void make_shadow_id(const struct question *question, uint8_t mark, uint8_t id[SHARED_ID_LEN])
{
    memcpy(id, question->id, SHARED_ID_LEN);
    id[0] ^= mark / 2;
    id[1] ^= (uint8_t)(2 + mark % 2);
}

static bool makes_record(const struct question *question, const struct target *target,
                         const struct stint_ask *one)
{
    return question->is_ticket && one->verb == STINT_TAKE &&
           target->store == question->ticket_store;
}

const struct shared_answer *question_send(struct question *question, struct target *target,
                                          const struct stint_quota *quota,
                                          const struct stint_ask *one)
{
    char room[QUESTION_NAME_SIZE];
    const struct shared_item item = item_of(question, target, quota, one->cost, room);
    struct shared_ask asked = {
        .verb = one->verb, .items = &item, .n_items = 1, .at_ns = one->at_ns};
    uint8_t id[SHARED_ID_LEN];
    size_t store = target->store;
    if (one->verb == STINT_BOOK) {
        add_id(question, &asked);
    } else if (makes_record(question, target, one)) {
        size_t at = (size_t)(target - question->targets);
        make_shadow_id(question, (uint8_t)(at * 2 + (quota != target->quota)), id);
        add_id(question, &asked);
        asked.id = id;
    } else if (question->id != NULL && (one->verb == STINT_CHARGE || one->verb == STINT_REFUND)) {
        /* Each is asked by itself, and equal keys, or those of one tag, keep their ids together. */
        memcpy(id, question->id, sizeof(id));
        id[0] ^= (uint8_t)(target - question->targets);
        id[1] ^= quota != target->quota;
        add_id(question, &asked);
        asked.id = id;
        store = store_to_ask(question, store);
    }
    return ask(question, store, &asked);
}

struct stint_decision question_read(struct question *question, struct target *target,
                                    const struct stint_quota *quota, const struct stint_ask *one,
                                    const struct shared_answer *answer)
{
    if (answer == NULL)
        return nothing_known(quota);
    if (answer->outcome == SHARED_DECIDED) {
        question->at_ns = max_u64(question->at_ns, answer->at_ns);
        question->is_replayed |= answer->is_replayed;
        if (makes_record(question, target, one) && answer->sum.outcome == STINT_ALLOW)
            *(quota != target->quota ? &target->is_candidate_reserved : &target->is_reserved) =
                true;
        return answer->each[0];
    }
    /* A candidate has no say, and nothing to stand in for it. */
    if (quota != target->quota)
        return (struct stint_decision){.outcome = STINT_ALLOW, .granted = one->cost};
    stand_in(question, target, one->verb, answer->error);
    if (target->stand_in == STAND_IN_LOCAL) {
        struct stint_ask local = *one;
        if (local.verb == STINT_BOOK)
            local.verb = STINT_TAKE; /* nobody stands in a queue for a share */
        return question_ask_table(question, target, &question->locals[target - question->targets],
                                  &local);
    }
    return stood_in(target, one->verb, one->cost);
}

struct stint_decision question_ask_store(struct question *question, struct target *target,
                                         const struct stint_quota *quota,
                                         const struct stint_ask *one)
{
    return question_read(question, target, quota, one, question_send(question, target, quota, one));
}

const struct shared_answer *question_ask_ticket(struct question *question, uint8_t verb,
                                                const uint8_t *shadow_mark, size_t item)
{
    struct shared_item items[TARGETS_MAX];
    char rooms[TARGETS_MAX][QUESTION_NAME_SIZE];
    uint8_t id[SHARED_ID_LEN];
    struct shared_ask asked = {.verb = verb, .items = items};
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        if (shadow_mark != NULL ? i == item : target->part == TARGET_LIVE)
            items[asked.n_items++] =
                item_of(question, target, target->quota, target->cost, rooms[i]);
    }
    add_id(question, &asked);
    if (shadow_mark != NULL) {
        make_shadow_id(question, *shadow_mark, id);
        asked.id = id;
    }
    const struct shared_answer *answer = ask(question, question->targets[0].store, &asked);
    if (answer == NULL || answer->outcome == SHARED_DECIDED)
        return answer;
    question->fault = SHARED_FAILED;
    question->fault_sentence = answer->error;
    return NULL;
}

/* ---- Groups: the live targets of one store --------------------------------------------------- */

/* Of one request, what each store was asked and has answered. */
struct group {
    const struct shared_answer *answer; /* NULL: it was not asked */
    uint32_t granted;                   /* at most, of each item; 0: it was denied, or looked at */
};

static bool is_in(const struct target *target, size_t store)
{
    return target->store == store && target->stand_in == STAND_IN_NONE && target_takes(target);
}

static size_t gather_group(struct question *question, size_t store, uint32_t most,
                           struct shared_item *items, char (*rooms)[QUESTION_NAME_SIZE])
{
    size_t n = 0;
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        if (is_in(target, store)) {
            uint32_t cost = (uint32_t)min_u64(target->cost, most);
            items[n] = item_of(question, target, target->quota, cost, rooms[n]);
            n++;
        }
    }
    return n;
}

static void ask_group(struct question *question, size_t store, uint8_t verb, uint32_t most,
                      struct group *group)
{
    struct shared_item items[TARGETS_MAX];
    char rooms[TARGETS_MAX][QUESTION_NAME_SIZE];
    size_t n = gather_group(question, store, most, items, rooms);
    struct shared_ask asked = {.verb = verb, .items = items, .n_items = n};
    if (n == 0)
        return;
    if (verb == SHARED_TAKE || verb == SHARED_TAKE_UPTO)
        add_id(question, &asked);
    group->answer = ask(question, store, &asked);
}

/* A list may be denied where each item by itself would not be: equal keys, or others were faster.
 */
static void show_binding(struct question *question, size_t store,
                         const struct shared_answer *answer)
{
    struct target *binding = NULL;
    size_t n = 0;
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
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

/* The answer of a group, to its targets; or what stands in for it. */
static void settle_group(struct question *question, size_t store, uint8_t verb, struct group *group)
{
    const struct shared_answer *answer = group->answer;
    size_t n = 0;
    if (answer == NULL)
        return;
    bool is_decided = answer->outcome == SHARED_DECIDED;
    bool is_granted = is_decided && verb != SHARED_PEEK && answer->sum.outcome == STINT_ALLOW;
    group->granted = !is_granted ? 0 : verb == SHARED_TAKE ? UINT32_MAX : answer->sum.granted;
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        if (!is_in(target, store))
            continue;
        if (is_decided) {
            target->decision = answer->each[n++];
            target->is_settled =
                !is_granted && verb != SHARED_PEEK; /* that is as if it were taken */
        } else {
            stand_in(question, target, verb, answer->error);
            target->decision = stood_in(target, verb, target->cost);
            target->is_settled = true;
        }
        target->over = target->decision.outcome != STINT_ALLOW;
    }
    if (!is_decided) {
        group->answer = NULL; /* nothing that could be given back is known of */
        return;
    }
    question->is_replayed |= answer->is_replayed;
    if (is_granted)
        question->at_ns = answer->at_ns;
    else if (answer->sum.outcome != STINT_ALLOW)
        show_binding(question, store, answer);
}

/*
 * Gives back what a group was granted and the request as a whole was not, `units` of each. Not what
 * an id was granted: a retry with it is granted the same again, and so has to find it charged.
 */
static void take_back(struct question *question, size_t store, const struct group *group,
                      uint32_t units)
{
    struct shared_item items[TARGETS_MAX];
    char rooms[TARGETS_MAX][QUESTION_NAME_SIZE];
    size_t n = 0;
    if (group->answer == NULL || group->granted == 0 || question->id != NULL)
        return;
    struct shared_ask asked = {.verb = SHARED_REFUND,
                               .items = items,
                               .n_items = gather_group(question, store, units, items, rooms),
                               .at_ns = group->answer->at_ns};
    const struct shared_answer *answer = ask(question, store, &asked);
    for (size_t i = 0; answer != NULL && i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        if (!is_in(target, store))
            continue;
        if (answer->outcome == SHARED_DECIDED)
            target->decision.remaining = answer->each[n++].remaining;
        target->decision.granted -= (uint32_t)min_u64(units, target->decision.granted);
        target->is_settled = true;
    }
}

static void take_back_all(struct question *question, const struct group *groups, uint32_t units)
{
    for (size_t store = 1; store <= question->stores->n_stores; store++)
        take_back(question, store, &groups[store - 1], units);
}

/* Those that refuse it first: what an id was granted by others could not be given back. */
static void ask_groups(struct question *question, uint8_t verb, uint32_t most, struct group *groups)
{
    size_t n_stores = question->stores->n_stores;
    for (size_t store = 1; store <= n_stores; store++) {
        groups[store - 1] = (struct group){.answer = NULL};
        if (refuses_id(question, store))
            ask_group(question, store, verb, most, &groups[store - 1]);
    }
    if (question_is_given_up(question))
        return;
    for (size_t store = 1; store <= n_stores; store++)
        if (!refuses_id(question, store))
            ask_group(question, store, verb, most, &groups[store - 1]);
    if (question_is_given_up(question))
        return;
    for (size_t store = 1; store <= n_stores; store++)
        settle_group(question, store, verb, &groups[store - 1]);
}

/* ---- All or nothing -------------------------------------------------------------------------- */

static bool anyone_is_over(const struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++)
        if (target_takes(&question->targets[i]) && question->targets[i].over)
            return true;
    return false;
}

/*
 * Two steps where stores and the table both have a say: the table is looked at first, the stores
 * are asked, and if the table has been emptied meanwhile they are given back what they gave. The
 * table is charged also where the stores know the request's id: it may have denied then.
 */
void question_take_shared(struct question *question, bool charges)
{
    struct group groups[STORES_MAX];
    if (question_gather(question)) {
        question_ask_gathered(question, false);
        charges = charges && !anyone_is_over(question);
    }
    ask_groups(question, charges ? SHARED_TAKE : SHARED_PEEK, UINT32_MAX, groups);
    if (question_is_given_up(question))
        return;
    bool is_denied = anyone_is_over(question);
    if (question_gather(question)) { /* with those that are decided locally now */
        question_ask_gathered(question, charges && !is_denied);
        is_denied = anyone_is_over(question);
    }
    if (charges && is_denied)
        take_back_all(question, groups, UINT32_MAX);
}

/* Equal targets share what there is. */
static uint32_t times_gathered(const struct question *question, size_t i)
{
    const struct stint_item *item = &question->items[i];
    uint32_t times = 0;
    for (size_t j = 0; j < question->n_items; j++) {
        const struct stint_item *other = &question->items[j];
        times += other->key_len == item->key_len && other->quota->rule == item->quota->rule &&
                 memcmp(other->key, item->key, item->key_len) == 0;
    }
    return times;
}

/* What the table would grant of each, at most; those that have nothing are over. */
static uint32_t look_at_table(struct question *question, uint32_t most)
{
    if (!question_gather(question))
        return most;
    question_ask_gathered(question, false);
    for (size_t i = 0; i < question->n_items; i++) {
        struct target *target = &question->targets[question->target_of[i]];
        const struct stint_decision *decision = &target->decision;
        uint32_t times = times_gathered(question, i), cost = question->items[i].cost;
        bool fits = decision->outcome == STINT_ALLOW;
        uint32_t left = fits ? cost : decision->remaining / times;
        target->over = left == 0;
        if (left == 0) { /* one unit of each is what is waited for */
            const struct stint_ask ask = {
                .now_ns = question->now_ns, .cost = times, .verb = STINT_PEEK};
            target->decision = question_ask_table(question, target, question->items[i].quota, &ask);
        }
        most = (uint32_t)min_u64(most, left);
    }
    return most;
}

/* The table is looked at first here as well: what is given back may be charged a while longer. */
uint32_t question_take_upto_shared(struct question *question, uint32_t most)
{
    struct group groups[STORES_MAX];
    uint32_t granted = look_at_table(question, most);
    if (granted == 0) {
        ask_groups(question, SHARED_PEEK, 1, groups);
        return 0;
    }
    ask_groups(question, SHARED_TAKE_UPTO, granted, groups);
    if (question_is_given_up(question))
        return 0;
    for (size_t store = 0; store < question->stores->n_stores; store++)
        if (groups[store].answer != NULL)
            granted = (uint32_t)min_u64(granted, groups[store].granted);
    if (anyone_is_over(question))
        granted = 0;
    if (granted > 0 && question_gather(question))
        granted = question_upto_gathered(question, granted);
    for (size_t store = 1; store <= question->stores->n_stores; store++)
        if (groups[store - 1].granted > granted)
            take_back(question, store, &groups[store - 1], groups[store - 1].granted - granted);
    return granted;
}
