/* SPDX-License-Identifier: MIT */
/*
 * A merge of sorted runs. Logs are nearly sorted, so that few runs overlap: the run whose event was
 * taken moves up only past those that overlap it.
 */
#define _GNU_SOURCE
#include "cmd/lib/event_sorter.h"

#include "cmd/lib/file_at.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_EVENTS 4096 /* of a run: 96 KiB */

struct event_run {
    uint64_t next, end; /* events in the file that are not in the buffer */
    size_t number;
    struct event_entry *buffer;
    size_t at, n; /* of the buffer */
};

void event_sorter_init(struct event_sorter *sorter, size_t held_max)
{
    assert(held_max > 0);
    *sorter = (struct event_sorter){.held_max = held_max, .fd = -1};
}

void event_sorter_deinit(struct event_sorter *sorter)
{
    for (size_t i = 0; i < sorter->n_runs; i++)
        free(sorter->runs[i].buffer);
    free(sorter->runs);
    event_list_deinit(&sorter->held);
    if (sorter->fd >= 0)
        close(sorter->fd);
    event_sorter_init(sorter, sorter->held_max);
}

/* ---- The file -------------------------------------------------------------------------------- */

#define FOLDER_USUAL "/var/tmp"

static int failed(const char *what, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM,
                   "cannot %s a temporary file in %s for sorting: %s; choose another folder with "
                   "TMPDIR, or keep the order of the lines with --no-sort",
                   what, folder_temporary(FOLDER_USUAL), strerror(errno));
}

/* Reads or writes `n` events at event `at` of the file. */
static int move_events(const struct event_sorter *sorter, bool is_write, struct event_entry *events,
                       size_t n, uint64_t at, struct stint_error *error)
{
    size_t size = n * sizeof(*events);
    off_t offset = (off_t)(at * sizeof(*events));
    bool is_moved = is_write ? file_write_at(sorter->fd, events, size, offset)
                             : file_read_at(sorter->fd, events, size, offset);
    return is_moved ? 0 : failed(is_write ? "write" : "read", error);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Sorts what is held and moves it to the file. */
static int spill(struct event_sorter *sorter, struct stint_error *error)
{
    size_t n = sorter->held.n_entries;
    struct event_run *runs = realloc(sorter->runs, (sorter->n_runs + 1) * sizeof(*runs));
    if (runs == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for sorting");
    sorter->runs = runs;
    int code = event_list_sort(&sorter->held, error);
    if (code == 0 && sorter->fd < 0)
        sorter->fd = file_unnamed(FOLDER_USUAL);
    if (code == 0 && sorter->fd < 0)
        code = failed("make", error);
    if (code == 0)
        code = move_events(sorter, true, sorter->held.entries, n, sorter->n_written, error);
    if (code != 0)
        return code;
    runs[sorter->n_runs] = (struct event_run){
        .next = sorter->n_written, .end = sorter->n_written + n, .number = sorter->n_runs};
    sorter->n_runs++;
    sorter->n_written += n;
    sorter->held.n_entries = 0;
    return 0;
}

int event_sorter_add(struct event_sorter *sorter, struct event_entry entry,
                     struct stint_error *error)
{
    assert(!sorter->begun);
    int code = sorter->held.n_entries < sorter->held_max ? 0 : spill(sorter, error);
    return code != 0 ? code : event_list_add(&sorter->held, entry, error);
}

static int fill(struct event_sorter *sorter, struct event_run *run, struct stint_error *error)
{
    uint64_t left = run->end - run->next;
    run->at = 0;
    run->n = left < BUFFER_EVENTS ? (size_t)left : BUFFER_EVENTS;
    uint64_t from = run->next;
    run->next += run->n;
    return move_events(sorter, false, run->buffer, run->n, from, error);
}

static bool is_before(const struct event_run *a, const struct event_run *b)
{
    uint64_t a_ns = a->buffer[a->at].at_ns, b_ns = b->buffer[b->at].at_ns;
    return a_ns < b_ns || (a_ns == b_ns && a->number < b->number);
}

/* Moves the run at `i` up, past those that come before it. */
static void move_up(struct event_sorter *sorter, size_t i)
{
    struct event_run run = sorter->runs[i];
    for (; i + 1 < sorter->n_runs && is_before(&sorter->runs[i + 1], &run); i++)
        sorter->runs[i] = sorter->runs[i + 1];
    sorter->runs[i] = run;
}

static int begin(struct event_sorter *sorter, struct stint_error *error)
{
    sorter->begun = true;
    if (sorter->n_runs == 0)
        return event_list_sort(&sorter->held, error);
    int code = spill(sorter, error);
    event_list_deinit(&sorter->held);
    for (size_t i = sorter->n_runs; code == 0 && i-- > 0;) {
        struct event_run *run = &sorter->runs[i];
        run->buffer = malloc(BUFFER_EVENTS * sizeof(*run->buffer));
        code = run->buffer == NULL ? err_set(error, STINT_E_SYSTEM, "out of memory for sorting")
                                   : fill(sorter, run, error);
        if (code == 0)
            move_up(sorter, i);
    }
    return code;
}

int event_sorter_next(struct event_sorter *sorter, struct event_entry *entry,
                      struct stint_error *error)
{
    int code = sorter->begun ? 0 : begin(sorter, error);
    if (code != 0)
        return code;
    if (sorter->n_runs == 0) {
        if (sorter->held_at == sorter->held.n_entries)
            return 0;
        *entry = sorter->held.entries[sorter->held_at++];
        return 1;
    }
    if (sorter->at == sorter->n_runs)
        return 0;
    struct event_run *run = &sorter->runs[sorter->at];
    *entry = run->buffer[run->at++];
    if (run->at == run->n && run->next < run->end)
        code = fill(sorter, run, error);
    if (run->at == run->n) /* the run has ended */
        sorter->at++;
    else if (code == 0)
        move_up(sorter, sorter->at);
    return code != 0 ? code : 1;
}
