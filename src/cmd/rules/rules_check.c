/* SPDX-License-Identifier: MIT */
/* `stint rules check`: every error of every file, before a server loads them. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/json_text.h"
#include "cmd/rules/rules_args.h"

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

static void print_text(const struct rules_loaded *loaded)
{
    const struct rules_diagnostics *diagnostics = &loaded->diagnostics;
    rules_print_warnings(stdout, diagnostics);
    rules_print_faults(stdout, diagnostics);
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

static int print_json(const struct rules_diagnostics *diagnostics)
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
        failed = print_json(&loaded.diagnostics);
    else
        print_text(&loaded);
    bool fine = loaded.rules != NULL && failed == 0;
    rules_loaded_free(&loaded);
    return fine ? CMD_DONE : CMD_BAD_INPUT;
}

int rules_check_main(int argc, char **argv)
{
    struct rules_args args;
    rules_args_read(
        &args,
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
