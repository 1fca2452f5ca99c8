/* SPDX-License-Identifier: MIT */
/* Where the states of a limit are kept, out of its keys, and what they are called there. */
#ifndef STINT_RULES_YAML_READ_STORE_H
#define STINT_RULES_YAML_READ_STORE_H

#include "base/siphash.h"
#include "rules/yaml/read_limit.h"
#include "rules/yaml/rules_load.h"

/* What the keys of one rate_limit are read with. */
struct store_reading {
    const struct source *source;
    const struct rules_load_options *options;
    const char *const *kept_stores; /* options->stores, kept with the rules */
};

/*
 * Fills rule->store but for its tag and names, once the quota is read. False where memory does not
 * suffice, which is not told.
 */
bool read_store(const struct store_reading *reading, const struct fields *fields,
                struct arena *texts, struct rule *rule);

/* `store_tag` of a file; false where it has none. */
bool read_store_tag(const struct source *source, const struct fields *fields, uint8_t *tag);

/*
 * Writes RULE of a key's name piece by piece: DOMAIN/KEY=VALUE/KEY@NAME, and @shadow behind that of
 * a candidate. `/`, `=` and `@` in a text stand as %XX, as does whatever a key's name cannot have:
 * so no two rules have one name. Where it would be longer than RULE_STORE_NAME_MAX, its end gives
 * way to a hash of the whole.
 */
struct store_name {
    char text[RULE_STORE_NAME_MAX + 4]; /* one character more than fits, which may be %XX */
    size_t len;
};
void store_name_add(struct store_name *name, const char *separator, struct span text);
/* Ends it. The hash is of all that was added, by whatever way. */
void store_name_end(struct store_name *name, struct hash128 hash);

#endif
