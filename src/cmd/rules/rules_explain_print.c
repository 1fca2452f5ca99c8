/* SPDX-License-Identifier: MIT */
/* The rules that a request matches, the state of each, and the content of keys in a store. */
#define _GNU_SOURCE
#include "cmd/rules/rules_explain_print.h"

#include "algorithm/label.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/lib/print.h"
#include "cmd/rules/rules_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The content of a key in a shared store -------------------------------------------------- */

#define LEASES_FIRST 0x81
#define LEASE_LEN 11 /* its end, and its units in the last four */

static void print_ttl(const struct explained_key *key)
{
    struct formatted formatted;
    if (key->ttl_ms >= 0)
        printf("%s s", format_wait(&formatted, (uint64_t)key->ttl_ms * 1000000));
    else
        fputs(key->ttl_ms == EXPLAINED_NO_TTL ? "none" : "it has just ended", stdout);
}

/* docs/store-scripts.md describes their format. */
static void print_leases(const struct explained_key *key)
{
    uint64_t units = 0;
    size_t n = 0;
    for (size_t at = 1; at + LEASE_LEN <= key->n_shown; at += LEASE_LEN, n++)
        for (uint64_t i = 0, number = 0; i < 4; i++) {
            number = number << 8 | key->bytes[at + LEASE_LEN - 4 + i];
            units += i == 3 ? number : 0;
        }
    printf("   units   %" PRIu64 " in %zu lease%s\n", units, n, n == 1 ? "" : "s");
}

/* Names of keys contain no quotes, but braces, which a shell would expand. */
static void print_key(const struct explained_key *key, const char *title)
{
    printf("   %-7s '", title);
    print_escaped(stdout, span_of_text(key->name));
    fputs("'\n", stdout);
    if (!key->is_looked_at)
        return;
    printf("   node    %s", key->node);
    if (key->slot >= 0)
        printf(", slot %d", key->slot);
    putchar('\n');
    if (key->fault[0] != '\0') {
        fputs("   bytes   cannot be read: ", stdout);
        print_escaped(stdout, span_of_text(key->fault));
        putchar('\n');
        return;
    }
    if (!key->exists) {
        puts("   bytes   none");
        return;
    }
    printf("   bytes   %zu: ", key->len);
    for (size_t i = 0; i < key->n_shown; i++)
        printf("%02x", key->bytes[i]);
    puts(key->n_shown < key->len ? "..." : "");
    if (key->n_shown > 0 && key->bytes[0] == LEASES_FIRST)
        print_leases(key);
    fputs("   expiry  ", stdout);
    print_ttl(key);
    putchar('\n');
}

static json_t *bytes_json(const struct explained_key *key)
{
    char text[2 * EXPLAINED_BYTES_MAX + 1];
    for (size_t i = 0; i < key->n_shown; i++)
        snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
    text[2 * key->n_shown] = '\0';
    return key->exists ? json_string(text) : json_null();
}

static json_t *key_json(const struct explained_key *key)
{
    if (key->name == NULL)
        return json_null();
    bool is_told = key->is_looked_at;
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o}", "name", key->name, "node",
        is_told ? json_text_key(span_of_text(key->node)) : json_null(), "slot",
        key->slot >= 0 ? json_integer(key->slot) : json_null(), "bytes", bytes_json(key), "ttl_ms",
        key->exists && key->ttl_ms >= 0 ? json_integer((json_int_t)key->ttl_ms) : json_null(),
        "fault", key->fault[0] != '\0' ? json_text_key(span_of_text(key->fault)) : json_null());
}

/* ---- The output ------------------------------------------------------------------------------ */

#define SPEC_MAX 256

static const char *const outcomes[] = {
    [STINT_ALLOW] = "allow", [STINT_DENY] = "deny", [STINT_NEVER] = "never"};

/* ---- Text ---- */

static void print_descriptor(const struct descriptor *descriptor)
{
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        putchar(' ');
        print_escaped(stdout, descriptor->entries[i].key);
        putchar('=');
        print_escaped(stdout, descriptor->entries[i].value);
    }
    putchar('\n');
}

