/* SPDX-License-Identifier: MIT */
/* `stint top`: samples of servers, drawn or printed as JSON until the user ends it. */
#define _GNU_SOURCE
#include "cmd/top/top.h"

#include "base/buf.h"
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- Drawing a sample ------------------------------------------------------------------------ */

/* Where to draw. */
struct top_screen {
    FILE *out;
    unsigned rows, columns; /* rows 0: no limit */
    bool is_terminal;       /* colours are allowed */
};

#define BOLD "\033[1m"
#define PLAIN "\033[0m"
#define RULES_SHOWN 12
#define NAME_MIN 12      /* columns that a name has at least */
#define FIGURES_WIDTH 44 /* columns of a rule's numbers */

/* ---- Reading a sample ------------------------------------------------------------------------ */

static json_t *at(json_t *object, const char *part, const char *name)
{
    return json_object_get(part != NULL ? json_object_get(object, part) : object, name);
}

static double number(json_t *object, const char *part, const char *name)
{
    return json_number_value(at(object, part, name));
}

static const char *text(json_t *object, const char *part, const char *name)
{
    const char *value = json_string_value(at(object, part, name));
    return value != NULL ? value : "";
}

static double sum_of_frontends(json_t *stats, const char *name)
{
    const char *frontend_name;
    json_t *frontend;
    double sum = 0;
    json_object_foreach(json_object_get(stats, "frontends"), frontend_name, frontend)
    {
        sum += number(frontend, NULL, name);
    }
    return sum;
}

static double allowed_of(json_t *rule)
{
    return number(rule, NULL, "allow") + number(rule, NULL, "shadow");
}

