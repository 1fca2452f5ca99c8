/* SPDX-License-Identifier: MIT */
/* Counters that expire: all in this server's table, or all in one store. */
#include "service/service_parts.h"

#include "algorithm/expiring_counter.h"

#include <assert.h>

static void count_in_table(struct service *service, const struct request *request, uint64_t now_ns,
                           struct reply *reply)
{
    struct span key = request->key;
    struct stint_error error;
    int code = request->verb == REQUEST_COUNT
                   ? stint_count(service->table, key.ptr, key.len, request->amount,
                                 request->lifetime_ns, now_ns, &reply->counter, &error)
                   : stint_count_reset(service->table, key.ptr, key.len, &error);
    if (code != STINT_OK)
        service_refuse(reply, &error);
}

/* While the store is unavailable the reply is an error: what was not counted is no count. */
static void count_in_store(struct service *service, const struct request *request, uint64_t now_ns,
                           struct reply *reply)
{
    struct evaluation *evaluation = &service->evaluation;
    struct stint_error error;
    int64_t amount = request->verb == REQUEST_COUNT ? request->amount : 0;
    uint64_t expiry_ns = amount > 0 ? request->lifetime_ns : 0;
    evaluation_begin(evaluation, now_ns);
    if (counter_check_ask(request->key.len, amount, expiry_ns, &error) != STINT_OK) {
        service_drop(service, request->pending);
        service_refuse(reply, &error);
        return;
    }
    evaluation_add_counter(evaluation, request->key, expiry_ns);
    if (!service_begin_pending(service, request, reply))
        return;
    struct stint_counter counter = evaluation_count(evaluation, request->verb, amount);
    if (!service_end_pending(service, reply))
        return;
    reply->counter = counter;
    reply->at_ns = evaluation->at_ns;
}

void service_count(struct service *service, const struct request *request, uint64_t now_ns,
                   struct reply *reply)
{
    assert(request->verb == REQUEST_COUNT || request->verb == REQUEST_COUNT_RESET);
    assert(!request->is_ahead);
    if (service->stores.counters > 0)
        count_in_store(service, request, now_ns, reply);
    else
        count_in_table(service, request, now_ns, reply);
}
