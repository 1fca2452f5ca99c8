/* SPDX-License-Identifier: MIT */
/* `metadata`: a mapping by the author of the file, returned with each decision. */
#ifndef STINT_RULES_YAML_READ_METADATA_H
#define STINT_RULES_YAML_READ_METADATA_H

#include "rules/yaml/schema.h"

#define METADATA_MAX 4096     /* bytes as JSON */
#define METADATA_DEPTH_MAX 16 /* depth of nested mappings and lists */
#define METADATA_KEYS_MAX 256 /* of one mapping */

/*
 * The mapping as compact JSON, kept in `texts`: keys in the order of the file, texts as UTF-8. An
 * empty span where there is none, or an empty one. Adds errors to the diagnostics.
 */
struct span read_metadata(const struct source *source, const struct fields *entry,
                          struct arena *texts);

#endif
