/* SPDX-License-Identifier: MIT */
/*
 * `stint serve --compat envoyproxy`: the environment of envoyproxy/ratelimit as settings of ours.
 *
 * Each of its variables is a row of one table, which says what it means here, or why it means
 * nothing; docs/migrate-from-envoyproxy-ratelimit.md has the same rows. What is set by --config,
 * by STINT_… or by an option is stronger than all of them.
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
    COMPAT_NOT,      /* true is refused, for what the message says */
    COMPAT_IGNORED,
    COMPAT_REFUSED, /* to ignore it would be to do something else than was asked */
};

struct compat_variable {
    const char *name;
    enum compat_kind kind;
    const char *setting; /* which it gives a value; NULL: none */
    const char *value;   /* theirs where it is not set; NULL: ours */
    const char *message; /* why it is ignored or refused; else what is to be known of it, or "" */
};

extern const struct compat_variable compat_variables[];
extern const size_t n_compat_variables;

/* true or false as Go reads them. STINT_E_SYNTAX with the variable's name. */
int compat_switch(const char *name, const char *text, bool *value, struct stint_error *error);

/*
 * The store out of their REDIS_… or MEMCACHE_…, as a setting has it. "" where there is none, and
 * NULL with a fault. To be freed; *shown is the variable that a fault of the text is told of.
 */
char *compat_store(const char *(*text_of)(const char *name), const char **shown,
                   struct stint_error *error);

/*
 * Gives a value to each setting that nobody has set, after all others were read; `name` is that of
 * the other program, "envoyproxy". STINT_E_SYNTAX with a message that begins with the variable's
 * name.
 */
int compat_apply(struct settings *settings, const char *name, struct stint_error *error);

/* Which variables are set and ignored, and why; and where the server does not listen. */
void compat_tell(const struct serve_settings *settings, struct log *log);

#endif
