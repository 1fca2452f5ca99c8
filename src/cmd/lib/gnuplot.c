/* SPDX-License-Identifier: MIT */
/*
 * gnuplot reads its program from memory and draws into memory, so that neither a pipe that is full
 * nor a picture that is half done has to be thought of.
 */
#define _GNU_SOURCE
#include "cmd/lib/gnuplot.h"

#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COLUMNS 100
#define ROWS 30
#define ROWS_MAX 50  /* a picture of letters is not read over more */
#define ERRORS_MAX 8 /* lines of gnuplot's that are shown */

/* ---- The option ------------------------------------------------------------------------------ */

static enum gnuplot_format format_of(const char *path)
{
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    const char *end = strrchr(name, '.');
    if (strcmp(path, "-") == 0)
        return GNUPLOT_TERMINAL;
    if (end == NULL || end == name)
        return GNUPLOT_NONE;
    if (strcasecmp(end, ".svg") == 0)
        return GNUPLOT_SVG;
    return strcasecmp(end, ".png") == 0 ? GNUPLOT_PNG : GNUPLOT_NONE;
}

/* 0, or why the file could not be written. */
static int writable(const char *path)
{
    if (access(path, F_OK) == 0) {
        int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
        return fd < 0 || close(fd) != 0 ? errno : 0;
    }
    char *copy = strdup(path);
    int why = copy == NULL || access(dirname(copy), W_OK | X_OK) != 0 ? errno : 0;
    free(copy);
    return why;
}

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

void gnuplot_option(struct argp_state *state, void *field, char *value)
{
    struct gnuplot *gnuplot = field;
    if (gnuplot->format != GNUPLOT_NONE)
        argp_error(state, "expected one --plot, found '%s' too", value);
    gnuplot->format = format_of(value);
    gnuplot->path = value;
    if (gnuplot->format == GNUPLOT_NONE)
        argp_error(state,
                   "--plot cannot be '%s'; expected a name that ends with .svg or .png, or -",
                   value);
    if (has_control(value))
        argp_error(state, "the name after --plot has control characters in it");
    int why = gnuplot->format == GNUPLOT_TERMINAL ? 0 : writable(value);
    if (why != 0)
        exit(print_failure("cannot write %s: %s", value, strerror(why)));
}

/* ---- What gnuplot reads ---------------------------------------------------------------------- */

/* A terminal that is too small for the drawing, or none, gets a drawing of a fixed size. */
static struct winsize screen_size(void)
{
    struct winsize size = {0};
    if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
        size.ws_col < 40 || size.ws_row < 16)
        size = (struct winsize){.ws_col = COLUMNS, .ws_row = ROWS + 1};
    if (size.ws_row > ROWS_MAX)
        size.ws_row = ROWS_MAX;
    size.ws_row--; /* the prompt that follows needs a line of the screen too */
    return size;
}

/* The variables that plots/common.gp names, those of the drawing, and the programs. */
static void put_program(FILE *out, const struct gnuplot *gnuplot, const struct plot *plot)
{
    static const char *const formats[] = {"", "text", "svg", "png"};
    struct winsize size = screen_size();
    fprintf(out, "format = '%s'\ncolumns = %u\nrows = %u\n", formats[gnuplot->format], size.ws_col,
            size.ws_row);
    fwrite(plot->variables.bytes, 1, plot->variables.len, out);
    fputs((const char *)plot_common, out);
    fputs((const char *)plot->program, out);
}

/* ---- Starting it ----------------------------------------------------------------------------- */

struct child {
    FILE *script, *drawing, *errors; /* its standard streams, files in memory */
};

static FILE *memory_file(void)
{
    int fd = memfd_create("stint-plot", MFD_CLOEXEC);
    return fd < 0 ? NULL : fdopen(fd, "w+");
}

static void child_close(struct child *child)
{
    FILE *files[] = {child->script, child->drawing, child->errors};
    for (size_t i = 0; i < 3; i++)
        if (files[i] != NULL)
            fclose(files[i]);
}

