/* SPDX-License-Identifier: MIT */
/*
 * Reserving, booking and settling in a store, and the bytes of its tickets:
 *     version 1, id, body 8, label of the store, number of items 1; then of each item:
 *     flags 1, quota as text, RULE of its key's name, domain, key; after the flags, if they
 *     are set: which limit that is not enforced 1; units that stay charged 4, estimated 4
 * and a checksum of all that, 8. Numbers are big-endian; a text follows its length in two bytes.
 * The checksum detects bytes that were cut or mistyped. It is not a signature, and need not be: a
 * caller who may settle may refund as well.
 */
#include "decide/evaluation_ticket.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/ns.h"
#include "base/siphash.h"
#include "base/wide_int.h"
#include "decide/evaluation_parts.h"

#include <assert.h>
#include <stdlib.h>

#define VERSION 1
#define QUOTA_TEXT_MAX 256
#define SUM_SIZE 8
#define RULE_ID_SIZE 8 /* in front of values: rules_match() */

/* FLAG_TAG: two bits of the tag's mode. */
enum flag { FLAG_VALUES = 1, FLAG_LEASED = 2, FLAG_TAG = 4, FLAG_SHADOW = 16, FLAG_KEPT = 32 };
#define FLAG_TAGS 3u
#define FLAGS_END 64u

/* The store knows a ticket for so much longer, so that it can be expired. */
#define EXPIRE_WITHIN_NS (10 * NS_PER_MIN)

/* The store options of a rule for a key, kept in the ticket, since the rule may change. */
struct ticket_rules {
    struct {
        uint8_t shadow;      /* which of those that are not enforced: see shadow_mark() */
        bool expires;        /* not all of it stays charged: */
        uint32_t kept, cost; /* at most, of what was estimated */
    } said[TARGETS_MAX];
    struct rule rules[TARGETS_MAX];
    char domains[TARGETS_MAX][RULE_STORE_NAME_MAX + 1];
    char names[TARGETS_MAX][RULE_STORE_NAME_MAX + 1];
};

/* ---- Writing --------------------------------------------------------------------------------- */

struct out {
    uint8_t *bytes;
    size_t len; /* may be more than fits */
};

static void put(struct out *out, const void *bytes, size_t len)
{
    assert(out->bytes != NULL && (bytes != NULL || len == 0));
    if (len > 0 && out->len <= TICKET_BYTES_MAX && len <= TICKET_BYTES_MAX - out->len)
        memcpy(out->bytes + out->len, bytes, len);
    out->len += len;
}

static void put_number(struct out *out, uint64_t number, size_t size)
{
    assert(size <= sizeof(number));
    uint8_t bytes[sizeof(number)];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(number >> (8 * (size - 1 - i)));
    put(out, bytes, size);
}

static void put_text(struct out *out, struct span text)
{
    put_number(out, text.len, 2);
    put(out, text.ptr, text.len);
}

static const char *label_of(const struct evaluation_stores *stores, size_t store)
{
    assert(store >= 1 && store <= stores->n_stores);
    return stores->labels != NULL ? stores->labels[store - 1] : "";
}

static bool is_leased(const struct target *target)
{
    return target->rule != NULL && target->rule->store.lease != RULE_LEASE_NONE;
}

/* Tells apart the limits that one request charges beside the live ones. */
static uint8_t shadow_mark(size_t target, bool is_candidate)
{
    assert(target < TARGETS_MAX);
    return (uint8_t)(target * 2 + is_candidate);
}

/* One limit of a request, as a ticket names it. */
struct charged {
    size_t target;
    bool is_candidate;
};

