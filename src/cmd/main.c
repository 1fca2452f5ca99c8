/* SPDX-License-Identifier: MIT */
/* Prepares the standard streams and chooses the subcommand; about.c has the table of commands. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * If a standard stream is closed, the next file that is opened would get its number, and results
 * would be written into a table. So /dev/null, opened the wrong way, replaces it: each use fails.
 */
static bool fill_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* At exit, however it is reached: argp prints its help by itself. */
static void check_output(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return;
    print_message("cannot write to standard output%s%s", errno != 0 ? ": " : "",
                  errno != 0 ? strerror(errno) : "");
    _exit(CMD_BAD_INPUT);
}

static bool is_called_ratelimit(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash != NULL ? slash + 1 : path, "ratelimit") == 0;
}

/*
 * Containers of envoyproxy/ratelimit start /bin/ratelimit without arguments, and probe it from
 * another address. So it serves other machines unless the environment differs, as theirs does, and
 * gives them what theirs gives: decisions and metrics.
 */
static int run_as_ratelimit(char *path)
{
    char *line[] = {path, "--compat", "envoyproxy", NULL};
    if (setenv("STINT_INSECURE", "true", 0) != 0 ||
        setenv("STINT_ANONYMOUS", "ask;metrics", 0) != 0)
        return CMD_BAD_INPUT;
    return cmd_run(cmd_find(cmd_all, "serve"), 3, line);
}

int main(int argc, char **argv)
{
    if (!fill_closed_streams() || atexit(check_output) != 0)
        return CMD_BAD_INPUT;
    bus_error_install();
    cmd_commit = cmd_commit_built;
    if (argc == 1 && is_called_ratelimit(argv[0]))
        return run_as_ratelimit(argv[0]);
    if (argc < 2) {
        print_message("expected a command; `stint help` lists them all");
        return CMD_BAD_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct cmd *cmd = cmd_find(cmd_all, name);
    return cmd != NULL ? cmd_run(cmd, argc - 1, argv + 1) : cmd_unknown(cmd_all, NULL, name);
}
