/* SPDX-License-Identifier: MIT */
/* `stint rules`: every error of files of rules, and the rules as parsed. */
#define _GNU_SOURCE
#include "cmd/rules/rules_files.h"

#include "algorithm/label.h"
#include "algorithm/spec.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The command line of check and show ------------------------------------------------------ */

static void add_store(struct argp_state *state, void *input, char *name)
{
    struct rules_args *args = input;
    struct rules_load_options *load = &args->load;
    if (load->n_stores == RULES_STORES_MAX)
        argp_error(state, "--store: there are at most %d stores", RULES_STORES_MAX);
    args->stores[load->n_stores++] = name;
    if (strcmp(name, RULES_STORE_DEFAULT) == 0)
        load->default_store = load->n_stores;
    load->stores = args->stores;
    load->any_store = false;
}

static void add_path(struct argp_state *state, void *input, char *path)
{
    struct rules_args *args = input;
    (void)state;
    args->paths[args->n_paths++] = path;
}

static void check_paths(struct argp_state *state, void *args)
{
    if (((const struct rules_args *)args)->n_paths == 0)
        argp_error(state, "expected the PATH of a file of rules, or of a folder of them");
}

static const struct args_option options_known[] = {
    {"json", NULL, 0, "The same as JSON", ARGS_FLAG(struct rules_args, json)},
    {"default-algorithm", "NAME", 0, "Algorithm of limits that name none (default window)",
     ARGS_OWN(rules_args_algorithm)},
    {"merge-domains", NULL, 0, "Allow one domain in several files",
     ARGS_FLAG(struct rules_args, load.merge_domains)},
    {"store", "NAME", 0,
     "Name of a store that rules may name, `default` for that of all others; several may "
     "be given. Without it rules may name any store",
     ARGS_OWN(add_store)},
    {"rules-may-be-empty", NULL, 0,
     "Accept files and folders without any limit; `show` always does",
     ARGS_FLAG(struct rules_args, may_be_empty)},
    {0},
};

/* Exits with CMD_BAD_USAGE where the command line is wrong. `args` needs rules_args_free(). */
static void read_args(struct rules_args *args, const char *doc, int argc, char **argv)
{
    const struct args_command command = {
        .set = {options_known, .word = add_path, .end = check_paths},
        .arguments = "PATH...",
        .doc = doc};
    *args = (struct rules_args){.paths = calloc((size_t)argc, sizeof(*args->paths)),
                                .load = {.any_store = true}};
    if (args->paths == NULL) {
        print_message("out of memory");
        exit(CMD_BAD_INPUT);
    }
    args_parse(&command, argc, argv, args);
}

/* ---- stint rules check ----------------------------------------------------------------------- */

static void print_warnings(FILE *out, const struct rules_diagnostics *diagnostics)
{
    for (size_t i = 0; i < diagnostics->n_warnings; i++)
        rules_print_fault(out, &diagnostics->warnings[i], "warning: ");
}

static size_t count_domains(const struct rules *rules)
{
    size_t n = 0;
    while (rules_domain(rules, n) != NULL)
        n++;
    return n;
}

static void print_count(size_t n, const char *noun, const char *end)
{
    printf("%zu %s%s%s", n, noun, n == 1 ? "" : "s", end);
}

static void print_checked_text(const struct rules_loaded *loaded)
{
    const struct rules_diagnostics *diagnostics = &loaded->diagnostics;
    print_warnings(stdout, diagnostics);
    rules_print_diagnostics(stdout, diagnostics);
    if (loaded->rules == NULL) {
        print_count(diagnostics->n_diagnostics + diagnostics->n_more, "fault", " in ");
        print_count(loaded->files.n_files, "file", "\n");
        return;
    }
    print_count(rules_count(loaded->rules), "rule", " in ");
    print_count(count_domains(loaded->rules), "domain", ", ");
    print_count(loaded->files.n_files, "file", ": no fault");
    if (diagnostics->n_warnings > 0) {
        fputs(", ", stdout);
        print_count(diagnostics->n_warnings, "warning", "");
    }
    putchar('\n');
}

