/* SPDX-License-Identifier: MIT */
/* Decisions as integers and maps, and the table of commands. */
#include "proto/resp/resp_reply.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"
#include "proto/ticket_text.h"

#include <assert.h>
#include <stdio.h>

/* ---- The types of RESP ----------------------------------------------------------------------- */

#define HEAD_MAX (1 + RESP_DIGITS_MAX + 2 + 1) /* type, digits, CR LF, a sign */
#define DOUBLE_TEXT_SIZE 512                   /* of any double with three decimals */

static inline uint8_t *put_end(uint8_t *at)
{
    at[0] = '\r';
    at[1] = '\n';
    return at + 2;
}

static void write_head(struct resp_writer *writer, char type, uint64_t number)
{
    uint8_t *space = resp_writer_space(writer, HEAD_MAX);
    if (space == NULL)
        return;
    space[0] = (uint8_t)type;
    uint8_t *end = put_end(resp_number_write(space + 1, number));
    writer->queue.end += (size_t)(end - space);
}

void resp_write_array(struct resp_writer *writer, size_t n)
{
    write_head(writer, '*', n);
}

void resp_write_map(struct resp_writer *writer, size_t n)
{
    if (writer->version >= 3)
        write_head(writer, '%', n);
    else
        write_head(writer, '*', 2 * n);
}

void resp_write_integer(struct resp_writer *writer, int64_t number)
{
    uint8_t *space = resp_writer_space(writer, HEAD_MAX);
    if (space == NULL)
        return;
    uint8_t *at = space;
    *at++ = ':';
    if (number < 0)
        *at++ = '-';
    at = resp_number_write(at, number < 0 ? -(uint64_t)number : (uint64_t)number);
    writer->queue.end += (size_t)(put_end(at) - space);
}

static void write_string(struct resp_writer *writer, char type, struct span prefix,
                         struct span bytes)
{
    uint8_t *space = resp_writer_space(writer, HEAD_MAX + prefix.len + bytes.len + 2);
    if (space == NULL)
        return;
    space[0] = (uint8_t)type;
    uint8_t *at = put_end(resp_number_write(space + 1, prefix.len + bytes.len));
    memcpy(at, prefix.ptr, prefix.len);
    at += prefix.len;
    if (bytes.len > 0)
        memcpy(at, bytes.ptr, bytes.len);
    at = put_end(at + bytes.len);
    writer->queue.end += (size_t)(at - space);
}

void resp_write_bulk(struct resp_writer *writer, struct span bytes)
{
    write_string(writer, '$', span_of("", 0), bytes);
}

void resp_write_text(struct resp_writer *writer, const char *text)
{
    resp_write_bulk(writer, span_of_text(text));
}

void resp_write_verbatim(struct resp_writer *writer, struct span text)
{
    if (writer->version >= 3)
        write_string(writer, '=', span_of("txt:", 4), text);
    else
        resp_write_bulk(writer, text);
}

void resp_write_digits(struct resp_writer *writer, uint64_t number)
{
    uint8_t digits[RESP_DIGITS_MAX];
    uint8_t *end = resp_number_write(digits, number);
    resp_write_bulk(writer, span_of(digits, (size_t)(end - digits)));
}

static void write_raw(struct resp_writer *writer, const char *type, const char *text)
{
    size_t type_len = strlen(type), len = strlen(text);
    uint8_t *space = resp_writer_space(writer, type_len + len + 2);
    if (space == NULL)
        return;
    memcpy(space, type, type_len);
    memcpy(space + type_len, text, len);
    put_end(space + type_len + len);
    writer->queue.end += type_len + len + 2;
}

void resp_write_simple(struct resp_writer *writer, const char *text)
{
    write_raw(writer, "+", text);
}

void resp_write_null(struct resp_writer *writer)
{
    if (writer->version >= 3)
        write_raw(writer, "_", "");
    else
        write_raw(writer, "$", "-1");
}

