/* SPDX-License-Identifier: MIT */
/* Counts a decision in the worker's metrics, and in the list of most requested keys. */
#include "service/service_parts.h"

#include <assert.h>

#define NAME_MAX_BYTES 128 /* bytes of a name that the metrics keep, more than the list does */

/* The name of a key for output: the values of its descriptor, or the bytes of an item's key. */
struct name {
    uint8_t bytes[NAME_MAX_BYTES];
    size_t len;
};

static void append(struct name *name, struct span text)
{
    assert(name->len <= sizeof(name->bytes));
    size_t space = sizeof(name->bytes) - name->len;
    size_t len = text.len < space ? text.len : space;
    memcpy(name->bytes + name->len, text.ptr, len);
    name->len += len;
}

static struct span name_of(struct name *name, const struct request *request, size_t i)
{
    assert(i < request->n_items + request->n_descriptors);
    if (request->n_items > 0)
        return request->items[i].key;
    const struct descriptor *descriptor = &request->descriptors[i];
    if (descriptor->n_entries == 1)
        return descriptor->entries[0].value;
    name->len = 0;
    for (size_t entry = 0; entry < descriptor->n_entries; entry++) {
        if (entry > 0)
            append(name, span_of(" ", 1));
        append(name, descriptor->entries[entry].value);
    }
    return span_of(name->bytes, name->len);
}

/* No value is the beginning of another. */
static void append_value(struct name *name, struct span value)
{
    size_t from = name->len;
    append(name, value);
    for (size_t i = from; i < name->len; i++)
        if (name->bytes[i] == METRICS_VALUE_END)
            name->bytes[i] = ' ';
}

/* The values that a rule's metrics show, one after another; a NULL ptr: none. */
static struct span shown_values(struct name *name, const struct request *request, size_t i,
                                const struct rule *rule)
{
    if (rule == NULL || rule->shown == 0)
        return (struct span){NULL, 0};
    const struct descriptor *descriptor = &request->descriptors[i];
    uint32_t left = rule->shown;
    name->len = 0;
    for (size_t entry = 0; entry < descriptor->n_entries; entry++) {
        if ((left >> entry & 1) == 0)
            continue;
        append_value(name, descriptor->entries[entry].value);
        left &= ~(UINT32_C(1) << entry);
        if (left != 0)
            append(name, span_of(&(const char){METRICS_VALUE_END}, 1));
    }
    return span_of(name->bytes, name->len);
}

static enum metrics_outcome plain_outcome(const struct stint_decision *decision)
{
    return decision->outcome == STINT_ALLOW  ? METRICS_ALLOW
           : decision->outcome == STINT_DENY ? METRICS_DENY
                                             : METRICS_NEVER;
}

static enum metrics_outcome outcome_of(const struct target *target)
{
    if (target->is_replaced)
        return METRICS_REPLACED;
    if (target->banned)
        return METRICS_BANNED;
    if (target->over && target->part == TARGET_SHADOW)
        return METRICS_SHADOW;
    return plain_outcome(&target->decision);
}

/* Units as envoyproxy/ratelimit counts them. Like it, unlimited requests are not counted. */
static void count_hits(struct service *service, const struct target *target, struct span value)
{
    assert(target->rule != NULL);
    const struct rule *rule = target->rule;
    if (target->part == TARGET_FREE || target->is_refund)
        return;
    const struct metrics_hits hits = {
        .value = value,
        .asked = target->cost,
        .limit = target->decision.limit,
        .remaining = target->decision.remaining,
        .is_over = target->over,
        .is_shadow = target->part == TARGET_SHADOW && !target->is_all_shadow,
        .fitted = target->fitted,
    };
    metrics_hits(service->metrics, service->ruleset->bound, rule, &hits);
}

static void count_target(struct service *service, const struct request *request,
                         const struct reply *reply, size_t i)
{
    assert(i < service->evaluation.n_targets);
    struct name space;
    const struct target *target = &service->evaluation.targets[i];
    const struct metrics_bound *bound = service->ruleset->bound;
    struct span value = shown_values(&space, request, i, target->rule);
    bool allowed = reply->decision.outcome == STINT_ALLOW;
    enum metrics_outcome outcome = outcome_of(target);
    bool is_moved = (allowed && outcome == METRICS_ALLOW) || target->hits == TARGET_HITS_CHARGE;
    uint32_t units = is_moved ? target->decision.granted : 0;
    metrics_decided(service->metrics, bound, target->rule, outcome, units);
    if (value.ptr != NULL)
        metrics_detailed(service->metrics, bound, target->rule, value, outcome, units);
    if (target->shadow_over)
        metrics_candidate_over(service->metrics, bound, target->rule);
    if (target->rule != NULL && metrics_counts_hits(service->metrics))
        count_hits(service, target, value);
    if (service->server_state->top_keys == NULL)
        return;
    const struct top_keys_ask ask = {
        .rule = target->rule,
        .key = name_of(&space, request, i),
        .units = target->cost,
        .denied = target->over && target->part == TARGET_LIVE,
        .now_ns = service->evaluation.now_ns,
    };
    top_keys_note(service->server_state->top_keys, service->worker, &ask);
}

/* Counts descriptors that everything allows, since the rules have another domain or key. */
static void note_unmatched(struct service *service, const struct request *request)
{
    assert(service->evaluation.n_unmatched > 0);
    const struct evaluation *evaluation = &service->evaluation;
    bool is_known = evaluation->domain != SIZE_MAX;
    metrics_unmatched(service->metrics, service->ruleset->bound, evaluation->domain,
                      evaluation->n_unmatched);
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].is_unmatched)
            unmatched_note(service->server_state->unmatched,
                           is_known ? UNMATCHED_DESCRIPTOR : UNMATCHED_DOMAIN, request->domain,
                           &request->descriptors[i]);
}

void service_count_evaluation(struct service *service, const struct request *request,
                              const struct reply *reply)
{
    assert(service_is_valid(service));
    assert(request->verb < REQUEST_VERBS);
    const struct evaluation *evaluation = &service->evaluation;
    uint64_t bans = 0;
    if (!request_verbs[request->verb].is_counted)
        return;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        bans += target->made_ban;
        if (target->rule != NULL || target->quota != NULL)
            count_target(service, request, reply, i);
    }
    if (evaluation->n_unmatched > 0)
        note_unmatched(service, request);
    if (evaluation->all_shadow && evaluation_would_be_denied(evaluation))
        metrics_event(service->metrics, METRICS_ALL_SHADOW, 1);
    if (bans > 0)
        metrics_event(service->metrics, METRICS_BANS, bans);
    if (evaluation->bans_lost > 0)
        metrics_event(service->metrics, METRICS_BANS_LOST, evaluation->bans_lost);
}

void service_count_throttle(struct service *service, const struct request *request,
                            const struct reply *reply)
{
    assert(request->verb == REQUEST_THROTTLE);
    enum metrics_outcome outcome = plain_outcome(&reply->decision);
    metrics_decided(service->metrics, NULL, NULL, outcome, reply->decision.granted);
    if (service->server_state->top_keys == NULL)
        return;
    const struct top_keys_ask ask = {.key = request->key,
                                     .units = request->cost,
                                     .denied = outcome != METRICS_ALLOW,
                                     .now_ns = reply->at_ns};
    top_keys_note(service->server_state->top_keys, service->worker, &ask);
}
