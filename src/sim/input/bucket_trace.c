/* SPDX-License-Identifier: MIT */
/*
 * With a = ceil(W/O): one use at 0 and one just before O, so that the first bucket times out and
 * lives until nearly W + O; one use a bucket at O, 2 O, … (a-1) O; and at a O all that is left, in
 * full buckets. The uses at 0 and before O cost the last bucket one unit more than the formula
 * counts: where it held but that one, starting with the single uses later comes as near.
 */
#include "sim/input/bucket_trace.h"

#include "algorithm/algorithm.h"

#include <assert.h>
#include <stdlib.h>

static void use(struct bucket_trace *trace, uint64_t at_ns, uint64_t units)
{
    if (units > 0)
        trace->uses[trace->n_uses++] =
            (struct bucket_use){.at_ns = at_ns, .units = (uint32_t)units};
}

/* As many single uses, O apart, as there is time for before the first bucket expires. */
static void plan(struct bucket_trace *trace, const struct stint_quota *quota, bool twice)
{
    uint64_t slack_ns = quota->time_slack_ns, left = quota->limit, at_ns = 0;
    uint64_t first_last_ns = twice && slack_ns > 1 ? slack_ns - 1 : 0;
    trace->n_uses = 0;
    if (slack_ns > 0 && quota->count_slack != 1) {
        use(trace, 0, 1);
        left--;
        if (first_last_ns > 0 && left > 1) {
            use(trace, first_last_ns, 1);
            left--;
        }
        for (at_ns = slack_ns; at_ns + slack_ns < first_last_ns + quota->period_ns && left > 1;
             at_ns += slack_ns, left--)
            use(trace, at_ns, 1);
        if (at_ns >= first_last_ns + quota->period_ns)
            at_ns = first_last_ns + quota->period_ns - 1;
    }
    use(trace, at_ns, left);
}

static int play(struct bucket_trace *trace, const struct stint_quota *quota,
                struct stint_error *error)
{
    uint64_t *state = calloc(1, stint_state_size(quota));
    if (state == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for a state");
    trace->most_alive = 0;
    for (size_t i = 0; i < trace->n_uses; i++) {
        struct bucket_use *at = &trace->uses[i];
        struct stint_ask ask = {.now_ns = at->at_ns, .cost = at->units, .verb = STINT_TAKE};
        struct stint_decision decision = stint_state_ask(quota, state, &ask);
        assert(decision.outcome == STINT_ALLOW);
        (void)decision;
        at->alive = buckets_living(quota, state, at->at_ns);
        if (at->alive > trace->most_alive)
            trace->most_alive = at->alive;
    }
    free(state);
    return 0;
}

int bucket_trace_init(struct bucket_trace *trace, const struct stint_quota *quota,
                      struct stint_error *error)
{
    assert(quota->algorithm == STINT_BUCKETS);
    size_t uses_max = 3 + (quota->time_slack_ns > 0 ? quota->period_ns / quota->time_slack_ns : 0);
    *trace = (struct bucket_trace){.uses = malloc(uses_max * sizeof(*trace->uses))};
    if (trace->uses == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for %zu uses", uses_max);
    plan(trace, quota, false);
    int code = play(trace, quota, error);
    uint32_t without = trace->most_alive;
    if (code == 0) {
        plan(trace, quota, true);
        code = play(trace, quota, error);
    }
    if (code == 0 && trace->most_alive < without) {
        plan(trace, quota, false);
        code = play(trace, quota, error);
    }
    return code;
}

void bucket_trace_deinit(struct bucket_trace *trace)
{
    free(trace->uses);
    *trace = (struct bucket_trace){0};
}
