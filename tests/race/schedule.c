/* SPDX-License-Identifier: MIT */
/* The tasks of a schedule and who of them goes on, the machine's clocks and its processes. */
#include "race/schedule.h"

#include "table/clock.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#define STACK_SIZE (512 << 10)
#define PID_FIRST 4000000
#define STEP_NS 30000 /* so that an owner's patience ends within a few hundred steps */
#define STEPS_MAX 2000000

enum task_state { TASK_READY, TASK_STOPPED, TASK_KILLED, TASK_DONE };

struct task {
    ucontext_t context;
    enum task_state state;
    uint64_t wakes_at; /* step at which a stopped one goes on */
    uint64_t seed;
};

static struct {
    const struct schedule *schedule; /* NULL: a table is being made, or looked at in the end */
    struct task tasks[SCHEDULE_TASKS_MAX];
    ucontext_t main;
    unsigned current;
    uint64_t random, steps, boot_ns, switch_mask;
    struct schedule_end end;
} machine;

#define WORDS_MAX (1 << 16) /* that are watched */
#define READS_MAX 2         /* of one word in a row that are points */
#define ROUND_MAX 1024      /* accesses between two pauses that are compared */

struct word {
    uint8_t users, writers; /* bits of tasks */
};

/* What a task accesses from one pause to the next. */
struct round {
    size_t n;
    uint32_t accesses[ROUND_MAX];
};

static struct {
    const char *memory;
    size_t n_words;
    struct word words[WORDS_MAX];
    unsigned turn;
    /* Of the task whose turn it is. */
    struct round round, before;
    bool is_like_before;    /* `round`, up to here */
    unsigned pauses, alike; /* in this turn; how many rounds were alike, one after the other */
    size_t last;            /* the word that it read last, and how often in a row */
    unsigned reads;
} plan;

static char stacks[SCHEDULE_TASKS_MAX][STACK_SIZE];

