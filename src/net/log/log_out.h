/* SPDX-License-Identifier: MIT */
/*
 * Where lines of the log go: a descriptor whose reader may be slow, or gone to sleep. A line is
 * written whole or not at all, and nobody waits. One thread at a time.
 */
#ifndef STINT_NET_LOG_LOG_OUT_H
#define STINT_NET_LOG_LOG_OUT_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_LINE_MAX 2048

struct log_out {
    int fd;
    bool is_own; /* opened anew, so that what is set for it is not set for others */
    bool is_socket;
    char rest[LOG_LINE_MAX]; /* of a line that was begun */
    size_t rest_len;
};

void log_out_init(struct log_out *out, int fd);
/* Gives what was begun a second to be written. Closes nothing that was given. */
void log_out_deinit(struct log_out *out);

/* False where there is no room now: nothing of the line is written. At most LOG_LINE_MAX bytes. */
bool log_out_write(struct log_out *out, const char *line, size_t len);

/* Waits at most so long for room; of use at the end alone. */
void log_out_wait(const struct log_out *out, int ms);

#endif
