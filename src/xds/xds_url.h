/* SPDX-License-Identifier: MIT */
/*
 * A control plane as an element of the setting `rules`: xds://[NODE@]HOST[:PORT], and xdss:// for
 * TLS. NODE is the id under which the control plane knows this server.
 */
#ifndef STINT_XDS_XDS_URL_H
#define STINT_XDS_XDS_URL_H

#include "backend/url.h"

#define XDS_SOURCES_MAX 4 /* control planes of one server */
#define XDS_PORT 18000    /* where none is given: as in the examples of control planes */
#define XDS_NODE "default"
#define XDS_NODE_SIZE 256

struct xds_url {
    bool is_tls;
    char node[XDS_NODE_SIZE];
    struct store_host host;
    char authority[STORE_HOST_SIZE + 8]; /* HOST:PORT, an IPv6 address in brackets */
    char text[STORE_HOST_SIZE + 16];     /* without the node: what messages and /rlconfig show */
};

/* Whether the text names a control plane, and not a file. */
bool xds_url_is(const char *text);
/* STINT_E_SYNTAX or STINT_E_RANGE with a message that has the text and what was expected. */
int xds_url_parse(struct xds_url *url, const char *text, struct stint_error *error);

#endif
