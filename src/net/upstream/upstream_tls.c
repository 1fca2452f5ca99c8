/* SPDX-License-Identifier: MIT */
/* Certificates are read and checked once: reconnecting reads no file. */
#define _GNU_SOURCE
#include "net/upstream/upstream_tls.h"

#include "base/buf.h"
#include "net/file/file_text.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct upstream_tls {
    gnutls_certificate_credentials_t credentials;
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

static int load(struct upstream_tls *tls, const struct upstream_tls_paths *paths,
                struct stint_error *error)
{
    int code = gnutls_certificate_allocate_credentials(&tls->credentials);
    if (code < 0)
        return err_set(error, STINT_E_SYSTEM, "no memory for certificates");
    tls->believes_all = paths->believes_all;
    code = tls->believes_all ? 0 : load_trust(tls, paths, error);
    if (code != 0 || paths->cert_file == NULL)
        return code;
    const char *key_file = paths->key_file != NULL ? paths->key_file : paths->cert_file;
    if (file_check(paths->cert_file, error) != 0 || file_check(key_file, error) != 0)
        return STINT_E_SYSTEM;
    code = gnutls_certificate_set_x509_key_file(tls->credentials, paths->cert_file, key_file,
                                                GNUTLS_X509_FMT_PEM);
    return code >= 0 ? 0
                     : err_set(error, STINT_E_SYNTAX, "%s with the key %s: %s", paths->cert_file,
                               key_file, gnutls_strerror(code));
}

int upstream_tls_load(struct upstream_tls **tls, const struct upstream_tls_paths *paths,
                      struct stint_error *error)
{
    struct upstream_tls *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for certificates");
    int code = load(made, paths, error);
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
    if (tls->credentials != NULL)
        gnutls_certificate_free_credentials(tls->credentials);
    free(tls);
}

static bool is_address(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* The extension is only for names; addresses are compared with the certificate nevertheless. */
static int set_name(gnutls_session_t session, const char *host)
{
    if (host[0] == '\0' || is_address(host))
        return 0;
    return gnutls_server_name_set(session, GNUTLS_NAME_DNS, host, strlen(host));
}

bool upstream_tls_begin(struct upstream_tls *tls, const char *host, int fd,
                        gnutls_session_t *session)
{
    if (gnutls_init(session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return false;
    if (gnutls_priority_set_direct(*session, PRIORITIES, NULL) < 0 ||
        gnutls_credentials_set(*session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0 ||
        set_name(*session, host) < 0) {
        gnutls_deinit(*session);
        *session = NULL;
        return false;
    }
    if (!tls->believes_all)
        gnutls_session_set_verify_cert(*session, host[0] != '\0' ? host : NULL, 0);
    gnutls_transport_set_int(*session, fd);
    return true;
}

void upstream_tls_error(gnutls_session_t session, int code, char *text, size_t size)
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
