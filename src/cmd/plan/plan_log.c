/* SPDX-License-Identifier: MIT */
/*
 * The log of `stint plan` in memory. Its times are those of `stint replay`: late lines are moved to
 * the latest time seen, and 0 is the same midnight, so that slots begin at the same times.
 */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/plan/plan.h"

#include <string.h>
#include <sys/random.h>

#define STEP 256 /* events between two updates of the progress bar */

static int read_all(struct plan_log *log, struct event_list *events, struct source *source,
                    struct stint_error *error)
{
    struct progress progress;
    struct event event;
    int code;
    progress_begin(&progress, source->input.size);
    while ((code = source_next(source, &event, error)) > 0) {
        struct event_entry entry = {.at_ns = event.at_ns, .cost = event.cost};
        code = key_set_add(&log->names, event.key, &entry.key, error);
        if (code == 0)
            code = event_list_add(events, entry, error);
        if (code != 0)
            break;
        if (events->n_entries % STEP == 0)
            progress_step(&progress, source->input.bytes_read);
    }
    progress_end(&progress);
    return code;
}

static void put_in_order(struct plan_log *log, struct event_list *events)
{
    log->first_ns = log->last_ns = events->entries[0].at_ns;
    uint64_t latest_ns = 0;
    for (size_t i = 0; i < events->n_entries; i++) {
        uint64_t *at_ns = &events->entries[i].at_ns;
        log->first_ns = *at_ns < log->first_ns ? *at_ns : log->first_ns;
        log->late += *at_ns < latest_ns;
        latest_ns = *at_ns > latest_ns ? *at_ns : latest_ns;
        *at_ns = latest_ns;
    }
    log->last_ns = latest_ns;
}

static int group(struct plan_log *log, struct event_list *events,
                 const struct source_options *source, struct stint_error *error)
{
    int code = source->sort ? event_list_sort(events, error) : 0;
    if (code != 0)
        return code;
    if (events->n_entries == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "%s holds no request that can be read; is it another --format?", log->name);
    put_in_order(log, events);
    uint64_t first_ns = events->entries[0].at_ns;
    uint64_t epoch_ns = source->format == SOURCE_TRACE ? 0 : first_ns - first_ns % NS_PER_DAY;
    return traffic_init(&log->traffic, events, log->names.n_keys, epoch_ns, error);
}

int plan_log_read(struct plan_log *log, const struct plan_options *options,
                  struct stint_error *error)
{
    uint64_t secret[2];
    struct source source;
    struct event_list events = {0};
    *log = (struct plan_log){0};
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    key_set_init(&log->names, secret);
    int code = source_open(&source, &options->source, error);
    if (code != 0)
        return code;
    log->name = source.input.name;
    code = read_all(log, &events, &source, error);
    log->lines = source.reader.line_number;
    log->malformed = source.malformed;
    source_close(&source);
    if (code == 0)
        code = group(log, &events, &options->source, error);
    event_list_deinit(&events);
    return code;
}

void plan_log_free(struct plan_log *log)
{
    traffic_deinit(&log->traffic);
    key_set_deinit(&log->names);
}
