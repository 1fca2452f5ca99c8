/* SPDX-License-Identifier: MIT */
/* One worker's path from a request to its reply: the caller's rights, the rules, the verb. */
#include "service/service_parts.h"

#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "service/access/access.h"
#include "table/table.h"

#include <assert.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>

#define LIFETIME_DEFAULT_NS (10 * NS_PER_MIN)

struct service *service_new(struct server_state *server_state, unsigned worker)
{
    assert(worker < server_state->options.workers);
    struct service *service = calloc(1, sizeof(*service));
    if (service == NULL)
        return NULL;
    service->server_state = server_state;
    service->table = server_state->table;
    service->worker = worker;
    service->metrics = metrics_worker(server_state->metrics, worker);
    service->tracer = traces_tracer(server_state->traces, worker);
    if (evaluation_init(&service->evaluation, server_state->table, NULL) != 0) {
        free(service);
        return NULL;
    }
    service->evaluation.all_shadow = server_state->options.shadow_mode;
    service->evaluation.all_quota_mode = server_state->options.quota_mode;
    service->evaluation.charges_hits = server_state->options.charges_hits;
    service->evaluation.checks_debt = server_state->options.checks_debt;
    memcpy(service->specs.secret, server_state->table->region.fixed.hash_key,
           sizeof(service->specs.secret));
    service->ruleset = server_state_ruleset(server_state, &service->generation);
    assert(service_is_valid(service));
    return service;
}

void service_free(struct service *service)
{
    if (service == NULL)
        return;
    service_stop_expiring(service);
    ruleset_unref(service->ruleset);
    ruleset_unref(service->borrowed);
    pending_requests_deinit(&service->pending_requests);
    evaluation_deinit(&service->evaluation);
    free(service);
}

struct server_state *service_server_state(const struct service *service)
{
    assert(service_is_valid(service));
    return service->server_state;
}

unsigned service_worker(const struct service *service)
{
    assert(service_is_valid(service));
    return service->worker;
}

struct tracer *service_tracer(const struct service *service)
{
    assert(service_is_valid(service));
    return service->tracer;
}

void service_renew_rules(struct service *service)
{
    assert(service_is_valid(service));
    if (server_state_generation(service->server_state) == service->generation)
        return;
    ruleset_unref(service->ruleset);
    service->ruleset = server_state_ruleset(service->server_state, &service->generation);
}

/* ---- Counting: metrics and top keys, of the last evaluation or of a throttle ----------------- */

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