static json_t *fault_json(const struct rules_fault *fault)
{
    return json_pack("{s:o, s:I, s:I, s:o}", "file", json_text_key(span_of_text(fault->file)),
                     "line", (json_int_t)fault->line, "column", (json_int_t)fault->column,
                     "message", json_text_key(span_of_text(fault->message)));
}

static int print_checked_json(const struct rules_diagnostics *diagnostics)
{
    json_t *list = json_array();
    for (size_t i = 0; i < diagnostics->n_warnings; i++) {
        json_t *warning = fault_json(&diagnostics->warnings[i]);
        json_object_set_new(warning, "warning", json_true());
        json_array_append_new(list, warning);
    }
    for (size_t i = 0; i < diagnostics->n_diagnostics; i++)
        json_array_append_new(list, fault_json(&diagnostics->diagnostics[i]));
    return json_text_print(list, true);
}

static int check(const struct rules_args *args)
{
    struct rules_loaded loaded;
    int failed = 0;
    if (!rules_args_load(args, &loaded))
        return CMD_BAD_INPUT;
    if (args->json)
        failed = print_checked_json(&loaded.diagnostics);
    else
        print_checked_text(&loaded);
    bool fine = loaded.rules != NULL && failed == 0;
    rules_loaded_free(&loaded);
    return fine ? CMD_DONE : CMD_BAD_INPUT;
}

static int rules_check_main(int argc, char **argv)
{
    struct rules_args args;
    read_args(&args,
              "Reads files of rules, as a server would with --rules, and prints each error as "
              "FILE:LINE:COLUMN: message. PATH is a file, a folder (its *.yaml and *.yml), or - "
              "for standard input. With --json, prints one array of errors, in which \"warning\": "
              "true marks warnings.\vExit codes: 0 no error, 1 errors, a file that cannot be read "
              "or no limit at all, 2 bad usage.",
              argc, argv);
    args.must_limit = true;
    int code = check(&args);
    rules_args_free(&args);
    return code;
}

/* ---- stint rules show ------------------------------------------------------------------------ */

#define SPEC_MAX 256
#define MESSAGES_MAX 2048

static const char *const on_store_error_names[] = {
    [RULE_STORE_ERROR_DENY] = "deny",
    [RULE_STORE_ERROR_ALLOW] = "allow",
    [RULE_STORE_ERROR_LOCAL] = "local",
    [RULE_STORE_ERROR_ERROR] = "error",
};
static const char *const lease_names[] = {
    [RULE_LEASE_NONE] = "none",
    [RULE_LEASE_STRICT] = "strict",
    [RULE_LEASE_FAST] = "fast",
};
static const char *const tag_names[] = {
    [RULE_TAG_VALUES] = "values",
    [RULE_TAG_FIRST] = "first",
    [RULE_TAG_DOMAIN] = "domain",
};
static const char *const hits_names[] = {
    [RULE_HITS_UNSAID] = NULL,
    [RULE_HITS_TAKE] = "take",
    [RULE_HITS_CHARGE] = "charge",
};
static const char *const unit_names[] = {
    [RULE_UNIT_NONE] = NULL, [RULE_SECOND] = "second", [RULE_MINUTE] = "minute",
    [RULE_HOUR] = "hour",    [RULE_DAY] = "day",       [RULE_MONTH] = "month",
    [RULE_YEAR] = "year",    [RULE_WEEK] = "week",
};

/* ---- Text ---- */

static void print_quota(const char *title, const struct stint_quota *quota)
{
    char spec[SPEC_MAX], bound[MESSAGES_MAX];
    struct buf buf = buf_of(bound, sizeof(bound));
    stint_quota_format(quota, spec, sizeof(spec));
    label_bound(&buf, quota);
    printf("  %-8s%s\n", title, spec);
    printf("          %s\n", bound);
    const char *when_full = spec_when_full_name(quota->when_full);
    printf("          %s; a full table: %s\n", stint_is_strict(quota) ? "Strict" : "Not strict",
           when_full != NULL ? when_full : "as the server's table_full says");
}

