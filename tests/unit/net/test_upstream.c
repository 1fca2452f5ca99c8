/* SPDX-License-Identifier: MIT */
/* The socket of a store in TLS whose other end takes nothing for a while. */
#define _GNU_SOURCE
#include "unit/test_certificate.h"

#include "base/ns.h"
#include "net/upstream/upstream.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <uv.h>

#define MUCH (1u << 20) /* more than a socket takes that nobody reads */

static struct link *talk; /* a connection that sends the bytes of the test */
static uv_loop_t loop;
static struct upstream *upstream;

/* The other end. */
static struct {
    char folder[64], path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int listening, fd;
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    uint8_t *heard;
    size_t n_heard;
} store;

/* ---- The connection -------------------------------------------------------------------------- */

static bool talk_begin(struct link *link)
{
    link_be_ready(link);
    return true;
}

static int talk_read(struct link *link, struct span bytes, uint64_t now_ns)
{
    (void)link, (void)bytes, (void)now_ns;
    return 0;
}

static void talk_free(struct link *link)
{
    (void)link;
}

static const struct link_codec talk_codec = {
    .server = "the store", .begin = talk_begin, .read = talk_read, .free = talk_free};

/* ---- The store ------------------------------------------------------------------------------- */

static void listen_there(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(store.folder, sizeof(store.folder), "/tmp/stint-upstream-XXXXXX");
    assert_non_null(mkdtemp(store.folder));
    snprintf(store.path, sizeof(store.path), "%s/socket", store.folder);
    memcpy(address.sun_path, store.path, sizeof(store.path));
    store.listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(store.listening >= 0);
    assert_int_equal(bind(store.listening, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(store.listening, 1), 0);
}

static void certify(void)
{
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t certificate;
    make_certificate(&key, &certificate);
    assert_int_equal(gnutls_certificate_allocate_credentials(&store.credentials), 0);
    assert_true(gnutls_certificate_set_x509_key(store.credentials, &certificate, 1, key) >= 0);
    gnutls_x509_crt_deinit(certificate);
    gnutls_x509_privkey_deinit(key);
}

static void accept_there(void)
{
    store.fd = accept4(store.listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(store.fd >= 0);
    assert_int_equal(gnutls_init(&store.session, GNUTLS_SERVER | GNUTLS_NONBLOCK), 0);
    gnutls_set_default_priority(store.session);
    gnutls_credentials_set(store.session, GNUTLS_CRD_CERTIFICATE, store.credentials);
    gnutls_transport_set_int(store.session, store.fd);
}

static void hear(void)
{
    ssize_t len;
    do {
        assert_true(store.n_heard + 16384 <= 2 * MUCH);
        len = gnutls_record_recv(store.session, store.heard + store.n_heard, 16384);
        store.n_heard += len > 0 ? (size_t)len : 0;
    } while (len > 0);
    assert_int_equal(len, GNUTLS_E_AGAIN);
}

static void turn(int times)
{
    for (int i = 0; i < times; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static struct upstream_tls *tls;

SETUP
{
    struct stint_error error;
    talk = calloc(1, sizeof(*talk));
    assert_non_null(talk);
    assert_true(link_init(talk, &talk_codec, &(struct link_options){.connect_ns = NS_PER_HOUR}));
    store.heard = malloc(2 * MUCH);
    store.n_heard = 0;
    listen_there();
    certify();
    uv_loop_init(&loop);
    assert_int_equal(
        upstream_tls_load(&tls, &(struct upstream_tls_paths){.believes_all = true}, &error), 0);
    upstream = upstream_new(
        &(struct upstream_options){.loop = &loop, .path = store.path, .tls = tls, .link = talk});
    assert_non_null(upstream);
    turn(2);
    accept_there();
    for (int i = 0; i < 100 && !link_is_ready(talk); i++) {
        (void)gnutls_handshake(store.session);
        turn(2);
    }
    assert_true(link_is_ready(talk));
    assert_int_equal(gnutls_handshake(store.session), 0);
}

TEARDOWN
{
    upstream_close(upstream);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    upstream_tls_free(tls);
    gnutls_deinit(store.session);
    gnutls_certificate_free_credentials(store.credentials);
    close(store.fd);
    close(store.listening);
    unlink(store.path);
    rmdir(store.folder);
    free(store.heard);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void say(const uint8_t *bytes, size_t len)
{
    assert_true(wire_bytes_reserve(&talk->bytes, len, SIZE_MAX));
    wire_bytes_add(&talk->bytes, span_of(bytes, len));
    upstream_asked(upstream);
    turn(4);
}

/* Commands that are late before they were sent are taken back: what was told as sent is not. */
TEST(what_tls_has_taken_counts_as_sent)
{
    uint8_t *much = malloc(MUCH);
    assert_non_null(much);
    for (size_t i = 0; i < MUCH; i++)
        much[i] = (uint8_t)(i % 251);
    say(much, MUCH);
    size_t sent = talk->sent;
    assert_in_range(sent, 1, MUCH - 1);
    talk->bytes.len = sent; /* the rest is not wanted any more */
    for (int i = 0; i < 10; i++, turn(2))
        hear();
    assert_int_equal(store.n_heard, sent);
    assert_memory_equal(store.heard, much, sent);
    say((const uint8_t *)"then", 4);
    hear();
    assert_int_equal(talk->sent, sent + 4);
    assert_int_equal(store.n_heard, sent + 4);
    assert_memory_equal(store.heard + sent, "then", 4);
    free(much);
}

TEST(much_is_sent_whole_to_a_slow_reader)
{
    uint8_t *much = malloc(MUCH);
    assert_non_null(much);
    for (size_t i = 0; i < MUCH; i++)
        much[i] = (uint8_t)(i % 241);
    say(much, MUCH);
    for (int i = 0; i < 200 && store.n_heard < MUCH; i++, turn(2))
        hear();
    assert_int_equal(store.n_heard, MUCH);
    assert_memory_equal(store.heard, much, MUCH);
    assert_int_equal(link_output(talk).len, 0);
    free(much);
}
