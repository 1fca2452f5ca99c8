/* SPDX-License-Identifier: MIT */
/*
 * ratelimit.config.ratelimit.v3.RateLimitConfig, the rules of one domain as a control plane sends
 * them: the same tree that a file of YAML gives, for rules_load().
 */
#ifndef STINT_XDS_RATE_LIMIT_CONFIG_H
#define STINT_XDS_RATE_LIMIT_CONFIG_H

#include "rules/yaml/rules_load.h"

#define RATE_LIMIT_CONFIG_TYPE "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

/*
 * rules_file.read: `text` is the message. NULL with an error for bytes that are no such message,
 * for text that is not UTF-8, and for a message that is nested too deeply or has too many values.
 */
const struct yaml_value *rate_limit_config_read(struct arena *arena, const struct rules_file *file,
                                                struct rules_diagnostics *diagnostics);

/* Its name, which only messages need; empty if it has none or is malformed. */
struct span rate_limit_config_name(struct span message);

#endif
