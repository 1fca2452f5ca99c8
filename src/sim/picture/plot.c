/* SPDX-License-Identifier: MIT */
/* Writes into memory. Memory that does not suffice is reported once, at the end. */
#include "sim/picture/plot.h"

#include "algorithm/text.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_FIRST 4096
#define NAME_COLUMNS 46

void plot_init(struct plot *plot, const unsigned char *program)
{
    *plot = (struct plot){.program = program};
}

void plot_deinit(struct plot *plot)
{
    free(plot->variables.bytes);
    free(plot->data.bytes);
    *plot = (struct plot){0};
}

/* Makes place for `more` bytes and a terminator. */
static bool grow(struct plot_lines *lines, size_t more)
{
    size_t size = lines->size == 0 ? LINES_FIRST : lines->size;
    while (size - lines->len <= more && size <= SIZE_MAX / 2)
        size *= 2;
    if (size - lines->len <= more)
        return false;
    char *bytes = size == lines->size ? lines->bytes : realloc(lines->bytes, size);
    if (bytes == NULL)
        return false;
    lines->bytes = bytes;
    lines->size = size;
    return true;
}

static ERR_PRINTF(3, 0) void add(struct plot *plot, struct plot_lines *lines, const char *format,
                                 va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    if (plot->lost || len < 0 || !grow(lines, (size_t)len))
        plot->lost = true;
    else
        lines->len += (size_t)vsnprintf(lines->bytes + lines->len, (size_t)len + 1, format, again);
    va_end(again);
}

void plot_data(struct plot *plot, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(plot, &plot->data, format, args);
    va_end(args);
}

void plot_variables(struct plot *plot, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(plot, &plot->variables, format, args);
    va_end(args);
}

/* Sets are told apart by two blank lines, and named by the comment that begins them. */
void plot_set(struct plot *plot, const char *name)
{
    plot_data(plot, "%s# %s\n", plot->data.len > 0 ? "\n\n" : "", name);
}

/* Bytes of the first character; 0 where there is none that may be shown. */
static size_t character_len(struct span text)
{
    size_t len = utf8_length(text.ptr, text.len);
    return len > 0 && utf8_is_hidden(utf8_code_point(text.ptr, len)) ? 0 : len;
}

/* Nothing of these means anything to gnuplot within double quotes; UTF-8 does not either. */
static bool is_plain(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c >= 0x80 || (c != '\0' && strchr(" .,:;/=_+-()<>", c) != NULL);
}

/* As a string, and the end of the line. */
static void add_quoted(struct plot *plot, struct span text, size_t columns)
{
    bool escaped = false; /* gnuplot takes a digit behind an octal escape for a part of it */
    plot_variables(plot, "\"");
    for (size_t column = 1; text.len > 0; column++) {
        size_t len = character_len(text), step = len > 0 ? len : 1;
        if (column == columns && text.len > step) {
            plot_variables(plot, "…");
            break;
        }
        bool plain = is_plain(text.ptr[0]) && !(escaped && text_is_digit(text.ptr[0]));
        if (len == 0)
            plot_variables(plot, "?");
        else if (plain)
            plot_variables(plot, "%.*s", (int)len, (const char *)text.ptr);
        else
            plot_variables(plot, "\\%03o", text.ptr[0]);
        escaped = len > 0 && !plain;
        text.ptr += step;
        text.len -= step;
    }
    plot_variables(plot, "\"\n");
}

void plot_text(struct plot *plot, const char *variable, struct span text, size_t columns)
{
    plot_variables(plot, "%s = ", variable);
    add_quoted(plot, text, columns);
}

void plot_names(struct plot *plot, const char *variable, const struct span *names, size_t n_names)
{
    plot_variables(plot, "n = %zu\narray %s[n]\n", n_names, variable);
    for (size_t i = 0; i < n_names; i++) {
        plot_variables(plot, "%s[%zu] = ", variable, i + 1);
        add_quoted(plot, names[i], NAME_COLUMNS);
    }
}
