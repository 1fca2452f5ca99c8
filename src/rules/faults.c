/* SPDX-License-Identifier: MIT */
/* The first RULES_FAULTS_MAX faults are kept, and the others counted. */
#include "rules/faults.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_told(const struct rules_faults *faults, const struct rules_fault *fault)
{
    for (size_t i = 0; i < faults->n_faults; i++) {
        const struct rules_fault *other = &faults->faults[i];
        if (other->file == fault->file && other->line == fault->line &&
            other->column == fault->column && strcmp(other->sentence, fault->sentence) == 0)
            return true;
    }
    return false;
}

void faults_add(struct rules_faults *faults, const char *file, struct fault_place place,
                const char *format, ...)
{
    struct rules_fault fault = {.file = file, .line = place.line, .column = place.column};
    va_list args;
    va_start(args, format);
    vsnprintf(fault.sentence, sizeof(fault.sentence), format, args);
    va_end(args);
    if (faults->faults == NULL)
        faults->faults = calloc(RULES_FAULTS_MAX, sizeof(*faults->faults));
    if (faults->faults == NULL || faults->n_faults == RULES_FAULTS_MAX)
        faults->n_more++;
    else if (!is_told(faults, &fault))
        faults->faults[faults->n_faults++] = fault;
}

size_t faults_count(const struct rules_faults *faults)
{
    return faults->n_faults + faults->n_more;
}

static bool is_after(const struct rules_fault *a, const struct rules_fault *b)
{
    return a->line != b->line ? a->line > b->line : a->column > b->column;
}

/* By insertion: they are few, nearly in order, and equal places keep theirs. */
void faults_sort(struct rules_faults *faults, size_t first)
{
    for (size_t i = first + 1; i < faults->n_faults; i++) {
        struct rules_fault fault = faults->faults[i];
        size_t at = i;
        for (; at > first && is_after(&faults->faults[at - 1], &fault); at--)
            faults->faults[at] = faults->faults[at - 1];
        faults->faults[at] = fault;
    }
}

void rules_faults_free(struct rules_faults *faults)
{
    free(faults->faults);
    *faults = (struct rules_faults){0};
}

struct fault_text fault_text(struct span text)
{
    static const char cut[] = "...";
    struct fault_text shown = {""};
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
