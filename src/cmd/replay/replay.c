/* SPDX-License-Identifier: MIT */
/* `stint replay`: from the source, through the run, to the report. */
#define _GNU_SOURCE
#include "cmd/replay/replay.h"

#include "cmd/lib/cmd.h"
#include "cmd/lib/interrupt.h"
#include "cmd/lib/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STDOUT_BUFFER (1u << 20)

struct replay {
    struct replay_options options;
    struct replay_source source;
    struct replay_rules *rules; /* NULL without --rules */
    struct replay_run run;
    struct event_list sorted;
    struct progress progress;
};

/* The event with its key as a number. */
static int number_key(struct replay *replay, const struct event *event, struct event_entry *entry,
                      struct stint_error *error)
{
    *entry = (struct event_entry){
        .at_ns = event->at_ns, .cost = event->cost, .decimals = event->decimals};
    return key_set_add(&replay->run.names, event->key, &entry->key, error);
}

/* Decides the next event; opens the table for the first one. */
static int decide(struct replay *replay, struct event_entry entry, struct stint_error *error)
{
    int code = replay->run.table != NULL ? 0 : replay_run_open(&replay->run, entry.at_ns, error);
    return code != 0 ? code : replay_run_add(&replay->run, entry, error);
}

/* Reads all events, and decides them at once or, if they are to be sorted, keeps them. */
static int read_all(struct replay *replay, struct stint_error *error)
{
    struct event event;
    int code;
    for (uint64_t n = 0; (code = replay_source_next(&replay->source, &event, error)) > 0; n++) {
        struct event_entry entry;
        code = number_key(replay, &event, &entry, error);
        if (code == 0)
            code = replay->options.source.sort ? event_list_add(&replay->sorted, entry, error)
                                               : decide(replay, entry, error);
        if (code != 0)
            return code;
        if (n % REPLAY_BATCH != 0)
            continue;
        progress_step(&replay->progress, replay->source.input.bytes_read);
        if (ferror(stdout) || interrupt_seen())
            return 0; /* no output is read any more; see main.c */
    }
    return code;
}

static int decide_sorted(struct replay *replay, struct stint_error *error)
{
    int code = event_list_sort(&replay->sorted, error);
    for (size_t i = 0;
         code == 0 && i < replay->sorted.n_entries && !ferror(stdout) && !interrupt_seen(); i++)
        code = decide(replay, replay->sorted.entries[i], error);
    return code;
}

static int replay_all(struct replay *replay, struct stint_error *error)
{
    int code = read_all(replay, error);
    if (code == 0)
        code = decide_sorted(replay, error);
    /* If the input breaks off, the decisions up to there were made, and are shown. */
    struct stint_error ignored;
    int flushed = replay_run_flush(&replay->run, code == 0 ? error : &ignored);
    progress_end(&replay->progress);
    return code != 0 ? code : flushed;
}

static int report(struct replay *replay)
{
    if (!replay->options.decisions && !replay->options.json)
        replay_print_text(&replay->run, &replay->source);
    else if (!replay->options.decisions && replay_print_json(&replay->run, &replay->source) != 0)
        return CMD_BAD_INPUT;
    replay_warn(&replay->run, &replay->source);
    if (replay->run.events == 0 && replay->source.malformed > 0)
        return CMD_BAD_INPUT;
    bool draws = replay->options.plot.format != GNUPLOT_NONE;
    int code = draws ? replay_plot_draw(&replay->run) : CMD_DONE;
    return code == CMD_DONE && replay->run.differing > 0 ? CMD_DENIED : code;
}

/* The columns of the descriptors are the key. */
static int open_rules(struct replay *replay, struct stint_error *error)
{
    static const char *const store_names[] = {RULES_STORE_DEFAULT};
    struct replay_options *options = &replay->options;
    struct rules_load_options *load = &options->rules.files.load;
    if (options->rules.files.n_paths == 0)
        return 0;
    if (options->store.text != NULL) { /* the store of rules that name none */
        load->stores = store_names;
        load->n_stores = load->default_store = 1;
    }
    int code = replay_rules_open(&replay->rules, &options->rules, error);
    if (code != 0)
        return code;
    options->source.key = replay->rules->key_expr;
    if (options->source.format == REPLAY_TRACE && strcmp(options->source.key, "key") != 0)
        return err_set(error, STINT_E_SYNTAX,
                       "--descriptors: a trace has one column, key, such as 'ip=key'");
    return 0;
}

static int run(struct replay *replay)
{
    struct stint_error error;
    if (open_rules(replay, &error) != 0) {
        print_message("%s", error.message);
        return CMD_BAD_INPUT;
    }
    if (replay->options.source.path == NULL && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        fputs("Reading events from standard input; ^D ends.\n", stderr);
    if (replay_source_open(&replay->source, &replay->options.source, &error) != 0) {
        print_message("%s", error.message);
        return CMD_BAD_INPUT;
    }
    int result = CMD_BAD_INPUT;
    progress_begin(&replay->progress, replay->source.input.size);
    if (replay_run_init(&replay->run, &replay->options, replay->rules, &error) != 0 ||
        replay_all(replay, &error) != 0) {
        print_message("%s", error.message);
    } else {
        result = report(replay);
    }
    if (interrupt_seen())
        print_message("ended by a signal: what came behind is not decided");
    if (replay_run_clean(&replay->run, &error) != 0) {
        print_message("%s", error.message);
        result = CMD_BAD_INPUT;
    }
    replay_run_deinit(&replay->run);
    event_list_deinit(&replay->sorted);
    replay_source_close(&replay->source);
    return result;
}

int replay_main(int argc, char **argv)
{
    struct replay *replay = calloc(1, sizeof(*replay));
    if (replay == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    replay_options_parse(&replay->options, argc, argv);
    setvbuf(stdout, NULL, _IOFBF, STDOUT_BUFFER);
    if (replay->options.store.text != NULL)
        interrupt_catch_all(); /* the store is to be left as it was */
    int result = run(replay);
    replay_rules_close(replay->rules);
    rules_given_free(&replay->options.rules.files);
    free(replay);
    return result;
}
