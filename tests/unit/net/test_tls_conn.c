/* SPDX-License-Identifier: MIT */
/* TLS between a client of GnuTLS and a connection of the test, without sockets. */
#define _GNU_SOURCE
#include "unit/test_certificate.h"

#include "base/byte_queue.h"
#include "net/tls.h"

#include <errno.h>
#include <unistd.h>

#define REPLY 4096u
#define UNSENT_MAX (256u << 10) /* of records: several times what the connection makes at once */

static struct tls *tls;
static struct metrics *metrics;
static struct log *lines;

/* ---- The connection inside ------------------------------------------------------------------- */

static struct {
    struct conn conn;
    uint64_t replies; /* bytes still to send */
    size_t heard;
    unsigned drains, ends; /* calls of these operations */
} inner;

static void inner_feed(struct conn *conn, struct span bytes, uint64_t now_ns)
{
    (void)conn, (void)now_ns;
    inner.heard += bytes.len;
}

static struct span inner_output(struct conn *conn)
{
    static const uint8_t reply[REPLY];
    (void)conn;
    return inner.replies == 0 ? span_of(NULL, 0)
                              : span_of(reply, inner.replies < REPLY ? inner.replies : REPLY);
}

static void inner_sent(struct conn *conn, size_t len, uint64_t now_ns)
{
    (void)conn, (void)now_ns;
    inner.replies -= len;
}

static void inner_wake(struct conn *conn, uint64_t now_ns)
{
    (void)conn, (void)now_ns;
}

static void inner_drain(struct conn *conn, uint64_t now_ns)
{
    (void)conn, (void)now_ns;
    inner.drains++;
}

static void inner_end_input(struct conn *conn, uint64_t now_ns)
{
    (void)conn, (void)now_ns;
    inner.ends++;
}

static bool inner_is_over(const struct conn *conn)
{
    (void)conn;
    return false;
}

static size_t inner_held(const struct conn *conn)
{
    (void)conn;
    return 0;
}

static void inner_free(struct conn *conn)
{
    (void)conn;
}

static const struct conn_ops inner_ops = {
    .feed = inner_feed,
    .output = inner_output,
    .sent = inner_sent,
    .wake = inner_wake,
    .is_over = inner_is_over,
    .drain = inner_drain,
    .end_input = inner_end_input,
    .held = inner_held,
    .free = inner_free,
};

/* ---- The client ------------------------------------------------------------------------------ */

static struct {
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    struct byte_queue in, out;
} client;

static ssize_t client_pull(gnutls_transport_ptr_t transport, void *bytes, size_t size)
{
    (void)transport;
    struct span in = byte_queue_span(&client.in);
    if (in.len == 0) {
        gnutls_transport_set_errno(client.session, EAGAIN);
        return -1;
    }
    size_t len = size < in.len ? size : in.len;
    memcpy(bytes, in.ptr, len);
    byte_queue_take(&client.in, len, 0);
    return (ssize_t)len;
}

static ssize_t client_push(gnutls_transport_ptr_t transport, const void *bytes, size_t len)
{
    (void)transport;
    assert_true(byte_queue_append(&client.out, span_of(bytes, len)));
    return (ssize_t)len;
}

/* Moves what the client has written, and at most `most` bytes of what the server has. */
static void move(struct conn *conn, size_t most)
{
    struct span out = byte_queue_span(&client.out);
    if (out.len > 0) {
        conn->ops->feed(conn, out, 0);
        byte_queue_clear(&client.out, 0);
    }
    struct span records = conn->ops->output(conn);
    size_t len = records.len < most ? records.len : most;
    assert_true(byte_queue_append(&client.in, span_of(records.ptr, len)));
    if (len > 0)
        conn->ops->sent(conn, len, 0);
}

static struct conn *accept_client(void)
{
    const struct tls_conn_options options = {.tls = tls,
                                             .inner = &inner.conn,
                                             .log = lines,
                                             .metrics = metrics_worker(metrics, 0),
                                             .frontend = METRICS_RESP};
    struct conn *conn = tls_conn_new(&options);
    assert_non_null(conn);
    return conn;
}

static struct conn *connect_client(void)
{
    struct conn *conn = accept_client();
    for (int i = 0; i < 10 && gnutls_handshake(client.session) != 0; i++)
        move(conn, SIZE_MAX);
    move(conn, SIZE_MAX);
    assert_int_equal(gnutls_record_send(client.session, "PING", 4), 4);
    move(conn, SIZE_MAX);
    assert_int_equal(inner.heard, 4);
    return conn;
}

