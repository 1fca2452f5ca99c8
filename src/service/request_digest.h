/* SPDX-License-Identifier: MIT */
/*
 * A request with an id as numbers: its id, and its body.
 *
 * An id belongs to its caller and to the target of the request: a domain, the quotas of items, or
 * CL.THROTTLE. All other parts of the request are its body, and must be the same in a retry.
 */
#ifndef STINT_SERVICE_REQUEST_DIGEST_H
#define STINT_SERVICE_REQUEST_DIGEST_H

#include "decide/backend.h"
#include "decide/request.h"
#include "table/requests.h"

/* For a table, under its secret. `caller`: the name of the token, "" for none. */
struct hash128 request_digest_id(const struct stint_table *table, const struct request *request,
                                 const char *caller);
uint64_t request_digest_body(const struct stint_table *table, const struct request *request);
/* Both for a store: the same at every node. False: no memory. */
bool request_digest_shared(const struct request *request, const char *caller,
                           uint8_t id[BACKEND_ID_LEN], uint64_t *body);

#endif
