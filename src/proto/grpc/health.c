/* SPDX-License-Identifier: MIT */
/* Health: one state for the whole server, under each of its service names. */
#include "proto/grpc/health.h"

#include "base/err.h"
#include "health.pb-c.h"

#include <assert.h>

static const char *const services[] = {
    "",
    "envoy.service.ratelimit.v3.RateLimitService",
    "kuadrant.service.ratelimit.v1.RateLimitService",
    "ratelimit",
};
#define N_SERVICES (sizeof(services) / sizeof(services[0]))

bool health_knows(struct span service)
{
    for (size_t i = 0; i < N_SERVICES; i++)
        if (span_equals(service, services[i]))
            return true;
    return false;
}

/* ---- Messages -------------------------------------------------------------------------------- */

int health_read(struct span message, uint8_t name[HEALTH_NAME_MAX], struct span *service,
                struct stint_error *error)
{
    if (message.len > HEALTH_REQUEST_MAX)
        return err_set(error, STINT_E_RANGE, "expected a HealthCheckRequest of at most %d bytes",
                       HEALTH_REQUEST_MAX);
    Pb__HealthCheckRequest *request =
        pb__health_check_request__unpack(NULL, message.len, message.ptr);
    if (request == NULL)
        return err_set(error, STINT_E_SYNTAX, "expected a HealthCheckRequest in protobuf");
    size_t len = request->service.len < HEALTH_NAME_MAX ? request->service.len : HEALTH_NAME_MAX;
    if (len > 0)
        memcpy(name, request->service.data, len);
    *service = span_of(name, len);
    pb__health_check_request__free_unpacked(request, NULL);
    return 0;
}

size_t health_write(uint8_t bytes[HEALTH_MESSAGE_MAX], enum health_status status)
{
    Pb__HealthCheckResponse response = PB__HEALTH_CHECK_RESPONSE__INIT;
    response.status = (Pb__HealthCheckResponse__ServingStatus)status;
    return pb__health_check_response__pack(&response, bytes);
}

size_t health_write_list(uint8_t bytes[HEALTH_MESSAGE_MAX], enum health_status status)
{
    Pb__HealthListResponse response = PB__HEALTH_LIST_RESPONSE__INIT;
    Pb__HealthCheckResponse one = PB__HEALTH_CHECK_RESPONSE__INIT;
    Pb__HealthListResponse__StatusesEntry entries[N_SERVICES], *pointers[N_SERVICES];
    one.status = (Pb__HealthCheckResponse__ServingStatus)status;
    for (size_t i = 0; i < N_SERVICES; i++) {
        struct span name = span_of_text(services[i]);
        pb__health_list_response__statuses_entry__init(&entries[i]);
        entries[i].key = (ProtobufCBinaryData){name.len, (uint8_t *)(uintptr_t)name.ptr};
        entries[i].value = &one;
        pointers[i] = &entries[i];
    }
    response.n_statuses = N_SERVICES;
    response.statuses = pointers;
    assert(pb__health_list_response__get_packed_size(&response) <= HEALTH_MESSAGE_MAX);
    return pb__health_list_response__pack(&response, bytes);
}
