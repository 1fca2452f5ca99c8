/* SPDX-License-Identifier: MIT */
/* Bodies of /v1 and /json: their members, and the parts of a request that they set. */
#include "proto/http/http_call.h"

#include "base/limits.h"
#include "base/ns.h"
#include "proto/http/http_target.h"
#include "proto/ticket_text.h"

#include <stddef.h>

#define SPEC_MAX 512 /* bytes of a SPEC */

/* Rows of call_members, as bits. */
enum member_bit {
    DOMAIN = 1 << 0,
    DESCRIPTORS = 1 << 1,
    ITEMS = 1 << 2,
    QUOTA = 1 << 3,
    KEY = 1 << 4,
    COST = 1 << 5,
    ID = 1 << 6,
    WAIT = 1 << 7,
    LIFETIME = 1 << 8,
    MAX_WAIT = 1 << 9,
    FOR = 1 << 10,
    GRANTED_AT = 1 << 11,
    TICKET = 1 << 12,
    ON_EXPIRY = 1 << 13,
    AMOUNT = 1 << 14,
    EXPIRY = 1 << 15,
    TARGET = DOMAIN | DESCRIPTORS | ITEMS | QUOTA | KEY,
};

struct verb_members {
    uint32_t allowed, required;
};

static const struct verb_members verbs[REQUEST_VERBS] = {
    [REQUEST_TAKE] = {TARGET | COST | ID | WAIT, 0},
    [REQUEST_PEEK] = {TARGET | COST, 0},
    [REQUEST_TAKE_UPTO] = {TARGET | COST | ID | WAIT, 0},
    [REQUEST_RESERVE] = {TARGET | COST | ID | WAIT | LIFETIME | ON_EXPIRY, 0},
    [REQUEST_SETTLE] = {TICKET | COST | ID, TICKET | COST},
    [REQUEST_CANCEL] = {TICKET | ID, TICKET},
    [REQUEST_RENEW] = {TICKET, TICKET},
    [REQUEST_REFUND] = {TARGET | COST | ID | GRANTED_AT, 0},
    [REQUEST_CHARGE] = {TARGET | COST | ID, 0},
    [REQUEST_BOOK] = {TARGET | COST | ID | MAX_WAIT, MAX_WAIT},
    [REQUEST_BLOCK] = {TARGET | FOR, FOR},
    [REQUEST_RESET] = {TARGET, 0},
    [REQUEST_SET_QUOTA] = {DOMAIN | DESCRIPTORS | QUOTA, DOMAIN | DESCRIPTORS | QUOTA},
    [REQUEST_EXPLAIN] = {TARGET | COST, 0},
    [REQUEST_COUNT] = {KEY | AMOUNT | EXPIRY, KEY},
    [REQUEST_COUNT_RESET] = {KEY, KEY},
};

void http_call_clear(struct http_call *call)
{
    call->n_entries = 0;
    call->request = (struct request){.cost = 1};
}

void http_call_deinit(struct http_call *call)
{
    http_json_deinit(&call->json);
}

/* ---- Entries and descriptors ----------------------------------------------------------------- */

#define EXPECTED_QUOTA "expected a quota like \"window 100/1m\""

static int read_entry(void *to, const struct http_value *value)
{
    static const struct http_member entry_members[] = {
        {"key", NULL, http_json_text, offsetof(struct descriptor_entry, key), SIZE_MAX,
         "expected a key that is not empty"},
        {"value", NULL, http_json_text, offsetof(struct descriptor_entry, value), 0, NULL},
    };
    static const struct http_object object = {entry_members, 2, .allowed = 3, .required = 1};
    uint32_t seen;
    *(struct descriptor_entry *)to = (struct descriptor_entry){0};
    return http_json_object(value, &object, &seen, to);
}

static int read_entries(void *to, const struct http_value *value)
{
    struct http_call *call = value->state;
    struct descriptor *descriptor = to;
    struct descriptor_entry *entries = &call->entries[call->n_entries];
    int code =
        http_json_array(value, ENTRIES_MAX, "entries", read_entry, entries, sizeof(*entries));
    if (code == 0) {
        descriptor->entries = entries;
        descriptor->n_entries = value->node->count;
        call->n_entries += value->node->count;
    }
    return code;
}

static struct stint_quota *override_of(struct descriptor *descriptor,
                                       const struct http_value *value)
{
    struct http_call *call = value->state;
    return &call->overrides[descriptor - call->descriptors];
}

