/* SPDX-License-Identifier: MIT */
/*
 * Closed, open, half open: what each state admits, and the transitions between them. Nearly always
 * all breakers are closed.
 */
#include "backend/breakers.h"

#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>

#define BIT(i) (UINT64_C(1) << (i))

/* The index of the lowest bit, which is removed. */
static unsigned next_of(uint64_t *bits)
{
    unsigned i = (unsigned)__builtin_ctzll(*bits);
    *bits &= *bits - 1;
    return i;
}

void breakers_init(struct breakers *breakers, const struct breaker_options *options)
{
    *breakers = (struct breakers){.options = *options};
    struct breaker_options *set = &breakers->options;
    set->failures_max = set->failures_max > 0 ? set->failures_max : 5;
    set->probes = set->probes > 0 ? set->probes : 2;
    set->open_ns = set->open_ns > 0 ? set->open_ns : 100 * NS_PER_MS;
    set->open_max_ns = set->open_max_ns > 0 ? set->open_max_ns : 5 * NS_PER_S;
    for (unsigned i = 0; i < BREAKERS_MAX; i++)
        breakers->each[i].open_ns = set->open_ns;
}

static bool stops(const struct breaker *breaker, uint64_t now_ns)
{
    return breaker->state == BREAKER_OPEN ? now_ns < breaker->open_ends_ns : breaker->is_probing;
}

uint64_t breakers_stopped(const struct breakers *breakers, uint64_t now_ns)
{
    uint64_t stopped = 0;
    for (uint64_t left = breakers->shut_off; left != 0;) {
        unsigned i = next_of(&left);
        if (stops(&breakers->each[i], now_ns))
            stopped |= BIT(i);
    }
    return stopped;
}

struct breakers_pass breakers_ask(struct breakers *breakers, uint64_t servers, uint64_t now_ns)
{
    struct breakers_pass pass = {.servers = servers & ~breakers->shut_off};
    for (uint64_t left = servers & breakers->shut_off; left != 0;) {
        unsigned i = next_of(&left);
        struct breaker *breaker = &breakers->each[i];
        if (stops(breaker, now_ns))
            continue;
        if (breaker->state == BREAKER_OPEN)
            breaker->successes = 0;
        breaker->state = BREAKER_HALF_OPEN;
        breaker->is_probing = true;
        pass.servers |= BIT(i);
        pass.probes |= BIT(i);
    }
    return pass;
}

static void open_until(struct breakers *breakers, unsigned i, uint64_t now_ns)
{
    struct breaker *breaker = &breakers->each[i];
    breaker->state = BREAKER_OPEN;
    breaker->open_ends_ns = now_ns + breaker->open_ns;
    breaker->open_ns = min_u64(2 * breaker->open_ns, breakers->options.open_max_ns);
    breakers->shut_off |= BIT(i);
}

static void shut(struct breakers *breakers, unsigned i)
{
    struct breaker *breaker = &breakers->each[i];
    breaker->state = BREAKER_CLOSED;
    breaker->failures = 0;
    breaker->open_ns = breakers->options.open_ns;
    breakers->shut_off &= ~BIT(i);
}

static void tell_one(struct breakers *breakers, unsigned i, bool is_probe, bool went_well,
                     uint64_t now_ns)
{
    struct breaker *breaker = &breakers->each[i];
    if (went_well)
        breaker->well_ns = now_ns;
    if (is_probe) {
        assert(breaker->state == BREAKER_HALF_OPEN && breaker->is_probing);
        breaker->is_probing = false;
        if (!went_well)
            open_until(breakers, i, now_ns);
        else if (++breaker->successes == breakers->options.probes)
            shut(breakers, i);
    } else if (breaker->state == BREAKER_CLOSED) {
        bool is_quiet = breaker->well_ns == 0 ||
                        now_ns >= add_sat(breaker->well_ns, breakers->options.quiet_ns);
        breaker->failures = went_well ? 0 : breaker->failures + 1;
        if (breaker->failures >= breakers->options.failures_max && is_quiet)
            open_until(breakers, i, now_ns);
    }
    if (!went_well && breaker->failing_since_ns == 0)
        breaker->failing_since_ns = max_u64(now_ns, 1);
    if (!went_well || breaker->state != BREAKER_CLOSED)
        return;
    breaker->failing_since_ns = 0;
    breakers->well_ns = max_u64(breakers->well_ns, now_ns);
}

void breakers_tell(struct breakers *breakers, const struct breakers_pass *pass, uint64_t failed,
                   uint64_t now_ns)
{
    for (uint64_t left = pass->servers; left != 0;) {
        unsigned i = next_of(&left);
        tell_one(breakers, i, (pass->probes & BIT(i)) != 0, (failed & BIT(i)) == 0, now_ns);
    }
}

void breakers_drop(struct breakers *breakers, const struct breakers_pass *pass)
{
    for (uint64_t left = pass->probes; left != 0;)
        breakers->each[next_of(&left)].is_probing = false;
}

enum breaker_state breakers_state(const struct breakers *breakers)
{
    enum breaker_state worst = BREAKER_CLOSED;
    for (uint64_t left = breakers->shut_off; left != 0 && worst != BREAKER_OPEN;)
        worst = breakers->each[next_of(&left)].state;
    return worst;
}

/* With several servers: one that works has answered since the last of the others began to fail. */
uint64_t breakers_failing_since(const struct breakers *breakers, uint64_t now_ns)
{
    uint64_t since_ns = 0;
    for (uint64_t left = breakers->shut_off; left != 0;) {
        unsigned i = next_of(&left);
        if (now_ns == 0 || stops(&breakers->each[i], now_ns))
            since_ns = max_u64(since_ns, breakers->each[i].failing_since_ns);
    }
    return breakers->well_ns > since_ns ? 0 : since_ns;
}

void breakers_rest(struct breakers *breakers, uint64_t now_ns)
{
    for (uint64_t left = breakers->shut_off; left != 0;) {
        unsigned i = next_of(&left);
        struct breaker *breaker = &breakers->each[i];
        if (breaker->is_probing ||
            now_ns < add_sat(breaker->open_ends_ns, breakers->options.open_max_ns))
            continue;
        *breaker = (struct breaker){.state = BREAKER_CLOSED};
        shut(breakers, i);
    }
}
