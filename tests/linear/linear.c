/* SPDX-License-Identifier: MIT */
/* A search in depth; a configuration that led nowhere is not tried again. */
#include "linear/linear.h"

#include "algorithm/algorithm.h"
#include "base/siphash.h"
#include "limiter/list.h"

#include <stdlib.h>
#include <string.h>

#define TIMES_MAX 24
#define CONFIGURATIONS_MAX (UINT32_C(1) << 21)

/* Where a take from two quotas stands. */
enum list_step { LIST_PEEK_A, LIST_PEEK_B, LIST_TAKE_A, LIST_TAKE_B, LIST_UNDO, LIST_REFUND };

struct progress {
    uint64_t step; /* enum list_step */
    struct stint_decision parts[LINEAR_KEYS];
    struct word16 before, after; /* of the first, when it was taken from; of at most 16 bytes */
    uint64_t entered_ns;         /* the time of that take: the state's own, of a wide one */
};

/* Zeroed before use: it is compared as bytes. */
struct configuration {
    uint8_t done[8]; /* calls of each caller */
    _Alignas(16) uint8_t states[LINEAR_KEYS][LINEAR_STATE_MAX];
    struct progress progress[LINEAR_CALLERS_MAX];
};

struct caller {
    const struct linear_call *const *calls;
    size_t n_calls;
};

struct search {
    const struct linear_history *history;
    struct caller callers[LINEAR_CALLERS_MAX];
    struct hash128 *seen;
    size_t n_seen, seen_size; /* a power of two */
    bool gave_up;
};

struct times {
    uint64_t ns[TIMES_MAX];
    size_t n;
};

/* ---- The sequential engine ------------------------------------------------------------------- */

struct stint_decision linear_apply(const struct stint_quota *quota, void *state,
                                   const struct stint_ask *ask, uint64_t effective_ns)
{
    struct stint_ask careful = *ask;
    uint64_t ahead_ns = effective_ns - ask->now_ns;
    if (ask->verb == LINEAR_RESET) {
        memset(state, 0, quota->derived.state_size);
        return (struct stint_decision){.outcome = STINT_ALLOW};
    }
    careful.now_ns = effective_ns;
    struct stint_decision decision = algorithm_ask(quota, state, &careful);
    if (decision.retry_after_ns != 0)
        decision.retry_after_ns = add_sat(decision.retry_after_ns, ahead_ns);
    if (decision.reset_after_ns != 0)
        decision.reset_after_ns = add_sat(decision.reset_after_ns, ahead_ns);
    return decision;
}

static void add_time(struct search *search, struct times *times, uint64_t ns)
{
    for (size_t i = 0; i < times->n; i++)
        if (times->ns[i] == ns)
            return;
    if (times->n == TIMES_MAX)
        search->gave_up = true;
    else
        times->ns[times->n++] = ns;
}

/* A peek and a reset tell the table no time; of a list that is refused, perhaps no step does. */
static bool may_tell_time(const struct linear_call *call)
{
    return call->ask.verb != LINEAR_RESET && call->ask.verb != STINT_PEEK;
}

static bool tells_time(const struct linear_call *call)
{
    return may_tell_time(call) && (!call->is_list || call->decision.outcome == STINT_ALLOW);
}

/* The times at which a step of this call may be decided. */
static void find_times(struct search *search, const struct linear_call *call, uint8_t verb,
                       struct times *times)
{
    const struct linear_history *history = search->history;
    uint64_t known_ns = 0;
    times->n = 0;
    for (size_t i = 0; i < history->n_calls; i++)
        if (history->calls[i].end < call->begin && tells_time(&history->calls[i]))
            known_ns = max_u64(known_ns, history->calls[i].ask.now_ns);
    known_ns = sub_floor(known_ns, MARK_STEP_NS);
    uint64_t back_ns = verb == STINT_REFUND ? 0 : history->skew_max_ns;
    for (size_t i = 0; i < history->n_calls; i++) {
        const struct linear_call *other = &history->calls[i];
        bool may_be_known = other == call || (other->begin <= call->end && may_tell_time(other));
        if (may_be_known && other->ask.now_ns >= known_ns)
            add_time(search, times,
                     max_u64(call->ask.now_ns, sub_floor(other->ask.now_ns, back_ns)));
    }
    if (times->n == 0)
        add_time(search, times, call->ask.now_ns); /* the table knows no time yet */
}

