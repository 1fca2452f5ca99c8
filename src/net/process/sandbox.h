/* SPDX-License-Identifier: MIT */
/*
 * What a server gives up once everything is open: files other than those that it reads anew
 * (Landlock), and system calls that serving does not need (seccomp). Whoever made it run code of
 * his finds no program to start, nobody to connect to (but where the server has shared stores), and
 * no file to write. There is no way back, for no thread.
 */
#ifndef STINT_NET_PROCESS_SANDBOX_H
#define STINT_NET_PROCESS_SANDBOX_H

#include "base/err.h"
#include "net/listen/listener.h"
#include "net/log/log.h"

enum sandbox_mode {
    SANDBOX_OFF,
    SANDBOX_AUTO, /* as much as the system lets one; what is lacking is logged */
    SANDBOX_ON,   /* all of it, or there is no server */
};

struct sandbox_options {
    enum sandbox_mode mode;
    const char *const *read_paths; /* files and folders that are read again, also renamed ones */
    size_t n_read_paths;
    const char *control; /* path of a socket that is bound and removed; NULL: none */
    const struct listeners *listeners;
    bool connects; /* it has shared stores, by names that are looked up */
    struct log *log;
};

/*
 * While there is one thread: what it starts is bound by it, other threads are not. From here on
 * only sockets are made, at their paths, and only what was named is read.
 */
int sandbox_enter_files(const struct sandbox_options *options, struct stint_error *error);
/* Last of all, for all threads that there are. */
int sandbox_enter_calls(const struct sandbox_options *options, struct stint_error *error);

/* ---- Parts, without regard to the mode: STINT_E_SYSTEM where the kernel cannot --------------- */

/* A build with sanitizers cannot be in one: they look at other processes' memory, and at files. */
bool sandbox_is_built(void);

struct sandbox_paths {
    const char *const *read;
    size_t n_read;
    const char *const *sockets; /* made and removed */
    size_t n_sockets;
    bool resolves; /* names of other machines */
};

int sandbox_files(const struct sandbox_paths *paths, struct stint_error *error);
/* connects: to others, of every address family that there is in TCP, and to Unix sockets. */
int sandbox_calls(bool connects, struct stint_error *error);

#endif
