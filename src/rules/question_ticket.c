/* SPDX-License-Identifier: MIT */
/*
 * Reserving, booking and settling in a store, and the bytes of its tickets:
 *     version 1, id, body 8, label of the store, number of items 1; then of each item:
 *     flags 1, quota as text, RULE of its key's name, domain, key
 * and a sum of all that, 8. Numbers are big-endian; a text stands behind its length in two bytes.
 * The sum tells what was cut or mistyped. It keeps no secret, and need not: who may settle may
 * refund as well.
 */
#include "rules/question_ticket.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/siphash.h"
#include "base/wide_int.h"
#include "rules/question_parts.h"

#include <stdlib.h>

#define VERSION 1
#define QUOTA_TEXT_MAX 256
#define SUM_SIZE 8
#define RULE_ID_SIZE 8 /* in front of values: rules_match() */

enum flag { FLAG_VALUES = 1, FLAG_LEASED = 2, FLAG_TAG = 4 }; /* the tag's mode from there on */

/* What a rule says to a store about a key; of a ticket, since the rule may be another by now. */
struct ticket_rules {
    struct rule rules[TARGETS_MAX];
    char domains[TARGETS_MAX][RULE_STORE_NAME_MAX + 1];
    char names[TARGETS_MAX][RULE_STORE_NAME_MAX + 1];
};

/* ---- Writing --------------------------------------------------------------------------------- */

struct out {
    uint8_t *bytes;
    size_t len; /* may be more than there is room for */
};

static void put(struct out *out, const void *bytes, size_t len)
{
    if (len > 0 && out->len <= TICKET_BYTES_MAX && len <= TICKET_BYTES_MAX - out->len)
        memcpy(out->bytes + out->len, bytes, len);
    out->len += len;
}

