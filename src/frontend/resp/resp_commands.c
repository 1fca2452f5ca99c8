/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* FNM_CASEFOLD */
/*
 * The functions that answer commands, except STINT.POOL, and their table. The names of commands are
 * in proto/resp/resp_command.c.
 */
#include "frontend/resp/resp_call.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"
#include "proto/page.h"
#include "proto/resp/resp_reply.h"
#include "service/top_keys.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* The version of Redis that COMMAND and HELLO follow: clients compare it. */
#define REDIS_VERSION "7.0.0"

#define TOP_DEFAULT 10
#define TOP_MAX 1000

/* ---- The connection -------------------------------------------------------------------------- */

static void reply_ok(struct resp_call *call)
{
    resp_write_simple(&call->state->out, "OK");
}

static void answer_echo(struct resp_call *call)
{
    resp_write_bulk(&call->state->out, call->args[1]);
}

static void answer_ping(struct resp_call *call)
{
    if (call->n_args > 2)
        resp_reply_arity(&call->state->out, call->command);
    else if (call->n_args == 2)
        resp_write_bulk(&call->state->out, call->args[1]);
    else
        resp_write_simple(&call->state->out, "PONG");
}

static void answer_quit(struct resp_call *call)
{
    reply_ok(call);
    call->state->is_over = true;
}

static void answer_reset(struct resp_call *call)
{
    struct resp_state *state = call->state;
    state->out.version = 2;
    state->name_len = 0;
    resp_state_become(state, NULL);
    resp_write_simple(&state->out, "RESET");
}

static void answer_select(struct resp_call *call)
{
    uint64_t database;
    if (!resp_number_read(call->args[1], INT32_MAX, &database))
        resp_write_error(&call->state->out, "ERR", "value is not an integer or out of range");
    else if (database != 0)
        resp_write_error(&call->state->out, "ERR", "DB index is out of range: there is only 0");
    else
        reply_ok(call);
}

/* ---- CLIENT ---------------------------------------------------------------------------------- */

static bool set_name(struct resp_call *call, struct span name)
{
    struct resp_state *state = call->state;
    bool is_fine = name.len <= RESP_NAME_MAX;
    for (size_t i = 0; is_fine && i < name.len; i++)
        is_fine = name.ptr[i] > ' ' && name.ptr[i] < 0x7f;
    if (!is_fine) {
        resp_write_error(
            &state->out, "ERR",
            "Client names have at most 64 bytes, without blanks or special characters");
        return false;
    }
    if (name.len > 0)
        memcpy(state->name, name.ptr, name.len);
    state->name_len = (uint8_t)name.len;
    return true;
}

static void reply_name(struct resp_call *call)
{
    const struct resp_state *state = call->state;
    if (state->name_len > 0)
        resp_write_bulk(&call->state->out, span_of(state->name, state->name_len));
    else
        resp_write_null(&call->state->out);
}

static void reply_info(struct resp_call *call)
{
    struct resp_state *state = call->state;
    char text[2 * STINT_ERROR_MAX];
    struct buf buf = buf_of(text, sizeof(text));
    buf_add(&buf, "id=%llu name=%.*s user=%s resp=%u\n", (unsigned long long)state->id,
            (int)state->name_len, state->name, state->caller.name, (unsigned)state->out.version);
    resp_write_verbatim(&state->out, span_of(text, buf.len));
}

static bool is_either(struct span word, const char *one, const char *other)
{
    return resp_word_is(word, one) || resp_word_is(word, other);
}

static void answer_client(struct resp_call *call)
{
    struct span word = call->args[1];
    size_t n = call->n_args;
    if (n == 2 && resp_word_is(word, "ID"))
        resp_write_integer(&call->state->out, (int64_t)call->state->id);
    else if (n == 2 && resp_word_is(word, "GETNAME"))
        reply_name(call);
    else if (n == 2 && resp_word_is(word, "INFO"))
        reply_info(call);
    else if (n == 3 && resp_word_is(word, "SETNAME")) {
        if (set_name(call, call->args[2]))
            reply_ok(call);
    } else if ((n == 4 && resp_word_is(word, "SETINFO") &&
                is_either(call->args[2], "LIB-NAME", "LIB-VER")) ||
               (n == 3 && is_either(word, "NO-EVICT", "NO-TOUCH") &&
                is_either(call->args[2], "ON", "OFF")))
        reply_ok(call); /* accepted, and not used */
    else
        resp_reply_subcommand(&call->state->out, call->command, word);
}

