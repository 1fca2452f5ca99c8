/* SPDX-License-Identifier: MIT */
/* Whether listening sockets may be served: by possible clients, and by tokens and certificates. */
#ifndef STINT_NET_LISTEN_EXPOSURE_H
#define STINT_NET_LISTEN_EXPOSURE_H

#include "net/listen/listener.h"
#include "net/log/log.h"

struct exposure_options {
    bool has_tokens, is_insecure, has_tls;
    struct log *log; /* gets a line for each socket that is deliberately open to other machines */
};

/* A port that other machines can reach needs tokens; one with TLS needs a certificate. */
int exposure_check(const struct listeners *listeners, const struct exposure_options *options,
                   struct stint_error *error);

#endif
