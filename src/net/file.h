/* SPDX-License-Identifier: MIT */
/* Files: a small one as one text (certificates, tokens, configuration), and a watch on several. */
#ifndef STINT_NET_FILE_H
#define STINT_NET_FILE_H

#include "base/err.h"
#include "net/log/log.h"

/*
 * Opens a file for reading: a descriptor, or a negative code and a message that begins with the
 * path. Never waits: a named pipe, a device or a folder is rejected with STINT_E_SYSTEM. An
 * inherited pipe (/dev/stdin, the shell's <(command)) is read like a file.
 */
int file_open(const char *path, struct stint_error *error);

/* For files that a library opens by their name: 0, or the error of file_open(). */
int file_check(const char *path, struct stint_error *error);

/*
 * Reads the rest of an open file, or pipe; `path` is for messages, which begin with it. The caller
 * frees *bytes, behind which is a zero byte. STINT_E_SYSTEM, or STINT_E_RANGE for more than `max`
 * bytes. No copy stays in memory.
 */
int file_bytes_read(int fd, const char *path, size_t max, char **bytes, size_t *len,
                    struct stint_error *error);

/*
 * The caller frees *text, which ends with a zero byte that is not the file's. STINT_E_SYSTEM for a
 * file that cannot be read, STINT_E_RANGE for one of more than `max` bytes, STINT_E_SYNTAX for one
 * that contains a zero byte; the message begins with the path.
 */
int file_text_read(const char *path, size_t max, char **text, struct stint_error *error);

/* The folder of a file, from its path: "." where the path has none. */
void file_folder(const char *path, char *folder, size_t size);

/* ---- Watching -------------------------------------------------------------------------------- */

/*
 * Reports when a file, or one in a folder, has changed: by inode, size and time of the target of
 * the path. A kernel event there causes a check at once; where the kernel reports nothing (a
 * symlink changed elsewhere, a network file system), a periodic check finds the change. Used in the
 * thread of the loop.
 */

#define WATCH_PATHS_MAX 256

struct watch;

struct watch_options {
    struct uv_loop_s *loop;
    const char *const *paths; /* copied; those past WATCH_PATHS_MAX are only checked periodically */
    size_t n_paths;
    uint64_t every_ns;
    struct log *log;
    void (*changed)(void *arg);
    void *arg;
};

struct watch *watch_new(const struct watch_options *options); /* NULL: no memory */
/* The files are about to be read: from now on, only later changes are reported. NULL is allowed. */
void watch_mark(struct watch *watch);
/* Whether it watches these paths, as often. */
bool watch_is_of(const struct watch *watch, const char *const *paths, size_t n_paths,
                 uint64_t every_ns);
/* Freed by the loop; NULL is allowed. */
void watch_close(struct watch *watch);

#endif