void resp_write_double(struct resp_writer *writer, double number)
{
    char text[DOUBLE_TEXT_SIZE];
    snprintf(text, sizeof(text), "%.3f", number);
    if (writer->version >= 3)
        write_raw(writer, ",", text);
    else
        resp_write_text(writer, text);
}

void resp_write_error(struct resp_writer *writer, const char *word, const char *message)
{
    size_t word_len = strlen(word), len = strlen(message);
    uint8_t *space = resp_writer_space(writer, 1 + word_len + 1 + len + 2);
    if (space == NULL)
        return;
    uint8_t *at = space;
    *at++ = '-';
    memcpy(at, word, word_len);
    at += word_len;
    *at++ = ' ';
    for (size_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)message[i];
        *at++ = c < 0x20 || c == 0x7f ? ' ' : c;
    }
    writer->queue.end += (size_t)(put_end(at) - space);
}

/* ---- Replies --------------------------------------------------------------------------------- */

#define THROTTLE_MAX 128 /* "*5", five integers of at most 20 digits with type, sign, CR LF */
#define FIGURES_MAX 256  /* six pairs of a name of at most 20 bytes and such an integer */
#define STAMP_MAX 96     /* binding and at */
#define SPEC_SIZE 256
#define SHOWN_MAX 64 /* bytes of a word in an error */

static const char *const error_words[] = {
    [REPLY_BAD_REQUEST] = "ERR", [REPLY_FORBIDDEN] = "NOPERM",
    [REPLY_GONE] = "GONE",       [REPLY_CONFLICT] = "CONFLICT",
    [REPLY_FULL] = "FULL",       [REPLY_UNAVAILABLE] = "UNAVAILABLE",
};

void resp_reply_error(struct resp_writer *writer, enum reply_error error, const char *message)
{
    assert(error > REPLY_DECIDED && error <= REPLY_UNAVAILABLE);
    resp_write_error(writer, error_words[error], message);
}

int64_t resp_reply_ms(uint64_t ns)
{
    return ns == STINT_NEVER_NS ? -1 : (int64_t)resp_ms_of(ns);
}

/*
 * Texts that are constant, and are in every reply, are copied as a whole. The length of a bulk
 * string is checked.
 */
