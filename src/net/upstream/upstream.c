/* SPDX-License-Identifier: MIT */
/* Resolves the name, tries its addresses in turn, and polls the one connected socket. */
#define _GNU_SOURCE
#include "net/upstream/upstream.h"

#include "base/buf.h"
#include "base/ns.h"
#include "net/file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

/* ---- TLS ------------------------------------------------------------------------------------- */

/* Certificates are read and checked once: reconnecting reads no file. */

#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

#define CHAIN_MAX 16

struct upstream_tls {
    gnutls_certificate_credentials_t credentials; /* own the certificates and the key */
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned chain_len; /* 0: there is no client certificate */
    gnutls_privkey_t key;
    bool believes_all;
};

static int load_trust(struct upstream_tls *tls, const struct upstream_tls_paths *paths,
                      struct stint_error *error)
{
    const char *ca = paths->ca_file != NULL ? paths->ca_file : "the system's certificates";
    if (paths->ca_file != NULL && file_check(paths->ca_file, error) != 0)
        return STINT_E_SYSTEM;
    int code = paths->ca_file != NULL ? gnutls_certificate_set_x509_trust_file(
                                            tls->credentials, paths->ca_file, GNUTLS_X509_FMT_PEM)
                                      : gnutls_certificate_set_x509_system_trust(tls->credentials);
    if (code == 0)
        code = GNUTLS_E_NO_CERTIFICATE_FOUND;
    if (code < 0)
        return err_set(error, STINT_E_SYNTAX, "%s: %s", ca, gnutls_strerror(code));
    return 0;
}

/*
 * The one certificate, whatever the server prefers. GnuTLS' own choice sends none for an RSA key
 * where the server lists RSA-PSS alone, as servers in Go do.
 */
static int offer_certificate(gnutls_session_t session, const gnutls_datum_t *authorities,
                             int n_authorities, const gnutls_pk_algorithm_t *algorithms,
                             int n_algorithms, gnutls_pcert_st **chain, unsigned *chain_len,
                             gnutls_privkey_t *key)
{
    struct upstream_tls *tls = gnutls_session_get_ptr(session);
    (void)authorities, (void)n_authorities, (void)algorithms, (void)n_algorithms;
    *chain = tls->chain;
    *chain_len = tls->chain_len;
    *key = tls->key;
    return 0;
}

