/* SPDX-License-Identifier: MIT */
/*
 * HELLO carries password and name, and so costs one round trip in all. It requests RESP2, the
 * protocol that hiredis' reader of Debian 12 reads.
 */
#include "backend/wire/redis_greeting.h"

#include "base/buf.h"

#define HELLO_WORDS_MAX 7
#define GREETING_MAX 4096

bool redis_greeting_begin(struct redis_greeting *greeting, const struct redis_conn_options *options)
{
    struct span hello[HELLO_WORDS_MAX] = {span_of_text("HELLO"), span_of_text("2")};
    size_t n_words = 2;
    char number[16];
    struct buf buf = buf_of(number, sizeof(number));
    if (options->password != NULL && options->password[0] != '\0') {
        bool has_user = options->user != NULL && options->user[0] != '\0';
        hello[n_words++] = span_of_text("AUTH");
        hello[n_words++] = span_of_text(has_user ? options->user : "default");
        hello[n_words++] = span_of_text(options->password);
    }
    if (options->name != NULL) {
        hello[n_words++] = span_of_text("SETNAME");
        hello[n_words++] = span_of_text(options->name);
    }
    buf_add(&buf, "%u", options->database);
    const struct span select[] = {span_of_text("SELECT"), span_of_text(number)};
    size_t len = redis_command_len(hello, n_words) + redis_command_len(select, 2);
    redis_greeting_deinit(greeting);
    if (!redis_bytes_reserve(&greeting->bytes, len, GREETING_MAX))
        return false;
    redis_command_write(&greeting->bytes, hello, n_words);
    if (options->database != 0)
        redis_command_write(&greeting->bytes, select, 2);
    greeting->answers_due = 1 + (options->database != 0);
    return true;
}

void redis_greeting_deinit(struct redis_greeting *greeting)
{
    if (greeting->bytes.ptr != NULL)
        memset(greeting->bytes.ptr, 0, greeting->bytes.len);
    redis_bytes_deinit(&greeting->bytes);
    *greeting = (struct redis_greeting){.sent = 0};
}

struct span redis_greeting_output(const struct redis_greeting *greeting)
{
    if (greeting->bytes.ptr == NULL)
        return span_of(NULL, 0);
    return span_of(greeting->bytes.ptr + greeting->sent, greeting->bytes.len - greeting->sent);
}

void redis_greeting_sent(struct redis_greeting *greeting, size_t len)
{
    greeting->sent += len;
}

static int refused(const struct redis_reply *reply, const char *command, struct stint_error *error)
{
    int len = reply->text.len < 200 ? (int)reply->text.len : 200;
    return err_set(error, STINT_E_MISMATCH, "the store refuses %s: %.*s", command, len,
                   (const char *)reply->text.ptr);
}

static void copy(char *text, size_t size, const struct redis_reply *reply)
{
    struct buf buf = buf_of(text, size);
    if (reply != NULL && (reply->type == REDIS_TEXT || reply->type == REDIS_STATUS))
        buf_add(&buf, "%.*s", reply->text.len < size ? (int)reply->text.len : (int)size,
                (const char *)reply->text.ptr);
}

static int read_hello(const struct redis_reply *reply, struct redis_server *server,
                      struct stint_error *error)
{
    const struct redis_reply *name = redis_reply_named(reply, "server");
    const struct redis_reply *role = redis_reply_named(reply, "role");
    if (name == NULL)
        return err_set(
            error, STINT_E_MISMATCH,
            "the server is neither Redis nor Valkey: its reply to HELLO does not name either");
    *server = (struct redis_server){
        .is_valkey = redis_reply_is(name, "valkey"),
        .is_replica =
            role != NULL && (redis_reply_is(role, "replica") || redis_reply_is(role, "slave")),
    };
    copy(server->version, sizeof(server->version), redis_reply_named(reply, "version"));
    copy(server->mode, sizeof(server->mode), redis_reply_named(reply, "mode"));
    return 0;
}

int redis_greeting_take(struct redis_greeting *greeting, const struct redis_reply *reply,
                        struct redis_server *server, struct stint_error *error)
{
    if (reply->type == REDIS_ERROR)
        return refused(reply, greeting->has_greeted ? "SELECT" : "HELLO", error);
    int code = greeting->has_greeted ? 0 : read_hello(reply, server, error);
    greeting->has_greeted = true;
    greeting->answers_due--;
    return code != 0 ? code : greeting->answers_due == 0;
}
