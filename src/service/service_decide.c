/* SPDX-License-Identifier: MIT */
/* Requests on items and descriptors: the inputs, the evaluation, the statuses. */
#include "service/service_parts.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/wide_int.h"

#define LIFETIME_DEFAULT_NS (10 * NS_PER_MIN)

/* ---- Inputs ---------------------------------------------------------------------------------- */

static int add_items(struct service *service, const struct request *request,
                     struct stint_error *error)
{
    struct evaluation *evaluation = &service->evaluation;
    for (size_t i = 0; i < request->n_items; i++) {
        const struct request_item *item = &request->items[i];
        const struct stint_quota *quota =
            spec_cache_find(&service->specs, service->table, item->quota, error);
        if (quota == NULL)
            return error->code;
        if (item->key.len > STINT_KEY_MAX)
            return err_set(error, STINT_E_RANGE, "the key has %zu bytes; at most %d are allowed",
                           item->key.len, STINT_KEY_MAX);
        evaluation_add_item(evaluation, quota, item->key,
                            item->has_cost ? item->cost : request->cost);
    }
    return 0;
}

static int add_descriptors(struct service *service, const struct request *request,
                           struct stint_error *error)
{
    const struct evaluation_ask ask = {
        .rules = service->ruleset->rules,
        .domain = request->domain,
        .descriptors = request->descriptors,
        .n_descriptors = request->n_descriptors,
        .cost = request->cost,
        .has_envoy_hits = request->has_envoy_hits &&
                          (request->verb == REQUEST_TAKE || request->verb == REQUEST_PEEK),
    };
    if (request->domain.len == 0)
        return err_set(error, STINT_E_SYNTAX, "a domain is missing");
    for (size_t i = 0; i < request->n_descriptors; i++)
        if (request->descriptors[i].n_entries < 1 ||
            request->descriptors[i].n_entries > ENTRIES_MAX)
            return err_set(error, STINT_E_RANGE, "descriptor %zu has %zu entries, not 1 to %d",
                           i + 1, request->descriptors[i].n_entries, ENTRIES_MAX);
    return evaluation_add_descriptors(&service->evaluation, &ask, error);
}

static int fill(struct service *service, const struct request *request, uint64_t now_ns,
                struct stint_error *error)
{
    size_t n = request->n_items + request->n_descriptors;
    evaluation_begin(&service->evaluation, now_ns);
    if (n == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "the request is empty: expected a quota and a key, or descriptors");
    if (n > TARGETS_MAX || (request->n_items > 0 && request->n_descriptors > 0))
        return err_set(error, STINT_E_RANGE,
                       "a request has 1 to %d quotas, or descriptors, but not both", TARGETS_MAX);
    int code = request->n_items > 0 ? add_items(service, request, error)
                                    : add_descriptors(service, request, error);
    if (request->verb == REQUEST_RESERVE || request->verb == REQUEST_BOOK)
        evaluation_leave_distant_shadows(&service->evaluation);
    return code;
}

/* ---- Evaluation ------------------------------------------------------------------------------ */

static bool holds_places(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].quota != NULL &&
            evaluation->targets[i].quota->algorithm == STINT_CONCURRENCY)
            return true;
    return false;
}

/* For holders the lease gives the time; all others need one. */
static uint64_t lifetime_of(const struct request *request, const struct evaluation *evaluation)
{
    if (request->lifetime_ns > 0 || holds_places(evaluation))
        return request->lifetime_ns;
    return LIFETIME_DEFAULT_NS;
}

/* Verbs that change something, and decide nothing. */
static struct stint_decision allowed(void)
{
    return (struct stint_decision){.outcome = STINT_ALLOW, .stored = 1};
}

static struct stint_decision block(struct evaluation *evaluation, const struct request *request,
                                   struct reply *reply)
{
    int code = evaluation_block(evaluation, request->lifetime_ns);
    if (code == STINT_E_FULL)
        service_refuse_as(reply, REPLY_FULL, "the table has no free space for another blocked key");
    else if (code != 0)
        service_refuse_as(reply, REPLY_BAD_REQUEST,
                          "the end of the block is later than the largest time");
    return allowed();
}

static struct stint_decision set_quota(struct service *service, const struct request *request,
                                       struct reply *reply)
{
    const struct stint_quota *quota = NULL;
    struct stint_error error;
    bool is_meant = true;
    if (request->quota.len > 0) {
        quota = spec_cache_find(&service->specs, service->table, request->quota, &error);
        is_meant = quota != NULL;
    }
    if (!is_meant || evaluation_set_quota(&service->evaluation, quota, &error) != 0)
        service_refuse(reply, &error);
    return allowed();
}

/* A ticket names the quotas of this table by their entries, so a gcra quota needs an entry, too. */
static bool has_entries(struct service *service, struct reply *reply)
{
    const struct evaluation *evaluation = &service->evaluation;
    struct stint_error error;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->quota == NULL || target->store != 0 ||
            stint_table_accepts(service->table, target->quota, &error) == 0)
            continue;
        service_refuse(reply, &error);
        return false;
    }
    return true;
}