static void print_ban(const struct rule_ban *ban)
{
    char text[SPEC_MAX];
    struct buf buf = buf_of(text, sizeof(text));
    buf_add(&buf, "after %u denials within ", (unsigned)ban->after);
    spec_format_duration(&buf, ban->within_ns);
    buf_add(&buf, ", for ");
    spec_format_duration(&buf, ban->for_ns);
    if (ban->factor > 1) {
        buf_add(&buf, ", each time %u times as long, at most ", (unsigned)ban->factor);
        spec_format_duration(&buf, ban->max_ns);
    }
    printf("  ban     %s\n", text);
}

static void print_flags(const struct rule *rule)
{
    const struct {
        const char *name;
        bool is_set;
    } flags[] = {
        {"shadow_mode", rule->shadow_mode},         {"quota_mode", rule->quota_mode},
        {"detailed_metric", rule->detailed_metric}, {"value_to_metric", rule->value_to_metric},
        {"share_threshold", rule->share_threshold},
    };
    bool any = false;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (!flags[i].is_set)
            continue;
        printf("%s%s", any ? ", " : "  flags   ", flags[i].name);
        any = true;
    }
    if (any)
        putchar('\n');
}

/* If a rule sets no hits, the server's grpc_hits applies. */
static void print_hits(const struct rule *rule)
{
    if (rule->hits == RULE_HITS_CHARGE)
        puts("  hits    charge: what a gateway reports is recorded, whether it fits or not");
    else if (rule->hits == RULE_HITS_TAKE)
        puts("  hits    take: what does not fit is refused, and not recorded");
}

static void print_replaces(const struct rule *rule)
{
    for (size_t i = 0; i < rule->n_replaces; i++) {
        fputs(i == 0 ? "  drops   " : ", ", stdout);
        print_escaped(stdout, span_of_text(rule->replaces[i]));
    }
    if (rule->n_replaces > 0)
        putchar('\n');
}

static void print_metadata(const struct rule *rule)
{
    if (rule->metadata.len == 0)
        return;
    fputs("  tells   ", stdout);
    print_escaped(stdout, rule->metadata);
    putchar('\n');
}

static void add_unavailable(struct buf *buf, const struct rule_store *store)
{
    if (store->on_error != RULE_STORE_ERROR_LOCAL) {
        buf_add(buf, "%s while it does not answer", on_store_error_names[store->on_error]);
        return;
    }
    buf_add(buf, "local while it does not answer: this node's share for ");
    spec_format_duration(buf, store->local_for_ns);
    buf_add(buf, ", %s at first, then %s", store->local_empty ? "unused" : "used",
            on_store_error_names[store->local_then]);
}

/* Without stores the defaults are not printed. */
static void print_store(const struct rule_store *store)
{
    char unavailable[SPEC_MAX], lease[SPEC_MAX];
    struct buf buf = buf_of(unavailable, sizeof(unavailable));
    const char *title = "  store   ";
    add_unavailable(&buf, store);
    if (store->label != NULL) {
        fputs(title, stdout);
        print_escaped(stdout, span_of_text(store->label));
        printf(", as %s, tagged by %s\n", store->name,
               store->tag == RULE_TAG_DOMAIN  ? "the domain"
               : store->tag == RULE_TAG_FIRST ? "the first value"
                                              : "all values");
        title = "          ";
    }
    if (store->label != NULL || store->on_error != RULE_STORE_ERROR_DENY)
        printf("%s%s\n", title, unavailable);
    if (store->lease == RULE_LEASE_NONE)
        return;
    buf = buf_of(lease, sizeof(lease));
    buf_add(&buf, "%s, at most %u unit%s for ", lease_names[store->lease],
            (unsigned)store->lease_units, store->lease_units == 1 ? "" : "s");
    spec_format_duration(&buf, store->lease_term_ns);
    printf("  lease   %s\n", lease);
}

