/* SPDX-License-Identifier: MIT */
/*
 * The table of commands: the meaning of a name, and its texts in COMMAND, COMMAND DOCS and errors.
 * docs/protocol.md describes the same for users.
 */
#ifndef STINT_PROTO_RESP_RESP_COMMAND_H
#define STINT_PROTO_RESP_RESP_COMMAND_H

#include "decide/request.h"

/* In the order of the table: by the length of their names. */
enum resp_command_id {
    RESP_DEL,
    RESP_TTL,
    RESP_AUTH,
    RESP_ECHO,
    RESP_INFO,
    RESP_PING,
    RESP_PTTL,
    RESP_QUIT,
    RESP_HELLO,
    RESP_RESET_CONNECTION,
    RESP_CLIENT,
    RESP_CONFIG,
    RESP_EXISTS,
    RESP_SELECT,
    RESP_UNLINK,
    RESP_COMMAND,
    RESP_TOP,
    RESP_BOOK,
    RESP_PEEK,
    RESP_POOL,
    RESP_TAKE,
    RESP_THROTTLE,
    RESP_BLOCK,
    RESP_CLOCK,
    RESP_COUNT,
    RESP_RENEW,
    RESP_RESET,
    RESP_CANCEL,
    RESP_CHARGE,
    RESP_REFUND,
    RESP_SETTLE,
    RESP_EXPLAIN,
    RESP_RESERVE,
    RESP_SETQUOTA,
    RESP_TAKEUPTO,
    RESP_COMMANDS,
};

enum resp_command_flag {
    RESP_FLAG_WRITE = 1,
    RESP_FLAG_READONLY = 2,
    RESP_FLAG_ADMIN = 4,
    RESP_FLAG_FAST = 8,
    RESP_FLAG_MOVABLE = 16, /* which arguments are keys depends on the words before them */
    RESP_FLAG_NO_AUTH = 32, /* also allowed before authentication */
    RESP_FLAG_BLOCKING = 64,
};

struct resp_command {
    const char *name;   /* in small letters */
    const char *syntax; /* after the name */
    const char *summary;
    uint8_t name_len;
    int8_t arity; /* arguments including the name; -n: at least n */
    uint8_t flags;
    uint8_t verb; /* enum request_verb; REQUEST_VERBS: the command is no request with a verb */
    int8_t first_key, last_key, key_step; /* 0: none, or RESP_FLAG_MOVABLE; last -1: to the end */
};

extern const struct resp_command resp_commands[RESP_COMMANDS];

/* By name, in any case; NULL: there is none. */
const struct resp_command *resp_command_find(struct span name);
static inline enum resp_command_id resp_command_id(const struct resp_command *command)
{
    return (enum resp_command_id)(command - resp_commands);
}

bool resp_command_takes(const struct resp_command *command, size_t n_arguments);

/* Whether `text` is `word`, in any case; `word` is in capitals or small letters. */
bool resp_word_is(struct span text, const char *word);

#endif
