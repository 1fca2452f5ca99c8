/* SPDX-License-Identifier: MIT */
/*
 * The output of the log: a descriptor whose reader may be slow or stopped. A line is written whole
 * or not at all, without waiting. One thread at a time.
 */
#ifndef STINT_NET_LOG_LOG_OUT_H
#define STINT_NET_LOG_LOG_OUT_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_LINE_MAX 2048

struct log_out {
    int fd;
    bool is_own; /* opened again, so that its flags are not shared */
    bool is_socket;
    char rest[LOG_LINE_MAX]; /* the rest of a partly written line */
    size_t rest_len;
};

void log_out_init(struct log_out *out, int fd);
/* Allows a partly written line one second. Does not close the caller's descriptor. */
void log_out_deinit(struct log_out *out);

/* False if it cannot be written now: nothing of the line is written. At most LOG_LINE_MAX bytes. */
bool log_out_write(struct log_out *out, const char *line, size_t len);

/* Waits at most so long for space; only for the end. */
void log_out_wait(const struct log_out *out, int ms);

#endif
