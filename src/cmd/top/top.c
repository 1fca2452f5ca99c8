/* SPDX-License-Identifier: MIT */
/* `stint top`: samples of servers or of a table, drawn or printed as JSON until the user ends it.
 */
#define _GNU_SOURCE
#include "cmd/top/top.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"
#include "cmd/lib/table_view.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* ---- A sample of one server ------------------------------------------------------------------ */

static json_t *ask_server(struct client *client, const char *path, struct stint_error *error)
{
    struct client_answer answer;
    if (client_ask(client, path, NULL, 0, &answer, error) != 0)
        return NULL;
    json_t *object =
        json_loadb((const char *)answer.body.ptr, answer.body.len, JSON_ALLOW_NUL, NULL);
    if (answer.status == 200 && json_is_object(object))
        return object;
    json_decref(object);
    if (answer.status == 401 || answer.status == 403)
        err_set(error, STINT_E_MISMATCH,
                "the server wants a token with the role metrics: --token-file (it answered %s with "
                "%d)",
                path, answer.status);
    else if (answer.status != 200)
        err_set(error, STINT_E_MISMATCH,
                "the server answered %s with status %d; is it a stint server?", path,
                answer.status);
    else
        err_set(error, STINT_E_SYNTAX, "the server's answer to %s is not a JSON object", path);
    return NULL;
}

static void forget(struct top_look *look)
{
    json_decref(look->stats);
    json_decref(look->keys);
    json_decref(look->servers);
    json_decref(look->table);
    *look = (struct top_look){.stats = NULL};
}

/* 0, or a code: no answer, or one that is not from a stint server. */
static int look_at(struct client *client, const struct top_options *options, struct top_look *look,
                   struct stint_error *error)
{
    char path[64];
    /* A key of several servers may be far down in the list of each. */
    size_t n_keys = options->n_servers > 1 ? TOP_KEYS_MAX : options->keys;
    snprintf(path, sizeof(path), "/v1/top?order=%s&n=%zu",
             options->order == TOP_ASKED ? "asked" : "denied", n_keys);
    *look = (struct top_look){.stats = ask_server(client, "/v1/stats", error)};
    if (look->stats != NULL)
        look->keys = ask_server(client, path, error);
    if (look->keys != NULL)
        return 0;
    forget(look);
    return error->code != 0 ? error->code : STINT_E_SYSTEM;
}

/* ---- Several servers ------------------------------------------------------------------------- */

/* One server, queried in a thread of its own. */
struct query {
    const char *url; /* NULL: the default one */
    struct client *client;
    const struct top_options *options;
    struct top_look look;
    struct stint_error why;
    int code;
    pthread_t thread;
    bool has_thread;
};

struct group {
    size_t n_servers;
    struct query queries[TOP_SERVERS_MAX];
};

static void group_close(struct group *group)
{
    for (size_t i = 0; i < group->n_servers; i++)
        client_close(group->queries[i].client);
}

/* Each server has a connection of its own. Call group_close() after an error, too. */
static int group_open(struct group *group, const struct top_options *options,
                      struct stint_error *error)
{
    struct client_options client = options->client;
    int code = 0;
    group->n_servers = options->state != NULL ? 0 : options->n_servers > 0 ? options->n_servers : 1;
    for (size_t i = 0; i < group->n_servers && code == 0; i++) {
        struct query *query = &group->queries[i];
        if (options->n_servers > 0)
            client.server = options->servers[i];
        *query = (struct query){.url = client.server, .options = options};
        code = client_open(&query->client, &client, error);
    }
    return code;
}

/* ---- Sums of metrics ------------------------------------------------------------------------- */

/* Adds every number of `other`, in objects within it too. */
static void add_numbers(json_t *sum, json_t *other)
{
    const char *name;
    json_t *value;
    json_object_foreach(other, name, value)
    {
        json_t *own = json_object_get(sum, name);
        double total = json_number_value(own) + json_number_value(value);
        if (json_is_object(own) && json_is_object(value))
            add_numbers(own, value);
        else if (json_is_number(own) && json_is_number(value))
            json_object_set_new(sum, name,
                                json_is_integer(own) && json_is_integer(value)
                                    ? json_integer((json_int_t)total)
                                    : json_real(total));
        else if (own == NULL || json_is_null(own))
            json_object_set(sum, name, value);
    }
}

