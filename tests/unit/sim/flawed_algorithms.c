/* SPDX-License-Identifier: MIT */
/* Small and slow on purpose: an algorithm is a few lines here, and its flaw one of them. */
#include "unit/sim/flawed_algorithms.h"

#include <assert.h>
#include <string.h>

#define ENTRIES_MAX 256

typedef __int128 wide_time;

static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t up(wide_time n, uint64_t d)
{
    return n <= 0 ? 0 : (uint64_t)((n + d - 1) / d);
}

static struct stint_decision answer(const struct flawed_algorithm *algorithm, bool fits,
                                    uint64_t space, uint64_t cost)
{
    uint64_t left = fits ? space - (cost < space ? cost : space) : space;
    return (struct stint_decision){
        .outcome = fits ? STINT_ALLOW : STINT_DENY,
        .granted = fits ? (uint32_t)cost : 0,
        .limit = (uint32_t)max_of(algorithm->burst, algorithm->limit),
        .remaining = (uint32_t)left,
    };
}

/* ---- gcra: times are scaled by the limit, so that T is the period and exact ---- */

struct gcra_model {
    wide_time tat;
};

static wide_time interval_of(const struct flawed_algorithm *algorithm)
{
    if (algorithm->flaw == FLAW_TRUNCATED)
        return (wide_time)(algorithm->period_ns / algorithm->limit) * algorithm->limit;
    return algorithm->period_ns;
}

static void gcra_decide(const struct flawed_algorithm *algorithm, struct gcra_model *state,
                        uint64_t now_ns, uint64_t cost, struct stint_decision *decision)
{
    wide_time now = (wide_time)now_ns * algorithm->limit, interval = interval_of(algorithm);
    wide_time capacity = interval * algorithm->burst;
    wide_time earliest = algorithm->flaw == FLAW_CLAMP ? now - capacity : now;
    wide_time base = state->tat > earliest ? state->tat : earliest;
    wide_time trial = base + interval * cost;
    bool fits = (algorithm->flaw == FLAW_TRIAL_VALUE ? base : trial) <= now + capacity;
    wide_time space = base < now + capacity ? (now + capacity - base) / interval : 0;
    *decision = answer(algorithm, fits || cost == 0, (uint64_t)space, cost);
    if (decision->outcome == STINT_ALLOW && cost > 0)
        state->tat = trial;
    decision->reset_after_ns = up(state->tat - now, algorithm->limit);
    if (decision->outcome == STINT_DENY)
        decision->retry_after_ns = up(trial - capacity - now, algorithm->limit);
}

/* ---- Token bucket: tokens are scaled by the period ---- */

struct tokens_model {
    wide_time used;
    uint64_t last_ns;
};

static void tokens_decide(const struct flawed_algorithm *algorithm, struct tokens_model *state,
                          uint64_t now_ns, uint64_t cost, struct stint_decision *decision)
{
    wide_time used = state->used, capacity = (wide_time)algorithm->burst * algorithm->period_ns;
    if (now_ns > state->last_ns)
        used -= (wide_time)(now_ns - state->last_ns) * algorithm->limit;
    used = used > 0 ? used : 0;
    wide_time after = used + (wide_time)cost * algorithm->period_ns;
    bool fits = after <= capacity || cost == 0;
    *decision = answer(algorithm, fits, (uint64_t)((capacity - used) / algorithm->period_ns), cost);
    if (fits && cost > 0) {
        state->used = after;
        state->last_ns = algorithm->flaw == FLAW_REWIND ? now_ns : max_of(now_ns, state->last_ns);
    }
    decision->reset_after_ns = up(used, algorithm->limit);
    if (!fits)
        decision->retry_after_ns = up(after - capacity, algorithm->limit);
}

/* ---- buckets and log: a list of (first use, last use, count) ---- */