static void put_item(struct out *out, const struct evaluation *evaluation, struct charged item)
{
    assert(item.target < evaluation->n_targets);
    char text[QUOTA_TEXT_MAX], space[EVALUATION_NAME_SIZE];
    const struct target *target = &evaluation->targets[item.target];
    const struct rule *rule = target->rule;
    const struct stint_quota *quota = item.is_candidate ? &rule->shadow : target->quota;
    bool is_shadow = item.is_candidate || target->part == TARGET_SHADOW;
    uint32_t kept =
        evaluation->longer_ns > 0 ? evaluation_kept(evaluation, target) : STINT_KEEP_ALL;
    unsigned tag = rule != NULL ? rule->store.tag : RULE_TAG_VALUES;
    bool has_domain = rule != NULL && tag == RULE_TAG_DOMAIN;
    size_t len = stint_quota_format(quota, text, sizeof(text));
    put_number(out,
               (target->is_values ? FLAG_VALUES : 0u) | (is_leased(target) ? FLAG_LEASED : 0u) |
                   tag * FLAG_TAG | (is_shadow ? FLAG_SHADOW : 0u) |
                   (kept != STINT_KEEP_ALL ? FLAG_KEPT : 0u),
               1);
    if (is_shadow)
        put_number(out, shadow_mark(item.target, item.is_candidate), 1);
    if (kept != STINT_KEEP_ALL) {
        put_number(out, kept, 4);
        put_number(out, target->cost, 4);
    }
    put_text(out, span_of(text, min_u64(len, sizeof(text) - 1)));
    put_text(out, evaluation_name_of(target, quota, space));
    put_text(out, span_of_text(has_domain ? rule->domain : ""));
    put_text(out, target->key);
}

static uint64_t sum_of(const uint8_t *bytes, size_t len)
{
    static const uint64_t no_secret[2];
    return siphash13_128(no_secret, VERSION, bytes, len).lo;
}

static bool is_charged(const struct target *target)
{
    return target_takes(target) && !target->over;
}

/*
 * The limits that are not enforced and have a record under the ticket. A very long ticket may have
 * no space for the last of them, or for their keys: their charge stays as estimated.
 */
static size_t add_shadows(const struct evaluation *evaluation, struct charged *items, size_t n)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->is_reserved && n < TARGETS_MAX)
            items[n++] = (struct charged){i, false};
        if (target->is_candidate_reserved && n < TARGETS_MAX)
            items[n++] = (struct charged){i, true};
    }
    return n;
}

static size_t find_items(const struct evaluation *evaluation,
                         bool (*is_of)(const struct target *target),
                         struct charged items[TARGETS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (is_of(&evaluation->targets[i]))
            items[n++] = (struct charged){i, false};
    return n;
}

/* Its length, also where that is more than fits. */
static size_t write_items(const struct evaluation *evaluation, uint8_t *bytes,
                          const struct charged *items, size_t n)
{
    assert(n <= TARGETS_MAX && evaluation->id != NULL);
    struct out out = {.bytes = bytes};
    put_number(&out, VERSION, 1);
    put(&out, evaluation->id, BACKEND_ID_LEN);
    put_number(&out, evaluation->body, sizeof(evaluation->body));
    put_text(&out, span_of_text(label_of(evaluation->stores, evaluation->ticket_store)));
    put_number(&out, n, 1);
    for (size_t i = 0; i < n; i++)
        put_item(&out, evaluation, items[i]);
    if (out.len <= TICKET_BYTES_MAX - SUM_SIZE)
        put_number(&out, sum_of(bytes, out.len), SUM_SIZE);
    else
        out.len += SUM_SIZE;
    return out.len;
}

/* The store of all live targets, else of the first shadow that one keeps: 0 where there is none. */
static size_t store_of(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (target_asks(&evaluation->targets[i]))
            return evaluation->targets[i].store;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part == TARGET_SHADOW && evaluation->targets[i].store != 0)
            return evaluation->targets[i].store;
    return 0;
}

