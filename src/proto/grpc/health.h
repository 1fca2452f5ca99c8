/* SPDX-License-Identifier: MIT */
/* The messages of grpc.health.v1.Health. */
#ifndef STINT_PROTO_GRPC_HEALTH_H
#define STINT_PROTO_GRPC_HEALTH_H

#include "base/span.h"
#include "stint.h"

#include <stdbool.h>

enum health_status {
    HEALTH_UNKNOWN = 0,
    HEALTH_SERVING = 1,
    HEALTH_NOT_SERVING = 2,
    HEALTH_SERVICE_UNKNOWN = 3, /* only for Watch */
};

#define HEALTH_MESSAGE_MAX 256 /* bytes of the largest answer */

/*
 * Services with a health, which is the server's: "" for the whole server, the rate limit service,
 * and "ratelimit", the name that envoyproxy/ratelimit uses.
 */
bool health_knows(struct span service);

#define HEALTH_NAME_MAX 128     /* bytes of a service's name that are read */
#define HEALTH_REQUEST_MAX 4096 /* bytes of a request */

/*
 * HealthCheckRequest: its service, in `name`; a longer name is cut, and is unknown. STINT_E_SYNTAX
 * for an invalid message, STINT_E_RANGE for one that is too long.
 */
int health_read(struct span message, uint8_t name[HEALTH_NAME_MAX], struct span *service,
                struct stint_error *error);
/* HealthCheckResponse, and HealthListResponse with all services: bytes written. */
size_t health_write(uint8_t bytes[HEALTH_MESSAGE_MAX], enum health_status status);
size_t health_write_list(uint8_t bytes[HEALTH_MESSAGE_MAX], enum health_status status);

#endif