struct list_model {
    uint64_t n_entries;
    uint64_t displaced, displaced_until_ns; /* units in use that are no longer recorded */
    struct {
        uint64_t first_ns, last_ns, count;
    } entries[ENTRIES_MAX];
};

static uint64_t expires_at(const struct flawed_algorithm *algorithm, const struct list_model *list,
                           uint64_t i)
{
    uint64_t from_ns =
        algorithm->flaw == FLAW_CREATION ? list->entries[i].first_ns : list->entries[i].last_ns;
    return from_ns + algorithm->period_ns;
}

static uint64_t forget_expired(const struct flawed_algorithm *algorithm, struct list_model *list,
                               uint64_t now_ns)
{
    uint64_t n_expired = 0, used = 0;
    while (n_expired < list->n_entries && expires_at(algorithm, list, n_expired) <= now_ns)
        n_expired++;
    list->n_entries -= n_expired;
    memmove(list->entries, list->entries + n_expired, list->n_entries * sizeof(*list->entries));
    for (uint64_t i = 0; i < list->n_entries; i++)
        used += list->entries[i].count;
    return used;
}

static bool joins_newest(const struct flawed_algorithm *algorithm, const struct list_model *list,
                         uint64_t now_ns)
{
    if (list->n_entries == 0)
        return false;
    uint64_t first_ns = list->entries[list->n_entries - 1].first_ns;
    return algorithm->model == FLAWED_BUCKETS ? now_ns - first_ns < algorithm->slack_ns
                                              : now_ns == first_ns;
}

static void list_decide(const struct flawed_algorithm *algorithm, struct list_model *list,
                        uint64_t now_ns, uint64_t cost, struct stint_decision *decision)
{
    if (list->n_entries > 0)
        now_ns = max_of(now_ns, list->entries[list->n_entries - 1].last_ns);
    uint64_t used = forget_expired(algorithm, list, now_ns);
    bool fits = used + cost <= algorithm->limit;
    *decision = answer(algorithm, fits, algorithm->limit - used, cost);
    if (fits && cost > 0) {
        bool joins = joins_newest(algorithm, list, now_ns);
        uint64_t at = list->n_entries - (joins ? 1 : 0);
        assert(at < ENTRIES_MAX);
        list->n_entries = at + 1;
        if (!joins)
            list->entries[at].count = 0, list->entries[at].first_ns = now_ns;
        list->entries[at].last_ns = now_ns;
        list->entries[at].count = algorithm->flaw == FLAW_SET ? 1 : list->entries[at].count + cost;
    }
    if (list->n_entries > 0)
        decision->reset_after_ns = expires_at(algorithm, list, list->n_entries - 1) - now_ns;
    for (uint64_t i = 0; !fits && i < list->n_entries && used + cost > algorithm->limit; i++) {
        decision->retry_after_ns = expires_at(algorithm, list, i) - now_ns;
        used -= list->entries[i].count;
    }
}

static void list_append(struct list_model *list, uint64_t now_ns, uint64_t units)
{
    uint64_t at = list->n_entries;
    if (units == 0)
        return;
    if (at > 0 && list->entries[at - 1].first_ns == now_ns) {
        list->entries[at - 1].count += units;
        return;
    }
    assert(at < ENTRIES_MAX);
    list->entries[at].first_ns = list->entries[at].last_ns = now_ns;
    list->entries[at].count = units;
    list->n_entries = at + 1;
}

/* Removes the oldest units; returns when the youngest of them would have died. */
static uint64_t list_remove_oldest(const struct flawed_algorithm *algorithm,
                                   struct list_model *list, uint64_t units)
{
    uint64_t n_gone = 0, until_ns = 0;
    for (uint64_t i = 0; i < list->n_entries && units > 0; i++) {
        uint64_t removed = units < list->entries[i].count ? units : list->entries[i].count;
        list->entries[i].count -= removed;
        units -= removed;
        until_ns = expires_at(algorithm, list, i);
        n_gone += list->entries[i].count == 0;
    }
    list->n_entries -= n_gone;
    memmove(list->entries, list->entries + n_gone, list->n_entries * sizeof(*list->entries));
    return until_ns;
}

