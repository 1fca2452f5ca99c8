/* SPDX-License-Identifier: MIT */
/* Counters that expire. They are in this server's table, whatever stores its rules have. */
#include "service/service_parts.h"

#include <assert.h>

void service_count(struct service *service, const struct request *request, uint64_t now_ns,
                   struct reply *reply)
{
    assert(request->verb == REQUEST_COUNT || request->verb == REQUEST_COUNT_RESET);
    struct span key = request->key;
    struct stint_error error;
    int code = request->verb == REQUEST_COUNT
                   ? stint_count(service->table, key.ptr, key.len, request->amount,
                                 request->lifetime_ns, now_ns, &reply->counter, &error)
                   : stint_count_reset(service->table, key.ptr, key.len, &error);
    if (code != STINT_OK)
        service_refuse(reply, &error);
}