static void count_evaluation(struct service *service, const struct request *request,
                             const struct reply *reply)
{
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

static void count_throttle(struct service *service, const struct request *request,
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

/* ---- Inputs ---------------------------------------------------------------------------------- */

static int check_key(struct span key, struct stint_error *error)
{
    static const char text[] = "the key has %zu bytes; at most %d are allowed";
    bool fits = key.len <= STINT_KEY_MAX;
    return fits ? 0 : err_set(error, STINT_E_RANGE, text, key.len, STINT_KEY_MAX);
}

static int add_items(struct service *service, const struct request *request,
                     struct stint_error *error)
{
    assert(request->n_items > 0 && request->n_items <= TARGETS_MAX);
    struct evaluation *evaluation = &service->evaluation;
    for (size_t i = 0; i < request->n_items; i++) {
        const struct request_item *item = &request->items[i];
        const struct stint_quota *quota =
            spec_cache_find(&service->specs, service->table, item->quota, error);
        if (quota == NULL)
            return error->code;
        if (check_key(item->key, error) != 0)
            return error->code;
        evaluation_add_item(evaluation, quota, item->key,
                            item->has_cost ? item->cost : request->cost);
    }
    return 0;
}

static int add_descriptors(struct service *service, const struct request *request,
                           struct stint_error *error)
{
    assert(request->n_descriptors > 0 && request->n_descriptors <= TARGETS_MAX);
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
    if (request->pending != NULL && request->pending->inputs != NULL) {
        evaluation_recall(&service->evaluation, request->pending);
        return 0;
    }
    evaluation_begin(&service->evaluation, now_ns);
    if (n == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "the request is empty: expected a quota and a key, or descriptors");
    if (n > TARGETS_MAX || (request->n_items > 0 && request->n_descriptors > 0))
        return err_set(error, STINT_E_RANGE,
                       "a request has 1 to %d quotas, or descriptors, but not both", TARGETS_MAX);
    int code = request->n_items > 0 ? add_items(service, request, error)
                                    : add_descriptors(service, request, error);
    assert(code != 0 || service->evaluation.n_targets == n);
    if (request->verb == REQUEST_RESERVE || request->verb == REQUEST_BOOK)
        evaluation_leave_distant_shadows(&service->evaluation);
    return code;
}

/* ---- Evaluation ------------------------------------------------------------------------------ */

/* For holders the lease gives the time; all others need one. */
static uint64_t lifetime_of(const struct request *request, const struct evaluation *evaluation)
{
    assert(evaluation->n_targets <= TARGETS_MAX);
    bool has_holders = false;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        has_holders = has_holders || (evaluation->targets[i].quota != NULL &&
                                      evaluation->targets[i].quota->algorithm == STINT_CONCURRENCY);
    return request->lifetime_ns > 0 || has_holders ? request->lifetime_ns : LIFETIME_DEFAULT_NS;
}

/* Verbs that change something, and decide nothing. */
static struct stint_decision allowed(void)
{
    return (struct stint_decision){.outcome = STINT_ALLOW, .stored = 1};
}

static struct stint_decision block(struct evaluation *evaluation, const struct request *request,
                                   struct reply *reply)
{
    assert(request->verb == REQUEST_BLOCK);
    struct stint_error error;
    if (evaluation_block(evaluation, request->lifetime_ns, &error) != 0)
        service_refuse(reply, &error);
    return allowed();
}

static struct stint_decision set_quota(struct service *service, const struct request *request,
                                       struct reply *reply)
{
    assert(request->verb == REQUEST_SET_QUOTA);
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

/* The text of the ticket after a reserve or a book in a store. */
static void write_ticket(struct service *service, struct reply *reply)
{
    assert(service->evaluation.pending != NULL);
    uint8_t bytes[TICKET_BYTES_MAX];
    gnutls_datum_t ticket = {.data = bytes}, text;
    ticket.size = (unsigned)evaluation_ticket_write(&service->evaluation, bytes);
    if (gnutls_base64_encode2(&ticket, &text) != 0) {
        service_refuse_as(reply, REPLY_UNAVAILABLE, "no memory for the ticket of what was charged");
        return;
    }
    assert(text.size <= sizeof(service->ticket_text));
    memcpy(service->ticket_text, text.data, text.size);
    reply->ticket_text = span_of(service->ticket_text, text.size);
    gnutls_free(text.data);
}

static struct stint_decision reserve(struct service *service, const struct request *request,
                                     struct reply *reply)
{
    assert(request->verb == REQUEST_RESERVE || request->verb == REQUEST_BOOK);
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
        write_ticket(service, reply);
    return decision;
}

static struct stint_decision evaluate(struct service *service, const struct request *request,
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

static void list_statuses(struct service *service, const struct request *request,
                          struct reply *reply)
{
    struct evaluation *evaluation = &service->evaluation;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (request->wants_growth)
            target->grows_after_ns = evaluation_grows_after(evaluation, i);
        if (request->verb == REQUEST_EXPLAIN)
            target->when_full = when_full(evaluation, target);
    }
    reply->statuses = evaluation->targets;
    reply->n_statuses = evaluation->n_targets;
    reply->is_domain_unknown = evaluation->domain == SIZE_MAX;
}

/* The next run must not match its rules again, nor find a quota that is set meanwhile. */
static void keep_inputs(struct service *service, struct reply *reply)
{
    assert(reply->pending != NULL);
    if (reply->pending->inputs != NULL || evaluation_keep(&service->evaluation, reply->pending))
        return;
    service_drop(service, reply->pending);
    reply->pending = NULL;
    service_refuse_as(reply, REPLY_UNAVAILABLE, PENDING_NO_MEMORY);
}

static void answer_targets(struct service *service, const struct request *request, uint64_t now_ns,
                           struct reply *reply)
{
    struct stint_error error;
    if (fill(service, request, now_ns, &error) != 0) {
        service_drop(service, request->pending);
        service_refuse(reply, &error);
        return;
    }
    service->evaluation.retry_until_ns = request->retry_until_ns;
    if (!service_begin_pending(service, request, reply))
        return;
    reply->decision = evaluate(service, request, reply);
    if (!service_end_pending(service, reply)) {
        if (reply->error == REPLY_WAITS)
            keep_inputs(service, reply);
        return;
    }
    reply->at_ns = service->evaluation.at_ns;
    if (reply->error != REPLY_DECIDED)
        return;
    if (reply->has_ticket && reply->ticket_text.len > 0)
        expiries_expect(service, request, now_ns);
    if (evaluation_retries(&service->evaluation, &reply->decision))
        reply->again_at_ns = min_u64(request->retry_until_ns,
                                     add_sat(now_ns, max_u64(reply->decision.retry_after_ns, 1)));
    else
        count_evaluation(service, request, reply);
    list_statuses(service, request, reply);
}

/* ---- CL.THROTTLE: the most frequent request, so no extra work ------------------------------- */

/* A duration above whole seconds by no more than the excess is rounded down to them. */
static uint64_t whole_seconds(uint64_t wait_ns, uint64_t excess_ns)
{
    assert(excess_ns < NS_PER_S);
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
        count_throttle(service, request, reply);
}

static void throttle_shared(struct service *service, const struct throttle_entry *entry,
                            const struct request *request, uint64_t now_ns, struct reply *reply)
{
    assert(service->stores.throttle <= service->stores.n_stores);
    struct evaluation *evaluation = &service->evaluation;
    bool is_closed = request->throttle.max_burst < 0;
    /* A store counts time in microseconds, rounded up. */
    uint64_t excess_ns = (entry->excess_ns + NS_PER_US - 1) / NS_PER_US * NS_PER_US;
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

static void answer_throttle(struct service *service, const struct request *request, uint64_t now_ns,
                            struct reply *reply)
{
    assert(request->verb == REQUEST_THROTTLE);
    struct stint_error error;
    const struct throttle_entry *entry = NULL;
    if (check_key(request->key, &error) == 0)
        entry =
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

/* Removes the state but not a block of the key: only administrators lift a block. */
static void find_shared(struct service *service, const struct request *request, uint64_t now_ns,
                        struct reply *reply)
{
    assert(service->stores.throttle <= service->stores.n_stores);
    struct evaluation *evaluation = &service->evaluation;
    struct stint_quota quota;
    evaluation_begin(evaluation, now_ns);
    evaluation_add_throttle(evaluation, long_quota(&quota), request->key, 0);
    if (!service_begin_pending(service, request, reply))
        return;
    struct stint_decision decision = evaluation_peek(evaluation);
    if (request->verb == REQUEST_FORGET && !evaluation_is_to_wait(evaluation))
        evaluation_forget(evaluation);
    if (!service_end_pending(service, reply))
        return;
    reply->found = decision.reset_after_ns > 0;
    reply->expires_after_ns = decision.reset_after_ns;
}

static void answer_find(struct service *service, const struct request *request, uint64_t now_ns,
                        struct reply *reply)
{
    assert(request->verb == REQUEST_FIND || request->verb == REQUEST_FORGET);
    const struct stint_quota *quota = throttle_any_quota();
    struct stint_table *table = service->table;
    struct span key = request->key;
    struct stint_entry entry;
    if (service->stores.throttle > 0) {
        find_shared(service, request, now_ns, reply);
        return;
    }
    reply->found = stint_find(table, quota, key.ptr, key.len, now_ns, &entry) == 0;
    reply->expires_after_ns = reply->found ? sub_floor(entry.expires_at_ns, now_ns) : 0;
    if (reply->found && request->verb == REQUEST_FORGET)
        table_forget(table, quota, table_hash(table, quota, key.ptr, key.len));
}

/* ---- Any verb -------------------------------------------------------------------------------- */

typedef void handler(struct service *service, const struct request *request, uint64_t now_ns,
                     struct reply *reply);

/* By verb; NULL: all verbs on items or descriptors. */
static handler *const handlers[REQUEST_VERBS] = {
    [REQUEST_SETTLE] = service_ticket, [REQUEST_CANCEL] = service_ticket,
    [REQUEST_RENEW] = service_ticket,  [REQUEST_THROTTLE] = answer_throttle,
    [REQUEST_FORGET] = answer_find,    [REQUEST_FIND] = answer_find,
    [REQUEST_COUNT] = service_count,   [REQUEST_COUNT_RESET] = service_count,
};

/* Answers any verb. Does not check the caller's roles or the id. */
static void answer_verb(struct service *service, const struct request *request, uint64_t now_ns,
                        struct reply *reply)
{
    assert(request->verb < REQUEST_VERBS);
    handler *handle = handlers[request->verb];
    if (handle == NULL) {
        if (request->pending == NULL)
            service_renew_rules(service);
        handle = answer_targets;
    }
    handle(service, request, now_ns, reply);
}

/* ---- Ids: charged once, however often they come ---------------------------------------------- */

/* Whether a store identifies the request by its id: then the table does not. */
static bool is_shared(struct service *service, const struct request *request, uint64_t now_ns)
{
    assert(request->id.len > 0);
    struct stint_error error;
    if (service->stores.n_stores == 0)
        return false;
    if (request->verb == REQUEST_THROTTLE || request->verb == REQUEST_FORGET)
        return service->stores.throttle > 0;
    if (request->n_items + request->n_descriptors == 0) /* a ticket */
        return false;
    service_renew_rules(service);
    return fill(service, request, now_ns, &error) == 0 &&
           evaluation_asks(&service->evaluation, true);
}

/*
 * Statuses for a repeated reply: the binding one as it was decided then, the others as they are
 * now.
 */
static void show_again(struct service *service, const struct request *request, uint64_t now_ns,
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
    list_statuses(service, request, reply);
}

static void answer_again(struct service *service, const struct request *request,
                         const struct requests_answer *answer, uint64_t now_ns, struct reply *reply)
{
    reply->decision = answer->decision;
    reply->ticket = answer->ticket;
    reply->has_ticket = answer->ticket.nonce != 0;
    reply->at_ns = answer->at_ns;
    reply->replayed = true;
    metrics_event(service->metrics, METRICS_REPLAYED, 1);
    reply->found = request->verb == REQUEST_FORGET;
    show_again(service, request, now_ns, reply);
}

/*
 * Verbs that move units did so unless they were denied; the others did unless they failed. Other
 * replies are not kept: a denied request may be repeated with its id.
 */
static void record(struct service *service, const struct requests_claim *claim,
                   const struct reply *reply)
{
    const struct requests_answer answer = {
        .decision = reply->decision,
        .ticket = reply->has_ticket ? reply->ticket : (struct stint_ticket){0, 0},
        .at_ns = reply->at_ns,
    };
    /* If the claim is lost, a retry gets BUSY or is decided as new: no other report is possible. */
    bool is_kept = reply->error == REPLY_DECIDED && reply->decision.outcome == STINT_ALLOW;
    requests_end(service->table, claim, is_kept ? &answer : NULL);
}

static void answer_once(struct service *service, const struct request *request, uint64_t now_ns,
                        struct reply *reply)
{
    assert(request->pending == NULL && service->caller != NULL);
    if (request->is_ahead) {
        reply->error = REPLY_AHEAD;
        return;
    }
    const struct requests_ask ask = {
        .hash = request_digest_id(service->table, request, service->caller->name),
        .fingerprint = request_digest_body(service->table, request),
        .now_ns = now_ns,
        .lifetime_ns = service->server_state->options.id_lifetime_ns};
    struct requests_claim claim;
    struct requests_answer answer;
    switch (requests_begin(service->table, &ask, &claim, &answer)) {
    case REQUESTS_NONE:
        service_refuse_as(reply, REPLY_UNAVAILABLE, SERVICE_ID_NONE);
        return;
    case REQUESTS_NEW:
        answer_verb(service, request, now_ns, reply);
        record(service, &claim, reply);
        return;
    case REQUESTS_SAME:
        answer_again(service, request, &answer, now_ns, reply);
        return;
    case REQUESTS_OTHER_BODY:
        service_refuse_as(reply, REPLY_CONFLICT, SERVICE_ID_OTHER);
        return;
    case REQUESTS_BUSY:
        service_refuse_as(reply, REPLY_CONFLICT, SERVICE_ID_BUSY);
        return;
    }
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Sets single members: a reply is large, and most of it is not read. */
static void begin(struct reply *reply, uint64_t now_ns)
{
    reply->error = REPLY_DECIDED;
    reply->replayed = false;
    reply->has_ticket = false;
    reply->found = false;
    reply->message[0] = '\0';
    reply->again_at_ns = 0;
    reply->at_ns = now_ns;
    reply->statuses = NULL;
    reply->n_statuses = 0;
    reply->ticket_text = span_of(NULL, 0);
    reply->pending = NULL;
}

/* The evaluation continues under the rules with which it began. */
static void answer_pending(struct service *service, const struct request *request, uint64_t now_ns,
                           struct reply *reply)
{
    assert(request->pending->rules != NULL);
    struct ruleset *in_force = service->ruleset;
    service->ruleset = request->pending->rules;
    answer_verb(service, request, now_ns, reply);
    service->ruleset = in_force;
}

static bool may_ask(const struct request *request, const struct caller *caller, struct reply *reply)
{
    assert(request->verb < REQUEST_VERBS);
    unsigned role = request_verbs[request->verb].is_administrative ? ACCESS_ADMINISTER : ACCESS_ASK;
    if ((caller->roles & role) != 0)
        return true;
    reply->decision = (struct stint_decision){.outcome = STINT_NEVER};
    service_refuse_as(reply, REPLY_FORBIDDEN, "the client's roles do not allow this");
    return false;
}

static void answer_all(struct service *service, const struct request *request,
                       const struct caller *caller, uint64_t now_ns, struct reply *reply)
{
    assert(caller != NULL);
    reply->decision = (struct stint_decision){.outcome = STINT_ALLOW};
    reply->ticket = (struct stint_ticket){0, 0};
    reply->expires_after_ns = 0;
    service->caller = caller;
    if (request->pending != NULL)
        answer_pending(service, request, now_ns, reply);
    else if (request->id.len > 0 && request_verbs[request->verb].is_charging &&
             !is_shared(service, request, now_ns))
        answer_once(service, request, now_ns, reply);
    else
        answer_verb(service, request, now_ns, reply);
}

void service_ask(struct service *service, const struct request *request,
                 const struct caller *caller, uint64_t now_ns, struct reply *reply)
{
    assert(request_is_valid(request));
    assert(service_is_valid(service));
    assert(caller != NULL && caller->frontend < METRICS_FRONTENDS);
    begin(reply, now_ns);
    if (request->is_ahead &&
        (service->stores.n_stores == 0 || !request_verbs[request->verb].may_be_ahead)) {
        reply->error = REPLY_AHEAD;
        return;
    }
    if (may_ask(request, caller, reply)) {
        /* The most frequent case takes the shortest path. */
        if (request->verb == REQUEST_THROTTLE && request->id.len == 0 && request->pending == NULL)
            answer_throttle(service, request, now_ns, reply);
        else
            answer_all(service, request, caller, now_ns, reply);
    } else {
        service_drop(service, request->pending);
    }
    assert((reply->error == REPLY_WAITS) == (reply->pending != NULL));
    if (reply->error == REPLY_WAITS)
        reply->pending->span = caller->span;
    if (reply->error == REPLY_WAITS || reply->error == REPLY_AHEAD || reply->again_at_ns > 0)
        return;
    metrics_asked(service->metrics, (enum metrics_frontend)caller->frontend, request->verb,
                  reply->error);
}
