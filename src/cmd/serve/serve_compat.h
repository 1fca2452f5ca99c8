/* SPDX-License-Identifier: MIT */
/*
 * `stint serve --compat envoyproxy`: the environment of envoyproxy/ratelimit as settings.
 *
 * Each of its variables is a row of one table, with its meaning here, or the reason why it has
 * none; docs/migrate-from-envoyproxy-ratelimit.md has the same rows. --config, STINT_… variables
 * and options override all of them.
 */
#ifndef STINT_CMD_SERVE_SERVE_COMPAT_H
#define STINT_CMD_SERVE_SERVE_COMPAT_H

#include "cmd/serve/serve_settings.h"
#include "net/log/log.h"

/*
 * Sets each setting that has no value yet, after all others were read; `name` is that of the other
 * program, "envoyproxy". STINT_E_SYNTAX with a message that begins with the variable's name.
 */
int compat_apply(struct settings *settings, const char *name, struct stint_error *error);

/* Logs which variables are set and ignored, and why; and where the server does not listen. */
void compat_tell(const struct serve_settings *settings, struct log *log);

#endif
