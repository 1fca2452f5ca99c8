/* SPDX-License-Identifier: MIT */
/*
 * Files of rules as command lines name them, their texts and the rules that they make; and `stint
 * rules check` and `show`: every error of files of rules, and the rules as parsed.
 */
#define _GNU_SOURCE
#include "cmd/rules/rules_files.h"

#include "algorithm/label.h"
#include "algorithm/spec.h"
#include "base/err.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "net/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The files ------------------------------------------------------------------------------- */

static int system_fault(struct stint_error *error, const char *path)
{
    return err_set(error, STINT_E_SYSTEM, "cannot read %s: %s%s", path, strerror(errno),
                   err_advice(errno));
}

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "out of memory");
}

/* ---- One file -------------------------------------------------------------------------------- */

static int add_file(struct rules_files *files, const char *path, struct span text,
                    struct stint_error *error)
{
    struct rules_file *more = realloc(files->files, (files->n_files + 1) * sizeof(*files->files));
    char *name = strdup(path);
    if (more != NULL)
        files->files = more;
    if (more == NULL || name == NULL) {
        free(name);
        return no_memory(error);
    }
    files->files[files->n_files++] = (struct rules_file){.path = name, .text = text};
    return STINT_OK;
}

static int read_open_file(struct rules_files *files, int fd, const char *path,
                          struct stint_error *error)
{
    char *bytes;
    size_t len;
    int code = file_bytes_read(fd, path, RULES_TEXT_MAX, &bytes, &len, error);
    if (code == STINT_OK)
        code = add_file(files, path, span_of(bytes, len), error);
    if (code != STINT_OK)
        free(bytes);
    return code;
}

static int read_file(struct rules_files *files, const char *path, struct stint_error *error)
{
    int fd = file_open(path, error);
    if (fd < 0)
        return fd;
    int code = read_open_file(files, fd, path, error);
    close(fd);
    return code;
}

/* ---- A folder -------------------------------------------------------------------------------- */

static int is_yaml(const struct dirent *entry)
{
    const char *ending = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && ending != NULL &&
           (strcmp(ending, ".yaml") == 0 || strcmp(ending, ".yml") == 0);
}

/* By bytes: the same order in every locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_in_folder(struct rules_files *files, const char *folder, const char *name,
                          struct stint_error *error)
{
    char *path = NULL;
    struct stat status;
    size_t len = strlen(folder);
    if (asprintf(&path, "%s%s%s", folder, len > 0 && folder[len - 1] == '/' ? "" : "/", name) < 0)
        return no_memory(error);
    int code = STINT_OK;
    if (stat(path, &status) != 0)
        code = system_fault(error, path);
    else if (S_ISREG(status.st_mode))
        code = read_file(files, path, error);
    free(path);
    return code;
}

static int read_folder(struct rules_files *files, const char *path, struct stint_error *error)
{
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, is_yaml, by_name), code = STINT_OK;
    if (n < 0)
        return system_fault(error, path);
    for (int i = 0; i < n; i++) {
        if (code == STINT_OK)
            code = read_in_folder(files, path, entries[i]->d_name, error);
        free(entries[i]);
    }
    free(entries);
    return code;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int read_path(struct rules_files *files, const char *path, struct stint_error *error)
{
    struct stat status;
    if (strcmp(path, "-") == 0)
        return read_open_file(files, STDIN_FILENO, "-", error);
    if (stat(path, &status) != 0)
        return system_fault(error, path);
    if (S_ISDIR(status.st_mode))
        return read_folder(files, path, error);
    return read_file(files, path, error);
}

int rules_files_read(const char *const *paths, size_t n_paths, struct rules_files *files,
                     struct stint_error *error)
{
    int code = STINT_OK;
    *files = (struct rules_files){0};
    for (size_t i = 0; i < n_paths && code == STINT_OK; i++) {
        size_t n_before = files->n_files;
        code = read_path(files, paths[i], error);
        if (files->n_files == n_before && files->empty == 0)
            files->empty = i + 1;
    }
    if (code != STINT_OK)
        rules_files_free(files);
    return code;
}

int rules_files_check(const char *const *paths, size_t n_paths, const struct rules_files *files,
                      const struct rules *rules, struct stint_error *error)
{
    const char *allow = "give it rules, or allow that with --rules-may-be-empty";
    if (files->empty > 0)
        return err_set(error, STINT_E_MISMATCH,
                       "%s: expected a folder with files *.yaml or *.yml, found none; %s",
                       paths[files->empty - 1], allow);
    if (n_paths > 0 && rules_count(rules) == 0)
        return err_set(error, STINT_E_MISMATCH, "%s%s: expected rules, found no limit; %s",
                       paths[0], n_paths > 1 ? " and the others" : "", allow);
    return STINT_OK;
}

void rules_files_free(struct rules_files *files)
{
    for (size_t i = 0; i < files->n_files; i++) {
        free((char *)(uintptr_t)files->files[i].path);
        free((uint8_t *)(uintptr_t)files->files[i].text.ptr);
    }
    free(files->files);
    *files = (struct rules_files){0};
}

/* ---- What a command line names --------------------------------------------------------------- */

