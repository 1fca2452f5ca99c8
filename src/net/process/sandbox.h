/* SPDX-License-Identifier: MIT */
/*
 * The privileges that a server drops once everything is open: access to files other than those that
 * it reads again (Landlock), and system calls that serving does not need (seccomp). Code that an
 * attacker runs in it cannot start a program, connect to other hosts (unless the server has shared
 * stores or control planes), or write a file. This cannot be undone, in any thread.
 */
#ifndef STINT_NET_PROCESS_SANDBOX_H
#define STINT_NET_PROCESS_SANDBOX_H

#include "base/err.h"
#include "net/listen/listener.h"
#include "net/log/log.h"

enum sandbox_mode {
    SANDBOX_OFF,
    SANDBOX_AUTO, /* all parts that the system supports; missing ones are logged */
    SANDBOX_ON,   /* all parts, otherwise the server does not start */
};

struct sandbox_options {
    enum sandbox_mode mode;
    const char *const *read_paths; /* files and folders that are read again, also renamed ones */
    size_t n_read_paths;
    const char *control; /* path of a socket that is bound and removed; NULL: none */
    const struct listeners *listeners;
    bool connects; /* it has shared stores or control planes, whose names are resolved */
    struct log *log;
};

/*
 * Call while there is one thread: threads that it starts are restricted, others are not. From here
 * on only sockets are created, at their paths, and only the named files are read.
 */
int sandbox_enter_files(const struct sandbox_options *options, struct stint_error *error);
/* Call last, for all existing threads. */
int sandbox_enter_calls(const struct sandbox_options *options, struct stint_error *error);

/* ---- Parts, regardless of the mode: STINT_E_SYSTEM where the kernel lacks it ----------------- */

/* Builds with sanitizers cannot use it: they read other processes' memory, and files. */
bool sandbox_is_built(void);

struct sandbox_paths {
    const char *const *read;
    size_t n_read;
    const char *const *sockets; /* created and removed */
    size_t n_sockets;
    bool resolves; /* resolves host names */
};

int sandbox_files(const struct sandbox_paths *paths, struct stint_error *error);
/* connects: outgoing connections, in every TCP address family, and to Unix sockets. */
int sandbox_calls(bool connects, struct stint_error *error);

#endif
