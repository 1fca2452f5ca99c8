/* SPDX-License-Identifier: MIT */
/* Both sides of a socket pair: one byte requests a start, one reports the end of the child. */
#define _GNU_SOURCE
#include "net/process/handover.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct respawn_helper {
    pid_t pid;
    int fd;
};

/* ---- In the helper --------------------------------------------------------------------------- */

struct duty {
    char *const *argv;
    int server, children; /* requests of the server, and signals of ended children */
    sigset_t signals;     /* blocked before; restored in the child */
};

static void start(const struct duty *duty)
{
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &duty->signals, NULL);
        execv(duty->argv[0], duty->argv);
        _exit(127);
    }
    if (pid < 0 && write(duty->server, "e", 1) != 1)
        _exit(0);
}

static void tell_ends(const struct duty *duty)
{
    struct signalfd_siginfo info;
    if (read(duty->children, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        if (write(duty->server, "e", 1) != 1)
            _exit(0);
}

/* Signals are for the server: a terminal or systemd sends them to both. */
static _Noreturn void be_respawn_helper(struct duty *duty)
{
    sigset_t all, child;
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &all, &duty->signals);
    prctl(PR_SET_NAME, "stint respawn");
    /* Other inherited descriptors must not stay open in this process. */
    duty->server = dup2(duty->server, STDERR_FILENO + 1);
    close_range(STDERR_FILENO + 2, ~0u, 0);
    duty->children = signalfd(-1, &child, SFD_CLOEXEC);
    struct pollfd polled[] = {{.fd = duty->server, .events = POLLIN},
                              {.fd = duty->children, .events = POLLIN}};
    for (;;) {
        char byte;
        if (poll(polled, 2, -1) < 0)
            continue;
        if (polled[1].revents != 0)
            tell_ends(duty);
        if (polled[0].revents != 0 && read(duty->server, &byte, 1) != 1)
            _exit(0); /* the server is gone */
        if (polled[0].revents != 0)
            start(duty);
    }
}

/* ---- In the server --------------------------------------------------------------------------- */

int respawn_helper_new(struct respawn_helper **respawn_helper, char *const *argv,
                       struct stint_error *error)
{
    int pair[2] = {-1, -1};
    struct respawn_helper *made = calloc(1, sizeof(*made));
    if (made == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        (made->pid = fork()) < 0) {
        int reason = errno;
        if (pair[0] >= 0)
            close(pair[0]), close(pair[1]);
        free(made);
        return err_set(error, STINT_E_SYSTEM, "no process for starting a successor: %s",
                       strerror(reason));
    }
    if (made->pid == 0) {
        struct duty duty = {.argv = argv, .server = pair[1]};
        close(pair[0]);
        be_respawn_helper(&duty);
    }
    close(pair[1]);
    made->fd = pair[0];
    *respawn_helper = made;
    return 0;
}

void respawn_helper_free(struct respawn_helper *respawn_helper)
{
    if (respawn_helper == NULL)
        return;
    close(respawn_helper->fd);
    while (waitpid(respawn_helper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    free(respawn_helper);
}

bool respawn_helper_ask(struct respawn_helper *respawn_helper)
{
    return send(respawn_helper->fd, "s", 1, MSG_NOSIGNAL) == 1;
}

int respawn_helper_fd(const struct respawn_helper *respawn_helper)
{
    return respawn_helper->fd;
}

bool respawn_helper_read(struct respawn_helper *respawn_helper)
{
    char byte;
    return recv(respawn_helper->fd, &byte, 1, MSG_DONTWAIT) == 1;
}
