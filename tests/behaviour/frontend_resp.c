/* SPDX-License-Identifier: MIT */
/* STINT.TAKE on a connection of RESP3. */
#include "behaviour/frontend.h"
#include "behaviour/store.h"
#include "frontend/resp/resp_conn.h"
#include "trace/reply_text.h"

#include <stdio.h>

struct talk_of_resp {
    struct serving serving;
    struct resp_frontend *frontend;
    struct conn *conn;
};

static void write_argument(FILE *out, struct span argument)
{
    fprintf(out, "$%zu\r\n", argument.len);
    fwrite(argument.ptr, 1, argument.len, out);
    fputs("\r\n", out);
}

static void write_number(FILE *out, size_t number)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%zu", number);
    write_argument(out, span_of_text(digits));
}

static size_t count_arguments(const struct request *request)
{
    size_t n = 5; /* STINT.TAKE COST n DOMAIN domain */
    for (size_t i = 0; i < request->n_descriptors; i++)
        n += 2 + 2 * request->descriptors[i].n_entries;
    return n;
}

static void write_descriptor(FILE *out, const struct descriptor *descriptor)
{
    write_argument(out, span_of_text("DESCRIPTOR"));
    write_number(out, descriptor->n_entries);
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        write_argument(out, descriptor->entries[i].key);
        write_argument(out, descriptor->entries[i].value);
    }
}

static void write_take(FILE *out, const struct request *request)
{
    fprintf(out, "*%zu\r\n", count_arguments(request));
    write_argument(out, span_of_text("STINT.TAKE"));
    write_argument(out, span_of_text("COST"));
    write_number(out, request->cost);
    write_argument(out, span_of_text("DOMAIN"));
    write_argument(out, request->domain);
    for (size_t i = 0; i < request->n_descriptors; i++)
        write_descriptor(out, &request->descriptors[i]);
}

/* Sends bytes, and writes the one reply to them as a line of text. */
static void say(struct talk_of_resp *talk, struct span bytes, uint64_t now_ns, char *text,
                size_t text_size)
{
    struct conn *conn = talk->conn;
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
    struct talk_of_resp *talk = malloc(sizeof(*talk));
    assert_non_null(talk);
    serve_since(&talk->serving, yaml, epoch_ns);
    store_give(talk->serving.service);
    talk->frontend = resp_frontend_new(talk->serving.service, NULL, NULL);
    assert_non_null(talk->frontend);
    talk->conn = resp_conn_new(talk->frontend, span_of(NULL, 0));
    assert_non_null(talk->conn);
    say(talk, span_of_text("HELLO 3\r\n"), 0, hello, sizeof(hello));
    assert_non_null(strstr(hello, "\"proto\": 3"));
    return talk;
}

static void close_resp(void *frontend)
{
    struct talk_of_resp *talk = frontend;
    talk->conn->ops->free(talk->conn);
    resp_frontend_free(talk->frontend);
    serve_no_more(&talk->serving);
    free(talk);
}

static bool ask_resp(void *frontend, const struct request *request, uint64_t now_ns,
                     struct told *told)
{
    char *bytes;
    size_t len;
    FILE *out = open_memstream(&bytes, &len);
    assert_non_null(out);
    write_take(out, request);
    fclose(out);
    say(frontend, span_of(bytes, len), now_ns, told->answer, sizeof(told->answer));
    free(bytes);
    /* A map of RESP3 in text is JSON. */
    json_t *answer = json_loads(told->answer, JSON_REJECT_DUPLICATES, NULL);
    json_t *none = json_integer(-1);
    bool is_told = told_read(told, answer, none);
    json_decref(none);
    json_decref(answer);
    return is_told;
}

const struct frontend frontend_resp = {"resp", open_resp, ask_resp, close_resp};
