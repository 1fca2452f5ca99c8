/* SPDX-License-Identifier: MIT */
/* A progress bar on standard error for long work; nothing if that is no terminal. */
#ifndef STINT_CMD_LIB_PROGRESS_H
#define STINT_CMD_LIB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    uint64_t total;   /* bytes, or what `what` names; 0 = unknown */
    const char *what; /* may be set after the start; NULL: bytes */
    uint64_t begun_ns, next_ns;
    bool shown, wanted;
};

void progress_begin(struct progress *progress, uint64_t total);
void progress_step(struct progress *progress, uint64_t done);
/* Removes the bar. */
void progress_end(struct progress *progress);

#endif
