/* SPDX-License-Identifier: MIT */
/* The caller of a message, and the text of its answer. */
#include "frontend/http/http_exchange.h"

#include <stdio.h>
#include <stdlib.h>

#define HOST_SHOWN_MAX 100 /* bytes of a host in the message of the rejection */

/* ---- Answers --------------------------------------------------------------------------------- */

void http_exchange_refuse(struct http_exchange *exchange, unsigned status, const char *detail)
{
    struct http_frontend *frontend = exchange->frontend;
    struct http_text out;
    if (frontend->metrics != NULL && status >= 400 && status < 500)
        metrics_count(frontend->metrics, METRICS_HTTP, METRICS_MALFORMED, 1);
    do {
        out = http_frontend_text(frontend);
        http_problem_write(&out, status, detail);
    } while (http_frontend_grow(frontend, &out));
    http_exchange_text(exchange, status, HTTP_TYPE_PROBLEM, span_of(out.text, out.len));
}

/* ---- The caller ------------------------------------------------------------------------------ */

static bool refuse_sender(struct http_exchange *exchange, unsigned status, const char *challenge,
                          const char *detail)
{
    http_answer_add(exchange->answer, "WWW-Authenticate", challenge);
    http_exchange_refuse(exchange, status, detail);
    return false;
}

static bool is_trusted_proxy(const struct http_exchange *exchange)
{
    return http_proxies_trust(exchange->frontend->options.config->proxies, exchange->message->peer);
}

/*
 * Whether a trusted proxy calls /auth, which may pass on the Host of its client. In a DNS rebinding
 * attack, Host has this server's port, which sites of a proxy do not have: that is rejected.
 */
static bool is_host_of_proxy(const struct http_exchange *exchange, unsigned role, struct span host)
{
    return role == HTTP_ROLE_AUTH && memchr(host.ptr, ':', host.len) == NULL &&
           is_trusted_proxy(exchange);
}

/* Most requests name the same host as the one before. */
static bool is_known_host(struct http_frontend *frontend, struct span host)
{
    if (host.len == frontend->host_len && memcmp(host.ptr, frontend->host, host.len) == 0)
        return true;
    const struct http_config_options *options = &frontend->options.config->options;
    if (!http_hosts_have(options->hosts, options->n_hosts, host))
        return false;
    if (host.len <= sizeof(frontend->host)) {
        memcpy(frontend->host, host.ptr, host.len);
        frontend->host_len = host.len;
    }
    return true;
}

/*
 * A server without tokens trusts all clients that reach its port, and a page could become one by
 * DNS rebinding. Browsers do not reach Unix sockets.
 */
static bool admit_host(struct http_exchange *exchange, unsigned role)
{
    static const char reason[] =
        "without tokens this server answers at IP addresses, localhost and the names in http_hosts,"
        " and not at \"%.*s\": add the name with --http-hosts NAME%s";
    const struct http_message *message = exchange->message;
    struct span host = http_browser_host(message);
    char detail[sizeof(reason) + HOST_SHOWN_MAX + 128];
    if (message->peer.len == 0 || host.len == 0 || is_known_host(exchange->frontend, host) ||
        is_host_of_proxy(exchange, role, host))
        return true;
    snprintf(detail, sizeof(detail), reason,
             host.len < HOST_SHOWN_MAX ? (int)host.len : HOST_SHOWN_MAX, (const char *)host.ptr,
             role == HTTP_ROLE_AUTH ? ", or the proxy with --http-trusted-proxies ADDRESS" : "");
    http_exchange_refuse(exchange, 421, detail);
    return false;
}

/* The roles of the caller are known. */
static bool admit_role(struct http_exchange *exchange, unsigned role)
{
    unsigned wanted = role == HTTP_ROLE_AUTH ? (unsigned)ACCESS_ASK : role;
    if (role == HTTP_ROLE_PAGE || (exchange->caller.roles & wanted) == wanted)
        return true;
    return refuse_sender(exchange, 403, "Bearer realm=\"stint\", error=\"insufficient_scope\"",
                         "the client's roles do not allow this");
}

bool http_exchange_admit(struct http_exchange *exchange, unsigned role)
{
    struct http_frontend *frontend = exchange->frontend;
    access_now_renew(frontend->options.access, &frontend->access, &frontend->access_generation);
    exchange->caller = (struct caller){.name = "", .frontend = METRICS_HTTP};
    if (frontend->access == NULL) {
        exchange->caller.roles = access_now_anonymous(frontend->options.access);
        return admit_host(exchange, role) && admit_role(exchange, role);
    }
    if (role == HTTP_ROLE_PAGE)
        return true;
    if (role == HTTP_ROLE_AUTH && is_trusted_proxy(exchange)) {
        exchange->caller.roles = ACCESS_ASK;
        return true;
    }
    struct span secret =
        access_bearer_secret(http_message_field(exchange->message, "Authorization", 0));
    if (secret.ptr == NULL)
        return refuse_sender(exchange, 401, "Bearer realm=\"stint\"",
                             "a token is required: Authorization: Bearer SECRET");
    const struct access_login login = {
        .secret = secret,
        .peer = exchange->message->peer,
        .frontend = METRICS_HTTP,
        .metrics = frontend->metrics,
        .now_ns = exchange->io_now_ns,
    };
    bool is_slowed;
    const struct access_token *token =
        access_login(frontend->options.access, frontend->access, &login, &is_slowed);
    if (token == NULL)
        return refuse_sender(exchange, 401, "Bearer realm=\"stint\", error=\"invalid_token\"",
                             is_slowed
                                 ? "too many wrong secrets came from this address: wait a minute"
                                 : "no such token");
    exchange->caller.name = token->name;
    exchange->caller.roles = token->roles;
    return admit_role(exchange, role);
}
