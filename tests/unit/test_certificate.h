/* SPDX-License-Identifier: MIT */
/* A certificate of its own, which the test's client does not look at. */
#ifndef STINT_TESTS_TEST_CERTIFICATE_H
#define STINT_TESTS_TEST_CERTIFICATE_H

#include "unit/test.h"

#include <gnutls/x509.h>

static inline void make_certificate(gnutls_x509_privkey_t *key, gnutls_x509_crt_t *certificate)
{
    assert_int_equal(gnutls_x509_privkey_init(key), 0);
    assert_int_equal(gnutls_x509_privkey_generate(*key, GNUTLS_PK_ECDSA,
                                                  GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1),
                                                  0),
                     0);
    assert_int_equal(gnutls_x509_crt_init(certificate), 0);
    gnutls_x509_crt_set_version(*certificate, 3);
    gnutls_x509_crt_set_serial(*certificate, "1", 1);
    gnutls_x509_crt_set_activation_time(*certificate, 0);
    gnutls_x509_crt_set_expiration_time(*certificate, 4000000000);
    gnutls_x509_crt_set_key(*certificate, *key);
    assert_int_equal(gnutls_x509_crt_sign2(*certificate, *certificate, *key, GNUTLS_DIG_SHA256, 0),
                     0);
}

#endif