/* Keeps the newest units, and how many more are in use, until the youngest of those is dead. */
static void list_charge(const struct flawed_algorithm *algorithm, struct list_model *list,
                        uint64_t now_ns, uint64_t cost)
{
    uint64_t used = forget_expired(algorithm, list, now_ns), space = algorithm->limit - used;
    if (algorithm->flaw == FLAW_SATURATE) {
        list_append(list, now_ns, cost < space ? cost : space);
        return;
    }
    uint64_t kept = cost < algorithm->limit ? cost : algorithm->limit;
    uint64_t over = cost > space ? cost - space : 0;
    uint64_t until_ns = list_remove_oldest(algorithm, list, kept > space ? kept - space : 0);
    if (cost > kept)
        until_ns = now_ns + algorithm->period_ns;
    list_append(list, now_ns, kept);
    if (now_ns >= list->displaced_until_ns)
        list->displaced = 0;
    list->displaced += over;
    list->displaced_until_ns = max_of(list->displaced_until_ns, until_ns);
}

static void list_refund(const struct flawed_algorithm *algorithm, struct list_model *list,
                        uint64_t now_ns, const struct search_act *act)
{
    uint64_t units = act->cost;
    if (act->granted_at_ns + algorithm->period_ns <= now_ns)
        return;
    if (now_ns < list->displaced_until_ns && algorithm->flaw != FLAW_DISPLACE) {
        uint64_t covered = units < list->displaced ? units : list->displaced;
        list->displaced -= covered;
        units -= covered;
    }
    forget_expired(algorithm, list, now_ns);
    list_remove_oldest(algorithm, list, units);
}

/* The times of a list that was emptied are lost: its callers' clocks must not step back. */
static void list_act(const struct flawed_algorithm *algorithm, struct list_model *list,
                     const struct search_act *act, struct stint_decision *decision)
{
    uint64_t now_ns = act->now_ns;
    if (list->n_entries > 0)
        now_ns = max_of(now_ns, list->entries[list->n_entries - 1].last_ns);
    *decision = (struct stint_decision){0};
    if (act->verb == SEARCH_VERB_CHARGE)
        list_charge(algorithm, list, now_ns, act->cost);
    else if (act->verb == SEARCH_VERB_REFUND)
        list_refund(algorithm, list, now_ns, act);
}

/* A hold is named by its time, which no other has: a take in the same instant joins it. */
static void list_release(const struct flawed_algorithm *algorithm, struct list_model *list,
                         const struct search_act *act)
{
    forget_expired(algorithm, list, act->now_ns);
    if (algorithm->flaw == FLAW_RELEASE) {
        list_remove_oldest(algorithm, list, act->cost);
        return;
    }
    for (uint64_t i = 0; i < list->n_entries; i++)
        if (list->entries[i].first_ns == *act->holder)
            list->entries[i].count -= act->cost;
}

static void list_hold(const struct flawed_algorithm *algorithm, struct list_model *list,
                      const struct search_act *act, struct stint_decision *decision)
{
    if (act->verb == SEARCH_VERB_RELEASE) {
        list_release(algorithm, list, act);
        return;
    }
    assert(act->verb == SEARCH_VERB_TAKE);
    list_decide(algorithm, list, act->now_ns, act->cost, decision);
    *act->holder = act->now_ns;
}

/* ---- Two counters ---- */

struct counter_model {
    uint64_t window, last, current;
};

