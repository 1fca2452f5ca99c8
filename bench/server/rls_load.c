/* SPDX-License-Identifier: MIT */
/*
 * Calls a gRPC server at a steady rate, whether it keeps up or not, and tells how long answers took
 * from the instant at which each call was due: a server that stalls is charged for every call that
 * was due meanwhile. h2load measures from when a request is sent, and its requests are all alike.
 *
 *     rls_load PORT CONNECTIONS RATE SECONDS PATH FILE [CALLS]
 *
 * FILE is a message behind its prefix of five bytes. Sixteen zeros in it are replaced by the number
 * of a random key in each call. With a RATE of xN there is no rate: each connection has N calls
 * under way until the time is over. Given CALLS, it ends after so many, and keys are numbered one
 * after the other.
 */
#define _GNU_SOURCE
#include "asker.h"

#include "base/ns.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define MESSAGE_MAX 4096
#define DIGITS 16
#define KEYS 1000000
#define BURST_MAX 1000 /* calls that are begun before answers are looked at again */
#define WINDOW (1 << 24)
#define OUTPUT_SIZE ((size_t)1 << 18)
#define PATIENCE_NS (5 * NS_PER_S) /* for answers after the last call */

struct load;

/* One call, taken up again when it is over. */
struct call {
    struct call *next;
    uint64_t due_ns;
    size_t sent; /* bytes of the message */
    bool is_ok;  /* grpc-status 0 came */
    char message[MESSAGE_MAX];
};

struct connection {
    struct load *load;
    nghttp2_session *session;
    int fd;
    uint8_t *output;
    size_t output_len, output_sent;
};

struct load {
    struct connection connections[CONNECTIONS_MAX];
    unsigned n_connections;
    const char *path;
    char message[MESSAGE_MAX];
    size_t message_len, digits_at; /* digits_at: message_len where there are none */
    unsigned n_under_way;          /* on each connection; 0: at a rate */
    bool is_numbered;              /* keys come one after the other */
    uint64_t rate, total, random, sent, answered, ok, counts_from_ns;
    struct asker_times times;
    struct call *free_calls;
};

static _Noreturn void fail(const char *what, int code)
{
    fprintf(stderr, "%s: %s\n", what, nghttp2_strerror(code));
    exit(1);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static ssize_t read_message(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t size,
                            uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    const struct load *load = ((struct connection *)arg)->load;
    struct call *call = source->ptr;
    size_t left = load->message_len - call->sent, len = left < size ? left : size;
    (void)session;
    (void)stream;
    memcpy(bytes, call->message + call->sent, len);
    call->sent += len;
    if (len == left)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static struct call *begin_call(struct load *load, uint64_t due_ns)
{
    struct call *call = load->free_calls;
    if (call != NULL)
        load->free_calls = call->next;
    else
        call = malloc(sizeof(*call));
    if (call == NULL)
        asker_die("memory");
    call->due_ns = due_ns;
    call->sent = 0;
    call->is_ok = false;
    memcpy(call->message, load->message, load->message_len);
    if (load->digits_at < load->message_len) {
        char digits[DIGITS + 1];
        uint64_t key = load->is_numbered ? load->sent : asker_draw(&load->random) % KEYS;
        snprintf(digits, sizeof(digits), "%0*u", DIGITS, (unsigned)key);
        memcpy(call->message + load->digits_at, digits, DIGITS);
    }
    return call;
}

static nghttp2_nv field_of(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

/* Where the server has no stream for it yet, it waits in the session. */
static void ask(struct load *load, struct connection *connection, uint64_t due_ns)
{
    struct call *call = begin_call(load, due_ns);
    const nghttp2_nv fields[] = {
        field_of(":method", "POST"),
        field_of(":scheme", "http"),
        field_of(":path", load->path),
        field_of(":authority", "127.0.0.1"),
        field_of("content-type", "application/grpc"),
        field_of("te", "trailers"),
    };
    const nghttp2_data_provider provider = {.source = {.ptr = call}, .read_callback = read_message};
    int code = nghttp2_submit_request(connection->session, NULL, fields,
                                      sizeof(fields) / sizeof(fields[0]), &provider, call);
    if (code < 0)
        fail("a call cannot begin", code);
    load->sent++;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    static const char status[] = "grpc-status";
    struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags;
    (void)arg;
    if (call != NULL && name_len == strlen(status) && memcmp(name, status, name_len) == 0)
        call->is_ok = value_len == 1 && value[0] == '0';
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t why, void *arg)
{
    struct connection *connection = arg;
    struct load *load = connection->load;
    struct call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (call == NULL || why != NGHTTP2_NO_ERROR)
        return 0; /* it stays unanswered */
    load->answered++;
    load->ok += call->is_ok;
    if (call->due_ns >= load->counts_from_ns)
        asker_times_add(&load->times, asker_now_ns() - call->due_ns);
    call->next = load->free_calls;
    load->free_calls = call;
    if (load->n_under_way > 0 && load->sent < load->total)
        ask(load, connection, asker_now_ns());
    return 0;
}

/* ---- Connections ----------------------------------------------------------------------------- */

static void open_connection(struct load *load, struct connection *connection, uint16_t port)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
    };
    nghttp2_session_callbacks *callbacks;
    connection->load = load;
    connection->output = malloc(OUTPUT_SIZE);
    if (connection->output == NULL || nghttp2_session_callbacks_new(&callbacks) != 0)
        asker_die("memory");
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    int code = nghttp2_session_client_new(&connection->session, callbacks, connection);
    nghttp2_session_callbacks_del(callbacks);
    if (code == 0)
        code = nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings, 2);
    if (code == 0)
        code = nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0,
                                                     WINDOW);
    if (code != 0)
        fail("a session cannot begin", code);
    connection->fd = asker_dial(port);
}

