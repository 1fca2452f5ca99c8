/* SPDX-License-Identifier: MIT */
/* What protobuf-c has to say of Envoy's messages, to hold our own reading and writing to it. */
#ifndef STINT_TESTS_UNIT_RLS_ORACLE_H
#define STINT_TESTS_UNIT_RLS_ORACLE_H

#include "proto/grpc/kuadrant.h"

/*
 * Whether rls_read was right to refuse a message, or to read it as this request: NULL, or what is
 * otherwise. protobuf-c itself departs from proto3 where a message stands twice in another, where a
 * bool is no number of 64 bits, and where the number 0 is written in more than one byte: messages
 * with one of these are not compared.
 */
const char *rls_oracle_read(struct span message, int code, const struct request *request);

/* The same of kuadrant_read_reserve and kuadrant_read_commit. */
const char *rls_oracle_reserve(struct span message, int code, const struct request *request);
const char *rls_oracle_commit(struct span message, int code, const struct request *request);

/* Whether rls_write wrote these statuses, as protobuf-c would to the byte: NULL, or as above. */
const char *rls_oracle_written(struct span response, const struct rls_form *form,
                               const struct reply *reply);

#endif
