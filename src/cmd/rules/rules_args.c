/* SPDX-License-Identifier: MIT */
/* Reads PATH... and prints errors, for the commands on files of rules. */
#define _GNU_SOURCE
#include "cmd/rules/rules_args.h"

#include "algorithm/spec.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <stdlib.h>
#include <string.h>

void rules_args_algorithm(struct argp_state *state, void *args, char *name)
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

static void check(struct argp_state *state, void *args)
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

void rules_args_read(struct rules_args *args, const char *doc, int argc, char **argv)
{
    const struct args_command command = {
        .set = {options_known, .word = add_path, .end = check}, .arguments = "PATH...", .doc = doc};
    *args = (struct rules_args){.paths = calloc((size_t)argc, sizeof(*args->paths)),
                                .load = {.any_store = true}};
    if (args->paths == NULL) {
        print_message("out of memory");
        exit(CMD_BAD_INPUT);
    }
    args_parse(&command, argc, argv, args);
}

void rules_args_free(struct rules_args *args)
{
    free(args->paths);
    args->paths = NULL;
}

bool rules_args_load(const struct rules_args *args, struct rules_loaded *loaded)
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

static void print_fault(FILE *out, const struct rules_fault *fault, const char *what)
{
    print_escaped(out, span_of_text(fault->file));
    if (fault->line > 0)
        fprintf(out, ":%u:%u", (unsigned)fault->line, (unsigned)fault->column);
    fprintf(out, ": %s", what);
    print_escaped(out, span_of_text(fault->message));
    putc('\n', out);
}

void rules_print_warnings(FILE *out, const struct rules_diagnostics *diagnostics)
{
    for (size_t i = 0; i < diagnostics->n_warnings; i++)
        print_fault(out, &diagnostics->warnings[i], "warning: ");
}

void rules_print_faults(FILE *out, const struct rules_diagnostics *diagnostics)
{
    for (size_t i = 0; i < diagnostics->n_diagnostics; i++)
        print_fault(out, &diagnostics->diagnostics[i], "");
    if (diagnostics->n_more > 0)
        fprintf(out, "and %zu more\n", diagnostics->n_more);
}
