/* SPDX-License-Identifier: MIT */
/* Which sockets are needed, and which worker each belongs to; endpoint.c binds one. */
#define _GNU_SOURCE
#include "net/listen/listener.h"

#include "net/listen/endpoint.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const port_names[PORTS] = {
    [PORT_RESP] = "resp",         [PORT_RESP_TLS] = "resp-tls", [PORT_HTTP] = "http",
    [PORT_HTTP_TLS] = "http-tls", [PORT_GRPC] = "grpc",         [PORT_GRPC_TLS] = "grpc-tls",
};

const char *port_name(enum port port)
{
    return port_names[port];
}

bool port_of_name(const char *name, enum port *port)
{
    for (int i = 0; i < PORTS; i++)
        if (strcmp(name, port_names[i]) == 0) {
            *port = (enum port)i;
            return true;
        }
    return false;
}

bool port_is_tls(enum port port)
{
    return port == PORT_RESP_TLS || port == PORT_HTTP_TLS || port == PORT_GRPC_TLS;
}

static int add(struct listeners *listeners, enum port port, int fd, struct stint_error *error)
{
    if (listeners->n_all == LISTENERS_MAX) {
        close(fd);
        return err_set(error, STINT_E_RANGE, "more than %d listening sockets", LISTENERS_MAX);
    }
    struct listener *listener = &listeners->all[listeners->n_all++];
    *listener = (struct listener){.port = port, .fd = fd, .worker = LISTENER_ALL_WORKERS};
    listener->address_len = sizeof(listener->address);
    if (getsockname(fd, (struct sockaddr *)&listener->address, &listener->address_len) != 0)
        return err_set(error, STINT_E_SYSTEM, "port %s: descriptor %d is no socket",
                       port_name(port), fd);
    /* Connections inherit it, which saves a call for each. */
    int on = 1;
    if (listener->address.ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return 0;
}

/* Whether the bound socket matches the endpoint; port 0 matches any. */
static bool is_wanted(const struct endpoint *wanted, struct sockaddr_storage bound)
{
    char a[ENDPOINT_TEXT_SIZE], b[ENDPOINT_TEXT_SIZE];
    in_port_t *port = &((struct sockaddr_in *)&bound)->sin_port; /* at the same place in IPv6 */
    if (bound.ss_family != AF_UNIX && ((const struct sockaddr_in *)&wanted->address)->sin_port == 0)
        *port = 0;
    return strcmp(endpoint_text((const struct sockaddr *)&wanted->address, a),
                  endpoint_text((const struct sockaddr *)&bound, b)) == 0;
}

/* Gives each worker a socket of its own, beside the one at `first`. */
static int bind_others(struct listeners *listeners, size_t first, unsigned workers,
                       struct stint_error *error)
{
    const struct listener *model = &listeners->all[first];
    enum port port = model->port;
    if (model->address.ss_family == AF_UNIX || !bind_socket_is_shareable(model->fd))
        return 0;
    struct endpoint same = {.address = model->address, .address_len = model->address_len};
    for (size_t n_sockets = listeners->n_all - first; n_sockets < workers; n_sockets++) {
        int fd = bind_socket_beside(&same, port_name(port), error);
        if (fd < 0)
            return fd;
        int code = add(listeners, port, fd, error);
        if (code != 0)
            return code;
    }
    return 0;
}

/* Takes the descriptors that are bound to the endpoint; sets them to -1. */
static int take_given(struct listeners *listeners, enum port port, const struct endpoint *endpoint,
                      struct listener_given *given, size_t n_given, struct stint_error *error)
{
    for (size_t i = 0; i < n_given; i++) {
        struct sockaddr_storage bound;
        socklen_t len = sizeof(bound);
        if (given[i].fd < 0 || given[i].port != port ||
            getsockname(given[i].fd, (struct sockaddr *)&bound, &len) != 0 ||
            (endpoint != NULL ? !is_wanted(endpoint, bound) : !given[i].is_activated))
            continue;
        int fd = given[i].fd;
        given[i].fd = -1;
        int code = add(listeners, port, fd, error);
        if (code != 0)
            return code;
        listeners->all[listeners->n_all - 1].is_activated = given[i].is_activated;
    }
    return 0;
}

static int open_endpoint(struct listeners *listeners, enum port port,
                         const struct endpoint *endpoint, struct listener_given *given,
                         const struct listeners_wanted *wanted, struct stint_error *error)
{
    size_t first = listeners->n_all;
    int code = take_given(listeners, port, endpoint, given, wanted->n_given, error);
    if (code == 0 && listeners->n_all == first) {
        int fd = bind_socket(endpoint, port_name(port), error);
        code = fd < 0 ? fd : add(listeners, port, fd, error);
        if (code == 0)
            listeners->all[first].owns_path = true;
    }
    if (code == 0)
        code = bind_others(listeners, first, wanted->workers, error);
    /* Assigns the sockets to workers. */
    size_t n_sockets = listeners->n_all - first;
    for (size_t i = 0; code == 0 && i < n_sockets && n_sockets >= wanted->workers; i++)
        listeners->all[first + i].worker = (uint32_t)(i % wanted->workers);
    return code;
}

static bool is_activated(enum port port, const struct listener_given *given, size_t n_given)
{
    for (size_t i = 0; i < n_given; i++)
        if (given[i].port == port && given[i].is_activated)
            return true;
    return false;
}

static int open_port(struct listeners *listeners, enum port port, struct listener_given *given,
                     const struct listeners_wanted *wanted, struct stint_error *error)
{
    if (is_activated(port, given, wanted->n_given))
        return take_given(listeners, port, NULL, given, wanted->n_given, error);
    for (size_t i = 0; i < wanted->n_endpoints[port]; i++) {
        const struct endpoint *endpoint = &wanted->endpoints[port][i];
        if (endpoint_is_off(endpoint))
            continue;
        int code = open_endpoint(listeners, port, endpoint, given, wanted, error);
        if (code != 0)
            return code;
    }
    return 0;
}

int listeners_open(struct listeners *listeners, const struct listeners_wanted *wanted,
                   struct stint_error *error)
{
    *listeners = (struct listeners){.all = calloc(LISTENERS_MAX, sizeof(struct listener))};
    struct listener_given *given = calloc(wanted->n_given + 1, sizeof(*given));
    if (listeners->all == NULL || given == NULL) {
        free(given);
        listeners_close(listeners);
        return err_set(error, STINT_E_SYSTEM, "no memory for the list of sockets");
    }
    if (wanted->n_given > 0)
        memcpy(given, wanted->given, wanted->n_given * sizeof(*given));
    int code = 0;
    for (int port = 0; port < PORTS && code == 0; port++)
        code = open_port(listeners, (enum port)port, given, wanted, error);
    for (size_t i = 0; i < wanted->n_given; i++)
        if (given[i].fd >= 0)
            close(given[i].fd);
    free(given);
    if (code != 0)
        listeners_close(listeners);
    return code;
}

void listeners_own_paths(struct listeners *listeners, bool owns)
{
    for (size_t i = 0; i < listeners->n_all; i++)
        listeners->all[i].owns_path = owns && !listeners->all[i].is_activated;
}

void listeners_close(struct listeners *listeners)
{
    for (size_t i = 0; i < listeners->n_all; i++) {
        const struct listener *listener = &listeners->all[i];
        if (listener->owns_path && listener->address.ss_family == AF_UNIX)
            unlink(((const struct sockaddr_un *)&listener->address)->sun_path);
        close(listener->fd);
    }
    free(listeners->all);
    *listeners = (struct listeners){0};
}

/* ---- Exposure, of addresses as they were bound, not as they were configured ---- */

static int check_address(const struct listener *listener, const struct exposure_options *options,
                         struct stint_error *error)
{
    const struct sockaddr *address = (const void *)&listener->address;
    char text[ENDPOINT_TEXT_SIZE];
    if (endpoint_is_local(address) || options->has_tokens)
        return 0;
    endpoint_text(address, text);
    if (!options->is_insecure)
        return err_set(error, STINT_E_MISMATCH,
                       "%s can be reached from other machines, and without tokens any client there "
                       "may use every command: give --tokens FILE, or --insecure to allow that",
                       text);
    log_line(options->log, LOG_INSECURE, LOG_TEXT("address", text));
    return 0;
}

int exposure_check(const struct listeners *listeners, const struct exposure_options *options,
                   struct stint_error *error)
{
    for (size_t i = 0; i < listeners->n_all; i++) {
        const struct listener *listener = &listeners->all[i];
        if (port_is_tls(listener->port) && !options->has_tls)
            return err_set(error, STINT_E_MISMATCH, "port %s needs --tls-certificate and --tls-key",
                           port_name(listener->port));
        int code = check_address(listener, options, error);
        if (code != 0)
            return code;
    }
    return 0;
}
