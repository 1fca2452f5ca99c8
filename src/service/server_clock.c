/* SPDX-License-Identifier: MIT */
/* A virtual time is in the table, so processes that have it open see it, too. */
#include "service/server_clock.h"

#include "base/wide_int.h"
#include "table/clock.h"

#include <assert.h>
#include <inttypes.h>

void server_clock_init(struct server_clock *clock, struct stint_table *table, bool is_virtual)
{
    assert(table != NULL);
    *clock = (struct server_clock){.table = table, .is_virtual = is_virtual};
    pthread_mutex_init(&clock->lock, NULL);
}

void server_clock_deinit(struct server_clock *clock)
{
    pthread_mutex_destroy(&clock->lock);
}

void server_clock_on_move(struct server_clock *clock, void (*moved)(void *arg), void *arg)
{
    assert(clock->table != NULL && moved != NULL);
    clock->moved = moved;
    clock->arg = arg;
}

uint64_t server_clock_io_now(const struct server_clock *clock)
{
    assert(clock->table != NULL);
    return clock->is_virtual ? clock_boot_ns() : stint_now(clock->table);
}

uint64_t server_clock_now(const struct server_clock *clock, uint64_t io_now_ns)
{
    assert(clock->table != NULL);
    return clock->is_virtual ? stint_now(clock->table) : io_now_ns;
}

uint64_t server_clock_io_deadline(const struct server_clock *clock, uint64_t at_ns)
{
    assert(clock->table != NULL);
    if (!clock->is_virtual || at_ns == STINT_NEVER_NS)
        return at_ns;
    return at_ns <= stint_now(clock->table) ? 0 : SERVER_CLOCK_STANDS;
}

/* The lock is held. */
static int try_move(struct server_clock *clock, uint64_t was_ns, uint64_t now_ns,
                    struct stint_error *error)
{
    assert(clock->is_virtual);
    if (now_ns < was_ns)
        return err_set(error, STINT_E_MISMATCH,
                       "the clock is at %" PRIu64 " ns and never goes back to %" PRIu64
                       "; start another server, with another state file, to begin anew",
                       was_ns, now_ns);
    if (now_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE,
                       "the clock is at %" PRIu64 " ns and ends at %" PRIu64
                       " ns, after 18 years; expected a time up to then",
                       was_ns, STINT_NOW_MAX);
    stint_table_set_now(clock->table, now_ns);
    /* The first call may only finish a pass that began before the move; after the second all
     * reservations that expired by now are closed. */
    stint_expire(clock->table, now_ns, UINT64_MAX);
    stint_expire(clock->table, now_ns, UINT64_MAX);
    return 0;
}

static int move(struct server_clock *clock, bool is_by, uint64_t ns, struct stint_error *error)
{
    assert(clock->table != NULL);
    if (!clock->is_virtual)
        return err_set(error, STINT_E_MISMATCH,
                       "the server's clock is real and cannot be moved; start the server with "
                       "--clock virtual to test with it");
    pthread_mutex_lock(&clock->lock);
    uint64_t was_ns = stint_now(clock->table);
    int code = try_move(clock, was_ns, is_by ? add_sat(was_ns, ns) : ns, error);
    pthread_mutex_unlock(&clock->lock);
    if (code == 0 && clock->moved != NULL)
        clock->moved(clock->arg);
    return code;
}

int server_clock_set(struct server_clock *clock, uint64_t now_ns, struct stint_error *error)
{
    return move(clock, false, now_ns, error);
}

int server_clock_advance(struct server_clock *clock, uint64_t by_ns, struct stint_error *error)
{
    return move(clock, true, by_ns, error);
}

void server_clock_expire(struct server_clock *clock, uint64_t slots_max)
{
    assert(clock->table != NULL);
    pthread_mutex_lock(&clock->lock);
    stint_expire(clock->table, stint_now(clock->table), slots_max);
    pthread_mutex_unlock(&clock->lock);
}
