/* SPDX-License-Identifier: MIT */
/*
 * The listening sockets of a server: bound by itself, passed by systemd, or taken over from the
 * previous process.
 *
 * For a TCP address that the server binds itself, each worker has a socket of its own
 * (SO_REUSEPORT), so that the kernel spreads connections and no worker wakes for another's. A Unix
 * socket or a socket of systemd is one descriptor, which all workers poll. Sockets that are handed
 * over are never closed while clients may wait in their queues: a worker may have several of one
 * address.
 */
#ifndef STINT_NET_LISTEN_LISTENER_H
#define STINT_NET_LISTEN_LISTENER_H

#include "net/listen/endpoint.h"
#include "net/log/log.h"

/* The protocol of a port. */
enum port {
    PORT_RESP,
    PORT_RESP_TLS,
    PORT_HTTP,
    PORT_HTTP_TLS,
    PORT_GRPC,
    PORT_GRPC_TLS,
    PORTS,
};

#define LISTENERS_MAX 1024
#define LISTENER_ALL_WORKERS UINT32_MAX

struct listener {
    enum port port;
    int fd;
    uint32_t worker;                 /* the worker that serves it, or LISTENER_ALL_WORKERS */
    bool is_activated;               /* systemd bound it, and keeps it */
    bool owns_path;                  /* a Unix socket whose path is removed when the server ends */
    struct sockaddr_storage address; /* as bound: with the port that was chosen for port 0 */
    socklen_t address_len;
};

struct listeners {
    struct listener *all;
    size_t n_all;
};

/* A descriptor from systemd or a predecessor, with the name of its port. */
struct listener_given {
    int fd;
    bool is_activated; /* replaces the configured endpoint of its port */
    enum port port;
};

struct listeners_wanted {
    const struct endpoint *endpoints[PORTS]; /* those that are off are skipped */
    size_t n_endpoints[PORTS];
    unsigned workers;
    const struct listener_given *given; /* used where an endpoint matches, otherwise closed */
    size_t n_given;
};

/* "resp", "resp-tls", …, "grpc-tls": for systemd's FileDescriptorName= and logs. */
const char *port_name(enum port port);
/* False for an unknown name. */
bool port_of_name(const char *name, enum port *port);
bool port_is_tls(enum port port);

/*
 * Opens all of them, or none: an error of bind_socket(). Takes over the given descriptors.
 */
int listeners_open(struct listeners *listeners, const struct listeners_wanted *wanted,
                   struct stint_error *error);
/* Sets whether this server owns the paths of its sockets. */
void listeners_own_paths(struct listeners *listeners, bool owns);
/* Closes the sockets, and removes the owned paths. */
void listeners_close(struct listeners *listeners);

/* Whether listening sockets may be served: by possible clients, and by tokens and certificates. */
struct exposure_options {
    bool has_tokens, is_insecure, has_tls;
    struct log *log; /* gets a line for each socket that is deliberately open to other machines */
};

/* A port that other machines can reach needs tokens; one with TLS needs a certificate. */
int exposure_check(const struct listeners *listeners, const struct exposure_options *options,
                   struct stint_error *error);

#endif