size_t evaluation_ticket_write(const struct evaluation *evaluation, uint8_t bytes[TICKET_BYTES_MAX])
{
    assert(evaluation_is_valid(evaluation) && evaluation->is_ticket);
    struct charged items[TARGETS_MAX] = {{0, false}};
    size_t n_live = find_items(evaluation, is_charged, items);
    size_t n = add_shadows(evaluation, items, n_live), len;
    while ((len = write_items(evaluation, bytes, items, n)) > TICKET_BYTES_MAX && n > n_live)
        n--;
    assert(len <= TICKET_BYTES_MAX);
    return len;
}

const uint8_t *evaluation_ticket_id(struct span ticket)
{
    assert(ticket.len > 1 + BACKEND_ID_LEN);
    return ticket.ptr + 1;
}

bool evaluation_ticket_expires(const struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if ((is_charged(target) || target->is_reserved) &&
            target->quota->algorithm != STINT_CONCURRENCY &&
            evaluation_kept(evaluation, target) != STINT_KEEP_ALL)
            return true;
    }
    return false;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool cut(struct span *rest, size_t len, struct span *part)
{
    assert(rest->ptr != NULL || rest->len == 0);
    if (len > rest->len)
        return false;
    *part = span_of(rest->ptr, len);
    *rest = span_of(rest->ptr + len, rest->len - len);
    return true;
}

static bool cut_number(struct span *rest, size_t size, uint64_t *number)
{
    assert(size <= sizeof(*number));
    struct span bytes;
    if (!cut(rest, size, &bytes))
        return false;
    *number = 0;
    for (size_t i = 0; i < size; i++)
        *number = *number << 8 | bytes.ptr[i];
    return true;
}

static bool cut_text(struct span *rest, size_t max, struct span *text)
{
    uint64_t len;
    return cut_number(rest, 2, &len) && len <= max && cut(rest, (size_t)len, text);
}

/* A text for a C string: without a zero byte. */
static bool cut_string(struct span *rest, char *out, size_t size)
{
    assert(size > 0);
    struct span text;
    if (!cut_text(rest, size - 1, &text) || (text.len > 0 && memchr(text.ptr, 0, text.len) != NULL))
        return false;
    if (text.len > 0)
        memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return true;
}

/* RULE of a key is written as it is: it must hold nothing but RULE. */
static bool is_name(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._~/@+=,*%";
    return name[0] != '\0' && name[strspn(name, plain)] == '\0';
}

static bool cut_quota(struct span *rest, struct stint_quota *quota)
{
    char text[QUOTA_TEXT_MAX];
    return cut_string(rest, text, sizeof(text)) && stint_quota_parse(quota, text, NULL) == STINT_OK;
}

/* The fields after the flags, if they are set. */
static bool cut_said(struct evaluation *evaluation, struct span *rest, uint64_t flags)
{
    assert(evaluation->n_targets < TARGETS_MAX && evaluation->ticket_rules != NULL);
    size_t at = evaluation->n_targets;
    struct target *target = &evaluation->targets[at];
    struct ticket_rules *memory = evaluation->ticket_rules;
    uint64_t shadow = 0, kept = 0, cost = 0;
    if (flags >= FLAGS_END || (flags / FLAG_TAG & FLAG_TAGS) > RULE_TAG_DOMAIN ||
        ((flags & FLAG_SHADOW) != 0 && !cut_number(rest, 1, &shadow)) ||
        ((flags & FLAG_KEPT) != 0 && !(cut_number(rest, 4, &kept) && cut_number(rest, 4, &cost))))
        return false;
    target->part = (flags & FLAG_SHADOW) != 0 ? TARGET_SHADOW : TARGET_LIVE;
    memory->said[at].shadow = (uint8_t)shadow;
    memory->said[at].expires = (flags & FLAG_KEPT) != 0;
    memory->said[at].kept = (uint32_t)kept;
    memory->said[at].cost = (uint32_t)cost;
    return true;
}

