/* SPDX-License-Identifier: MIT */
/* The subcommands of the program, one file each, and the exit codes that all of them share. */
#ifndef STINT_CMD_LIB_CMD_H
#define STINT_CMD_LIB_CMD_H

#include <stddef.h>

enum cmd_exit {
    CMD_DONE = 0,
    CMD_BAD_INPUT = 1, /* a file, a line or a stream that cannot be used or written */
    CMD_BAD_USAGE = 2, /* options or a SPEC that cannot be meant */
    CMD_DENIED = 3,    /* the answer is no, or not now */
};

/* A command, or a group of them: `stint sim run`, `stint rules check`. */
struct cmd {
    const char *name;
    const char *summary; /* in lists, and as the title of its man page */
    /* argv[0] is "stint NAME". Returns an enum cmd_exit. Commands with options call args_parse().
     */
    int (*run)(int argc, char **argv);
    const struct cmd *commands; /* those of a group, which has no `run`; ends with a name of NULL */
    const char *bad_input;      /* of a group: the meaning of exit code 1 */
};

/* Of take, peek and reset: argv[0] says which. */
int ask_main(int argc, char **argv);
int explain_main(int argc, char **argv);
int pace_main(int argc, char **argv);
int plan_main(int argc, char **argv);
int replay_main(int argc, char **argv);
int rules_check_main(int argc, char **argv);
int rules_explain_main(int argc, char **argv);
int rules_show_main(int argc, char **argv);
int serve_main(int argc, char **argv);
int sim_worst_main(int argc, char **argv);
int table_main(int argc, char **argv);
int token_main(int argc, char **argv);
int top_main(int argc, char **argv);
int try_main(int argc, char **argv);

extern const struct cmd pool_commands[];
extern const struct cmd rls_commands[];
extern const struct cmd rules_commands[];
extern const struct cmd sim_commands[];
extern const struct cmd store_commands[];

/* The table of all commands; ends with a name of NULL. */
extern const struct cmd cmd_all[];

/* For `stint version`: main() sets it, so that a commit changes one object. "-": none is known. */
extern const char *cmd_commit;
extern const char cmd_commit_built[]; /* of the program alone */

/* The index of the command whose name is the last word of argv[0]. */
size_t cmd_index(const struct cmd *commands, const char *argv0);
/* NULL if there is no command of that name. */
const struct cmd *cmd_find(const struct cmd *commands, const char *name);
/*
 * Puts "stint NAME" into argv[0] and runs the command; of a group, the subcommand that argv[1]
 * names.
 */
int cmd_run(const struct cmd *cmd, int argc, char **argv);
/* Reports an unknown command with the nearest ones. `group`: the name of their group, or NULL. */
int cmd_unknown(const struct cmd *commands, const char *group, const char *name);

#endif
