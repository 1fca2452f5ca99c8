/* SPDX-License-Identifier: MIT */
/* One breaker per bit, and their combined state. Nearly always all of them are closed. */
#include "backend/breakers.h"

#include "base/wide_int.h"

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
    *breakers = (struct breakers){.shut_off = 0};
    for (unsigned i = 0; i < BREAKERS_MAX; i++)
        breaker_init(&breakers->each[i], options);
}

uint64_t breakers_stopped(const struct breakers *breakers, uint64_t now_ns)
{
    uint64_t stopped = 0;
    for (uint64_t left = breakers->shut_off; left != 0;) {
        unsigned i = next_of(&left);
        if (breaker_stops(&breakers->each[i], now_ns))
            stopped |= BIT(i);
    }
    return stopped;
}

struct breakers_pass breakers_ask(struct breakers *breakers, uint64_t servers, uint64_t now_ns)
{
    /* The others are closed. */
    struct breakers_pass pass = {.servers = servers & ~breakers->shut_off};
    for (uint64_t left = servers & breakers->shut_off; left != 0;) {
        unsigned i = next_of(&left);
        enum breaker_pass one = breaker_ask(&breakers->each[i], now_ns);
        if (one != BREAKER_STOP)
            pass.servers |= BIT(i);
        if (one == BREAKER_PROBE)
            pass.probes |= BIT(i);
    }
    return pass;
}

static enum breaker_pass pass_of(const struct breakers_pass *pass, unsigned i)
{
    return (pass->probes & BIT(i)) != 0 ? BREAKER_PROBE : BREAKER_GO;
}

static void tell_one(struct breakers *breakers, unsigned i, enum breaker_pass pass, bool went_well,
                     uint64_t now_ns)
{
    struct breaker *breaker = &breakers->each[i];
    breaker_tell(breaker, pass, went_well, now_ns);
    bool is_closed = breaker->state == BREAKER_CLOSED;
    breakers->shut_off = is_closed ? breakers->shut_off & ~BIT(i) : breakers->shut_off | BIT(i);
    if (!went_well && breakers->failing_since_ns[i] == 0)
        breakers->failing_since_ns[i] = max_u64(now_ns, 1);
    if (!went_well || !is_closed)
        return;
    breakers->failing_since_ns[i] = 0;
    breakers->well_ns = max_u64(breakers->well_ns, now_ns);
}

void breakers_tell(struct breakers *breakers, const struct breakers_pass *pass, uint64_t failed,
                   uint64_t now_ns)
{
    for (uint64_t left = pass->servers; left != 0;) {
        unsigned i = next_of(&left);
        tell_one(breakers, i, pass_of(pass, i), (failed & BIT(i)) == 0, now_ns);
    }
}

void breakers_drop(struct breakers *breakers, const struct breakers_pass *pass)
{
    for (uint64_t left = pass->probes; left != 0;)
        breaker_drop(&breakers->each[next_of(&left)], BREAKER_PROBE);
}

enum breaker_state breakers_state(const struct breakers *breakers)
{
    enum breaker_state worst = BREAKER_CLOSED;
    for (uint64_t left = breakers->shut_off; left != 0 && worst != BREAKER_OPEN;)
        worst = breakers->each[next_of(&left)].state;
    return worst;
}

/* Whether a probe is due, but no request has come to be one. */
static bool is_due(const struct breaker *breaker, uint64_t now_ns)
{
    return breaker->state == BREAKER_OPEN && now_ns >= breaker->open_ends_ns;
}

/* With several servers: one that works has answered since the last of the others began to fail. */
uint64_t breakers_failing_since(const struct breakers *breakers, uint64_t now_ns)
{
    uint64_t since_ns = 0;
    for (uint64_t left = breakers->shut_off; left != 0;) {
        unsigned i = next_of(&left);
        if (now_ns == 0 || !is_due(&breakers->each[i], now_ns))
            since_ns = max_u64(since_ns, breakers->failing_since_ns[i]);
    }
    return breakers->well_ns > since_ns ? 0 : since_ns;
}

void breakers_rest(struct breakers *breakers, uint64_t now_ns)
{
    for (uint64_t left = breakers->shut_off; left != 0;) {
        unsigned i = next_of(&left);
        struct breaker *breaker = &breakers->each[i];
        uint64_t long_ago_ns = add_sat(breaker->open_ends_ns, breaker->options.open_max_ns);
        if (breaker->is_probing || now_ns < long_ago_ns)
            continue;
        const struct breaker_options options = breaker->options;
        breaker_init(breaker, &options);
        breakers->failing_since_ns[i] = 0;
        breakers->shut_off &= ~BIT(i);
    }
}