static bool cut_item(struct evaluation *evaluation, struct span *rest, size_t store)
{
    assert(store >= 1 && store <= evaluation->stores->n_stores);
    size_t at = evaluation->n_targets;
    struct target *target = &evaluation->targets[at];
    struct ticket_rules *memory = evaluation->ticket_rules;
    struct rule *rule = &memory->rules[at];
    uint64_t flags;
    *target = (struct target){.rule = rule,
                              .quota = &evaluation->quotas[at],
                              .store = (uint8_t)store,
                              .on_error = RULE_STORE_ERROR_ERROR};
    *rule = (struct rule){.domain = memory->domains[at], .store.name = memory->names[at]};
    if (!cut_number(rest, 1, &flags) || !cut_said(evaluation, rest, flags) ||
        !cut_quota(rest, &evaluation->quotas[at]) ||
        !cut_string(rest, memory->names[at], sizeof(memory->names[at])) ||
        !is_name(memory->names[at]) ||
        !cut_string(rest, memory->domains[at], sizeof(memory->domains[at])) ||
        !cut_text(rest, STINT_KEY_MAX, &target->key))
        return false;
    rule->store.tag = (uint8_t)(flags / FLAG_TAG & FLAG_TAGS);
    rule->store.lease = flags & FLAG_LEASED ? RULE_LEASE_STRICT : RULE_LEASE_NONE;
    target->is_values = (flags & FLAG_VALUES) != 0;
    evaluation->n_targets++;
    return !target->is_values || target->key.len >= RULE_ID_SIZE;
}

static size_t find_store(const struct evaluation_stores *stores, struct span label)
{
    for (size_t store = 1; stores != NULL && store <= stores->n_stores; store++)
        if (span_equals(label, label_of(stores, store)))
            return store;
    return 0;
}

static int refuse_ticket(struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX, "expected a ticket as a reply gave it");
}

int evaluation_add_ticket(struct evaluation *evaluation, struct span ticket,
                          struct stint_error *error)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets == 0);
    struct span rest, id, label, sum = ticket;
    uint64_t version, n_items, written;
    if (ticket.len < SUM_SIZE || !cut(&sum, ticket.len - SUM_SIZE, &rest) ||
        !cut_number(&sum, SUM_SIZE, &written) || written != sum_of(rest.ptr, rest.len) ||
        !cut_number(&rest, 1, &version) || version != VERSION || !cut(&rest, BACKEND_ID_LEN, &id) ||
        !cut_number(&rest, 8, &evaluation->body) || !cut_text(&rest, RULE_STORE_NAME_MAX, &label) ||
        !cut_number(&rest, 1, &n_items) || n_items == 0 || n_items > TARGETS_MAX)
        return refuse_ticket(error);
    size_t store = find_store(evaluation->stores, label);
    if (store == 0)
        return err_set(error, STINT_E_MISMATCH,
                       "the ticket belongs to the store \"%.*s\", which this server does not have",
                       (int)label.len, (const char *)label.ptr);
    if (evaluation->ticket_rules == NULL)
        evaluation->ticket_rules = malloc(sizeof(*evaluation->ticket_rules));
    if (evaluation->ticket_rules == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a ticket");
    while (n_items-- > 0)
        if (!cut_item(evaluation, &rest, store))
            return refuse_ticket(error);
    if (rest.len > 0)
        return refuse_ticket(error);
    evaluation->id = id.ptr;
    evaluation->id_lifetime_ns = 0;
    evaluation->is_ticket = true;
    evaluation->ticket_store = store;
    assert(evaluation_is_valid(evaluation));
    return STINT_OK;
}

/* ---- Making one ------------------------------------------------------------------------------ */

/* Why no ticket can be made, before anything is charged. */
static const char *why_no_ticket(const struct evaluation *evaluation, bool books)
{
    uint8_t bytes[TICKET_BYTES_MAX];
    struct charged items[TARGETS_MAX] = {{0, false}};
    size_t n_asking = 0, n_leased = 0, store = evaluation->ticket_store;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (!target_asks(target))
            continue;
        if (target->store != store)
            return "a ticket belongs to one store: some of the quotas are in another, or in the "
                   "table";
        n_asking++;
        n_leased += is_leased(target);
    }
    if (books && (n_asking > 1 || n_leased > 0))
        return "a booking in a store needs a single quota, without a lease";
    if (n_asking > 1 && n_leased > 0)
        return "a ticket over several quotas of a store cannot include one with a lease";
    if (store > 0 && write_items(evaluation, bytes, items,
                                 find_items(evaluation, target_asks, items)) > TICKET_BYTES_MAX)
        return "the keys of the request are too long for a ticket of a store";
    return NULL;
}

