/* SPDX-License-Identifier: MIT */
/* Threads that begin together, each on a processor of its own, and how long they took. */
#define _GNU_SOURCE
#include "crew.h"

#include "measure.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define UNDISTURBED 0.97 /* of the time on the wall, the threads have run */

struct member {
    pthread_t thread;
    pthread_barrier_t *start;
    void (*run)(void *arg, unsigned turn);
    void *arg;
    unsigned turn, number;
    uint64_t begun_ns, ended_ns, ran_ns;
};

/* To the n-th of the processors we may use: two threads that share one would not meet at all. */
static void settle_on(unsigned number)
{
    cpu_set_t ours, one;
    if (sched_getaffinity(0, sizeof(ours), &ours) != 0)
        return;
    number %= (unsigned)CPU_COUNT(&ours);
    size_t cpu = 0;
    for (unsigned before = 0; !CPU_ISSET(cpu, &ours) || before++ < number; cpu++) {
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

static void *work(void *arg)
{
    struct member *member = arg;
    settle_on(member->number);
    pthread_barrier_wait(member->start);
    uint64_t before_ns = measure_thread_ns();
    member->begun_ns = measure_wall_ns();
    member->run(member->arg, member->turn);
    member->ended_ns = measure_wall_ns();
    member->ran_ns = measure_thread_ns() - before_ns;
    return NULL;
}

struct crew_time crew_run(unsigned n, void (*run)(void *arg, unsigned turn), void *const *args,
                          unsigned turn)
{
    struct member crew[CREW_MAX];
    struct crew_time time = {0, 0};
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, n);
    for (unsigned i = 0; i < n; i++) {
        crew[i] =
            (struct member){.start = &start, .run = run, .arg = args[i], .turn = turn, .number = i};
        if (pthread_create(&crew[i].thread, NULL, work, &crew[i]) != 0) {
            fprintf(stderr, "bench: cannot start a thread\n");
            exit(1);
        }
    }
    uint64_t begun_ns = UINT64_MAX, ended_ns = 0;
    for (unsigned i = 0; i < n; i++) {
        pthread_join(crew[i].thread, NULL);
        begun_ns = crew[i].begun_ns < begun_ns ? crew[i].begun_ns : begun_ns;
        ended_ns = crew[i].ended_ns > ended_ns ? crew[i].ended_ns : ended_ns;
        time.run_ns += (double)crew[i].ran_ns / n;
    }
    pthread_barrier_destroy(&start);
    time.wall_ns = (double)(ended_ns - begun_ns);
    return time;
}

struct crew_time crew_run_undisturbed(unsigned n, void (*run)(void *arg, unsigned turn),
                                      void *const *args, unsigned turn)
{
    struct crew_time best = {1, 0};
    for (unsigned i = 0; i < CREW_ATTEMPTS_MAX && best.run_ns < UNDISTURBED * best.wall_ns; i++) {
        struct crew_time time = crew_run(n, run, args, turn + i);
        if (time.run_ns / time.wall_ns > best.run_ns / best.wall_ns)
            best = time;
    }
    return best;
}
