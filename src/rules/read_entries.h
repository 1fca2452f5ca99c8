/* SPDX-License-Identifier: MIT */
/* Puts the entries of one file, and the limits in them, into a set of rules. */
#ifndef STINT_RULES_READ_ENTRIES_H
#define STINT_RULES_READ_ENTRIES_H

#include "rules/fields.h"
#include "rules/rules_make.h"

/* Where a place stands in the files, for faults that speak of two entries. */
struct origin {
    uint32_t file, line;
};

/* One file while it is read. */
struct reading {
    struct source source;
    struct rules *rules;
    const struct rules_file *files;
    uint8_t default_algorithm;
    uint32_t file;          /* its number among `files` */
    const char *path;       /* kept with the rules */
    const char *domain;     /* kept with the rules */
    struct origin *origins; /* by the number of the place */
    uint32_t n_origins;
};

/* Keeps where a place stands; false where memory does not suffice. */
bool note_origin(struct reading *reading, uint32_t place, uint32_t line);

/* The entries below a domain; NULL is none. Whatever is wrong is a fault. */
void read_entries(struct reading *reading, uint32_t domain, const struct yaml_value *descriptors);

void tell_no_memory(const struct source *source);

#endif