/* Where no lifetime is given, a ticket is valid for the longest lease among its slots. */
static uint64_t life_of(const struct evaluation *evaluation, uint64_t lifetime_ns)
{
    uint64_t life_ns = lifetime_ns;
    for (size_t i = 0; lifetime_ns == 0 && i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->part != TARGET_FREE && !target->is_refund &&
            target->quota->algorithm == STINT_CONCURRENCY)
            life_ns = max_u64(life_ns, target->quota->lease_ns);
    }
    return life_ns;
}

static bool any_expires(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation_kept(evaluation, &evaluation->targets[i]) != STINT_KEEP_ALL)
            return true;
    return false;
}

bool evaluation_begin_ticket(struct evaluation *evaluation, bool books, uint64_t lifetime_ns)
{
    assert(evaluation_is_valid(evaluation) && evaluation->pending != NULL);
    assert(evaluation->id != NULL && !evaluation->is_ticket);
    evaluation->ticket_store = store_of(evaluation);
    if (!books && any_expires(evaluation))
        evaluation->longer_ns = EXPIRE_WITHIN_NS;
    const char *why = why_no_ticket(evaluation, books);
    if (why != NULL) {
        evaluation->fault = BACKEND_REFUSED;
        evaluation->fault_message = why;
        return false;
    }
    evaluation->is_ticket = true;
    if (!books)
        evaluation->ticket_ns = life_of(evaluation, lifetime_ns);
    return true;
}

/* A fallback gives no tickets: the store has granted something. */
bool evaluation_has_ticket(const struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->is_ticket);
    for (size_t i = 0; evaluation->ticket_store != 0 && i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->is_reserved || (is_charged(target) && target->fallback == FALLBACK_NONE))
            return true;
    }
    return false;
}

/* ---- Operations on a ticket ------------------------------------------------------------------ */

/* The record of a shadow or a candidate. Only the live limits decide the outcome. */
static const struct backend_answer *ask_shadow(struct evaluation *evaluation, size_t i,
                                               uint8_t verb)
{
    assert(i < evaluation->n_targets && evaluation->targets[i].part == TARGET_SHADOW);
    uint8_t fault = evaluation->fault;
    const char *message = evaluation->fault_message;
    const struct backend_answer *answer =
        evaluation_ask_ticket(evaluation, verb, &evaluation->ticket_rules->said[i].shadow, i);
    evaluation->fault = fault;
    evaluation->fault_message = message;
    return answer;
}

static bool has_live(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part == TARGET_LIVE)
            return true;
    return false;
}

/*
 * All records at once: the answer of the live limits, or where there are none of the first shadow.
 */
static const struct backend_answer *ask_records(struct evaluation *evaluation, uint8_t verb)
{
    assert(evaluation->ticket_rules != NULL && evaluation->n_targets > 0);
    const struct backend_answer *answer = NULL;
    size_t first = 0;
    if (has_live(evaluation)) {
        answer = evaluation_ask_ticket(evaluation, verb, NULL, 0);
    } else {
        answer =
            evaluation_ask_ticket(evaluation, verb, &evaluation->ticket_rules->said[0].shadow, 0);
        first = 1;
    }
    for (size_t i = first; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part == TARGET_SHADOW)
            ask_shadow(evaluation, i, verb);
    return evaluation->is_waiting ? NULL : answer;
}

static void set_costs(struct evaluation *evaluation, uint32_t cost)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        evaluation->targets[i].cost = cost;
}

