/* SPDX-License-Identifier: MIT */
/*
 * The rules of a server: files and control planes, side by side. Each source keeps what it gave
 * last and was put in force, and a change of one is built with that of the others. So a file that
 * is broken on disk refuses no control plane, and the reverse.
 */
#ifndef STINT_CMD_SERVE_SERVE_RULES_H
#define STINT_CMD_SERVE_SERVE_RULES_H

#include "cmd/rules/rules_files.h"
#include "cmd/serve/serve_settings.h"
#include "net/log/log.h"
#include "net/upstream/control_planes.h"
#include "service/server_state.h"

struct serve_rules;

/*
 * Reads which control planes the settings name, and what they sent before a restart, from a file
 * beside the state. Settings and log are borrowed until serve_rules_close().
 */
int serve_rules_open(struct serve_rules **rules, const struct serve_settings *started,
                     struct log *log, struct stint_error *error);
void serve_rules_close(struct serve_rules *rules); /* NULL is allowed */

const struct control_plane_config *serve_rules_control_planes(const struct serve_rules *rules,
                                                              size_t *n);
/* Whether other settings name the same control planes: a change needs a restart. */
bool serve_rules_are_same(const struct serve_rules *rules, const struct serve_settings *settings);

/* What was read of the files, and the rules of all sources. All zero: none. */
struct loaded_rules {
    struct rules *rules; /* NULL: no source is given */
    struct rules_files files;
    bool merge_domains;
    uint8_t default_algorithm;
};

/*
 * Reads the files. STINT_E_SYNTAX, STINT_E_SYSTEM or STINT_E_MISMATCH (no limit anywhere) with the
 * first error: then there is nothing to free. Warnings are logged.
 */
int serve_rules_load(struct serve_rules *rules, const struct serve_settings *settings,
                     struct loaded_rules *loaded, struct stint_error *error);
/* They are in force: moves the files out. The rules stay the caller's. */
void serve_rules_use(struct serve_rules *rules, struct loaded_rules *loaded);
void loaded_rules_free(struct loaded_rules *loaded);

/* As server_options.offer. */
int serve_rules_offer(struct serve_rules *rules, struct server_state *server_state, size_t plane,
                      struct span response, struct stint_error *error);

#endif