/* ---- Certificates ---------------------------------------------------------------------------- */

static char folder[] = "/tmp/stint-tls-XXXXXX", certificate_path[64], key_path[64];

static void write_file(const char *path, const gnutls_datum_t *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text->data, 1, text->size, file), text->size);
    assert_int_equal(fclose(file), 0);
}

static void certify(void)
{
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t certificate;
    gnutls_datum_t text;
    make_certificate(&key, &certificate);
    assert_int_equal(gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &text), 0);
    write_file(certificate_path, &text);
    gnutls_free(text.data);
    assert_int_equal(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &text), 0);
    write_file(key_path, &text);
    gnutls_free(text.data);
    gnutls_x509_crt_deinit(certificate);
    gnutls_x509_privkey_deinit(key);
}

SETUP
{
    struct stint_error error;
    memcpy(folder, "/tmp/stint-tls-XXXXXX", sizeof(folder));
    assert_non_null(mkdtemp(folder));
    snprintf(certificate_path, sizeof(certificate_path), "%s/certificate", folder);
    snprintf(key_path, sizeof(key_path), "%s/key", folder);
    certify();
    const struct tls_paths paths = {.certificate = certificate_path, .key = key_path};
    assert_int_equal(tls_load(&tls, &paths, &error), 0);
    metrics = metrics_new(1);
    lines = log_new(STDERR_FILENO, LOG_FORMAT_TEXT, LOG_LEVEL_ERROR);
    assert_true(metrics != NULL && lines != NULL);
    memset(&inner, 0, sizeof(inner));
    inner.conn.ops = &inner_ops;
    assert_int_equal(gnutls_certificate_allocate_credentials(&client.credentials), 0);
    assert_int_equal(gnutls_init(&client.session, GNUTLS_CLIENT | GNUTLS_NONBLOCK), 0);
    gnutls_set_default_priority(client.session);
    gnutls_credentials_set(client.session, GNUTLS_CRD_CERTIFICATE, client.credentials);
    gnutls_transport_set_pull_function(client.session, client_pull);
    gnutls_transport_set_push_function(client.session, client_push);
}

TEARDOWN
{
    gnutls_deinit(client.session);
    gnutls_certificate_free_credentials(client.credentials);
    byte_queue_deinit(&client.in);
    byte_queue_deinit(&client.out);
    tls_unref(tls);
    metrics_free(metrics);
    log_free(lines);
    unlink(certificate_path);
    unlink(key_path);
    rmdir(folder);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* What is held grows with what is unsent, not with what was ever sent. */
TEST(a_slow_reader_holds_what_it_has_not_read)
{
    struct conn *conn = connect_client();
    inner.replies = 16u << 20;
    conn->ops->wake(conn, 0);
    while (inner.replies > 0) {
        move(conn, 10000);
        assert_true(conn->ops->held(conn) <= UNSENT_MAX);
        byte_queue_clear(&client.in, 0);
    }
    while (conn->ops->output(conn).len > 0) {
        move(conn, SIZE_MAX);
        byte_queue_clear(&client.in, 0);
    }
    assert_int_equal(conn->ops->held(conn), 0);
    conn->ops->free(conn);
}

TEST(the_end_of_the_input_is_not_the_end_of_the_server)
{
    struct conn *conn = connect_client();
    gnutls_bye(client.session, GNUTLS_SHUT_WR);
    move(conn, SIZE_MAX);
    assert_int_equal(inner.ends, 1);
    conn_end_input(conn, 0);
    assert_int_equal(inner.ends, 2);
    assert_int_equal(inner.drains, 0);
    conn->ops->drain(conn, 0);
    assert_int_equal(inner.drains, 1);
    conn->ops->free(conn);
}

/* Its length is 16 MB; the client sends it slowly. */
TEST(an_incomplete_handshake_is_bounded_and_counted)
{
    static uint8_t record[5 + 16384] = {22, 3, 1, 16384 >> 8, 0, 1, 0xf4, 0x24, 0};
    struct conn *conn = accept_client();
    size_t n_records = 0;
    for (; n_records < 100 && !conn->ops->is_over(conn); n_records++) {
        assert_in_range(conn->ops->held(conn), 16384 * n_records, 100000);
        conn->ops->feed(conn, span_of(record, sizeof(record)), 0);
        memset(record + 5, 0, 4);
    }
    assert_int_equal(n_records, 4);
    conn->ops->free(conn);
}
