/* SPDX-License-Identifier: MIT */
/*
 * `stint rules explain`: which rules a request would match, the state of each, and which would
 * deny. A --state file is read in a copy, so that nothing in it is ever charged.
 */
#define _GNU_SOURCE
#include "cmd/rules/rules_explain_store.h"

#include "algorithm/label.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/rules/rules_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
static void rules_explain_key_text(const struct explained_key *key, const char *title)
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

static json_t *rules_explain_key_json(const struct explained_key *key)
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

struct explained {
    const char *domain;
    bool has_domain; /* the rules know its key */
    const struct descriptor *descriptors;
    const struct evaluation *evaluation;
    /* EXPLAINED_KEYS for each descriptor. NULL: no store was queried */
    const struct explained_key *keys;
    struct stint_decision decision; /* of the request as a whole */
};

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
        rules_explain_key_text(&keys[EXPLAINED_STATE], "key");
        if (keys[EXPLAINED_LEASES].name != NULL)
            rules_explain_key_text(&keys[EXPLAINED_LEASES], "leases");
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
        rules_explain_key_text(&keys[EXPLAINED_SHADOW], "its key");
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

static void rules_explain_text(const struct explained *explained)
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
        json_object_set_new(object, "key", rules_explain_key_json(&keys[EXPLAINED_STATE]));
        json_object_set_new(object, "shadow_key", rules_explain_key_json(&keys[EXPLAINED_SHADOW]));
        json_object_set_new(object, "leases_key", rules_explain_key_json(&keys[EXPLAINED_LEASES]));
    }
    return object;
}

static int rules_explain_json(const struct explained *explained)
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

#define DESCRIPTORS_NEXT "," /* the word between two descriptors */

struct explain_options {
    struct rules_args rules;
    struct store_given store;
    const char *prefix; /* of the store's keys; NULL: the default */
    const char *state, *domain;
    uint64_t cost;
    bool json, begun; /* a descriptor was begun */
    struct descriptor_entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    struct descriptor descriptors[DESCRIPTORS_MAX];
    size_t n_descriptors;
};

static const char doc[] =
    "Prints which rules a request matches, the state of each, and which would deny; "
    "charges nothing. A request has one or more descriptors, each a list of KEY=VALUE, "
    "with a word `,` between two of them.\v    stint rules explain --rules limits.yaml "
    "api ip=203.0.113.9 , user=42\n\n"
    "Of a --state FILE a copy is made in $TMPDIR, and read: a server may continue to use "
    "it.\n\n"
    "With --store URL it also prints the name of each rule's key there, quoted for "
    "redis-cli, the server that has it, its content and its state.\n\n"
    "Exit codes: 0 it would be allowed, 3 denied, 1 bad input, 2 bad usage.";

/* ---- The command line ------------------------------------------------------------------------ */

static const struct args_option options_known[] = {
    {"state", "FILE", 2, "Table with the states (default: all unused)",
     ARGS_TEXT(struct explain_options, state)},
    {"prefix", "TEXT", 2, "With --store: prefix of its keys, as in servers (default stint:)",
     ARGS_TEXT(struct explain_options, prefix)},
    {"cost", "N", 2, "Units of the request (default 1)",
     ARGS_NUMBER(struct explain_options, cost, UINT32_MAX)},
    {"json", NULL, 3, "The same as one JSON object", ARGS_FLAG(struct explain_options, json)},
    {0},
};

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct explain_options *options = input;
    if (options->domain == NULL) {
        options->domain = word;
        return;
    }
    if (strcmp(word, DESCRIPTORS_NEXT) == 0) {
        if (!options->begun)
            argp_error(state, "expected KEY=VALUE before `%s`", DESCRIPTORS_NEXT);
        options->begun = false;
        return;
    }
    if (!options->begun && options->n_descriptors == DESCRIPTORS_MAX)
        argp_error(state, "a request has at most %d descriptors", DESCRIPTORS_MAX);
    if (!options->begun) {
        size_t i = options->n_descriptors++;
        options->descriptors[i].entries = options->entries[i];
        options->begun = true;
    }
    struct descriptor *descriptor = &options->descriptors[options->n_descriptors - 1];
    if (descriptor->n_entries == ENTRIES_MAX)
        argp_error(state, "a descriptor has at most %d entries", ENTRIES_MAX);
    const char *equals = strchr(word, '=');
    if (equals == word)
        argp_error(state, "expected KEY=VALUE, not '%s'", word);
    size_t key_len = equals != NULL ? (size_t)(equals - word) : strlen(word);
    options->entries[options->n_descriptors - 1][descriptor->n_entries++] =
        (struct descriptor_entry){span_of(word, key_len),
                                  span_of_text(equals != NULL ? equals + 1 : "")};
}

