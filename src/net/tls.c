/* SPDX-License-Identifier: MIT */
/*
 * Settings from files, and connections: GnuTLS between two buffers, which pulls from the fed bytes
 * and pushes to the output.
 */
#define _GNU_SOURCE
#include "net/tls.h"

#include "base/byte_queue.h"
#include "net/file.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- Settings -------------------------------------------------------------------------------- */

/* Certificates are read and checked once, when they are loaded: a handshake reads no file. */

#define PEM_MAX (1u << 20) /* bytes of one file */

struct tls {
    atomic_uint refs;
    bool wants_certificates; /* of clients */
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
};

static int read_pem(const char *path, gnutls_datum_t *pem, struct stint_error *error)
{
    char *text;
    int code = file_text_read(path, PEM_MAX, &text, error);
    if (code == 0)
        *pem = (gnutls_datum_t){.data = (unsigned char *)text, .size = (unsigned)strlen(text)};
    return code;
}

/* Why GnuTLS took no pair of these files. */
static int refuse_pair(const struct tls_paths *paths, const gnutls_datum_t *certificate,
                       const gnutls_datum_t *key, int why, struct stint_error *error)
{
    if (strstr((const char *)certificate->data, "CERTIFICATE-----") == NULL)
        return err_set(error, STINT_E_SYNTAX, "%s holds no certificate in PEM", paths->certificate);
    if (strstr((const char *)key->data, "PRIVATE KEY-----") == NULL)
        return err_set(error, STINT_E_SYNTAX, "%s holds no private key in PEM", paths->key);
    return err_set(error, STINT_E_SYNTAX, "%s with the key %s: %s", paths->certificate, paths->key,
                   gnutls_strerror(why));
}

static int use_key(struct tls *tls, const struct tls_paths *paths, struct stint_error *error)
{
    gnutls_datum_t certificate = {NULL, 0}, key = {NULL, 0};
    int code = read_pem(paths->certificate, &certificate, error);
    if (code == 0)
        code = read_pem(paths->key, &key, error);
    if (code == 0) {
        int used = gnutls_certificate_set_x509_key_mem2(tls->credentials, &certificate, &key,
                                                        GNUTLS_X509_FMT_PEM, NULL, 0);
        if (used < 0)
            code = refuse_pair(paths, &certificate, &key, used, error);
        explicit_bzero(key.data, key.size);
    }
    free(certificate.data);
    free(key.data);
    return code;
}

static int use_client_ca(struct tls *tls, const char *path, struct stint_error *error)
{
    gnutls_datum_t ca;
    int code = read_pem(path, &ca, error);
    if (code != 0)
        return code;
    code = gnutls_certificate_set_x509_trust_mem(tls->credentials, &ca, GNUTLS_X509_FMT_PEM);
    free(ca.data);
    tls->wants_certificates = true;
    if (code > 0)
        return 0;
    return err_set(error, STINT_E_SYNTAX, "%s: %s", path,
                   gnutls_strerror(code < 0 ? code : GNUTLS_E_NO_CERTIFICATE_FOUND));
}

static int load(struct tls *tls, const struct tls_paths *paths, struct stint_error *error)
{
    const char *at = paths->priorities != NULL ? paths->priorities : TLS_PRIORITIES_DEFAULT;
    if (gnutls_certificate_allocate_credentials(&tls->credentials) < 0)
        return err_set(error, STINT_E_SYSTEM, "no memory for certificates");
    int code = use_key(tls, paths, error);
    if (code == 0 && paths->client_ca != NULL)
        code = use_client_ca(tls, paths->client_ca, error);
    if (code == 0 && gnutls_priority_init(&tls->priorities, at, &at) < 0)
        code = err_set(error, STINT_E_SYNTAX, "tls_priorities: GnuTLS does not know '%s'", at);
    return code;
}

int tls_load(struct tls **tls, const struct tls_paths *paths, struct stint_error *error)
{
    struct tls *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for certificates");
    made->refs = 1;
    int code = load(made, paths, error);
    if (code != 0) {
        tls_unref(made);
        return code;
    }
    *tls = made;
    return 0;
}

