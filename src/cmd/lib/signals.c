/* SPDX-License-Identifier: MIT */
/* Signals that commands handle. */
#define _GNU_SOURCE
#include "cmd/lib/signals.h"

#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "stint.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- An interrupt by the user ---------------------------------------------------------------- */

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
#define N_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static volatile sig_atomic_t n_seen, last;
static void (*before_end)(void);

static void on_interrupt(int number)
{
    last = number;
    if (n_seen++ == 0)
        return;
    if (before_end != NULL)
        before_end();
    interrupt_end();
}

static void on_counted(int number)
{
    last = number;
    n_seen++;
}

static void catch_first(size_t n, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < n; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

void interrupt_catch(void)
{
    catch_first(1, on_interrupt, SA_RESTART);
}

void interrupt_catch_all(void (*leave)(void))
{
    before_end = leave;
    catch_first(N_NUMBERS, on_interrupt, SA_RESTART);
}

void interrupt_count_all(void)
{
    catch_first(N_NUMBERS, on_counted, 0);
}

unsigned interrupts_seen(void)
{
    return (unsigned)n_seen;
}

bool interrupt_take(void)
{
    bool was_seen = interrupts_seen() > 0;
    n_seen = 0;
    return was_seen;
}

/* A signal is delivered only while this waits, so that none is missed before. */
bool interrupt_wait(int fd, uint64_t ns, unsigned n_before)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S),
                                  .tv_nsec = (long)(ns % NS_PER_S)};
    struct pollfd input = {.fd = fd, .events = POLLIN};
    sigset_t blocked, before;
    int n = 0;
    sigemptyset(&blocked);
    for (size_t i = 0; i < N_NUMBERS; i++)
        sigaddset(&blocked, numbers[i]);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    do
        n = interrupts_seen() > n_before
                ? 0
                : ppoll(&input, 1, ns == STINT_NEVER_NS ? NULL : &time, &before);
    while (n < 0 && errno == EINTR && ns == STINT_NEVER_NS);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return n != 0 && interrupts_seen() <= n_before;
}

void interrupt_end(void)
{
    signal(last, SIG_DFL);
    raise(last);
}

/* ---- A bus error ----------------------------------------------------------------------------- */

/*
 * The file of the address is found in /proc/self/maps, which is opened before a sandbox can forbid
 * it. The signal comes from an access to a mapping, and not out of a function such as malloc(): all
 * functions may be called.
 */

#define LINE_SIZE (PATH_MAX + 128)

static FILE *maps;

/* The path of the file that is mapped at an address, in memory that the next call overwrites. */
static const char *find_file(uint64_t address)
{
    static char line[LINE_SIZE];
    rewind(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        /* Addresses, permissions, offset, device, inode, path: see proc_pid_maps(5). */
        char *end, *path = strchr(line, '/');
        uint64_t first = strtoull(line, &end, 16);
        if (address < first || address >= strtoull(end + 1, NULL, 16) || path == NULL)
            continue;
        path[strcspn(path, "\n")] = '\0';
        return path;
    }
    return NULL;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    const char *path =
        info->si_code == BUS_ADRERR ? find_file((uint64_t)(uintptr_t)info->si_addr) : NULL;
    if (path == NULL) {
        signal(number, SIG_DFL); /* no file of ours: the signal ends the program on return */
        return;
    }
    dprintf(STDERR_FILENO,
            "stint: %s was cut, or its disk failed, while it was in use; make sure that no other "
            "program writes to it, put back a copy of it or remove it, and start again\n",
            path);
    _exit(CMD_BAD_INPUT);
}

void bus_error_install(void)
{
    static char buffer[BUFSIZ];
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return;
    setvbuf(maps, buffer, _IOFBF, sizeof(buffer));
    sigaction(SIGBUS, &action, NULL);
}
