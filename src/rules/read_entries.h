/* SPDX-License-Identifier: MIT */
/* Puts the entries of one file, and the limits in them, into a set of rules. */
#ifndef STINT_RULES_READ_ENTRIES_H
#define STINT_RULES_READ_ENTRIES_H

#include "rules/fields.h"
#include "rules/rules_make.h"

/* One file while it is read. */
struct reading {
    struct source source;
    struct rules *rules;
    const struct rules_file *files;
    uint8_t default_algorithm;
    uint32_t file;      /* its number among `files` */
    const char *path;   /* kept with the rules */
    const char *domain; /* kept with the rules */
};

/* The entries below a domain; NULL is none. Whatever is wrong is a fault. */
void read_entries(struct reading *reading, uint32_t domain, const struct yaml_value *descriptors);

void tell_no_memory(const struct source *source);

#endif
