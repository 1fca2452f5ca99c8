/* SPDX-License-Identifier: MIT */
/* The bar appears only after a second of work. */
#define _GNU_SOURCE
#include "cmd/lib/progress.h"

#include "base/ns.h"
#include "cmd/lib/print.h"
#include "table/clock.h"

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

/* "36.5 MB, 12.1 MB/s", or "36,500 rounds, 121 rounds/s". */
static void describe(const struct progress *progress, uint64_t done, uint64_t since_ns, char *words,
                     size_t words_size)
{
    struct formatted all, speed;
    uint64_t a_second = (uint64_t)((double)done * 1e9 / (double)since_ns);
    if (progress->what == NULL)
        snprintf(words, words_size, "%s, %s/s", format_bytes(&all, done),
                 format_bytes(&speed, a_second));
    else
        snprintf(words, words_size, "%s %s, %s %s/s", format_count(&all, done), progress->what,
                 format_count(&speed, a_second), progress->what);
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
    struct formatted percent;
    char words[96];
    describe(progress, done, now_ns - progress->begun_ns, words, sizeof(words));
    if (progress->total == 0) {
        fprintf(stderr, "\r\033[K%s", words);
        return;
    }
    uint64_t seen = done < progress->total ? done : progress->total;
    unsigned filled = (unsigned)((double)seen / (double)progress->total * BAR_WIDTH);
    char bar[BAR_WIDTH + 1];
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', filled);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %s, %s", bar, format_percent(&percent, seen, progress->total),
            words);
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
