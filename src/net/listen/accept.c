/* SPDX-License-Identifier: MIT */
/* One accept4() for each connection; whether and how it is served is decided later. */
#define _GNU_SOURCE
#include "net/listen/accept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCEPTS_AT_ONCE 64 /* before other sockets have their turn */
#define PAUSE_MS 100

struct acceptor {
    struct acceptor_options options;
    uv_poll_t poll;
    uv_timer_t pause;
    int open_handles;
    bool is_closing;
};

static void on_connection(uv_poll_t *poll, int status, int events);

static void resume(uv_timer_t *pause)
{
    struct acceptor *acceptor = pause->data;
    uv_poll_start(&acceptor->poll, UV_READABLE, on_connection);
}

static void pause_accepting(struct acceptor *acceptor)
{
    log_line(acceptor->options.log, LOG_ACCEPT_PAUSED, LOG_TEXT("reason", strerror(errno)),
             LOG_TEXT("frontend", port_name(acceptor->options.listener->port)));
    uv_poll_stop(&acceptor->poll);
    if (!acceptor->is_closing)
        uv_timer_start(&acceptor->pause, resume, PAUSE_MS, 0);
}

enum metrics_frontend port_frontend(enum port port)
{
    return port == PORT_RESP || port == PORT_RESP_TLS   ? METRICS_RESP
           : port == PORT_GRPC || port == PORT_GRPC_TLS ? METRICS_GRPC
                                                        : METRICS_HTTP;
}

static void refuse(const struct acceptor_options *options, int fd,
                   enum connection_limiter_answer answer, const struct sockaddr *peer)
{
    char address[ENDPOINT_TEXT_SIZE];
    bool is_full = answer == CONNECTION_LIMIT_TOTAL;
    log_line(options->log, LOG_REFUSED, LOG_TEXT("frontend", port_name(options->listener->port)),
             LOG_TEXT("peer", endpoint_text(peer, address)),
             LOG_TEXT("reason", is_full ? "the limit of connections is reached"
                                        : "the limit of connections of one address is reached"));
    metrics_refused(options->metrics, port_frontend(options->listener->port),
                    is_full ? METRICS_REFUSED_TOTAL : METRICS_REFUSED_ADDRESS);
    close(fd);
}

/* False where no more connections can be accepted now. */
static bool accept_one(struct acceptor *acceptor)
{
    const struct acceptor_options *options = &acceptor->options;
    struct sockaddr_storage peer = {0};
    socklen_t peer_len = sizeof(peer);
    int fd = accept4(options->listener->fd, (struct sockaddr *)&peer, &peer_len,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            pause_accepting(acceptor);
        /* accept4() reports errors of connections that failed in the queue. */
        return errno == ECONNABORTED || errno == EINTR || errno == EPROTO;
    }
    struct connection_slot *slot;
    enum connection_limiter_answer answer =
        connection_limiter_enter(options->connection_limiter, (struct sockaddr *)&peer, &slot);
    if (answer == CONNECTION_ADMITTED)
        options->accepted(options->arg, options->listener->port, fd, (struct sockaddr *)&peer,
                          slot);
    else
        refuse(options, fd, answer, (struct sockaddr *)&peer);
    return true;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct acceptor *acceptor = poll->data;
    for (int i = 0; i < ACCEPTS_AT_ONCE && accept_one(acceptor); i++)
        ;
}

struct acceptor *acceptor_new(const struct acceptor_options *options)
{
    struct acceptor *acceptor = calloc(1, sizeof(*acceptor));
    if (acceptor == NULL)
        return NULL;
    acceptor->options = *options;
    if (uv_poll_init_socket(options->loop, &acceptor->poll, options->listener->fd) != 0) {
        free(acceptor);
        return NULL;
    }
    uv_timer_init(options->loop, &acceptor->pause);
    acceptor->poll.data = acceptor->pause.data = acceptor;
    acceptor->open_handles = 2;
    uv_poll_start(&acceptor->poll, UV_READABLE, on_connection);
    return acceptor;
}

void acceptor_empty_queue(struct acceptor *acceptor)
{
    while (accept_one(acceptor))
        ;
}

static void on_closed(uv_handle_t *handle)
{
    struct acceptor *acceptor = handle->data;
    if (--acceptor->open_handles == 0)
        free(acceptor);
}

void acceptor_close(struct acceptor *acceptor)
{
    if (acceptor == NULL || acceptor->is_closing)
        return;
    acceptor->is_closing = true;
    uv_close((uv_handle_t *)&acceptor->poll, on_closed);
    uv_close((uv_handle_t *)&acceptor->pause, on_closed);
}