/* is_asked: the store was queried. */
static void print_rule(const struct target *target, bool is_asked)
{
    char spec[SPEC_MAX];
    fputs("   rule    ", stdout);
    print_escaped(stdout, span_of_text(target->rule->path));
    fputs("  (", stdout);
    print_escaped(stdout, span_of_text(target->rule->file));
    printf(":%u)\n", (unsigned)target->rule->line);
    if (target->quota == NULL || target->is_replaced)
        return;
    stint_quota_format(target->quota, spec, sizeof(spec));
    printf("   limit   %s%s\n", spec, target->has_own_quota ? "  (of this key's own)" : "");
    if (target->rule->store.label == NULL)
        return;
    fputs("   store   ", stdout);
    print_escaped(stdout, span_of_text(target->rule->store.label));
    puts(is_asked ? "" : ", which was not asked");
}

/* The result for a caller if this were the only one. */
static void print_wait(uint64_t wait_ns)
{
    struct formatted formatted;
    if (wait_ns == STINT_NEVER_NS) {
        fputs("never fits", stdout);
        return;
    }
    printf("denies for %s s", format_wait(&formatted, wait_ns));
    if (wait_ns >= NS_PER_HOUR)
        printf(" (%s)", format_duration(&formatted, wait_ns));
}

/* For a calendar budget that was used: when the next one begins. */
static void print_next(const struct target *target)
{
    struct formatted formatted;
    const struct stint_decision *decision = &target->decision;
    bool is_calendar =
        target->quota->algorithm == STINT_FIXED_WINDOW && target->quota->align >= STINT_ALIGN_DAY;
    if (is_calendar && decision->reset_after_ns > 0)
        printf("; all of it again in %s", format_duration(&formatted, decision->reset_after_ns));
}

/* Why a wait may be longer than the period of the limit. */
static void print_slack(const struct target *target)
{
    char text[256] = "";
    struct buf buf = buf_of(text, sizeof(text));
    label_wait(&buf, target->quota);
    if (text[0] != '\0' && target->decision.retry_after_ns != STINT_NEVER_NS)
        printf("   slack   %s\n", text);
}

static void print_state(const struct target *target)
{
    const struct stint_decision *decision = &target->decision;
    struct formatted left, limit;
    fputs("   state   ", stdout);
    if (target->over && target->part == TARGET_SHADOW)
        fputs("over, and allowed: shadow_mode", stdout);
    else if (target->over)
        print_wait(decision->retry_after_ns);
    else {
        printf("allows; leaves %s of %s", format_count(&left, decision->remaining),
               format_count(&limit, decision->limit));
        print_next(target);
    }
    printf("%s%s\n", target->banned ? " (its key is blocked)" : "",
           target->excluded ? " (quota_mode: the request does without it)" : "");
    if (target->over)
        print_slack(target);
}

static void print_reset(const struct target *target)
{
    struct formatted formatted;
    printf("   reset   as never used after %s s\n",
           format_wait(&formatted, target->decision.reset_after_ns));
}

static void print_target(const struct target *target, const struct explained_key *keys)
{
    if (target->rule == NULL) {
        puts("   no rule: allowed");
        return;
    }
    print_rule(target, keys != NULL);
    if (target->is_replaced)
        puts("   state   replaced by another rule of this request");
    else if (target->quota == NULL)
        puts("   state   unlimited");
    else
        print_state(target);
    if (keys != NULL && keys[EXPLAINED_STATE].name != NULL) {
        print_reset(target);
        print_key(&keys[EXPLAINED_STATE], "key");
        if (keys[EXPLAINED_LEASES].name != NULL)
            print_key(&keys[EXPLAINED_LEASES], "leases");
    }
    if (target->part == TARGET_FREE || !target->rule->has_shadow)
        return;
    char spec[SPEC_MAX];
    stint_quota_format(&target->rule->shadow, spec, sizeof(spec));
    printf("   shadow  %s: ", spec);
    if (target->shadow_over)
        print_wait(target->shadow_retry_after_ns);
    else
        fputs("allows", stdout);
    putchar('\n');
    if (keys != NULL && keys[EXPLAINED_SHADOW].name != NULL)
        print_key(&keys[EXPLAINED_SHADOW], "its key");
}

static void print_whole(const struct explained *explained)
{
    const struct stint_decision *decision = &explained->decision;
    if (decision->outcome == STINT_ALLOW) {
        puts("allowed");
        return;
    }
    printf("denied by %u: ", decision->binding + 1u);
    print_wait(decision->retry_after_ns);
    putchar('\n');
}

