/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that no rule limits, by name, so that the log reports each once: mistyped domains and
 * keys allow everything, and nothing else shows it. Keeps the first UNMATCHED_MAX names of each
 * kind, until other rules are in force, so that no client can fill a log, or memory, with names.
 * Values are not kept. Any thread.
 */
#ifndef STINT_SERVICE_UNMATCHED_H
#define STINT_SERVICE_UNMATCHED_H

#include "rules/rules.h"

#define UNMATCHED_MAX 16       /* of each kind */
#define UNMATCHED_TEXT_MAX 128 /* bytes of a name */

enum unmatched_kind { UNMATCHED_DOMAIN, UNMATCHED_DESCRIPTOR, UNMATCHED_KINDS };

struct unmatched_name {
    uint64_t id;
    uint8_t kind;
    bool is_last;                        /* further ones of the kind are not reported */
    char domain[UNMATCHED_TEXT_MAX + 1]; /* bytes of a request, as they came */
    char keys[UNMATCHED_TEXT_MAX + 1];   /* "tenant.path"; of UNMATCHED_DESCRIPTOR */
};

struct unmatched;

struct unmatched *unmatched_new(void);            /* NULL: no memory */
void unmatched_free(struct unmatched *unmatched); /* NULL is fine */

/* A descriptor matched no rule; costs a few comparisons where its name is recorded already. */
void unmatched_note(struct unmatched *unmatched, enum unmatched_kind kind, struct span domain,
                    const struct descriptor *descriptor);
/* The next name that was not reported yet; false: there is none. For rules of `generation`. */
bool unmatched_next(struct unmatched *unmatched, uint64_t generation, struct unmatched_name *name);

#endif
