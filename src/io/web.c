/* SPDX-License-Identifier: MIT */
/* Daemons come and go with their certificates; a connection stays with the one that adopted it. */
#define _GNU_SOURCE
#include "io/web.h"

#include <stdlib.h>
#include <unistd.h>

struct daemon {
    struct daemon *next;
    struct http *http;
    struct tls *tls; /* NULL: plain. Its texts must outlive the daemon */
    bool is_older;   /* another has come in its place */
};

struct web {
    struct web_options options;
    struct daemon *plain, *tls; /* who adopts; NULL where there is no such port */
    struct daemon *all;
};

static void on_connection_closed(void *arg, void *seat)
{
    struct web *web = arg;
    gate_leave(web->options.gate, seat);
    web->options.emptied(web->options.arg);
}

static int open_daemon(struct web *web, struct tls *tls, struct daemon **daemon,
                       struct stint_error *error)
{
    struct daemon *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for HTTP");
    int code = http_open(&made->http, web->options.loop,
                         &(struct http_options){
                             .door = web->options.door,
                             .limits = web->options.limits,
                             .tls = tls != NULL ? tls_texts(tls) : NULL,
                             .closed = on_connection_closed,
                             .closed_arg = web,
                         },
                         error);
    if (code != 0) {
        free(made);
        return code;
    }
    made->tls = tls_ref(tls);
    made->next = web->all;
    web->all = *daemon = made;
    return 0;
}

static void free_daemon(void *arg)
{
    struct daemon *daemon = arg;
    tls_unref(daemon->tls);
    free(daemon);
}

static void close_daemon(struct web *web, struct daemon *daemon)
{
    struct daemon **at = &web->all;
    while (*at != daemon)
        at = &(*at)->next;
    *at = daemon->next;
    http_close(daemon->http, free_daemon, daemon);
}

int web_open(struct web **web, const struct web_options *options, struct stint_error *error)
{
    struct web *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for HTTP");
    made->options = *options;
    int code = options->has_plain ? open_daemon(made, NULL, &made->plain, error) : 0;
    if (code == 0 && options->tls != NULL)
        code = open_daemon(made, options->tls, &made->tls, error);
    *web = made; /* also where it failed: what is open is ended and freed as ever */
    return code;
}

void web_adopt(struct web *web, bool is_tls, int fd, const struct sockaddr *peer,
               socklen_t peer_len, struct gate_seat *seat)
{
    struct daemon *daemon = is_tls ? web->tls : web->plain;
    if (daemon == NULL) {
        close(fd);
        gate_leave(web->options.gate, seat);
    } else if (http_adopt(daemon->http, fd, peer, peer_len, seat) != 0)
        gate_leave(web->options.gate, seat);
}

int web_renew(struct web *web, struct tls *tls, struct stint_error *error)
{
    struct daemon *older = web->tls;
    if (older == NULL)
        return 0;
    int code = open_daemon(web, tls, &web->tls, error);
    if (code == 0) {
        older->is_older = true;
        http_drain(older->http);
    }
    return code;
}

void web_sweep(struct web *web)
{
    for (struct daemon *daemon = web->all, *next; daemon != NULL; daemon = next) {
        next = daemon->next;
        if (daemon->is_older && http_connections(daemon->http) == 0)
            close_daemon(web, daemon);
    }
}

size_t web_connections(const struct web *web)
{
    size_t connections = 0;
    for (const struct daemon *daemon = web->all; daemon != NULL; daemon = daemon->next)
        connections += http_connections(daemon->http);
    return connections;
}

void web_linger(struct web *web)
{
    for (struct daemon *daemon = web->all; daemon != NULL; daemon = daemon->next)
        http_linger(daemon->http);
}

void web_drain(struct web *web)
{
    for (struct daemon *daemon = web->all; daemon != NULL; daemon = daemon->next)
        http_drain(daemon->http);
}

void web_end(struct web *web)
{
    while (web->all != NULL)
        close_daemon(web, web->all);
    web->plain = web->tls = NULL;
}

void web_free(struct web *web)
{
    free(web);
}
