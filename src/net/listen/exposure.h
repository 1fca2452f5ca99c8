/* SPDX-License-Identifier: MIT */
/* Whether listening sockets may be served: by who reaches them, and by what they need. */
#ifndef STINT_NET_LISTEN_EXPOSURE_H
#define STINT_NET_LISTEN_EXPOSURE_H

#include "net/listen/listener.h"
#include "net/log/log.h"

struct exposure_options {
    bool has_tokens, is_insecure, has_tls;
    struct log *log; /* is told of what is open to anybody on purpose */
};

/* A port that anybody reaches is for those with a token; one of TLS needs a certificate. */
int exposure_check(const struct listeners *listeners, const struct exposure_options *options,
                   struct stint_error *error);

#endif