static void print_on_expiry(const struct rule *rule)
{
    if (!rule->has_on_expiry)
        return;
    if (rule->kept_units == STINT_KEEP_ALL)
        puts("  unsettled reservations stay charged as estimated");
    else if (rule->kept_units == 0)
        puts("  unsettled reservations are released");
    else
        printf("  unsettled reservations stay charged with at most %u units\n",
               (unsigned)rule->kept_units);
}

static void print_rule(const struct rule *rule)
{
    print_escaped(stdout, span_of_text(rule->path));
    if (rule->name[0] != '\0') {
        fputs("  \"", stdout);
        print_escaped(stdout, span_of_text(rule->name));
        putchar('"');
    }
    fputs("  (", stdout);
    print_escaped(stdout, span_of_text(rule->file));
    printf(":%u)\n", (unsigned)rule->line);
    if (rule->unlimited)
        puts("  unlimited");
    else
        print_quota("limit", &rule->quota);
    if (rule->has_shadow)
        print_quota("shadow", &rule->shadow);
    if (rule->ban.after > 0)
        print_ban(&rule->ban);
    print_on_expiry(rule);
    print_store(&rule->store);
    print_replaces(rule);
    print_metadata(rule);
    print_flags(rule);
    print_hits(rule);
}

/* Rules of one domain together, also if merged files had another domain between them. */
static void print_rules_text(const struct rules *rules)
{
    const char *domain;
    for (size_t i = 0; (domain = rules_domain(rules, i)) != NULL; i++) {
        printf("%sdomain ", i == 0 ? "" : "\n");
        print_escaped(stdout, span_of_text(domain));
        putchar('\n');
        for (size_t j = 0; j < rules_count(rules); j++) {
            const struct rule *rule = rules_at(rules, j);
            if (rule->domain == domain) {
                putchar('\n');
                print_rule(rule);
            }
        }
    }
}

/* ---- JSON ---- */

static json_t *quota_json(const struct stint_quota *quota)
{
    char spec[SPEC_MAX];
    stint_quota_format(quota, spec, sizeof(spec));
    return json_pack("{s:s, s:o, s:b, s:s?}", "spec", spec, "max_in_any_window",
                     json_text_ns(stint_max_in_any_window(quota)), "strict", stint_is_strict(quota),
                     "when_full", spec_when_full_name(quota->when_full));
}

static json_t *ban_json(const struct rule_ban *ban)
{
    if (ban->after == 0)
        return json_null();
    return json_pack("{s:I, s:I, s:o, s:o, s:o}", "after", (json_int_t)ban->after, "factor",
                     (json_int_t)ban->factor, "within_ns", json_text_ns(ban->within_ns), "for_ns",
                     json_text_ns(ban->for_ns), "max_ns", json_text_ns(ban->max_ns));
}

static json_t *local_json(const struct rule_store *store)
{
    if (store->on_error != RULE_STORE_ERROR_LOCAL)
        return json_null();
    return json_pack("{s:s, s:o, s:s}", "start", store->local_empty ? "empty" : "full", "for_ns",
                     json_text_ns(store->local_for_ns), "then",
                     on_store_error_names[store->local_then]);
}

static json_t *lease_json(const struct rule_store *store)
{
    if (store->lease == RULE_LEASE_NONE)
        return json_null();
    return json_pack("{s:s, s:I, s:o}", "kind", lease_names[store->lease], "units",
                     (json_int_t)store->lease_units, "term_ns", json_text_ns(store->lease_term_ns));
}

/* NULL as `store` is the table of the process. */
static json_t *store_json(const struct rule_store *store)
{
    return json_pack("{s:o, s:s?, s:s?, s:s, s:o, s:o}", "store",
                     store->label != NULL ? json_text_key(span_of_text(store->label)) : json_null(),
                     "store_rule", store->name, "store_shadow_rule", store->shadow_name,
                     "store_tag", tag_names[store->tag], "local", local_json(store), "lease",
                     lease_json(store));
}

static json_t *replaces_json(const struct rule *rule)
{
    json_t *names = json_array();
    for (size_t i = 0; i < rule->n_replaces; i++)
        json_array_append_new(names, json_text_key(span_of_text(rule->replaces[i])));
    return names;
}