/* Keeps the greater of two numbers; null is less than any. */
static void keep_greater(json_t *sum, json_t *other, const char *part, const char *name)
{
    json_t *own = part != NULL ? json_object_get(sum, part) : sum;
    json_t *value = json_object_get(part != NULL ? json_object_get(other, part) : other, name);
    json_t *known = json_object_get(own, name);
    if (json_is_number(value) &&
        (!json_is_number(known) || json_number_value(value) > json_number_value(known)))
        json_object_set(own, name, value);
}

static bool is_same_member(json_t *a, json_t *b, const char *name)
{
    return json_equal(json_object_get(a, name), json_object_get(b, name)) == 1;
}

static void add_rules(json_t *sum, json_t *other)
{
    size_t i, j;
    json_t *rule, *known;
    json_array_foreach(other, i, rule)
    {
        bool is_known = false;
        json_array_foreach(sum, j, known)
        {
            is_known = is_same_member(known, rule, "domain") && is_same_member(known, rule, "rule");
            if (is_known)
                break;
        }
        if (is_known)
            add_numbers(known, rule);
        else
            json_array_append(sum, rule);
    }
}

/* `sum` is the object of the first server. */
static void add_stats(json_t *sum, json_t *other)
{
    static const char *const parts[] = {"table", "totals", "rates", "frontends"};
    static const char *const longest[] = {"p50_ns", "p99_ns", "p999_ns", "mean_ns"};
    json_t *step = json_object_get(json_object_get(sum, "table"), "keys_step");
    double keys_step = json_number_value(step);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        json_t *own = json_object_get(sum, parts[i]), *value = json_object_get(other, parts[i]);
        if (json_is_object(own))
            add_numbers(own, value);
        else if (json_is_object(value))
            json_object_set(sum, parts[i], value);
    }
    if (step != NULL) { /* a step of a sample, not a count */
        json_object_set_new(json_object_get(sum, "table"), "keys_step",
                            json_integer((json_int_t)keys_step));
        keep_greater(sum, other, "table", "keys_step");
    }
    for (size_t i = 0; i < sizeof(longest) / sizeof(longest[0]); i++)
        keep_greater(sum, other, "durations", longest[i]);
    keep_greater(sum, other, "reloads", "generation");
    keep_greater(sum, other, "reloads", "rules");
    keep_greater(sum, other, NULL, "up_s");
    add_rules(json_object_get(sum, "rules"), json_object_get(other, "rules"));
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static int by_text(json_t *a, json_t *b, const char *name)
{
    json_t *x = json_object_get(a, name), *y = json_object_get(b, name);
    size_t x_len = json_string_length(x), y_len = json_string_length(y);
    size_t len = x_len < y_len ? x_len : y_len; /* zero bytes are bytes */
    int order = len > 0 ? memcmp(json_string_value(x), json_string_value(y), len) : 0;
    return order != 0 ? order : (x_len > y_len) - (x_len < y_len);
}

static int by_name(const void *a, const void *b)
{
    static const char *const names[] = {"key", "domain", "rule"};
    json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int order = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && order == 0; i++)
        order = by_text(x, y, names[i]);
    return order;
}

/* Rates instead of scores: servers may have different half-lives. `name`: of the rate. */
static int by_rate(const void *a, const void *b, void *name)
{
    json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    double x_rate = json_number_value(json_object_get(x, name));
    double y_rate = json_number_value(json_object_get(y, name));
    return x_rate != y_rate ? (x_rate > y_rate ? -1 : 1) : by_name(a, b);
}

/* Adds up equal names; returns how many there are then. */
static size_t merge(json_t **rows, size_t n)
{
    size_t merged = 0;
    qsort(rows, n, sizeof(json_t *), by_name);
    for (size_t i = 0; i < n; i++) {
        if (merged > 0 && by_name(&rows[merged - 1], &rows[i]) == 0)
            add_numbers(rows[merged - 1], rows[i]);
        else
            rows[merged++] = rows[i];
    }
    return merged;
}

/* The first of `keys`, an array of the keys of all servers, after equal ones are added up. */
static json_t *sum_of_keys(json_t *keys, const struct top_options *options)
{
    char asked_per_s[] = "asked_per_s", denied_per_s[] = "denied_per_s";
    size_t n = json_array_size(keys), i;
    json_t *key, *first = json_array();
    json_t **rows = calloc(n + 1, sizeof(json_t *));
    if (rows == NULL || first == NULL) {
        free(rows);
        return first;
    }
    json_array_foreach(keys, i, key) rows[i] = key;
    n = merge(rows, n);
    qsort_r(rows, n, sizeof(json_t *), by_rate,
            options->order == TOP_ASKED ? asked_per_s : denied_per_s);
    for (i = 0; i < n && i < options->keys; i++)
        json_array_append(first, rows[i]);
    free(rows);
    return first;
}

