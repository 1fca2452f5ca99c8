/* SPDX-License-Identifier: MIT */
/*
 * Asks a server as fast as it answers: each connection sends a pipeline of one command, waits for
 * all of its replies, and sends it again, as redis-benchmark does. Replies are only stepped over,
 * so that the load costs less than the server that answers.
 *
 *     closed_loop PORT CONNECTIONS PIPELINE REQUESTS WORD…
 *
 * Twelve digits stand where the words have `__rand_int__` (a random one of a million numbers, as
 * redis-benchmark -r 1000000 writes them) or `__next_int__` (one number after the other).
 *
 * An error among the replies is the end: what it then measures is nothing.
 */
#define _GNU_SOURCE
#include "asker.h"

#include "base/ns.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define PIPELINE_MAX 1024
#define INPUT_SIZE ((size_t)1 << 18)
#define DIGITS 12
#define KEYS 1000000

static const char *const placeholders[] = {"__rand_int__", "__next_int__"};

/* Where the bytes of a connection stand between two reads. */
struct reader {
    uint64_t values; /* of the reply that is being read, still to come */
    uint64_t number; /* of the head that is being read */
    uint64_t skip;   /* bytes of a string, and what ends it */
    char type;       /* of that head; 0: the next byte is one */
    bool is_null;
};

struct connection {
    int fd;
    struct reader reader;
    unsigned waiting; /* requests without a reply */
};

struct load {
    struct connection *connections;
    unsigned n_connections, pipeline;
    char *requests; /* a whole pipeline of them */
    size_t request_len;
    size_t digits_at; /* in each request; request_len where there are none */
    bool is_random;
    uint64_t wanted, sent, answered, random;
    char *input;
};

/* ---- Replies --------------------------------------------------------------------------------- */

/* What a head says is behind it. False: it is an error. */
static bool take_head(struct reader *reader)
{
    bool is_string = reader->type == '$' || reader->type == '=' || reader->type == '!';
    if (reader->type == '-' || reader->type == '!')
        return false;
    if (is_string && !reader->is_null)
        reader->skip = reader->number + 2;
    else if (reader->type == '*' && !reader->is_null)
        reader->values += reader->number;
    else if (reader->type == '%')
        reader->values += 2 * reader->number;
    reader->values--;
    reader->type = 0;
    return true;
}

/* How many replies end in these bytes. */
static unsigned count_replies(struct reader *reader, const char *bytes, size_t len)
{
    unsigned replies = 0;
    for (size_t i = 0; i < len;) {
        if (reader->skip > 0) {
            size_t skip = reader->skip < len - i ? reader->skip : len - i;
            reader->skip -= skip;
            i += skip;
        } else if (reader->type == 0) {
            reader->values += reader->values == 0; /* a new one */
            reader->type = bytes[i++];
            reader->number = 0;
            reader->is_null = false;
        } else if (bytes[i++] != '\n') {
            unsigned digit = (unsigned)(unsigned char)bytes[i - 1] - '0';
            reader->is_null |= bytes[i - 1] == '-';
            if (digit <= 9)
                reader->number = reader->number * 10 + digit;
            continue;
        } else if (!take_head(reader)) {
            fprintf(stderr, "the server answered an error\n");
            exit(1);
        }
        replies += reader->values == 0 && reader->skip == 0;
    }
    return replies;
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void number_requests(struct load *load, unsigned n)
{
    for (unsigned i = 0; load->digits_at < load->request_len && i < n; i++) {
        uint64_t number = load->is_random ? asker_draw(&load->random) % KEYS : load->sent + i;
        char *digits = load->requests + i * load->request_len + load->digits_at;
        for (int digit = DIGITS - 1; digit >= 0; digit--, number /= 10)
            digits[digit] = (char)('0' + number % 10);
    }
}

static void ask(struct load *load, struct connection *connection)
{
    uint64_t left = load->wanted - load->sent;
    unsigned n = left < load->pipeline ? (unsigned)left : load->pipeline;
    size_t len = n * load->request_len;
    number_requests(load, n);
    connection->waiting = n;
    load->sent += n;
    if (n > 0 && send(connection->fd, load->requests, len, MSG_NOSIGNAL) != (ssize_t)len)
        asker_die("send");
}

static void take_replies(struct load *load, struct connection *connection)
{
    const ssize_t len = recv(connection->fd, load->input, INPUT_SIZE, MSG_DONTWAIT);
    if (len <= 0) {
        if (len < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        asker_die("recv");
    }
    unsigned replies = count_replies(&connection->reader, load->input, (size_t)len);
    if (replies > connection->waiting) {
        fprintf(stderr, "the server answered more than it was asked\n");
        exit(1);
    }
    load->answered += replies;
    connection->waiting -= replies;
    if (connection->waiting == 0)
        ask(load, connection);
}

static void run(struct load *load)
{
    const int poll = epoll_create1(0);
    for (unsigned i = 0; i < load->n_connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, load->connections[i].fd, &event) != 0)
            asker_die("epoll_ctl");
        ask(load, &load->connections[i]);
    }
    while (load->answered < load->wanted) {
        struct epoll_event events[64];
        const int ready = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < ready; i++)
            take_replies(load, &load->connections[events[i].data.u32]);
    }
    close(poll);
}

/* ---- The requests ---------------------------------------------------------------------------- */

static void make_requests(struct load *load, char **words, int n_words)
{
    size_t size = 0;
    FILE *out = open_memstream(&load->requests, &size);
    for (unsigned i = 0; out != NULL && i < load->pipeline; i++) {
        fprintf(out, "*%d\r\n", n_words);
        for (int word = 0; word < n_words; word++)
            fprintf(out, "$%zu\r\n%s\r\n", strlen(words[word]), words[word]);
    }
    if (out == NULL || fclose(out) != 0)
        asker_die("memory");
    load->request_len = load->digits_at = size / load->pipeline;
    for (int i = 0; i < 2; i++) {
        const char *found = memmem(load->requests, load->request_len, placeholders[i], DIGITS);
        if (found != NULL) {
            load->digits_at = (size_t)(found - load->requests);
            load->is_random = i == 0;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: %s PORT CONNECTIONS PIPELINE REQUESTS WORD...\n", argv[0]);
        return 2;
    }
    struct load load = {.n_connections = (unsigned)atoi(argv[2]),
                        .pipeline = (unsigned)atoi(argv[3]),
                        .wanted = strtoull(argv[4], NULL, 10),
                        .random = UINT64_C(0x9e3779b97f4a7c15)};
    if (load.n_connections < 1 || load.n_connections > CONNECTIONS_MAX || load.pipeline < 1 ||
        load.pipeline > PIPELINE_MAX || load.wanted < 1) {
        fprintf(stderr, "%s: a number is out of its range\n", argv[0]);
        return 2;
    }
    make_requests(&load, argv + 5, argc - 5);
    load.connections = calloc(load.n_connections, sizeof(*load.connections));
    load.input = malloc(INPUT_SIZE);
    if (load.connections == NULL || load.input == NULL)
        asker_die("memory");
    for (unsigned i = 0; i < load.n_connections; i++)
        load.connections[i].fd = asker_dial((uint16_t)atoi(argv[1]));
    const uint64_t begun_ns = asker_now_ns();
    run(&load);
    const double seconds = (double)(asker_now_ns() - begun_ns) / NS_PER_S;
    printf("{\"answered\": %llu, \"seconds\": %.6f}\n", (unsigned long long)load.answered, seconds);
    for (unsigned i = 0; i < load.n_connections; i++)
        close(load.connections[i].fd);
    free(load.connections);
    free(load.requests);
    free(load.input);
    return 0;
}
