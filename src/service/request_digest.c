/* SPDX-License-Identifier: MIT */
/* A request with an id as numbers: its id and its body, for a table or for stores. */
#include "service/service_parts.h"

#include <assert.h>
#include <gnutls/crypto.h>

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
    assert((digest->sha == NULL) == (digest->table != NULL));
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
    assert(request_verbs[request->verb].is_charging);
    const uint64_t numbers[] = {
        request_verbs[request->verb].digest,
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

uint64_t request_digest_body(const struct stint_table *table, const struct request *request)
{
    assert(table != NULL);
    struct digest digest = {.table = table};
    add_body(&digest, request);
    return digest.sum;
}

/* Differs from the two scopes of requests, the number after the caller in add_id(). */
#define POOL_SCOPE 2

static void add_id(struct digest *digest, const struct request *request, const char *caller)
{
    assert(caller != NULL);
    add_span(digest, span_of_text(caller));
    add_number(digest, request->verb == REQUEST_THROTTLE || request->verb == REQUEST_FORGET);
    add_span(digest, request->domain);
    for (size_t i = 0; i < request->n_items; i++)
        add_span(digest, request->items[i].quota);
    add_span(digest, request->id);
}

struct hash128 request_digest_id(const struct stint_table *table, const struct request *request,
                                 const char *caller)
{
    assert(table != NULL && request->id.len > 0);
    struct digest digest = {.table = table};
    add_id(&digest, request, caller);
    return requests_hash(table, &digest.sum, sizeof(digest.sum));
}

void request_digest_pool(const struct stint_table *table, const struct pool_call_digest *call,
                         struct requests_ask *ask)
{
    assert(call->id.len > 0);
    struct digest id = {.table = table}, body = {.table = table};
    add_span(&id, span_of_text(call->caller));
    add_number(&id, POOL_SCOPE);
    add_span(&id, call->pool);
    add_span(&id, call->id);
    ask->hash = requests_hash(table, &id.sum, sizeof(id.sum));
    add(&body, call->numbers, sizeof(call->numbers));
    add_span(&body, call->key);
    ask->fingerprint = body.sum;
}

/* Hashes the id with the caller, and the body without it. False: no memory. */
static bool hash_for_stores(uint8_t sum[32], const struct request *request, const char *caller)
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

bool request_digest_shared(const struct request *request, const char *caller,
                           uint8_t id[BACKEND_ID_LEN], uint64_t *body)
{
    assert(caller != NULL && request->id.len > 0);
    uint8_t sum[32];
    if (!hash_for_stores(sum, request, caller))
        return false;
    memcpy(id, sum, BACKEND_ID_LEN);
    if (!hash_for_stores(sum, request, NULL))
        return false;
    memcpy(body, sum, sizeof(*body));
    return true;
}
