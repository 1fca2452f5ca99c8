/* SPDX-License-Identifier: MIT */
/* COMMAND and error messages, from the table of commands. */
#include "proto/resp/resp_about.h"

#include "base/buf.h"

#define SHOWN_MAX 64 /* bytes of a word in an error */

struct flag_name {
    uint8_t flag;
    const char *name;
};

static const struct flag_name flag_names[] = {
    {RESP_FLAG_WRITE, "write"},         {RESP_FLAG_READONLY, "readonly"},
    {RESP_FLAG_ADMIN, "admin"},         {RESP_FLAG_FAST, "fast"},
    {RESP_FLAG_MOVABLE, "movablekeys"}, {RESP_FLAG_NO_AUTH, "no_auth"},
    {RESP_FLAG_BLOCKING, "blocking"},
};
#define FLAG_NAMES (sizeof(flag_names) / sizeof(flag_names[0]))

static int shown(struct span text)
{
    return text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX;
}

void resp_about_unknown(struct resp_writer *writer, struct span name)
{
    char message[STINT_ERROR_MAX];
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "unknown command '%.*s'", shown(name), (const char *)name.ptr);
    resp_write_error(writer, "ERR", message);
}

void resp_about_arity(struct resp_writer *writer, const struct resp_command *command)
{
    char message[STINT_ERROR_MAX * 2];
    struct buf buf = buf_of(message, sizeof(message));
    if (resp_command_id(command) == RESP_THROTTLE) {
        resp_write_error(writer, "Cell", RESP_CELL_USAGE);
        return;
    }
    buf_add(&buf, "wrong number of arguments for '%s' command: %s %s", command->name, command->name,
            command->syntax);
    resp_write_error(writer, "ERR", message);
}

void resp_about_subcommand(struct resp_writer *writer, const struct resp_command *command,
                           struct span word)
{
    char message[STINT_ERROR_MAX * 2];
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "unknown subcommand or wrong number of arguments for '%.*s': %s %s", shown(word),
            (const char *)word.ptr, command->name, command->syntax);
    resp_write_error(writer, "ERR", message);
}

static void write_flags(struct resp_writer *writer, uint8_t flags)
{
    resp_write_array(writer, (size_t)__builtin_popcount(flags));
    for (size_t i = 0; i < FLAG_NAMES; i++)
        if ((flags & flag_names[i].flag) != 0)
            resp_write_simple(writer, flag_names[i].name);
}

/* Ten elements, of which the last four (categories, tips, key specs, subcommands) are empty. */
static void write_info(struct resp_writer *writer, const struct resp_command *command)
{
    resp_write_array(writer, 10);
    resp_write_text(writer, command->name);
    resp_write_integer(writer, command->arity);
    write_flags(writer, command->flags);
    resp_write_integer(writer, command->first_key);
    resp_write_integer(writer, command->last_key);
    resp_write_integer(writer, command->key_step);
    for (int i = 0; i < 4; i++)
        resp_write_array(writer, 0);
}

/* A single argument that contains the whole syntax: redis-cli shows it as a hint. */
static void write_docs(struct resp_writer *writer, const struct resp_command *command)
{
    bool has_arguments = command->syntax[0] != '\0';
    resp_write_text(writer, command->name);
    resp_write_map(writer, 3 + has_arguments);
    resp_write_text(writer, "summary");
    resp_write_text(writer, command->summary);
    resp_write_text(writer, "since");
    resp_write_text(writer, STINT_VERSION);
    resp_write_text(writer, "group");
    resp_write_text(writer, "stint");
    if (!has_arguments)
        return;
    resp_write_text(writer, "arguments");
    resp_write_array(writer, 1);
    resp_write_map(writer, 2);
    resp_write_text(writer, "name");
    resp_write_text(writer, command->syntax);
    resp_write_text(writer, "type");
    resp_write_text(writer, "string");
}

static void about_all(struct resp_writer *writer)
{
    resp_write_array(writer, RESP_COMMANDS);
    for (size_t i = 0; i < RESP_COMMANDS; i++)
        write_info(writer, &resp_commands[i]);
}

static void about_info(struct resp_writer *writer, const struct span *names, size_t n_names)
{
    if (n_names == 0) {
        about_all(writer);
        return;
    }
    resp_write_array(writer, n_names);
    for (size_t i = 0; i < n_names; i++) {
        const struct resp_command *command = resp_command_find(names[i]);
        if (command != NULL)
            write_info(writer, command);
        else
            resp_write_null(writer);
    }
}

static void about_docs(struct resp_writer *writer, const struct span *names, size_t n_names)
{
    size_t n_known = 0;
    for (size_t i = 0; i < n_names; i++)
        n_known += resp_command_find(names[i]) != NULL;
    resp_write_map(writer, n_names == 0 ? RESP_COMMANDS : n_known);
    for (size_t i = 0; n_names == 0 && i < RESP_COMMANDS; i++)
        write_docs(writer, &resp_commands[i]);
    for (size_t i = 0; i < n_names; i++) {
        const struct resp_command *command = resp_command_find(names[i]);
        if (command != NULL)
            write_docs(writer, command);
    }
}

static void about_list(struct resp_writer *writer)
{
    resp_write_array(writer, RESP_COMMANDS);
    for (size_t i = 0; i < RESP_COMMANDS; i++)
        resp_write_text(writer, resp_commands[i].name);
}

static void keys_by_words(struct resp_writer *writer, const struct resp_command *command,
                          const struct span *args, size_t n_args, struct resp_lists *lists)
{
    struct request request;
    struct stint_error error;
    if (resp_request_read(command, args, n_args, lists, &request, &error) != STINT_OK) {
        resp_write_error(writer, "ERR", error.message);
        return;
    }
    resp_write_array(writer, request.n_items);
    for (size_t i = 0; i < request.n_items; i++)
        resp_write_bulk(writer, request.items[i].key);
}

static void about_keys(struct resp_writer *writer, const struct span *args, size_t n_args,
                       struct resp_lists *lists)
{
    const struct resp_command *command = resp_command_find(args[0]);
    if (command == NULL) {
        resp_about_unknown(writer, args[0]);
    } else if (!resp_command_takes(command, n_args)) {
        resp_about_arity(writer, command);
    } else if ((command->flags & RESP_FLAG_MOVABLE) != 0) {
        keys_by_words(writer, command, args, n_args, lists);
    } else if (command->first_key == 0) {
        resp_write_error(writer, "ERR", "The command has no key arguments");
    } else {
        size_t last = command->last_key < 0 ? n_args - 1 : (size_t)command->last_key;
        resp_write_array(writer, last);
        for (size_t i = 1; i <= last; i++)
            resp_write_bulk(writer, args[i]);
    }
}

void resp_about_commands(struct resp_writer *writer, const struct span *args, size_t n_args,
                         struct resp_lists *lists)
{
    if (n_args == 1)
        about_all(writer);
    else if (n_args == 2 && resp_word_is(args[1], "COUNT"))
        resp_write_integer(writer, RESP_COMMANDS);
    else if (n_args == 2 && resp_word_is(args[1], "LIST"))
        about_list(writer);
    else if (resp_word_is(args[1], "INFO"))
        about_info(writer, args + 2, n_args - 2);
    else if (resp_word_is(args[1], "DOCS"))
        about_docs(writer, args + 2, n_args - 2);
    else if (n_args > 2 && resp_word_is(args[1], "GETKEYS"))
        about_keys(writer, args + 2, n_args - 2, lists);
    else
        resp_about_subcommand(writer, &resp_commands[RESP_COMMAND], args[1]);
}
