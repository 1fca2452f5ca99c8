/* SPDX-License-Identifier: MIT */
/* What a client of Envoy's rate limit service sends, and what it reads. */
#ifndef STINT_CMD_RLS_RLS_MESSAGE_H
#define STINT_CMD_RLS_RLS_MESSAGE_H

#include "base/err.h"
#include "cmd/lib/descriptor_word.h"

#include <jansson.h>
#include <stdio.h>

#define RLS_PATH "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
#define RLS_HEALTH_PATH "/grpc.health.v1.Health/Check"
#define RLS_KEY_MARK "{}" /* in a value: stands for the number of a key */

/* What is asked, again and again. */
struct rls_evaluation {
    const char *domain;
    struct descriptor_entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    size_t n_entries[DESCRIPTORS_MAX];
    size_t n_descriptors;
    uint32_t hits;
    bool has_hits;  /* then 0 asks without taking */
    bool is_refund; /* hits are given back */
};

/* Makes the messages of one question, which outlives it. NULL: no memory. */
struct rls_writer;
struct rls_writer *rls_writer_new(const struct rls_evaluation *evaluation);
void rls_writer_free(struct rls_writer *writer); /* NULL is fine */
/* A RateLimitRequest with `key` in the place of each mark; valid until the next. */
struct span rls_writer_write(struct rls_writer *writer, uint64_t key);

/* The overall code of a RateLimitResponse (enum rls_code), or STINT_E_SYNTAX. */
int rls_message_code(struct span message, struct stint_error *error);
/*
 * All of it, as proto3 has it in JSON, but with defaults told; NULL with a message. And the same
 * for people, a line for each descriptor of the question.
 */
json_t *rls_message_json(struct span message, struct stint_error *error);
int rls_message_print(FILE *out, struct span message, const struct rls_evaluation *evaluation,
                      struct stint_error *error);

#define RLS_HEALTH_SIZE 300 /* bytes of a HealthCheckRequest */
/* Bytes written; 0 for a name of more than 255 bytes, and for none. */
size_t rls_health_write(uint8_t bytes[RLS_HEALTH_SIZE], const char *service);
/* A HealthCheckResponse: enum health_status, or STINT_E_SYNTAX. */
int rls_health_read(struct span message, struct stint_error *error);

#endif
