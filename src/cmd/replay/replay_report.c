/* SPDX-License-Identifier: MIT */
/* The output of `stint replay`: a line for each decision, a summary as text or JSON, a picture. */
#define _GNU_SOURCE
#include "cmd/replay/replay.h"

#include "algorithm/spec.h"
#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "sim/picture/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- The keys with most requests and denials ------------------------------------------------- */

#define DENIED_MOST_DEFAULT 10

enum units { UNITS_ASKED, UNITS_DENIED, UNITS_ALLOWED };

struct most {
    uint32_t keys[REPLAY_POPULAR_MAX]; /* most first; of equal ones the first */
    size_t n_keys;
};

static uint64_t units_of(const struct replay_run *run, uint32_t key, enum units units)
{
    const struct replay_tally *tally = &run->tallies[key];
    return (units != UNITS_DENIED ? tally->allowed : 0) +
           (units != UNITS_ALLOWED ? tally->denied : 0);
}

/* The keys with the most units, above 0. */
static void find_most(struct most *most, const struct replay_run *run, enum units units)
{
    size_t max = run->options.top_keys;
    if (units == UNITS_DENIED && max == 0)
        max = DENIED_MOST_DEFAULT;
    most->n_keys = 0;
    for (uint32_t key = 0; key < run->names.n_keys && key < run->tallies_size; key++) {
        uint64_t own = units_of(run, key, units);
        size_t at = most->n_keys;
        while (at > 0 && own > units_of(run, most->keys[at - 1], units))
            at--;
        if (own == 0 || at == max)
            continue;
        most->n_keys += most->n_keys < max;
        for (size_t i = most->n_keys - 1; i > at; i--)
            most->keys[i] = most->keys[i - 1];
        most->keys[at] = key;
    }
}

static void print_most_keys(const struct replay_run *run, const char *heading, enum units units,
                            enum units beside)
{
    struct most most;
    struct formatted own, others;
    find_most(&most, run, units);
    if (most.n_keys > 0)
        printf("\n%s\n", heading);
    for (size_t i = 0; i < most.n_keys; i++) {
        printf("  %20s %14s   ", format_count(&own, units_of(run, most.keys[i], units)),
               format_count(&others, units_of(run, most.keys[i], beside)));
        print_between("", key_set_name(&run->names, most.keys[i]), "\n");
    }
}

static json_t *most_json(const struct replay_run *run, enum units units)
{
    struct most most;
    json_t *list = json_array();
    find_most(&most, run, units);
    for (size_t i = 0; i < most.n_keys; i++) {
        const struct replay_tally *tally = &run->tallies[most.keys[i]];
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:I}", "key",
                                        json_text_key(key_set_name(&run->names, most.keys[i])),
                                        "denied_units", (json_int_t)tally->denied, "allowed_units",
                                        (json_int_t)tally->allowed));
    }
    return list;
}

/* The most that was admitted in any window, beside the limit. */
static void print_admitted(const struct exact *exact, size_t i, const struct stint_quota *quota)
{
    struct formatted units, limit, period;
    printf("    most admitted in any %s: %s of %s", format_duration(&period, exact->periods_ns[i]),
           format_count(&units, exact->most[i].units), format_count(&limit, quota->limit));
    if (stint_max_in_any_window(quota) != quota->limit)
        printf(" (at most %s by its algorithm)",
               format_count(&limit, stint_max_in_any_window(quota)));
    if (exact->most[i].units > 0)
        fputs(", to ", stdout);
}

/* ---- The results of each rule ---------------------------------------------------------------- */

static void print_line(const char *label, uint64_t events, const char *rest)
{
    struct formatted number;
    if (events > 0)
        printf("    %-9s %14s event%s%s\n", label, format_count(&number, events),
               events == 1 ? "" : "s", rest);
}

