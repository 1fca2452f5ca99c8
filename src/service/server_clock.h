/* SPDX-License-Identifier: MIT */
/*
 * The two times of a server. Connections and their timeouts use the time of I/O, which is real.
 * Decisions use the table's time. Under a real clock the two are equal. Under a virtual clock the
 * table's time changes only when a caller moves it, and all workers see that at once.
 */
#ifndef STINT_SERVICE_SERVER_CLOCK_H
#define STINT_SERVICE_SERVER_CLOCK_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>

struct server_clock {
    struct stint_table *table;
    bool is_virtual;
    pthread_mutex_t lock;     /* for moves, and for passes over expired reservations */
    void (*moved)(void *arg); /* NULL: none */
    void *arg;
};

/* A deadline for I/O that waits until the virtual clock is moved: later than any other. */
#define SERVER_CLOCK_STANDS (STINT_NEVER_NS - 1)

void server_clock_init(struct server_clock *clock, struct stint_table *table, bool is_virtual);
void server_clock_deinit(struct server_clock *clock);
/* Set before any worker runs: called after each move, by the thread that moved the clock. */
void server_clock_on_move(struct server_clock *clock, void (*moved)(void *arg), void *arg);

/* The time of I/O now. */
uint64_t server_clock_io_now(const struct server_clock *clock);
/* The time of a decision made at this time of I/O. */
uint64_t server_clock_now(const struct server_clock *clock, uint64_t io_now_ns);
/* The time of I/O at which to check for this time of decisions. STINT_NEVER_NS stays. */
uint64_t server_clock_io_deadline(const struct server_clock *clock, uint64_t at_ns);

/*
 * Moves a virtual clock forward, and closes the reservations that expired by then. 0;
 * STINT_E_MISMATCH under a real clock and for a time before now; STINT_E_RANGE after STINT_NOW_MAX.
 */
int server_clock_set(struct server_clock *clock, uint64_t now_ns, struct stint_error *error);
int server_clock_advance(struct server_clock *clock, uint64_t by_ns, struct stint_error *error);

/* stint_expire() at the time of decisions. */
void server_clock_expire(struct server_clock *clock, uint64_t slots_max);

#endif
