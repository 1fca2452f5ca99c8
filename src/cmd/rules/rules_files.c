/* SPDX-License-Identifier: MIT */
/* Files of rules: as command lines name them, their texts, and the rules that they make. */
#define _GNU_SOURCE
#include "cmd/rules/rules_files.h"

#include "algorithm/spec.h"
#include "base/err.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "net/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The files ------------------------------------------------------------------------------- */

#define READ_SIZE 65536

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

struct growing {
    uint8_t *bytes;
    size_t len, size;
};

/* One byte more than allowed shows that a file is too large. */
static int read_all(int fd, const char *path, struct growing *text, struct stint_error *error)
{
    for (;;) {
        if (text->len == text->size) {
            size_t size = text->size == 0 ? READ_SIZE : 2 * text->size;
            uint8_t *bytes = realloc(text->bytes, size);
            if (bytes == NULL)
                return no_memory(error);
            text->bytes = bytes;
            text->size = size;
        }
        ssize_t n = read(fd, text->bytes + text->len, text->size - text->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return system_fault(error, path);
        if (n == 0)
            return STINT_OK;
        text->len += (size_t)n;
        if (text->len > RULES_TEXT_MAX)
            return err_set(error, STINT_E_RANGE, "%s: expected a file of at most %d bytes", path,
                           RULES_TEXT_MAX);
    }
}

/* Thousands of small files are kept until all are read: each is copied into memory of its size. */
static int add_file(struct rules_files *files, const char *path, const struct growing *text,
                    struct stint_error *error)
{
    struct rules_file *more = realloc(files->files, (files->n_files + 1) * sizeof(*files->files));
    char *name = strdup(path);
    uint8_t *copy = malloc(text->len + 1);
    if (more != NULL)
        files->files = more;
    if (more == NULL || name == NULL || copy == NULL) {
        free(name);
        free(copy);
        return no_memory(error);
    }
    if (text->len > 0)
        memcpy(copy, text->bytes, text->len);
    struct rules_file *file = &files->files[files->n_files++];
    file->path = name;
    file->text = span_of(copy, text->len);
    return STINT_OK;
}

static int read_open_file(struct rules_files *files, int fd, const char *path,
                          struct stint_error *error)
{
    struct growing text = {0};
    int code = read_all(fd, path, &text, error);
    if (code == STINT_OK)
        code = add_file(files, path, &text, error);
    free(text.bytes);
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

void rules_print_fault(FILE *out, const struct rules_fault *fault, const char *what)
{
    print_escaped(out, span_of_text(fault->file));
    if (fault->line > 0)
        fprintf(out, ":%u:%u", (unsigned)fault->line, (unsigned)fault->column);
    fprintf(out, ": %s", what);
    print_escaped(out, span_of_text(fault->message));
    putc('\n', out);
}

void rules_print_diagnostics(FILE *out, const struct rules_diagnostics *diagnostics)
{
    for (size_t i = 0; i < diagnostics->n_diagnostics; i++)
        rules_print_fault(out, &diagnostics->diagnostics[i], "");
    if (diagnostics->n_more > 0)
        fprintf(out, "and %zu more\n", diagnostics->n_more);
}

/* ---- --rules --------------------------------------------------------------------------------- */

static void add_path(struct argp_state *state, void *input, char *path)
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

static const struct args_option options_known[] = {
    {"rules", "PATH", 1,
     "A file of rules, or a folder of them (its *.yaml and *.yml); several may be given",
     ARGS_OWN(add_path)},
    {"default-algorithm", "NAME", 1, "Algorithm of limits that name none (default window)",
     ARGS_OWN(rules_args_algorithm)},
    {"merge-domains", NULL, 1, "Allow one domain in several files",
     ARGS_FLAG(struct rules_args, load.merge_domains)},
    {0},
};

const struct args_set rules_given_set = {options_known, .begin = begin};

bool rules_given_load(const struct rules_args *args, struct rules_loaded *loaded)
{
    if (!rules_args_load(args, loaded))
        return false;
    if (loaded->rules != NULL)
        return true;
    rules_print_diagnostics(stderr, &loaded->diagnostics);
    rules_loaded_free(loaded);
    return false;
}