static void check(struct argp_state *state, void *input)
{
    const struct explain_options *options = input;
    if (options->rules.n_paths == 0)
        argp_error(state, "expected --rules PATH");
    if (options->domain == NULL || options->n_descriptors == 0)
        argp_error(state, "expected DOMAIN KEY=VALUE, for example: api ip=203.0.113.9");
    if (!options->begun)
        argp_error(state, "expected KEY=VALUE after `%s`", DESCRIPTORS_NEXT);
    if (options->state != NULL && options->store.text != NULL)
        argp_error(state, "states are in --state or in --store, not in both");
    if (options->prefix != NULL && options->store.text == NULL)
        argp_error(state, "--prefix is of the keys of --store");
}

static void read_options(struct explain_options *options, int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_word, .end = check},
        .children = {{&rules_given_set, offsetof(struct explain_options, rules), NULL, 0},
                     {&store_given_set, offsetof(struct explain_options, store), NULL, 0}},
        .arguments = "DOMAIN KEY=VALUE... [, KEY=VALUE...]",
        .doc = doc,
    };
    options->cost = 1;
    args_parse(&command, argc, argv, options);
}

/* ---- The table ------------------------------------------------------------------------------- */

static void widen(struct stint_table_options *options, const struct stint_quota *quota)
{
    size_t size = stint_state_size(quota);
    if (size > 16)
        options->wide_size = (uint32_t)max_u64(options->wide_size, size);
}

/* A table of unused states, with capacity for one request under any of the rules. */
static int open_unused(struct stint_table **table, const struct rules *rules,
                       struct stint_error *error)
{
    struct stint_table_options options = {
        .keys = 256, .keys16 = 256, .tickets = 1, .quotas = 256, .blocks = 64, .pools = 1};
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        if (!rule->unlimited)
            widen(&options, &rule->quota);
        if (rule->has_shadow)
            widen(&options, &rule->shadow);
    }
    options.keys_wide = options.wide_size > 0 ? 64 : 0;
    return stint_table_open(table, &options, error);
}

/* Opens a copy, and unlinks it at once: it is removed with the last process that has it open. */
static int open_copy(struct stint_table **table, const struct stint_table *original,
                     struct stint_error *error)
{
    char path[4096];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/stint-explain-%ld",
             folder != NULL && folder[0] != '\0' ? folder : "/tmp", (long)getpid());
    const struct stint_table_options copy = {
        .path = path, .must_exist = true, .clock = STINT_CLOCK_REAL};
    struct stint_table_options virtual_copy = copy;
    virtual_copy.clock = STINT_CLOCK_VIRTUAL;
    struct stint_table_info info;
    stint_table_info(original, stint_now(original), &info);
    int code = stint_table_snapshot(original, path, error);
    if (code != 0)
        return code;
    code =
        stint_table_open(table, info.clock == STINT_CLOCK_VIRTUAL ? &virtual_copy : &copy, error);
    unlink(path);
    return code;
}