static struct stint_decision reserve(struct service *service, const struct request *request,
                                     struct reply *reply)
{
    struct evaluation *evaluation = &service->evaluation;
    if (!has_entries(service, reply))
        return algorithm_never(0);
    evaluation->has_on_expiry = request->has_on_expiry;
    evaluation->kept_units = request->kept_units;
    struct stint_decision decision =
        request->verb == REQUEST_BOOK
            ? evaluation_book(evaluation, request->lifetime_ns, &reply->ticket, &reply->has_ticket)
            : evaluation_reserve(evaluation, lifetime_of(request, evaluation), &reply->ticket,
                                 &reply->has_ticket);
    if (reply->has_ticket && evaluation->pending != NULL)
        service_tell_ticket(service, reply);
    return decision;
}

static struct stint_decision ask(struct service *service, const struct request *request,
                                 struct reply *reply)
{
    struct evaluation *evaluation = &service->evaluation;
    switch (request->verb) {
    case REQUEST_TAKE:
        return evaluation_take(evaluation);
    case REQUEST_TAKE_UPTO:
        return evaluation_take_upto(evaluation);
    case REQUEST_RESERVE:
    case REQUEST_BOOK:
        return reserve(service, request, reply);
    case REQUEST_CHARGE:
        return evaluation_charge(evaluation);
    case REQUEST_REFUND:
        return evaluation_refund(evaluation,
                                 request->has_granted_at ? request->granted_at_ns : STINT_NEVER_NS);
    case REQUEST_BLOCK:
        return block(evaluation, request, reply);
    case REQUEST_RESET:
        evaluation_reset(evaluation);
        return allowed();
    case REQUEST_SET_QUOTA:
        return set_quota(service, request, reply);
    default: /* PEEK, EXPLAIN */
        return evaluation_peek(evaluation);
    }
}

/* ---- Statuses -------------------------------------------------------------------------------- */

static uint8_t when_full(const struct evaluation *evaluation, const struct target *target)
{
    bool is_in_table = target->quota != NULL && target->store == 0;
    return is_in_table ? table_when_full(evaluation->table, target->quota) : STINT_FULL_DEFAULT;
}

static void tell(struct service *service, const struct request *request, struct reply *reply)
{
    struct evaluation *evaluation = &service->evaluation;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        service->statuses[i] = (struct reply_status){
            .rule = target->rule,
            .quota = target->is_replaced ? NULL : target->quota,
            .decision = target->decision,
            .matched = target->rule != NULL && !target->is_replaced,
            .replaced = target->is_replaced,
            .over = target->over,
            .banned = target->banned,
            .is_unmatched = target->is_unmatched,
            .is_domain_unknown = target->is_unmatched && evaluation->domain == SIZE_MAX,
            .is_override = target->is_override,
            .is_all_shadow = target->is_all_shadow,
            .when_full = when_full(evaluation, target),
            .grows_after_ns = request->wants_growth ? evaluation_grows_after(evaluation, i) : 0,
            .shadow_retry_after_ns = target->shadow_retry_after_ns,
            .shadow_over = target->shadow_over,
        };
    }
    reply->statuses = service->statuses;
    reply->n_statuses = evaluation->n_targets;
}

void service_decide(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply)
{
    struct stint_error error;
    if (fill(service, request, now_ns, &error) != 0) {
        service_drop(service, request->pending);
        service_refuse(reply, &error);
        return;
    }
    if (!service_begin_pending(service, request, reply))
        return;
    reply->decision = ask(service, request, reply);
    if (!service_end_pending(service, reply))
        return;
    reply->at_ns = service->evaluation.at_ns;
    if (reply->error != REPLY_DECIDED)
        return;
    if (reply->has_ticket && reply->ticket_text.len > 0)
        service_expect_expiry(service, request, now_ns);
    service_count_evaluation(service, request, reply);
    tell(service, request, reply);
}

bool service_is_shared(struct service *service, const struct request *request, uint64_t now_ns)
{
    struct stint_error error;
    if (service->stores.n_stores == 0)
        return false;
    if (request->verb == REQUEST_THROTTLE || request->verb == REQUEST_FORGET)
        return service->stores.throttle > 0;
    if (request->n_items + request->n_descriptors == 0) /* a ticket */
        return false;
    service_renew_rules(service);
    return fill(service, request, now_ns, &error) == 0 &&
           evaluation_asks_stores(&service->evaluation);
}

void service_show_again(struct service *service, const struct request *request, uint64_t now_ns,
                        struct reply *reply)
{
    struct stint_error error;
    if (request->n_items + request->n_descriptors == 0 ||
        fill(service, request, now_ns, &error) != 0)
        return; /* there are none, or other rules are in force by now */
    struct evaluation *evaluation = &service->evaluation;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        evaluation->targets[i].cost = 0;
    evaluation_peek(evaluation);
    if (reply->decision.binding < evaluation->n_targets)
        evaluation->targets[reply->decision.binding].decision = reply->decision;
    tell(service, request, reply);
}
