/* SPDX-License-Identifier: MIT */
/* Names, sockets and TLS of a client: GnuTLS on the socket itself. */
#define _GNU_SOURCE
#include "cmd/rls/rls_link.h"

#include "base/ns.h"
#include "net/listen/endpoint.h"
#include "net/upstream/upstream_tls.h"
#include "table/clock.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOST_MAX 256

struct rls_link {
    const struct rls_link_options *options;
    int fd;
    char host[HOST_MAX]; /* as it was written; "" for a Unix socket */
    gnutls_session_t session;
    struct upstream_tls *tls; /* NULL: none */
    uint64_t ends_ns;         /* the patience with connecting */
};

/* False once the patience is over. */
static bool wait_for(const struct rls_link *link, short events)
{
    uint64_t now = clock_boot_ns();
    struct pollfd poll_fd = {.fd = link->fd, .events = events};
    if (now >= link->ends_ns)
        return false;
    uint64_t wait_ms = (link->ends_ns - now) / NS_PER_MS + 1;
    return poll(&poll_fd, 1, wait_ms > INT_MAX ? INT_MAX : (int)wait_ms) > 0;
}

/* ---- The socket ------------------------------------------------------------------------------ */

/* An errno, once it is known. */
static int outcome_of_connect(const struct rls_link *link)
{
    int why = 0;
    socklen_t len = sizeof(why);
    if (!wait_for(link, POLLOUT))
        return ETIMEDOUT;
    return getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &why, &len) == 0 ? why : errno;
}

static int connect_to(struct rls_link *link, const struct sockaddr *address, socklen_t len,
                      struct stint_error *error)
{
    const char *server = link->options->server;
    int on = 1, why = 0;
    if (link->options->is_secret && !link->options->is_tls && !link->options->is_insecure &&
        !endpoint_is_local(address))
        return err_set(error, STINT_E_MISMATCH,
                       "%s is another host: the token would go there unencrypted; expected --tls, "
                       "or --insecure",
                       server);
    link->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->fd < 0)
        return err_set(error, STINT_E_SYSTEM, "%s: %s", server, strerror(errno));
    if (address->sa_family != AF_UNIX)
        setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(link->fd, address, len) != 0)
        why = errno;
    if (why == EINPROGRESS || why == EAGAIN)
        why = outcome_of_connect(link);
    return why == 0 ? 0 : err_set(error, STINT_E_SYSTEM, "%s: %s", server, strerror(why));
}

/* Each address of the name in turn; what is told is of the last. */
static int connect_by_name(struct rls_link *link, const char *port, struct stint_error *error)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int why = getaddrinfo(link->host, port, &hints, &found);
    if (why != 0)
        return err_set(error, STINT_E_SYSTEM, "%s: %s", link->options->server, gai_strerror(why));
    int code = STINT_E_SYSTEM;
    for (const struct addrinfo *each = found; each != NULL && code == STINT_E_SYSTEM;
         each = each->ai_next) {
        if (link->fd >= 0)
            close(link->fd);
        link->fd = -1;
        code = connect_to(link, each->ai_addr, each->ai_addrlen, error);
    }
    freeaddrinfo(found);
    return code;
}

