/* SPDX-License-Identifier: MIT */
/* A log as a list of requests in memory, read by the readers of `stint replay`. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/lib/source.h"
#include "cmd/sim/sim_options.h"

#include <string.h>
#include <sys/random.h>

static enum source_format format_of(const struct workload_spec *spec)
{
    if (strcmp(spec->format, "combined") == 0)
        return SOURCE_COMBINED;
    return strcmp(spec->format, "jsonl") == 0 ? SOURCE_JSONL : SOURCE_TRACE;
}

static const char *given(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static int check_fields(const struct workload_spec *spec, struct stint_error *error)
{
    enum source_format format = format_of(spec);
    if (format == SOURCE_TRACE && spec->key[0] != '\0')
        return err_set(error, STINT_E_MISMATCH,
                       "key is for logs (format=combined or jsonl); a trace has its keys");
    if (format != SOURCE_JSONL && (spec->time[0] != '\0' || spec->cost[0] != '\0'))
        return err_set(error, STINT_E_MISMATCH, "time and cost are for format=jsonl");
    return 0;
}

static int read_all(struct sim_log *log, struct source *source, struct stint_error *error)
{
    struct event event;
    int code;
    while ((code = source_next(source, &event, error)) > 0) {
        struct event_entry entry = {.at_ns = event.at_ns, .cost = event.cost};
        code = key_set_add(&log->names, event.key, &entry.key, error);
        if (code == 0 && entry.key >= WORKLOAD_KEYS_MAX)
            code = err_set(error, STINT_E_FULL, "more than %u different keys", WORKLOAD_KEYS_MAX);
        if (code == 0)
            code = event_list_add(&log->events, entry, error);
        if (code != 0)
            return code;
    }
    return code;
}

static int read_source(struct sim_log *log, const struct workload_spec *spec,
                       struct stint_error *error)
{
    uint64_t secret[2];
    struct source source;
    const struct source_options options = {.format = format_of(spec),
                                           .key = given(spec->key),
                                           .time = given(spec->time),
                                           .cost = given(spec->cost),
                                           .path = spec->path};
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    int code = source_open(&source, &options, error);
    if (code != 0)
        return code;
    key_set_init(&log->names, secret);
    code = read_all(log, &source, error);
    log->malformed = source.malformed;
    source_close(&source);
    return code;
}

/* Until a nanosecond after the last request, as scaled. */
static uint64_t length_of(const struct sim_log *log, double scale)
{
    const struct event_list *events = &log->events;
    uint64_t first_ns = events->entries[0].at_ns;
    uint64_t since_ns = events->entries[events->n_entries - 1].at_ns - first_ns;
    double scaled_ns = (double)since_ns / scale;
    uint64_t end_ns = scale == 1           ? since_ns
                      : scaled_ns < 0x1p60 ? (uint64_t)scaled_ns
                                           : STINT_NOW_MAX;
    return first_ns - log->epoch_ns + end_ns + 1;
}

int sim_log_read(struct sim_log *log, struct sim_options *options, struct stint_error *error)
{
    const struct workload_spec *spec = &options->workload.spec;
    *log = (struct sim_log){0};
    if (spec->kind != WORKLOAD_LOG)
        return 0;
    int code = check_fields(spec, error);
    if (code == 0)
        code = read_source(log, spec, error);
    if (code == 0)
        code = event_list_sort(&log->events, error);
    if (code != 0)
        return code;
    if (log->events.n_entries == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "%s holds no request that can be read; is it "
                       "another format=?",
                       spec->path);
    /* As in `stint replay`: a trace has its own time, logs begin at a midnight. */
    uint64_t first_ns = log->events.entries[0].at_ns;
    log->epoch_ns = format_of(spec) == SOURCE_TRACE ? 0 : first_ns - first_ns % NS_PER_DAY;
    uint64_t length_ns = length_of(log, spec->scale);
    if (length_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE, "so scaled, the log is longer than 18 years");
    if (options->length_ns == 0)
        options->length_ns = length_ns;
    workload_lend(&options->workload, &log->events, log->epoch_ns);
    return 0;
}

void sim_log_free(struct sim_log *log)
{
    event_list_deinit(&log->events);
    key_set_deinit(&log->names);
}