/* Reads and checks a SPEC. */
static int read_override(void *to, const struct http_value *value)
{
    struct descriptor *descriptor = to;
    struct stint_quota *override = override_of(descriptor, value);
    char text[SPEC_MAX];
    struct stint_error fault;
    struct span spec;
    int code = http_json_text(&spec, value);
    if (code < 0)
        return code;
    if (memchr(spec.ptr, '\0', spec.len) != NULL)
        return http_json_fault(value, EXPECTED_QUOTA);
    memcpy(text, spec.ptr, spec.len);
    text[spec.len] = '\0';
    descriptor->override = override;
    return stint_quota_parse(override, text, &fault) < 0 ? http_json_fault(value, fault.message)
                                                         : 0;
}

/* RateLimitUnit, which has no WEEK, by name or number. */
static int read_unit(void *to, const struct http_value *value)
{
    const struct http_json_node *node = value->node;
    for (int unit = RULE_SECOND; unit <= RULE_YEAR; unit++) {
        if (node->kind == HTTP_JSON_INTEGER
                ? node->integer == unit
                : node->kind == HTTP_JSON_STRING &&
                      span_equals(span_of(node->text, node->count), rls_unit_names[unit])) {
            *(int *)to = unit;
            return 0;
        }
    }
    return http_json_fault(value, "expected SECOND, MINUTE, HOUR, DAY, MONTH or YEAR");
}

/* A RateLimitOverride. */
static int read_limit(void *to, const struct http_value *value)
{
    struct limit {
        uint32_t requests_per_unit, unit_multiplier;
        int unit; /* enum rule_unit */
    } limit = {.unit_multiplier = 1, .unit = RULE_UNIT_NONE};
    static const struct http_member members[] = {
        {"requestsPerUnit", "requests_per_unit", http_json_u32,
         offsetof(struct limit, requests_per_unit), 0, NULL},
        {"unit", NULL, read_unit, offsetof(struct limit, unit), 0, NULL},
        {"unitMultiplier", "unit_multiplier", http_json_u32,
         offsetof(struct limit, unit_multiplier), 0, NULL},
    };
    static const struct http_object object = {members, 3, .allowed = 7};
    struct descriptor *descriptor = to;
    struct stint_quota *quota = override_of(descriptor, value);
    struct stint_error fault;
    uint32_t seen;
    int code = http_json_object(value, &object, &seen, &limit);
    if (code < 0)
        return code;
    if (rls_override(quota, limit.requests_per_unit, limit.unit, limit.unit_multiplier, &fault) < 0)
        return http_json_fault(value, fault.message);
    descriptor->override = quota;
    return 0;
}

/* Of /v1, and of /json, where hits of null are absent, and those of 0 check without taking. */
static int read_descriptor(void *to, const struct http_value *value)
{
    enum { HITS = 1 << 1 };
    static const struct http_member descriptor_members[] = {
        {"entries", NULL, read_entries, 0, 0, NULL},
        {"hits", NULL, http_json_u32, offsetof(struct descriptor, hits), 0, NULL},
        {"is_refund", NULL, http_json_bool, offsetof(struct descriptor, is_refund), 0, NULL},
        {"quota", NULL, read_override, 0, SPEC_MAX - 1, EXPECTED_QUOTA},
    };
    static const struct http_member of_envoy[] = {
        {"entries", NULL, read_entries, 0, 0, NULL},
        {"hitsAddend", "hits_addend", http_json_u32, offsetof(struct descriptor, hits), 0, NULL},
        {"isNegativeHits", "is_negative_hits", http_json_bool,
         offsetof(struct descriptor, is_refund), 0, NULL},
        {"limit", NULL, read_limit, 0, 0, NULL},
    };
    const struct http_object object = {value->is_proto3 ? of_envoy : descriptor_members, 4,
                                       .allowed = 15, .required = 1};
    struct descriptor *descriptor = to;
    uint32_t seen;
    *descriptor = (struct descriptor){0};
    int code = http_json_object(value, &object, &seen, descriptor);
    descriptor->has_hits = (seen & HITS) != 0;
    return code;
}

static int read_descriptors(void *to, const struct http_value *value)
{
    struct http_call *call = to;
    call->request.descriptors = call->descriptors;
    call->request.n_descriptors = value->node->count;
    return http_json_array(value, DESCRIPTORS_MAX, "descriptors", read_descriptor,
                           call->descriptors, sizeof(call->descriptors[0]));
}

