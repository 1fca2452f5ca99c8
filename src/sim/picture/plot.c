/* SPDX-License-Identifier: MIT */
/* Appends. Memory that does not suffice is told once, at the end: nobody draws half a picture. */
#include "sim/picture/plot.h"

#include "base/ns.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_FIRST 4096

void plot_init(struct plot *plot, uint32_t width, uint32_t height)
{
    *plot = (struct plot){.width = width, .height = height};
}

void plot_deinit(struct plot *plot)
{
    free(plot->data.bytes);
    free(plot->script.bytes);
    *plot = (struct plot){0};
}

/* Room for `more` bytes and a terminator. */
static bool make_space(struct plot_text *text, size_t more)
{
    size_t size = text->size == 0 ? TEXT_FIRST : text->size;
    while (size - text->len <= more) {
        if (size > SIZE_MAX / 2)
            return false;
        size *= 2;
    }
    if (size == text->size)
        return true;
    char *bytes = realloc(text->bytes, size);
    if (bytes == NULL)
        return false;
    text->bytes = bytes;
    text->size = size;
    return true;
}

static ERR_PRINTF(3, 0) void add(struct plot *plot, struct plot_text *text, const char *format,
                                 va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    if (plot->lost || len < 0 || !make_space(text, (size_t)len))
        plot->lost = true;
    else
        text->len += (size_t)vsnprintf(text->bytes + text->len, (size_t)len + 1, format, again);
    va_end(again);
}

void plot_data(struct plot *plot, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(plot, &plot->data, format, args);
    va_end(args);
}

void plot_script(struct plot *plot, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(plot, &plot->script, format, args);
    va_end(args);
}

/* Sets are told apart by two blank lines, and named by the comment that begins them. */
void plot_set(struct plot *plot, const char *name)
{
    plot_data(plot, "%s# %s\n", plot->data.len > 0 ? "\n\n" : "", name);
}

/* Bytes of the UTF-8 character at the beginning of the text; 0 where there is none. */
static size_t character_len(struct span text)
{
    uint8_t first = text.ptr[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7f;
    size_t len = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.len < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if (text.ptr[i] >> 6 != 2)
            return 0;
    /* What is longer than it need be, a surrogate, past the last, or a control character. */
    uint8_t second = text.ptr[1];
    bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                 (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f) ||
                 (first == 0xc2 && second < 0xa0);
    return wrong ? 0 : len;
}

/* Nothing of these means anything to gnuplot within double quotes; UTF-8 does not either. */
static bool is_plain(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c >= 0x80 || (c != '\0' && strchr(" .,:;/=_+-()<>", c) != NULL);
}

static void add_quoted(struct plot *plot, struct span text, size_t columns, bool is_tic)
{
    plot_script(plot, "\"");
    for (size_t column = 1; text.len > 0; column++) {
        size_t len = character_len(text), step = len > 0 ? len : 1;
        uint8_t first = text.ptr[0];
        if (column == columns && text.len > step) {
            plot_script(plot, "…");
            break;
        }
        if (len == 0)
            plot_script(plot, "?");
        else if (first == '%' && is_tic)
            plot_script(plot, "%%%%");
        else if (is_plain(first))
            plot_script(plot, "%.*s", (int)len, (const char *)text.ptr);
        else
            plot_script(plot, "\\%03o", first);
        text.ptr += step;
        text.len -= step;
    }
    plot_script(plot, "\"");
}

void plot_quote(struct plot *plot, struct span text, size_t columns)
{
    add_quoted(plot, text, columns, false);
}

void plot_quote_tic(struct plot *plot, struct span text, size_t columns)
{
    add_quoted(plot, text, columns, true);
}

int plot_check(const struct plot *plot, struct stint_error *error)
{
    return plot->lost ? err_set(error, STINT_E_SYSTEM, "out of memory for the picture") : 0;
}

struct plot_unit plot_unit_of(uint64_t length_ns)
{
    static const struct plot_unit units[] = {
        {"d", NS_PER_DAY}, {"h", NS_PER_HOUR}, {"min", NS_PER_MIN}, {"s", NS_PER_S},
        {"ms", NS_PER_MS}, {"us", NS_PER_US},  {"ns", 1},
    };
    size_t i = 0;
    while (i < 6 && length_ns < 3 * units[i].ns)
        i++;
    return units[i];
}

double plot_step_of(double length)
{
    double step = 1;
    while (step * 10 <= length / 4)
        step *= 10;
    return step * (length / 4 >= step * 5 ? 5 : length / 4 >= step * 2 ? 2 : 1);
}