static bool set_kept(struct evaluation *evaluation)
{
    bool expires = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct ticket_rules *memory = evaluation->ticket_rules;
        evaluation->targets[i].cost = memory->said[i].expires ? memory->said[i].kept : UINT32_MAX;
        expires |= memory->said[i].expires;
    }
    return expires;
}

/* Units that were to be released and stay charged. */
static uint64_t not_returned(const struct evaluation *evaluation,
                             const struct backend_answer *answer)
{
    assert(answer->outcome == BACKEND_DECIDED);
    uint64_t units = 0;
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct ticket_rules *memory = evaluation->ticket_rules;
        const struct target *target = &evaluation->targets[i];
        if (target->part != TARGET_LIVE)
            continue;
        uint64_t back = answer->each[n++].granted;
        if (memory->said[i].expires && target->quota->algorithm != STINT_CONCURRENCY)
            units += sub_floor(sub_floor(memory->said[i].cost, memory->said[i].kept), back);
    }
    return units;
}

struct stint_decision evaluation_expire(struct evaluation *evaluation,
                                        struct evaluation_expired *expired)
{
    assert(evaluation_is_valid(evaluation) && evaluation->is_ticket);
    *expired = (struct evaluation_expired){.action = STINT_EXPIRY_KEEP};
    if (!set_kept(evaluation)) {
        evaluation->fault = BACKEND_GONE;
        return decision_unlimited(0);
    }
    const struct backend_answer *answer = ask_records(evaluation, REQUEST_EXPIRE);
    if (answer == NULL)
        return decision_unlimited(0);
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->ticket_rules->said[i].expires)
            expired->action = (uint8_t)max_u64(
                expired->action, expiry_action(evaluation->ticket_rules->said[i].kept));
    expired->is_closed = answer->sum.outcome == STINT_ALLOW;
    if (expired->is_closed)
        expired->kept_units = not_returned(evaluation, answer);
    return answer->sum;
}

/* A ticket that is over may not have been expired yet: the caller with the ticket does it now. */
static void expire_late(struct evaluation *evaluation, struct evaluation_expired *expired)
{
    assert(evaluation->fault == BACKEND_GONE);
    evaluation->fault = 0;
    evaluation_expire(evaluation, expired);
    if (!evaluation->is_waiting)
        evaluation->fault = BACKEND_GONE;
}

static struct stint_decision close_ticket(struct evaluation *evaluation, uint8_t verb,
                                          uint32_t cost, struct evaluation_expired *expired)
{
    assert(evaluation_is_valid(evaluation) && evaluation->is_ticket);
    set_costs(evaluation, cost);
    *expired = (struct evaluation_expired){.action = STINT_EXPIRY_KEEP};
    const struct backend_answer *answer = ask_records(evaluation, verb);
    if (answer == NULL && !evaluation->is_waiting && evaluation->fault == BACKEND_GONE)
        expire_late(evaluation, expired);
    if (answer == NULL)
        return decision_unlimited(0);
    evaluation->at_ns = answer->at_ns;
    return answer->sum;
}

struct stint_decision evaluation_settle(struct evaluation *evaluation, uint32_t actual,
                                        struct evaluation_expired *expired)
{
    return close_ticket(evaluation, REQUEST_SETTLE, actual, expired);
}

struct stint_decision evaluation_cancel(struct evaluation *evaluation,
                                        struct evaluation_expired *expired)
{
    return close_ticket(evaluation, REQUEST_CANCEL, 0, expired);
}

bool evaluation_renew(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->is_ticket);
    struct evaluation_expired expired;
    evaluation->ticket_ns = life_of(evaluation, 0);
    if (evaluation->ticket_ns == 0)
        return false;
    evaluation->longer_ns = set_kept(evaluation) ? EXPIRE_WITHIN_NS : 0;
    close_ticket(evaluation, REQUEST_EXTEND, 0, &expired);
    return true;
}