/* ---- Items ----------------------------------------------------------------------------------- */

static int read_item(void *to, const struct http_value *value)
{
    enum { ITEM_QUOTA = 1 << 0, ITEM_KEY = 1 << 1, ITEM_COST = 1 << 2 };
    static const struct http_member item_members[] = {
        {"quota", NULL, http_json_text, offsetof(struct request_item, quota), 0, NULL},
        {"key", NULL, http_json_text, offsetof(struct request_item, key), 0, NULL},
        {"cost", NULL, http_json_u32, offsetof(struct request_item, cost), 0, NULL},
    };
    static const struct http_object object = {item_members, 3,
                                              .allowed = ITEM_QUOTA | ITEM_KEY | ITEM_COST,
                                              .required = ITEM_QUOTA | ITEM_KEY};
    struct request_item *item = to;
    uint32_t seen;
    *item = (struct request_item){0};
    int code = http_json_object(value, &object, &seen, item);
    item->has_cost = (seen & ITEM_COST) != 0;
    return code;
}

static int read_items(void *to, const struct http_value *value)
{
    struct http_call *call = to;
    call->request.items = call->items;
    call->request.n_items = value->node->count;
    return http_json_array(value, STINT_ITEMS_MAX, "items", read_item, call->items,
                           sizeof(call->items[0]));
}

/* ---- The other members ----------------------------------------------------------------------- */

static int read_ticket(void *to, const struct http_value *value)
{
    struct span text;
    int code = http_json_text(&text, value);
    if (code == 0 && !ticket_text_read(text, to))
        return http_json_fault(value, "expected the \"ticket\" of a reply, 32 digits or more");
    return code;
}

static int read_on_expiry(void *to, const struct http_value *value)
{
    const struct http_json_node *node = value->node;
    struct request *request = to;
    request->has_on_expiry = true;
    bool is_word = node->kind == HTTP_JSON_STRING;
    if (is_word && span_equals(span_of(node->text, node->count), "keep"))
        request->kept_units = STINT_KEEP_ALL;
    else if (is_word && span_equals(span_of(node->text, node->count), "release"))
        request->kept_units = 0;
    else if (node->kind != HTTP_JSON_INTEGER || node->integer < 0 || node->integer > UINT32_MAX)
        return http_json_expected(
            value, "\"keep\", \"release\" or a whole number of units, 0 to 4294967295");
    else
        request->kept_units = (uint32_t)node->integer;
    return 0;
}

static int read_amount(void *to, const struct http_value *value)
{
    const struct http_json_node *node = value->node;
    if (node->kind != HTTP_JSON_INTEGER || node->integer < -(int64_t)UNIT_COUNT_MAX ||
        node->integer > (int64_t)UNIT_COUNT_MAX)
        return http_json_expected(value, "a whole number of -" UNIT_COUNT_MAX_TEXT
                                         " to " UNIT_COUNT_MAX_TEXT);
    *(int64_t *)to = node->integer;
    return 0;
}

/* In the order of enum member_bit. Each verb has at most one of the four times. */
#define AT(member) offsetof(struct http_call, request.member)
#define IN_REQUEST offsetof(struct http_call, request)
static const struct http_member call_members[] = {
    {"domain", NULL, http_json_text, AT(domain), SIZE_MAX, "expected one that is not empty"},
    {"descriptors", NULL, read_descriptors, 0, 0, NULL},
    {"items", NULL, read_items, 0, 0, NULL},
    {"quota", NULL, http_json_text, AT(quota), SIZE_MAX, EXPECTED_QUOTA},
    {"key", NULL, http_json_text, AT(key), 0, NULL},
    {"cost", NULL, http_json_u32, AT(cost), 0, NULL},
    {"request_id", NULL, http_json_text, AT(id), HTTP_ID_MAX, HTTP_ID_EXPECTED},
    {"wait_ms", NULL, http_json_ms, AT(wait_ns), HTTP_WAIT_MAX_MS, NULL},
    {"lifetime_ms", NULL, http_json_ms_above_0, AT(lifetime_ns), HTTP_LIFETIME_MAX_MS, NULL},
    {"max_wait_ms", NULL, http_json_ms, AT(lifetime_ns), HTTP_LIFETIME_MAX_MS, NULL},
    {"for_ms", NULL, http_json_ms_above_0, AT(lifetime_ns), HTTP_LIFETIME_MAX_MS, NULL},
    {"granted_at", NULL, http_json_stamp, AT(granted_at_ns), STINT_NOW_MAX, NULL},
    {"ticket", NULL, read_ticket, IN_REQUEST, 0, NULL},
    {"on_expiry", NULL, read_on_expiry, IN_REQUEST, 0, NULL},
    {"amount", NULL, read_amount, AT(amount), 0, NULL},
    {"expiry_ms", NULL, http_json_ms, AT(lifetime_ns), HTTP_EXPIRY_MAX_MS, NULL},
};
#define N_CALL_MEMBERS (sizeof(call_members) / sizeof(call_members[0]))