/* ---- AUTH ------------------------------------------------------------------------------------ */

/* Clients that have only a password send the user name "default". */
static const struct access_token *find_token(struct resp_call *call, struct span user,
                                             struct span secret)
{
    struct resp_state *state = call->state;
    const struct access_login login = {
        .name = resp_word_is(user, "default") ? span_of(NULL, 0) : user,
        .secret = secret,
        .peer = span_of(state->peer, state->peer_len),
        .frontend = METRICS_RESP,
        .metrics = state->frontend->metrics,
        .now_ns = call->io_now_ns,
    };
    bool is_slowed;
    const struct access_token *token =
        access_login(state->frontend->access, state->tokens, &login, &is_slowed);
    if (token == NULL)
        resp_write_error(&state->out, "WRONGPASS",
                         is_slowed ? "too many wrong secrets came from this address: wait a minute"
                                   : "no token has this name and secret");
    return token;
}

static void answer_auth(struct resp_call *call)
{
    struct resp_state *state = call->state;
    if (call->n_args > 3) {
        resp_write_error(&state->out, "ERR", "usage: AUTH [user] secret");
        return;
    }
    if (state->tokens == NULL) {
        resp_write_error(&state->out, "ERR",
                         "no tokens are configured: no authentication is needed");
        return;
    }
    struct span user = call->n_args == 3 ? call->args[1] : span_of(NULL, 0);
    const struct access_token *token = find_token(call, user, call->args[call->n_args - 1]);
    if (token == NULL)
        return;
    resp_state_become(state, token);
    resp_write_simple(&state->out, "OK");
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
    struct resp_writer *out = &call->state->out;
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

static void greet(struct resp_state *state)
{
    struct resp_writer *out = &state->out;
    resp_write_map(out, 7);
    resp_pair_text(out, "server", "stint");
    resp_pair_text(out, "version", STINT_VERSION);
    resp_pair_integer(out, "proto", out->version);
    resp_pair_integer(out, "id", (int64_t)state->id);
    resp_pair_text(out, "mode", "standalone");
    resp_pair_text(out, "role", "master");
    resp_write_text(out, "modules");
    resp_write_array(out, 0);
}

static void answer_hello(struct resp_call *call)
{
    struct resp_state *state = call->state;
    struct hello hello = {.version = state->out.version};
    const struct access_token *token = state->token;
    if (!read_hello(call, &hello))
        return;
    if (hello.auth != NULL && state->tokens != NULL) {
        token = find_token(call, hello.auth[0], hello.auth[1]);
        if (token == NULL)
            return;
    }
    if (token == NULL && state->tokens != NULL) {
        resp_write_error(&state->out, "NOAUTH",
                         "Authentication required: HELLO 3 AUTH user secret");
        return;
    }
    if (hello.name != NULL && !set_name(call, *hello.name))
        return;
    resp_state_become(state, token);
    state->out.version = (uint8_t)hello.version;
    greet(state);
}

/* ---- INFO ------------------------------------------------------------------------------------ */

static void add_server(const struct resp_call *call, struct page *page)
{
    bool is_virtual = call->state->frontend->clock->is_virtual;
    page_add(page, "# Server\r\n"
                   "redis_version:" REDIS_VERSION "\r\n"
                   "stint_version:" STINT_VERSION "\r\n"
                   "redis_mode:standalone\r\n"
                   "role:master\r\n"
                   "loading:0\r\n");
    page_print(page, "clock:%s\r\n", is_virtual ? "virtual" : "real");
}

static void add_rules(const struct resp_call *call, struct page *page)
{
    struct server_state *server_state = service_server_state(call->state->frontend->service);
    struct rules *rules = server_state_rules(server_state);
    page_print(page, "# Rules\r\nrules:%zu\r\ngeneration:%llu\r\n",
               rules != NULL ? rules_count(rules) : (size_t)0,
               (unsigned long long)server_state_generation(server_state));
    rules_unref(rules);
}

static void add_table(const struct resp_call *call, struct page *page)
{
    struct stint_table_info info;
    stint_table_info(server_state_table(service_server_state(call->state->frontend->service)),
                     call->now_ns, &info);
    page_print(page,
               "# Table\r\nbytes:%llu\r\nkeys8:%llu\r\nkeys16:%llu\r\nkeys_wide:%llu\r\n"
               "blocked:%llu\r\nquotas:%u\r\ntickets:%u\r\n",
               (unsigned long long)info.bytes, (unsigned long long)info.live[0],
               (unsigned long long)info.live[1], (unsigned long long)info.live[2],
               (unsigned long long)info.blocked, info.quotas, info.tickets);
    page_print(page,
               "evictions_lossless:%llu\r\nevictions_inherit:%llu\r\nevictions_evict:%llu\r\n"
               "forgotten_units:%llu\r\n",
               (unsigned long long)info.evictions_lossless,
               (unsigned long long)info.evictions_inherit, (unsigned long long)info.evictions_evict,
               (unsigned long long)info.forgotten_units);
}

static void add_stores(const struct resp_call *call, struct page *page)
{
    const struct metrics *metrics =
        server_state_metrics(service_server_state(call->state->frontend->service));
    if (metrics != NULL)
        metrics_info_stores(metrics, call->io_now_ns, page);
}

struct section {
    const char *name;
    void (*add)(const struct resp_call *call, struct page *page);
    unsigned role; /* 0: any */
};

/* Scanning a table takes a while: only on request, for a caller that may read metrics. */
static const struct section sections[] = {
    {"server", add_server, 0},
    {"rules", add_rules, 0},
    {"table", add_table, ACCESS_METRICS},
    {"stores", add_stores, ACCESS_METRICS},
};
#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

static bool is_asked(const struct resp_call *call, const struct section *section)
{
    if (call->n_args == 1)
        return section->role == 0;
    for (size_t i = 1; i < call->n_args; i++)
        if (resp_word_is(call->args[i], section->name) || resp_word_is(call->args[i], "all") ||
            resp_word_is(call->args[i], "everything") ||
            (section->role == 0 && resp_word_is(call->args[i], "default")))
            return true;
    return false;
}

static void answer_info(struct resp_call *call)
{
    struct page page = {0};
    for (size_t i = 0; i < SECTIONS; i++)
        if (sections[i].role != 0 && is_asked(call, &sections[i]) &&
            !resp_call_may(call, sections[i].role))
            return;
    for (size_t i = 0; i < SECTIONS; i++)
        if (is_asked(call, &sections[i]))
            sections[i].add(call, &page);
    if (page.failed)
        resp_write_error(&call->state->out, "FULL", "no memory for an answer");
    else
        resp_write_verbatim(&call->state->out, span_of(page.text, page.len));
    page_free(&page);
}

/* ---- CONFIG GET ------------------------------------------------------------------------------ */

struct setting {
    const char *name, *value;
};

static const struct setting settings[] = {
    {"save", ""}, {"appendonly", "no"}, {"maxmemory", "0"}, {"databases", "1"}, {"timeout", "0"},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* By its name or "*". Patterns like those of Redis would take long, as a command may have many. */
static bool is_wanted(const struct resp_call *call, const char *name)
{
    for (size_t i = 2; i < call->n_args; i++)
        if (resp_word_is(call->args[i], name) || resp_word_is(call->args[i], "*"))
            return true;
    return false;
}

static void answer_config(struct resp_call *call)
{
    struct resp_writer *out = &call->state->out;
    if (call->n_args < 3 || !resp_word_is(call->args[1], "GET")) {
        resp_reply_subcommand(out, call->command, call->args[1]);
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < SETTINGS; i++)
        n += is_wanted(call, settings[i].name);
    resp_write_map(out, n);
    for (size_t i = 0; i < SETTINGS; i++) {
        if (!is_wanted(call, settings[i].name))
            continue;
        resp_pair_text(out, settings[i].name, settings[i].value);
    }
}

/* ---- STINT.TOP ------------------------------------------------------------------------------- */

struct top {
    uint64_t n;
    enum top_keys_order order;
};

static int read_top(const struct resp_call *call, struct top *top, struct stint_error *error)
{
    size_t at = 1;
    *top = (struct top){TOP_DEFAULT, TOP_KEYS_ASKED};
    if (at < call->n_args && call->args[at].len > 0 && call->args[at].ptr[0] <= '9') {
        if (!resp_number_read(call->args[at], TOP_MAX, &top->n) || top->n == 0)
            return resp_refuse_number("the number of keys", call->args[at], 1, TOP_MAX, error);
        at++;
    }
    if (at < call->n_args && resp_word_is(call->args[at], "DENIED")) {
        top->order = TOP_KEYS_DENIED;
        at++;
    } else if (at < call->n_args && resp_word_is(call->args[at], "ASKED")) {
        at++;
    }
    if (at < call->n_args)
        return resp_refuse_word("[n] [ASKED | DENIED]", call->args[at], error);
    return STINT_OK;
}

static void write_key(struct resp_writer *out, const struct top_key *key)
{
    resp_write_map(out, 5);
    resp_write_text(out, "key");
    resp_write_bulk(out, span_of(key->name, key->name_len));
    resp_pair_text(out, "domain", key->domain);
    resp_pair_text(out, "rule", key->rule);
    resp_write_text(out, "asked_per_s");
    resp_write_double(out, key->asked_per_s);
    resp_write_text(out, "denied_per_s");
    resp_write_double(out, key->denied_per_s);
}

static void answer_top(struct resp_call *call)
{
    struct resp_writer *out = &call->state->out;
    struct top_keys *top_keys =
        server_state_top_keys(service_server_state(call->state->frontend->service));
    struct stint_error error;
    struct top top;
    if (!resp_call_may(call, ACCESS_METRICS))
        return;
    if (read_top(call, &top, &error) != STINT_OK) {
        resp_call_refuse(call, &error);
        return;
    }
    assert(top.n > 0);
    struct top_key *keys = calloc(top.n, sizeof(*keys));
    if (keys == NULL) {
        resp_write_error(out, "FULL", "no memory for an answer");
        return;
    }
    size_t n = top_keys != NULL ? top_keys_read(top_keys, top.order, call->now_ns, keys, top.n) : 0;
    resp_write_array(out, n);
    for (size_t i = 0; i < n; i++)
        write_key(out, &keys[i]);
    free(keys);
}

/* ---- STINT.CLOCK ----------------------------------------------------------------------------- */

static int move(const struct resp_call *call, struct stint_error *error)
{
    struct server_clock *clock = call->state->frontend->clock;
    struct span word = call->args[1], text = call->args[2];
    uint64_t ns;
    if (resp_word_is(word, "SET")) {
        if (!resp_number_read(text, STINT_NOW_MAX, &ns))
            return resp_refuse_number("SET", text, 0, STINT_NOW_MAX, error);
        return server_clock_set(clock, ns, error);
    }
    if (!resp_word_is(word, "ADVANCE"))
        return resp_refuse_word("SET ns or ADVANCE time", word, error);
    if (spec_parse_duration(text, &ns) != 0)
        return resp_refuse_word("a time like 10m or 1h30m after ADVANCE", text, error);
    return server_clock_advance(clock, ns, error);
}

static void answer_clock(struct resp_call *call)
{
    struct resp_writer *out = &call->state->out;
    const struct server_clock *clock = call->state->frontend->clock;
    struct stint_error error;
    bool moves = call->n_args > 1;
    if (!resp_call_may(call, moves ? ACCESS_ADMINISTER : ACCESS_ASK))
        return;
    int code = STINT_OK;
    if (moves && call->n_args != 3)
        code = err_set(&error, STINT_E_SYNTAX, "expected SET ns, ADVANCE time or nothing");
    else if (moves)
        code = move(call, &error);
    if (code != STINT_OK) {
        resp_call_refuse(call, &error);
        return;
    }
    resp_write_map(out, 2);
    resp_pair_text(out, "clock", clock->is_virtual ? "virtual" : "real");
    resp_write_text(out, "now");
    resp_write_digits(out, server_clock_now(clock, call->now_ns));
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* A command that waits for its time is decided anew, and has one span, from its beginning. */
static struct trace_span *begin_span(struct resp_call *call)
{
    const struct resp_state *state = call->state;
    const struct resp_frontend *frontend = state->frontend;
    const struct trace_operation operation = {METRICS_RESP, NULL, call->command->name};
    bool was_asked = state->was_asked && !call->is_ahead && !frontend->clock->is_virtual;
    return service_begin_span(frontend->service, call->pending, &operation, NULL,
                              was_asked ? state->asked_ns : call->io_now_ns);
}

/* The request has its reply; NULL: it is decided again later. */
static void end_span(struct resp_call *call, const struct request *request,
                     const struct reply *reply)
{
    struct trace_span *span = call->state->caller.span;
    if (span == NULL)
        return;
    call->state->caller.span = NULL;
    if (reply == NULL)
        trace_forget(span);
    else
        trace_end(span, &(struct trace_end){.has_failed = reply->error == REPLY_UNAVAILABLE,
                                            .error = reply->message,
                                            .request = request,
                                            .reply = reply});
}

/*
 * False: there is no reply yet: a store request was sent, or it is not the command's turn. True:
 * end_span() is to follow.
 */
static bool ask(struct resp_call *call, struct request *request, struct reply *reply)
{
    struct resp_state *state = call->state;
    if (state->frontend->tracer != NULL)
        state->caller.span = begin_span(call);
    request->pending = call->pending;
    request->is_ahead = call->is_ahead;
    call->pending = NULL;
    service_ask(state->frontend->service, request, &state->caller, call->now_ns, reply);
    if (reply->error == REPLY_WAITS) {
        state->caller.span = NULL;
        resp_call_await(call, reply->pending);
        return false;
    }
    if (call->is_ahead) /* the reply to a prefetched command is written in its turn */
        end_span(call, request, NULL);
    return !call->is_ahead;
}

/* A prefetched command is refused in its turn. */
static void refuse(struct resp_call *call, const struct stint_error *error)
{
    if (!call->is_ahead)
        resp_call_refuse(call, error);
}

static void answer_throttle(struct resp_call *call)
{
    struct resp_frontend *frontend = call->state->frontend;
    struct stint_error error;
    if (resp_request_throttle(call->args, call->n_args, &frontend->throttle, &error) != 0) {
        if (error.code == STINT_E_SYNTAX && !call->is_ahead)
            resp_write_error(&call->state->out, "Cell", error.message);
        else
            refuse(call, &error);
        return;
    }
    if (!ask(call, &frontend->throttle, &frontend->reply))
        return;
    resp_reply_throttle(&call->state->out, &frontend->reply);
    end_span(call, &frontend->throttle, &frontend->reply);
}

static void answer_verb(struct resp_call *call)
{
    struct resp_state *state = call->state;
    struct request request;
    struct stint_error error;
    struct reply *reply = &state->frontend->reply;
    if (resp_request_read(call->command, call->args, call->n_args, &state->frontend->lists,
                          &request, &error) != 0) {
        refuse(call, &error);
        return;
    }
    if (!call->is_ahead)
        resp_call_begin(call);
    if (request.wait_ns > 0 && !call->is_ahead && !state->is_draining)
        request.retry_until_ns = add_sat(state->asked_ns, request.wait_ns);
    if (!ask(call, &request, reply))
        return;
    bool is_suspended = resp_call_park(call, reply->again_at_ns);
    if (!is_suspended)
        resp_reply_verb(&state->out, &request, reply);
    end_span(call, &request, is_suspended ? NULL : reply);
}

/* ---- The keys of CL.THROTTLE ----------------------------------------------------------------- */

/*
 * How many of the keys had a state; -1 if there was an error, which was replied, or if the result
 * is not known yet. A suspended command continues at the key that it waited for.
 */
static int64_t count_found(struct resp_call *call, enum request_verb verb)
{
    struct request request;
    struct resp_state *state = call->state;
    struct reply *reply = &state->frontend->reply;
    for (; state->keys_done + 1 < call->n_args; state->keys_done++) {
        resp_request_key(&request, verb, call->args[state->keys_done + 1]);
        if (!ask(call, &request, reply))
            return -1;
        end_span(call, &request, reply);
        if (reply->error != REPLY_DECIDED) {
            resp_reply_error(&state->out, reply->error, reply->message);
            return -1;
        }
        state->keys_found += reply->found;
    }
    return state->keys_found;
}

static void answer_count(struct resp_call *call)
{
    bool finds = resp_command_id(call->command) == RESP_EXISTS;
    int64_t n_found = count_found(call, finds ? REQUEST_FIND : REQUEST_FORGET);
    if (n_found >= 0)
        resp_write_integer(&call->state->out, n_found);
}

static void answer_ttl(struct resp_call *call)
{
    int64_t n_found = count_found(call, REQUEST_FIND);
    uint64_t left_ns = call->state->frontend->reply.expires_after_ns;
    uint64_t unit_ns = resp_command_id(call->command) == RESP_TTL ? NS_PER_S : NS_PER_MS;
    if (n_found > 0)
        resp_write_integer(&call->state->out, (int64_t)ns_units_up(left_ns, unit_ns));
    else if (n_found == 0)
        resp_write_integer(&call->state->out, -2);
}

/* ---- The command table ----------------------------------------------------------------------- */

static void answer_command(struct resp_call *call)
{
    struct resp_state *state = call->state;
    resp_reply_commands(&state->out, call->args, call->n_args, &state->frontend->lists);
}

void (*const resp_answers[RESP_COMMANDS])(struct resp_call *call) = {
    [RESP_DEL] = answer_count,     [RESP_TTL] = answer_ttl,
    [RESP_AUTH] = answer_auth,     [RESP_ECHO] = answer_echo,
    [RESP_INFO] = answer_info,     [RESP_PING] = answer_ping,
    [RESP_PTTL] = answer_ttl,      [RESP_QUIT] = answer_quit,
    [RESP_HELLO] = answer_hello,   [RESP_RESET_CONNECTION] = answer_reset,
    [RESP_CLIENT] = answer_client, [RESP_CONFIG] = answer_config,
    [RESP_EXISTS] = answer_count,  [RESP_SELECT] = answer_select,
    [RESP_UNLINK] = answer_count,  [RESP_COMMAND] = answer_command,
    [RESP_TOP] = answer_top,       [RESP_BOOK] = answer_verb,
    [RESP_PEEK] = answer_verb,     [RESP_POOL] = resp_pool,
    [RESP_TAKE] = answer_verb,     [RESP_THROTTLE] = answer_throttle,
    [RESP_BLOCK] = answer_verb,    [RESP_CLOCK] = answer_clock,
    [RESP_RENEW] = answer_verb,    [RESP_RESET] = answer_verb,
    [RESP_CANCEL] = answer_verb,   [RESP_CHARGE] = answer_verb,
    [RESP_REFUND] = answer_verb,   [RESP_SETTLE] = answer_verb,
    [RESP_EXPLAIN] = answer_verb,  [RESP_RESERVE] = answer_verb,
    [RESP_SETQUOTA] = answer_verb, [RESP_TAKEUPTO] = answer_verb,
    [RESP_COUNT] = answer_verb,
};
