/* SPDX-License-Identifier: MIT */
/* `stint top`: a sample as lines of a terminal, however narrow it is. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "base/ns.h"
#include "cmd/lib/print.h"
#include "cmd/top/top.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BOLD "\033[1m"
#define PLAIN "\033[0m"
#define RULES_SHOWN 12
#define NAME_MIN 16 /* columns that a name has at least, or a number gives way to it */

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

/* The end of the bucket that has this share of the decisions; the last bucket has none. */
static const char *percentile_text(struct formatted *figure, json_t *durations, const char *name)
{
    double us = number(durations, NULL, name) / (double)NS_PER_US;
    bool is_beyond = us <= 0;
    if (is_beyond) {
        us = number(durations, NULL, "first_bucket_ns") / (double)NS_PER_US;
        for (size_t i = json_array_size(json_object_get(durations, "buckets")); i > 2; i--)
            us *= 2;
    }
    if (number(durations, NULL, "timed") <= 0)
        return "-";
    snprintf(figure->text, sizeof(figure->text), us < 1000 ? "%s%.3g µs" : "%s%.0f µs",
             is_beyond ? "> " : "", us);
    return figure->text;
}

/* In eight columns at most, whole from 100 on. */
static const char *signed_rate_text(struct formatted *figure, const char *sign, double n)
{
    static const char units[] = "kMGTPE";
    const char *unit = "";
    for (const char *next = units; n >= 99999.5 && *next != '\0'; next++) {
        n /= 1000;
        unit = next;
    }
    snprintf(figure->text, sizeof(figure->text), n < 99.95 ? "%s%.1f%.1s" : "%s%.0f%.1s", sign, n,
             unit);
    return figure->text;
}

static const char *rate_text(struct formatted *figure, double n)
{
    return signed_rate_text(figure, "", n);
}

static const char *count_text(struct formatted *figure, double n)
{
    snprintf(figure->text, sizeof(figure->text), "%.0f", n);
    return figure->text;
}

