/* SPDX-License-Identifier: MIT */
/* The output of `stint replay`: a line for each decision, or a summary as text or JSON. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/replay/replay.h"

#include <inttypes.h>
#include <stdio.h>

#define SPEC_MAX 256

static const char *const outcome_names[] = {
    [STINT_ALLOW] = "allow", [STINT_DENY] = "deny", [STINT_NEVER] = "never"};

/* The time with as many decimals as in the input. */
static void format_time(struct formatted *formatted, const struct event_entry *entry)
{
    int len = snprintf(formatted->text, sizeof(formatted->text), "%" PRIu64 ".%09" PRIu64,
                       entry->at_ns / NS_PER_S, entry->at_ns % NS_PER_S);
    int n_left_out = entry->decimals > 0 ? 9 - entry->decimals : 10; /* with the point */
    formatted->text[len - n_left_out] = '\0';
}

static void print_decision_json(const char *time, struct span key, const struct event_entry *entry,
                                const struct stint_decision *decision)
{
    (void)json_text_print(json_pack("{s:s, s:o, s:I, s:s, s:I, s:I, s:o, s:o}", "time", time, "key",
                                    json_text_key(key), "cost", (json_int_t)entry->cost, "outcome",
                                    outcome_names[decision->outcome], "granted",
                                    (json_int_t)decision->granted, "remaining",
                                    (json_int_t)decision->remaining, "retry_after_ns",
                                    json_text_ns(decision->retry_after_ns), "reset_after_ns",
                                    json_text_ns(decision->reset_after_ns)),
                          false);
}

void replay_print_decision(const struct replay_run *run, const struct event_entry *entry,
                           const struct stint_decision *decision)
{
    struct formatted time;
    struct span key = key_set_name(&run->names, entry->key);
    format_time(&time, entry);
    if (run->options->json) {
        print_decision_json(time.text, key, entry, decision);
        return;
    }
    printf("%s\t", time.text);
    print_escaped(stdout, key);
    printf("\t%" PRIu32 "\t%s\t%" PRIu32 "\t%" PRIu32 "\t", entry->cost,
           outcome_names[decision->outcome], decision->granted, decision->remaining);
    if (decision->retry_after_ns == STINT_NEVER_NS)
        fputs("never", stdout);
    else
        printf("%" PRIu64, decision->retry_after_ns);
    printf("\t%" PRIu64 "\n", decision->reset_after_ns);
}

static uint64_t state_bytes(const struct replay_options *options)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < options->n_quotas; i++)
        bytes += stint_state_size(&options->quotas[i]);
    return bytes;
}

static uint64_t ns_per_decision(const struct replay_run *run)
{
    return run->events == 0 ? 0 : run->decide_ns / run->events;
}

static void print_units(const char *label, uint64_t events, uint64_t units, uint64_t units_all)
{
    struct formatted event_text, unit_text, percent;
    printf("  %-8s %14s units  %7s   in %s event%s\n", label, format_count(&unit_text, units),
           format_percent(&percent, units, units_all), format_count(&event_text, events),
           events == 1 ? "" : "s");
}

static void print_most(const struct replay_run *run, size_t i)
{
    const struct stint_quota *quota = &run->options->quotas[i];
    const struct exact_most *most = &run->exact.most[i];
    struct formatted units, limit, period, date;
    char spec[SPEC_MAX];
    stint_quota_format(quota, spec, sizeof(spec));
    printf("  %s\n    most admitted in any %s: %s of %s", spec,
           format_duration(&period, run->exact.periods_ns[i]), format_count(&units, most->units),
           format_count(&limit, quota->limit));
    if (stint_max_in_any_window(quota) != quota->limit)
        printf(" (at most %s by its algorithm)",
               format_count(&limit, stint_max_in_any_window(quota)));
    if (most->units > 0) {
        fputs(", to ", stdout);
        print_escaped(stdout, key_set_name(&run->names, most->key));
        if (run->options->source.format == REPLAY_TRACE)
            printf(" (until %.9g s)", (double)most->at_ns / 1e9);
        else
            printf(" (until %s)", format_date(&date, run->epoch_ns + most->at_ns));
    }
    putchar('\n');
}

static uint64_t store_ns_per_decision(const struct replay_run *run,
                                      const struct replay_store_told *told)
{
    return run->events == 0 ? 0 : told->ns / run->events;
}

static void print_store(const struct replay_run *run)
{
    char url[STORE_URL_TEXT_SIZE];
    struct formatted differing, events;
    struct replay_store_told told;
    if (!replay_run_store(run, &told))
        return;
    printf("store  %s: %" PRIu64 " ns a decision; ", store_url_text(&run->options->store.url, url),
           store_ns_per_decision(run, &told));
    if (run->differing == 0)
        puts("all are those of the embedded engine");
    else
        printf("%s of %s are not those of the embedded engine\n",
               format_count(&differing, run->differing), format_count(&events, run->events));
}

static void print_costs(const struct replay_run *run, const struct replay_source *source)
{
    struct stint_table_info info = {0};
    struct formatted state, bytes, lines, malformed, late;
    if (run->table != NULL)
        stint_table_info(run->table, run->latest_ns, &info);
    if (run->rules == NULL)
        printf("\nstate  %s a key, in a table of %s\n",
               format_bytes(&state, state_bytes(run->options)), format_bytes(&bytes, info.bytes));
    else
        printf("\nstate  in a table of %s\n", format_bytes(&bytes, info.bytes));
    printf("speed  %" PRIu64 " ns a decision\n", ns_per_decision(run));
    print_store(run);
    printf("lines  %s, %s malformed, %s late%s\n", format_count(&lines, source->reader.line_number),
           format_count(&malformed, source->malformed), format_count(&late, run->late),
           run->late > 0 ? " (decided at the latest time seen; see --sort)" : "");
}

