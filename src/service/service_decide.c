/* SPDX-License-Identifier: MIT */
/* Requests on items and on descriptors: made a question, asked, and told in statuses. */
#include "service/service_parts.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/wide_int.h"

#define LIFETIME_DEFAULT_NS (10 * NS_PER_MIN)

/* ---- Filling --------------------------------------------------------------------------------- */

static int add_items(struct service *service, const struct request *request,
                     struct stint_error *error)
{
    struct question *question = &service->question;
    for (size_t i = 0; i < request->n_items; i++) {
        const struct request_item *item = &request->items[i];
        const struct stint_quota *quota =
            spec_cache_find(&service->specs, service->table, item->quota, error);
        if (quota == NULL)
            return error->code;
        if (item->key.len > STINT_KEY_MAX)
            return err_set(error, STINT_E_RANGE, "the key has %zu bytes; at most %d are allowed",
                           item->key.len, STINT_KEY_MAX);
        question_add_item(question, quota, item->key, item->has_cost ? item->cost : request->cost);
    }
    return 0;
}

static int add_descriptors(struct service *service, const struct request *request,
                           struct stint_error *error)
{
    const struct question_ask ask = {
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
    return question_add_descriptors(&service->question, &ask, error);
}

static int fill(struct service *service, const struct request *request, uint64_t now_ns,
                struct stint_error *error)
{
    size_t n = request->n_items + request->n_descriptors;
    question_begin(&service->question, now_ns);
    if (n == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "nothing is asked: a quota and a key, or descriptors are needed");
    if (n > TARGETS_MAX || (request->n_items > 0 && request->n_descriptors > 0))
        return err_set(error, STINT_E_RANGE,
                       "a request has 1 to %d quotas, or descriptors, but not both", TARGETS_MAX);
    int code = request->n_items > 0 ? add_items(service, request, error)
                                    : add_descriptors(service, request, error);
    if (request->verb == REQUEST_RESERVE || request->verb == REQUEST_BOOK)
        question_leave_distant_shadows(&service->question);
    return code;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static bool holds_places(const struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++)
        if (question->targets[i].quota != NULL &&
            question->targets[i].quota->algorithm == STINT_CONCURRENCY)
            return true;
    return false;
}

/* Holders have a lease to go by; all others need a time. */
static uint64_t lifetime_of(const struct request *request, const struct question *question)
{
    if (request->lifetime_ns > 0 || holds_places(question))
        return request->lifetime_ns;
    return LIFETIME_DEFAULT_NS;
}

/* Of verbs that change something, and decide nothing. */
static struct stint_decision allowed(void)
{
    return (struct stint_decision){.outcome = STINT_ALLOW, .stored = 1};
}

static struct stint_decision block(struct question *question, const struct request *request,
                                   struct reply *reply)
{
    int code = question_block(question, request->lifetime_ns);
    if (code == STINT_E_FULL)
        service_refuse_as(reply, REPLY_FULL, "as many keys as the table has room for are blocked");
    else if (code != 0)
        service_refuse_as(reply, REPLY_BAD_REQUEST, "the block would end later than there is time");
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
    if (!is_meant || question_set_quota(&service->question, quota, &error) != 0)
        service_refuse(reply, &error);
    return allowed();
}

/* A ticket names the quotas of this table by their entries: a gcra quota needs one, too. */
static bool has_entries(struct service *service, struct reply *reply)
{
    const struct question *question = &service->question;
    struct stint_error error;
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
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
    struct question *question = &service->question;
    if (!has_entries(service, reply))
        return law_never(0);
    question->has_on_expiry = request->has_on_expiry;
    question->kept_units = request->kept_units;
    struct stint_decision decision =
        request->verb == REQUEST_BOOK
            ? question_book(question, request->lifetime_ns, &reply->ticket, &reply->has_ticket)
            : question_reserve(question, lifetime_of(request, question), &reply->ticket,
                               &reply->has_ticket);
    if (reply->has_ticket && question->errand != NULL)
        service_tell_ticket(service, reply);
    return decision;
}

static struct stint_decision ask(struct service *service, const struct request *request,
                                 struct reply *reply)
{
    struct question *question = &service->question;
    switch (request->verb) {
    case REQUEST_TAKE:
        return question_take(question);
    case REQUEST_TAKE_UPTO:
        return question_take_upto(question);
    case REQUEST_RESERVE:
    case REQUEST_BOOK:
        return reserve(service, request, reply);
    case REQUEST_CHARGE:
        return question_charge(question);
    case REQUEST_REFUND:
        return question_refund(question,
                               request->has_granted_at ? request->granted_at_ns : STINT_NEVER_NS);
    case REQUEST_BLOCK:
        return block(question, request, reply);
    case REQUEST_RESET:
        question_reset(question);
        return allowed();
    case REQUEST_SET_QUOTA:
        return set_quota(service, request, reply);
    default: /* PEEK, EXPLAIN */
        return question_peek(question);
    }
}

/* ---- Telling --------------------------------------------------------------------------------- */

static uint8_t when_full(const struct question *question, const struct target *target)
{
    bool is_in_table = target->quota != NULL && target->store == 0;
    return is_in_table ? table_when_full(question->table, target->quota) : STINT_FULL_DEFAULT;
}

static void tell(struct service *service, const struct request *request, struct reply *reply)
{
    struct question *question = &service->question;
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        service->statuses[i] = (struct reply_status){
            .rule = target->rule,
            .quota = target->is_replaced ? NULL : target->quota,
            .decision = target->decision,
            .matched = target->rule != NULL && !target->is_replaced,
            .replaced = target->is_replaced,
            .over = target->over,
            .banned = target->banned,
            .is_unmatched = target->is_unmatched,
            .is_domain_unknown = target->is_unmatched && question->domain == SIZE_MAX,
            .is_override = target->is_override,
            .is_all_shadow = target->is_all_shadow,
            .when_full = when_full(question, target),
            .grows_after_ns = request->wants_growth ? question_grows_after(question, i) : 0,
            .shadow_retry_after_ns = target->shadow_retry_after_ns,
            .shadow_over = target->shadow_over,
        };
    }
    reply->statuses = service->statuses;
    reply->n_statuses = question->n_targets;
}

void service_decide(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply)
{
    struct stint_error error;
    if (fill(service, request, now_ns, &error) != 0) {
        service_drop(service, request->errand);
        service_refuse(reply, &error);
        return;
    }
    if (!service_begin_errand(service, request, reply))
        return;
    reply->decision = ask(service, request, reply);
    if (!service_end_errand(service, reply))
        return;
    reply->at_ns = service->question.at_ns;
    if (reply->error != REPLY_DECIDED)
        return;
    if (reply->has_ticket && reply->ticket_text.len > 0)
        service_expect_expiry(service, request, now_ns);
    service_count_question(service, request, reply);
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
    return fill(service, request, now_ns, &error) == 0 && question_asks_stores(&service->question);
}

void service_show_again(struct service *service, const struct request *request, uint64_t now_ns,
                        struct reply *reply)
{
    struct stint_error error;
    if (request->n_items + request->n_descriptors == 0 ||
        fill(service, request, now_ns, &error) != 0)
        return; /* there are none, or the rules are others by now */
    struct question *question = &service->question;
    for (size_t i = 0; i < question->n_targets; i++)
        question->targets[i].cost = 0;
    question_peek(question);
    if (reply->decision.binding < question->n_targets)
        question->targets[reply->decision.binding].decision = reply->decision;
    tell(service, request, reply);
}
