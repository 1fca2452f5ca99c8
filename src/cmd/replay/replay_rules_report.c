/* SPDX-License-Identifier: MIT */
/* The results of each rule, as text and as JSON. */
#define _GNU_SOURCE
#include "cmd/replay/replay_rules.h"

#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"

#include <stdio.h>

#define SPEC_MAX 256

static void print_line(const char *label, uint64_t events, const char *rest)
{
    struct formatted number;
    if (events > 0)
        printf("    %-9s %14s event%s%s\n", label, format_count(&number, events),
               events == 1 ? "" : "s", rest);
}

static void print_most(struct replay_rules *rules, const struct rule *rule,
                       const struct key_set *names)
{
    const struct replay_rule *counts = &rules->rules[rule->index];
    const struct exact_most *most = &counts->exact.most[0];
    struct formatted units, limit, period;
    if (most->units == 0)
        return;
    printf("    most admitted in any %s: %s of %s",
           format_duration(&period, counts->exact.periods_ns[0]), format_count(&units, most->units),
           format_count(&limit, rule->quota.limit));
    if (stint_max_in_any_window(&rule->quota) != rule->quota.limit)
        printf(" (at most %s by its algorithm)",
               format_count(&limit, stint_max_in_any_window(&rule->quota)));
    fputs(", to ", stdout);
    print_escaped(stdout, replay_rules_most_key(rules, counts, names));
    putchar('\n');
}

static void print_rule(struct replay_rules *rules, const struct rule *rule,
                       const struct key_set *names)
{
    const struct replay_rule *counts = &rules->rules[rule->index];
    char spec[SPEC_MAX];
    fputs("  ", stdout);
    print_escaped(stdout, span_of_text(rule->path));
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
    print_most(rules, rule, names);
}

void replay_rules_print_text(struct replay_rules *rules, const struct key_set *names)
{
    struct formatted number;
    for (size_t i = 0; i < rules_count(rules->loaded.rules); i++)
        if (rules->rules[i].events > 0)
            print_rule(rules, rules_at(rules->loaded.rules, i), names);
    if (rules->unmatched > 0)
        printf("  %s descriptor%s met no rule\n", format_count(&number, rules->unmatched),
               rules->unmatched == 1 ? "" : "s");
    if (rules->bans_lost > 0)
        print_message("the table had no room for every ban");
}

static json_t *rule_json(struct replay_rules *rules, const struct rule *rule,
                         const struct key_set *names)
{
    const struct replay_rule *counts = &rules->rules[rule->index];
    char spec[SPEC_MAX] = "";
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
        most->units > 0 ? json_text_key(replay_rules_most_key(rules, counts, names)) : json_null());
}

json_t *replay_rules_json(struct replay_rules *rules, const struct key_set *names)
{
    json_t *list = json_array();
    for (size_t i = 0; i < rules_count(rules->loaded.rules); i++)
        json_array_append_new(list, rule_json(rules, rules_at(rules->loaded.rules, i), names));
    return list;
}