/* Checks that exactly one of the three kinds of target is given. */
static int check_target(struct http_call *call, uint32_t seen, struct stint_error *error)
{
    struct request *request = &call->request;
    switch (seen & TARGET) {
    case DOMAIN | DESCRIPTORS:
    case ITEMS:
        return 0;
    case QUOTA | KEY:
        call->items[0] = (struct request_item){.quota = request->quota, .key = request->key};
        request->items = call->items;
        request->n_items = 1;
        request->quota = request->key = (struct span){0};
        return 0;
    default:
        return err_set(error, STINT_E_SYNTAX,
                       "expected \"domain\" and \"descriptors\", or \"quota\" and \"key\", or "
                       "\"items\"");
    }
}

int http_call_read(struct http_call *call, int verb, struct span body, struct stint_error *error)
{
    const struct http_object object = {call_members, N_CALL_MEMBERS, verbs[verb].allowed,
                                       verbs[verb].required, .is_proto3 = false};
    uint32_t seen;
    http_call_clear(call);
    call->request.verb = (uint8_t)verb;
    if (verb == REQUEST_RESERVE)
        call->request.lifetime_ns = HTTP_LIFETIME_DEFAULT_MS * NS_PER_MS;
    int code = http_json_read(&call->json, body, &object, &seen, call, error);
    if (code < 0)
        return code;
    call->request.has_granted_at = (seen & GRANTED_AT) != 0;
    if (call->request.amount > 0 && call->request.lifetime_ns == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "expiry_ms: expected 1 or more beside an amount above 0");
    return (object.allowed & TARGET) == TARGET ? check_target(call, seen, error) : 0;
}

int http_rls_read(struct http_call *call, struct span body, struct stint_error *error)
{
    static const struct http_member members[] = {
        {"domain", NULL, http_json_text, AT(domain), 0, NULL},
        {"descriptors", NULL, read_descriptors, 0, 0, NULL},
        {"hitsAddend", "hits_addend", http_json_u32, offsetof(struct http_call, hits_addend), 0,
         NULL},
    };
    static const struct http_object object = {members, 3, .allowed = 7, .is_proto3 = true};
    uint32_t seen;
    http_call_clear(call);
    call->hits_addend = 0;
    call->request.verb = REQUEST_TAKE;
    call->request.has_envoy_hits = true;
    call->request.wants_growth = true; /* durationUntilReset */
    int code = http_json_read(&call->json, body, &object, &seen, call, error);
    if (code == 0 && call->request.domain.len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected a domain that is not empty");
    if (code == 0 && call->request.n_descriptors == 0)
        return err_set(error, STINT_E_SYNTAX, "expected descriptors");
    call->request.cost = call->hits_addend == 0 ? 1 : call->hits_addend;
    return code;
}

int http_call_query(struct http_call *call, int verb, struct span query, uint8_t *text,
                    struct stint_error *error)
{
    struct descriptor *descriptor = &call->descriptors[0];
    struct span name, value;
    http_call_clear(call);
    call->request.verb = (uint8_t)verb;
    *descriptor = (struct descriptor){.entries = call->entries};
    while (http_target_next(&query, text, &name, &value)) {
        text += name.len + value.len;
        if (call->request.domain.ptr == NULL && span_equals(name, "domain")) {
            call->request.domain = value;
            continue;
        }
        if (descriptor->n_entries == ENTRIES_MAX)
            return err_set(error, STINT_E_SYNTAX, "more than %d entries", ENTRIES_MAX);
        call->entries[descriptor->n_entries++] = (struct descriptor_entry){name, value};
    }
    if (call->request.domain.len == 0 || descriptor->n_entries == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "expected a query like ?domain=NAME&KEY=VALUE, one descriptor's entries in "
                       "their order");
    call->request.descriptors = call->descriptors;
    call->request.n_descriptors = 1;
    return 0;
}
