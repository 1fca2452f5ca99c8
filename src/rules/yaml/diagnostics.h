/* SPDX-License-Identifier: MIT */
/* Collects errors and warnings in files of rules, each with its position. */
#ifndef STINT_RULES_YAML_DIAGNOSTICS_H
#define STINT_RULES_YAML_DIAGNOSTICS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include "rules/yaml/rules_load.h"

/* Position of an error: from 1; line 0 is the file as a whole. */
struct source_position {
    uint32_t line, column;
};

/* Where errors of a file go. */
struct source {
    const char *path;
    struct rules_diagnostics *diagnostics;
    /* Writes which part is being read, for values without a line. May be NULL */
    void (*describe)(const struct source *source, struct buf *text);
};

/* Adds an error. The same message at the same position, which aliases can cause, is added once. */
void diagnostics_add(const struct source *source, struct source_position position,
                     const char *format, ...) ERR_PRINTF(3, 4);

/* The same for a warning: the rules load nevertheless. */
void warnings_add(const struct source *source, struct source_position position, const char *format,
                  ...) ERR_PRINTF(3, 4);

/* True unless `memory` is NULL: then it adds the error that there is none. */
bool diagnostics_got(const struct source *source, const void *memory);

/* Errors so far, including those that were too many to keep. */
size_t diagnostics_count(const struct rules_diagnostics *diagnostics);

/* Sorts those of the last file, from `first` and `first_warning` on, in the order of its lines. */
void diagnostics_sort(struct rules_diagnostics *diagnostics, size_t first, size_t first_warning);

/* Text of a file for use in a message: short, and without control characters. */
struct quoted_text {
    char text[64];
};
struct quoted_text quoted_text(struct span text);

#endif
