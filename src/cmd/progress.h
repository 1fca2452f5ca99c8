/* SPDX-License-Identifier: MIT */
/* A bar on standard error while long input is read; nothing where that is no terminal. */
#ifndef STINT_CMD_PROGRESS_H
#define STINT_CMD_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    uint64_t total; /* bytes; 0 = unknown */
    uint64_t begun_ns, next_ns;
    bool shown, wanted;
};

void progress_begin(struct progress *progress, uint64_t total);
void progress_step(struct progress *progress, uint64_t done);
/* Takes the bar away. */
void progress_end(struct progress *progress);

#endif
