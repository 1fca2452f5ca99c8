/* SPDX-License-Identifier: MIT */
/* A command's wait for a store. */
#include "frontend/resp/resp_call.h"

#include <stdlib.h>

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
