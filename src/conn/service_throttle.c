/* SPDX-License-Identifier: MIT */
/* The keys of CL.THROTTLE. One decision with nothing around it: this is what is asked most. */
#include "conn/service_parts.h"

#include "base/wide_int.h"
#include "store/table.h"

void service_throttle(struct service *service, const struct request *request, uint64_t now_ns,
                      struct reply *reply)
{
    struct stint_error error;
    const struct stint_quota *quota =
        throttle_cache_find(&service->throttles, service->table, &request->throttle, &error);
    if (quota == NULL) {
        service_refuse(reply, &error);
        return;
    }
    reply->decision = stint_take(service->table, quota, request->key.ptr, request->key.len,
                                 request->cost, now_ns);
    if (request->cost > 0)
        service_count_throttle(service, request, reply);
}

void service_find(struct service *service, const struct request *request, uint64_t now_ns,
                  struct reply *reply)
{
    struct stint_entry entry;
    reply->found = stint_find(service->table, throttle_any_quota(), request->key.ptr,
                              request->key.len, now_ns, &entry) == 0;
    reply->dies_after_ns = reply->found ? sub_floor(entry.dies_at_ns, now_ns) : 0;
}

/* The state goes, a block of the key stays: to lift that is for administrators. */
void service_forget(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply)
{
    const struct stint_quota *quota = throttle_any_quota();
    service_find(service, request, now_ns, reply);
    if (reply->found)
        table_forget(service->table, quota,
                     table_hash(service->table, quota, request->key.ptr, request->key.len));
}
