/* SPDX-License-Identifier: MIT */
/*
 * Asks a server at a steady rate, whether it keeps up or not, and tells how long answers took from
 * the instant at which each request was due: a server that stalls is charged for everybody who
 * would have asked meanwhile. Requests are CL.THROTTLE of random keys; a server that sends them
 * back as they are is asked the same way, since an answer is told by its number of lines.
 */
#define _GNU_SOURCE
#include "asker.h"

#include "base/ns.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define PENDING_MAX 4096 /* requests without an answer, per connection */

struct connection {
    int fd;
    unsigned lines;            /* of the answer that is being read */
    uint32_t first, n_pending; /* a ring of instants */
    uint64_t due_ns[PENDING_MAX];
};

struct load {
    struct connection *connections;
    unsigned n_connections, lines_per_answer, keys;
    uint64_t rate, late_ns_max, random;
    struct asker_times *times;
};

/* Keys as redis-benchmark writes them, which made them before. */
static void ask(struct load *load, struct connection *connection, uint64_t due_ns)
{
    char text[128];
    const int len = snprintf(text, sizeof(text),
                             "*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:%012u\r\n$2\r\n99\r\n"
                             "$3\r\n100\r\n$2\r\n60\r\n",
                             (unsigned)(asker_draw(&load->random) % load->keys));
    if (connection->n_pending == PENDING_MAX) {
        fprintf(stderr, "the server does not keep up with this rate\n");
        exit(1);
    }
    connection->due_ns[(connection->first + connection->n_pending++) % PENDING_MAX] = due_ns;
    if (send(connection->fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        asker_die("send");
}

static void take_answers(struct load *load, struct connection *connection, uint64_t counts_from_ns)
{
    char bytes[65536];
    const ssize_t len = recv(connection->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (len <= 0) {
        if (len < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        asker_die("recv");
    }
    const uint64_t now_ns = asker_now_ns();
    for (ssize_t i = 0; i < len; i++) {
        if (bytes[i] != '\n' || ++connection->lines < load->lines_per_answer)
            continue;
        connection->lines = 0;
        const uint64_t due_ns = connection->due_ns[connection->first];
        connection->first = (connection->first + 1) % PENDING_MAX;
        connection->n_pending--;
        if (due_ns >= counts_from_ns)
            asker_times_add(load->times, now_ns - due_ns);
    }
}

static void run(struct load *load, double seconds)
{
    const int poll = epoll_create1(0);
    for (unsigned i = 0; i < load->n_connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, load->connections[i].fd, &event) != 0)
            asker_die("epoll_ctl");
    }
    /* The first fifth warms up and is not counted. */
    const uint64_t start_ns = asker_now_ns(), length_ns = (uint64_t)(seconds * NS_PER_S);
    const uint64_t counts_from_ns = start_ns + length_ns / 5, end_ns = start_ns + length_ns;
    uint64_t sent = 0;
    for (uint64_t now_ns = start_ns; now_ns < end_ns; now_ns = asker_now_ns()) {
        uint64_t due_ns = start_ns + sent * NS_PER_S / load->rate;
        while (due_ns <= now_ns) {
            ask(load, &load->connections[sent % load->n_connections], due_ns);
            if (now_ns - due_ns > load->late_ns_max)
                load->late_ns_max = now_ns - due_ns;
            due_ns = start_ns + ++sent * NS_PER_S / load->rate;
        }
        struct epoll_event events[64];
        const int ready = epoll_wait(poll, events, 64, 0);
        for (int i = 0; i < ready; i++)
            take_answers(load, &load->connections[events[i].data.u32], counts_from_ns);
    }
    close(poll);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: %s PORT CONNECTIONS RATE SECONDS LINES_PER_ANSWER\n", argv[0]);
        return 2;
    }
    struct load load = {.n_connections = (unsigned)atoi(argv[2]),
                        .rate = strtoull(argv[3], NULL, 10),
                        .lines_per_answer = (unsigned)atoi(argv[5]),
                        .keys = 1000000,
                        .random = UINT64_C(0x9e3779b97f4a7c15)};
    const double seconds = atof(argv[4]);
    if (load.n_connections < 1 || load.n_connections > CONNECTIONS_MAX || load.rate < 1 ||
        seconds <= 0 || load.lines_per_answer < 1) {
        fprintf(stderr, "%s: a number is out of its range\n", argv[0]);
        return 2;
    }
    load.connections = calloc(load.n_connections, sizeof(*load.connections));
    load.times = calloc(1, sizeof(*load.times));
    if (load.connections == NULL || load.times == NULL)
        asker_die("memory");
    for (unsigned i = 0; i < load.n_connections; i++)
        load.connections[i].fd = asker_dial((uint16_t)atoi(argv[1]));
    run(&load, seconds);
    printf("{\"answered\": %llu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, "
           "\"sender_late_us\": %.1f}\n",
           (unsigned long long)load.times->n, asker_times_us(load.times, 0.5),
           asker_times_us(load.times, 0.99), asker_times_us(load.times, 0.999),
           (double)load.late_ns_max / 1000);
    for (unsigned i = 0; i < load.n_connections; i++)
        close(load.connections[i].fd);
    free(load.connections);
    free(load.times);
    return 0;
}