/* ---- Samples --------------------------------------------------------------------------------- */

/* Adds one server's sample, and takes ownership of it. */
static void add_look(struct top_look *sum, json_t *keys, struct top_look *look)
{
    json_array_extend(keys, json_object_get(look->keys, "keys"));
    if (sum->stats == NULL)
        sum->stats = json_incref(look->stats);
    else
        add_stats(sum->stats, look->stats);
    forget(look);
}

static void *query_server(void *arg)
{
    struct query *query = arg;
    query->code = look_at(query->client, query->options, &query->look, &query->why);
    return NULL;
}

/* All servers at the same time: one that does not answer costs its own timeout, once. */
static void query_all(struct group *group)
{
    for (size_t i = 0; i < group->n_servers; i++) {
        struct query *query = &group->queries[i];
        query->why = (struct stint_error){0};
        query->has_thread = pthread_create(&query->thread, NULL, query_server, query) == 0;
    }
    for (size_t i = 0; i < group->n_servers; i++) {
        struct query *query = &group->queries[i];
        if (query->has_thread)
            pthread_join(query->thread, NULL);
        else
            query_server(query);
    }
}

/*
 * The file is opened for each sample: a file that takes its place is read from then on, and one
 * that was made shorter is refused before it is mapped.
 */
static int look_at_table(const struct top_options *options, struct top_look *look,
                         struct stint_error *error)
{
    static struct table_view view;
    enum table_view_order order =
        options->order == TOP_ASKED ? TABLE_VIEW_MOST_USED : TABLE_VIEW_LEAST_LEFT;
    int code = table_view_read(&view, options->state, options->keys, order, error);
    if (code != 0)
        return code;
    *look = (struct top_look){.table = table_view_json(&view)};
    table_view_free(&view);
    return look->table != NULL ? 0 : err_set(error, STINT_E_SYSTEM, "out of memory");
}

/* All of them, added up; 0 if at least one answers. */
static int group_look(struct group *group, const struct top_options *options, struct top_look *look,
                      struct stint_error *error)
{
    if (options->state != NULL)
        return look_at_table(options, look, error);
    if (group->n_servers == 1)
        return look_at(group->queries[0].client, options, look, error);
    *look = (struct top_look){.servers = json_array()};
    json_t *keys = json_array();
    query_all(group);
    for (size_t i = 0; i < group->n_servers; i++) {
        struct query *query = &group->queries[i];
        const char *why = query->code != 0 ? query->why.message : NULL;
        json_array_append_new(look->servers,
                              json_pack("{s:s, s:s?}", "url", query->url, "error", why));
        if (query->code == 0)
            add_look(look, keys, &query->look);
        else
            *error = query->why;
    }
    look->keys = json_pack("{s:o}", "keys", sum_of_keys(keys, options));
    json_decref(keys);
    if (look->stats != NULL && look->keys != NULL)
        return 0;
    forget(look);
    const struct stint_error last = *error;
    return err_set(error, STINT_E_SYSTEM, "none of %zu servers answers; the last: %.180s",
                   group->n_servers, last.message);
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
    {"state", "FILE", 0,
     "Show the table in FILE, of an application or of a server's --state, instead of a server",
     ARGS_FILE(struct top_options, state)},
    {"once", NULL, 0, "Print the metrics of one --interval, and exit",
     ARGS_FLAG(struct top_options, once)},
    {"json", NULL, 0, "Print each sample as one JSON object on a line",
     ARGS_FLAG(struct top_options, json)},
    {"keys", "N", 0, "List N keys (default 10)",
     ARGS_NUMBER(struct top_options, keys, TOP_KEYS_MAX)},
    {"order", "denied|asked", 0,
     "Which keys to list (default denied); of a table: those with the least left, or with the "
     "most units in use",
     ARGS_CHOICE(struct top_options, order, orders)},
    {"interval", "DURATION", 0, "Time from one sample to the next (default 1s)",
     ARGS_TIMEOUT(struct top_options, interval_ns)},
    {0},
};

static void add_server(struct argp_state *state, void *input, char *word)
{
    struct top_options *options = input;
    if (options->n_servers == TOP_SERVERS_MAX)
        argp_error(state, "at most %d servers", TOP_SERVERS_MAX);
    options->servers[options->n_servers++] = word;
}

static void check(struct argp_state *state, void *input)
{
    const struct top_options *options = input;
    const char *server = options->n_servers > 0 ? options->servers[0] : options->client.server;
    bool is_default = server == NULL || server == getenv("STINT_URL");
    if (options->state != NULL && !is_default)
        argp_error(state, "--state shows a file, and %s is a server; give one of them", server);
}

