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

enum compat_kind {
    COMPAT_TEXT,     /* the setting as it is */
    COMPAT_SWITCH,   /* true or false as Go reads them */
    COMPAT_DURATION, /* a time as Go reads it: 24h, 1h30m */
    COMPAT_LEVEL,    /* of the log */
    COMPAT_FORMAT,   /* of the log */
    COMPAT_RATIO,    /* 0.8, as thousandths */
    COMPAT_JOINED,   /* makes a setting together with others: serve_compat.c */
    COMPAT_NOT,      /* true is refused, with the row's message */
    COMPAT_IGNORED,
    COMPAT_REFUSED, /* ignoring it would silently change what was requested */
};

struct compat_variable {
    const char *name;
    enum compat_kind kind;
    const char *setting; /* the setting that it sets; NULL: none */
    const char *value;   /* their default if it is not set; NULL: that of the setting */
    const char *message; /* why it is ignored or refused; else a remark, or "" */
};

extern const struct compat_variable compat_variables[];
extern const size_t n_compat_variables;

/* true or false as Go reads them. STINT_E_SYNTAX with the variable's name. */
int compat_switch(const char *name, const char *text, bool *value, struct stint_error *error);

/*
 * The store of REDIS_… or MEMCACHE_…, as a value of the setting. "" if there is none, and NULL with
 * an error. To be freed; *shown is the variable to name in an error message.
 */
char *compat_store(const char *(*text_of)(const char *name), const char **shown,
                   struct stint_error *error);

/*
 * Sets each setting that has no value yet, after all others were read; `name` is that of the other
 * program, "envoyproxy". STINT_E_SYNTAX with a message that begins with the variable's name.
 */
int compat_apply(struct settings *settings, const char *name, struct stint_error *error);

/* Logs which variables are set and ignored, and why; and where the server does not listen. */
void compat_tell(const struct serve_settings *settings, struct log *log);

#endif
