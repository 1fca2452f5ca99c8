/* SPDX-License-Identifier: MIT */
/* The service's replies, in the format of docs/protocol.md. */
#ifndef STINT_PROTO_RESP_RESP_REPLY_H
#define STINT_PROTO_RESP_RESP_REPLY_H

#include "decide/reply.h"
#include "decide/request.h"
#include "proto/resp/resp_writer.h"

/* CL.THROTTLE: five integers, or the error. */
void resp_reply_throttle(struct resp_writer *writer, const struct reply *reply);
/* Every STINT verb. */
void resp_reply_verb(struct resp_writer *writer, const struct request *request,
                     const struct reply *reply);
void resp_reply_error(struct resp_writer *writer, enum reply_error error, const char *message);

/* Milliseconds rounded up, -1 for STINT_NEVER_NS. */
int64_t resp_reply_ms(uint64_t ns);

#endif
