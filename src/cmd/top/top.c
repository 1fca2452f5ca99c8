/* SPDX-License-Identifier: MIT */
/* `stint top`: samples of servers, drawn or printed as JSON until the user ends it. */
#define _GNU_SOURCE
#include "cmd/top/top.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* The sample as one JSON object, on one line. 0, or -1 if it cannot be written. */
static int top_print_json(const struct top_look *look)
{
    json_t *keys = json_object_get(look->keys, "keys");
    return json_text_print(json_pack("{s:O, s:O*, s:O*}", "stats", look->stats, "keys", keys,
                                     "servers", look->servers),
                           false);
}

/* ---- The command ----------------------------------------------------------------------------- */

#define KEYS_DEFAULT 10
#define COLUMNS_DEFAULT 100
/*
 * The terminal's alternate screen, so that its old content is restored. Without wrapping: a line
 * that is wider than it seems does not take the row of the next.
 */
#define ENTER "\033[?1049h\033[?25l\033[?7l"
#define LEAVE "\033[?7h\033[?25h\033[?1049l"
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

/* ---- The keyboard ---------------------------------------------------------------------------- */

struct keyboard {
    bool is_read;
    bool asks_help;
    struct termios before;
};

/* Keys are read one by one, and not shown. A job in the background may not change its terminal. */
static void keyboard_open(struct keyboard *keyboard)
{
    *keyboard = (struct keyboard){.is_read = false};
    if (tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &keyboard->before) != 0)
        return;
    struct termios raw = keyboard->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    keyboard->is_read = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

static void keyboard_close(const struct keyboard *keyboard)
{
    if (keyboard->is_read)
        tcsetattr(STDIN_FILENO, TCSANOW, &keyboard->before);
}

enum waited { WAITED, WAITED_FOR_KEY, WAITED_FOR_END };

static enum waited obey(struct keyboard *keyboard, struct top_options *options, char key)
{
    if (key == 'q')
        return WAITED_FOR_END;
    if (key == 'o')
        options->order = options->order == TOP_ASKED ? TOP_DENIED : TOP_ASKED;
    keyboard->asks_help = key == '?' && !keyboard->asks_help;
    return WAITED_FOR_KEY;
}

/* Until the next sample is due, or a key is pressed. */
static enum waited wait_for(struct keyboard *keyboard, struct top_options *options)
{
    const struct timespec time = {.tv_sec = (time_t)(options->interval_ns / NS_PER_S),
                                  .tv_nsec = (long)(options->interval_ns % NS_PER_S)};
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char key;
    int n = ppoll(&input, keyboard->is_read ? 1 : 0, &time, NULL);
    if (n < 0 || interrupt_seen())
        return WAITED_FOR_END;
    if (n == 0)
        return WAITED;
    if (read(STDIN_FILENO, &key, 1) == 1)
        return obey(keyboard, options, key);
    keyboard->is_read = false; /* the terminal is gone */
    return WAITED;
}

/* ---- Samples, one after the other ------------------------------------------------------------ */

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

static int show(const struct top_options *options, const struct keyboard *keyboard,
                const struct top_look *before, const struct top_look *look)
{
    struct top_screen screen = screen_now(options);
    if (options->json)
        return top_print_json(look) == 0 && fflush(stdout) == 0 ? 0 : -1;
    bool over_itself = screen.is_terminal && !options->once;
    fputs(over_itself ? HOME : "", stdout);
    if (keyboard->asks_help)
        top_draw_help(&screen);
    else
        top_draw(&screen, options, before, look);
    fputs(over_itself ? CLEAR_BELOW : options->once ? "" : "\n", stdout);
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : -1;
}

/*
 * Rates need two samples; --json has counts, from which rates can be computed. A sample that a key
 * asked for comes early: the next one is compared with the same one as it is.
 */
static int look_on(struct top_options *options, struct keyboard *keyboard, struct top_group *group,
                   struct stint_error *error)
{
    struct top_look before = {NULL, NULL, NULL}, look;
    int result = CMD_DONE;
    enum waited waited = WAITED;
    for (bool is_first = true; result == CMD_DONE; is_first = false) {
        if (top_group_look(group, options, &look, error) != 0) {
            result = CMD_BAD_INPUT;
            break;
        }
        /* Sums over different servers have no difference. */
        if (before.servers != NULL && json_equal(before.servers, look.servers) == 0)
            top_forget(&before);
        bool is_shown = options->json || !is_first || !options->once;
        if (is_shown && show(options, keyboard, &before, &look) != 0)
            result = CMD_BAD_INPUT; /* main.c reports errors of standard output */
        bool is_last = is_shown && options->once;
        waited = is_last ? WAITED_FOR_END : wait_for(keyboard, options);
        if (waited == WAITED) {
            top_forget(&before);
            before = look;
        } else {
            top_forget(&look);
        }
        if (waited == WAITED_FOR_END)
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
    struct keyboard keyboard = {.is_read = false};
    bool over_itself = isatty(STDOUT_FILENO) == 1 && !options.once && !options.json;
    if (over_itself)
        keyboard_open(&keyboard);
    fputs(over_itself ? ENTER : "", stdout);
    error.code = 0;
    int result = look_on(&options, &keyboard, group, &error);
    fputs(over_itself ? LEAVE : "", stdout);
    fflush(stdout);
    keyboard_close(&keyboard);
    if (error.code != 0)
        print_message("%s", error.message);
    top_group_close(group);
    return result;
}
