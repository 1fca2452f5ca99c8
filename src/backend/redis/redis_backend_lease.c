/* SPDX-License-Identifier: MIT */
/* Requests under quotas of which units are leased: one key more, beside the state's. */
#include "backend/redis/redis_backend_parts.h"
#include "backend/script/script_lease.h"

#include <stdlib.h>

/* The leases' key; empty where there is no memory. Valid until the next one. */
static struct span leases_key(struct redis_backend *store, struct span state)
{
    static const char suffix[] = SCRIPT_LEASES_SUFFIX;
    size_t len = state.len + sizeof(suffix) - 1;
    if (len > store->leases_size) {
        uint8_t *leases = realloc(store->leases, 2 * len);
        if (leases == NULL)
            return span_of(NULL, 0);
        store->leases = leases;
        store->leases_size = 2 * len;
    }
    memcpy(store->leases, state.ptr, state.len);
    memcpy(store->leases + state.len, suffix, sizeof(suffix) - 1);
    return span_of(store->leases, len);
}

bool redis_backend_command_leased(struct redis_backend *store, const struct backend_request *ask,
                                  const struct script_item *item, const struct script_ask *asked)
{
    struct span key = leases_key(store, item->key);
    if (key.len == 0)
        return false;
    const struct script_lease lease = {
        .verb = ask->verb,
        .term_ns = ask->term_ns,
        .least = ask->least,
        .ended = ask->ended,
        .n_ended = ask->n_ended,
    };
    struct script_ask without = *asked;
    if (ask->verb == BACKEND_LEASE || ask->verb == BACKEND_RETURN)
        without.verb = SCRIPT_PEEK; /* the words are replaced */
    script_command_leased(&store->command, item, key, &without, &lease);
    return true;
}
