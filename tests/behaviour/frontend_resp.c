/* SPDX-License-Identifier: MIT */
/* STINT.TAKE and the other verbs on a connection of RESP3. */
#include "behaviour/frontend.h"
#include "behaviour/store.h"
#include "frontend/resp/resp_conn.h"
#include "trace/reply_text.h"

#include <stdio.h>

struct resp_server {
    struct test_server server;
    struct resp_frontend *frontend;
    struct conn *conn;
};

/* A command: its arguments, and how many they are. */
struct command {
    char *arguments;
    size_t len, n;
    FILE *out;
};

static void write_argument(struct command *command, struct span argument)
{
    fprintf(command->out, "$%zu\r\n", argument.len);
    fwrite(argument.ptr, 1, argument.len, command->out);
    fputs("\r\n", command->out);
    command->n++;
}

static void write_number(struct command *command, uint64_t number)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%ju", (uintmax_t)number);
    write_argument(command, span_of_text(digits));
}

static void write_option(struct command *command, const char *name, uint64_t number)
{
    write_argument(command, span_of_text(name));
    write_number(command, number);
}

static void write_target(struct command *command, const struct request *request)
{
    if (request->n_descriptors > 0) {
        write_argument(command, span_of_text("DOMAIN"));
        write_argument(command, request->domain);
    }
    for (size_t i = 0; i < request->n_descriptors; i++) {
        const struct descriptor *descriptor = &request->descriptors[i];
        write_option(command, "DESCRIPTOR", descriptor->n_entries);
        for (size_t k = 0; k < descriptor->n_entries; k++) {
            write_argument(command, descriptor->entries[k].key);
            write_argument(command, descriptor->entries[k].value);
        }
        if (descriptor->has_hits)
            write_option(command, "COST", descriptor->hits);
    }
    for (size_t i = 0; i < request->n_items; i++) {
        write_argument(command, span_of_text("QUOTA"));
        write_argument(command, request->items[i].quota);
        write_argument(command, request->items[i].key);
        if (request->items[i].has_cost)
            write_option(command, "COST", request->items[i].cost);
    }
}

static void write_options(struct command *command, const struct request *request)
{
    static const char *const times[REQUEST_VERBS] = {
        [REQUEST_RESERVE] = "LIFETIME", [REQUEST_BOOK] = "MAXWAIT", [REQUEST_BLOCK] = "FOR"};
    if (times[request->verb] != NULL)
        write_option(command, times[request->verb], request->lifetime_ns / MS);
    if (request->verb == REQUEST_SET_QUOTA && request->quota.len > 0) {
        write_argument(command, span_of_text("TO"));
        write_argument(command, request->quota);
    } else if (request->verb == REQUEST_SET_QUOTA) {
        write_argument(command, span_of_text("DEFAULT"));
    }
    if (request->id.len > 0) {
        write_argument(command, span_of_text("ID"));
        write_argument(command, request->id);
    }
}

/* STINT.TAKEUPTO of take_upto. */
static void write_name(struct command *command, uint8_t verb)
{
    char name[32] = "STINT.";
    size_t len = strlen(name);
    for (const char *from = request_verbs[verb].name; *from != '\0'; from++)
        if (*from != '_')
            name[len++] = (char)(*from - 'a' + 'A');
    write_argument(command, span_of(name, len));
}

static void write_counter(struct command *command, const struct request *request)
{
    char amount[24];
    write_argument(command, span_of_text("STINT.COUNT"));
    write_argument(command, request->key);
    if (request->verb == REQUEST_COUNT_RESET) {
        write_argument(command, span_of_text("RESET"));
        return;
    }
    snprintf(amount, sizeof(amount), "%jd", (intmax_t)request->amount);
    write_argument(command, span_of_text(amount));
    if (request->amount > 0)
        write_number(command, request->lifetime_ns / MS);
}

static void write_arguments(struct command *command, const struct request *request)
{
    if (request->verb == REQUEST_COUNT || request->verb == REQUEST_COUNT_RESET) {
        write_counter(command, request);
        return;
    }
    write_name(command, request->verb);
    if (request->ticket_text.len > 0) {
        write_argument(command, request->ticket_text);
        if (request->verb == REQUEST_SETTLE)
            write_number(command, request->cost);
    } else {
        if (!is_without_decision(request->verb))
            write_option(command, "COST", request->cost);
        write_target(command, request);
    }
    write_options(command, request);
}

