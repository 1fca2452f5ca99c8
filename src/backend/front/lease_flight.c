/* SPDX-License-Identifier: MIT */
/* The life of leases: how many units are requested, and when unused units go back. */
#include "backend/front/lease_parts.h"

#include "base/ns.h"
#include "base/wide_int.h"

/*
 * The term counts from the request, which is before the store's grant. One part in a hundred is for
 * clocks of different rates, and a microsecond for the store's, which rounds times down.
 */
#define RATES_PERCENT 99
#define SOON_PARTS 8   /* part of the term: this near its end a lease is renewed, and ... */
#define DIRECT_PARTS 4 /* ... pause after none was available, and ... */
#define QUIET_PARTS 8  /* ... pause of prefetches after the store had no free units */
#define GROWTH 4       /* from one lease to the next */
#define RETURN_NS NS_PER_S

/* ---- What is held ---------------------------------------------------------------------------- */

uint32_t lease_left(const struct lease_key *key)
{
    uint32_t left = 0;
    for (size_t i = 0; i < key->n_held; i++)
        left += key->held[i].lease.left;
    return left;
}

void lease_count(struct lease *lease, int64_t units)
{
    lease->units += (uint64_t)units;
    if (lease->options.metrics != NULL)
        backend_metric_set(&lease->options.metrics->lease_units, lease->units);
}

static void drop(struct lease_key *key, size_t i)
{
    lease_count(key->home, -(int64_t)key->held[i].lease.left);
    key->n_held--;
    memmove(&key->held[i], &key->held[i + 1], (key->n_held - i) * sizeof(key->held[0]));
}

/* Used units that were charged at once need no report. */
void lease_drop_ended(struct lease_key *key, uint64_t now_ns)
{
    for (size_t i = key->n_held; i-- > 0;)
        if (now_ns >= key->held[i].until_ns ||
            (key->held[i].lease.left == 0 && key->held[i].lease.ends_ns == 0))
            drop(key, i);
}

static uint64_t term_of(const struct lease_key *key)
{
    return key->rule.store.lease_term_ns;
}

size_t lease_end(struct lease_key *key, bool all, uint64_t now_ns,
                 struct backend_lease ended[LEASE_HELD_MAX])
{
    size_t n_ended = 0;
    uint64_t soon_ns = now_ns + term_of(key) / SOON_PARTS;
    for (size_t i = 0; i < key->n_held;) {
        const struct lease_held *held = &key->held[i];
        if (held->lease.ends_ns != 0 &&
            (all || held->lease.left == 0 || held->until_ns <= soon_ns)) {
            ended[n_ended++] = held->lease;
            drop(key, i);
        } else {
            i++;
        }
    }
    return n_ended;
}