uint64_t schedule_draw(uint64_t *random)
{
    uint64_t mixed = (*random += UINT64_C(0x9E3779B97F4A7C15));
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

/* ---- The system ------------------------------------------------------------------------------ */

struct ticks clock_ticks; /* no line: the clock is read each time */

uint64_t clock_boot_read(void)
{
    return machine.boot_ns;
}

int64_t clock_wall_ns(void)
{
    return (int64_t)machine.boot_ns;
}

uint64_t clock_boot_id(void)
{
    return 1;
}

uint64_t clock_space_id(void)
{
    return 1;
}

pid_t schedule_pid(void)
{
    return (pid_t)(PID_FIRST + machine.current);
}

int schedule_signal(pid_t pid, int signal)
{
    unsigned task = (unsigned)(pid - PID_FIRST);
    assert(signal == 0);
    if (task < SCHEDULE_TASKS_MAX && machine.tasks[task].state != TASK_KILLED)
        return 0;
    errno = ESRCH;
    return -1;
}

/* ---- Who goes on ----------------------------------------------------------------------------- */

static bool is_running(struct task *task)
{
    if (task->state == TASK_STOPPED && machine.steps >= task->wakes_at)
        task->state = TASK_READY;
    return task->state == TASK_READY;
}

/* Somebody who can go on; with nobody left but stopped ones, they go on. -1: all is done. */
static int pick(void)
{
    unsigned n = machine.schedule->tasks, from = (unsigned)(schedule_draw(&machine.random) % n);
    for (unsigned i = 0; i < n; i++)
        if (is_running(&machine.tasks[(from + i) % n]))
            return (int)((from + i) % n);
    for (unsigned i = 0; i < n; i++) {
        struct task *task = &machine.tasks[(from + i) % n];
        if (task->state != TASK_STOPPED)
            continue;
        task->state = TASK_READY;
        return (int)((from + i) % n);
    }
    return -1;
}

static void go_on_with(int next)
{
    struct task *before = &machine.tasks[machine.current];
    if (next == (int)machine.current)
        return;
    if (next >= 0)
        machine.current = (unsigned)next;
    swapcontext(&before->context, next < 0 ? &machine.main : &machine.tasks[next].context);
}

/* One in so many sides of the dice: this one. */
static bool comes_up(uint64_t dice, uint32_t sides, uint32_t side)
{
    return sides > 0 && dice % sides == side;
}

static void step(void)
{
    const struct schedule *schedule = machine.schedule;
    machine.boot_ns += STEP_NS;
    if (schedule == NULL)
        return;
    struct task *task = &machine.tasks[machine.current];
    if (++machine.steps > STEPS_MAX) {
        machine.end.hung = true;
        swapcontext(&task->context, &machine.main);
    }
    if (schedule->turns != NULL)
        return;
    uint64_t dice = schedule_draw(&machine.random);
    if (comes_up(dice, schedule->stops, 1)) {
        task->state = TASK_STOPPED;
        task->wakes_at = machine.steps + (dice >> 32) % schedule->stopped_steps;
    } else if (comes_up(dice, schedule->kills, 2) && machine.end.killed + 1 < schedule->tasks) {
        task->state = TASK_KILLED;
        machine.end.killed++;
    } else if ((dice >> 16 & machine.switch_mask) != 0) {
        return;
    }
    go_on_with(pick());
}

/* ---- Plans ----------------------------------------------------------------------------------- */

void schedule_watch(const void *memory, size_t size)
{
    assert(size / sizeof(uint64_t) <= WORDS_MAX);
    plan.memory = memory;
    plan.n_words = size / sizeof(uint64_t);
    memset(plan.words, 0, sizeof(plan.words));
}

/* The task of the first turn, from this one on, that can go on. -1: all is done. */
static int turn_to(unsigned turn)
{
    const struct schedule *schedule = machine.schedule;
    for (; turn < schedule->n_turns; turn++) {
        unsigned task = schedule->turns[turn].task;
        plan.turn = turn;
        if (machine.tasks[task].state == TASK_READY)
            return (int)task;
    }
    plan.turn = turn;
    for (unsigned i = 0; i < schedule->tasks; i++)
        if (machine.tasks[i].state == TASK_READY)
            return (int)i;
    return -1;
}

/* The turn of another task, or of none, begins. */
static void rounds_begin(void)
{
    plan.round.n = plan.before.n = 0;
    plan.is_like_before = false;
    plan.pauses = plan.alike = plan.reads = 0;
}

/* Whether the task does in this round what it did in the two before. */
static bool rounds_access(size_t index)
{
    struct round *round = &plan.round;
    if (round->n == ROUND_MAX)
        return false;
    if (round->n >= plan.before.n || plan.before.accesses[round->n] != index)
        plan.is_like_before = false;
    round->accesses[round->n++] = (uint32_t)index;
    return plan.is_like_before && plan.alike >= 1;
}

static void rounds_pause(void)
{
    plan.alike = plan.is_like_before && plan.round.n == plan.before.n ? plan.alike + 1 : 0;
    plan.before.n = plan.round.n;
    memcpy(plan.before.accesses, plan.round.accesses, plan.round.n * sizeof(uint32_t));
    plan.round.n = 0;
    plan.is_like_before = true;
    if (++plan.pauses > machine.end.waits)
        machine.end.waits = plan.pauses;
}

static bool is_shared(const struct word *word)
{
    return word->writers != 0 && (word->users & (word->users - 1)) != 0;
}

/* Whether the task reads one word again and again. */
static bool spins(size_t index, bool writes)
{
    plan.reads = writes ? 0 : plan.last == index ? plan.reads + 1 : 1;
    plan.last = index;
    return plan.reads > READS_MAX;
}

/* Whether the task comes to a point. */
static bool comes_to_point(struct word *word, bool writes)
{
    const uint8_t bit = (uint8_t)(1u << machine.current);
    bool was_shared = is_shared(word);
    word->users |= bit;
    word->writers |= writes ? bit : 0;
    if (is_shared(word) && !was_shared)
        machine.end.has_new_points = true;
    return is_shared(word);
}

/* Before the access at a point: ends the turn if it has had its points. */
static void pass_point(void)
{
    const struct schedule *schedule = machine.schedule;
    if (plan.turn == schedule->n_turns)
        return;
    const struct schedule_turn *turn = &schedule->turns[plan.turn];
    if (machine.end.points[plan.turn] == turn->points) {
        if (turn->kills) {
            machine.tasks[machine.current].state = TASK_KILLED;
            machine.end.killed++;
        }
        rounds_begin();
        go_on_with(turn_to(plan.turn + 1));
        pass_point(); /* of the turn in which the task goes on */
        return;
    }
    machine.end.points[plan.turn]++;
}

void schedule_wait(void)
{
    step();
    if (machine.schedule != NULL && machine.schedule->turns != NULL)
        rounds_pause();
}

void schedule_access(const volatile void *at, bool writes)
{
    const struct schedule *schedule = machine.schedule;
    step();
    if (schedule == NULL || schedule->turns == NULL)
        return;
    size_t index = (size_t)((const volatile char *)at - plan.memory) / sizeof(uint64_t);
    if (index >= plan.n_words)
        return; /* of one task alone */
    bool repeats = rounds_access(index), spinning = spins(index, writes);
    if (!repeats && !spinning && comes_to_point(&plan.words[index], writes))
        pass_point();
}

bool schedule_loses_swap(void)
{
    const struct schedule *schedule = machine.schedule;
    return schedule != NULL && schedule->lost_swaps > 0 &&
           schedule_draw(&machine.random) % schedule->lost_swaps == 0;
}

/* ---- A schedule ------------------------------------------------------------------------------ */

static void task_main(unsigned number)
{
    struct task *task = &machine.tasks[number];
    machine.schedule->work(number, task->seed);
    task->state = TASK_DONE;
    rounds_begin();
    go_on_with(machine.schedule->turns != NULL ? turn_to(plan.turn + 1) : pick());
}

static void make_task(unsigned number)
{
    struct task *task = &machine.tasks[number];
    task->state = TASK_READY;
    task->seed = schedule_draw(&machine.random);
    getcontext(&task->context);
    task->context.uc_stack.ss_sp = stacks[number];
    task->context.uc_stack.ss_size = STACK_SIZE;
    task->context.uc_link = &machine.main;
    makecontext(&task->context, (void (*)(void))task_main, 1, number);
}

void schedule_boot(void)
{
    machine.schedule = NULL;
    machine.boot_ns = 1000;
    machine.current = 0;
}

struct schedule_end schedule_run(const struct schedule *schedule)
{
    static const uint64_t masks[] = {0, 1, 3, 15, 63};
    machine.random = schedule->seed;
    machine.steps = 0;
    machine.end = (struct schedule_end){.hung = false};
    machine.switch_mask = masks[schedule_draw(&machine.random) % 5];
    for (unsigned i = 0; i < schedule->tasks; i++)
        make_task(i);
    machine.schedule = schedule;
    machine.current = 0;
    rounds_begin();
    if (schedule->turns != NULL)
        machine.current = (unsigned)turn_to(0);
    swapcontext(&machine.main, &machine.tasks[machine.current].context);
    machine.schedule = NULL;
    return machine.end;
}
