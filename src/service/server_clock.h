/* SPDX-License-Identifier: MIT */
/*
 * The two times of a server. Connections and their timeouts go by the time of I/O, which is real.
 * Decisions go by the table's time. Under a real clock the two are one number. Under a virtual
 * clock the table's time stands still until a caller moves it, and all workers see that at once.
 */
#ifndef STINT_SERVICE_SERVER_CLOCK_H
#define STINT_SERVICE_SERVER_CLOCK_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>

struct server_clock {
    struct stint_table *table;
    bool is_virtual;
    pthread_mutex_t lock;     /* of moves, and of passes over reservations that have ended */
    void (*moved)(void *arg); /* NULL: none */
    void *arg;
};

/* A deadline of what waits until the virtual clock is moved: later than any other. */
#define SERVER_CLOCK_STANDS (STINT_NEVER_NS - 1)

void server_clock_init(struct server_clock *clock, struct stint_table *table, bool is_virtual);
void server_clock_deinit(struct server_clock *clock);
/* Before any worker runs: called after each move, from the thread that moved the clock. */
void server_clock_on_move(struct server_clock *clock, void (*moved)(void *arg), void *arg);

/* The time of I/O now. */
uint64_t server_clock_io_now(const struct server_clock *clock);
/* The time of a decision that is made at this time of I/O. */
uint64_t server_clock_now(const struct server_clock *clock, uint64_t io_now_ns);
/* When I/O has to look again at what waits for this time of decisions. STINT_NEVER_NS stays. */
uint64_t server_clock_io_deadline(const struct server_clock *clock, uint64_t at_ns);

/*
 * Moves a virtual clock forward, and closes the reservations that have ended by then. 0;
 * STINT_E_MISMATCH under a real clock and for a time before now; STINT_E_RANGE after STINT_NOW_MAX.
 */
int server_clock_set(struct server_clock *clock, uint64_t now_ns, struct stint_error *error);
int server_clock_advance(struct server_clock *clock, uint64_t by_ns, struct stint_error *error);

/* stint_expire() by the time of decisions. */
void server_clock_expire(struct server_clock *clock, uint64_t slots_max);

#endif
