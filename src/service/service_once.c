/* SPDX-License-Identifier: MIT */
/*
 * Requests with an id: charged once, however often they come.
 *
 * An id belongs to its caller and to the target of the request: a domain, the quotas of items, or
 * CL.THROTTLE. All other parts of the request are its body, and must be the same in a retry.
 * Replies that charged nothing are not kept: a denied request may be repeated with its id.
 */
#include "service/service_parts.h"

#include "base/siphash.h"
#include "table/requests.h"

#include <gnutls/crypto.h>

/* ---- A request as one number ----------------------------------------------------------------- */

/*
 * Each piece is hashed with the pieces before it, so that different lists of pieces differ. Hashes
 * for a table use its secret. Hashes for a store must be the same at every node: the nodes share no
 * secret, so these use a hash that cannot be inverted.
 */
struct digest {
    const struct stint_table *table;
    uint64_t sum;
    gnutls_hash_hd_t sha; /* NULL: for the table */
};

static void add(struct digest *digest, const void *bytes, size_t len)
{
    if (digest->sha != NULL) {
        uint64_t size = len;
        gnutls_hash(digest->sha, &size, sizeof(size));
        if (len > 0)
            gnutls_hash(digest->sha, bytes, len);
        return;
    }
    const uint64_t *secret = digest->table->region.fixed.hash_key;
    digest->sum = siphash13_128(secret, digest->sum, bytes, len).lo;
}

static void add_span(struct digest *digest, struct span span)
{
    add(digest, span.ptr, span.len);
}

static void add_number(struct digest *digest, uint64_t number)
{
    add(digest, &number, sizeof(number));
}

static void add_descriptor(struct digest *digest, const struct descriptor *descriptor)
{
    add_number(digest, descriptor->n_entries);
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        add_span(digest, descriptor->entries[i].key);
        add_span(digest, descriptor->entries[i].value);
    }
    add_number(digest, descriptor->has_hits ? (uint64_t)descriptor->hits + 1 : 0);
    add_number(digest, descriptor->is_refund);
    if (descriptor->override != NULL)
        add(digest, descriptor->override->derived.params_hash,
            sizeof(descriptor->override->derived.params_hash));
}

static void add_body(struct digest *digest, const struct request *request)
{
    const uint64_t numbers[] = {
        request->verb,
        request->cost,
        request->n_descriptors,
        request->n_items,
        (uint64_t)request->throttle.max_burst,
        request->throttle.count_per_period,
        request->throttle.period_s,
        request->lifetime_ns,
        request->has_granted_at,
        request->has_granted_at ? request->granted_at_ns : 0,
        request->ticket.slot,
        request->ticket.nonce,
    };
    add(digest, numbers, sizeof(numbers));
    if (request->has_on_expiry) /* otherwise bodies stay as in earlier versions */
        add_number(digest, (uint64_t)request->kept_units + 1);
    add_span(digest, request->key);
    add_span(digest, request->quota);
    for (size_t i = 0; i < request->n_descriptors; i++)
        add_descriptor(digest, &request->descriptors[i]);
    for (size_t i = 0; i < request->n_items; i++) {
        const struct request_item *item = &request->items[i];
        add_span(digest, item->key);
        add_number(digest, item->has_cost ? (uint64_t)item->cost + 1 : 0);
    }
}

static uint64_t body_of(const struct service *service, const struct request *request)
{
    struct digest digest = {.table = service->table};
    add_body(&digest, request);
    return digest.sum;
}

static void add_id(struct digest *digest, const struct request *request,
                   const struct caller *caller)
{
    add_span(digest, span_of_text(caller->name));
    add_number(digest, request->verb == REQUEST_THROTTLE || request->verb == REQUEST_FORGET);
    add_span(digest, request->domain);
    for (size_t i = 0; i < request->n_items; i++)
        add_span(digest, request->items[i].quota);
    add_span(digest, request->id);
}

static struct hash128 id_of(const struct service *service, const struct request *request,
                            const struct caller *caller)
{
    struct digest digest = {.table = service->table};
    add_id(&digest, request, caller);
    return requests_hash(service->table, &digest.sum, sizeof(digest.sum));
}

/* Hashes the id with the caller, and the body without it. False: no memory. */
static bool hash_for_stores(uint8_t sum[32], const struct request *request,
                            const struct caller *caller)
{
    struct digest digest = {0};
    if (gnutls_hash_init(&digest.sha, GNUTLS_DIG_SHA256) != 0)
        return false;
    if (caller != NULL)
        add_id(&digest, request, caller);
    else
        add_body(&digest, request);
    gnutls_hash_deinit(digest.sha, sum);
    return true;
}

bool service_shared_id(const struct request *request, const struct caller *caller,
                       uint8_t id[BACKEND_ID_LEN], uint64_t *body)
{
    uint8_t sum[32];
    if (!hash_for_stores(sum, request, caller))
        return false;
    memcpy(id, sum, BACKEND_ID_LEN);
    if (!hash_for_stores(sum, request, NULL))
        return false;
    memcpy(body, sum, sizeof(*body));
    return true;
}

/* ---- Once ------------------------------------------------------------------------------------ */

static void answer_again(struct service *service, const struct request *request,
                         const struct requests_answer *answer, uint64_t now_ns, struct reply *reply)
{
    reply->decision = answer->decision;
    reply->ticket = answer->ticket;
    reply->has_ticket = answer->ticket.nonce != 0;
    reply->at_ns = answer->at_ns;
    reply->replayed = true;
    metrics_event(service->metrics, METRICS_REPLAYED, 1);
    reply->found = request->verb == REQUEST_FORGET;
    service_show_again(service, request, now_ns, reply);
}

/* Verbs that move units did so unless they were denied; the others did unless they failed. */
static bool is_worth_keeping(const struct reply *reply)
{
    return reply->error == REPLY_DECIDED && reply->decision.outcome == STINT_ALLOW;
}

static void record(struct service *service, const struct requests_claim *claim,
                   const struct reply *reply)
{
    const struct requests_answer answer = {
        .decision = reply->decision,
        .ticket = reply->has_ticket ? reply->ticket : (struct stint_ticket){0, 0},
        .at_ns = reply->at_ns,
    };
    /* If the claim is lost, a retry gets BUSY or is decided as new: no other report is possible. */
    if (is_worth_keeping(reply))
        requests_end(service->table, claim, &answer);
    else
        requests_drop(service->table, claim);
}

void service_once(struct service *service, const struct request *request,
                  const struct caller *caller, uint64_t now_ns, struct reply *reply)
{
    const struct requests_ask ask = {.hash = id_of(service, request, caller),
                                     .fingerprint = body_of(service, request),
                                     .now_ns = now_ns,
                                     .lifetime_ns = service->server_state->id_lifetime_ns};
    struct requests_claim claim;
    struct requests_answer answer;
    switch (requests_begin(service->table, &ask, &claim, &answer)) {
    case REQUESTS_NONE:
        service_refuse_as(reply, REPLY_UNAVAILABLE, "this table keeps no answers to ids");
        return;
    case REQUESTS_NEW:
        service_answer(service, request, now_ns, reply);
        record(service, &claim, reply);
        return;
    case REQUESTS_SAME:
        answer_again(service, request, &answer, now_ns, reply);
        return;
    case REQUESTS_OTHER_BODY:
        service_refuse_as(reply, REPLY_CONFLICT, "the id was used for another request");
        return;
    case REQUESTS_BUSY:
        service_refuse_as(reply, REPLY_CONFLICT, "the request with this id is being answered");
        return;
    }
}