/* Sets the value of --default-algorithm; exits if that is no algorithm for limits. */
static void set_algorithm(struct argp_state *state, void *args, char *name)
{
    const char *nearest;
    int algorithm = spec_algorithm(span_of_text(name), &nearest);
    if (algorithm == 0)
        argp_error(state, "--default-algorithm: there is no '%s'%s%s%s", name,
                   nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    if (algorithm == STINT_CONCURRENCY)
        argp_error(state, "--default-algorithm: concurrency is not per time, and needs a lease");
    ((struct rules_args *)args)->load.default_algorithm = (uint8_t)algorithm;
}

void rules_args_free(struct rules_args *args)
{
    free(args->paths);
    args->paths = NULL;
}

/* False if a file cannot be read or has no rules, which is reported: then free nothing. */
static bool load(const struct rules_args *args, struct rules_loaded *loaded)
{
    struct stint_error error;
    if (rules_files_read(args->paths, args->n_paths, &loaded->files, &error) != 0) {
        print_message("%s", error.message);
        return false;
    }
    loaded->rules =
        rules_load(loaded->files.files, loaded->files.n_files, &args->load, &loaded->diagnostics);
    if (loaded->rules == NULL || !args->must_limit || args->may_be_empty ||
        rules_files_check(args->paths, args->n_paths, &loaded->files, loaded->rules, &error) == 0)
        return true;
    print_message("%s", error.message);
    rules_loaded_free(loaded);
    return false;
}

void rules_loaded_free(struct rules_loaded *loaded)
{
    rules_unref(loaded->rules);
    rules_diagnostics_free(&loaded->diagnostics);
    rules_files_free(&loaded->files);
}

/* Prints "FILE:LINE:COLUMN: message", with `what` before the message. */
static void print_fault(FILE *out, const struct rules_fault *fault, const char *what)
{
    print_escaped(out, span_of_text(fault->file));
    if (fault->line > 0)
        fprintf(out, ":%u:%u", (unsigned)fault->line, (unsigned)fault->column);
    fprintf(out, ": %s", what);
    print_escaped(out, span_of_text(fault->message));
    putc('\n', out);
}

/* Prints all errors, and the number of errors that were not kept. */
static void print_diagnostics(FILE *out, const struct rules_diagnostics *diagnostics)
{
    for (size_t i = 0; i < diagnostics->n_diagnostics; i++)
        print_fault(out, &diagnostics->diagnostics[i], "");
    if (diagnostics->n_more > 0)
        fprintf(out, "and %zu more\n", diagnostics->n_more);
}

/* ---- --rules --------------------------------------------------------------------------------- */

static void add_given_path(struct argp_state *state, void *input, char *path)
{
    struct rules_args *args = input;
    const char **paths = realloc(args->paths, (args->n_paths + 1) * sizeof(*paths));
    if (paths == NULL)
        argp_failure(state, 1, 0, "out of memory");
    args->paths = paths;
    args->paths[args->n_paths++] = path;
}

static void begin(void *args)
{
    ((struct rules_args *)args)->load.any_store = true; /* all is decided by a table here */
}

static const struct args_option given_options[] = {
    {"rules", "PATH", 1,
     "A file of rules, or a folder of them (its *.yaml and *.yml); several may be given",
     ARGS_OWN(add_given_path)},
    {"default-algorithm", "NAME", 1, "Algorithm of limits that name none (default window)",
     ARGS_OWN(set_algorithm)},
    {"merge-domains", NULL, 1, "Allow one domain in several files",
     ARGS_FLAG(struct rules_args, load.merge_domains)},
    {0},
};

const struct args_set rules_given_set = {given_options, .begin = begin};

bool rules_given_load(const struct rules_args *args, struct rules_loaded *loaded)
{
    if (!load(args, loaded))
        return false;
    if (loaded->rules != NULL)
        return true;
    print_diagnostics(stderr, &loaded->diagnostics);
    rules_loaded_free(loaded);
    return false;
}

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
     ARGS_OWN(set_algorithm)},
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

