/* SPDX-License-Identifier: MIT */
/* A counting sort by key: it keeps the order of time within each. */
#include "sim/workload/traffic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int allocate(struct traffic *traffic, struct stint_error *error)
{
    size_t n = traffic->n_requests;
    traffic->begins = calloc((size_t)traffic->n_keys + 2, sizeof(*traffic->begins));
    traffic->at_ns = malloc((n + 1) * sizeof(*traffic->at_ns));
    traffic->costs = malloc((n + 1) * sizeof(*traffic->costs));
    if (traffic->begins != NULL && traffic->at_ns != NULL && traffic->costs != NULL)
        return 0;
    return err_set(error, STINT_E_SYSTEM, "out of memory for %zu requests of %lu keys", n,
                   (unsigned long)traffic->n_keys);
}

int traffic_init(struct traffic *traffic, struct event_list *events, uint32_t n_keys,
                 uint64_t epoch_ns, struct stint_error *error)
{
    *traffic = (struct traffic){.n_requests = events->n_entries, .n_keys = n_keys};
    int code = allocate(traffic, error);
    if (code != 0) {
        traffic_deinit(traffic);
        return code;
    }
    /*
     * Counted two elements further up, a key's count becomes its begin, which then moves to its
     * end: the begin of the next.
     */
    size_t *places = traffic->begins + 1;
    for (size_t i = 0; i < events->n_entries; i++) {
        assert(events->entries[i].key < n_keys);
        places[events->entries[i].key + 1]++;
    }
    for (uint32_t key = 1; key < n_keys; key++)
        places[key] += places[key - 1];
    for (size_t i = 0; i < events->n_entries; i++) {
        const struct event_entry *entry = &events->entries[i];
        size_t place = places[entry->key]++;
        assert(entry->at_ns >= epoch_ns);
        traffic->at_ns[place] = entry->at_ns - epoch_ns;
        traffic->costs[place] = entry->cost;
    }
    event_list_deinit(events);
    return 0;
}

void traffic_deinit(struct traffic *traffic)
{
    free(traffic->at_ns);
    free(traffic->costs);
    free(traffic->begins);
    *traffic = (struct traffic){0};
}