struct tls *tls_ref(struct tls *tls)
{
    /* relaxed: the caller already has a reference */
    if (tls != NULL)
        atomic_fetch_add_explicit(&tls->refs, 1, memory_order_relaxed);
    return tls;
}

void tls_unref(struct tls *tls)
{
    /* acq_rel: all uses come before it is freed. */
    if (tls == NULL || atomic_fetch_sub_explicit(&tls->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (tls->credentials != NULL)
        gnutls_certificate_free_credentials(tls->credentials);
    if (tls->priorities != NULL)
        gnutls_priority_deinit(tls->priorities);
    free(tls);
}

/*
 * For one connection; false: no memory. A client that offers protocols (ALPN) must offer `protocol`
 * ("h2"). NULL: none is selected.
 */
static bool tls_begin(struct tls *tls, const char *protocol, gnutls_session_t *session)
{
    const gnutls_datum_t name = {(unsigned char *)(uintptr_t)protocol,
                                 protocol != NULL ? (unsigned)strlen(protocol) : 0};
    if (gnutls_init(session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return false;
    if (gnutls_priority_set(*session, tls->priorities) < 0 ||
        gnutls_credentials_set(*session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0 ||
        (protocol != NULL &&
         gnutls_alpn_set_protocols(*session, &name, 1, GNUTLS_ALPN_MANDATORY) < 0)) {
        gnutls_deinit(*session);
        return false;
    }
    if (tls->wants_certificates) {
        gnutls_certificate_server_set_request(*session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert(*session, NULL, 0);
    }
    return true;
}

#define RECORD_MAX 16384
/* ---- Connections ----------------------------------------------------------------------------- */

#define OUTPUT_MAX 65536 /* of records, above which no more are made */
/* GnuTLS keeps the bytes of a handshake message until it is whole, which may have 16 MiB. */
#define KEPT_MAX 65536

struct tls_conn {
    struct conn conn;
    struct tls_conn_options options;
    gnutls_session_t session;
    struct span fed;          /* the unread part during a feed */
    struct byte_queue output; /* records */
    size_t kept;              /* bytes that GnuTLS was given since it has last returned any */
    bool is_handshaken, is_over;
    bool is_woken; /* the inner connection needs a call of wake() */
};

static struct tls_conn *tls_of(struct conn *conn)
{
    return (struct tls_conn *)conn;
}

static const struct tls_conn *tls_of_const(const struct conn *conn)
{
    return (const struct tls_conn *)conn;
}

/* ---- Callbacks of GnuTLS --------------------------------------------------------------------- */

static ssize_t pull(gnutls_transport_ptr_t transport, void *bytes, size_t size)
{
    struct tls_conn *tls = transport;
    if (tls->fed.len == 0) {
        gnutls_transport_set_errno(tls->session, EAGAIN);
        return -1;
    }
    size_t len = size < tls->fed.len ? size : tls->fed.len;
    memcpy(bytes, tls->fed.ptr, len);
    tls->kept += len;
    tls->fed = span_of(tls->fed.ptr + len, tls->fed.len - len);
    return (ssize_t)len;
}

static ssize_t push(gnutls_transport_ptr_t transport, const void *bytes, size_t len)
{
    struct tls_conn *tls = transport;
    if (!byte_queue_append(&tls->output, span_of(bytes, len))) {
        gnutls_transport_set_errno(tls->session, ENOMEM);
        return -1;
    }
    return (ssize_t)len;
}

/* ---- Records --------------------------------------------------------------------------------- */

static void fail(struct tls_conn *tls, int code)
{
    log_line(tls->options.log, LOG_TLS_FAILED, LOG_TEXT("reason", gnutls_strerror(code)),
             LOG_TEXT("during", tls->is_handshaken ? "session" : "handshake"));
    if (!tls->is_handshaken)
        metrics_refused(tls->options.metrics, tls->options.frontend, METRICS_REFUSED_TLS);
    gnutls_alert_send_appropriate(tls->session, code);
    tls->is_over = true;
}

/* GnuTLS rejects a client that offers other protocols; one that offers none is rejected here. */
static bool speaks_protocol(const struct tls_conn *tls)
{
    gnutls_datum_t chosen;
    return !tls->options.requires_protocol ||
           gnutls_alpn_get_selected_protocol(tls->session, &chosen) == GNUTLS_E_SUCCESS;
}

static bool is_passing(int code)
{
    return code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED;
}

static void shake_hands(struct tls_conn *tls)
{
    int code;
    do
        code = gnutls_handshake(tls->session);
    while (code == GNUTLS_E_WARNING_ALERT_RECEIVED || code == GNUTLS_E_INTERRUPTED);
    if (code == GNUTLS_E_SUCCESS && speaks_protocol(tls)) {
        tls->is_handshaken = true;
        tls->kept = 0;
    } else if (code == GNUTLS_E_SUCCESS)
        fail(tls, GNUTLS_E_NO_APPLICATION_PROTOCOL);
    else if (!is_passing(code))
        fail(tls, code);
}

static void decrypt(struct tls_conn *tls, uint64_t now_ns)
{
    struct conn *inner = tls->options.inner;
    uint8_t text[RECORD_MAX];
    while (!tls->is_over) {
        ssize_t len = gnutls_record_recv(tls->session, text, sizeof(text));
        if (len > 0) {
            tls->kept = 0;
            inner->ops->feed(inner, span_of(text, (size_t)len), now_ns);
        } else if (len == 0) {
            conn_end_input(inner, now_ns); /* the peer sends no more, but may still read */
            break;
        } else if (len == GNUTLS_E_AGAIN)
            break;
        else if (len != GNUTLS_E_INTERRUPTED && len != GNUTLS_E_WARNING_ALERT_RECEIVED)
            fail(tls, (int)len);
    }
}

static void encrypt(struct tls_conn *tls, uint64_t now_ns)
{
    struct conn *inner = tls->options.inner;
    struct span text;
    while (!tls->is_over && byte_queue_len(&tls->output) < OUTPUT_MAX &&
           (text = inner->ops->output(inner)).len > 0) {
        size_t len = text.len < RECORD_MAX ? text.len : RECORD_MAX;
        ssize_t sent = gnutls_record_send(tls->session, text.ptr, len);
        if (sent > 0)
            inner->ops->sent(inner, (size_t)sent, now_ns);
        else if (!is_passing((int)sent))
            fail(tls, (int)sent);
    }
    if (!tls->is_over && inner->ops->is_over(inner) && inner->ops->output(inner).len == 0) {
        gnutls_bye(tls->session, GNUTLS_SHUT_WR);
        tls->is_over = true;
    }
}

/* Output of the inner connection is encrypted once, when the socket's owner fetches the output. */
static void on_woken(void *owner, uint64_t now_ns)
{
    struct tls_conn *tls = owner;
    tls->is_woken = true;
    conn_wake(&tls->conn, now_ns);
}

static bool turn_is_over(void *owner)
{
    const struct tls_conn *tls = owner;
    return conn_turn_is_over(&tls->conn);
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void tls_feed(struct conn *conn, struct span bytes, uint64_t now_ns)
{
    struct tls_conn *tls = tls_of(conn);
    tls->fed = bytes;
    if (!tls->is_handshaken && !tls->is_over)
        shake_hands(tls);
    if (tls->is_handshaken) {
        decrypt(tls, now_ns);
        encrypt(tls, now_ns);
    }
    tls->fed = span_of(NULL, 0);
    if (tls->kept > KEPT_MAX && !tls->is_over)
        fail(tls, GNUTLS_E_HANDSHAKE_TOO_LARGE);
}

static struct span tls_output(struct conn *conn)
{
    struct tls_conn *tls = tls_of(conn);
    return byte_queue_span(&tls->output);
}

static void tls_sent(struct conn *conn, size_t len, uint64_t now_ns)
{
    struct tls_conn *tls = tls_of(conn);
    byte_queue_take(&tls->output, len, 0);
    if (tls->is_handshaken)
        encrypt(tls, now_ns);
}

static bool tls_is_backpressured(const struct conn *conn)
{
    const struct tls_conn *tls = tls_of_const(conn);
    const struct conn *inner = tls->options.inner;
    return byte_queue_len(&tls->output) >= OUTPUT_MAX || inner->ops->is_backpressured(inner);
}

static bool tls_has_work(const struct conn *conn)
{
    const struct tls_conn *tls = tls_of_const(conn);
    const struct conn *inner = tls->options.inner;
    return tls->is_handshaken && !tls->is_over && byte_queue_len(&tls->output) < OUTPUT_MAX &&
           inner->ops->has_work != NULL && inner->ops->has_work(inner);
}

static uint64_t tls_deadline(const struct conn *conn)
{
    const struct conn *inner = tls_of_const(conn)->options.inner;
    return tls_of_const(conn)->is_woken ? 0 : inner->ops->deadline(inner);
}

static void tls_wake(struct conn *conn, uint64_t now_ns)
{
    struct tls_conn *tls = tls_of(conn);
    tls->is_woken = false;
    tls->options.inner->ops->wake(tls->options.inner, now_ns);
    if (tls->is_handshaken)
        encrypt(tls, now_ns);
}

/* During a handshake TLS has no error reply. */
static void tls_expire(struct conn *conn, uint64_t now_ns)
{
    struct tls_conn *tls = tls_of(conn);
    struct conn *inner = tls->options.inner;
    if (tls->is_handshaken && inner->ops->expire != NULL) {
        inner->ops->expire(inner, now_ns);
        encrypt(tls, now_ns);
    }
    tls->is_over = true;
}

static bool tls_is_over(const struct conn *conn)
{
    return tls_of_const(conn)->is_over;
}

static void pass_end(struct tls_conn *tls, void (*end)(struct conn *inner, uint64_t now_ns),
                     uint64_t now_ns)
{
    if (!tls->is_handshaken) { /* no request has come */
        tls->is_over = true;
        return;
    }
    end(tls->options.inner, now_ns);
    encrypt(tls, now_ns);
}

static void tls_drain(struct conn *conn, uint64_t now_ns)
{
    struct tls_conn *tls = tls_of(conn);
    pass_end(tls, tls->options.inner->ops->drain, now_ns);
}

static void tls_end_input(struct conn *conn, uint64_t now_ns)
{
    pass_end(tls_of(conn), conn_end_input, now_ns);
}

static bool tls_is_busy(const struct conn *conn)
{
    const struct tls_conn *tls = tls_of_const(conn);
    return !tls->is_handshaken || tls->options.inner->ops->is_busy(tls->options.inner);
}

static size_t tls_held(const struct conn *conn)
{
    const struct tls_conn *tls = tls_of_const(conn);
    return tls->kept + tls->output.size + tls->options.inner->ops->held(tls->options.inner);
}

static void tls_free(struct conn *conn)
{
    struct tls_conn *tls = tls_of(conn);
    if (tls->session != NULL)
        gnutls_deinit(tls->session);
    tls->options.inner->ops->free(tls->options.inner);
    tls_unref(tls->options.tls);
    byte_queue_deinit(&tls->output);
    free(tls);
}

static const struct conn_ops tls_ops = {
    .feed = tls_feed,
    .output = tls_output,
    .sent = tls_sent,
    .is_backpressured = tls_is_backpressured,
    .has_work = tls_has_work,
    .deadline = tls_deadline,
    .wake = tls_wake,
    .expire = tls_expire,
    .is_over = tls_is_over,
    .drain = tls_drain,
    .end_input = tls_end_input,
    .is_busy = tls_is_busy,
    .held = tls_held,
    .free = tls_free,
};

struct conn *tls_conn_new(const struct tls_conn_options *options)
{
    struct tls_conn *tls = calloc(1, sizeof(*tls));
    if (tls == NULL) {
        options->inner->ops->free(options->inner);
        return NULL;
    }
    tls->conn.ops = &tls_ops;
    tls->options = *options;
    tls->options.tls = tls_ref(options->tls);
    options->inner->owner = tls;
    options->inner->woken = on_woken;
    options->inner->turn_is_over = turn_is_over;
    if (!tls_begin(options->tls, options->protocol, &tls->session)) {
        tls->session = NULL;
        tls_free(&tls->conn);
        return NULL;
    }
    gnutls_transport_set_ptr(tls->session, tls);
    gnutls_transport_set_pull_function(tls->session, pull);
    gnutls_transport_set_push_function(tls->session, push);
    return &tls->conn;
}