/* As much as the session has and the socket takes: what is left goes with the next. */
static void send_output(struct connection *connection)
{
    for (;;) {
        const uint8_t *bytes;
        ssize_t len = 0;
        /* nghttp2 gives a frame at a time: at most 16 KiB and its head. */
        while (OUTPUT_SIZE - connection->output_len >= 2 * 16384 &&
               (len = nghttp2_session_mem_send(connection->session, &bytes)) > 0) {
            memcpy(connection->output + connection->output_len, bytes, (size_t)len);
            connection->output_len += (size_t)len;
        }
        if (len < 0)
            fail("a session cannot send", (int)len);
        if (connection->output_sent == connection->output_len)
            return;
        ssize_t sent =
            send(connection->fd, connection->output + connection->output_sent,
                 connection->output_len - connection->output_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (sent < 0)
            asker_die("send");
        connection->output_sent += (size_t)sent;
        if (connection->output_sent == connection->output_len)
            connection->output_sent = connection->output_len = 0;
    }
}

static void take_answers(struct connection *connection)
{
    static uint8_t bytes[65536];
    const ssize_t len = recv(connection->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len < 0)
        asker_die("recv");
    if (len == 0) {
        fprintf(stderr, "the server has closed a connection\n");
        exit(1);
    }
    ssize_t code = nghttp2_session_mem_recv(connection->session, bytes, (size_t)len);
    if (code < 0)
        fail("the server does not answer in HTTP/2", (int)code);
}

/* ---- The load -------------------------------------------------------------------------------- */

/* Those that are due at a rate. */
static void ask_due(struct load *load, uint64_t start_ns, uint64_t now_ns)
{
    for (int i = 0; i < BURST_MAX && load->sent < load->total; i++) {
        const uint64_t due_ns = start_ns + load->sent * NS_PER_S / load->rate;
        if (due_ns > now_ns)
            break;
        ask(load, &load->connections[load->sent % load->n_connections], due_ns);
    }
}

/* The first of those that are under way all the time: others follow as they are answered. */
static void ask_first(struct load *load, uint64_t now_ns)
{
    for (unsigned i = 0; i < load->n_connections * load->n_under_way && load->sent < load->total;
         i++)
        ask(load, &load->connections[i % load->n_connections], now_ns);
}

/* Returns how many seconds it took. */
static double run(struct load *load, double seconds)
{
    const int poll = epoll_create1(0);
    for (unsigned i = 0; i < load->n_connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, load->connections[i].fd, &event) != 0)
            asker_die("epoll_ctl");
    }
    /* The first fifth warms up and is not counted. */
    const uint64_t start_ns = asker_now_ns(), length_ns = (uint64_t)(seconds * NS_PER_S);
    const uint64_t end_ns = start_ns + length_ns;
    load->counts_from_ns = start_ns + length_ns / 5;
    uint64_t now_ns = start_ns;
    ask_first(load, now_ns);
    for (; load->answered < load->total && now_ns < end_ns + PATIENCE_NS; now_ns = asker_now_ns()) {
        if (load->n_under_way == 0)
            ask_due(load, start_ns, now_ns);
        else if (now_ns >= end_ns)
            load->total = load->sent;
        for (unsigned i = 0; i < load->n_connections; i++)
            send_output(&load->connections[i]);
        struct epoll_event events[64];
        /* At a rate it never sleeps, so that no call is late. */
        const int ready = epoll_wait(poll, events, 64, load->n_under_way > 0);
        for (int i = 0; i < ready; i++)
            take_answers(&load->connections[events[i].data.u32]);
    }
    close(poll);
    return (double)(now_ns - start_ns) / NS_PER_S;
}

