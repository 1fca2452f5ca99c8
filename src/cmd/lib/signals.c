/* SPDX-License-Identifier: MIT */
/* Signals that commands handle. */
#define _GNU_SOURCE
#include "cmd/lib/signals.h"

#include "cmd/lib/cmd.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* ---- An interrupt by the user ---------------------------------------------------------------- */

static volatile sig_atomic_t seen;

static void on_interrupt(int number)
{
    (void)number;
    seen = 1;
}

static void remember(int number)
{
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void interrupt_catch(void)
{
    remember(SIGINT);
}

void interrupt_catch_all(void)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    remember(SIGINT);
    remember(SIGTERM);
    remember(SIGHUP);
    sigaction(SIGPIPE, &ignore, NULL);
}

bool interrupt_seen(void)
{
    return seen != 0;
}

/* ---- A bus error ----------------------------------------------------------------------------- */

/*
 * The file of the address is found in /proc/self/maps. Only calls that are safe in a signal handler
 * are made. The list is opened before a sandbox can forbid it.
 */

#define MAPS "/proc/self/maps"
#define FIELDS_BEFORE_PATH 5 /* addresses, permissions, offset, device, inode */

static int maps_fd = -1;

/* Reads the list line by line, a byte at a time; see proc_pid_maps(5). */
struct maps_line {
    uint64_t begin, end;
    unsigned field;
    bool in_blank, past_dash;
    size_t path_len;
    char path[PATH_MAX];
};

static unsigned hex_digit(char c)
{
    return c >= 'a' ? (unsigned)(c - 'a') + 10 : (unsigned)(c - '0');
}

static void add_byte(struct maps_line *line, char c)
{
    if (c == ' ' && line->field < FIELDS_BEFORE_PATH) {
        line->field += !line->in_blank;
        line->in_blank = true;
        return;
    }
    line->in_blank = false;
    if (line->field >= FIELDS_BEFORE_PATH) {
        if (line->path_len < sizeof(line->path) && (line->path_len > 0 || c != ' '))
            line->path[line->path_len++] = c;
    } else if (line->field == 0 && c == '-') {
        line->past_dash = true;
    } else if (line->field == 0) {
        uint64_t *bound = line->past_dash ? &line->end : &line->begin;
        *bound = *bound << 4 | hex_digit(c);
    }
}

/* True if *line describes the file that is mapped at an address. */
static bool find_file(int fd, uint64_t address, struct maps_line *line)
{
    char part[1024];
    off_t at = 0;
    ssize_t n;
    memset(line, 0, sizeof(*line));
    while ((n = pread(fd, part, sizeof(part), at)) > 0) {
        at += n;
        for (ssize_t i = 0; i < n; i++) {
            if (part[i] != '\n') {
                add_byte(line, part[i]);
                continue;
            }
            if (address >= line->begin && address < line->end)
                return line->path_len > 0 && line->path[0] == '/';
            memset(line, 0, sizeof(*line));
        }
    }
    return false;
}

static void put(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);
        if (n <= 0)
            return;
        text += n;
        len -= (size_t)n;
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char begin[] = "stint: ";
    static const char end[] =
        " was cut, or its disk failed, while it was in use; make sure that no other program writes "
        "to it, put back a copy of it or remove it, and start again\n";
    static struct maps_line line;
    (void)context;
    if (info->si_code != BUS_ADRERR ||
        !find_file(maps_fd, (uint64_t)(uintptr_t)info->si_addr, &line)) {
        signal(number, SIG_DFL); /* no file of ours: the signal ends the program on return */
        return;
    }
    put(begin, sizeof(begin) - 1);
    put(line.path, line.path_len);
    put(end, sizeof(end) - 1);
    _exit(CMD_BAD_INPUT);
}

void bus_error_install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    maps_fd = open(MAPS, O_RDONLY | O_CLOEXEC);
    if (maps_fd >= 0)
        sigaction(SIGBUS, &action, NULL);
}
