/* SPDX-License-Identifier: MIT */
/*
 * Two threads on one table of many keys against one: how many times as much they do in the same
 * time by the clock on the wall. On a machine that others use too, a turn in which the threads were
 * kept from running is taken again; the note says how much of their time they had in the end. The
 * time that they ran says what they cost each other, whatever else goes on.
 */
#include "crew.h"
#include "load.h"

#include <stdlib.h>

#define THREADS 2

struct pace {
    void (*run)(void *arg, unsigned turn);
    const char *what;
    enum goal goal;
};

/* An operation of the crew takes the time of the turn over all that both did in it. */
static void compare(const struct bench_options *options, const struct pace *pace,
                    struct load *loads)
{
    void *args[THREADS] = {&loads[0], &loads[1]};
    double ops = (double)loads[0].ops, had = 0;
    char by_run[96], note[64];
    snprintf(by_run, sizeof(by_run), "%s, by time run", pace->what);
    struct row wall = {.what = pace->what,
                       .baseline = "1 thread",
                       .unit = "ns",
                       .note = note,
                       .speed_up = true,
                       .goal = pace->goal,
                       .reach = 1.6};
    struct row run = {.what = by_run, .baseline = "1 thread", .unit = "ns", .speed_up = true};
    for (unsigned turn = 0; turn <= options->turns; turn++) {
        unsigned first = 2 * turn * CREW_ATTEMPTS_MAX, second = first + CREW_ATTEMPTS_MAX;
        struct crew_time one = crew_run_undisturbed(1, pace->run, args, first);
        struct crew_time two = crew_run_undisturbed(THREADS, pace->run, args, second);
        if (turn == 0)
            continue;
        row_add(&wall, one.wall_ns / ops, two.wall_ns / ops / THREADS);
        row_add(&run, one.run_ns / ops, two.run_ns / ops / THREADS);
        had += two.run_ns / two.wall_ns / options->turns;
    }
    snprintf(note, sizeof(note), "the two had their processors %.0f %% of the time", 100 * had);
    row_report(options, &wall);
    row_report(options, &run);
}

static void run(const struct bench_options *options, const struct load_form *form, uint32_t n_keys)
{
    struct load loads[THREADS];
    char what[64], bare[64];
    size_t sequence_len = options->quick ? (size_t)1 << 20 : (size_t)1 << 24;
    load_open(&loads[0], options, form, n_keys);
    loads[0].sequence = sequence_uniform(n_keys, sequence_len, 1);
    loads[1] = loads[0];
    loads[1].first_op = sequence_len / 2;
    snprintf(what, sizeof(what), "%s, %u k keys, 2 threads", form->words, n_keys / 1000);
    snprintf(bare, sizeof(bare), "hash, load, swap, %u k keys, 2 threads", n_keys / 1000);
    for (unsigned i = 0; i < THREADS; i++)
        loads[i].ops /= 16; /* short turns have a chance to go undisturbed */
    void (*bare_run)(void *, unsigned) = load_is_small(loads) ? load_bare8 : load_bare16;
    compare(options, &(struct pace){load_single, what, GOAL_AT_LEAST}, loads);
    compare(options, &(struct pace){bare_run, bare, GOAL_NONE}, loads);
    sequence_free(&loads[0].sequence);
    load_close(&loads[0]);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    uint32_t n_keys = options.quick ? 100000 : 1000000;
    if (options.keys > 0)
        n_keys = (uint32_t)options.keys;
    for (size_t i = 0; i < LOAD_FORMS; i++)
        if (bench_wants(options.algorithm, load_forms[i].name))
            run(&options, &load_forms[i], n_keys);
    return 0;
}
