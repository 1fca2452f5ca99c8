/* SPDX-License-Identifier: MIT */
/* Certificates are read and checked once, when they are loaded: a handshake reads no file. */
#define _GNU_SOURCE
#include "net/tls.h"

#include "net/file/file_text.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PEM_MAX (1u << 20) /* bytes of one file */

struct tls {
    atomic_uint refs;
    char *certificate, *key, *client_ca, *priorities_text;
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
};

static gnutls_datum_t datum_of(char *text)
{
    return (gnutls_datum_t){.data = (unsigned char *)text, .size = (unsigned)strlen(text)};
}

static int read_texts(struct tls *tls, const struct tls_paths *paths, struct stint_error *error)
{
    int code = file_text_read(paths->certificate, PEM_MAX, &tls->certificate, error);
    if (code == 0)
        code = file_text_read(paths->key, PEM_MAX, &tls->key, error);
    if (code == 0 && paths->client_ca != NULL)
        code = file_text_read(paths->client_ca, PEM_MAX, &tls->client_ca, error);
    if (code == 0) {
        const char *text = paths->priorities != NULL ? paths->priorities : TLS_PRIORITIES_DEFAULT;
        tls->priorities_text = strdup(text);
    }
    return code;
}

static int refuse(struct stint_error *error, const char *path, int reason)
{
    return err_set(error, STINT_E_SYNTAX, "%s: %s", path, gnutls_strerror(reason));
}

static int use_texts(struct tls *tls, const struct tls_paths *paths, struct stint_error *error)
{
    gnutls_datum_t certificate = datum_of(tls->certificate), key = datum_of(tls->key);
    const char *at = NULL;
    int code = gnutls_certificate_allocate_credentials(&tls->credentials);
    if (code < 0)
        return err_set(error, STINT_E_SYSTEM, "no memory for certificates");
    code = gnutls_certificate_set_x509_key_mem2(tls->credentials, &certificate, &key,
                                                GNUTLS_X509_FMT_PEM, NULL, 0);
    if (code < 0)
        return err_set(error, STINT_E_SYNTAX, "%s with the key %s: %s", paths->certificate,
                       paths->key, gnutls_strerror(code));
    if (tls->client_ca != NULL) {
        gnutls_datum_t ca = datum_of(tls->client_ca);
        code = gnutls_certificate_set_x509_trust_mem(tls->credentials, &ca, GNUTLS_X509_FMT_PEM);
        if (code <= 0)
            return refuse(error, paths->client_ca, code < 0 ? code : GNUTLS_E_NO_CERTIFICATE_FOUND);
    }
    code = gnutls_priority_init(&tls->priorities, tls->priorities_text, &at);
    if (code < 0)
        return err_set(error, STINT_E_SYNTAX, "tls_priorities: GnuTLS does not know '%s'",
                       at != NULL ? at : tls->priorities_text);
    return 0;
}

int tls_load(struct tls **tls, const struct tls_paths *paths, struct stint_error *error)
{
    struct tls *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for certificates");
    made->refs = 1;
    int code = read_texts(made, paths, error);
    if (code == 0 && made->priorities_text == NULL)
        code = err_set(error, STINT_E_SYSTEM, "no memory for certificates");
    if (code == 0)
        code = use_texts(made, paths, error);
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
    if (tls->key != NULL)
        explicit_bzero(tls->key, strlen(tls->key));
    free(tls->certificate);
    free(tls->key);
    free(tls->client_ca);
    free(tls->priorities_text);
    if (tls->credentials != NULL)
        gnutls_certificate_free_credentials(tls->credentials);
    if (tls->priorities != NULL)
        gnutls_priority_deinit(tls->priorities);
    free(tls);
}

static int set_protocol(gnutls_session_t session, const char *protocol)
{
    gnutls_datum_t name = {(unsigned char *)(uintptr_t)protocol, (unsigned)strlen(protocol)};
    return gnutls_alpn_set_protocols(session, &name, 1, GNUTLS_ALPN_MANDATORY);
}

bool tls_begin(struct tls *tls, const char *protocol, gnutls_session_t *session)
{
    if (gnutls_init(session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return false;
    if (gnutls_priority_set(*session, tls->priorities) < 0 ||
        gnutls_credentials_set(*session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0 ||
        (protocol != NULL && set_protocol(*session, protocol) < 0)) {
        gnutls_deinit(*session);
        return false;
    }
    if (tls->client_ca != NULL) {
        gnutls_certificate_server_set_request(*session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert(*session, NULL, 0);
    }
    return true;
}
