/* SPDX-License-Identifier: MIT */
/* Commands by name. Each has a number in resp_command.h, and its answer in frontend/resp/. */
#include "proto/resp/resp_command.h"

#define WRITE RESP_FLAG_WRITE
#define READONLY RESP_FLAG_READONLY
#define ADMIN RESP_FLAG_ADMIN
#define FAST RESP_FLAG_FAST
#define MOVABLE RESP_FLAG_MOVABLE
#define NO_AUTH RESP_FLAG_NO_AUTH
#define BLOCKING RESP_FLAG_BLOCKING

#define NO_KEYS 0, 0, 0
#define ONE_KEY 1, 1, 1
#define ALL_KEYS 1, -1, 1

#define TARGET                                                                                     \
    "<QUOTA spec key [COST n] ... | DOMAIN domain DESCRIPTOR n key value ... [COST n] ...>"

/* clang-format off */
#define COMMAND(name, arity, flags, keys, syntax, summary)                                         \
    {name, syntax, summary, sizeof(name) - 1, arity, flags, REQUEST_VERBS, keys}
#define VERB(verb, name, arity, flags, keys, syntax, summary)                                      \
    {name, syntax, summary, sizeof(name) - 1, arity, flags, REQUEST_##verb, keys}

const struct resp_command resp_commands[RESP_COMMANDS] = {
    [RESP_DEL] = COMMAND("del", -2, WRITE, ALL_KEYS, "key [key ...]",
        "Forgets keys of CL.THROTTLE; how many had a state"),
    [RESP_TTL] = COMMAND("ttl", 2, READONLY | FAST, ONE_KEY, "key",
        "Seconds until a key of CL.THROTTLE has expired; -2: it has"),
    [RESP_AUTH] = COMMAND("auth", -2, NO_AUTH | FAST, NO_KEYS, "[user] secret",
        "Authenticates the connection by a token"),
    [RESP_ECHO] = COMMAND("echo", 2, FAST, NO_KEYS, "message", "Sends the message back"),
    [RESP_INFO] = COMMAND("info", -1, READONLY, NO_KEYS, "[section ...]", "Metrics of the server"),
    [RESP_PING] = COMMAND("ping", -1, FAST, NO_KEYS, "[message]", "PONG, or the message"),
    [RESP_PTTL] = COMMAND("pttl", 2, READONLY | FAST, ONE_KEY, "key",
        "Milliseconds until a key of CL.THROTTLE has expired; -2: it has"),
    [RESP_QUIT] = COMMAND("quit", -1, NO_AUTH | FAST, NO_KEYS, "", "Closes the connection"),
    [RESP_HELLO] = COMMAND("hello", -1, NO_AUTH | FAST, NO_KEYS,
        "[2 | 3 [AUTH user secret] [SETNAME name]]", "Server information; selects RESP2 or RESP3"),
    [RESP_RESET_CONNECTION] = COMMAND("reset", 1, NO_AUTH | FAST, NO_KEYS, "",
        "Resets the connection"),
    [RESP_CLIENT] = COMMAND("client", -2, FAST, NO_KEYS,
        "<ID | INFO | GETNAME | SETNAME name | SETINFO attribute text | NO-EVICT | NO-TOUCH>",
        "Information on this connection"),
    [RESP_CONFIG] = COMMAND("config", -2, READONLY, NO_KEYS, "GET name [name ...]",
        "Settings that clients read"),
    [RESP_EXISTS] = COMMAND("exists", -2, READONLY | FAST, ALL_KEYS, "key [key ...]",
        "How many of the keys of CL.THROTTLE have a state"),
    [RESP_SELECT] = COMMAND("select", 2, FAST, NO_KEYS, "0", "There is one database, 0"),
    [RESP_UNLINK] = COMMAND("unlink", -2, WRITE | FAST, ALL_KEYS, "key [key ...]",
        "The same as DEL"),
    [RESP_COMMAND] = COMMAND("command", -1, READONLY, NO_KEYS,
        "[COUNT | LIST | INFO [name ...] | DOCS [name ...] | GETKEYS command ...]",
        "This table of commands"),
    [RESP_TOP] = COMMAND("stint.top", -1, READONLY, NO_KEYS, "[n] [ASKED | DENIED]",
        "Keys requested or denied most"),
    [RESP_BOOK] = VERB(BOOK, "stint.book", -6, WRITE | MOVABLE, NO_KEYS,
        TARGET " MAXWAIT ms [ID id]",
        "Books units in the future and returns their start"),
    [RESP_PEEK] = VERB(PEEK, "stint.peek", -4, READONLY | MOVABLE, NO_KEYS, TARGET,
        "The reply of TAKE; changes nothing"),
    [RESP_POOL] = COMMAND("stint.pool", -2, WRITE, NO_KEYS,
        "<NEXT pool [COST n] [PROBE] [WAIT ms] [ID id] | "
        "GIVEBACK pool key [COST n] [AT stamp] [ID id] | "
        "REPORT pool key <OK | COOL ms | BACKOFF | OUT> | STATUS pool | LIST | "
        "ADD pool key QUOTA spec [QUOTA spec ...] [WEIGHT n] | REMOVE pool key>",
        "Key pools: which key may be used now"),
    [RESP_TAKE] = VERB(TAKE, "stint.take", -4, WRITE | MOVABLE | BLOCKING, NO_KEYS,
        TARGET " [WAIT ms] [ID id]", "Takes the whole cost or nothing"),
    [RESP_THROTTLE] = VERB(THROTTLE, "cl.throttle", -5, WRITE | FAST, ONE_KEY,
        "key max_burst count_per_period period [quantity]",
        "Takes from a token bucket; limited, limit, remaining, retry_after, reset_after"),
    [RESP_BLOCK] = VERB(BLOCK, "stint.block", -6, WRITE | ADMIN | MOVABLE, NO_KEYS,
        TARGET " FOR ms",
        "Denies the keys for some time, whatever their state"),
    [RESP_CLOCK] = COMMAND("stint.clock", -1, ADMIN | FAST, NO_KEYS, "[SET ns | ADVANCE time]",
        "The time of decisions; moves a virtual clock forward"),
    [RESP_COUNT] = VERB(COUNT, "stint.count", -2, WRITE | FAST, ONE_KEY,
        "key [RESET | amount [expiry]]",
        "Adds to a counter that expires, reads it or forgets it"),
    [RESP_RENEW] = VERB(RENEW, "stint.renew", 2, WRITE | FAST, NO_KEYS, "ticket",
        "Extends a lease"),
    [RESP_RESET] = VERB(RESET, "stint.reset", -4, WRITE | ADMIN | MOVABLE, NO_KEYS, TARGET,
        "Forgets the keys' states and lifts a block"),
    [RESP_CANCEL] = VERB(CANCEL, "stint.cancel", -2, WRITE | FAST, NO_KEYS, "ticket [ID id]",
        "Returns all units of a ticket"),
    [RESP_CHARGE] = VERB(CHARGE, "stint.charge", -4, WRITE | MOVABLE, NO_KEYS, TARGET " [ID id]",
        "Takes units without a check"),
    [RESP_REFUND] = VERB(REFUND, "stint.refund", -4, WRITE | MOVABLE, NO_KEYS,
        TARGET " [AT stamp] [ID id]", "Gives back units that were not used"),
    [RESP_SETTLE] = VERB(SETTLE, "stint.settle", -3, WRITE | FAST, NO_KEYS, "ticket actual [ID id]",
        "Corrects a reservation to what was used"),
    [RESP_EXPLAIN] = VERB(EXPLAIN, "stint.explain", -4, READONLY | MOVABLE, NO_KEYS, TARGET,
        "Which rules match and how each stands; charges nothing"),
    [RESP_RESERVE] = VERB(RESERVE, "stint.reserve", -6, WRITE | MOVABLE | BLOCKING, NO_KEYS,
        TARGET " LIFETIME ms [ON_EXPIRY keep|release|n] [WAIT ms] [ID id]",
        "Charges an estimate and returns a ticket"),
    [RESP_SETQUOTA] = VERB(SET_QUOTA, "stint.setquota", -5, WRITE | ADMIN | MOVABLE, NO_KEYS,
        TARGET " <TO spec | DEFAULT>", "Gives the keys another quota from now on"),
    [RESP_TAKEUPTO] = VERB(TAKE_UPTO, "stint.takeupto", -4, WRITE | MOVABLE | BLOCKING, NO_KEYS,
        TARGET " [WAIT ms] [ID id]", "Takes as much of the cost as is free"),
};
/* clang-format on */

/* The first command with a name of this length; 0 for RESP_DEL, and where there is none. */
static const uint8_t first_of[] = {
    [4] = RESP_AUTH,     [5] = RESP_HELLO,     [6] = RESP_CLIENT,    [7] = RESP_COMMAND,
    [9] = RESP_TOP,      [10] = RESP_BOOK,     [11] = RESP_THROTTLE, [12] = RESP_CANCEL,
    [13] = RESP_EXPLAIN, [14] = RESP_SETQUOTA,
};

static inline uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

/*
 * Compares eight bytes of a name at once. Where the table has a letter (its bytes with 0x40; a
 * point is below), 0x20 is set in the other's byte: capital and small letter are then the same, and
 * no other byte is.
 */
static inline bool is_same8(const uint8_t *bytes, const char *name)
{
    uint64_t other, ours;
    memcpy(&other, bytes, sizeof(other));
    memcpy(&ours, name, sizeof(ours));
    return (other | (ours & UINT64_C(0x4040404040404040)) >> 1) == ours;
}

static inline bool is_named(const struct resp_command *command, struct span name)
{
    size_t at = 0;
    if (name.len >= 8) /* the first and the last eight, which overlap or meet */
        return is_same8(name.ptr, command->name) &&
               is_same8(name.ptr + name.len - 8, command->name + name.len - 8);
    while (at < name.len && lower(name.ptr[at]) == (uint8_t)command->name[at])
        at++;
    return at == name.len;
}

const struct resp_command *resp_command_find(struct span name)
{
    if (name.len >= sizeof(first_of))
        return NULL;
    for (size_t i = first_of[name.len]; i < RESP_COMMANDS; i++) {
        const struct resp_command *command = &resp_commands[i];
        if (command->name_len != name.len)
            return NULL;
        if (is_named(command, name))
            return command;
    }
    return NULL;
}

bool resp_command_takes(const struct resp_command *command, size_t n_arguments)
{
    if (command->arity >= 0)
        return n_arguments == (size_t)command->arity;
    return n_arguments >= (size_t)-command->arity;
}

bool resp_word_is(struct span text, const char *word)
{
    size_t at = 0;
    while (at < text.len && word[at] != '\0' && lower(text.ptr[at]) == lower((uint8_t)word[at]))
        at++;
    return at == text.len && word[at] == '\0';
}
