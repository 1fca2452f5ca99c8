/* SPDX-License-Identifier: MIT */
/*
 * Tells when a file, or one in a folder, is another than before: by inode, size and time, of what
 * the name leads to. The kernel's word that something happened there is a reason to look at once;
 * where it says nothing (a symlink swapped far away, a network file system) looking now and then
 * finds out. The thread of the loop.
 */
#ifndef STINT_NET_FILE_WATCH_H
#define STINT_NET_FILE_WATCH_H

#include "net/log/log.h"

#include <uv.h>

#define WATCH_PATHS_MAX 256

struct watch;

struct watch_options {
    uv_loop_t *loop;
    const char *const *paths; /* copied; those past WATCH_PATHS_MAX are only looked at */
    size_t n_paths;
    uint64_t every_ns;
    struct log *log;
    void (*changed)(void *arg);
    void *arg;
};

struct watch *watch_new(const struct watch_options *options); /* NULL: no memory */
/* Freed by the loop; NULL is fine. */
void watch_close(struct watch *watch);

#endif