/* A rate with its sign. */
static const char *change_text(struct formatted *figure, double n)
{
    const char *sign = n < 0 ? "-" : n > 0 ? "+" : "";
    return signed_rate_text(figure, sign, n < 0 ? -n : n);
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

static bool is_first_byte(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

static unsigned columns_of(const char *text)
{
    unsigned columns = 0;
    for (; *text != '\0'; text++)
        columns += is_first_byte(*text);
    return columns;
}

/* The length of the first characters, one a column. */
static size_t bytes_of(const char *text, unsigned columns)
{
    size_t len = 0;
    for (; text[len] != '\0'; len++) {
        if (is_first_byte(text[len]) && columns-- == 0)
            break;
    }
    return len;
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
    size_t len = bytes_of(line, drawing->screen->columns);
    bool bold = is_bold && drawing->screen->is_terminal;
    fprintf(drawing->screen->out, "%s%.*s%s%s\n", bold ? BOLD : "", (int)len, line,
            bold ? PLAIN : "", drawing->screen->is_terminal ? "\033[K" : "");
    drawing->rows++;
}

/* Parts of a line; one that does not fit begins the next line. */
struct flow {
    struct drawing *drawing;
    bool is_bold;
    char line[512];
};

static void flow_end(struct flow *flow)
{
    if (flow->line[0] != '\0')
        put(flow->drawing, flow->is_bold, "%s", flow->line);
    flow->line[0] = '\0';
}

ERR_PRINTF(3, 4)
static void flow_add(struct flow *flow, const char *separator, const char *format, ...)
{
    char part[256];
    size_t len = strlen(flow->line);
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof(part), format, args);
    va_end(args);
    if (len > 0 && columns_of(flow->line) + columns_of(separator) + columns_of(part) >
                       flow->drawing->screen->columns) {
        flow_end(flow);
        len = 0;
    }
    snprintf(flow->line + len, sizeof(flow->line) - len, "%s%s", len > 0 ? separator : "", part);
}

/*
 * A name in at most so many columns. Names of one kind begin alike and differ at their ends, so the
 * middle is left out.
 */
static const char *name_text(char *to, size_t size, const char *name, unsigned columns)
{
    unsigned all = columns_of(name), tail = columns / 2;
    if (all <= columns || columns == 0) {
        snprintf(to, size, "%s", name);
        return to;
    }
    snprintf(to, size, "%.*s…%s", (int)bytes_of(name, columns - 1 - tail), name,
             name + bytes_of(name, all - tail));
    return to;
}

/* ---- Columns of numbers ---------------------------------------------------------------------- */

#define FIGURES_MAX 4

struct figure_column {
    const char *heading;
    int width;
};

/* In pairs, the most important first: as many are shown as leave a name its space. */
static const struct figure_column rule_columns[FIGURES_MAX] = {
    {"allowed/s", 10}, {"denied/s", 10}, {"allowed", 12}, {"denied", 12}};
static const struct figure_column key_columns[] = {{"asked/s", 10}, {"denied/s", 10}};

static unsigned fit_columns(const struct drawing *drawing, const struct figure_column *columns,
                            unsigned n, unsigned *name_columns)
{
    unsigned left = drawing->screen->columns, shown = 0;
    assert(n % 2 == 0);
    for (; shown < n; shown += 2) {
        unsigned pair = (unsigned)(columns[shown].width + columns[shown + 1].width);
        pair += shown == 0 ? 2 : 0; /* spaces before the name */
        if (left < pair + NAME_MIN)
            break;
        left -= pair;
    }
    *name_columns = left;
    return shown;
}

static void add_figures(struct buf *line, const struct figure_column *columns, unsigned n,
                        const char *const texts[])
{
    for (unsigned i = 0; i < n; i++)
        buf_add(line, "%*s", columns[i].width, texts[i] != NULL ? texts[i] : columns[i].heading);
    buf_add(line, "%s", n > 0 ? "  " : "");
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
    struct formatted allowed, denied, p50, p99;
    struct formatted up, places, bytes;
    json_t *durations = json_object_get(stats, "durations");
    struct flow head = {.drawing = drawing, .is_bold = true}, flow = {.drawing = drawing};
    flow_add(&head, ", ", "stint %s", text(stats, NULL, "version"));
    flow_add(&head, ", ", "up %s",
             format_seconds_up(&up, (uint64_t)(number(stats, NULL, "up_s") * (double)NS_PER_S)));
    flow_add(&head, ", ", "%.0f rules", number(stats, "reloads", "rules"));
    flow_add(&head, ", ", "generation %.0f", number(stats, "reloads", "generation"));
    flow_end(&head);
    flow_add(&flow, "", "allowed %s/s", rate_text(&allowed, number(stats, "rates", "allowed")));
    flow_add(&flow, "   ", "denied %s/s", rate_text(&denied, number(stats, "rates", "denied")));
    flow_add(&flow, "   ", "p50 %s", percentile_text(&p50, durations, "p50_ns"));
    flow_add(&flow, "   ", "p99 %s", percentile_text(&p99, durations, "p99_ns"));
    flow_end(&flow);
    flow_add(&flow, "", "table %s", keys_text(keys, sizeof(keys), stats));
    flow_add(&flow, " ", "of %s places",
             format_count(&places, (uint64_t)number(stats, "table", "places")));
    flow_add(&flow, " ", "in %s", format_bytes(&bytes, (uint64_t)number(stats, "table", "bytes")));
    flow_add(&flow, "   ", "connections %.0f open", sum_of_frontends(stats, "open"));
    flow_add(&flow, ", ", "%.0f refused", sum_of_frontends(stats, "refused"));
    flow_end(&flow);
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
    json_array_foreach(servers, i, server)
    {
        n_answered += json_is_null(json_object_get(server, "error"));
    }
    struct flow flow = {.drawing = drawing, .is_bold = true};
    flow_add(&flow, "", "sums of %zu of %zu servers", n_answered, json_array_size(servers));
    flow_add(&flow, "; ", "durations are those of the slowest");
    flow_end(&flow);
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

/* The headings, after an empty line. False if there is no space for them and a row. */
static bool draw_headings(struct drawing *drawing, const struct figure_column *columns, unsigned n,
                          const char *name)
{
    static const char *const none[FIGURES_MAX];
    char line[128];
    struct buf buf = buf_of(line, sizeof(line));
    if (!has_space(drawing, 3))
        return false;
    add_figures(&buf, columns, n, none);
    put(drawing, false, "%s", "");
    put(drawing, true, "%s%s", line, name);
    return true;
}

static void draw_rule(struct drawing *drawing, const struct rule_row *row, unsigned shown,
                      unsigned name_columns)
{
    struct formatted rates[2], sums[2];
    const char *const texts[FIGURES_MAX] = {
        rate_text(&rates[0], row->allowed), rate_text(&rates[1], row->denied),
        count_text(&sums[0], allowed_of(row->rule)), count_text(&sums[1], denied_of(row->rule))};
    char line[128], plain[512], whole[1024], name[1032];
    struct buf buf = buf_of(line, sizeof(line));
    const char *rule = text(row->rule, NULL, "rule");
    snprintf(plain, sizeof(plain), "%s%s%s", text(row->rule, NULL, "domain"),
             rule[0] != '\0' ? ": " : "", rule[0] != '\0' ? rule : "(quotas of callers)");
    format_text(whole, sizeof(whole), span_of_text(plain));
    add_figures(&buf, rule_columns, shown, texts);
    put(drawing, false, "%s%s", line, name_text(name, sizeof(name), whole, name_columns));
}

static void draw_rules(struct drawing *drawing, json_t *before, json_t *stats)
{
    size_t n;
    unsigned name_columns;
    unsigned shown = fit_columns(drawing, rule_columns, FIGURES_MAX, &name_columns);
    struct rule_row *rows = rates_of(before, stats, &n);
    if (n > 0 && draw_headings(drawing, rule_columns, shown, "rule")) {
        for (size_t i = 0; i < n && i < RULES_SHOWN; i++)
            draw_rule(drawing, &rows[i], shown, name_columns);
    }
    free(rows);
}

/* Numbers, a name, and beside it, if there is space, what belongs to the name. */
static void draw_named(struct drawing *drawing, const char *figures, const char *whole,
                       const char *beside, unsigned name_columns)
{
    char name[520], cut[512];
    name_text(name, sizeof(name), whole, name_columns);
    unsigned used = columns_of(name) + 3; /* spaces before the text beside it */
    if (used + NAME_MIN / 2 > name_columns)
        put(drawing, false, "%s%s", figures, name);
    else
        put(drawing, false, "%s%s   %s", figures, name,
            name_text(cut, sizeof(cut), beside, name_columns - used));
}

static void draw_key(struct drawing *drawing, json_t *key, unsigned shown, unsigned name_columns)
{
    struct formatted asked, denied;
    const char *const texts[] = {rate_text(&asked, number(key, NULL, "asked_per_s")),
                                 rate_text(&denied, number(key, NULL, "denied_per_s"))};
    char line[128], whole[512], cut[520];
    struct buf buf = buf_of(line, sizeof(line));
    json_t *bytes = json_object_get(key, "key"); /* of any bytes, zero bytes as well */
    format_text(whole, sizeof(whole), span_of(json_string_value(bytes), json_string_length(bytes)));
    snprintf(cut, sizeof(cut), "%s%s", whole,
             json_is_true(json_object_get(key, "is_cut")) ? "..." : "");
    add_figures(&buf, key_columns, shown, texts);
    draw_named(drawing, line, cut, text(key, NULL, "rule"), name_columns);
}

static void draw_keys(struct drawing *drawing, const struct top_options *options, json_t *keys)
{
    unsigned name_columns, shown = fit_columns(drawing, key_columns, 2, &name_columns);
    if (json_array_size(keys) == 0 ||
        !draw_headings(drawing, key_columns, shown,
                       options->order == TOP_ASKED ? "keys asked most" : "keys denied most"))
        return;
    for (size_t i = 0; i < json_array_size(keys); i++)
        draw_key(drawing, json_array_get(keys, i), shown, name_columns);
}

/* ---- A table --------------------------------------------------------------------------------- */

static const struct figure_column quota_columns[FIGURES_MAX] = {
    {"live", 10}, {"denying", 10}, {"units used", 14}, {"change/s", 10}};
static const struct figure_column state_columns[FIGURES_MAX] = {
    {"left", 10}, {"limit", 10}, {"used", 14}, {"reset", 10}};

static uint64_t whole_number(json_t *object, const char *part, const char *name)
{
    return (uint64_t)json_integer_value(at(object, part, name));
}

static void flow_count(struct flow *flow, const char *what, uint64_t n, uint64_t n_max)
{
    struct formatted count, most;
    flow_add(flow, "   ", "%s %s of %s", what, format_count(&count, n), format_count(&most, n_max));
}

static void draw_fill(struct drawing *drawing, json_t *table)
{
    static const struct {
        const char *name, *shown;
    } classes[] = {{"8_byte", "8-byte states"}, {"16_byte", "16-byte"}, {"wide", "wide"}};
    struct flow flow = {.drawing = drawing};
    json_t *fill = json_object_get(table, "fill");
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        struct formatted count, most, percent;
        uint64_t live = whole_number(fill, classes[i].name, "live");
        uint64_t places = whole_number(fill, classes[i].name, "places");
        if (places == 0)
            continue;
        flow_add(&flow, "   ", "%s %s of %s (%s)", classes[i].shown, format_count(&count, live),
                 format_count(&most, places), format_percent(&percent, live, places));
    }
    flow_end(&flow);
    flow_count(&flow, "tickets open", whole_number(table, NULL, "tickets_open"),
               whole_number(table, NULL, "tickets"));
    flow_count(&flow, "pools", whole_number(table, NULL, "pools"),
               whole_number(table, NULL, "pools_max"));
    flow_add(&flow, "   ", "blocked keys %" PRIu64, whole_number(table, NULL, "blocked"));
    flow_end(&flow);
}

/* Counters of what a table that is large enough does not have; bold: they grew. */
static void draw_troubles(struct drawing *drawing, json_t *before, json_t *table)
{
    static const struct {
        const char *name, *shown;
    } troubles[] = {
        {"evictions_inherit", "new keys that waited"},    {"evictions_evict", "keys evicted"},
        {"forgotten_units", "units forgotten"},           {"full_denied", "new keys denied"},
        {"full_allowed", "new keys allowed, not stored"}, {"tickets_dropped", "tickets dropped"},
        {"owners_displaced", "owners displaced"},         {"states_damaged", "states damaged"}};
    struct flow flow = {.drawing = drawing};
    for (size_t i = 0; i < sizeof(troubles) / sizeof(troubles[0]); i++) {
        struct formatted count;
        uint64_t n = whole_number(table, "counters", troubles[i].name);
        if (n > 0)
            flow_add(&flow, "   ", "%s %s", troubles[i].shown, format_count(&count, n));
        flow.is_bold |= before != NULL && n > whole_number(before, "counters", troubles[i].name);
    }
    flow_end(&flow);
}

static void draw_table_head(struct drawing *drawing, const struct top_options *options,
                            json_t *before, json_t *table)
{
    char path[256];
    struct formatted bytes, idle;
    uint64_t idle_ns = whole_number(table, NULL, "idle_ns");
    bool is_virtual = strcmp(text(table, NULL, "clock"), "virtual") == 0;
    struct flow head = {.drawing = drawing, .is_bold = true};
    flow_add(&head, "", "%s",
             name_text(path, sizeof(path), options->state, drawing->screen->columns));
    flow_add(&head, ", ", "%s", format_bytes(&bytes, whole_number(table, NULL, "bytes")));
    if (is_virtual)
        flow_add(&head, ", ", "virtual clock");
    if (json_is_null(json_object_get(table, "idle_ns")))
        flow_add(&head, ", ", "never used");
    else if (idle_ns < NS_PER_S)
        flow_add(&head, ", ", "used less than 1 s ago");
    else
        flow_add(&head, ", ", "used %s ago", format_duration(&idle, idle_ns / NS_PER_S * NS_PER_S));
    flow_end(&head);
    draw_fill(drawing, table);
    draw_troubles(drawing, before, table);
}

static json_t *find_quota(json_t *table, const char *spec)
{
    size_t i;
    json_t *quota;
    json_array_foreach(json_object_get(table, "quotas"), i, quota)
    {
        if (strcmp(text(quota, NULL, "quota"), spec) == 0)
            return quota;
    }
    return NULL;
}

/* What is used more, or less, than at the sample before. */
static double change_of(json_t *before, json_t *table, json_t *quota)
{
    double seconds = (number(table, NULL, "now_ns") - number(before, NULL, "now_ns")) / NS_PER_S;
    json_t *old = find_quota(before, text(quota, NULL, "quota"));
    double change = number(quota, NULL, "used") - (old != NULL ? number(old, NULL, "used") : 0);
    return before != NULL && seconds > 0 ? change / seconds : 0;
}

static void draw_quotas(struct drawing *drawing, json_t *before, json_t *table)
{
    size_t i;
    json_t *quota, *quotas = json_object_get(table, "quotas");
    unsigned name_columns, shown = fit_columns(drawing, quota_columns, FIGURES_MAX, &name_columns);
    if (json_array_size(quotas) == 0 || !draw_headings(drawing, quota_columns, shown, "quota"))
        return;
    json_array_foreach(quotas, i, quota)
    {
        struct formatted live, denying, used, change;
        const char *const texts[FIGURES_MAX] = {
            count_text(&live, number(quota, NULL, "live")),
            count_text(&denying, number(quota, NULL, "denying")),
            count_text(&used, number(quota, NULL, "used")),
            change_text(&change, change_of(before, table, quota))};
        char line[128], name[520];
        struct buf buf = buf_of(line, sizeof(line));
        if (i == RULES_SHOWN)
            break;
        add_figures(&buf, quota_columns, shown, texts);
        put(drawing, false, "%s%s", line,
            name_text(name, sizeof(name), text(quota, NULL, "quota"), name_columns));
    }
    size_t others = json_array_size(quotas) - i;
    uint64_t n_others = whole_number(table, NULL, "other_live");
    if (others > 0)
        put(drawing, false, "and %zu quotas more", others);
    else if (n_others > 0)
        put(drawing, false, "and %" PRIu64 " states of quotas that are not listed", n_others);
}

static void draw_state(struct drawing *drawing, json_t *key, unsigned shown, unsigned name_columns)
{
    struct formatted figures[FIGURES_MAX];
    json_t *count = json_object_get(key, "count"); /* a counter has no limit */
    double limit = number(key, NULL, "limit"), left = number(key, NULL, "remaining");
    double used = count != NULL ? json_number_value(count) : limit - left;
    const char *const texts[FIGURES_MAX] = {
        count != NULL ? "-" : count_text(&figures[0], left),
        count != NULL ? "-" : count_text(&figures[1], limit), count_text(&figures[2], used),
        format_seconds_up(&figures[3], whole_number(key, NULL, "reset_after_ns"))};
    char line[128];
    struct buf buf = buf_of(line, sizeof(line));
    add_figures(&buf, state_columns, shown, texts);
    draw_named(drawing, line, text(key, NULL, "key_hash"), text(key, NULL, "quota"), name_columns);
}

static void draw_states(struct drawing *drawing, const struct top_options *options, json_t *keys)
{
    unsigned name_columns, shown = fit_columns(drawing, state_columns, FIGURES_MAX, &name_columns);
    if (json_array_size(keys) == 0 ||
        !draw_headings(drawing, state_columns, shown,
                       options->order == TOP_ASKED ? "most used (hash)" : "least left (hash)"))
        return;
    for (size_t i = 0; i < json_array_size(keys); i++)
        draw_state(drawing, json_array_get(keys, i), shown, name_columns);
}

static void draw_table(struct drawing *drawing, const struct top_options *options, json_t *before,
                       json_t *table)
{
    draw_table_head(drawing, options, before, table);
    draw_quotas(drawing, before, table);
    draw_states(drawing, options, json_object_get(table, "keys"));
}

/* ---- Help ------------------------------------------------------------------------------------ */

static const char *const server_help[] = {
    "?  this help; any key: back",
    "o  keys denied most, or asked most",
    "q  quit",
    "",
    "allowed/s, denied/s: decisions each",
    "  second, since the last sample",
    "allowed, denied: decisions since the",
    "  server started",
    "p50, p99: half, and 99 %, of the",
    "  decisions of the last ten seconds",
    "  took at most so long, from the read",
    "  of a request to its reply, without",
    "  the network. One batch of requests",
    "  in 64 is timed, and divided by its",
    "  decisions; the times are rounded up",
    "  to 0.128, 0.256, 0.512 µs and so on",
    "table: keys with a live state",
    NULL,
};

static const char *const table_help[] = {
    "?  this help; any key: back",
    "o  keys with the least left, or with",
    "   the most units used",
    "q  quit",
    "",
    "A table has no names of keys and of",
    "  limiters, only hashes, and it does",
    "  not count decisions: the program",
    "  that uses it does",
    "live: states that have not expired",
    "denying: those that deny one unit now",
    "units used: of live states",
    "change/s: of the units used, since",
    "  the last sample",
    "left: what a key may still take now",
    "reset: until all of it is back",
    NULL,
};

static void draw_help(struct drawing *drawing, const char *const *lines)
{
    put(drawing, true, "stint top");
    for (; *lines != NULL; lines++)
        put(drawing, false, "%s", *lines);
}

void top_draw(const struct top_screen *screen, const struct top_options *options,
              const struct top_look *before, const struct top_look *look)
{
    struct drawing drawing = {.screen = screen};
    if (look == NULL) {
        draw_help(&drawing, options->state != NULL ? table_help : server_help);
    } else if (look->table != NULL) {
        draw_table(&drawing, options, before->table, look->table);
    } else {
        draw_servers(&drawing, look->servers);
        draw_head(&drawing, look->stats);
        draw_rules(&drawing, before->stats, look->stats);
        draw_keys(&drawing, options, json_object_get(look->keys, "keys"));
    }
    fflush(screen->out);
}
