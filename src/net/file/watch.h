/* SPDX-License-Identifier: MIT */
/*
 * Reports when a file, or one in a folder, has changed: by inode, size and time of the target of
 * the path. A kernel event there causes a check at once; where the kernel reports nothing (a
 * symlink changed elsewhere, a network file system), a periodic check finds the change. Used in the
 * thread of the loop.
 */
#ifndef STINT_NET_FILE_WATCH_H
#define STINT_NET_FILE_WATCH_H

#include "net/log/log.h"

#include <uv.h>

#define WATCH_PATHS_MAX 256

struct watch;

struct watch_options {
    uv_loop_t *loop;
    const char *const *paths; /* copied; those past WATCH_PATHS_MAX are only checked periodically */
    size_t n_paths;
    uint64_t every_ns;
    struct log *log;
    void (*changed)(void *arg);
    void *arg;
};

struct watch *watch_new(const struct watch_options *options); /* NULL: no memory */
/* Freed by the loop; NULL is allowed. */
void watch_close(struct watch *watch);

#endif
