/* SPDX-License-Identifier: MIT */
/* `stint top`: a server's metrics in the terminal, updated each second. */
#define _GNU_SOURCE
#include "cmd/top/top.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/interrupt.h"
#include "cmd/lib/print.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define KEYS_DEFAULT 10
#define COLUMNS_DEFAULT 100
/* The terminal's alternate screen, so that its old content is restored. */
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
#define HOME "\033[H"
#define CLEAR_BELOW "\033[J"

static const char *const orders[] = {"denied", "asked", NULL};

static const struct args_option options_known[] = {
    {"once", NULL, 0, "Print the metrics of one --interval, and exit",
     ARGS_FLAG(struct top_options, once)},
    {"json", NULL, 0, "Print each sample as one JSON object on a line",
     ARGS_FLAG(struct top_options, json)},
    {"keys", "N", 0, "List N keys (default 10)",
     ARGS_NUMBER(struct top_options, keys, TOP_KEYS_MAX)},
    {"order", "denied|asked", 0, "Which keys to list (default denied)",
     ARGS_CHOICE(struct top_options, order, orders)},
    {"interval", "DURATION", 0, "Time from one sample to the next (default 1s)",
     ARGS_DURATION(struct top_options, interval_ns)},
    {0},
};

static void add_server(struct argp_state *state, void *input, char *word)
{
    struct top_options *options = input;
    if (options->n_servers == TOP_SERVERS_MAX)
        argp_error(state, "at most %d servers", TOP_SERVERS_MAX);
    options->servers[options->n_servers++] = word;
}

/* False if the user ends the program meanwhile. */
static bool wait_for(uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S),
                                  .tv_nsec = (long)(ns % NS_PER_S)};
    return nanosleep(&time, NULL) == 0 && !interrupt_seen();
}

/* The size of the terminal now: it may have changed since the last screen. */
static struct top_screen screen_now(const struct top_options *options)
{
    struct top_screen screen = {.out = stdout, .columns = COLUMNS_DEFAULT};
    struct winsize size;
    if (isatty(STDOUT_FILENO) != 1)
        return screen;
    screen.is_terminal = true;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        screen.columns = size.ws_col;
        /* The last row is the cursor's. */
        screen.rows = options->once || size.ws_row < 2 ? 0 : size.ws_row - 1u;
    }
    return screen;
}

static int show(const struct top_options *options, const struct top_look *before,
                const struct top_look *look)
{
    struct top_screen screen = screen_now(options);
    if (options->json)
        return top_print_json(look) == 0 && fflush(stdout) == 0 ? 0 : -1;
    bool over_itself = screen.is_terminal && !options->once;
    fputs(over_itself ? HOME : "", stdout);
    top_draw(&screen, options, before, look);
    fputs(over_itself ? CLEAR_BELOW : options->once ? "" : "\n", stdout);
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : -1;
}

/* Rates need two samples; --json has counts, from which rates can be computed. */
static int look_on(const struct top_options *options, struct top_group *group,
                   struct stint_error *error)
{
    struct top_look before = {NULL, NULL, NULL}, look;
    int result = CMD_DONE;
    for (bool is_first = true; result == CMD_DONE; is_first = false) {
        if (top_group_look(group, options, &look, error) != 0) {
            result = CMD_BAD_INPUT;
            break;
        }
        /* Sums over different servers have no difference. */
        if (before.servers != NULL && json_equal(before.servers, look.servers) == 0)
            top_forget(&before);
        bool is_shown = options->json || !is_first || !options->once;
        if (is_shown && show(options, &before, &look) != 0)
            result = CMD_BAD_INPUT; /* main.c reports errors of standard output */
        top_forget(&before);
        before = look;
        if ((is_shown && options->once) || !wait_for(options->interval_ns))
            break;
    }
    top_forget(&before);
    return result;
}

int top_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_server},
        .children = {CLIENT_CHILD(client_set, offsetof(struct top_options, client))},
        .arguments = "[URL...]",
        .doc = "Shows a server's metrics: decisions per second, allowed and denied by rule, the "
               "keys denied or asked most, how long decisions take, how full the table is. Of "
               "several URLs the sums are shown, and which servers did not answer."};
    struct top_options options = {.keys = KEYS_DEFAULT, .interval_ns = NS_PER_S};
    struct stint_error error;
    struct top_group *group;
    args_parse(&command, argc, argv, &options);
    if (top_group_open(&group, &options, &error) != 0) {
        print_message("%s", error.message);
        return CMD_BAD_INPUT;
    }
    interrupt_catch();
    bool over_itself = isatty(STDOUT_FILENO) == 1 && !options.once && !options.json;
    fputs(over_itself ? ENTER : "", stdout);
    error.code = 0;
    int result = look_on(&options, group, &error);
    fputs(over_itself ? LEAVE : "", stdout);
    fflush(stdout);
    if (error.code != 0)
        print_message("%s", error.message);
    top_group_close(group);
    return result;
}
