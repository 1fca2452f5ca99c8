/* SPDX-License-Identifier: MIT */
/* One pass: scheme, node, host and port. */
#include "xds/xds_url.h"

#include <assert.h>

static const struct {
    const char *text;
    bool is_tls;
} schemes[] = {{"xds://", false}, {"xdss://", true}};
#define N_SCHEMES (sizeof(schemes) / sizeof(schemes[0]))

static size_t scheme_of(const char *text)
{
    size_t i = 0;
    while (i < N_SCHEMES && strncmp(text, schemes[i].text, strlen(schemes[i].text)) != 0)
        i++;
    return i;
}

bool xds_url_is(const char *text)
{
    return scheme_of(text) < N_SCHEMES;
}

int xds_url_parse(struct xds_url *url, const char *text, struct stint_error *error)
{
    size_t scheme = scheme_of(text);
    assert(scheme < N_SCHEMES);
    const char *rest = text + strlen(schemes[scheme].text), *node_end = strrchr(rest, '@');
    struct span node = span_of_text(XDS_NODE);
    *url = (struct xds_url){.is_tls = schemes[scheme].is_tls};
    if (node_end != NULL) {
        node = span_of(rest, (size_t)(node_end - rest));
        rest = node_end + 1;
    }
    if (node.len == 0 || node.len >= sizeof(url->node))
        return err_set(error, STINT_E_RANGE, "'%.100s': expected a node of 1 to %d bytes before @",
                       text, XDS_NODE_SIZE - 1);
    memcpy(url->node, node.ptr, node.len);
    if (!store_host_parse(&url->host, span_of_text(rest), XDS_PORT))
        return err_set(error, STINT_E_SYNTAX,
                       "'%.100s': expected %sHOST:PORT or %sNODE@HOST:PORT, such as "
                       "xds://envoy-gateway:18001",
                       text, schemes[scheme].text, schemes[scheme].text);
    struct buf authority = buf_of(url->authority, sizeof(url->authority));
    struct buf shown = buf_of(url->text, sizeof(url->text));
    store_host_add(&authority, &url->host);
    buf_add(&shown, "%s%s", schemes[scheme].text, url->authority);
    return 0;
}
