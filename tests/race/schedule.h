/* SPDX-License-Identifier: MIT */
/*
 * A machine on which a seed, or a plan, decides which task goes on. Its tasks run src/table as it
 * is, each on a stack of its own and as a process of its own, and give way at every access to
 * shared memory (schedule_hook.h): there a task may be passed over, stopped for long or killed. The
 * same seed or plan makes the same schedule, step by step. Clocks, processes and waits are the
 * machine's. There is one machine, for one thread.
 *
 * A plan is a list of turns. In its turn a task runs alone until it has passed a number of points,
 * and is stopped, or killed, before the next. A point is an access to a word that several tasks
 * use and one of them writes: what a task does between two points is the same to the others
 * wherever it is stopped there. A task that waits, doing the same again and again, passes points in
 * the first two rounds only.
 */
#ifndef STINT_TESTS_RACE_SCHEDULE_H
#define STINT_TESTS_RACE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SCHEDULE_TASKS_MAX 5
#define SCHEDULE_TURNS_MAX 12
#define SCHEDULE_TO_END UINT32_MAX

struct schedule_turn {
    uint32_t points; /* SCHEDULE_TO_END: until the task has ended */
    uint8_t task;
    bool kills;
};

struct schedule {
    /* NULL: the seed decides. After the last turn the tasks run to their ends, one by one. */
    const struct schedule_turn *turns;
    unsigned n_turns;
    uint64_t seed;
    unsigned tasks;
    uint32_t stops, kills;  /* 1 in so many steps stops its task, or kills it; 0: none does */
    uint32_t stopped_steps; /* a stopped one goes on after less than so many */
    uint32_t lost_swaps; /* 1 in so many 16-byte swaps writes whatever is there: a planted fault */
    void (*work)(unsigned task, uint64_t seed); /* what each task does, and a seed of its own */
};

struct schedule_end {
    bool hung;       /* some task waited in vain, and all were given up */
    unsigned killed; /* never all */
    /* Of a plan: a word turned out to be a point that was none before. So count points anew. */
    bool has_new_points;
    uint32_t points[SCHEDULE_TURNS_MAX]; /* passed in each turn */
    unsigned waits;                      /* the most pauses in one turn */
};

/* The next of the random numbers that `random` stands for. */
uint64_t schedule_draw(uint64_t *random);

/* The machine has just booted, and nothing runs on it yet. */
void schedule_boot(void);

/* Plans have their points in this memory; which words are points is forgotten. */
void schedule_watch(const void *memory, size_t size);

/* Runs all tasks to their ends. */
struct schedule_end schedule_run(const struct schedule *schedule);

/* What the table comes to at each access to shared memory, its sched_yield, getpid and kill. */
void schedule_access(const volatile void *at, bool writes);
void schedule_wait(void);
bool schedule_loses_swap(void);
pid_t schedule_pid(void);
int schedule_signal(pid_t pid, int signal);

#endif
