/* SPDX-License-Identifier: MIT */
/*
 * Kuadrant's rate limit service, v1, as protobuf: Envoy's messages under other verbs, and
 * reservations. Its messages are described in src/proto/grpc/messages/kuadrant/.
 *
 * A reservation_id consists of 16 digits and a ticket. The digits are a digest of the domain and
 * the descriptors it was made for, in any order of the descriptors. So every server detects a
 * Commit with other descriptors, also after the rules have changed.
 */
#ifndef STINT_PROTO_GRPC_KUADRANT_H
#define STINT_PROTO_GRPC_KUADRANT_H

#include "proto/grpc/rls.h"

#define KUADRANT_TTL_DEFAULT_S 60
#define KUADRANT_TTL_MAX_S (365 * 86400) /* 365 days, as of tickets over HTTP */

/*
 * Requests, as rls_read() gives them. A reservation_id that is invalid, or that is of another
 * domain or other descriptors, is STINT_E_SYNTAX. check     a peek report    a charge reserve   a
 * reserve; an amount of 0 holds nothing, and is a peek of one unit commit    a settle; without a
 * reservation_id a charge
 */
int kuadrant_read_check(struct rls_call *call, struct span message, const struct request **request,
                        struct stint_error *error);
int kuadrant_read_report(struct rls_call *call, struct span message, const struct request **request,
                         struct stint_error *error);
int kuadrant_read_reserve(struct rls_call *call, struct span message,
                          const struct request **request, struct stint_error *error);
int kuadrant_read_commit(struct rls_call *call, struct span message, const struct request **request,
                         struct stint_error *error);

/* Responses to a decided reply of the last request, as rls_write(); they have no other form. */
struct span kuadrant_write_reserve(struct rls_call *call, const struct rls_form *form,
                                   const struct request *request, const struct reply *reply);
struct span kuadrant_write_commit(struct rls_call *call, const struct rls_form *form,
                                  const struct request *request, const struct reply *reply);

#endif
