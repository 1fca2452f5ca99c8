/* SPDX-License-Identifier: MIT */
/* What load programs share: a connection to a server of this machine, and the clock on the wall. */
#ifndef STINT_BENCH_ASKER_H
#define STINT_BENCH_ASKER_H

#include <stdint.h>

/* Leaves with 1, and what errno says. */
_Noreturn void asker_die(const char *what);
/* A connection to a port of 127.0.0.1. */
int asker_dial(uint16_t port);
uint64_t asker_now_ns(void);

#endif
