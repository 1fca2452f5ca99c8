/* SPDX-License-Identifier: MIT */
/* What commands print: messages, escaped text, numbers in words, and JSON. */
#define _GNU_SOURCE
#include "cmd/lib/print.h"

#include "base/ns.h"
#include "base/utf8.h"
#include "stint.h"
#include "table/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Text ------------------------------------------------------------------------------------ */

#define SHOWN_SPACE 16 /* of one character */

/* Shows the character that `text` begins with; returns its length in bytes. */
static size_t show(const uint8_t *text, size_t len, char shown[SHOWN_SPACE])
{
    size_t n = utf8_length(text, len);
    uint32_t code = n > 0 ? utf8_code_point(text, n) : text[0];
    if (n == 0 || (code < 0x80 && utf8_is_hidden(code)))
        snprintf(shown, SHOWN_SPACE, "\\x%02x", (unsigned)code);
    else if (utf8_is_hidden(code))
        snprintf(shown, SHOWN_SPACE, "\\u{%x}", (unsigned)code);
    else
        snprintf(shown, SHOWN_SPACE, "%.*s", (int)n, (const char *)text);
    return n > 0 ? n : 1;
}

const char *format_text(char *to, size_t size, struct span text)
{
    char shown[SHOWN_SPACE];
    size_t used = 0;
    for (size_t at = 0; at < text.len;) {
        at += show(text.ptr + at, text.len - at, shown);
        size_t len = strlen(shown);
        if (used + len >= size)
            break;
        memcpy(to + used, shown, len);
        used += len;
    }
    to[used] = '\0';
    return to;
}

void print_escaped(FILE *out, struct span key)
{
    char shown[SHOWN_SPACE];
    for (size_t at = 0; at < key.len;) {
        at += show(key.ptr + at, key.len - at, shown);
        fputs(shown, out);
    }
}

/*
 * YAML allows any text in double quotes. A character that it does not allow as it is, folds as a
 * line break, or that cannot be seen is escaped. A byte
 * that is not UTF-8 is written as it is.
 */
void print_yaml_text(FILE *out, struct span text)
{
    putc('"', out);
    for (size_t at = 0, n; at < text.len; at += n) {
        const uint8_t *c = text.ptr + at;
        size_t length = utf8_length(c, text.len - at);
        uint32_t code = length > 0 ? utf8_code_point(c, length) : *c;
        bool is_noncharacter = (code & 0xfffe) == 0xfffe;
        n = length > 0 ? length : 1;
        if (length > 0 && (utf8_is_hidden(code) || is_noncharacter))
            fprintf(out, code > 0xffff ? "\\U%08" PRIx32 : "\\u%04" PRIx32, code);
        else
            fprintf(out, "%s%.*s", code == '"' || code == '\\' ? "\\" : "", (int)n,
                    (const char *)c);
    }
    putc('"', out);
}

void print_between(const char *before, struct span text, const char *after)
{
    fputs(before, stdout);
    print_escaped(stdout, text);
    fputs(after, stdout);
}

void hide_controls(char *text)
{
    const uint8_t *from = (const uint8_t *)text;
    char *to = text;
    for (size_t len = strlen(text), n; len > 0; from += n, len -= n) {
        n = utf8_length(from, len);
        if (n == 0 || utf8_is_hidden(utf8_code_point(from, n))) {
            *to++ = '?';
            n = n > 0 ? n : 1;
        } else {
            memmove(to, from, n);
            to += n;
        }
    }
    *to = '\0';
}