/* ---- Answers --------------------------------------------------------------------------------- */

static bool is_answer(const struct linear_history *history, const struct linear_call *call,
                      const struct stint_decision *decision)
{
    const struct stint_decision *seen = &call->decision;
    if (call->end == LINEAR_UNANSWERED || call->ask.verb == LINEAR_RESET)
        return true;
    bool is_old = history->denials_may_be_old && seen->outcome != STINT_ALLOW;
    bool same = seen->outcome == decision->outcome && seen->granted == decision->granted &&
                (is_old || seen->remaining == decision->remaining);
    return same && (history->counts_only || (seen->limit == decision->limit &&
                                             seen->retry_after_ns == decision->retry_after_ns &&
                                             seen->reset_after_ns == decision->reset_after_ns));
}

/* As limiter/list.c combines them. */
static struct stint_decision sum_of(const struct stint_decision parts[LINEAR_KEYS], uint8_t first)
{
    struct list list = {.n_parts = LINEAR_KEYS};
    for (uint8_t i = 0; i < LINEAR_KEYS; i++)
        list.parts[i] = (struct list_part){.index = i, .decision = parts[first ^ i]};
    return list_sum(&list);
}

/* ---- Configurations -------------------------------------------------------------------------- */

static void grow(struct search *search)
{
    struct hash128 *old = search->seen;
    size_t old_size = search->seen_size;
    search->seen_size = old_size == 0 ? 1024 : 2 * old_size;
    search->seen = calloc(search->seen_size, sizeof(*search->seen));
    if (search->seen == NULL)
        abort();
    for (size_t i = 0; i < old_size; i++) {
        size_t at = old[i].lo & (search->seen_size - 1);
        if (old[i].lo == 0 && old[i].hi == 0)
            continue;
        while (search->seen[at].lo != 0 || search->seen[at].hi != 0)
            at = (at + 1) & (search->seen_size - 1);
        search->seen[at] = old[i];
    }
    free(old);
}

