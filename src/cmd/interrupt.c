/* SPDX-License-Identifier: MIT */
/* The one thing that a signal may leave behind: a flag that it was there. */
#define _GNU_SOURCE
#include "cmd/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t seen;

static void on_interrupt(int number)
{
    (void)number;
    seen = 1;
}

void interrupt_catch(void)
{
    struct sigaction catch = {.sa_handler = on_interrupt,
                              .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigemptyset(&catch.sa_mask);
    sigaction(SIGINT, &catch, NULL);
}

bool interrupt_seen(void)
{
    return seen != 0;
}
