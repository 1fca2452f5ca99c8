/* SPDX-License-Identifier: MIT */
/*
 * Time from a counter: within 2 us of a kernel's clock, never back, and never wrong by more than a
 * span whatever the counter does. The machine is virtual; the last tests read the real one.
 */
#define _GNU_SOURCE
#include "unit/test_quota.h"

#include "base/ns.h"
#include "base/splitmix.h"
#include "table/clock.h"

#include <pthread.h>
#include <time.h>

#define CLOSE_NS 2000
#define SPAN (int64_t) TICKS_SPAN_NS

/* The counter counts `rate` ticks in 1000 ns. */
struct machine {
    uint64_t ns, count, rate, part, reads, random;
    uint64_t apart_ns; /* between the kernel's clock and the second count of a reading */
    bool steps_back;
};

/* A process: its lines, and the latest time that it computed. */
struct process {
    struct ticks ticks;
    uint64_t latest_ns;
};

static uint64_t draw(struct machine *machine)
{
    return splitmix_next(&machine->random) >> 33;
}

static void run(struct machine *machine, uint64_t ns)
{
    machine->ns += ns;
    machine->part += ns * machine->rate;
    machine->count += machine->part / 1000;
    machine->part %= 1000;
}

static uint64_t read_time(struct machine *machine, struct process *process)
{
    uint64_t sequence;
    uint64_t now_ns;
    if (!ticks_has_line(&process->ticks, &sequence) ||
        !ticks_at(&process->ticks, sequence, machine->count, &now_ns)) {
        struct ticks_reading reading = {.before = machine->count, .ns = machine->ns};
        run(machine, machine->apart_ns);
        reading.after = machine->count;
        machine->reads++;
        now_ns = ticks_learn(&process->ticks, &reading);
    }
    assert_true(now_ns >= process->latest_ns || machine->steps_back);
    process->latest_ns = now_ns;
    return now_ns;
}

/* How far the process is ahead of the kernel's clock. */
static int64_t off(struct machine *machine, struct process *process)
{
    uint64_t now_ns = read_time(machine, process);
    return (int64_t)(now_ns - machine->ns);
}

static struct machine machine_of(uint64_t rate)
{
    return (struct machine){.ns = 5000 * NS_PER_S, .count = 77, .rate = rate, .random = rate};
}

static void settle(struct machine *machine, struct process *process)
{
    for (unsigned i = 0; i < 40; i++) {
        read_time(machine, process);
        run(machine, NS_PER_MS);
    }
    assert_true(process->ticks.span_ticks != 0);
    assert_in_range(off(machine, process) + CLOSE_NS, 0, CLOSE_NS);
}

TEST(test_close_to_the_kernel_and_seldom_reads_it)
{
    for (uint64_t rate = 100; rate <= 6400; rate *= 2) {
        struct machine machine = machine_of(rate);
        struct process process = {.latest_ns = 0};
        settle(&machine, &process);
        machine.reads = 0;
        for (unsigned i = 0; i < 200000; i++) {
            run(&machine, draw(&machine) % 50000);
            machine.apart_ns = draw(&machine) % 300;
            int64_t tick_ns = 1000 / (int64_t)rate; /* what passes between two counts */
            assert_in_range(off(&machine, &process) + CLOSE_NS, 0, CLOSE_NS + tick_ns);
        }
        assert_in_range(machine.reads, 1000, 1300); /* 5 s, spans of 4 ms */
    }
}

TEST(test_long_gaps_and_a_wrap)
{
    struct machine machine = machine_of(2600);
    struct process process = {.latest_ns = 0};
    machine.count = UINT64_MAX - UINT64_C(2600000) * 60;
    settle(&machine, &process);
    for (unsigned i = 0; i < 300; i++) {
        assert_in_range(off(&machine, &process) + CLOSE_NS, 0, CLOSE_NS);
        run(&machine, draw(&machine) % (100 * NS_PER_MS));
    }
    run(&machine, 3600 * NS_PER_S);
    assert_in_range(off(&machine, &process) + CLOSE_NS, 0, CLOSE_NS);
    assert_int_equal(process.ticks.strikes, 0);
}

/* Whatever happened to the counter, the process is right again within two spans. */
static void recovers(struct machine *machine, struct process *process)
{
    for (uint64_t passed = 0; passed < 60 * NS_PER_MS; passed += 100000) {
        int64_t ahead_ns = off(machine, process);
        assert_in_range(ahead_ns + (passed <= TICKS_SPAN_NS ? SPAN : CLOSE_NS), 0,
                        passed <= 3 * TICKS_SPAN_NS ? 2 * SPAN : CLOSE_NS);
        run(machine, 100000);
    }
}

TEST(test_counter_jumps)
{
    static const int64_t jumps[] = {1000,  1000000,  7800000,      260000000000,
                                    -1000, -2600000, -260000000000};
    for (size_t i = 0; i < sizeof(jumps) / sizeof(*jumps); i++) {
        struct machine machine = machine_of(2600);
        struct process process = {.latest_ns = 0};
        settle(&machine, &process);
        machine.count += (uint64_t)jumps[i];
        /* Back within a line: time goes with it, which is why the kernel has to trust it. */
        machine.steps_back = jumps[i] < 0 && jumps[i] > -10000000;
        recovers(&machine, &process);
        machine.steps_back = false;
        settle(&machine, &process);
    }
}

