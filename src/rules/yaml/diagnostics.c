/* SPDX-License-Identifier: MIT */
/* The first RULES_FAULTS_MAX diagnostics are kept, and the others counted. */
#include "rules/yaml/diagnostics.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_listed(const struct rules_fault *list, size_t n, const struct rules_fault *fault)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].file == fault->file && list[i].line == fault->line &&
            list[i].column == fault->column && strcmp(list[i].message, fault->message) == 0)
            return true;
    return false;
}

/* False: no space. */
static __attribute__((format(printf, 5, 0))) bool add(struct rules_fault **list, size_t *n_listed,
                                                      const struct source *source,
                                                      struct source_position position,
                                                      const char *format, va_list args)
{
    struct rules_fault fault = {
        .file = source->path, .line = position.line, .column = position.column};
    struct buf described = buf_of(fault.message, sizeof(fault.message));
    if (position.line == 0 && source->describe != NULL)
        source->describe(source, &described);
    size_t begin = described.len < sizeof(fault.message) ? described.len : 0;
    vsnprintf(fault.message + begin, sizeof(fault.message) - begin, format, args);
    if (*list == NULL)
        *list = calloc(RULES_FAULTS_MAX, sizeof(**list));
    if (*list == NULL || *n_listed == RULES_FAULTS_MAX)
        return false;
    if (!is_listed(*list, *n_listed, &fault))
        (*list)[(*n_listed)++] = fault;
    return true;
}

void diagnostics_add(const struct source *source, struct source_position position,
                     const char *format, ...)
{
    struct rules_diagnostics *to = source->diagnostics;
    va_list args;
    va_start(args, format);
    if (!add(&to->diagnostics, &to->n_diagnostics, source, position, format, args))
        to->n_more++;
    va_end(args);
}

void warnings_add(const struct source *source, struct source_position position, const char *format,
                  ...)
{
    struct rules_diagnostics *to = source->diagnostics;
    va_list args;
    va_start(args, format);
    add(&to->warnings, &to->n_warnings, source, position, format, args);
    va_end(args);
}

bool diagnostics_got(const struct source *source, const void *memory)
{
    if (memory == NULL)
        diagnostics_add(source, (struct source_position){0}, "out of memory");
    return memory != NULL;
}

size_t diagnostics_count(const struct rules_diagnostics *diagnostics)
{
    return diagnostics->n_diagnostics + diagnostics->n_more;
}

static bool is_after(const struct rules_fault *a, const struct rules_fault *b)
{
    return a->line != b->line ? a->line > b->line : a->column > b->column;
}

/* Insertion sort: they are few and nearly in order, and equal positions keep their order. */
static void sort(struct rules_fault *list, size_t first, size_t end)
{
    for (size_t i = first + 1; i < end; i++) {
        struct rules_fault fault = list[i];
        size_t at = i;
        for (; at > first && is_after(&list[at - 1], &fault); at--)
            list[at] = list[at - 1];
        list[at] = fault;
    }
}

void diagnostics_sort(struct rules_diagnostics *diagnostics, size_t first, size_t first_warning)
{
    sort(diagnostics->diagnostics, first, diagnostics->n_diagnostics);
    sort(diagnostics->warnings, first_warning, diagnostics->n_warnings);
}

void rules_diagnostics_free(struct rules_diagnostics *diagnostics)
{
    free(diagnostics->diagnostics);
    free(diagnostics->warnings);
    *diagnostics = (struct rules_diagnostics){0};
}

struct quoted_text quoted_text(struct span text)
{
    static const char cut[] = "...";
    struct quoted_text shown = {""};
    size_t len = text.len;
    if (len >= sizeof(shown.text)) {
        len = sizeof(shown.text) - sizeof(cut);
        while (len > 0 && (text.ptr[len] & 0xc0) == 0x80) /* not within a character */
            len--;
        memcpy(shown.text + len, cut, sizeof(cut));
    }
    for (size_t i = 0; i < len; i++)
        shown.text[i] = text.ptr[i] < ' ' || text.ptr[i] == 0x7f ? '?' : (char)text.ptr[i];
    return shown;
}
