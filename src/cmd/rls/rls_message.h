/* SPDX-License-Identifier: MIT */
/* What a client of Envoy's rate limit service sends, and what it reads. */
#ifndef STINT_CMD_RLS_RLS_MESSAGE_H
#define STINT_CMD_RLS_RLS_MESSAGE_H

#include "base/err.h"
#include "cmd/lib/args.h"

#include <jansson.h>
#include <stdio.h>

#define RLS_PATH "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
#define RLS_HEALTH_PATH "/grpc.health.v1.Health/Check"

/* What is asked. */
struct rls_evaluation {
    const char *domain;
    struct descriptor_entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    size_t n_entries[DESCRIPTORS_MAX];
    size_t n_descriptors;
    uint32_t hits;
    bool has_hits;  /* then 0 asks without taking */
    bool is_refund; /* hits are given back */
};

/* A RateLimitRequest behind its prefix; to be freed. NULL: no memory. */
uint8_t *rls_message_write(const struct rls_evaluation *evaluation, size_t *len);

/* The overall code of a RateLimitResponse (enum rls_code), or STINT_E_SYNTAX. */
int rls_message_code(struct span message, struct stint_error *error);
/*
 * All of it, as proto3 has it in JSON, but with defaults told; NULL with a message. And the same
 * for people, a line for each descriptor of the question.
 */
json_t *rls_message_json(struct span message, struct stint_error *error);
int rls_message_print(FILE *out, struct span message, const struct rls_evaluation *evaluation,
                      struct stint_error *error);

/* A HealthCheckRequest behind its prefix; to be freed. NULL: no memory. */
uint8_t *rls_health_write(const char *service, size_t *len);
/* A HealthCheckResponse: enum health_status, or STINT_E_SYNTAX. */
int rls_health_read(struct span message, struct stint_error *error);

#endif