static void counter_decide(const struct flawed_algorithm *algorithm, struct counter_model *state,
                           uint64_t now_ns, uint64_t cost, struct stint_decision *decision)
{
    struct counter_model now = *state;
    uint64_t period_ns = algorithm->period_ns;
    if (now_ns / period_ns > now.window) {
        now.last = now_ns / period_ns == now.window + 1 ? now.current : 0;
        now.current = 0;
        now.window = now_ns / period_ns;
    }
    uint64_t elapsed_ns = now_ns > now.window * period_ns ? now_ns - now.window * period_ns : 0;
    uint64_t weight = algorithm->flaw == FLAW_INVERTED ? elapsed_ns : period_ns - elapsed_ns;
    wide_time used = (wide_time)now.last * weight + (wide_time)now.current * period_ns;
    wide_time space = (wide_time)algorithm->limit * period_ns - used;
    bool fits = (wide_time)cost * period_ns <= space || cost == 0;
    *decision = answer(algorithm, fits, space > 0 ? (uint64_t)(space / period_ns) : 0, cost);
    decision->reset_after_ns = (now.window + 2) * period_ns - now_ns;
    if (!fits)
        decision->retry_after_ns = period_ns - elapsed_ns;
    if (fits && cost > 0) {
        now.current += cost;
        *state = now;
    }
}

/* ---- The subject ---- */

static void decide(void *arg, void *state, uint64_t now_ns, uint32_t cost,
                   struct stint_decision *decision)
{
    const struct flawed_algorithm *algorithm = arg;
    uint64_t capacity = algorithm->model == FLAWED_GCRA || algorithm->model == FLAWED_TOKENS
                            ? algorithm->burst
                            : algorithm->limit;
    if (cost > capacity) {
        *decision =
            (struct stint_decision){.outcome = STINT_NEVER, .retry_after_ns = STINT_NEVER_NS};
        return;
    }
    if (algorithm->model == FLAWED_GCRA)
        gcra_decide(algorithm, state, now_ns, cost, decision);
    else if (algorithm->model == FLAWED_TOKENS)
        tokens_decide(algorithm, state, now_ns, cost, decision);
    else if (algorithm->model == FLAWED_COUNTER)
        counter_decide(algorithm, state, now_ns, cost, decision);
    else
        list_decide(algorithm, state, now_ns, cost, decision);
}

static void act(void *arg, void *state, const struct search_act *act,
                struct stint_decision *decision)
{
    const struct flawed_algorithm *algorithm = arg;
    if (algorithm->model == FLAWED_HOLDS)
        list_hold(algorithm, state, act, decision);
    else
        list_act(algorithm, state, act, decision);
}

struct search_subject flawed_algorithm_subject(struct flawed_algorithm *algorithm)
{
    static const size_t sizes[] = {
        [FLAWED_GCRA] = sizeof(struct gcra_model),
        [FLAWED_BUCKETS] = sizeof(struct list_model),
        [FLAWED_COUNTER] = sizeof(struct counter_model),
        [FLAWED_LOG] = sizeof(struct list_model),
        [FLAWED_TOKENS] = sizeof(struct tokens_model),
        [FLAWED_CHARGED] = sizeof(struct list_model),
        [FLAWED_HOLDS] = sizeof(struct list_model),
    };
    bool refills = algorithm->model == FLAWED_GCRA || algorithm->model == FLAWED_TOKENS;
    return (struct search_subject){
        .state_size = sizes[algorithm->model],
        .period_ns = algorithm->period_ns,
        /* With T = W/N, W/T is N. */
        .bound = refills                              ? algorithm->burst + algorithm->limit - 1
                 : algorithm->model == FLAWED_COUNTER ? 2 * algorithm->limit - 1
                                                      : algorithm->limit,
        .cost_max = (uint32_t)(refills ? algorithm->burst : algorithm->limit),
        .decide = decide,
        .act = algorithm->model == FLAWED_CHARGED || algorithm->model == FLAWED_HOLDS ? act : NULL,
        .holds = algorithm->model == FLAWED_HOLDS,
        .counts_charge = true,
        .arg = algorithm,
    };
}