static void put_number(struct out *out, uint64_t number, size_t size)
{
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

static const char *label_of(const struct question_stores *stores, size_t store)
{
    return stores->labels != NULL ? stores->labels[store - 1] : "";
}

static bool is_leased(const struct target *target)
{
    return target->rule != NULL && target->rule->store.lease != RULE_LEASE_NONE;
}

static void put_item(struct out *out, const struct target *target)
{
    char quota[QUOTA_TEXT_MAX], room[QUESTION_NAME_SIZE];
    const struct rule *rule = target->rule;
    unsigned tag = rule != NULL ? rule->store.tag : RULE_TAG_VALUES;
    bool has_domain = rule != NULL && tag == RULE_TAG_DOMAIN;
    size_t len = stint_quota_format(target->quota, quota, sizeof(quota));
    put_number(out,
               (target->is_values ? FLAG_VALUES : 0) | (is_leased(target) ? FLAG_LEASED : 0) |
                   tag * FLAG_TAG,
               1);
    put_text(out, span_of(quota, min_u64(len, sizeof(quota) - 1)));
    put_text(out, question_name_of(target, target->quota, room));
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

/* Its length, also where that is more than there is room for. */
static size_t write_ticket(const struct question *question, uint8_t *bytes, size_t store,
                           bool (*is_of)(const struct target *target))
{
    struct out out = {.bytes = bytes};
    size_t n = 0;
    for (size_t i = 0; i < question->n_targets; i++)
        n += is_of(&question->targets[i]);
    put_number(&out, VERSION, 1);
    put(&out, question->id, SHARED_ID_LEN);
    put_number(&out, question->body, sizeof(question->body));
    put_text(&out, span_of_text(label_of(question->stores, store)));
    put_number(&out, n, 1);
    for (size_t i = 0; i < question->n_targets; i++)
        if (is_of(&question->targets[i]))
            put_item(&out, &question->targets[i]);
    if (out.len <= TICKET_BYTES_MAX - SUM_SIZE)
        put_number(&out, sum_of(bytes, out.len), SUM_SIZE);
    else
        out.len += SUM_SIZE;
    return out.len;
}

/* The store of all that is asked: 0 where nothing is. */
static size_t store_of(const struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++)
        if (target_asks(&question->targets[i]))
            return question->targets[i].store;
    return 0;
}

size_t question_ticket_write(const struct question *question, uint8_t bytes[TICKET_BYTES_MAX])
{
    return write_ticket(question, bytes, store_of(question), is_charged);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool cut(struct span *rest, size_t len, struct span *part)
{
    if (len > rest->len)
        return false;
    *part = span_of(rest->ptr, len);
    *rest = span_of(rest->ptr + len, rest->len - len);
    return true;
}

static bool cut_number(struct span *rest, size_t size, uint64_t *number)
{
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

/* A text that is to be one of C: without a zero in it. */
static bool cut_string(struct span *rest, char *out, size_t size)
{
    struct span text;
    if (!cut_text(rest, size - 1, &text) || (text.len > 0 && memchr(text.ptr, 0, text.len) != NULL))
        return false;
    if (text.len > 0)
        memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return true;
}

/* RULE of a key is written as it is: it must not look like more than that. */
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

static bool cut_item(struct question *question, struct span *rest, size_t store)
{
    size_t at = question->n_targets;
    struct target *target = &question->targets[at];
    struct ticket_rules *memory = question->ticket_rules;
    struct rule *rule = &memory->rules[at];
    uint64_t flags;
    *target = (struct target){.rule = rule,
                              .quota = &question->quotas[at],
                              .part = TARGET_LIVE,
                              .store = (uint8_t)store,
                              .on_error = RULE_STORE_ERROR_ERROR};
    *rule = (struct rule){.domain = memory->domains[at], .store.name = memory->names[at]};
    if (!cut_number(rest, 1, &flags) || flags / FLAG_TAG > RULE_TAG_DOMAIN ||
        !cut_quota(rest, &question->quotas[at]) ||
        !cut_string(rest, memory->names[at], sizeof(memory->names[at])) ||
        !is_name(memory->names[at]) ||
        !cut_string(rest, memory->domains[at], sizeof(memory->domains[at])) ||
        !cut_text(rest, STINT_KEY_MAX, &target->key))
        return false;
    rule->store.tag = (uint8_t)(flags / FLAG_TAG);
    rule->store.lease = flags & FLAG_LEASED ? RULE_LEASE_STRICT : RULE_LEASE_NONE;
    target->is_values = (flags & FLAG_VALUES) != 0;
    question->n_targets++;
    return !target->is_values || target->key.len >= RULE_ID_SIZE;
}

static size_t find_store(const struct question_stores *stores, struct span label)
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

int question_add_ticket(struct question *question, struct span ticket, struct stint_error *error)
{
    struct span rest, id, label, sum = ticket;
    uint64_t version, n_items, told;
    if (ticket.len < SUM_SIZE || !cut(&sum, ticket.len - SUM_SIZE, &rest) ||
        !cut_number(&sum, SUM_SIZE, &told) || told != sum_of(rest.ptr, rest.len) ||
        !cut_number(&rest, 1, &version) || version != VERSION || !cut(&rest, SHARED_ID_LEN, &id) ||
        !cut_number(&rest, 8, &question->body) || !cut_text(&rest, RULE_STORE_NAME_MAX, &label) ||
        !cut_number(&rest, 1, &n_items) || n_items == 0 || n_items > TARGETS_MAX)
        return refuse_ticket(error);
    size_t store = find_store(question->stores, label);
    if (store == 0)
        return err_set(error, STINT_E_MISMATCH,
                       "the ticket is of the store \"%.*s\", which this server does not have",
                       (int)label.len, (const char *)label.ptr);
    if (question->ticket_rules == NULL)
        question->ticket_rules = malloc(sizeof(*question->ticket_rules));
    if (question->ticket_rules == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a ticket");
    while (n_items-- > 0)
        if (!cut_item(question, &rest, store))
            return refuse_ticket(error);
    if (rest.len > 0)
        return refuse_ticket(error);
    question->id = id.ptr;
    question->id_lifetime_ns = 0;
    question->is_ticket = true;
    return STINT_OK;
}

/* ---- Reserving and booking ------------------------------------------------------------------- */

static struct stint_decision refuse(struct question *question, const char *why)
{
    question->fault = SHARED_REFUSED;
    question->fault_sentence = why;
    return decision_unlimited(0);
}

/* What stands in the way of a ticket, before anything is charged. */
static const char *why_no_ticket(const struct question *question, bool books)
{
    uint8_t bytes[TICKET_BYTES_MAX];
    size_t n_asking = 0, n_leased = 0, store = store_of(question);
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        if (!target_asks(target))
            continue;
        if (target->store != store)
            return "a ticket is of one store: some of the quotas are in another, or in the table";
        n_asking++;
        n_leased += is_leased(target);
    }
    if (books && (n_asking > 1 || n_leased > 0))
        return "a place is booked in a store under one quota at a time, and under none that leases";
    if (n_asking > 1 && n_leased > 0)
        return "a ticket over several quotas of a store has none among them that leases";
    if (store > 0 && write_ticket(question, bytes, store, target_asks) > TICKET_BYTES_MAX)
        return "the keys of the request are too long for a ticket of a store";
    return NULL;
}

/* Where no lifetime is given, a ticket is good for the longest lease among its places. */
static uint64_t life_of(const struct question *question, uint64_t lifetime_ns)
{
    uint64_t life_ns = lifetime_ns;
    for (size_t i = 0; lifetime_ns == 0 && i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        if (target_asks(target) && target->quota->algorithm == STINT_CONCURRENCY)
            life_ns = max_u64(life_ns, target->quota->lease_ns);
    }
    return life_ns;
}

/* Whether the store has granted something: what stands in for it gives no tickets. */
static bool is_in_store(const struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++)
        if (is_charged(&question->targets[i]) && question->targets[i].stand_in == STAND_IN_NONE)
            return true;
    return false;
}

struct stint_decision question_reserve_shared(struct question *question, uint64_t lifetime_ns,
                                              bool *has_ticket)
{
    const char *why = why_no_ticket(question, false);
    if (why != NULL)
        return refuse(question, why);
    question->is_ticket = true;
    question->ticket_ns = life_of(question, lifetime_ns);
    bool denied = question_ask_live(question, true);
    if (question_is_given_up(question))
        return decision_unlimited(0);
    if (denied) {
        question_look_again(question);
        question_count_denials(question);
    }
    bool charges = !denied && !question->is_replayed;
    question_ask_shadows(question, charges ? STINT_TAKE : STINT_PEEK, UINT32_MAX);
    *has_ticket = !denied && is_in_store(question);
    return question_sum(question);
}

struct stint_decision question_book_shared(struct question *question, uint64_t max_wait_ns,
                                           bool *has_ticket)
{
    const char *why = why_no_ticket(question, true);
    if (why != NULL)
        return refuse(question, why);
    question->is_ticket = true;
    question_find_blocks(question);
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        const struct stint_ask ask = {.now_ns = question->now_ns,
                                      .at_ns = max_wait_ns,
                                      .cost = target->cost,
                                      .verb = STINT_BOOK};
        if (!target_takes(target))
            continue;
        target->decision = question_ask_one(question, target, target->quota, &ask);
        target->over = target->decision.outcome != STINT_ALLOW;
    }
    if (question_is_given_up(question))
        return decision_unlimited(0);
    *has_ticket = is_in_store(question);
    return question_sum(question);
}

/* ---- What becomes of a ticket ---------------------------------------------------------------- */

static struct stint_decision close_ticket(struct question *question, uint8_t verb, uint32_t cost)
{
    for (size_t i = 0; i < question->n_targets; i++)
        question->targets[i].cost = cost;
    const struct shared_answer *answer = question_ask_ticket(question, verb);
    if (answer == NULL)
        return decision_unlimited(0);
    question->at_ns = answer->at_ns;
    return answer->sum;
}

struct stint_decision question_settle(struct question *question, uint32_t actual)
{
    return close_ticket(question, SHARED_SETTLE, actual);
}

struct stint_decision question_cancel(struct question *question)
{
    return close_ticket(question, SHARED_CANCEL, 0);
}

bool question_renew(struct question *question)
{
    question->ticket_ns = life_of(question, 0);
    if (question->ticket_ns > 0)
        close_ticket(question, SHARED_EXTEND, 0);
    return question->ticket_ns > 0;
}
