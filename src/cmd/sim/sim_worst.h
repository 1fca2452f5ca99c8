/* SPDX-License-Identifier: MIT */
/* The search of `stint sim worst`, with what it prints. */
#ifndef STINT_CMD_SIM_SIM_WORST_H
#define STINT_CMD_SIM_SIM_WORST_H

#include "sim/search/search_worst.h"

#include <stdio.h>

struct sim_worst_options {
    struct stint_quota quota;
    const char *path; /* of the trace; NULL = standard output */
    FILE *trace;      /* NULL: that is standard output */
    uint64_t seed;
    uint64_t time_ns, tries_max; /* the first limit that is reached ends the search */
    bool json;
    bool takes_only;
};

/* Searches, prints, closes the trace; an enum cmd_exit, CMD_BAD_INPUT for a broken bound. */
int sim_worst_run(const struct sim_worst_options *options, const struct search_subject *subject);

#endif