static int open_state(struct stint_table **table, const char *path, uint64_t *now_ns,
                      struct stint_error *error)
{
    struct stint_table *original;
    const struct stint_table_options options = {
        .path = path, .must_exist = true, .read_only = true};
    int code = stint_table_open(&original, &options, error);
    if (code != 0)
        return code;
    *now_ns = stint_now(original);
    code = open_copy(table, original, error);
    stint_table_close(original);
    return code;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int print_all(const struct explain_options *options, const struct rules *rules,
                     const struct evaluation *evaluation, const struct explained_key *keys,
                     const struct stint_decision *decision)
{
    const struct explained explained = {
        .domain = options->domain,
        .has_domain = rules_has_domain(rules, span_of_text(options->domain)),
        .descriptors = options->descriptors,
        .evaluation = evaluation,
        .keys = keys,
        .decision = *decision,
    };
    if (!options->json)
        rules_explain_text(&explained);
    else if (rules_explain_json(&explained) != 0)
        return CMD_BAD_INPUT;
    return decision->outcome == STINT_ALLOW ? CMD_DONE : CMD_DENIED;
}

static struct evaluation_ask ask_of(const struct explain_options *options,
                                    const struct rules *rules)
{
    return (struct evaluation_ask){.rules = rules,
                                   .domain = span_of_text(options->domain),
                                   .descriptors = options->descriptors,
                                   .n_descriptors = options->n_descriptors,
                                   .cost = (uint32_t)options->cost};
}

static int explain_table(const struct explain_options *options, const struct rules *rules,
                         struct evaluation *evaluation, uint64_t now_ns, struct stint_error *error)
{
    const struct evaluation_ask ask = ask_of(options, rules);
    evaluation_begin(evaluation, now_ns);
    if (evaluation_add_descriptors(evaluation, &ask, error) != 0)
        return CMD_BAD_INPUT;
    struct stint_decision decision = evaluation_peek(evaluation);
    return print_all(options, rules, evaluation, NULL, &decision);
}

static int explain_store(const struct explain_options *options, const struct rules *rules,
                         struct evaluation *evaluation, struct stint_error *error)
{
    struct explain_store *store = NULL;
    const struct explain_store_options opened = {&options->store, options->prefix};
    const struct evaluation_ask ask = ask_of(options, rules);
    struct stint_decision decision = {0};
    int code = explain_store_open(&store, &opened, error);
    if (code == 0)
        code = explain_store_ask(store, evaluation, &ask, &decision, error);
    code = code != 0 ? CMD_BAD_INPUT
                     : print_all(options, rules, evaluation, explain_store_keys(store), &decision);
    explain_store_close(store);
    return code;
}

static int explain(const struct explain_options *options, const struct rules *rules,
                   struct stint_table *table, uint64_t now_ns)
{
    struct stint_error error = {0};
    struct evaluation *evaluation = calloc(1, sizeof(*evaluation));
    if (evaluation == NULL || evaluation_init(evaluation, table, &error) != 0) {
        print_message("out of memory");
        free(evaluation);
        return CMD_BAD_INPUT;
    }
    int code = options->store.text != NULL
                   ? explain_store(options, rules, evaluation, &error)
                   : explain_table(options, rules, evaluation, now_ns, &error);
    if (error.code != 0)
        print_message("%s", error.message);
    evaluation_deinit(evaluation);
    free(evaluation);
    return code;
}

static int explain_with(const struct explain_options *options, const struct rules *rules)
{
    struct stint_error error;
    struct stint_table *table = NULL;
    uint64_t now_ns = 0;
    int code = options->state != NULL ? open_state(&table, options->state, &now_ns, &error)
                                      : open_unused(&table, rules, &error);
    if (code != 0) {
        print_message("%s", error.message);
        return CMD_BAD_INPUT;
    }
    if (options->state == NULL)
        now_ns = stint_now(table);
    code = explain(options, rules, table, now_ns);
    stint_table_close(table);
    return code;
}

static bool load(const struct explain_options *options, struct rules_loaded *loaded)
{
    return options->store.text != NULL ? explain_store_load(&options->rules, loaded)
                                       : rules_given_load(&options->rules, loaded);
}

int rules_explain_main(int argc, char **argv)
{
    struct rules_loaded loaded;
    struct explain_options *options = calloc(1, sizeof(*options));
    if (options == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    read_options(options, argc, argv);
    int code = CMD_BAD_INPUT;
    if (load(options, &loaded)) {
        code = explain_with(options, loaded.rules);
        rules_loaded_free(&loaded);
    }
    rules_args_free(&options->rules);
    free(options);
    return code;
}
