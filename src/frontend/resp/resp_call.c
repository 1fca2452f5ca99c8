/* SPDX-License-Identifier: MIT */
/* A command's rights, and its wait for a time or for a store. */
#include "frontend/resp/resp_call.h"

#include <stdlib.h>

/* ---- Rights ---------------------------------------------------------------------------------- */

/* Not authenticated: all roles where there are no tokens, and otherwise none. */
void resp_state_become(struct resp_state *state, const struct access_token *token)
{
    struct resp_frontend *frontend = state->frontend;
    struct access *tokens = frontend->tokens;
    if (state->tokens != tokens) {
        access_unref(state->tokens);
        state->tokens = tokens != NULL ? access_ref(tokens) : NULL;
    }
    state->token = token;
    state->is_known = token != NULL || tokens == NULL;
    state->bounds = state->is_known ? &frontend->bounds : &frontend->unauthenticated_bounds;
    state->caller.name = token != NULL ? token->name : "";
    state->caller.roles = token != NULL ? token->roles : tokens == NULL ? ACCESS_ALL : 0;
}

void resp_state_renew(struct resp_state *state)
{
    struct resp_frontend *frontend = state->frontend;
    if (frontend->access == NULL)
        return;
    access_now_renew(frontend->access, &frontend->tokens, &frontend->generation);
    if (state->tokens == frontend->tokens)
        return;
    const struct access_token *token = NULL;
    if (state->token != NULL && frontend->tokens != NULL)
        token = access_again(frontend->tokens, state->token);
    resp_state_become(state, token);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* The command at the head uses the first entry, even if later commands were begun before it. */
static void add(struct resp_call *call, struct pending *pending)
{
    struct resp_pending_requests *pending_requests = &call->state->pending_requests;
    if (call->is_ahead) {
        *resp_pending_at(pending_requests, pending_requests->n) = pending;
    } else {
        pending_requests->first =
            (pending_requests->first + RESP_PENDING_MAX - 1) % RESP_PENDING_MAX;
        pending_requests->ring[pending_requests->first] = pending;
    }
    pending_requests->n++;
}

void resp_call_await(struct resp_call *call, struct pending *pending)
{
    struct resp_state *state = call->state;
    struct resp_pending_requests *pending_requests = &state->pending_requests;
    if (pending_requests->ring == NULL)
        pending_requests->ring = calloc(RESP_PENDING_MAX, sizeof(struct pending *));
    if (pending_requests->ring == NULL) {
        service_drop(state->frontend->service, pending);
        state->is_over = true;
        return;
    }
    add(call, pending);
    call->has_waited = true;
    service_on_answers(pending, state->frontend->on_answers, state);
}