TEST(test_counter_stops)
{
    struct machine machine = machine_of(2600);
    struct process process = {.latest_ns = 0};
    settle(&machine, &process);
    /* A suspend: it is late by the suspend until the counter has run for the rest of a span. */
    machine.ns += 3600 * NS_PER_S;
    uint64_t woken_ns = machine.ns;
    while (off(&machine, &process) < -CLOSE_NS)
        run(&machine, 100000);
    assert_in_range(machine.ns - woken_ns, 0, TICKS_SPAN_NS + 200000);
    settle(&machine, &process);
    /* For good: the first reading is never after the span, so time stands. */
    machine.count -= 100; /* but this is not within it */
    machine.rate = 0;
    for (unsigned i = 0; i < 1000; i++) {
        run(&machine, NS_PER_MS);
        assert_in_range(off(&machine, &process) + CLOSE_NS, 0, CLOSE_NS + SPAN);
    }
    assert_true(process.ticks.strikes > 0 && process.ticks.span_ticks == 0);
}

TEST(test_another_rate)
{
    static const uint64_t rates[] = {2599, 2620, 2000, 5200, 1000};
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        struct machine machine = machine_of(2600);
        struct process process = {.latest_ns = 0};
        settle(&machine, &process);
        machine.rate = rates[i];
        for (unsigned j = 0; j < 1000; j++) {
            run(&machine, 20000);
            assert_in_range(off(&machine, &process) + 2 * SPAN, 0, 3 * SPAN);
        }
        settle(&machine, &process);
    }
}

/* A counter that the kernel would not trust: after a while it is left alone. */
TEST(test_gives_up)
{
    struct machine machine = machine_of(2600);
    struct process process = {.latest_ns = 0};
    for (unsigned i = 0; i < 400 && !ticks_gave_up(&process.ticks); i++) {
        machine.rate = 1000 + draw(&machine) % 3000;
        run(&machine, 5 * NS_PER_MS);
        assert_in_range(off(&machine, &process) + SPAN, 0, 2 * SPAN);
    }
    assert_true(ticks_gave_up(&process.ticks));
    run(&machine, 2 * TICKS_SPAN_NS);
    assert_int_equal(off(&machine, &process), 0);
}

TEST(test_interrupted_readings_say_nothing)
{
    struct machine machine = machine_of(2600);
    struct process process = {.latest_ns = 0};
    machine.apart_ns = 100000;
    for (unsigned i = 0; i < 100; i++, run(&machine, NS_PER_MS))
        assert_int_equal(off(&machine, &process), -(int64_t)machine.apart_ns);
    assert_int_equal(process.ticks.span_ticks, 0);
    machine.apart_ns = 50;
    settle(&machine, &process);
}

/* A child that was forked into another time namespace goes by that. */
TEST(test_another_clock)
{
    struct machine machine = machine_of(2600);
    struct process process = {.latest_ns = 0};
    settle(&machine, &process);
    machine.ns -= 1000 * NS_PER_S;
    run(&machine, TICKS_SPAN_NS + NS_PER_MS);
    process.latest_ns = 0;
    assert_int_equal(off(&machine, &process), 0);
    settle(&machine, &process);
}

TEST(test_two_processes_agree)
{
    struct machine machine = machine_of(2600);
    struct process one = {.latest_ns = 0}, other = {.latest_ns = 0};
    for (unsigned i = 0; i < 100000; i++) {
        run(&machine, draw(&machine) % 40000);
        machine.apart_ns = draw(&machine) % 100;
        uint64_t one_ns = draw(&machine) % 3 != 0 ? read_time(&machine, &one) : machine.ns;
        machine.apart_ns = draw(&machine) % 100;
        uint64_t other_ns = draw(&machine) % 5 != 0 ? read_time(&machine, &other) : machine.ns;
        assert_in_range(one_ns - other_ns + CLOSE_NS, 0, 2 * CLOSE_NS);
    }
}

/* ---- The machine it runs on ------------------------------------------------------------------ */

static uint64_t boot_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* A test thread must not assert: false if time went back, or is ahead of the kernel's clock. */
static void *watch(void *went_well)
{
    uint64_t latest_ns = 0, begun_ns = boot_ns();
    bool well = true;
    while (boot_ns() - begun_ns < 100 * NS_PER_MS)
        for (unsigned i = 0; i < 1000; i++) {
            uint64_t now_ns = clock_boot_ns();
            well &= now_ns >= latest_ns;
            latest_ns = now_ns;
        }
    *(bool *)went_well = well && latest_ns <= boot_ns() + TICKS_SPAN_NS && latest_ns >= begun_ns;
    return NULL;
}

TEST(test_threads_of_this_machine)
{
    pthread_t threads[4];
    bool well[4] = {false};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, watch, &well[i]), 0);
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(well[i]);
    }
}

TEST(test_without_a_table)
{
    uint64_t first_ns = stint_now(NULL);
    assert_true(first_ns > 0 && stint_now(NULL) >= first_ns);
    assert_true(stint_now(NULL) <= boot_ns() + TICKS_SPAN_NS);
}
