/* SPDX-License-Identifier: MIT */
/* Puts the entries of one file, and the limits in them, into a set of rules. */
#ifndef STINT_RULES_YAML_READ_ENTRIES_H
#define STINT_RULES_YAML_READ_ENTRIES_H

#include "rules/rules_make.h"
#include "rules/yaml/schema.h"

/* The position of a node in the files, for errors that name two entries. */
struct origin {
    uint32_t file, line;
};

/* The store_tag in the files of a domain. */
struct domain_tag {
    uint8_t tag; /* enum rule_tag */
    bool is_said;
    struct origin origin;
};

/* One file while it is read. */
struct reading {
    struct source source;
    struct rules *rules;
    const struct rules_file *files;
    const struct rules_load_options *options;
    const char *stores[RULES_STORES_MAX]; /* their names, kept with the rules */
    struct domain_tag *tags;              /* by the number of the domain */
    size_t n_tags;
    uint32_t file;          /* its number among `files` */
    const char *path;       /* kept with the rules */
    const char *domain;     /* kept with the rules */
    struct origin *origins; /* by the number of the node */
    uint32_t n_origins;
};

/* Keeps the position of a node; false: no memory. */
bool note_origin(struct reading *reading, uint32_t place, uint32_t line);

/* The entries below a domain; NULL: none. Adds errors to the diagnostics. */
void read_entries(struct reading *reading, uint32_t domain, const struct yaml_value *descriptors);

void tell_no_memory(const struct source *source);

#endif
