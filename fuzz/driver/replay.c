/* SPDX-License-Identifier: MIT */
/*
 * Feeds a fuzzer the inputs that are named, and those in folders that are named, each once: its
 * corpus as a test, with any compiler. The output is TAP. An input that ends the program is the one
 * named last.
 *
 *     replay_NAME fuzz/corpus/NAME
 *     replay_NAME INPUT
 */
#include "bytes.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static char **paths;
static size_t n_paths;

static void fail(const char *path)
{
    fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
    exit(2);
}

static void add(const char *folder, const char *name)
{
    size_t len = strlen(folder) + 1 + strlen(name) + 1;
    char *path = malloc(len);
    paths = realloc(paths, (n_paths + 1) * sizeof(*paths));
    MUST(path != NULL && paths != NULL);
    snprintf(path, len, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", name);
    paths[n_paths++] = path;
}

/* In the order of their names, so that every run is the same. */
static void add_folder(const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    if (n < 0)
        fail(folder);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.')
            add(folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

/* In memory of its length, so that reading one byte too many is seen. */
static void replay(const char *path)
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fstat(fileno(file), &status) != 0)
        fail(path);
    size_t len = (size_t)status.st_size;
    uint8_t *bytes = malloc(len > 0 ? len : 1);
    MUST(bytes != NULL);
    if (fread(bytes, 1, len, file) != len)
        fail(path);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, len);
    free(bytes);
}

int main(int argc, char **argv)
{
    struct stat status;
    for (int i = 1; i < argc; i++) {
        if (stat(argv[i], &status) != 0)
            fail(argv[i]);
        if (S_ISDIR(status.st_mode))
            add_folder(argv[i]);
        else
            add("", argv[i]);
    }
    if (n_paths == 0) {
        fprintf(stderr, "usage: %s INPUT|FOLDER…\n", argv[0]);
        return 2;
    }
    printf("1..%zu\n", n_paths);
    for (size_t i = 0; i < n_paths; i++) {
        printf("# %s\n", paths[i]);
        fflush(stdout);
        replay(paths[i]);
        printf("ok %zu - %s\n", i + 1, paths[i]);
        free(paths[i]);
    }
    free(paths);
    return 0;
}
