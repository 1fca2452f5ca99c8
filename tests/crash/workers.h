/* SPDX-License-Identifier: MIT */
/*
 * Processes that all do the same work on memory they share, until they are killed, or until there
 * is nothing left to do. Whoever is killed is replaced; nobody outlives the one who started them.
 * Includers define _GNU_SOURCE.
 */
#ifndef STINT_TESTS_CRASH_WORKERS_H
#define STINT_TESTS_CRASH_WORKERS_H

#include "race/crew.h"

#include "base/splitmix.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 4
#define WORKERS_STUCK_MS 10000 /* a worker that has finished nothing for so long hangs */

struct workers {
    const char *name; /* of what they work on, for messages */
    void (*work)(unsigned worker);
    bool (*is_over)(void);    /* nothing is left to do: they stand still */
    const uint64_t *finished; /* how much each has, in shared memory */
    uint64_t random;
    pid_t pids[WORKERS];
};

/* Memory for all who come of this process, filled with 0. */
static inline void *workers_share(size_t size)
{
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("shared memory");
        exit(1);
    }
    return shared;
}

static inline void sleep_us(unsigned us)
{
    struct timespec time = {.tv_sec = 0, .tv_nsec = (long)us * 1000};
    nanosleep(&time, NULL);
}

static inline void workers_start_one(struct workers *workers, unsigned worker)
{
    pid_t supervisor = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == supervisor)
            workers->work(worker);
        _exit(0);
    }
    if (child < 0) { /* which as a pid would be everybody */
        perror("fork");
        exit(1);
    }
    workers->pids[worker] = child;
}

static inline void workers_start(struct workers *workers)
{
    workers->random = 42;
    for (unsigned i = 0; i < WORKERS; i++)
        workers_start_one(workers, i);
}

/* One of them, after a while of less than `us`. */
static inline unsigned workers_pick(struct workers *workers, unsigned us)
{
    uint64_t random = splitmix_next(&workers->random);
    sleep_us((unsigned)(random >> 20) % us);
    return (unsigned)(random >> 40) % WORKERS;
}

static inline void workers_stop_for(struct workers *workers, unsigned worker, unsigned us)
{
    kill(workers->pids[worker], SIGSTOP);
    sleep_us(us);
    kill(workers->pids[worker], SIGCONT);
}

/* Kills one, who is left a zombie for a while, and starts another in its place. */
static inline void workers_replace(struct workers *workers, unsigned worker, unsigned zombie_us)
{
    kill(workers->pids[worker], SIGKILL);
    if (zombie_us > 0)
        sleep_us(zombie_us);
    waitpid(workers->pids[worker], NULL, 0);
    workers_start_one(workers, worker);
}

/* Each finishes something more, or it is over. */
static inline bool workers_get_on(const struct workers *workers)
{
    for (unsigned worker = 0; worker < WORKERS; worker++) {
        const uint64_t *finished = &workers->finished[worker];
        uint64_t before = __atomic_load_n(finished, __ATOMIC_RELAXED);
        for (unsigned ms = 0; __atomic_load_n(finished, __ATOMIC_RELAXED) == before; ms++) {
            if (workers->is_over())
                return true;
            if (ms > WORKERS_STUCK_MS) {
                crew_check(false, "%s: worker %u hangs", workers->name, worker);
                return false;
            }
            sleep_us(1000);
        }
    }
    return true;
}

/* Sees that all get on once more, and kills them. */
static inline void workers_end(struct workers *workers)
{
    workers_get_on(workers);
    for (unsigned i = 0; i < WORKERS; i++) {
        kill(workers->pids[i], SIGKILL);
        waitpid(workers->pids[i], NULL, 0);
    }
}

#endif