static void print_rule(const struct replay_run *run, const struct rule *rule)
{
    const struct replay_rule *counts = &run->rules->rules[rule->index];
    char spec[SPEC_SIZE];
    print_between("  ", span_of_text(rule->path), "");
    if (rule->unlimited) {
        puts(": unlimited");
    } else {
        stint_quota_format(&rule->quota, spec, sizeof(spec));
        printf(": %s%s%s\n", spec, rule->shadow_mode ? ", shadow_mode" : "",
               rule->quota_mode ? ", quota_mode" : "");
    }
    print_line("met", counts->events, "");
    print_line("over", counts->over, rule->shadow_mode ? ", allowed all the same" : "");
    print_line("denied", counts->denied, "");
    print_line("banned", counts->banned, ", of those that were denied");
    print_line("replaced", counts->replaced, "");
    print_line("candidate", counts->candidate_over, " that it would deny");
    if (counts->exact.most[0].units == 0)
        return;
    print_admitted(&counts->exact, 0, &rule->quota);
    print_between("", replay_rules_most_key(run->rules, counts, &run->names), "\n");
}

static void print_rules(const struct replay_run *run)
{
    const struct replay_rules *rules = run->rules;
    struct formatted number;
    for (size_t i = 0; i < rules_count(rules->loaded.rules); i++)
        if (rules->rules[i].events > 0)
            print_rule(run, rules_at(rules->loaded.rules, i));
    if (rules->unmatched > 0)
        printf("  %s descriptor%s met no rule\n", format_count(&number, rules->unmatched),
               rules->unmatched == 1 ? "" : "s");
    if (rules->bans_lost > 0)
        print_message("the table had no room for every ban");
}

static json_t *rule_json(const struct replay_run *run, const struct rule *rule)
{
    const struct replay_rule *counts = &run->rules->rules[rule->index];
    char spec[SPEC_SIZE] = "";
    const struct exact_most *most = &counts->exact.most[0];
    if (!rule->unlimited)
        stint_quota_format(&rule->quota, spec, sizeof(spec));
    return json_pack(
        "{s:o, s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "rule",
        json_text_key(span_of_text(rule->path)), "quota", rule->unlimited ? "unlimited" : spec,
        "shadow_mode", rule->shadow_mode, "quota_mode", rule->quota_mode, "events",
        (json_int_t)counts->events, "over", (json_int_t)counts->over, "denied",
        (json_int_t)counts->denied, "banned", (json_int_t)counts->banned, "replaced",
        (json_int_t)counts->replaced, "candidate_over", (json_int_t)counts->candidate_over,
        "allowed_units", (json_int_t)counts->units_allowed, "denied_units",
        (json_int_t)counts->units_denied, "most_admitted", json_text_ns(most->units),
        "most_admitted_key",
        most->units > 0 ? json_text_key(replay_rules_most_key(run->rules, counts, &run->names))
                        : json_null());
}

static json_t *rules_json(const struct replay_run *run)
{
    const struct rules *rules = run->rules->loaded.rules;
    json_t *list = json_array();
    for (size_t i = 0; i < rules_count(rules); i++)
        json_array_append_new(list, rule_json(run, rules_at(rules, i)));
    return list;
}