/* 0 and its status as of waitpid(), or why it could not be started. */
static int child_run(struct child *child, int *status)
{
    char *argv[] = {"gnuplot", "--default-settings", NULL};
    FILE *const files[] = {child->script, child->drawing, child->errors}; /* by descriptor */
    posix_spawn_file_actions_t actions;
    pid_t pid;
    if (fflush(child->script) != 0 || fseek(child->script, 0, SEEK_SET) != 0)
        return errno;
    int why = posix_spawn_file_actions_init(&actions);
    if (why != 0)
        return why;
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, fileno(files[i]), i);
    why = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    while (why == 0 && waitpid(pid, status, 0) < 0)
        why = errno == EINTR ? 0 : errno;
    return why;
}

/* Its messages: without the command that it repeats, blank lines, and the mark under its place. */
static void show_errors(struct child *child)
{
    char *line = NULL;
    size_t size = 0;
    rewind(child->errors);
    for (unsigned n = 0; n < ERRORS_MAX && getline(&line, &size, child->errors) > 0;) {
        char *text = line + strspn(line, " \t\f");
        text[strcspn(text, "\n")] = '\0';
        if (text[strspn(text, " ^")] == '\0' || strncmp(text, "more>", 5) == 0)
            continue;
        print_message("gnuplot: %s", text);
        n++;
    }
    free(line);
}

/* ---- Where the drawing goes ------------------------------------------------------------------ */

static int cannot_write(const char *path)
{
    return print_failure("cannot write %s: %s%s", path, strerror(errno), err_advice(errno));
}

/* Copies the file from its beginning. Returns its length, or -1. */
static long copy(FILE *to, FILE *from)
{
    char bytes[1 << 14];
    long all = 0;
    rewind(from);
    for (size_t n; (n = fread(bytes, 1, sizeof(bytes), from)) > 0; all += (long)n)
        if (fwrite(bytes, 1, n, to) != n)
            return -1;
    return ferror(from) != 0 ? -1 : all;
}

static int keep(const struct gnuplot *gnuplot, struct child *child)
{
    if (gnuplot->format == GNUPLOT_TERMINAL) {
        (void)copy(stdout, child->drawing); /* main.c tells an output that takes no more */
        return CMD_DONE;
    }
    FILE *out = fopen(gnuplot->path, "we");
    if (out == NULL)
        return cannot_write(gnuplot->path);
    long length = copy(out, child->drawing);
    int why = length < 0 ? errno : 0;
    if (fclose(out) != 0 && why == 0)
        why = errno;
    errno = why;
    return why == 0 ? CMD_DONE : cannot_write(gnuplot->path);
}

static int drawn(const struct gnuplot *gnuplot, struct child *child, int status)
{
    show_errors(child);
    if (WIFSIGNALED(status))
        return print_failure("gnuplot was ended by signal %d; %s is not drawn", WTERMSIG(status),
                             gnuplot->path);
    if (WEXITSTATUS(status) != 0)
        return print_failure("gnuplot failed with exit status %d; %s is not drawn",
                             WEXITSTATUS(status), gnuplot->path);
    if (lseek(fileno(child->drawing), 0, SEEK_END) <= 0)
        return print_failure("gnuplot has drawn nothing; %s is not written", gnuplot->path);
    return keep(gnuplot, child);
}

static int draw(const struct gnuplot *gnuplot, const struct plot *plot)
{
    struct child child = {memory_file(), memory_file(), memory_file()};
    int result;
    fflush(stdout);
    if (child.script == NULL || child.drawing == NULL || child.errors == NULL) {
        result = print_failure("cannot make a file in memory for gnuplot: %s", strerror(errno));
        child_close(&child);
        return result;
    }
    /* Everything in one stream: the data are a block of it. */
    fputs("output = ''\ndata = '$data'\n$data << END_OF_DATA\n", child.script);
    fwrite(plot->data.bytes, 1, plot->data.len, child.script);
    fputs("END_OF_DATA\n", child.script);
    put_program(child.script, gnuplot, plot);
    int status = 0, why = child_run(&child, &status);
    if (why == 0)
        result = drawn(gnuplot, &child, status);
    else if (why == ENOENT || why == EACCES)
        result = print_failure(
            "--plot needs gnuplot, which is not installed; Debian's package is gnuplot-nox");
    else
        result = print_failure("cannot start gnuplot: %s", strerror(why));
    child_close(&child);
    return result;
}

int gnuplot_draw(const struct gnuplot *gnuplot, struct plot *plot)
{
    int result = CMD_BAD_INPUT;
    if (plot->lost)
        print_message("out of memory for the picture");
    else
        result = draw(gnuplot, plot);
    plot_deinit(plot);
    return result;
}