/* ---- The keyboard ---------------------------------------------------------------------------- */

struct keyboard {
    bool is_read;
    bool asks_help;
};

static struct termios cooked; /* of the terminal, while its keyboard is read */
static volatile sig_atomic_t is_raw;

/* Keys are read one by one, and not shown. A job in the background may not change its terminal. */
static void keyboard_open(struct keyboard *keyboard)
{
    *keyboard = (struct keyboard){.is_read = false};
    if (tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &cooked) != 0)
        return;
    struct termios raw = cooked;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    is_raw = true;
    keyboard->is_read = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

/* Also called by a handler of signals. */
static void leave_terminal(void)
{
    ssize_t n = write(STDOUT_FILENO, LEAVE, sizeof(LEAVE) - 1);
    (void)n; /* the terminal may be gone */
    if (is_raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
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
    if (n < 0 || interrupts_seen() > 0)
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

static json_t *sample_json(const struct top_look *look)
{
    if (look->table != NULL)
        return json_incref(look->table);
    return json_pack("{s:O, s:O*, s:O*}", "stats", look->stats, "keys",
                     json_object_get(look->keys, "keys"), "servers", look->servers);
}

static int show(const struct top_options *options, const struct keyboard *keyboard,
                const struct top_look *before, const struct top_look *look)
{
    struct top_screen screen = screen_now(options);
    if (options->json)
        return json_text_print(sample_json(look), false) == CMD_DONE && fflush(stdout) == 0 ? 0
                                                                                            : -1;
    bool over_itself = screen.is_terminal && !options->once;
    fputs(over_itself ? HOME : "", stdout);
    top_draw(&screen, options, before, keyboard->asks_help ? NULL : look);
    fputs(over_itself ? CLEAR_BELOW : options->once ? "" : "\n", stdout);
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : -1;
}

/*
 * Rates need two samples; --json has counts, from which rates can be computed. A sample that a key
 * asked for comes early: the next one is compared with the same one as it is.
 */
static int look_on(struct top_options *options, struct keyboard *keyboard, struct group *group,
                   struct stint_error *error)
{
    struct top_look before = {.stats = NULL}, look;
    int result = CMD_DONE;
    enum waited waited = WAITED;
    for (bool is_first = true; result == CMD_DONE; is_first = false) {
        if (group_look(group, options, &look, error) != 0) {
            result = CMD_BAD_INPUT;
            break;
        }
        /* Sums over different servers have no difference. */
        if (before.servers != NULL && json_equal(before.servers, look.servers) == 0)
            forget(&before);
        bool is_shown = options->json || !is_first || !options->once;
        if (is_shown && show(options, keyboard, &before, &look) != 0)
            result = CMD_BAD_INPUT; /* main.c reports errors of standard output */
        bool is_last = is_shown && options->once;
        waited = is_last ? WAITED_FOR_END : wait_for(keyboard, options);
        if (waited == WAITED) {
            forget(&before);
            before = look;
        } else {
            forget(&look);
        }
        if (waited == WAITED_FOR_END)
            break;
    }
    forget(&before);
    return result;
}

int top_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_server, .end = check},
        .children = {CLIENT_CHILD(client_set, offsetof(struct top_options, client))},
        .arguments = "[URL...]",
        .doc =
            "Shows a server's metrics: decisions per second, allowed and denied by rule, the "
            "keys denied or asked most, how long decisions take, how full the table is. Of "
            "several URLs the sums are shown, and which servers did not answer. With --state: how "
            "full the table in a file is, its quotas, and its keys by hash."};
    struct top_options options = {.keys = KEYS_DEFAULT, .interval_ns = NS_PER_S};
    struct stint_error error;
    static struct group group;
    args_parse(&command, argc, argv, &options);
    if (group_open(&group, &options, &error) != 0) {
        group_close(&group);
        return print_failure("%s", error.message);
    }
    struct keyboard keyboard = {.is_read = false};
    bool over_itself = isatty(STDOUT_FILENO) == 1 && !options.once && !options.json;
    interrupt_catch_all(over_itself ? leave_terminal : NULL);
    if (over_itself)
        keyboard_open(&keyboard);
    fputs(over_itself ? ENTER : "", stdout);
    error.code = 0;
    int result = look_on(&options, &keyboard, &group, &error);
    fflush(stdout);
    if (over_itself)
        leave_terminal();
    if (error.code != 0)
        print_message("%s", error.message);
    group_close(&group);
    return result;
}