static int dial(struct rls_link *link, struct stint_error *error)
{
    const char *server = link->options->server;
    if (strncmp(server, "unix:", 5) == 0) {
        struct endpoint endpoint;
        int code = endpoint_parse(&endpoint, server, error);
        return code != 0 ? code
                         : connect_to(link, (const struct sockaddr *)&endpoint.address,
                                      endpoint.address_len, error);
    }
    const char *colon = strrchr(server, ':');
    size_t len = colon != NULL ? (size_t)(colon - server) : 0;
    const char *host = server;
    if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }
    if (len == 0 || len >= HOST_MAX || colon[1] == '\0' ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return err_set(error, STINT_E_SYNTAX, "expected HOST:PORT or unix:/PATH, found '%s'",
                       server);
    snprintf(link->host, sizeof(link->host), "%.*s", (int)len, host);
    return connect_by_name(link, colon + 1, error);
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static int refuse(const struct rls_link *link, int why, struct stint_error *error)
{
    char text[160];
    upstream_tls_error(link->session, why, text, sizeof(text));
    return err_set(error, STINT_E_SYSTEM, "%s: %s", link->options->server, text);
}

static int shake_hands(struct rls_link *link, struct stint_error *error)
{
    int code;
    while ((code = gnutls_handshake(link->session)) < 0) {
        if (gnutls_error_is_fatal(code) != 0)
            return refuse(link, code, error);
        bool writes = gnutls_record_get_direction(link->session) == 1;
        if (code == GNUTLS_E_AGAIN && !wait_for(link, writes ? POLLOUT : POLLIN))
            return err_set(error, STINT_E_SYSTEM, "%s: the handshake took too long",
                           link->options->server);
    }
    gnutls_datum_t protocol = {NULL, 0};
    if (gnutls_alpn_get_selected_protocol(link->session, &protocol) < 0)
        return err_set(error, STINT_E_SYSTEM, "%s does not speak HTTP/2 (ALPN)",
                       link->options->server);
    return 0;
}

static int begin_tls(struct rls_link *link, struct stint_error *error)
{
    const struct rls_link_options *options = link->options;
    const struct upstream_tls_paths paths = {
        .ca_file = options->ca_file,
        .cert_file = options->cert_file,
        .key_file = options->key_file,
        .believes_all = options->is_insecure,
    };
    if (upstream_tls_load(&link->tls, &paths, error) != 0)
        return STINT_E_SYSTEM;
    if (!upstream_tls_begin(link->tls, link->host, "h2", link->fd, &link->session))
        return err_set(error, STINT_E_SYSTEM, "%s: no memory for TLS", options->server);
    return shake_hands(link, error);
}

/* ---- Life ------------------------------------------------------------------------------------ */

int rls_link_open(struct rls_link **link, const struct rls_link_options *options,
                  struct stint_error *error)
{
    struct rls_link *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    opened->options = options;
    opened->fd = -1;
    opened->ends_ns = clock_boot_ns() + options->timeout_ns;
    int code = dial(opened, error);
    if (code == 0 && options->is_tls)
        code = begin_tls(opened, error);
    if (code == 0)
        *link = opened;
    else
        rls_link_close(opened);
    return code;
}

void rls_link_close(struct rls_link *link)
{
    if (link == NULL)
        return;
    if (link->session != NULL) {
        (void)gnutls_bye(link->session, GNUTLS_SHUT_WR);
        gnutls_deinit(link->session);
    }
    upstream_tls_free(link->tls);
    if (link->fd >= 0)
        close(link->fd);
    free(link);
}

int rls_link_fd(const struct rls_link *link)
{
    return link->fd;
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static int gone(const struct rls_link *link, struct stint_error *error)
{
    return err_set(error, STINT_E_GONE, "%s has closed the connection", link->options->server);
}

static int fail(const struct rls_link *link, struct stint_error *error)
{
    if (errno == ECONNRESET || errno == EPIPE)
        return gone(link, error);
    return err_set(error, STINT_E_SYSTEM, "%s: %s", link->options->server, strerror(errno));
}

int rls_link_read(struct rls_link *link, void *bytes, size_t size, struct stint_error *error)
{
    size = size < INT_MAX ? size : INT_MAX;
    if (link->session == NULL) {
        ssize_t len = recv(link->fd, bytes, size, 0);
        if (len > 0)
            return (int)len;
        if (len == 0)
            return gone(link, error);
        return errno == EAGAIN || errno == EINTR ? 0 : fail(link, error);
    }
    ssize_t len = gnutls_record_recv(link->session, bytes, size);
    if (len > 0)
        return (int)len;
    if (len == 0 || len == GNUTLS_E_PREMATURE_TERMINATION)
        return gone(link, error);
    return gnutls_error_is_fatal((int)len) != 0 ? refuse(link, (int)len, error) : 0;
}

int rls_link_write(struct rls_link *link, struct span bytes, struct stint_error *error)
{
    size_t size = bytes.len < INT_MAX ? bytes.len : INT_MAX;
    if (link->session == NULL) {
        ssize_t len = send(link->fd, bytes.ptr, size, MSG_NOSIGNAL);
        if (len >= 0)
            return (int)len;
        return errno == EAGAIN || errno == EINTR ? 0 : fail(link, error);
    }
    ssize_t len = gnutls_record_send(link->session, bytes.ptr, size);
    if (len >= 0)
        return (int)len;
    return gnutls_error_is_fatal((int)len) != 0 ? refuse(link, (int)len, error) : 0;
}

bool rls_link_has_bytes(const struct rls_link *link)
{
    return link->session != NULL && gnutls_record_check_pending(link->session) > 0;
}
