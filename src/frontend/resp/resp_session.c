/* SPDX-License-Identifier: MIT */
/* Commands about the connection itself. */
#include "base/number.h"
#include "frontend/resp/resp_parts.h"
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

static bool resp_set_name(struct resp_call *call, struct span name)
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

/* The caller of a connection: AUTH, HELLO, and the effect of a reload of the tokens. */

/* token NULL: not authenticated: all roles where there are no tokens, and otherwise none. */
static void become(struct resp_conn *conn, const struct access_token *token)
{
    struct access *tokens = conn->frontend->tokens;
    if (conn->tokens != tokens) {
        access_unref(conn->tokens);
        conn->tokens = tokens != NULL ? access_ref(tokens) : NULL;
    }
    conn->token = token;
    conn->is_known = token != NULL || tokens == NULL;
    conn->bounds =
        conn->is_known ? &conn->frontend->bounds : &conn->frontend->unauthenticated_bounds;
    conn->caller.name = token != NULL ? token->name : "";
    conn->caller.roles = token != NULL ? token->roles : tokens == NULL ? ACCESS_ALL : 0;
}

static void renew_frontend(struct resp_frontend *frontend)
{
    uint64_t generation = access_now_generation(frontend->access);
    if (generation == frontend->generation)
        return;
    access_unref(frontend->tokens);
    frontend->tokens = access_now_get(frontend->access);
    frontend->generation = generation;
}

void resp_caller_renew(struct resp_conn *conn)
{
    struct resp_frontend *frontend = conn->frontend;
    if (frontend->access == NULL)
        return;
    renew_frontend(frontend);
    if (conn->tokens == frontend->tokens)
        return;
    const struct access_token *token = NULL;
    if (conn->token != NULL && frontend->tokens != NULL)
        token = access_again(frontend->tokens, conn->token);
    become(conn, token);
}

void resp_caller_forget(struct resp_conn *conn)
{
    become(conn, NULL);
}

/* Clients that have only a password send the user name "default". */
static const struct access_token *find_token(struct resp_call *call, struct span user,
                                             struct span secret)
{
    struct resp_conn *conn = call->conn;
    struct metrics *metrics = server_state_metrics(service_server_state(conn->frontend->service));
    const struct access_login login = {
        .name = resp_word_is(user, "default") ? span_of(NULL, 0) : user,
        .secret = secret,
        .peer = span_of(conn->peer, conn->peer_len),
        .frontend = METRICS_RESP,
        .metrics = metrics != NULL
                       ? metrics_worker(metrics, service_worker(conn->frontend->service))
                       : NULL,
        .now_ns = call->io_now_ns,
    };
    bool is_slowed;
    const struct access_token *token =
        access_login(conn->frontend->access, conn->tokens, &login, &is_slowed);
    if (token == NULL)
        resp_write_error(&conn->out, "WRONGPASS",
                         is_slowed ? "too many wrong secrets came from this address: wait a minute"
                                   : "no token has this name and secret");
    return token;
}

void resp_auth(struct resp_call *call)
{
    struct resp_conn *conn = call->conn;
    if (call->n_args > 3) {
        resp_write_error(&conn->out, "ERR", "usage: AUTH [user] secret");
        return;
    }
    if (conn->tokens == NULL) {
        resp_write_error(&conn->out, "ERR",
                         "no tokens are configured: no authentication is needed");
        return;
    }
    struct span user = call->n_args == 3 ? call->args[1] : span_of(NULL, 0);
    const struct access_token *token = find_token(call, user, call->args[call->n_args - 1]);
    if (token == NULL)
        return;
    become(conn, token);
    resp_write_simple(&conn->out, "OK");
}

/* ---- HELLO ----------------------------------------------------------------------------------- */

struct hello {
    uint64_t version;
    const struct span *auth; /* user and secret; NULL: not given */
    const struct span *name;
};

/* False: an error was replied. */
static bool read_hello(struct resp_call *call, struct hello *hello)
{
    struct resp_writer *out = &call->conn->out;
    size_t at = 1;
    if (call->n_args > 1 && !resp_number_read(call->args[at++], INT32_MAX, &hello->version)) {
        resp_write_error(out, "ERR", "Protocol version is not an integer or out of range");
        return false;
    }
    if (hello->version < 2 || hello->version > 3) {
        resp_write_error(out, "NOPROTO", "unsupported protocol version: expected 2 or 3");
        return false;
    }
    while (at < call->n_args) {
        size_t left = call->n_args - at - 1;
        if (left >= 2 && resp_word_is(call->args[at], "AUTH")) {
            hello->auth = &call->args[at + 1];
            at += 3;
        } else if (left >= 1 && resp_word_is(call->args[at], "SETNAME")) {
            hello->name = &call->args[at + 1];
            at += 2;
        } else {
            resp_write_error(out, "ERR", "syntax: HELLO [2|3 [AUTH user secret] [SETNAME name]]");
            return false;
        }
    }
    return true;
}

static void pair(struct resp_writer *out, const char *name, const char *text)
{
    resp_write_text(out, name);
    resp_write_text(out, text);
}

static void greet(struct resp_conn *conn)
{
    struct resp_writer *out = &conn->out;
    resp_write_map(out, 7);
    pair(out, "server", "stint");
    pair(out, "version", STINT_VERSION);
    resp_write_text(out, "proto");
    resp_write_integer(out, out->version);
    resp_write_text(out, "id");
    resp_write_integer(out, (int64_t)conn->id);
    pair(out, "mode", "standalone");
    pair(out, "role", "master");
    resp_write_text(out, "modules");
    resp_write_array(out, 0);
}

void resp_hello(struct resp_call *call)
{
    struct resp_conn *conn = call->conn;
    struct hello hello = {.version = conn->out.version};
    const struct access_token *token = conn->token;
    if (!read_hello(call, &hello))
        return;
    if (hello.auth != NULL && conn->tokens != NULL) {
        token = find_token(call, hello.auth[0], hello.auth[1]);
        if (token == NULL)
            return;
    }
    if (token == NULL && conn->tokens != NULL) {
        resp_write_error(&conn->out, "NOAUTH", "Authentication required: HELLO 3 AUTH user secret");
        return;
    }
    if (hello.name != NULL && !resp_set_name(call, *hello.name))
        return;
    become(conn, token);
    conn->out.version = (uint8_t)hello.version;
    greet(conn);
}
