/* SPDX-License-Identifier: MIT */
/*
 * A table of 16,384 addresses, 256 KiB. Where the table has no slot for an address, its secrets are
 * checked: otherwise an owner of many addresses could lock out all others.
 */
#include "service/access/guesses.h"

#include "base/ns.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define ADDRESSES 16384

struct guesses {
    struct stint_table *table;
    struct stint_quota quota;
    uint64_t calm_at_ns; /* relaxed: when all counted secrets are forgotten */
};

struct guesses *guesses_new(unsigned per_minute)
{
    const struct stint_table_options options = {.keys = ADDRESSES,
                                                .keys16 = 1,
                                                .tickets = 1,
                                                .blocks = 1,
                                                .quotas = 1,
                                                .pools = 1,
                                                .overrides = 1,
                                                .clock = STINT_CLOCK_VIRTUAL};
    char spec[64];
    struct guesses *guesses = calloc(1, sizeof(*guesses));
    assert(per_minute > 0);
    snprintf(spec, sizeof(spec), "gcra %u/1m when_full=allow", per_minute);
    if (guesses == NULL || stint_quota_parse(&guesses->quota, spec, NULL) != 0 ||
        stint_table_open(&guesses->table, &options, NULL) != 0) {
        free(guesses);
        return NULL;
    }
    return guesses;
}

void guesses_free(struct guesses *guesses)
{
    if (guesses == NULL)
        return;
    stint_table_close(guesses->table);
    free(guesses);
}

size_t guesses_address(struct span peer, char text[GUESSES_ADDRESS_SIZE])
{
    int len =
        stint_address_key(text, GUESSES_ADDRESS_SIZE, (const char *)peer.ptr, peer.len, 32, 64);
    if (len < 0)
        len = snprintf(text, GUESSES_ADDRESS_SIZE, "unix");
    return (size_t)len;
}

bool guesses_may(const struct guesses *guesses, struct span peer, uint64_t now_ns)
{
    char text[GUESSES_ADDRESS_SIZE];
    if (__atomic_load_n(&guesses->calm_at_ns, __ATOMIC_RELAXED) <= now_ns)
        return true;
    const struct stint_item item = {
        .quota = &guesses->quota, .key = text, .key_len = guesses_address(peer, text), .cost = 1};
    return stint_peek(guesses->table, &item, 1, now_ns).outcome == STINT_ALLOW;
}

void guesses_count(struct guesses *guesses, struct span peer, uint64_t now_ns)
{
    char text[GUESSES_ADDRESS_SIZE];
    size_t len = guesses_address(peer, text);
    stint_take(guesses->table, &guesses->quota, text, len, 1, now_ns);
    __atomic_store_n(&guesses->calm_at_ns, now_ns + NS_PER_MIN, __ATOMIC_RELAXED);
}