void print_message(const char *format, ...)
{
    char text[1024], shown[4 * sizeof(text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    format_text(shown, sizeof(shown), span_of_text(text));
    fflush(stdout);
    fprintf(stderr, "stint: %s\n", shown);
}

/* ---- Numbers, for people --------------------------------------------------------------------- */

ERR_PRINTF(2, 3)
static const char *put(struct formatted *formatted, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(formatted->text, sizeof(formatted->text), format, args);
    va_end(args);
    return formatted->text;
}

const char *format_count(struct formatted *formatted, uint64_t number)
{
    char plain[24];
    int len = snprintf(plain, sizeof(plain), "%" PRIu64, number);
    char *to = formatted->text;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            *to++ = ',';
        *to++ = plain[i];
    }
    *to = '\0';
    return formatted->text;
}

const char *format_bytes(struct formatted *formatted, uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double number = (double)bytes / 1000;
    size_t unit = 0;
    if (bytes < 1000)
        return put(formatted, "%" PRIu64 " bytes", bytes);
    for (; number >= 999.95 && unit < 5; unit++)
        number /= 1000;
    return put(formatted, "%.1f %s", number, units[unit]);
}

const char *format_percent(struct formatted *formatted, uint64_t part, uint64_t whole)
{
    double percent = whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
    /* 100.0 % and 0.0 % are printed only for all and for none. */
    if (part > 0 && percent < 0.05)
        return put(formatted, "<0.1 %%");
    if (part < whole && percent >= 99.95)
        return put(formatted, ">99.9 %%");
    return put(formatted, "%.1f %%", percent);
}

/* The two largest units, or one with decimals below a second. */
const char *format_duration(struct formatted *formatted, uint64_t ns)
{
    static const struct {
        uint64_t ns;
        const char *name;
    } units[] = {{NS_PER_DAY, "d"}, {NS_PER_HOUR, "h"}, {NS_PER_MIN, "min"},
                 {NS_PER_S, "s"},   {NS_PER_MS, "ms"},  {NS_PER_US, "us"},
                 {1, "ns"}};
    size_t unit = 0;
    while (unit < 6 && ns < units[unit].ns)
        unit++;
    uint64_t most = ns / units[unit].ns;
    uint64_t rest = unit < 6 ? ns % units[unit].ns / units[unit + 1].ns : 0;
    return rest > 0 ? put(formatted, "%" PRIu64 " %s %" PRIu64 " %s", most, units[unit].name, rest,
                          units[unit + 1].name)
                    : put(formatted, "%" PRIu64 " %s", most, units[unit].name);
}

const char *format_seconds_up(struct formatted *formatted, uint64_t ns)
{
    return ns == STINT_NEVER_NS ? put(formatted, "never")
                                : put(formatted, "%" PRIu64 " s", ns_units_up(ns, NS_PER_S));
}

const char *format_wait(struct formatted *formatted, uint64_t ns)
{
    uint64_t ms = ns / NS_PER_MS + (ns % NS_PER_MS != 0);
    return ns == STINT_NEVER_NS ? put(formatted, "never")
                                : put(formatted, "%" PRIu64 ".%03" PRIu64, ms / 1000, ms % 1000);
}

const char *format_date(struct formatted *formatted, uint64_t since_1970_ns)
{
    time_t seconds = (time_t)(since_1970_ns / NS_PER_S);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    strftime(formatted->text, sizeof(formatted->text), "%Y-%m-%d %H:%M:%S UTC", &tm);
    return formatted->text;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

json_t *json_text_key(struct span key)
{
    char *text = malloc(3 * key.len + 1), *to = text;
    if (text == NULL)
        return NULL;
    for (size_t at = 0, n; at<key.len; at += n> 0 ? n : 1) {
        n = utf8_length(key.ptr + at, key.len - at);
        to = n > 0 ? mempcpy(to, key.ptr + at, n) : mempcpy(to, UTF8_REPLACEMENT, 3);
    }
    json_t *value = json_stringn(text, (size_t)(to - text));
    free(text);
    return value;
}

json_t *json_text_ns(uint64_t ns)
{
    return ns > INT64_MAX ? json_null() : json_integer((json_int_t)ns);
}

int json_text_print(json_t *object, bool pretty)
{
    int failed =
        object == NULL || json_dumpf(object, stdout, pretty ? JSON_INDENT(2) : JSON_COMPACT) != 0;
    json_decref(object);
    if (!failed)
        putchar('\n');
    else if (!ferror(stdout))
        print_message("out of memory");
    return failed ? CMD_BAD_INPUT : CMD_DONE;
}

/* ---- Progress -------------------------------------------------------------------------------- */

/* The bar appears only after a second of work. */

#define BAR_WIDTH 40
#define STEP_NS (100 * NS_PER_MS)

void progress_begin(struct progress *progress, uint64_t total)
{
    uint64_t now_ns = clock_boot_ns();
    *progress = (struct progress){.total = total,
                                  .begun_ns = now_ns,
                                  .next_ns = now_ns + NS_PER_S,
                                  .wanted = isatty(STDERR_FILENO) == 1};
}

/* "36.5 MB, 12.1 MB/s", or "36,500 rounds, 121 rounds/s". */
static void describe(const struct progress *progress, uint64_t done, uint64_t since_ns, char *words,
                     size_t words_size)
{
    struct formatted all, speed;
    uint64_t a_second = (uint64_t)((double)done * 1e9 / (double)since_ns);
    if (progress->what == NULL)
        snprintf(words, words_size, "%s, %s/s", format_bytes(&all, done),
                 format_bytes(&speed, a_second));
    else
        snprintf(words, words_size, "%s %s, %s %s/s", format_count(&all, done), progress->what,
                 format_count(&speed, a_second), progress->what);
}

void progress_step(struct progress *progress, uint64_t done)
{
    if (!progress->wanted)
        return;
    uint64_t now_ns = clock_boot_ns();
    if (now_ns < progress->next_ns)
        return;
    progress->next_ns = now_ns + STEP_NS;
    progress->shown = true;
    struct formatted percent;
    char words[192];
    describe(progress, done, now_ns - progress->begun_ns, words, sizeof(words));
    if (progress->total == 0) {
        fprintf(stderr, "\r\033[K%s", words);
        return;
    }
    static const char marks[] = "########################################";
    uint64_t seen = done < progress->total ? done : progress->total;
    int filled = (int)((double)seen / (double)progress->total * BAR_WIDTH);
    fprintf(stderr, "\r\033[K[%-*.*s] %s, %s", BAR_WIDTH, filled, marks,
            format_percent(&percent, seen, progress->total), words);
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
