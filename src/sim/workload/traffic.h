/* SPDX-License-Identifier: MIT */
/*
 * The requests of a log, each key's together and in the order of time, so that a quota can be tried
 * on one key at a time.
 *
 * Memory: 12 bytes for each request and 8 for each key, and while it is made those of the list too.
 */
#ifndef STINT_SIM_WORKLOAD_TRAFFIC_H
#define STINT_SIM_WORKLOAD_TRAFFIC_H

#include "sim/input/event.h"

struct traffic {
    uint64_t *at_ns; /* since the epoch of its creation */
    uint32_t *costs;
    size_t *begins; /* of key k: begins[k] … begins[k + 1] - 1 */
    size_t n_requests;
    uint32_t n_keys;
};

/*
 * The times in the list never go back and are not before epoch_ns; its keys are below n_keys. The
 * list is emptied. 0, or STINT_E_SYSTEM if there is no memory.
 */
int traffic_init(struct traffic *traffic, struct event_list *events, uint32_t n_keys,
                 uint64_t epoch_ns, struct stint_error *error);
void traffic_deinit(struct traffic *traffic);

#endif
