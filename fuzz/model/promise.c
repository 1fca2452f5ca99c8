/* SPDX-License-Identifier: MIT */
/* Looks at every window by itself. */
#include "model/promise.h"

#include "bytes.h"

void promise_init(struct promise *promise, uint64_t bound)
{
    promise->first_bound = promise->bound = bound;
    promise->n_changes = promise->n_gains = 0;
}

void promise_change(struct promise *promise, uint64_t at_ns, uint64_t bound, bool adds_up)
{
    MUST(promise->n_changes < PROMISE_EVENTS_MAX);
    uint64_t raise = bound > promise->bound ? bound - promise->bound : 0;
    promise->change[promise->n_changes++] =
        (struct promise_change){at_ns, adds_up ? bound : raise, bound};
    promise->bound = bound;
}

void promise_gain(struct promise *promise, struct promise_gain gain)
{
    MUST(promise->n_gains < PROMISE_EVENTS_MAX);
    promise->gain[promise->n_gains++] = gain;
}

/* Of the window (end - period, end]. */
static uint64_t bound_until(const struct promise *promise, uint64_t end_ns, uint64_t period_ns)
{
    uint64_t at_begin = promise->first_bound, raised = 0, gained = 0;
    for (size_t i = 0; i < promise->n_changes; i++) {
        const struct promise_change *change = &promise->change[i];
        if (change->at_ns + period_ns <= end_ns)
            at_begin = change->bound;
        else if (change->at_ns <= end_ns)
            raised += change->raise;
    }
    for (size_t i = 0; i < promise->n_gains; i++) {
        const struct promise_gain *gain = &promise->gain[i];
        if (gain->from_ns <= end_ns && end_ns < gain->until_ns + period_ns)
            gained += gain->units;
    }
    return at_begin + raised + gained;
}

bool promise_is_kept(const struct promise *promise, const struct uses *uses, uint64_t from_ns,
                     uint64_t period_ns)
{
    uint64_t units = 0;
    size_t first = 0;
    for (size_t last = 0; last < uses->n; last++) {
        uint64_t end_ns = uses->use[last].at_ns;
        units += uses->use[last].units;
        while (end_ns - uses->use[first].at_ns >= period_ns)
            units -= uses->use[first++].units;
        bool is_whole = last + 1 == uses->n || uses->use[last + 1].at_ns > end_ns;
        if (is_whole && end_ns >= from_ns && units > bound_until(promise, end_ns, period_ns))
            return false;
    }
    return true;
}
