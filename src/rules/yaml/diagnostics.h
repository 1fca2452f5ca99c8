/* SPDX-License-Identifier: MIT */
/* Collects what is wrong with files of rules, each fault with its place. */
#ifndef STINT_RULES_YAML_DIAGNOSTICS_H
#define STINT_RULES_YAML_DIAGNOSTICS_H

#include "base/err.h"
#include "base/span.h"
#include "rules/yaml/rules_load.h"

/* Where a fault is: from 1; line 0 is the file as a whole. */
struct fault_place {
    uint32_t line, column;
};

/* Adds a fault; the same message at the same place, as aliases bring it about, is told once. */
void diagnostics_add(struct rules_diagnostics *diagnostics, const char *file,
                     struct fault_place place, const char *format, ...) ERR_PRINTF(4, 5);

/* The same, of what is loaded nevertheless. */
void warnings_add(struct rules_diagnostics *diagnostics, const char *file, struct fault_place place,
                  const char *format, ...) ERR_PRINTF(4, 5);

/* Faults told so far, also those that were too many to keep. */
size_t diagnostics_count(const struct rules_diagnostics *diagnostics);

/* Puts those of the last file, from `first` and `first_warning` on, in the order of its lines. */
void diagnostics_sort(struct rules_diagnostics *diagnostics, size_t first, size_t first_warning);

/* Text out of a file as a message may repeat it: short, and without control characters. */
struct fault_text {
    char text[64];
};
struct fault_text fault_text(struct span text);

#endif
