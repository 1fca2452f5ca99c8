/* SPDX-License-Identifier: MIT */
/* The keys of CL.THROTTLE. One decision without extra work: this is the most frequent request. */
#include "service/service_parts.h"

#include "base/limits.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "table/table.h"

/* A store counts time in microseconds, rounded up. */
static uint64_t excess_in_store(const struct throttle_entry *entry)
{
    return (entry->excess_ns + NS_PER_US - 1) / NS_PER_US * NS_PER_US;
}

/* A duration above whole seconds by no more than the excess is rounded down to them. */
static uint64_t whole_seconds(uint64_t wait_ns, uint64_t excess_ns)
{
    uint64_t above_ns = wait_ns % NS_PER_S;
    return above_ns <= excess_ns && above_ns < wait_ns ? wait_ns - above_ns : wait_ns;
}

/* The reply to a decision. For max_burst -1, which only peeks: that nothing fits. */
static void throttle_end(struct service *service, const struct request *request, uint64_t excess_ns,
                         struct reply *reply)
{
    struct stint_decision *decision = &reply->decision;
    if (decision->retry_after_ns != STINT_NEVER_NS)
        decision->retry_after_ns = whole_seconds(decision->retry_after_ns, excess_ns);
    decision->reset_after_ns = whole_seconds(decision->reset_after_ns, excess_ns);
    if (request->throttle.max_burst < 0) {
        decision->limit = decision->remaining = 0;
        if (request->cost > 0) {
            decision->outcome = STINT_NEVER;
            decision->retry_after_ns = STINT_NEVER_NS;
            decision->granted = 0;
        }
    }
    if (request->cost > 0)
        service_count_throttle(service, request, reply);
}

static void throttle_shared(struct service *service, const struct throttle_entry *entry,
                            const struct request *request, uint64_t now_ns, struct reply *reply)
{
    struct evaluation *evaluation = &service->evaluation;
    bool is_closed = request->throttle.max_burst < 0;
    uint64_t excess_ns = excess_in_store(entry);
    evaluation_begin(evaluation, now_ns);
    evaluation_add_throttle(evaluation, &entry->quota, request->key, is_closed ? 0 : request->cost);
    if (!service_begin_pending(service, request, reply))
        return;
    struct stint_decision decision =
        is_closed ? evaluation_peek(evaluation) : evaluation_take(evaluation);
    if (!service_end_pending(service, reply))
        return;
    reply->decision = decision;
    reply->at_ns = evaluation->at_ns;
    throttle_end(service, request, excess_ns, reply);
}

void service_throttle(struct service *service, const struct request *request, uint64_t now_ns,
                      struct reply *reply)
{
    struct stint_error error;
    const struct throttle_entry *entry =
        throttle_cache_find(&service->throttles, service->table, &request->throttle, &error);
    if (entry == NULL) {
        service_drop(service, request->pending);
        service_refuse(reply, &error);
        return;
    }
    if (service->stores.throttle > 0) {
        throttle_shared(service, entry, request, now_ns, reply);
        return;
    }
    if (request->is_ahead) {
        reply->error = REPLY_AHEAD;
        return;
    }
    bool is_closed = request->throttle.max_burst < 0;
    struct stint_item item = {.quota = &entry->quota,
                              .key = request->key.ptr,
                              .key_len = request->key.len,
                              .cost = is_closed ? 0 : request->cost};
    if (is_closed)
        reply->decision = stint_peek(service->table, &item, 1, now_ns);
    else
        reply->decision =
            stint_take(service->table, item.quota, item.key, item.key_len, item.cost, now_ns);
    throttle_end(service, request, entry->excess_ns, reply);
}

/*
 * For looking up a key in a store, whatever quota its state was made under: a state is an instant,
 * and under this quota every instant can be represented.
 */
static const struct stint_quota *long_quota(struct stint_quota *quota)
{
    *quota = (struct stint_quota){.algorithm = STINT_GCRA,
                                  .limit = 1,
                                  .period_ns = PERIOD_MAX_NS,
                                  .burst = 1,
                                  .rule = THROTTLE_RULE};
    (void)stint_quota_check(quota, NULL);
    return quota;
}

static void find_shared(struct service *service, const struct request *request, uint64_t now_ns,
                        struct reply *reply)
{
    struct evaluation *evaluation = &service->evaluation;
    struct stint_quota quota;
    evaluation_begin(evaluation, now_ns);
    evaluation_add_throttle(evaluation, long_quota(&quota), request->key, 0);
    if (!service_begin_pending(service, request, reply))
        return;
    struct stint_decision decision = evaluation_peek(evaluation);
    if (request->verb == REQUEST_FORGET && !evaluation_is_to_wait(evaluation))
        evaluation_reset(evaluation);
    if (!service_end_pending(service, reply))
        return;
    reply->found = decision.reset_after_ns > 0;
    reply->expires_after_ns = decision.reset_after_ns;
}

void service_find(struct service *service, const struct request *request, uint64_t now_ns,
                  struct reply *reply)
{
    struct stint_entry entry;
    if (service->stores.throttle > 0) {
        find_shared(service, request, now_ns, reply);
        return;
    }
    reply->found = stint_find(service->table, throttle_any_quota(), request->key.ptr,
                              request->key.len, now_ns, &entry) == 0;
    reply->expires_after_ns = reply->found ? sub_floor(entry.expires_at_ns, now_ns) : 0;
}

/* Removes the state but not a block of the key: only administrators lift a block. */
void service_forget(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply)
{
    const struct stint_quota *quota = throttle_any_quota();
    service_find(service, request, now_ns, reply);
    if (reply->found && service->stores.throttle == 0)
        table_forget(service->table, quota,
                     table_hash(service->table, quota, request->key.ptr, request->key.len));
}
