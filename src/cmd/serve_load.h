/* SPDX-License-Identifier: MIT */
/* Reads rules and tokens for a server: before it begins, and anew while it serves. */
#ifndef STINT_CMD_SERVE_LOAD_H
#define STINT_CMD_SERVE_LOAD_H

#include "cmd/serve_settings.h"
#include "conn/access.h"
#include "conn/service.h"

/* What the files say, each with a reference; NULL where no file is named. */
struct serve_loaded {
    struct rules *rules;
    struct access *access;
};

/* STINT_E_SYNTAX or STINT_E_SYSTEM with the first fault: then there is nothing to free. */
int serve_load(const struct serve_settings *settings, struct serve_loaded *loaded,
               struct stint_error *error);
/* The same of the tokens alone. */
int serve_load_tokens(const struct serve_settings *settings, struct serve_loaded *loaded,
                      struct stint_error *error);

/* Where what is read anew is put. */
struct serve_reload {
    const struct serve_settings *settings;
    struct hub *hub;
    struct access_now *access;
};

/* Puts all of it in force, or nothing. `arg` is a struct serve_reload. Any thread. */
int serve_reload(void *arg, struct stint_error *error);

#endif