static void print_text(const struct explained *explained)
{
    fputs("domain ", stdout);
    print_escaped(stdout, span_of_text(explained->domain));
    puts(explained->has_domain ? "" : ": no file of rules has it");
    for (size_t i = 0; i < explained->evaluation->n_targets; i++) {
        printf("%zu.", i + 1);
        print_descriptor(&explained->descriptors[i]);
        print_target(&explained->evaluation->targets[i],
                     explained->keys != NULL ? &explained->keys[EXPLAINED_KEYS * i] : NULL);
    }
    print_whole(explained);
}

/* ---- JSON ---- */

static json_t *entries_json(const struct descriptor *descriptor)
{
    json_t *list = json_array();
    for (size_t i = 0; i < descriptor->n_entries; i++)
        json_array_append_new(list, json_pack("{s:o, s:o}", "key",
                                              json_text_key(descriptor->entries[i].key), "value",
                                              json_text_key(descriptor->entries[i].value)));
    return list;
}

static json_t *quota_json(const struct stint_quota *quota)
{
    char spec[SPEC_MAX];
    stint_quota_format(quota, spec, sizeof(spec));
    return json_string(spec);
}

static json_t *rule_json(const struct target *target)
{
    if (target->rule == NULL)
        return json_null();
    const char *store = target->rule->store.label;
    return json_pack("{s:o, s:o, s:I, s:b, s:b, s:o}", "path",
                     json_text_key(span_of_text(target->rule->path)), "file",
                     json_text_key(span_of_text(target->rule->file)), "line",
                     (json_int_t)target->rule->line, "shadow_mode", target->part == TARGET_SHADOW,
                     "quota_mode", target->is_quota_mode, "store",
                     store != NULL ? json_text_key(span_of_text(store)) : json_null());
}

static json_t *shadow_json(const struct target *target)
{
    if (target->rule == NULL || !target->rule->has_shadow || target->part == TARGET_FREE)
        return json_null();
    return json_pack("{s:o, s:b, s:o}", "quota", quota_json(&target->rule->shadow), "over",
                     target->shadow_over, "retry_after_ns",
                     json_text_ns(target->shadow_retry_after_ns));
}

static json_t *target_json(const struct explained *explained, size_t i)
{
    const struct target *target = &explained->evaluation->targets[i];
    const struct stint_decision *decision = &target->decision;
    bool is_limited = target->part != TARGET_FREE;
    json_t *object =
        json_pack("{s:o, s:o, s:o, s:b, s:b, s:b, s:s, s:b, s:I, s:I, s:o, s:o, s:o}", "entries",
                  entries_json(&explained->descriptors[i]), "rule", rule_json(target), "quota",
                  is_limited ? quota_json(target->quota) : json_null(), "own_quota",
                  target->has_own_quota, "replaced", target->is_replaced, "blocked", target->banned,
                  "outcome", outcomes[decision->outcome], "over", target->over, "limit",
                  (json_int_t)decision->limit, "remaining", (json_int_t)decision->remaining,
                  "retry_after_ns", json_text_ns(decision->retry_after_ns), "reset_after_ns",
                  json_text_ns(decision->reset_after_ns), "shadow", shadow_json(target));
    if (object != NULL && explained->keys != NULL) {
        const struct explained_key *keys = &explained->keys[EXPLAINED_KEYS * i];
        json_object_set_new(object, "key", key_json(&keys[EXPLAINED_STATE]));
        json_object_set_new(object, "shadow_key", key_json(&keys[EXPLAINED_SHADOW]));
        json_object_set_new(object, "leases_key", key_json(&keys[EXPLAINED_LEASES]));
    }
    return object;
}

static int print_json(const struct explained *explained)
{
    const struct stint_decision *decision = &explained->decision;
    json_t *list = json_array();
    for (size_t i = 0; i < explained->evaluation->n_targets; i++)
        json_array_append_new(list, target_json(explained, i));
    return json_text_print(json_pack("{s:o, s:s, s:I, s:o, s:o}", "domain",
                                     json_text_key(span_of_text(explained->domain)), "outcome",
                                     outcomes[decision->outcome], "binding",
                                     (json_int_t)decision->binding, "retry_after_ns",
                                     json_text_ns(decision->retry_after_ns), "descriptors", list),
                           true);
}

int rules_explain_print(const struct explained *explained, bool is_json)
{
    if (is_json)
        return print_json(explained);
    print_text(explained);
    return 0;
}
