/* SPDX-License-Identifier: MIT */
/* The only effect of the signal handler is a flag. */
#define _GNU_SOURCE
#include "cmd/lib/interrupt.h"

#include <signal.h>
#include <stddef.h>

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