static double denied_of(json_t *rule)
{
    return number(rule, NULL, "deny") + number(rule, NULL, "never") + number(rule, NULL, "banned");
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* In six columns at most. */
struct figure {
    char text[16];
};

static const char *rate_text(struct figure *figure, double n)
{
    static const char units[] = " kMGTPE";
    size_t unit = 0;
    while (n >= 99999.5 && unit + 2 < sizeof(units)) {
        n /= 1000;
        unit++;
    }
    snprintf(figure->text, sizeof(figure->text), n < 100 ? "%.1f%c" : "%.0f%c", n, units[unit]);
    if (unit == 0)
        figure->text[strlen(figure->text) - 1] = '\0';
    return figure->text;
}

static const char *duration_text(struct formatted *formatted, json_t *ns)
{
    return json_is_integer(ns) ? format_duration(formatted, (uint64_t)json_integer_value(ns)) : "-";
}

/* ---- Lines ----------------------------------------------------------------------------------- */

struct drawing {
    const struct top_screen *screen;
    unsigned rows; /* drawn so far */
};

static bool has_space(const struct drawing *drawing, unsigned rows)
{
    return drawing->screen->rows == 0 || drawing->rows + rows <= drawing->screen->rows;
}

/* One line, cut at the edge. Text of unauthenticated clients is shown without controls. */
ERR_PRINTF(3, 4)
static void put(struct drawing *drawing, bool is_bold, const char *format, ...)
{
    char text[1024], line[2 * sizeof(text)];
    va_list args;
    if (!has_space(drawing, 1))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    format_text(line, sizeof(line), span_of_text(text));
    size_t columns = 0, len = 0;
    for (; line[len] != '\0' && columns < drawing->screen->columns; len++)
        columns += ((unsigned char)line[len] & 0xc0) != 0x80;
    while (((unsigned char)line[len] & 0xc0) == 0x80) /* the rest of the last character */
        len++;
    bool bold = is_bold && drawing->screen->is_terminal;
    fprintf(drawing->screen->out, "%s%.*s%s%s\n", bold ? BOLD : "", (int)len, line,
            bold ? PLAIN : "", drawing->screen->is_terminal ? "\033[K" : "");
    drawing->rows++;
}

static unsigned name_width(const struct drawing *drawing)
{
    unsigned columns = drawing->screen->columns;
    return columns > FIGURES_WIDTH + NAME_MIN ? columns - FIGURES_WIDTH : NAME_MIN;
}

/* A name in at most so many columns, cut at the end of a character. */
static void put_row(struct drawing *drawing, const char *metrics, const char *name)
{
    unsigned width = name_width(drawing), columns = 0;
    size_t len = 0;
    for (; name[len] != '\0'; len++) {
        columns += ((unsigned char)name[len] & 0xc0) != 0x80;
        if (columns > width)
            break;
    }
    put(drawing, false, "%s  %.*s", metrics, (int)len, name);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/*
 * Of a large table only a sample is read. If it contains none of the keys, the table has with 95 %
 * probability fewer than three times as many as one stands for.
 */
static const char *keys_text(char *to, size_t size, json_t *stats)
{
    struct formatted formatted;
    uint64_t keys = (uint64_t)number(stats, "table", "keys");
    uint64_t step = (uint64_t)number(stats, "table", "keys_step");
    struct buf buf = buf_of(to, size);
    if (step > 1 && keys == 0)
        buf_add(&buf, "fewer than %s", format_count(&formatted, 3 * step));
    else
        buf_add(&buf, "%s%s", step > 1 ? "about " : "", format_count(&formatted, keys));
    return to;
}

static void draw_head(struct drawing *drawing, json_t *stats)
{
    char keys[48];
    struct figure allowed, denied;
    struct formatted p50, p99, up, places, bytes;
    json_t *durations = json_object_get(stats, "durations");
    put(drawing, true, "stint %s, up %s, %.0f rules, generation %.0f", text(stats, NULL, "version"),
        format_seconds_up(&up, (uint64_t)(number(stats, NULL, "up_s") * (double)NS_PER_S)),
        number(stats, "reloads", "rules"), number(stats, "reloads", "generation"));
    put(drawing, false, "allowed %s/s   denied %s/s   half within %s, 99 %% within %s",
        rate_text(&allowed, number(stats, "rates", "allowed")),
        rate_text(&denied, number(stats, "rates", "denied")),
        duration_text(&p50, json_object_get(durations, "p50_ns")),
        duration_text(&p99, json_object_get(durations, "p99_ns")));
    put(drawing, false, "table %s of %s places in %s   connections %.0f open, %.0f refused",
        keys_text(keys, sizeof(keys), stats),
        format_count(&places, (uint64_t)number(stats, "table", "places")),
        format_bytes(&bytes, (uint64_t)number(stats, "table", "bytes")),
        sum_of_frontends(stats, "open"), sum_of_frontends(stats, "refused"));
    if (text(stats, "reloads", "fault")[0] != '\0')
        put(drawing, true, "the last reload failed: %s", text(stats, "reloads", "fault"));
}

/* The servers that did not answer, with the reason. */
static void draw_servers(struct drawing *drawing, json_t *servers)
{
    size_t i, n_answered = 0;
    json_t *server;
    if (servers == NULL)
        return;
    json_array_foreach(servers, i, server) n_answered +=
        json_is_null(json_object_get(server, "error"));
    put(drawing, true, "sums of %zu of %zu servers; durations are those of the slowest", n_answered,
        json_array_size(servers));
    json_array_foreach(servers, i, server)
    {
        if (!json_is_null(json_object_get(server, "error")))
            put(drawing, false, "no answer of %s: %s", text(server, NULL, "url"),
                text(server, NULL, "error"));
    }
}

struct rule_row {
    json_t *rule;
    double allowed, denied; /* per second */
};

static json_t *find_rule(json_t *stats, json_t *rule)
{
    size_t i;
    json_t *other;
    json_array_foreach(json_object_get(stats, "rules"), i, other)
    {
        if (strcmp(text(other, NULL, "rule"), text(rule, NULL, "rule")) == 0 &&
            strcmp(text(other, NULL, "domain"), text(rule, NULL, "domain")) == 0)
            return other;
    }
    return NULL;
}

static int by_rate(const void *a, const void *b)
{
    const struct rule_row *x = a, *y = b;
    double x_rate = x->allowed + x->denied, y_rate = y->allowed + y->denied;
    return x_rate != y_rate ? (x_rate > y_rate ? -1 : 1) : 0;
}

static double since(double now, double then, double seconds)
{
    return seconds > 0 && now > then ? (now - then) / seconds : 0;
}

/* The rates of all rules, the greatest first. NULL: there are none, or there is no memory. */
static struct rule_row *rates_of(json_t *before, json_t *stats, size_t *n)
{
    json_t *rules = json_object_get(stats, "rules"), *rule;
    double seconds =
        before != NULL ? number(stats, NULL, "now_s") - number(before, NULL, "now_s") : 0;
    *n = json_array_size(rules);
    struct rule_row *rows = *n > 0 ? calloc(*n, sizeof(*rows)) : NULL;
    if (rows == NULL) {
        *n = 0;
        return NULL;
    }
    size_t i;
    json_array_foreach(rules, i, rule)
    {
        json_t *old = before != NULL ? find_rule(before, rule) : NULL;
        rows[i] = (struct rule_row){
            rule, since(allowed_of(rule), old != NULL ? allowed_of(old) : 0, seconds),
            since(denied_of(rule), old != NULL ? denied_of(old) : 0, seconds)};
    }
    qsort(rows, *n, sizeof(*rows), by_rate);
    return rows;
}

static void draw_rules(struct drawing *drawing, json_t *before, json_t *stats)
{
    size_t n;
    struct rule_row *rows = rates_of(before, stats, &n);
    if (n > 0 && has_space(drawing, 3)) {
        put(drawing, false, "%s", "");
        put(drawing, true, " allowed/s  denied/s     allowed      denied  rule");
    }
    for (size_t i = 0; i < n && i < RULES_SHOWN; i++) {
        struct figure rates[2], sums[2];
        char metrics[96], name[512];
        const char *rule = text(rows[i].rule, NULL, "rule");
        snprintf(metrics, sizeof(metrics), "%10s%10s%12s%12s",
                 rate_text(&rates[0], rows[i].allowed), rate_text(&rates[1], rows[i].denied),
                 rate_text(&sums[0], allowed_of(rows[i].rule)),
                 rate_text(&sums[1], denied_of(rows[i].rule)));
        snprintf(name, sizeof(name), "%s%s%s", text(rows[i].rule, NULL, "domain"),
                 rule[0] != '\0' ? ": " : "", rule[0] != '\0' ? rule : "(quotas of callers)");
        put_row(drawing, metrics, name);
    }
    free(rows);
}

static void draw_keys(struct drawing *drawing, const struct top_options *options, json_t *keys)
{
    size_t i;
    json_t *key;
    if (json_array_size(keys) == 0 || !has_space(drawing, 3))
        return;
    put(drawing, false, "%s", "");
    put(drawing, true, "   asked/s  denied/s  keys %s most",
        options->order == TOP_ASKED ? "asked" : "denied");
    json_array_foreach(keys, i, key)
    {
        struct figure asked, denied;
        char metrics[48], name[1024], shown[512];
        json_t *bytes = json_object_get(key, "key"); /* of any bytes, zero bytes as well */
        snprintf(metrics, sizeof(metrics), "%10s%10s",
                 rate_text(&asked, number(key, NULL, "asked_per_s")),
                 rate_text(&denied, number(key, NULL, "denied_per_s")));
        format_text(shown, sizeof(shown),
                    span_of(json_string_value(bytes), json_string_length(bytes)));
        snprintf(name, sizeof(name), "%s%s   %s", shown,
                 json_is_true(json_object_get(key, "is_cut")) ? "..." : "",
                 text(key, NULL, "rule"));
        put_row(drawing, metrics, name);
    }
}

/* Draws a sample; rates of rules are what was counted since `before`, which may be empty. */
static void top_draw(const struct top_screen *screen, const struct top_options *options,
                     const struct top_look *before, const struct top_look *look)
{
    struct drawing drawing = {.screen = screen};
    draw_servers(&drawing, look->servers);
    draw_head(&drawing, look->stats);
    draw_rules(&drawing, before->stats, look->stats);
    draw_keys(&drawing, options, json_object_get(look->keys, "keys"));
    fflush(screen->out);
}

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
