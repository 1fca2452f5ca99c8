/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* strncasecmp */
#include "net/upstream/collector_conn.h"

#include "base/buf.h"

#include <strings.h>

static int refuse(struct stint_error *error, const char *expected)
{
    return err_set(error, STINT_E_SYNTAX,
                   "expected http://HOST[:PORT][/PATH] or grpc://HOST[:PORT], or https and grpcs "
                   "for TLS: %s",
                   expected);
}

/* What follows the scheme; NULL: there is no known one. */
static const char *read_scheme(struct collector_url *url, const char *text)
{
    static const struct {
        const char *name;
        bool is_grpc, is_tls;
    } schemes[] = {{"http://", false, false},
                   {"https://", false, true},
                   {"grpc://", true, false},
                   {"grpcs://", true, true}};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t len = strlen(schemes[i].name);
        if (strncasecmp(text, schemes[i].name, len) != 0)
            continue;
        *url = (struct collector_url){.is_grpc = schemes[i].is_grpc, .is_tls = schemes[i].is_tls};
        return text + len;
    }
    return NULL;
}

int collector_url_parse(struct collector_url *url, const char *text, struct stint_error *error)
{
    const char *authority = read_scheme(url, text);
    if (authority == NULL)
        return refuse(error, "the scheme is http, https, grpc or grpcs");
    size_t len = strcspn(authority, "/?#");
    const char *path = authority + len;
    for (const char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return refuse(error, "a byte is not allowed in a URL");
    if (memchr(authority, '@', len) != NULL)
        return refuse(error, "a user or a password goes into traces_headers");
    if (strpbrk(path, "?#") != NULL)
        return refuse(error, "a path has no ? and no #");
    if (url->is_grpc && path[0] != '\0' && strcmp(path, "/") != 0)
        return refuse(error, "gRPC has no path");
    if (strlen(path) >= sizeof(url->path))
        return err_set(error, STINT_E_RANGE, "the path has more than %d bytes",
                       COLLECTOR_PATH_SIZE - 1);
    if (!url->is_grpc)
        memcpy(url->path, path, strlen(path) + 1);
    if (!store_host_parse(&url->host, span_of(authority, len),
                          url->is_grpc ? COLLECTOR_GRPC_PORT : COLLECTOR_HTTP_PORT))
        return refuse(error, "the host is missing or malformed, or the port is not 1 to 65535");
    struct buf buf = buf_of(url->authority, sizeof(url->authority));
    store_host_add(&buf, &url->host);
    return 0;
}

bool collector_conn_open(struct collector_conn *conn, const struct collector_conn_options *options)
{
    bool is_grpc = options->url->is_grpc;
    conn->link = is_grpc ? collector_grpc_new(options) : collector_http_new(options);
    conn->post = is_grpc ? collector_grpc_post : collector_http_post;
    return conn->link != NULL;
}