/* The command in bytes, to be freed. */
static struct span command_of(const struct request *request)
{
    struct command command = {.n = 0};
    char *bytes;
    size_t len;
    command.out = open_memstream(&command.arguments, &command.len);
    FILE *out = open_memstream(&bytes, &len);
    assert_true(command.out != NULL && out != NULL);
    write_arguments(&command, request);
    fclose(command.out);
    fprintf(out, "*%zu\r\n", command.n);
    fwrite(command.arguments, 1, command.len, out);
    fclose(out);
    free(command.arguments);
    return span_of(bytes, len);
}

/* Sends bytes, and writes the one reply to them as a line of text. */
static void say(struct resp_server *resp, struct span bytes, uint64_t now_ns, char *text,
                size_t text_size)
{
    struct conn *conn = resp->conn;
    conn->ops->feed(conn, bytes, now_ns);
    struct span output = conn->ops->output(conn);
    FILE *out = fmemopen(text, text_size, "w");
    assert_non_null(out);
    long len = reply_text(out, output);
    fclose(out);
    assert_int_equal(len, output.len);
    conn->ops->sent(conn, output.len, now_ns);
}

static void *open_resp(const char *yaml, int64_t epoch_ns)
{
    char hello[512];
    struct resp_server *resp = malloc(sizeof(*resp));
    assert_non_null(resp);
    serve_since(&resp->server, yaml, epoch_ns);
    store_give(resp->server.service);
    resp->frontend = resp_frontend_new(resp->server.service, NULL, NULL);
    assert_non_null(resp->frontend);
    resp->conn = resp_conn_new(resp->frontend, span_of(NULL, 0));
    assert_non_null(resp->conn);
    say(resp, span_of_text("HELLO 3\r\n"), 0, hello, sizeof(hello));
    assert_non_null(strstr(hello, "\"proto\": 3"));
    return resp;
}

static void close_resp(void *frontend)
{
    struct resp_server *resp = frontend;
    resp->conn->ops->free(resp->conn);
    resp_frontend_free(resp->frontend);
    server_close(&resp->server);
    free(resp);
}

static bool has_words(const struct request *request)
{
    bool has = !request->has_envoy_hits;
    for (size_t i = 0; i < request->n_descriptors; i++)
        has &= request->descriptors[i].override == NULL && !request->descriptors[i].is_refund;
    return has;
}

/* OK, or an error of which the first word is its kind. */
static bool read_line(struct result *result)
{
    static const char *const words[] = {
        [REPLY_BAD_REQUEST] = "-ERR ", [REPLY_FORBIDDEN] = "-NOPERM ",
        [REPLY_GONE] = "-GONE ",       [REPLY_CONFLICT] = "-CONFLICT ",
        [REPLY_FULL] = "-FULL ",       [REPLY_UNAVAILABLE] = "-UNAVAILABLE "};
    if (strcmp(result->reply, "OK") == 0)
        strcpy(result->all.outcome, "ok");
    for (size_t i = REPLY_BAD_REQUEST; i < N(words); i++)
        if (strncmp(result->reply, words[i], strlen(words[i])) == 0)
            strcpy(result->all.outcome, error_names[i]);
    return result->all.outcome[0] != '\0';
}

static bool decide_resp(void *frontend, void *beside, const struct request *request,
                        uint64_t now_ns, const struct result *exact, struct result *result)
{
    struct resp_server *resp = frontend;
    (void)beside, (void)exact;
    if (!has_words(request))
        return service_decide(&resp->server, request, now_ns, result);
    struct span bytes = command_of(request);
    memset(result, 0, sizeof(*result));
    say(resp, bytes, now_ns, result->reply, sizeof(result->reply));
    free((void *)(uintptr_t)bytes.ptr);
    if (result->reply[0] != '{')
        return read_line(result);
    /* A map of RESP3 in text is JSON. */
    json_t *reply = json_loads(result->reply, JSON_REJECT_DUPLICATES, NULL);
    json_t *none = json_integer(-1);
    bool is_read = request->verb == REQUEST_COUNT ? result_read_count(result, reply)
                                                  : result_read(result, reply, none);
    json_decref(none);
    json_decref(reply);
    return is_read;
}

const struct frontend frontend_resp = {"resp", open_resp, decide_resp, close_resp};