/* ---- The report ------------------------------------------------------------------------------ */

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
    if (run->options.json) {
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

static uint64_t for_each(const struct replay_run *run, uint64_t ns)
{
    return run->events == 0 ? 0 : ns / run->events;
}

static void print_units(const char *label, uint64_t events, uint64_t units, uint64_t units_all)
{
    struct formatted event_text, unit_text, percent;
    printf("  %-8s %14s units  %7s   in %s event%s\n", label, format_count(&unit_text, units),
           format_percent(&percent, units, units_all), format_count(&event_text, events),
           events == 1 ? "" : "s");
}

static void print_quota(const struct replay_run *run, size_t i)
{
    const struct exact_most *most = &run->exact.most[i];
    struct formatted date;
    char spec[SPEC_SIZE];
    stint_quota_format(&run->options.quotas[i], spec, sizeof(spec));
    printf("  %s\n", spec);
    print_admitted(&run->exact, i, &run->options.quotas[i]);
    if (most->units > 0) {
        print_escaped(stdout, key_set_name(&run->names, most->key));
        if (run->source.format == SOURCE_TRACE)
            printf(" (until %.9g s)", (double)most->at_ns / 1e9);
        else
            printf(" (until %s)", format_date(&date, run->epoch_ns + most->at_ns));
    }
    putchar('\n');
}

static void print_store(const struct replay_run *run)
{
    char url[STORE_URL_TEXT_SIZE];
    struct formatted differing, events;
    if (run->session == NULL)
        return;
    printf("store  %s: %" PRIu64 " ns a decision; ", store_url_text(&run->options.store.url, url),
           for_each(run, run->session->spent_ns));
    if (run->differing == 0)
        puts("all are those of the embedded engine");
    else
        printf("%s of %s are not those of the embedded engine\n",
               format_count(&differing, run->differing), format_count(&events, run->events));
}

static void print_costs(const struct replay_run *run)
{
    struct stint_table_info info = {0};
    struct formatted state, bytes, lines, malformed, late;
    if (run->table != NULL)
        stint_table_info(run->table, run->latest_ns, &info);
    if (run->rules == NULL)
        printf("\nstate  %s a key, in a table of %s\n",
               format_bytes(&state, state_bytes(&run->options)), format_bytes(&bytes, info.bytes));
    else
        printf("\nstate  in a table of %s\n", format_bytes(&bytes, info.bytes));
    printf("speed  %" PRIu64 " ns a decision\n", for_each(run, run->decide_ns));
    print_store(run);
    printf("lines  %s, %s malformed, %s late%s\n",
           format_count(&lines, event_source_lines(&run->source)),
           format_count(&malformed, run->source.malformed), format_count(&late, run->late),
           run->late == 0                     ? ""
           : event_source_sorts(&run->source) ? " (decided at the latest time of --state)"
                                              : " (decided at the latest time seen; see --sort)");
}

static void print_text(const struct replay_run *run)
{
    struct formatted events, keys, from, to, length;
    uint64_t units = run->units.allowed + run->units.denied;
    printf("%s: %s event%s of %s key%s", run->source.name, format_count(&events, run->events),
           run->events == 1 ? "" : "s", format_count(&keys, run->names.n_keys),
           run->names.n_keys == 1 ? "" : "s");
    if (run->events > 0 && run->source.format == SOURCE_TRACE)
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
    for (size_t i = 0; i < run->options.n_quotas; i++)
        print_quota(run, i);
    if (run->rules != NULL)
        print_rules(run);
    if (run->options.top_keys > 0)
        print_most_keys(run, "keys asked most                  asked         denied", UNITS_ASKED,
                        UNITS_DENIED);
    print_most_keys(run, "keys denied most                denied        allowed", UNITS_DENIED,
                    UNITS_ALLOWED);
    print_costs(run);
}

static json_t *quotas_json(const struct replay_run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->options.n_quotas; i++) {
        const struct stint_quota *quota = &run->options.quotas[i];
        const struct exact_most *most = &run->exact.most[i];
        char spec[SPEC_SIZE];
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

static json_t *store_json(const struct replay_run *run)
{
    char url[STORE_URL_TEXT_SIZE];
    return json_pack("{s:s, s:s, s:I, s:I}", "url", store_url_text(&run->options.store.url, url),
                     "prefix", run->prefix, "differing", (json_int_t)run->differing,
                     "ns_per_decision", (json_int_t)for_each(run, run->session->spent_ns));
}

static int print_json(const struct replay_run *run)
{
    struct stint_table_info info = {0};
    if (run->table != NULL)
        stint_table_info(run->table, run->latest_ns, &info);
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "events", (json_int_t)run->events, "keys",
                  (json_int_t)run->names.n_keys, "allowed", (json_int_t)run->allowed, "denied",
                  (json_int_t)run->denied, "never", (json_int_t)run->never, "allowed_units",
                  (json_int_t)run->units.allowed, "denied_units", (json_int_t)run->units.denied);
    json_t *rest =
        json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "quotas", quotas_json(run),
                  "denied_most", most_json(run, UNITS_DENIED), "state_bytes",
                  (json_int_t)state_bytes(&run->options), "table_bytes", (json_int_t)info.bytes,
                  "ns_per_decision", (json_int_t)for_each(run, run->decide_ns), "lines",
                  (json_int_t)event_source_lines(&run->source), "malformed",
                  (json_int_t)run->source.malformed, "late", (json_int_t)run->late);
    json_object_set_new(rest, "interrupted", json_boolean(run->interrupted));
    if (run->rules != NULL && rest != NULL)
        json_object_set_new(rest, "rules", rules_json(run));
    if (run->session != NULL && rest != NULL)
        json_object_set_new(rest, "store", store_json(run));
    if (run->options.top_keys > 0)
        json_object_set_new(rest, "asked_most", most_json(run, UNITS_ASKED));
    if (object == NULL || rest == NULL || json_object_update(object, rest) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(rest);
    return json_text_print(object, true);
}

static void warn(const struct replay_run *run)
{
    struct stint_table_info info;
    if (run->session != NULL && shared_session_detours(run->session) > 0)
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

/* ---- The picture of one key ------------------------------------------------------------------ */

/* The key that was denied most; if none was denied, the one that was allowed most. */
static uint32_t choose_key(const struct replay_run *run)
{
    uint32_t chosen = 0;
    for (uint32_t key = 1; key < run->names.n_keys && key < run->tallies_size; key++) {
        const struct replay_tally *tally = &run->tallies[key], *most = &run->tallies[chosen];
        if (tally->denied > most->denied ||
            (tally->denied == most->denied && tally->allowed > most->allowed))
            chosen = key;
    }
    return chosen;
}

/* The quota that denied the key most. */
static int make_history(struct history *history, struct stint_quota *quotas, size_t n_quotas,
                        const struct history_event *events, size_t n_events,
                        struct stint_error *error)
{
    int code = history_init(history, &quotas[0], events, n_events, error);
    for (size_t i = 1; code == 0 && i < n_quotas; i++) {
        struct history other;
        code = history_init(&other, &quotas[i], events, n_events, error);
        if (code == 0 &&
            other.n_no_space + other.n_slack > history->n_no_space + history->n_slack) {
            struct history less = *history;
            *history = other;
            other = less;
        }
        history_deinit(&other);
    }
    return code;
}

static int draw_history(const struct replay_run *run, const struct history *history, uint32_t key)
{
    struct formatted date;
    struct picture picture = {.history = history, .key = key_set_name(&run->names, key)};
    struct plot plot;
    /* A trace has a 0 of its own; times of a log count from the key's first event. */
    if (run->source.format != SOURCE_TRACE) {
        picture.zero_ns = history->rows[0].at_ns;
        picture.origin = format_date(&date, run->epoch_ns + picture.zero_ns);
    }
    picture_draw(&plot, &picture);
    return gnuplot_draw(&run->options.plot, &plot);
}

static int draw(struct replay_run *run)
{
    const struct replay_options *options = &run->options;
    struct history_event *events = run->plot.events;
    size_t n_events = 0;
    if (run->plot.n_events == 0) {
        if (options->plot_key != NULL)
            print_message("--plot: no event has the key '%s'", options->plot_key);
        else
            print_message("--plot: there are no events to draw");
        return CMD_BAD_INPUT;
    }
    uint32_t key = options->plot_key != NULL ? events[0].key : choose_key(run);
    for (size_t i = 0; i < run->plot.n_events; i++)
        if (events[i].key == key)
            events[n_events++] = events[i];
    struct stint_quota quotas[STINT_ITEMS_MAX];
    for (size_t i = 0; i < options->n_quotas; i++) {
        quotas[i] = options->quotas[i];
        quotas[i].epoch_ns = stint_epoch_ns(run->table);
    }
    struct stint_error error;
    struct history history;
    int result = CMD_BAD_INPUT;
    if (make_history(&history, quotas, options->n_quotas, events, n_events, &error) != 0)
        print_message("%s", error.message);
    else
        result = draw_history(run, &history, key);
    history_deinit(&history);
    return result;
}

/* ---- All of it ------------------------------------------------------------------------------- */

int replay_report(struct replay_run *run)
{
    const struct replay_options *options = &run->options;
    if (!options->decisions && !options->json)
        print_text(run);
    else if (!options->decisions && print_json(run) != 0)
        return CMD_BAD_INPUT;
    warn(run);
    return options->plot.format != GNUPLOT_NONE ? draw(run) : CMD_DONE;
}