/* Two configurations of 128 equal bits are taken for one; there are 2^21 at most. */
static bool is_new(struct search *search, const struct configuration *now)
{
    static const uint64_t secret[2] = {1, 2};
    if (2 * search->n_seen >= search->seen_size)
        grow(search);
    struct hash128 hash = siphash13_128(secret, 0, now, sizeof(*now));
    size_t at = hash.lo & (search->seen_size - 1);
    for (; search->seen[at].lo != 0 || search->seen[at].hi != 0;
         at = (at + 1) & (search->seen_size - 1))
        if (search->seen[at].lo == hash.lo && search->seen[at].hi == hash.hi)
            return false;
    search->seen[at] = hash;
    search->n_seen++;
    search->gave_up |= search->n_seen > CONFIGURATIONS_MAX;
    return !search->gave_up;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static bool explore(struct search *search, const struct configuration *now);

static bool end_call(struct search *search, struct configuration *next,
                     const struct linear_call *call, const struct stint_decision *decision)
{
    if (!is_answer(search->history, call, decision))
        return false;
    next->done[call->caller]++;
    memset(&next->progress[call->caller], 0, sizeof(next->progress[0]));
    return explore(search, next);
}

/* A charge is taken back bit by bit where nothing has changed since, if the state is a swap wide.
 */
static bool is_undone(const struct search *search, const struct progress *progress, void *state)
{
    size_t size = search->history->quota->derived.state_size;
    if (size > sizeof(progress->after) || memcmp(state, &progress->after, size) != 0)
        return false;
    memcpy(state, &progress->before, size);
    return true;
}

static bool step_list(struct search *search, const struct configuration *now,
                      const struct linear_call *call, uint64_t effective_ns);

static bool continue_list(struct search *search, const struct configuration *next,
                          const struct linear_call *call, uint64_t effective_ns)
{
    return search->history->lists_at_once ? step_list(search, next, call, effective_ns)
                                          : explore(search, next);
}

static bool step_list(struct search *search, const struct configuration *now,
                      const struct linear_call *call, uint64_t effective_ns)
{
    const struct stint_quota *quota = search->history->quota;
    struct configuration next = *now;
    struct progress *progress = &next.progress[call->caller];
    bool is_second = progress->step == LIST_PEEK_B || progress->step == LIST_TAKE_B;
    bool takes = progress->step == LIST_TAKE_A || progress->step == LIST_TAKE_B;
    uint8_t key = is_second ? !call->key : call->key;
    struct stint_ask ask = call->ask;
    if (progress->step == LIST_UNDO && !is_undone(search, progress, next.states[key])) {
        progress->step = LIST_REFUND; /* of the state as it is then: it may be the same again */
        return continue_list(search, &next, call, effective_ns);
    }
    if (progress->step >= LIST_UNDO) {
        ask.verb = STINT_REFUND;
        ask.at_ns = progress->entered_ns;
        if (progress->step == LIST_REFUND)
            linear_apply(quota, next.states[key], &ask, effective_ns);
        struct stint_decision sum = sum_of(progress->parts, call->key);
        return end_call(search, &next, call, &sum);
    }
    ask.verb = takes ? STINT_TAKE : STINT_PEEK;
    size_t size = min_u64(sizeof(progress->before), quota->derived.state_size);
    if (progress->step == LIST_TAKE_A) {
        bool is_wide = quota->derived.state_size > sizeof(progress->before);
        uint64_t own_ns = is_wide ? algorithm_own_ns(quota, next.states[key]) : 0;
        progress->entered_ns = max_u64(effective_ns, own_ns);
        memcpy(&progress->before, next.states[key], size);
    }
    progress->parts[key] = linear_apply(quota, next.states[key], &ask, effective_ns);
    if (progress->step == LIST_TAKE_A)
        memcpy(&progress->after, next.states[key], size);
    struct stint_decision sum = sum_of(progress->parts, call->key);
    bool is_refused = takes ? progress->parts[key].outcome != STINT_ALLOW
                            : is_second && sum.outcome != STINT_ALLOW;
    bool gives_back = is_refused && takes && is_second;
    if ((is_refused && !gives_back) || (takes && is_second && !is_refused))
        return end_call(search, &next, call, &sum);
    progress->step++;
    return continue_list(search, &next, call, effective_ns);
}

static bool step_single(struct search *search, const struct configuration *now,
                        const struct linear_call *call, uint64_t effective_ns)
{
    struct configuration next = *now;
    struct stint_decision decision =
        linear_apply(search->history->quota, next.states[call->key], &call->ask, effective_ns);
    return end_call(search, &next, call, &decision);
}

static bool step_call(struct search *search, const struct configuration *now,
                      const struct linear_call *call)
{
    const struct progress *progress = &now->progress[call->caller];
    bool gives_back = call->is_list && progress->step >= LIST_UNDO;
    struct times times;
    find_times(search, call, gives_back ? STINT_REFUND : call->ask.verb, &times);
    for (size_t i = 0; i < times.n; i++)
        if (call->is_list ? step_list(search, now, call, times.ns[i])
                          : step_single(search, now, call, times.ns[i]))
            return true;
    return false;
}

static const struct linear_call *next_call(const struct search *search,
                                           const struct configuration *now, size_t caller)
{
    const struct caller *who = &search->callers[caller];
    return now->done[caller] < who->n_calls ? who->calls[now->done[caller]] : NULL;
}

/* Whether what is left can be done from here. A call may begin until some other one must end. */
static bool explore(struct search *search, const struct configuration *now)
{
    uint64_t must_end = LINEAR_UNANSWERED;
    if (!is_new(search, now))
        return false;
    for (size_t i = 0; i < LINEAR_CALLERS_MAX; i++) {
        const struct linear_call *call = next_call(search, now, i);
        must_end = call != NULL ? min_u64(must_end, call->end) : must_end;
    }
    if (must_end == LINEAR_UNANSWERED)
        return true; /* what was not answered need not have been done */
    for (size_t i = 0; i < LINEAR_CALLERS_MAX; i++) {
        const struct linear_call *call = next_call(search, now, i);
        if (call != NULL && call->begin <= must_end && step_call(search, now, call))
            return true;
    }
    return false;
}

/* ---- Histories ------------------------------------------------------------------------------- */

static int by_caller_and_time(const void *a, const void *b)
{
    const struct linear_call *first = a, *second = b;
    if (first->caller != second->caller)
        return first->caller < second->caller ? -1 : 1;
    return first->begin < second->begin ? -1 : first->begin > second->begin;
}

/* The calls on one key, or on both. */
static bool check_keys(struct linear_verdict *verdict, const struct linear_history *history,
                       int key)
{
    struct search search = {.history = history};
    const struct linear_call **calls = calloc(history->n_calls + 1, sizeof(const void *));
    struct configuration start;
    size_t n = 0;
    if (calls == NULL)
        abort();
    for (size_t i = 0; i < history->n_calls; i++) {
        struct caller *caller = &search.callers[history->calls[i].caller];
        if (key >= 0 && history->calls[i].key != key)
            continue;
        if (caller->n_calls++ == 0)
            caller->calls = &calls[n];
        calls[n++] = &history->calls[i];
        assert(caller->n_calls <= LINEAR_CALLS_MAX);
    }
    memset(&start, 0, sizeof(start));
    bool is_linearizable = explore(&search, &start);
    verdict->gave_up |= search.gave_up;
    verdict->configurations += search.n_seen;
    free(search.seen);
    free(calls);
    return is_linearizable;
}

struct linear_verdict linear_check(const struct linear_history *history)
{
    struct linear_verdict verdict = {.is_linearizable = true};
    bool has_lists = false;
    assert(history->quota->derived.state_size <= LINEAR_STATE_MAX);
    qsort(history->calls, history->n_calls, sizeof(history->calls[0]), by_caller_and_time);
    for (size_t i = 0; i < history->n_calls; i++) {
        const struct linear_call *call = &history->calls[i];
        bool overlaps = false;
        assert(call->caller < LINEAR_CALLERS_MAX && call->key < LINEAR_KEYS);
        has_lists |= call->is_list;
        for (size_t j = 0; j < history->n_calls; j++)
            overlaps |= history->calls[j].caller != call->caller &&
                        history->calls[j].begin < call->begin &&
                        history->calls[j].end > call->begin;
        verdict.overlaps += overlaps;
    }
    for (int key = has_lists ? -1 : 0; key < (has_lists ? 0 : LINEAR_KEYS); key++)
        verdict.is_linearizable &= check_keys(&verdict, history, key);
    return verdict;
}

static bool try_orders(const struct linear_history *history, const void *state, uint64_t done)
{
    _Alignas(16) uint8_t next[LINEAR_STATE_MAX];
    uint64_t must_end = LINEAR_UNANSWERED;
    for (size_t i = 0; i < history->n_calls; i++)
        if ((done >> i & 1) == 0)
            must_end = min_u64(must_end, history->calls[i].end);
    if (must_end == LINEAR_UNANSWERED)
        return true;
    for (size_t i = 0; i < history->n_calls; i++) {
        const struct linear_call *call = &history->calls[i];
        if ((done >> i & 1) != 0 || call->begin > must_end)
            continue;
        memcpy(next, state, sizeof(next));
        struct stint_decision decision =
            linear_apply(history->quota, next, &call->ask, call->ask.now_ns);
        if (is_answer(history, call, &decision) &&
            try_orders(history, next, done | UINT64_C(1) << i))
            return true;
    }
    return false;
}

bool linear_check_slowly(const struct linear_history *history)
{
    static const _Alignas(16) uint8_t unused[LINEAR_STATE_MAX];
    assert(history->n_calls < 64);
    return try_orders(history, unused, 0);
}
