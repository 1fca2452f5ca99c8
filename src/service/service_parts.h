/* SPDX-License-Identifier: MIT */
/* Shared by the files of a service: its state, and the steps below service.c. */
#ifndef STINT_SERVICE_SERVICE_PARTS_H
#define STINT_SERVICE_SERVICE_PARTS_H

#include "decide/evaluation_ticket.h"
#include "decide/pending.h"
#include "service/expiries.h"
#include "service/quota_caches.h"
#include "service/server_state.h"
#include "service/traces.h"
#include "table/requests.h"

/* A ticket of a store in base64: four digits for every three bytes. */
#define SERVICE_TICKET_TEXT ((TICKET_BYTES_MAX + 2) / 3 * 4 + 1)

struct service {
    struct server_state *server_state;
    struct stint_table *table;
    unsigned worker;
    struct metrics_worker *metrics;
    struct tracer *tracer; /* NULL: there are no traces */
    uint64_t generation;   /* of ruleset */
    struct ruleset *ruleset;
    struct evaluation evaluation;
    struct evaluation_stores stores; /* no stores: all zero */
    struct pending_requests pending_requests;
    const struct caller *caller; /* of the current request */
    struct ruleset
        *borrowed; /* the rules that the reply of a pending request points into; NULL: none */
    uint8_t id[BACKEND_ID_LEN];            /* of the current request */
    uint8_t ticket[TICKET_BYTES_MAX];      /* of a store: from a request */
    char ticket_text[SERVICE_TICKET_TEXT]; /* the same, in a reply */
    struct expiries expiries;
    struct throttle_cache throttles;
    struct spec_cache specs;
};

static inline bool service_is_valid(const struct service *service)
{
    const struct server_state *server_state = service->server_state;
    return service->table == server_state->table &&
           service->worker < server_state->options.workers && service->metrics != NULL &&
           service->ruleset != NULL &&
           (service->stores.n_stores == 0 || service->evaluation.stores == &service->stores);
}

/* Why a call with an id has no answer. */
#define SERVICE_ID_NONE "this table keeps no answers to ids"
#define SERVICE_ID_OTHER "the id was used for another request"
#define SERVICE_ID_BUSY "the request with this id is being answered"

/* ---- request_digest.c: a request with an id as numbers --------------------------------------- */

/*
 * An id belongs to its caller and to the target of the request: a domain, the quotas of items, or
 * CL.THROTTLE. All other parts of the request are its body, and must be the same in a retry.
 * `caller`: the name of the token, "" for none.
 */
/* For a table, under its secret. */
struct hash128 request_digest_id(const struct stint_table *table, const struct request *request,
                                 const char *caller);
uint64_t request_digest_body(const struct stint_table *table, const struct request *request);
/* Both for a store: the same at every node. False: no memory. */
bool request_digest_shared(const struct request *request, const char *caller,
                           uint8_t id[BACKEND_ID_LEN], uint64_t *body);

/* A call on a pool in the table. Its id belongs to its caller and to the pool. */
struct pool_call_digest {
    const char *caller;
    struct span pool, id, key;
    uint64_t numbers[4]; /* what else must be the same in a retry */
};
/* Sets the hash and the fingerprint. */
void request_digest_pool(const struct stint_table *table, const struct pool_call_digest *call,
                         struct requests_ask *ask);

/* ---- service_pending.c: errors, requests that ask stores, and verbs on tickets --------------- */

/* Makes *reply an error that follows from the code. */
void service_refuse(struct reply *reply, const struct stint_error *error);
/* The same with a message of the caller's. */
void service_refuse_as(struct reply *reply, enum reply_error why, const char *message);
/*
 * Call after the inputs are filled and before the evaluation: gives it a pending request where it
 * needs one. False: do not evaluate; the reply has the reason.
 */
bool service_begin_pending(struct service *service, const struct request *request,
                           struct reply *reply);
/* Call after the evaluation: false where the reply has the reason why there is no decision. */
bool service_end_pending(struct service *service, struct reply *reply);
/* SETTLE, CANCEL, RENEW. */
void service_ticket(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply);

/* ---- service_count.c: COUNT, COUNT_RESET ----------------------------------------------------- */

void service_count(struct service *service, const struct request *request, uint64_t now_ns,
                   struct reply *reply);

/* ---- expiries.c: tickets of stores that are never settled ------------------------------------ */

/* After a reserve that returned a ticket of a store: closes it once it has expired. */
void expiries_expect(struct service *service, const struct request *request, uint64_t now_ns);
/* The ticket was settled or cancelled, or is gone. */
void expiries_forget(struct service *service, struct span ticket);
void expiries_count(struct service *service, const struct evaluation_expired *expired);

#endif