static void read_evaluation(struct load *load, const char *name)
{
    static const char zeros[] = "0000000000000000";
    FILE *file = fopen(name, "re");
    if (file == NULL)
        asker_die(name);
    load->message_len = fread(load->message, 1, sizeof(load->message), file);
    fclose(file);
    const char *found = memmem(load->message, load->message_len, zeros, DIGITS);
    load->digits_at = found != NULL ? (size_t)(found - load->message) : load->message_len;
}

int main(int argc, char **argv)
{
    if (argc != 7 && argc != 8) {
        fprintf(stderr, "usage: %s PORT CONNECTIONS RATE SECONDS PATH FILE [CALLS]\n", argv[0]);
        return 2;
    }
    static struct load load;
    load.n_connections = (unsigned)atoi(argv[2]);
    const bool is_closed = argv[3][0] == 'x';
    load.rate = strtoull(argv[3] + is_closed, NULL, 10);
    load.n_under_way = is_closed ? (unsigned)load.rate : 0;
    load.path = argv[5];
    load.random = UINT64_C(0x9e3779b97f4a7c15);
    const double seconds = atof(argv[4]);
    load.total = is_closed ? UINT64_MAX : (uint64_t)((double)load.rate * seconds);
    load.is_numbered = argc == 8;
    if (load.is_numbered)
        load.total = strtoull(argv[7], NULL, 10);
    read_evaluation(&load, argv[6]);
    if (load.n_connections < 1 || load.n_connections > CONNECTIONS_MAX || load.rate < 1 ||
        load.total < 1 || seconds <= 0 || load.message_len == 0 ||
        load.message_len == sizeof(load.message)) {
        fprintf(stderr, "%s: a number or the message is out of its range\n", argv[0]);
        return 2;
    }
    for (unsigned i = 0; i < load.n_connections; i++)
        open_connection(&load, &load.connections[i], (uint16_t)atoi(argv[1]));
    const double took_s = run(&load, seconds);
    printf("{\"sent\": %llu, \"answered\": %llu, \"ok\": %llu, \"seconds\": %.6f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}\n",
           (unsigned long long)load.sent, (unsigned long long)load.answered,
           (unsigned long long)load.ok, took_s, asker_times_us(&load.times, 0.5),
           asker_times_us(&load.times, 0.99), asker_times_us(&load.times, 0.999));
    for (unsigned i = 0; i < load.n_connections; i++) {
        nghttp2_session_del(load.connections[i].session);
        free(load.connections[i].output);
        close(load.connections[i].fd);
    }
    while (load.free_calls != NULL) {
        struct call *call = load.free_calls;
        load.free_calls = call->next;
        free(call);
    }
    return 0;
}