static int import_key(gnutls_privkey_t *key, const char *path)
{
    gnutls_datum_t text;
    int code = gnutls_load_file(path, &text);
    if (code < 0)
        return code;
    code = gnutls_privkey_init(key);
    if (code >= 0)
        code = gnutls_privkey_import_x509_raw(*key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    explicit_bzero(text.data, text.size);
    gnutls_free(text.data);
    return code;
}

static int load_key(struct upstream_tls *tls, const struct upstream_tls_paths *paths,
                    struct stint_error *error)
{
    const char *key_file = paths->key_file != NULL ? paths->key_file : paths->cert_file;
    if (file_check(paths->cert_file, error) != 0 || file_check(key_file, error) != 0)
        return STINT_E_SYSTEM;
    unsigned len = CHAIN_MAX;
    int code = gnutls_pcert_list_import_x509_file(tls->chain, &len, paths->cert_file,
                                                  GNUTLS_X509_FMT_PEM, NULL, NULL, 0);
    if (code >= 0) {
        tls->chain_len = len;
        code = import_key(&tls->key, key_file);
    }
    if (code >= 0)
        code =
            gnutls_certificate_set_key(tls->credentials, NULL, 0, tls->chain, (int)len, tls->key);
    if (code >= 0) {
        gnutls_certificate_set_retrieve_function2(tls->credentials, offer_certificate);
        return 0;
    }
    for (unsigned i = 0; i < tls->chain_len; i++)
        gnutls_pcert_deinit(&tls->chain[i]);
    gnutls_privkey_deinit(tls->key);
    return err_set(error, STINT_E_SYNTAX, "%s with the key %s: %s", paths->cert_file, key_file,
                   gnutls_strerror(code));
}

int upstream_tls_load(struct upstream_tls **tls, const struct upstream_tls_paths *paths,
                      struct stint_error *error)
{
    struct upstream_tls *made = calloc(1, sizeof(*made));
    if (made == NULL || gnutls_certificate_allocate_credentials(&made->credentials) < 0) {
        free(made);
        return err_set(error, STINT_E_SYSTEM, "no memory for certificates");
    }
    made->believes_all = paths->believes_all;
    int code = made->believes_all ? 0 : load_trust(made, paths, error);
    if (code == 0 && paths->cert_file != NULL)
        code = load_key(made, paths, error);
    if (code == 0)
        *tls = made;
    else
        upstream_tls_free(made);
    return code;
}

void upstream_tls_free(struct upstream_tls *tls)
{
    if (tls == NULL)
        return;
    gnutls_certificate_free_credentials(tls->credentials);
    free(tls);
}

/* The extension is only for names; addresses are compared with the certificate nevertheless. */
static int set_name(gnutls_session_t session, const char *host)
{
    struct in6_addr address;
    if (host[0] == '\0' || inet_pton(AF_INET, host, &address) == 1 ||
        inet_pton(AF_INET6, host, &address) == 1)
        return 0;
    return gnutls_server_name_set(session, GNUTLS_NAME_DNS, host, strlen(host));
}

static int set_protocol(gnutls_session_t session, const char *protocol)
{
    if (protocol == NULL)
        return 0;
    gnutls_datum_t name = {(unsigned char *)(uintptr_t)protocol, (unsigned)strlen(protocol)};
    return gnutls_alpn_set_protocols(session, &name, 1, 0);
}

/*
 * A session with the server of that name or address, which must be in its certificate, on a
 * non-blocking socket. "": the server has no name, as on a Unix socket. `protocol` is for ALPN,
 * NULL: none. False: no memory. Strings are borrowed.
 */
static bool upstream_tls_begin(struct upstream_tls *tls, const char *host, const char *protocol,
                               int fd, gnutls_session_t *session)
{
    if (gnutls_init(session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return false;
    if (gnutls_priority_set_direct(*session, PRIORITIES, NULL) < 0 ||
        gnutls_credentials_set(*session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0 ||
        set_name(*session, host) < 0 || set_protocol(*session, protocol) < 0) {
        gnutls_deinit(*session);
        *session = NULL;
        return false;
    }
    gnutls_session_set_ptr(*session, tls);
    if (!tls->believes_all)
        gnutls_session_set_verify_cert(*session, host[0] != '\0' ? host : NULL, 0);
    gnutls_transport_set_int(*session, fd);
    return true;
}

/* The reason why a handshake failed, more exact than the code. */
static void upstream_tls_error(gnutls_session_t session, int code, char *text, size_t size)
{
    struct buf buf = buf_of(text, size);
    gnutls_datum_t why = {NULL, 0};
    if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
        gnutls_certificate_verification_status_print(gnutls_session_get_verify_cert_status(session),
                                                     gnutls_certificate_type_get(session), &why, 0);
    if (code == GNUTLS_E_FATAL_ALERT_RECEIVED)
        buf_add(&buf, "the other side ends TLS: %s",
                gnutls_alert_get_name(gnutls_alert_get(session)));
    else
        buf_add(&buf, "%s", why.data != NULL ? (const char *)why.data : gnutls_strerror(code));
    gnutls_free(why.data);
    for (size_t len = strlen(text); len > 0 && (text[len - 1] == ' ' || text[len - 1] == '.');
         len--)
        text[len - 1] = '\0';
}

/* ---- The socket ------------------------------------------------------------------------------ */

#define READ_SIZE 16384
#define FAULT_SIZE 400
#define READS_MAX 64 /* consecutive reads of one connection */

enum wire_state { WIRE_CONNECTING, WIRE_SHAKING_HANDS, WIRE_OPEN };

/* One socket. The loop closes it and frees it later, when the upstream may have another. */
struct wire {
    uv_poll_t poll;
    struct upstream *home;
    gnutls_session_t session;
    enum wire_state state;
    int fd, events;
    bool is_stuck; /* GnuTLS keeps a record that the socket did not accept */
};

/* A query to the resolver, which may outlive its upstream. */
struct lookup {
    uv_getaddrinfo_t request;
    struct upstream *home; /* NULL: the upstream was freed */
};

struct upstream {
    struct upstream_options options;
    struct upstream_tls *tls; /* read anew; else NULL */
    struct wire *wire;
    struct lookup *lookup;
    struct addrinfo *addresses, *address; /* `address` is the one being tried */
    uv_timer_t timer;
    uint64_t armed_ns;    /* the time that the timer is set for; STINT_NEVER_NS: it is not */
    uv_prepare_t prepare; /* runs before the loop waits, if there is something to send */
    unsigned n_open_handles, losses, losses_told;
    bool was_ready, is_closing;
    uint8_t bytes[READ_SIZE];
};

static void settle(struct upstream *upstream);
static void try_addresses(struct upstream *upstream, const char *why);

static uint64_t now(const struct upstream *upstream)
{
    return upstream->options.now != NULL ? upstream->options.now(upstream->options.now_arg)
                                         : uv_hrtime();
}

/* ---- Closing a socket ------------------------------------------------------------------------ */

static void free_wire(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_wire(struct upstream *upstream)
{
    struct wire *wire = upstream->wire;
    if (wire == NULL)
        return;
    upstream->wire = NULL;
    if (wire->session != NULL) {
        if (wire->state == WIRE_OPEN)
            (void)gnutls_bye(wire->session, GNUTLS_SHUT_WR);
        gnutls_deinit(wire->session);
    }
    uv_close((uv_handle_t *)&wire->poll, free_wire);
    close(wire->fd);
}

static void forget_lookup(struct upstream *upstream)
{
    if (upstream->lookup != NULL) {
        upstream->lookup->home = NULL;
        uv_cancel((uv_req_t *)&upstream->lookup->request);
        upstream->lookup = NULL;
    }
    if (upstream->addresses != NULL)
        uv_freeaddrinfo(upstream->addresses);
    upstream->addresses = upstream->address = NULL;
}

static void lose(struct upstream *upstream, const char *why)
{
    char fault[FAULT_SIZE];
    struct buf buf = buf_of(fault, sizeof(fault));
    const struct store_host *host = &upstream->options.host;
    if (host->name[0] != '\0')
        store_host_add(&buf, host);
    else
        buf_add(&buf, "%s", upstream->options.path);
    buf_add(&buf, ": %s", why);
    close_wire(upstream);
    forget_lookup(upstream);
    upstream->losses++;
    link_lost(upstream->options.link, fault, now(upstream));
}

/* After an error before the socket is connected, the next address is tried. */
static void fail(struct upstream *upstream, const char *why)
{
    if (upstream->wire->state == WIRE_CONNECTING)
        try_addresses(upstream, why);
    else
        lose(upstream, why);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static const char *server(const struct upstream *upstream)
{
    return upstream->options.link->codec->server;
}

static bool has_tls(const struct upstream *upstream)
{
    return upstream->options.tls != NULL || upstream->options.tls_paths != NULL;
}

static void fail_closed(struct upstream *upstream)
{
    char why[FAULT_SIZE];
    struct buf buf = buf_of(why, sizeof(why));
    bool is_early = !link_is_ready(upstream->options.link);
    buf_add(&buf, "%s has closed the connection%s", server(upstream),
            !is_early           ? ""
            : has_tls(upstream) ? " before it greeted; does it want a certificate, or no TLS?"
                                : " before it greeted; does it expect TLS?");
    fail(upstream, why);
}

static void fail_socket(struct upstream *upstream, int why)
{
    if (why == ECONNRESET || why == EPIPE)
        fail_closed(upstream);
    else
        fail(upstream, strerror(why));
}

static void fail_tls(struct upstream *upstream, int code)
{
    char why[FAULT_SIZE];
    if (code == GNUTLS_E_PREMATURE_TERMINATION) {
        fail_closed(upstream);
        return;
    }
    upstream_tls_error(upstream->wire->session, code, why, sizeof(why));
    fail(upstream, why);
}

static bool is_passing(ssize_t code)
{
    return code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED ||
           code == GNUTLS_E_WARNING_ALERT_RECEIVED;
}

/* The number of bytes, 0 if there are none now, -1 if the socket failed. */
static ssize_t receive(struct upstream *upstream)
{
    struct wire *wire = upstream->wire;
    ssize_t len;
    if (wire->session != NULL) {
        len = gnutls_record_recv(wire->session, upstream->bytes, READ_SIZE);
        if (len < 0 && is_passing(len))
            return 0;
        if (len < 0)
            fail_tls(upstream, (int)len);
    } else {
        len = recv(wire->fd, upstream->bytes, READ_SIZE, 0);
        if (len < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (len < 0)
            fail_socket(upstream, errno);
    }
    if (len == 0)
        fail_closed(upstream);
    return len > 0 ? len : -1;
}

static bool passes_tls(struct upstream *upstream, int code)
{
    upstream->wire->is_stuck = code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED;
    if (code < 0 && !upstream->wire->is_stuck)
        fail_tls(upstream, code);
    return code >= 0;
}

/*
 * The link counts bytes that GnuTLS has accepted as sent, even if the socket has not: a late
 * command cannot be withdrawn from GnuTLS.
 */
static bool transmit_tls(struct upstream *upstream, struct span bytes)
{
    gnutls_session_t session = upstream->wire->session;
    gnutls_record_cork(session);
    ssize_t len =
        gnutls_record_send(session, bytes.ptr, bytes.len < READ_SIZE ? bytes.len : READ_SIZE);
    if (len > 0)
        link_sent(upstream->options.link, (size_t)len);
    return passes_tls(upstream, len > 0 ? gnutls_record_uncork(session, 0) : (int)len);
}

/* False: no more now, or the socket failed. */
static bool transmit(struct upstream *upstream, struct span bytes)
{
    struct wire *wire = upstream->wire;
    if (wire->session != NULL)
        return transmit_tls(upstream, bytes);
    ssize_t len = send(wire->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
    if (len > 0)
        link_sent(upstream->options.link, (size_t)len);
    else if (len < 0 && errno != EAGAIN && errno != EINTR)
        fail_socket(upstream, errno);
    return len > 0;
}

static void flush(struct upstream *upstream)
{
    bool goes_on = true;
    while (goes_on && upstream->wire != NULL && upstream->wire->state == WIRE_OPEN) {
        const struct wire *wire = upstream->wire;
        struct span output = link_output(upstream->options.link);
        if (wire->is_stuck)
            goes_on = passes_tls(upstream, gnutls_record_uncork(wire->session, 0));
        else
            goes_on = output.len > 0 && transmit(upstream, output);
    }
}

static void read_all(struct upstream *upstream)
{
    ssize_t len;
    /* A reply of many pieces continues in the next turn of the loop; records are not polled for. */
    do {
        len = receive(upstream);
        if (len > 0)
            link_feed(upstream->options.link, span_of(upstream->bytes, (size_t)len), now(upstream));
    } while (len > 0 && upstream->wire != NULL && upstream->wire->session != NULL &&
             link_wants(upstream->options.link) == LINK_WANTS_NOTHING);
}

/* Replies that came while this thread was delayed came in time. */
static void read_before_late(struct upstream *upstream)
{
    const struct link *link = upstream->options.link;
    ssize_t len = 1;
    if (link_deadline(link) > now(upstream))
        return;
    for (int i = 0; i < READS_MAX && len > 0 && upstream->wire != NULL &&
                    upstream->wire->state == WIRE_OPEN && link_wants(link) == LINK_WANTS_NOTHING;
         i++) {
        len = receive(upstream);
        if (len > 0)
            link_feed(upstream->options.link, span_of(upstream->bytes, (size_t)len), now(upstream));
    }
}

/* ---- A socket -------------------------------------------------------------------------------- */

static void open_wire(struct upstream *upstream)
{
    upstream->wire->state = WIRE_OPEN;
    link_connected(upstream->options.link, now(upstream));
}

static void shake_hands(struct upstream *upstream)
{
    int code = gnutls_handshake(upstream->wire->session);
    if (code == GNUTLS_E_SUCCESS)
        open_wire(upstream);
    else if (!is_passing(code))
        fail_tls(upstream, code);
}

static void begin_tls(struct upstream *upstream)
{
    struct wire *wire = upstream->wire;
    wire->state = WIRE_SHAKING_HANDS;
    const struct upstream_options *options = &upstream->options;
    struct upstream_tls *tls = upstream->tls != NULL ? upstream->tls : options->tls;
    const char *name = options->tls_name != NULL ? options->tls_name : options->host.name;
    if (upstream_tls_begin(tls, name, options->protocol, wire->fd, &wire->session))
        shake_hands(upstream);
    else
        lose(upstream, "no memory for TLS");
}

/* 0: the socket has no error. */
static int fault_of(const struct wire *wire)
{
    int why = 0;
    socklen_t len = sizeof(why);
    return getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &why, &len) == 0 ? why : errno;
}

/* A host that is gone ends the connection within a minute. */
static void watch_peer(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 30},
                   {IPPROTO_TCP, TCP_KEEPINTVL, 10},
                   {IPPROTO_TCP, TCP_KEEPCNT, 3}};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

static void finish_connecting(struct upstream *upstream)
{
    int why = fault_of(upstream->wire), on = 1;
    if (why != 0) {
        fail(upstream, strerror(why));
        return;
    }
    if (upstream->options.host.name[0] != '\0')
        setsockopt(upstream->wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (upstream->options.is_watched)
        watch_peer(upstream->wire->fd);
    if (has_tls(upstream))
        begin_tls(upstream);
    else
        open_wire(upstream);
}

static void on_events(uv_poll_t *poll, int status, int events)
{
    struct wire *wire = poll->data;
    struct upstream *upstream = wire->home;
    if (status < 0) { /* EBADF for any error of the socket, which has the exact one */
        int why = fault_of(wire);
        fail_socket(upstream, why != 0 ? why : -status);
    } else if (wire->state == WIRE_CONNECTING)
        finish_connecting(upstream);
    else if (wire->state == WIRE_SHAKING_HANDS)
        shake_hands(upstream);
    else if ((events & UV_READABLE) != 0)
        read_all(upstream);
    settle(upstream);
}

/* Begins to connect; false: the reason is in `errno`. */
static bool dial(struct upstream *upstream, const struct sockaddr *address, socklen_t len)
{
    struct wire *wire = calloc(1, sizeof(*wire));
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool begins =
        wire != NULL && fd >= 0 && (connect(fd, address, len) == 0 || errno == EINPROGRESS);
    int why = errno;
    if (!begins || uv_poll_init_socket(upstream->options.loop, &wire->poll, fd) != 0) {
        if (fd >= 0)
            close(fd);
        free(wire);
        errno = why;
        return false;
    }
    wire->poll.data = wire;
    wire->home = upstream;
    wire->fd = fd;
    upstream->wire = wire;
    return true;
}

/* Tries the next address, and those after it; `why` is the error of the one before. */
static void try_addresses(struct upstream *upstream, const char *why)
{
    close_wire(upstream);
    for (struct addrinfo *next; (next = upstream->address) != NULL;) {
        upstream->address = next->ai_next;
        if (dial(upstream, next->ai_addr, next->ai_addrlen))
            return;
        why = strerror(errno);
    }
    lose(upstream, why);
}

static void on_addresses(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct lookup *lookup = request->data;
    struct upstream *upstream = lookup->home;
    if (upstream == NULL) {
        uv_freeaddrinfo(found);
        free(lookup);
        return;
    }
    upstream->lookup = NULL;
    free(lookup);
    if (status == 0) {
        upstream->addresses = upstream->address = found;
        try_addresses(upstream, "there is no such host");
    } else
        lose(upstream, uv_strerror(status));
    settle(upstream);
}

static void look_up(struct upstream *upstream)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char port[8];
    struct buf buf = buf_of(port, sizeof(port));
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    if (lookup == NULL) {
        lose(upstream, "no memory to look its name up");
        return;
    }
    buf_add(&buf, "%u", (unsigned)upstream->options.host.port);
    lookup->request.data = lookup;
    lookup->home = upstream;
    upstream->lookup = lookup;
    int code = uv_getaddrinfo(upstream->options.loop, &lookup->request, on_addresses,
                              upstream->options.host.name, port, &hints);
    if (code == 0)
        return;
    upstream->lookup = NULL;
    free(lookup);
    lose(upstream, uv_strerror(code));
}

/* False: the files cannot be used, and the connection is lost. No socket uses the old ones. */
static bool read_tls(struct upstream *upstream)
{
    struct stint_error error;
    upstream_tls_free(upstream->tls);
    upstream->tls = NULL;
    if (upstream->options.tls_paths == NULL ||
        upstream_tls_load(&upstream->tls, upstream->options.tls_paths, &error) == 0)
        return true;
    lose(upstream, error.message);
    return false;
}

static void begin(struct upstream *upstream)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    link_dialling(upstream->options.link, now(upstream));
    if (!read_tls(upstream))
        return;
    if (upstream->options.host.name[0] != '\0') {
        look_up(upstream);
        return;
    }
    strncpy(address.sun_path, upstream->options.path, sizeof(address.sun_path) - 1);
    if (!dial(upstream, (const struct sockaddr *)&address, sizeof(address)))
        lose(upstream, strerror(errno));
}

/* ---- After every event ----------------------------------------------------------------------- */

static void on_time(uv_timer_t *timer)
{
    struct upstream *upstream = timer->data;
    upstream->armed_ns = STINT_NEVER_NS; /* it may have fired a little early */
    read_before_late(upstream);
    link_wake(upstream->options.link, now(upstream));
    settle(upstream);
}

static void poll_for(struct wire *wire, int events)
{
    if (events == wire->events)
        return;
    wire->events = events;
    uv_poll_start(&wire->poll, events, on_events);
}

static int events_of(const struct upstream *upstream)
{
    const struct wire *wire = upstream->wire;
    if (wire->state == WIRE_CONNECTING)
        return UV_WRITABLE;
    if (wire->state == WIRE_SHAKING_HANDS)
        return gnutls_record_get_direction(wire->session) == 1 ? UV_WRITABLE : UV_READABLE;
    bool has_output = wire->is_stuck || link_output(upstream->options.link).len > 0;
    return UV_READABLE | (has_output ? UV_WRITABLE : 0);
}

static void arm_timer(struct upstream *upstream)
{
    struct link *link = upstream->options.link;
    uint64_t at_ns = link_deadline(link), now_ns = now(upstream);
    if (at_ns == upstream->armed_ns)
        return;
    upstream->armed_ns = at_ns;
    if (at_ns == STINT_NEVER_NS) {
        uv_timer_stop(&upstream->timer);
        return;
    }
    uint64_t wait_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    uv_update_time(upstream->options.loop);
    uv_timer_start(&upstream->timer, on_time, (wait_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
}

static void settle(struct upstream *upstream)
{
    enum link_wants wants;
    flush(upstream);
    while ((wants = link_wants(upstream->options.link)) != LINK_WANTS_NOTHING) {
        if (wants == LINK_WANTS_CLOSE)
            lose(upstream, ""); /* the link knows why */
        else
            begin(upstream);
        flush(upstream);
    }
    if (upstream->wire != NULL)
        poll_for(upstream->wire, events_of(upstream));
    arm_timer(upstream);
    bool is_ready = link_is_ready(upstream->options.link);
    bool has_changed = is_ready != upstream->was_ready || upstream->losses != upstream->losses_told;
    upstream->was_ready = is_ready;
    upstream->losses_told = upstream->losses;
    if (has_changed && upstream->options.changed != NULL)
        upstream->options.changed(upstream->options.arg, now(upstream));
}

static void on_prepare(uv_prepare_t *prepare)
{
    uv_prepare_stop(prepare);
    settle(prepare->data);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

struct upstream *upstream_new(const struct upstream_options *options)
{
    struct upstream *upstream = calloc(1, sizeof(*upstream));
    if (upstream == NULL)
        return NULL;
    upstream->options = *options;
    upstream->armed_ns = STINT_NEVER_NS;
    uv_timer_init(options->loop, &upstream->timer);
    uv_prepare_init(options->loop, &upstream->prepare);
    upstream->timer.data = upstream->prepare.data = upstream;
    upstream->n_open_handles = 2;
    uv_prepare_start(&upstream->prepare, on_prepare);
    return upstream;
}

static void on_closed(uv_handle_t *handle)
{
    struct upstream *upstream = handle->data;
    if (--upstream->n_open_handles == 0)
        free(upstream);
}

void upstream_close(struct upstream *upstream)
{
    if (upstream == NULL)
        return;
    upstream->is_closing = true;
    close_wire(upstream);
    forget_lookup(upstream);
    link_free(upstream->options.link, now(upstream));
    upstream_tls_free(upstream->tls);
    uv_close((uv_handle_t *)&upstream->timer, on_closed);
    uv_close((uv_handle_t *)&upstream->prepare, on_closed);
}

void upstream_asked(struct upstream *upstream)
{
    if (!upstream->is_closing)
        uv_prepare_start(&upstream->prepare, on_prepare);
}

unsigned upstream_losses(const struct upstream *upstream)
{
    return upstream->losses;
}
