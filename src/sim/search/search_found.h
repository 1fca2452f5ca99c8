/* SPDX-License-Identifier: MIT */
/* Keeps the requests of the best sequence, and shortens them without loss. */
#ifndef STINT_SIM_SEARCH_SEARCH_FOUND_H
#define STINT_SIM_SEARCH_SEARCH_FOUND_H

#include "sim/search/search_play.h"

struct search_found {
    struct search_ask *asks, *spare;
    size_t n_asks, asks_size, spare_size;
    uint64_t units, at_ns;
    uint64_t tidied_bytes;
};

void search_found_deinit(struct search_found *found);
/* The sequence just played is the best. 0 or a negative code. */
int search_found_take(struct search_found *found, const struct search_play *play,
                      struct stint_error *error);
int search_found_tidy(struct search_found *found, struct search_play *play,
                      struct stint_error *error);

#endif