static void hold(struct lease_key *key, const struct backend_answer *answer, uint64_t until_ns)
{
    struct lease *lease = key->home;
    uint32_t units = answer->sum.granted;
    lease_count(lease, units);
    struct lease_held *newest = &key->held[LEASE_HELD_MAX - 1];
    if (key->n_held == LEASE_HELD_MAX && newest->lease.ends_ns == 0 && answer->lease_ends_ns == 0) {
        /* Leases charged at once are merged; refunds name the earlier time. */
        newest->lease.units += units;
        newest->lease.left += units;
        newest->until_ns = until_ns;
        return;
    }
    if (key->n_held == LEASE_HELD_MAX) /* the rule has changed; it stays charged */
        drop(key, 0);
    lease->salt = lease->salt * UINT64_C(6364136223846793005) + 1442695040888963407;
    key->held[key->n_held++] = (struct lease_held){
        .lease = {.ends_ns = answer->lease_ends_ns, .units = units, .left = units},
        .until_ns = until_ns,
        .at_ns = answer->at_ns - answer->at_ns % NS_PER_US + 1 + (lease->salt >> 32) % 999,
    };
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void lease_answered(struct backend_op *op, uint64_t now_ns);

/* Leaves the outcome in key->op; WAITS: lease_answered() will be called. */
static void ask(struct lease_key *key, uint32_t cost, const struct backend_request *about,
                uint64_t now_ns)
{
    struct backend_request asked = *about;
    struct backend_item item = key->item;
    item.cost = cost;
    asked.items = &item;
    asked.n_items = 1;
    asked.now_ns = now_ns;
    key->asking = asked.verb;
    key->sent_ns = now_ns;
    key->op =
        (struct backend_op){.answer = {.each = &key->each}, .answered = lease_answered, .arg = key};
    key->home->inner->ops->ask(key->home->inner, &asked, &key->op);
}

/* The recent use per term, but no more than GROWTH times the last lease. */
static void adapt(struct lease_key *key, uint64_t waiting, uint64_t now_ns)
{
    uint64_t elapsed_ns = max_u64(sub_floor(now_ns, key->leased_ns), NS_PER_US),
             most = key->rule.store.lease_units;
    uint64_t used = key->used + waiting, demand = used;
    if (key->leased_ns != 0 && elapsed_ns < term_of(key))
        demand = min_u64(mul_div(min_u64(used, most), term_of(key), elapsed_ns),
                         (uint64_t)GROWTH * key->units);
    key->units = (uint32_t)min_u64(max_u64(max_u64(demand, waiting), 1), max_u64(most, 1));
    key->used = 0;
    key->leased_ns = now_ns;
}

/* The least that serves the first waiting request. */
static uint32_t wanted(const struct lease_key *key)
{
    return key->first != NULL && key->first->verb == BACKEND_TAKE ? key->first->cost : 1;
}

static uint64_t deadline_of(const struct lease_key *key, uint64_t deadline_ns)
{
    for (const struct lease_waiter *waiter = key->first; waiter != NULL; waiter = waiter->next)
        deadline_ns = min_u64(deadline_ns, waiter->deadline_ns);
    return deadline_ns;
}

/* deadline_ns: for a request that no caller waits for. */
static void ask_lease(struct lease_key *key, uint64_t deadline_ns, uint64_t now_ns)
{
    struct backend_lease ended[LEASE_HELD_MAX];
    bool is_fast = key->rule.store.lease == RULE_LEASE_FAST;
    uint32_t least = wanted(key);
    adapt(key, key->waiting, now_ns);
    uint32_t units = key->units;
    struct backend_request asked = {.verb = BACKEND_LEASE, .ended = ended};
    asked.n_ended = lease_end(key, key->first != NULL, now_ns, ended);
    key->least = least;
    if (is_fast) {
        /* Units held and unused are never more than one lease. */
        uint32_t left = lease_left(key), most = key->rule.store.lease_units;
        uint32_t more = most > left ? most - left : 1;
        least = least > left ? least - left : 1;
        units = units < more ? units : more;
    }
    asked.least = least;
    asked.term_ns = is_fast ? 0 : term_of(key) - term_of(key) % NS_PER_US;
    asked.deadline_ns = deadline_of(key, deadline_ns);
    key->sent_term_ns = term_of(key);
    key->granted = 0;
    key->coming = units > least ? units : least;
    ask(key, key->coming, &asked, now_ns);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void take_metrics(struct lease_key *key, const struct stint_decision *sum, uint64_t now_ns)
{
    key->limit = sum->limit;
    key->remaining = sum->remaining;
    key->reset_ns = add_sat(now_ns, sum->reset_after_ns);
}

/*
 * Answers all waiting requests of at least this cost. An answered caller may send or cancel
 * requests; then the scan restarts, with those that were waiting before.
 */
static void tell_waiting(struct lease_key *key, uint32_t least, const struct backend_answer *answer,
                         uint64_t now_ns)
{
    struct lease *lease = key->home;
    const struct backend_answer told = *answer;
    uint64_t before = lease->turns;
    struct lease_waiter *waiter = key->first;
    while (waiter != NULL && waiter->turn <= before) {
        struct lease_waiter *next = waiter->next;
        uint64_t turn = lease->turns;
        if ((waiter->verb == BACKEND_TAKE_UPTO ? 1 : waiter->cost) >= least)
            lease_deliver(waiter, &told, now_ns);
        waiter = lease->turns == turn ? next : key->first;
    }
}

/*
 * Requests of this cost or more are denied. If no other node holds a lease, no units come back, and
 * the denial holds as long as its algorithm gives: it may be repeated.
 */
static void deny(struct lease_key *key, const struct backend_answer *answer, uint64_t now_ns)
{
    const struct stint_decision *sum = &answer->sum;
    if (sum->outcome == STINT_DENY && answer->leases == 0) {
        key->denied_cost = key->least;
        key->retry_ns = add_sat(key->sent_ns, sum->retry_after_ns);
        key->denied_until_ns =
            min_u64(key->retry_ns, add_sat(now_ns, key->home->options.denied_max_ns));
    }
    key->quiet_until_ns = add_sat(now_ns, min_u64(sum->retry_after_ns, term_of(key) / QUIET_PARTS));
    key->units = 1;
    tell_waiting(key, key->least, answer, now_ns);
}

static void take_lease(struct lease_key *key, const struct backend_answer *answer, uint64_t now_ns)
{
    uint64_t until_ns =
        key->sent_ns + sub_floor(key->sent_term_ns / 100 * RATES_PERCENT, NS_PER_US);
    if (answer->outcome != BACKEND_DECIDED) {
        key->units = 1;
        key->quiet_until_ns = add_sat(now_ns, term_of(key) / QUIET_PARTS);
        tell_waiting(key, 0, answer, now_ns);
        return;
    }
    take_metrics(key, &answer->sum, now_ns);
    if (answer->sum.outcome != STINT_ALLOW) {
        deny(key, answer, now_ns);
        return;
    }
    key->granted = answer->sum.granted;
    if (answer->sum.granted > 0)
        hold(key, answer, until_ns);
    if (answer->sum.granted == 0 || until_ns <= now_ns)
        key->direct_until_ns = now_ns + term_of(key) / DIRECT_PARTS;
}

static void take_answer(struct lease_key *key, uint64_t now_ns)
{
    const struct backend_answer answer = key->op.answer;
    uint8_t verb = key->asking;
    key->asking = 0;
    if (verb == BACKEND_LEASE)
        take_lease(key, &answer, now_ns);
    else if (answer.outcome == BACKEND_DECIDED)
        take_metrics(key, &answer.sum, now_ns);
}

static void lease_answered(struct backend_op *op, uint64_t now_ns)
{
    struct lease_key *key = op->arg;
    key->pins++;
    key->is_pumping = true;
    take_answer(key, now_ns);
    key->is_pumping = false;
    lease_pump(key, now_ns);
    if (key->home->is_draining && key->first == NULL)
        lease_give_back(key, now_ns);
    key->pins--;
}

/* ---- Waiting requests ------------------------------------------------------------------------ */

/* Each of them goes to the store itself: no lease is available. */
static void ask_directly(struct lease_waiter *waiter, uint64_t now_ns)
{
    struct lease_key *key = waiter->key;
    struct lease *lease = key->home;
    struct backend_op *op = waiter->op;
    bool is_new = waiter->is_new;
    struct backend_item item = key->item;
    item.cost = waiter->cost;
    const struct backend_request asked = {
        .verb = waiter->verb,
        .items = &item,
        .n_items = 1,
        .now_ns = now_ns,
        .deadline_ns = waiter->deadline_ns,
    };
    lease_free_waiter(waiter);
    lease->inner->ops->ask(lease->inner, &asked, op);
    if (op->answer.outcome != BACKEND_WAITS && !is_new)
        op->answered(op, now_ns);
}

/*
 * An answered caller may do much before it returns, and a lease may end meanwhile: so the clock is
 * read for each grant.
 */
static void serve_waiting(struct lease_key *key, uint64_t now_ns)
{
    struct backend_answer answer;
    while (key->first != NULL) {
        struct lease_waiter *waiter = key->first;
        uint64_t served_ns = lease_now(key->home);
        answer = (struct backend_answer){.outcome = BACKEND_WAITS};
        lease_drop_ended(key, served_ns);
        if (lease_serve(key, waiter->verb, waiter->cost, served_ns, &answer))
            lease_deliver(waiter, &answer, now_ns);
        else if (key->asking == 0 && (now_ns < key->direct_until_ns || key->home->is_draining))
            ask_directly(waiter, now_ns);
        else
            return;
    }
}

void lease_pump(struct lease_key *key, uint64_t now_ns)
{
    static const struct backend_answer ending = {.outcome = BACKEND_FAILED,
                                                 .error = "the server ends"};
    if (key->is_pumping)
        return;
    key->pins++;
    key->is_pumping = true;
    for (;;) {
        if (key->home->is_ending)
            tell_waiting(key, 0, &ending, now_ns);
        serve_waiting(key, now_ns);
        if (key->asking != 0 || key->first == NULL)
            break;
        ask_lease(key, STINT_NEVER_NS, now_ns);
        if (key->op.answer.outcome == BACKEND_WAITS)
            break;
        take_answer(key, now_ns);
    }
    key->is_pumping = false;
    key->pins--;
}

/* ---- Prefetch and return --------------------------------------------------------------------- */

static void finish(struct lease_key *key, uint64_t now_ns)
{
    if (key->op.answer.outcome != BACKEND_WAITS)
        take_answer(key, now_ns);
}

static bool ends_soon(const struct lease_key *key, uint64_t now_ns)
{
    for (size_t i = 0; i < key->n_held; i++)
        if (key->held[i].until_ns <= now_ns + term_of(key) / SOON_PARTS)
            return true;
    return false;
}

void lease_prefetch(struct lease_key *key, uint64_t deadline_ns, uint64_t now_ns)
{
    const struct lease *lease = key->home;
    if (key->asking != 0 || key->granted < 2 || now_ns < key->quiet_until_ns ||
        now_ns < key->direct_until_ns || lease->is_draining || lease->is_ending ||
        key->n_held == LEASE_HELD_MAX)
        return;
    if (lease_left(key) > key->granted / 2 && !ends_soon(key, now_ns))
        return;
    ask_lease(key, deadline_ns, now_ns);
    finish(key, now_ns);
}

/* Of those charged at once, one at a time. */
static bool refund_one(struct lease_key *key, uint64_t now_ns)
{
    for (size_t i = 0; i < key->n_held; i++) {
        const struct lease_held held = key->held[i];
        if (held.lease.ends_ns != 0)
            continue;
        drop(key, i--);
        if (held.lease.left == 0)
            continue;
        struct backend_request asked = {.verb = BACKEND_REFUND,
                                        .at_ns = held.at_ns - held.at_ns % NS_PER_US,
                                        .deadline_ns = now_ns + RETURN_NS};
        ask(key, held.lease.left, &asked, now_ns);
        return true;
    }
    return false;
}

void lease_give_back(struct lease_key *key, uint64_t now_ns)
{
    struct backend_lease ended[LEASE_HELD_MAX];
    if (key->asking != 0 || key->home->is_ending)
        return;
    key->pins++;
    key->units = 1;
    struct backend_request asked = {
        .verb = BACKEND_RETURN, .ended = ended, .deadline_ns = now_ns + RETURN_NS};
    asked.n_ended = lease_end(key, true, now_ns, ended);
    if (asked.n_ended > 0) {
        ask(key, 0, &asked, now_ns);
        finish(key, now_ns);
    } else {
        while (key->asking == 0 && refund_one(key, now_ns))
            finish(key, now_ns);
    }
    key->pins--;
}
