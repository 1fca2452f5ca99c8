/* SPDX-License-Identifier: MIT */
/*
 * The sockets that a server listens with: bound by itself, given by systemd, or taken over from the
 * process that served before.
 *
 * Of a TCP address that it binds itself each worker has a socket of its own (SO_REUSEPORT), so that
 * the kernel spreads connections and no worker wakes for another's. A Unix socket or a socket that
 * systemd bound is one descriptor, which all workers poll. Sockets that are handed on are never
 * closed while others may wait in their queues: a worker may have several of one address.
 */
#ifndef STINT_NET_LISTEN_LISTENER_H
#define STINT_NET_LISTEN_LISTENER_H

#include "net/listen/endpoint.h"

/* What is spoken at a port. */
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
    uint32_t worker;                 /* whose it is, or LISTENER_ALL_WORKERS */
    bool is_activated;               /* systemd bound it, and keeps it */
    bool owns_path;                  /* a Unix socket whose path goes when the server does */
    struct sockaddr_storage address; /* as bound: with the port that was chosen for port 0 */
    socklen_t address_len;
};

struct listeners {
    struct listener *all;
    size_t n_all;
};

/* A descriptor from elsewhere, under the name by which the port is known. */
struct listener_given {
    int fd;
    bool is_activated; /* stands instead of what is configured for its port */
    enum port port;
};

struct listeners_wanted {
    const struct endpoint *endpoints[PORTS]; /* those that are off are passed over */
    size_t n_endpoints[PORTS];
    unsigned workers;
    const struct listener_given *given; /* used where the address is wanted, else closed */
    size_t n_given;
};

/* "resp", "resp-tls", …, "grpc-tls": as systemd's FileDescriptorName= and logs have it. */
const char *port_name(enum port port);
/* False for a name that is no port's. */
bool port_of_name(const char *name, enum port *port);
bool port_is_tls(enum port port);

/*
 * Opens all of them, or none: STINT_E_BUSY for an address in use, STINT_E_SYSTEM. What was given
 * is owned from here on.
 */
int listeners_open(struct listeners *listeners, const struct listeners_wanted *wanted,
                   struct stint_error *error);
/* From here on the server is the one whose sockets these are, or no longer. */
void listeners_own_paths(struct listeners *listeners, bool owns);
/* Closes the sockets, and removes the paths of those that are owned. */
void listeners_close(struct listeners *listeners);

#endif
