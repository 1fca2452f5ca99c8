/* SPDX-License-Identifier: MIT */
/*
 * A machine on which a seed decides who goes on. Its tasks run src/store as it is, each on a stack
 * of its own and as a process of its own, and give way at every access to shared memory
 * (schedule_hook.h): there a task may be passed over, stopped for long or killed. The same seed
 * makes the same schedule, step by step. Clocks, processes and waits are the machine's. There is
 * one machine, for one thread.
 */
#ifndef STINT_TESTS_RACE_SCHEDULE_H
#define STINT_TESTS_RACE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SCHEDULE_TASKS_MAX 5

struct schedule {
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
};

/* The next of the random numbers that `random` stands for. */
uint64_t schedule_draw(uint64_t *random);

/* The machine has just booted, and nothing runs on it yet. */
void schedule_boot(void);

/* Runs all tasks to their ends. */
struct schedule_end schedule_run(const struct schedule *schedule);

/* What the store comes to at each access to shared memory, and its getpid and kill. */
void schedule_step(void);
bool schedule_loses_swap(void);
pid_t schedule_pid(void);
int schedule_signal(pid_t pid, int signal);

#endif
