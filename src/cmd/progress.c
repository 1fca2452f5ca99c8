/* SPDX-License-Identifier: MIT */
/* Input that is read within a second never sees the bar. */
#define _GNU_SOURCE
#include "cmd/progress.h"

#include "base/ns.h"
#include "cmd/human.h"
#include "store/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 40u
#define STEP_NS (100 * NS_PER_MS)

void progress_begin(struct progress *progress, uint64_t total)
{
    uint64_t now_ns = clock_boot_ns();
    *progress = (struct progress){.total = total,
                                  .begun_ns = now_ns,
                                  .next_ns = now_ns + NS_PER_S,
                                  .wanted = isatty(STDERR_FILENO) == 1};
}

void progress_step(struct progress *progress, uint64_t done)
{
    if (!progress->wanted)
        return;
    uint64_t now_ns = clock_boot_ns();
    if (now_ns < progress->next_ns)
        return;
    progress->next_ns = now_ns + STEP_NS;
    progress->shown = true;
    struct human bytes, speed, percent;
    human_bytes(&bytes, done);
    human_bytes(&speed, (uint64_t)((double)done * 1e9 / (double)(now_ns - progress->begun_ns)));
    if (progress->total == 0) {
        fprintf(stderr, "\r\033[K%s, %s/s", bytes.text, speed.text);
        return;
    }
    uint64_t seen = done < progress->total ? done : progress->total;
    unsigned filled = (unsigned)((double)seen / (double)progress->total * BAR_WIDTH);
    char bar[BAR_WIDTH + 1];
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', filled);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %s, %s, %s/s", bar,
            human_percent(&percent, seen, progress->total), bytes.text, speed.text);
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
