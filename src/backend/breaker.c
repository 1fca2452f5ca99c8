/* SPDX-License-Identifier: MIT */
/* Closed, open, half open: what each state admits, and the transitions between them. */
#include "backend/breaker.h"

#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>

void breaker_init(struct breaker *breaker, const struct breaker_options *options)
{
    *breaker = (struct breaker){.options = *options, .state = BREAKER_CLOSED};
    struct breaker_options *set = &breaker->options;
    set->failures_max = set->failures_max > 0 ? set->failures_max : 5;
    set->probes = set->probes > 0 ? set->probes : 2;
    set->open_ns = set->open_ns > 0 ? set->open_ns : 100 * NS_PER_MS;
    set->open_max_ns = set->open_max_ns > 0 ? set->open_max_ns : 5 * NS_PER_S;
    breaker->open_ns = set->open_ns;
}

static void open_until(struct breaker *breaker, uint64_t now_ns)
{
    breaker->state = BREAKER_OPEN;
    breaker->open_ends_ns = now_ns + breaker->open_ns;
    breaker->open_ns *= 2;
    if (breaker->open_ns > breaker->options.open_max_ns)
        breaker->open_ns = breaker->options.open_max_ns;
}

static void shut(struct breaker *breaker)
{
    breaker->state = BREAKER_CLOSED;
    breaker->failures = 0;
    breaker->open_ns = breaker->options.open_ns;
}

bool breaker_stops(const struct breaker *breaker, uint64_t now_ns)
{
    return breaker->state == BREAKER_OPEN ? now_ns < breaker->open_ends_ns : breaker->is_probing;
}

enum breaker_pass breaker_ask(struct breaker *breaker, uint64_t now_ns)
{
    if (breaker_stops(breaker, now_ns))
        return BREAKER_STOP;
    if (breaker->state == BREAKER_CLOSED)
        return BREAKER_GO;
    if (breaker->state == BREAKER_OPEN) {
        breaker->state = BREAKER_HALF_OPEN;
        breaker->successes = 0;
    }
    breaker->is_probing = true;
    return BREAKER_PROBE;
}

void breaker_tell(struct breaker *breaker, enum breaker_pass pass, bool went_well, uint64_t now_ns)
{
    assert(pass != BREAKER_STOP);
    if (went_well)
        breaker->well_ns = now_ns;
    if (pass == BREAKER_PROBE) {
        assert(breaker->state == BREAKER_HALF_OPEN && breaker->is_probing);
        breaker->is_probing = false;
        if (!went_well)
            open_until(breaker, now_ns);
        else if (++breaker->successes == breaker->options.probes)
            shut(breaker);
    } else if (breaker->state == BREAKER_CLOSED) {
        bool is_quiet =
            breaker->well_ns == 0 || now_ns >= add_sat(breaker->well_ns, breaker->options.quiet_ns);
        breaker->failures = went_well ? 0 : breaker->failures + 1;
        if (breaker->failures >= breaker->options.failures_max && is_quiet)
            open_until(breaker, now_ns);
    }
}

void breaker_drop(struct breaker *breaker, enum breaker_pass pass)
{
    assert(pass != BREAKER_STOP);
    if (pass == BREAKER_PROBE)
        breaker->is_probing = false;
}
