/* SPDX-License-Identifier: MIT */
/*
 * A hot key that is denied: against hash, load and swap on the lines of this one key, which stay in
 * the nearest cache, and on those of all keys in turn; two threads against one; and that it is only
 * read, which is tried out: with the region's pages made read-only, a store or a
 * swap, even one that changes nothing, would kill the asker.
 *
 * now goes on by 1 ns per take. Once in a millisecond of it the region's mark is written (the
 * latest now that anybody came with); the trial stays within one.
 */
#include "crew.h"
#include "load.h"

#include "table/table.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIAL_OPS 500000
#define SEQUENCE_LEN ((size_t)1 << 22)

static void ask(void *arg, unsigned turn)
{
    struct load *load = arg;
    struct key key = key_of(0);
    (void)turn;
    for (uint64_t i = 0; i < load->ops; i++)
        load->denied +=
            stint_take(load->table, &load->quota, &key, KEY_LEN, 1, load->now_ns + i).outcome ==
            STINT_DENY;
    load->asked += load->ops;
    load->now_ns += load->ops;
}

static void exhaust(struct load *load)
{
    struct key key = key_of(0);
    while (stint_take(load->table, &load->quota, &key, KEY_LEN, 1, load->now_ns).outcome !=
           STINT_DENY) {
    }
    load->denied = load->asked = 0;
}

/* In a child, so that a store ends only that. */
static bool only_reads(const struct load *load)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct load trial = *load;
        struct region *region = &trial.table->region;
        trial.now_ns +=
            NS_PER_MS; /* the mark is written now, and not before the next millisecond */
        trial.ops = 1;
        ask(&trial, 0);
        trial.ops = TRIAL_OPS;
        trial.denied = 0;
        signal(SIGSEGV, SIG_DFL);
        if (mprotect(region->header, region->map_size, PROT_READ) != 0)
            _exit(1);
        ask(&trial, 0);
        _exit(trial.denied == TRIAL_OPS ? 0 : 2);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        fprintf(stderr, "bench_denied: cannot fork\n");
        exit(1);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        fprintf(stderr, "bench_denied: the trial failed (%d)\n", WEXITSTATUS(status));
        exit(1);
    }
    return !WIFSIGNALED(status);
}

static void row_speed(const struct bench_options *options, const struct load_form *form,
                      struct load *load, const char *against, enum goal goal)
{
    struct row row;
    char what[64], note[64];
    snprintf(what, sizeof(what), "%s, a denied hot key, %s", form->words, against);
    struct duel duel = {
        .what = what,
        .baseline_name =
            load_is_small(load) ? "hash, load, swap of 8 bytes" : "hash, load, swap of 16 bytes",
        .baseline = load_is_small(load) ? load_bare8 : load_bare16,
        .subject = ask,
        .arg = load,
        .ops = load->ops,
        .goal = goal,
        .reach = 1.5,
    };
    duel_run(options, &duel, &row);
    snprintf(note, sizeof(note), "%.1f %% denied",
             100.0 * (double)load->denied / (double)(load->asked > 0 ? load->asked : 1));
    row.note = note;
    row_report(options, &row);
}

static void row_stores(const struct bench_options *options, const struct load_form *form,
                       const struct load *load)
{
    struct row row = {.unit = "",
                      .note = "0: the region's pages may be read-only",
                      .goal = GOAL_AT_MOST,
                      .reach = 0};
    char what[64];
    snprintf(what, sizeof(what), "%s, denied: writes to shared lines", form->words);
    row.what = what;
    row_add(&row, 0, only_reads(load) ? 0 : 1);
    row_report(options, &row);
}

static void row_threads(const struct bench_options *options, const struct load_form *form,
                        const struct load *load)
{
    struct load loads[2] = {*load, *load};
    void *args[2] = {&loads[0], &loads[1]};
    loads[0].ops = loads[1].ops = load->ops / 16; /* short turns have a chance to go undisturbed */
    struct row row = {.baseline = "1 thread",
                      .unit = "ns",
                      .speed_up = true,
                      .goal = GOAL_AT_LEAST,
                      .reach = 1.6};
    char what[64], note[64];
    double had = 0;
    snprintf(what, sizeof(what), "%s, a denied hot key, 2 threads", form->words);
    row.what = what;
    row.note = note;
    for (unsigned turn = 0; turn <= options->turns; turn++) {
        struct crew_time one = crew_run_undisturbed(1, ask, args, turn);
        struct crew_time two = crew_run_undisturbed(2, ask, args, turn);
        if (turn == 0)
            continue;
        row_add(&row, one.wall_ns / (double)loads[0].ops, two.wall_ns / (double)loads[0].ops / 2);
        had += two.run_ns / two.wall_ns / options->turns;
    }
    snprintf(note, sizeof(note), "the two had their processors %.0f %% of the time", 100 * had);
    row_report(options, &row);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    uint32_t n_keys = options.keys > 0 ? (uint32_t)options.keys : options.quick ? 10000 : 1000000;
    for (size_t i = 0; i < LOAD_FORMS; i++) {
        struct load load;
        if (!bench_wants(options.algorithm, load_forms[i].name))
            continue;
        load_open(&load, &options, &load_forms[i], n_keys);
        exhaust(&load);
        load.sequence = sequence_uniform(1, 1, 1);
        row_speed(&options, &load_forms[i], &load, "hot lines", GOAL_AT_MOST);
        sequence_free(&load.sequence);
        load.sequence = sequence_uniform(n_keys, SEQUENCE_LEN, 1);
        row_speed(&options, &load_forms[i], &load, "random lines", GOAL_AT_MOST);
        row_stores(&options, &load_forms[i], &load);
        row_threads(&options, &load_forms[i], &load);
        sequence_free(&load.sequence);
        load_close(&load);
    }
    return 0;
}