/* keep, release or a number; null: not set. */
static json_t *on_expiry_json(const struct rule *rule)
{
    if (!rule->has_on_expiry)
        return json_null();
    if (rule->kept_units == STINT_KEEP_ALL)
        return json_string("keep");
    return rule->kept_units == 0 ? json_string("release") : json_integer(rule->kept_units);
}

static json_t *rule_json(const struct rule *rule)
{
    char id[24];
    snprintf(id, sizeof(id), "%016" PRIx64, rule->id);
    json_t *object = json_pack(
        "{s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:b, s:o, s:o, s:o, s:I, s:s?, s:s, s:o}", "domain",
        json_text_key(span_of_text(rule->domain)), "path", json_text_key(span_of_text(rule->path)),
        "name", json_text_key(span_of_text(rule->name)), "file",
        json_text_key(span_of_text(rule->file)), "line", (json_int_t)rule->line, "column",
        (json_int_t)rule->column, "id", id, "unlimited", rule->unlimited, "limit",
        rule->unlimited ? json_null() : quota_json(&rule->quota), "shadow",
        rule->has_shadow ? quota_json(&rule->shadow) : json_null(), "ban", ban_json(&rule->ban),
        "requests_per_unit", (json_int_t)rule->requests_per_unit, "unit", unit_names[rule->unit],
        "on_store_error", on_store_error_names[rule->store.on_error], "replaces",
        replaces_json(rule));
    json_t *flags =
        json_pack("{s:b, s:b, s:b, s:b, s:b}", "shadow_mode", rule->shadow_mode, "quota_mode",
                  rule->quota_mode, "detailed_metric", rule->detailed_metric, "value_to_metric",
                  rule->value_to_metric, "share_threshold", rule->share_threshold);
    json_object_update_new(object, flags);
    json_object_update_new(object, json_pack("{s:s?}", "hits", hits_names[rule->hits]));
    json_object_update_new(object, store_json(&rule->store));
    json_object_set_new(object, "on_expiry", on_expiry_json(rule));
    json_object_set_new(object, "metadata",
                        rule->metadata.len == 0
                            ? json_null()
                            : json_loadb((const char *)rule->metadata.ptr, rule->metadata.len,
                                         JSON_ALLOW_NUL, NULL));
    return object;
}

static int print_rules_json(const struct rules *rules)
{
    json_t *list = json_array();
    for (size_t i = 0; i < rules_count(rules); i++)
        json_array_append_new(list, rule_json(rules_at(rules, i)));
    return json_text_print(list, true);
}

/* ---- All of it ---- */

static int show(const struct rules_args *args)
{
    struct rules_loaded loaded;
    int failed = 0;
    if (!rules_args_load(args, &loaded))
        return CMD_BAD_INPUT;
    if (loaded.rules == NULL)
        rules_print_diagnostics(stderr, &loaded.diagnostics);
    else if (args->json)
        failed = print_rules_json(loaded.rules);
    else
        print_rules_text(loaded.rules);
    bool fine = loaded.rules != NULL && failed == 0;
    rules_loaded_free(&loaded);
    return fine ? CMD_DONE : CMD_BAD_INPUT;
}

static int rules_show_main(int argc, char **argv)
{
    struct rules_args args;
    read_args(&args,
              "Prints the rules of files as parsed: each with its quota, the most that it admits "
              "in any window, its other keys and its position. PATH is a file, a folder (its "
              "*.yaml and *.yml), or - for standard input.\vExit codes: 0 done, 1 errors or a file "
              "that cannot be read, 2 bad usage.",
              argc, argv);
    int code = show(&args);
    rules_args_free(&args);
    return code;
}

/* ---- stint rules ----------------------------------------------------------------------------- */

const struct cmd rules_commands[] = {
    {"check", "check files of rules; print every error with its line and column",
     .run = rules_check_main},
    {"show", "print the rules as parsed, with their bounds", .run = rules_show_main},
    {"explain", "which rules a request matches, and which would deny it",
     .run = rules_explain_main},
    {.name = NULL},
};