/* The command, of which `output` prints the rules or their errors: 0, or -1 if it cannot. */
static int run(const char *doc, bool must_limit,
               int (*output)(const struct rules_loaded *loaded, bool is_json), int argc,
               char **argv)
{
    const struct args_command command = {
        .set = {options_known, .word = add_path, .end = check_paths},
        .arguments = "PATH...",
        .doc = doc};
    struct rules_args args = {.paths = calloc((size_t)argc, sizeof(*args.paths)),
                              .load = {.any_store = true}};
    struct rules_loaded loaded;
    bool fine = false;
    if (args.paths == NULL)
        return print_failure("out of memory");
    args_parse(&command, argc, argv, &args);
    args.must_limit = must_limit;
    if (load(&args, &loaded)) {
        fine = output(&loaded, args.json) == 0 && loaded.rules != NULL;
        rules_loaded_free(&loaded);
    }
    rules_args_free(&args);
    return fine ? CMD_DONE : CMD_BAD_INPUT;
}

/* ---- stint rules check ----------------------------------------------------------------------- */

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
    for (size_t i = 0; i < diagnostics->n_warnings; i++)
        print_fault(stdout, &diagnostics->warnings[i], "warning: ");
    print_diagnostics(stdout, diagnostics);
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

static int print_checked(const struct rules_loaded *loaded, bool is_json)
{
    if (is_json)
        return print_checked_json(&loaded->diagnostics);
    print_checked_text(loaded);
    return 0;
}

int rules_check_main(int argc, char **argv)
{
    return run("Reads files of rules, as a server would with --rules, and prints each error as "
               "FILE:LINE:COLUMN: message. PATH is a file, a folder (its *.yaml and *.yml), or - "
               "for standard input. With --json, prints one array of errors, in which \"warning\": "
               "true marks warnings.\vExit codes: 0 no error, 1 errors, a file that cannot be read "
               "or no limit at all, 2 bad usage.",
               true, print_checked, argc, argv);
}

/* ---- stint rules show ------------------------------------------------------------------------ */

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
    char spec[SPEC_SIZE], bound[MESSAGES_MAX];
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
    char text[SPEC_SIZE];
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
    char unavailable[SPEC_SIZE], lease[SPEC_SIZE];
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
        print_between("  \"", span_of_text(rule->name), "");
        putchar('"');
    }
    print_between("  (", span_of_text(rule->file), "");
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
    if (rule->metadata.len > 0)
        print_between("  tells   ", rule->metadata, "\n");
    print_flags(rule);
    print_hits(rule);
}

/* Rules of one domain together, also if merged files had another domain between them. */
static void print_rules_text(const struct rules *rules)
{
    const char *domain;
    for (size_t i = 0; (domain = rules_domain(rules, i)) != NULL; i++) {
        printf("%sdomain ", i == 0 ? "" : "\n");
        print_between("", span_of_text(domain), "\n");
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
    char spec[SPEC_SIZE];
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

static int print_rules(const struct rules_loaded *loaded, bool is_json)
{
    if (loaded->rules == NULL)
        print_diagnostics(stderr, &loaded->diagnostics);
    else if (is_json)
        return print_rules_json(loaded->rules);
    else
        print_rules_text(loaded->rules);
    return 0;
}

int rules_show_main(int argc, char **argv)
{
    return run(
        "Prints the rules of files as parsed: each with its quota, the most that it admits "
        "in any window, its other keys and its position. PATH is a file, a folder (its "
        "*.yaml and *.yml), or - for standard input.\vExit codes: 0 done, 1 errors or a file "
        "that cannot be read, 2 bad usage.",
        false, print_rules, argc, argv);
}
