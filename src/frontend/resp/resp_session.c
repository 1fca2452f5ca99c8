/* SPDX-License-Identifier: MIT */
/* Commands about the connection itself. */
#include "frontend/resp/resp_parts.h"

#include "base/number.h"
#include "proto/resp/resp_about.h"

static void reply_ok(struct resp_call *call)
{
    resp_write_simple(&call->conn->out, "OK");
}

void resp_echo(struct resp_call *call)
{
    resp_write_bulk(&call->conn->out, call->args[1]);
}

void resp_ping(struct resp_call *call)
{
    if (call->n_args > 2)
        resp_about_arity(&call->conn->out, call->command);
    else if (call->n_args == 2)
        resp_write_bulk(&call->conn->out, call->args[1]);
    else
        resp_write_simple(&call->conn->out, "PONG");
}

void resp_quit(struct resp_call *call)
{
    reply_ok(call);
    call->conn->is_over = true;
}

void resp_reset(struct resp_call *call)
{
    struct resp_conn *conn = call->conn;
    conn->out.version = 2;
    conn->name_len = 0;
    resp_caller_forget(conn);
    resp_write_simple(&conn->out, "RESET");
}

void resp_select(struct resp_call *call)
{
    uint64_t database;
    if (!resp_number_read(call->args[1], INT32_MAX, &database))
        resp_write_error(&call->conn->out, "ERR", "value is not an integer or out of range");
    else if (database != 0)
        resp_write_error(&call->conn->out, "ERR", "DB index is out of range: there is only 0");
    else
        reply_ok(call);
}

/* ---- CLIENT ---------------------------------------------------------------------------------- */

bool resp_set_name(struct resp_call *call, struct span name)
{
    struct resp_conn *conn = call->conn;
    bool is_fine = name.len <= RESP_NAME_MAX;
    for (size_t i = 0; is_fine && i < name.len; i++)
        is_fine = name.ptr[i] > ' ' && name.ptr[i] < 0x7f;
    if (!is_fine) {
        resp_write_error(
            &conn->out, "ERR",
            "Client names have at most 64 bytes, without blanks or special characters");
        return false;
    }
    if (name.len > 0)
        memcpy(conn->name, name.ptr, name.len);
    conn->name_len = (uint8_t)name.len;
    return true;
}

static void reply_name(struct resp_call *call)
{
    const struct resp_conn *conn = call->conn;
    if (conn->name_len > 0)
        resp_write_bulk(&call->conn->out, span_of(conn->name, conn->name_len));
    else
        resp_write_null(&call->conn->out);
}

static void reply_info(struct resp_call *call)
{
    struct resp_conn *conn = call->conn;
    char text[2 * STINT_ERROR_MAX];
    struct buf buf = buf_of(text, sizeof(text));
    buf_add(&buf, "id=%llu name=%.*s user=%s resp=%u\n", (unsigned long long)conn->id,
            (int)conn->name_len, conn->name, conn->caller.name, (unsigned)conn->out.version);
    resp_write_verbatim(&conn->out, span_of(text, buf.len));
}

/* The names of client libraries are accepted, and not used. */
static bool is_library_word(struct span word)
{
    return resp_word_is(word, "LIB-NAME") || resp_word_is(word, "LIB-VER");
}

static bool is_switch(struct span word)
{
    return resp_word_is(word, "NO-EVICT") || resp_word_is(word, "NO-TOUCH");
}

static bool is_on_or_off(struct span word)
{
    return resp_word_is(word, "ON") || resp_word_is(word, "OFF");
}

void resp_client(struct resp_call *call)
{
    struct span word = call->args[1];
    size_t n = call->n_args;
    if (n == 2 && resp_word_is(word, "ID"))
        resp_write_integer(&call->conn->out, (int64_t)call->conn->id);
    else if (n == 2 && resp_word_is(word, "GETNAME"))
        reply_name(call);
    else if (n == 2 && resp_word_is(word, "INFO"))
        reply_info(call);
    else if (n == 3 && resp_word_is(word, "SETNAME")) {
        if (resp_set_name(call, call->args[2]))
            reply_ok(call);
    } else if ((n == 4 && resp_word_is(word, "SETINFO") && is_library_word(call->args[2])) ||
               (n == 3 && is_switch(word) && is_on_or_off(call->args[2])))
        reply_ok(call);
    else
        resp_about_subcommand(&call->conn->out, call->command, word);
}