#define PUT(at, text) put(at, text, sizeof(text) - 1)
#define PUT_BULK(at, length, text)                                                                 \
    put(at, "$" #length "\r\n" text "\r\n",                                                        \
        sizeof("$" #length "\r\n" text "\r\n") -                                                   \
            sizeof(char[sizeof(text) - 1 == (length) ? 1 : -1]))

static inline uint8_t *put(uint8_t *at, const char *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

static inline uint8_t *put_integer(uint8_t *at, uint64_t number)
{
    *at = ':';
    at = resp_number_write(at + 1, number);
    return PUT(at, "\r\n");
}

static inline uint8_t *put_or_minus_one(uint8_t *at, bool is_known, uint64_t number)
{
    return is_known ? put_integer(at, number) : PUT(at, ":-1\r\n");
}

void resp_reply_throttle(struct resp_writer *writer, const struct reply *reply)
{
    const struct stint_decision *decision = &reply->decision;
    if (reply->error != REPLY_DECIDED) {
        resp_reply_error(writer, reply->error, reply->message);
        return;
    }
    uint8_t *space = resp_writer_space(writer, THROTTLE_MAX);
    if (space == NULL)
        return;
    bool waits = decision->outcome == STINT_DENY && decision->retry_after_ns != STINT_NEVER_NS;
    uint8_t *at = put_integer(PUT(space, "*5\r\n"), decision->outcome != STINT_ALLOW);
    at = put_integer(at, decision->limit);
    at = put_integer(at, decision->remaining);
    at = put_or_minus_one(at, waits, ns_units_up(decision->retry_after_ns, NS_PER_S));
    at = put_integer(at, ns_units_up(decision->reset_after_ns, NS_PER_S));
    writer->queue.end += (size_t)(at - space);
}

#define FIGURES ((size_t)6)

static inline uint8_t *put_outcome(uint8_t *at, unsigned outcome)
{
    at = PUT_BULK(at, 7, "outcome");
    return outcome == STINT_ALLOW  ? PUT_BULK(at, 5, "allow")
           : outcome == STINT_DENY ? PUT_BULK(at, 4, "deny")
                                   : PUT_BULK(at, 5, "never");
}

static inline uint8_t *put_ms(uint8_t *at, uint64_t ns)
{
    return put_or_minus_one(at, ns != STINT_NEVER_NS, resp_ms_of(ns));
}

static void write_metrics(struct resp_writer *writer, const struct stint_decision *decision,
                          bool is_unlimited)
{
    uint8_t *space = resp_writer_space(writer, FIGURES_MAX);
    if (space == NULL)
        return;
    uint8_t *at = put_outcome(space, decision->outcome);
    at = put_integer(PUT_BULK(at, 7, "granted"), decision->granted);
    at = put_or_minus_one(PUT_BULK(at, 5, "limit"), !is_unlimited, decision->limit);
    at = put_or_minus_one(PUT_BULK(at, 9, "remaining"), !is_unlimited, decision->remaining);
    at = put_ms(PUT_BULK(at, 14, "retry_after_ms"), decision->retry_after_ns);
    at = put_ms(PUT_BULK(at, 14, "reset_after_ms"), decision->reset_after_ns);
    writer->queue.end += (size_t)(at - space);
}

static void write_stamp(struct resp_writer *writer, unsigned binding, uint64_t at_ns)
{
    uint8_t *space = resp_writer_space(writer, STAMP_MAX);
    if (space == NULL)
        return;
    uint8_t *at = put_integer(PUT_BULK(space, 7, "binding"), binding);
    at = resp_number_write(PUT(PUT_BULK(at, 2, "at"), "$"), resp_number_len(at_ns));
    at = resp_number_write(PUT(at, "\r\n"), at_ns);
    at = PUT(at, "\r\n");
    writer->queue.end += (size_t)(at - space);
}

/* The members that only EXPLAIN has: of the quota and how it was applied, */
#define STANDING ((size_t)7)

static void write_standing(struct resp_writer *writer, const struct target *status)
{
    char spec[SPEC_SIZE];
    const struct stint_quota *quota = reply_quota(status);
    if (quota != NULL)
        stint_quota_format(quota, spec, sizeof(spec));
    resp_pair_text(writer, "quota", quota != NULL ? spec : NULL);
    resp_pair_text(writer, "when_full", spec_when_full_name(status->when_full));
    resp_pair_integer(writer, "over", status->over);
    resp_pair_integer(writer, "banned", status->banned);
    resp_pair_integer(writer, "replaced", status->is_replaced);
    resp_pair_integer(writer, "shadow_over", status->shadow_over);
    resp_pair_integer(writer, "shadow_retry_after_ms",
                      status->shadow_over ? resp_reply_ms(status->shadow_retry_after_ns) : 0);
}

/* and of the rule. */
#define RULE ((size_t)6)

static void write_rule(struct resp_writer *writer, const struct rule *rule)
{
    resp_pair_text(writer, "name", rule->name);
    resp_pair_text(writer, "domain", rule->domain);
    resp_pair_text(writer, "file", rule->file);
    resp_pair_integer(writer, "line", rule->line);
    resp_pair_integer(writer, "shadow_mode", rule->shadow_mode);
    resp_pair_integer(writer, "quota_mode", rule->quota_mode);
}

static void write_status(struct resp_writer *writer, const struct request *request,
                         const struct target *status)
{
    bool explains = request->verb == REQUEST_EXPLAIN, has_rule = status->rule != NULL;
    bool of_descriptor = request->n_descriptors > 0;
    resp_write_map(writer, FIGURES + of_descriptor + (explains ? STANDING : 0) +
                               (explains && has_rule ? RULE : 0));
    write_metrics(writer, &status->decision, reply_quota(status) == NULL);
    if (of_descriptor)
        resp_pair_text(writer, "rule", has_rule ? status->rule->path : NULL);
    if (explains)
        write_standing(writer, status);
    if (explains && has_rule)
        write_rule(writer, status->rule);
}

static void write_ticket(struct resp_writer *writer, const struct reply *reply)
{
    char space[TICKET_TEXT_LEN];
    resp_write_text(writer, "ticket");
    resp_write_bulk(writer, ticket_text_of(reply, space));
}

static bool is_unlimited(const struct reply *reply)
{
    for (size_t i = 0; i < reply->n_statuses; i++)
        if (reply_quota(&reply->statuses[i]) != NULL)
            return false;
    return reply->n_statuses > 0;
}

static void write_decision(struct resp_writer *writer, const struct request *request,
                           const struct reply *reply)
{
    struct stint_decision decision = reply->decision;
    bool starts = request->verb == REQUEST_BOOK && decision.outcome == STINT_ALLOW;
    bool has_statuses = reply->n_statuses > 1 || request->verb == REQUEST_EXPLAIN;
    uint64_t starts_after_ns = decision.retry_after_ns;
    if (starts)
        decision.retry_after_ns = 0;
    resp_write_map(writer,
                   FIGURES + 2 + starts + reply->has_ticket + reply->replayed + has_statuses);
    write_metrics(writer, &decision, is_unlimited(reply));
    write_stamp(writer, decision.binding, reply->at_ns);
    if (starts)
        resp_pair_integer(writer, "starts_after_ms", resp_reply_ms(starts_after_ns));
    if (reply->has_ticket)
        write_ticket(writer, reply);
    if (reply->replayed)
        resp_pair_integer(writer, "replayed", 1);
    if (!has_statuses)
        return;
    resp_write_text(writer, "statuses");
    resp_write_array(writer, reply->n_statuses);
    for (size_t i = 0; i < reply->n_statuses; i++)
        write_status(writer, request, &reply->statuses[i]);
}

void resp_reply_verb(struct resp_writer *writer, const struct request *request,
                     const struct reply *reply)
{
    if (reply->error != REPLY_DECIDED) {
        resp_reply_error(writer, reply->error, reply->message);
        return;
    }
    switch (request->verb) {
    case REQUEST_BLOCK:
    case REQUEST_RESET:
    case REQUEST_SET_QUOTA:
    case REQUEST_RENEW:
    case REQUEST_COUNT_RESET:
        resp_write_simple(writer, "OK");
        break;
    case REQUEST_COUNT:
        resp_write_map(writer, 2);
        resp_pair_integer(writer, "count", (int64_t)reply->counter.count);
        resp_pair_integer(writer, "expires_after_ms",
                          resp_reply_ms(reply->counter.expires_after_ns));
        break;
    default:
        write_decision(writer, request, reply);
    }
}

/* ---- The table of commands ------------------------------------------------------------------- */

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

void resp_reply_unknown(struct resp_writer *writer, struct span name)
{
    char message[STINT_ERROR_MAX];
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "unknown command '%.*s'", shown(name), (const char *)name.ptr);
    resp_write_error(writer, "ERR", message);
}

void resp_reply_arity(struct resp_writer *writer, const struct resp_command *command)
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

void resp_reply_subcommand(struct resp_writer *writer, const struct resp_command *command,
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
    resp_pair_text(writer, "summary", command->summary);
    resp_pair_text(writer, "since", STINT_VERSION);
    resp_pair_text(writer, "group", "stint");
    if (!has_arguments)
        return;
    resp_write_text(writer, "arguments");
    resp_write_array(writer, 1);
    resp_write_map(writer, 2);
    resp_pair_text(writer, "name", command->syntax);
    resp_pair_text(writer, "type", "string");
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
        resp_reply_unknown(writer, args[0]);
    } else if (!resp_command_takes(command, n_args)) {
        resp_reply_arity(writer, command);
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

void resp_reply_commands(struct resp_writer *writer, const struct span *args, size_t n_args,
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
        resp_reply_subcommand(writer, &resp_commands[RESP_COMMAND], args[1]);
}