void replay_print_text(const struct replay_run *run, const struct replay_source *source)
{
    struct formatted events, keys, from, to, length;
    uint64_t units = run->units.allowed + run->units.denied;
    printf("%s: %s event%s of %s key%s", source->input.name, format_count(&events, run->events),
           run->events == 1 ? "" : "s", format_count(&keys, run->names.n_keys),
           run->names.n_keys == 1 ? "" : "s");
    if (run->events > 0 && run->options->source.format == REPLAY_TRACE)
        printf(" in %s\n\n", format_duration(&length, run->last_ns - run->first_ns));
    else if (run->events > 0)
        printf("\n%s to %s (%s)\n\n", format_date(&from, run->first_ns),
               format_date(&to, run->last_ns),
               format_duration(&length, run->last_ns - run->first_ns));
    else
        fputs("\n\n", stdout);
    print_units("allowed", run->allowed, run->units.allowed, units);
    print_units("denied", run->denied + run->never, run->units.denied, units);
    if (run->never > 0)
        printf("  %s of these cost more than the quota can ever give\n",
               format_count(&events, run->never));
    putchar('\n');
    for (size_t i = 0; i < run->options->n_quotas; i++)
        print_most(run, i);
    if (run->rules != NULL)
        replay_rules_print_text(run->rules, &run->names);
    replay_print_most(run);
    print_costs(run, source);
}

static json_t *quotas_json(const struct replay_run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->options->n_quotas; i++) {
        const struct stint_quota *quota = &run->options->quotas[i];
        const struct exact_most *most = &run->exact.most[i];
        char spec[SPEC_MAX];
        stint_quota_format(quota, spec, sizeof(spec));
        json_t *key =
            most->units > 0 ? json_text_key(key_set_name(&run->names, most->key)) : json_null();
        json_array_append_new(
            list,
            json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:I}", "quota", spec, "limit",
                      (json_int_t)quota->limit, "period_ns", json_text_ns(run->exact.periods_ns[i]),
                      "max_in_any_window", json_text_ns(stint_max_in_any_window(quota)),
                      "most_admitted", json_text_ns(most->units), "most_admitted_key", key,
                      "state_bytes", (json_int_t)stint_state_size(quota)));
    }
    return list;
}

static json_t *store_json(const struct replay_run *run, const struct replay_store_told *told)
{
    char url[STORE_URL_TEXT_SIZE];
    return json_pack("{s:s, s:s, s:I, s:I}", "url", store_url_text(&run->options->store.url, url),
                     "prefix", told->prefix, "differing", (json_int_t)run->differing,
                     "ns_per_decision", (json_int_t)store_ns_per_decision(run, told));
}

int replay_print_json(const struct replay_run *run, const struct replay_source *source)
{
    struct stint_table_info info = {0};
    struct replay_store_told told;
    if (run->table != NULL)
        stint_table_info(run->table, run->latest_ns, &info);
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "events", (json_int_t)run->events, "keys",
                  (json_int_t)run->names.n_keys, "allowed", (json_int_t)run->allowed, "denied",
                  (json_int_t)run->denied, "never", (json_int_t)run->never, "allowed_units",
                  (json_int_t)run->units.allowed, "denied_units", (json_int_t)run->units.denied);
    json_t *rest = json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "quotas", quotas_json(run), "denied_most",
        replay_denied_most_json(run), "state_bytes", (json_int_t)state_bytes(run->options),
        "table_bytes", (json_int_t)info.bytes, "ns_per_decision", (json_int_t)ns_per_decision(run),
        "lines", (json_int_t)source->reader.line_number, "malformed", (json_int_t)source->malformed,
        "late", (json_int_t)run->late);
    if (run->rules != NULL && rest != NULL)
        json_object_set_new(rest, "rules", replay_rules_json(run->rules, &run->names));
    if (replay_run_store(run, &told) && rest != NULL)
        json_object_set_new(rest, "store", store_json(run, &told));
    if (run->options->top_keys > 0)
        json_object_set_new(rest, "asked_most", replay_asked_most_json(run));
    if (object == NULL || rest == NULL || json_object_update(object, rest) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(rest);
    return json_text_print(object, true);
}

void replay_warn(const struct replay_run *run, const struct replay_source *source)
{
    struct stint_table_info info;
    struct replay_store_told told;
    if (run->events == 0 && source->malformed > 0)
        print_message("no line of %s could be read; is it another --format?", source->input.name);
    if (replay_run_store(run, &told) && told.has_detoured)
        print_message(
            "servers of the store changed places meanwhile: some events may have been decided in "
            "another order");
    if (run->table == NULL)
        return;
    stint_table_info(run->table, run->latest_ns, &info);
    uint64_t pressed =
        info.evictions_inherit + info.evictions_evict + info.full_denied + info.full_allowed;
    if (pressed > 0)
        print_message("the table was too small: %" PRIu64
                      " times a new key found no free place, so that "
                      "decisions may differ from those of a larger one; see --keys",
                      pressed);
}
