/* SPDX-License-Identifier: MIT */
/*
 * The caller of a gRPC call: the token of "authorization: Bearer SECRET". A connection remembers
 * its last secret for as long as the tokens stay the same.
 */
#include "frontend/grpc/grpc_call.h"

#include <gnutls/gnutls.h>

static void renew_tokens(struct grpc_frontend *frontend)
{
    struct access_now *now = frontend->options.access;
    if (now == NULL || access_now_generation(now) == frontend->generation)
        return;
    /* Read first: if the set changes in between, the next call checks again. */
    frontend->generation = access_now_generation(now);
    access_unref(frontend->tokens);
    frontend->tokens = access_now_get(now);
}

static const struct access_token *find(struct grpc_call *call, struct span secret)
{
    struct grpc_conn *conn = call->conn;
    struct grpc_identity *identity = &conn->identity;
    struct access *tokens = conn->frontend->tokens;
    if (identity->tokens == tokens && identity->len == secret.len &&
        gnutls_memcmp(identity->secret, secret.ptr, secret.len) == 0)
        return identity->token;
    const struct access_login login = {
        .secret = secret,
        .peer = span_of(conn->peer, conn->peer_len),
        .frontend = METRICS_GRPC,
        .metrics = conn->frontend->metrics,
        .now_ns = conn->now_ns,
    };
    bool is_slowed;
    const struct access_token *token =
        access_login(conn->frontend->options.access, tokens, &login, &is_slowed);
    if (is_slowed)
        call->said |= GRPC_SAID_TOO_OFTEN;
    if (token == NULL || secret.len > GRPC_SECRET_MAX)
        return token;
    if (identity->tokens != tokens) {
        access_unref(identity->tokens);
        identity->tokens = access_ref(tokens);
    }
    identity->token = token;
    identity->len = secret.len;
    memcpy(identity->secret, secret.ptr, secret.len);
    return token;
}

void grpc_caller_take(struct grpc_call *call, struct span authorization)
{
    struct grpc_frontend *frontend = call->conn->frontend;
    renew_tokens(frontend);
    struct span secret = access_bearer_secret(authorization);
    /* Only the first one is checked, however many there are. */
    if (frontend->tokens == NULL || secret.ptr == NULL || (call->said & GRPC_SAID_SECRET) != 0)
        return;
    call->said |= GRPC_SAID_SECRET;
    call->token = find(call, secret);
    if (call->token != NULL)
        call->tokens = access_ref(frontend->tokens);
}

/* The set may have changed since: finds the same token in the new one; none if it was removed. */
static void renew_token(struct grpc_call *call)
{
    struct grpc_frontend *frontend = call->conn->frontend;
    renew_tokens(frontend);
    if (call->token == NULL || call->tokens == frontend->tokens)
        return;
    call->token = frontend->tokens != NULL ? access_again(frontend->tokens, call->token) : NULL;
    access_unref(call->tokens);
    call->tokens = call->token != NULL ? access_ref(frontend->tokens) : NULL;
}

const char *grpc_caller_refusal(struct grpc_call *call)
{
    renew_token(call);
    if (call->conn->frontend->tokens == NULL || call->token != NULL)
        return NULL;
    if ((call->said & GRPC_SAID_TOO_OFTEN) != 0)
        return "too many wrong secrets came from this address: wait a minute";
    if ((call->said & GRPC_SAID_SECRET) != 0)
        return "no such token";
    return "a token is required: authorization: Bearer SECRET";
}

struct caller grpc_caller_of(const struct grpc_call *call)
{
    const struct access_token *token = call->token;
    return (struct caller){
        .name = token != NULL ? token->name : "",
        .roles = token != NULL ? token->roles : ACCESS_ALL,
        .frontend = METRICS_GRPC,
    };
}
