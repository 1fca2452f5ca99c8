/* SPDX-License-Identifier: MIT */
/* The subcommands of the program, one file each, and the exit codes that all of them share. */
#ifndef STINT_CMD_LIB_CMD_H
#define STINT_CMD_LIB_CMD_H

enum cmd_exit {
    CMD_DONE = 0,
    CMD_BAD_INPUT = 1, /* a file, a line or a stream that cannot be used or written */
    CMD_BAD_USAGE = 2, /* options or a SPEC that cannot be meant */
    CMD_DENIED = 3,    /* the answer is no, or not now */
};

struct cmd {
    const char *name;
    const char *summary;
    /* argv[0] is "stint NAME". Returns an enum cmd_exit. */
    int (*run)(int argc, char **argv);
};

int explain_main(int argc, char **argv);
int pace_main(int argc, char **argv);
int peek_main(int argc, char **argv);
int plan_main(int argc, char **argv);
int pool_main(int argc, char **argv);
int replay_main(int argc, char **argv);
int rls_main(int argc, char **argv);
int rules_explain_main(int argc, char **argv);
int rules_main(int argc, char **argv);
int reset_main(int argc, char **argv);
int serve_main(int argc, char **argv);
int sim_main(int argc, char **argv);
int sim_worst_main(int argc, char **argv);
int store_main(int argc, char **argv);
int table_main(int argc, char **argv);
int take_main(int argc, char **argv);
int token_main(int argc, char **argv);
int top_main(int argc, char **argv);
int try_main(int argc, char **argv);

/* NULL if there is no command of that name. */
const struct cmd *cmd_find(const char *name);
/* Puts "stint NAME" into argv[0] and runs the command. */
int cmd_run(const struct cmd *cmd, int argc, char **argv);
/* Says so, and which command is the nearest. */
int cmd_unknown(const char *name);

/* ---- Commands with a table of subcommands: `stint sim run`, `stint rules check` ---- */

struct cmd_group {
    const char *name;           /* "sim" */
    const char *summary;        /* "what a quota does, on virtual time" */
    const char *bad_input;      /* the meaning of exit code 1 */
    const struct cmd *commands; /* ends with a name of NULL */
};

/* Lists the subcommands, or runs the one that argv[1] names. Returns an enum cmd_exit. */
int cmd_group_run(const struct cmd_group *group, int argc, char **argv);

#endif
