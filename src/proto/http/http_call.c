/* SPDX-License-Identifier: MIT */
/* Bodies of /v1: the members of each verb, and the parts of a request that they set. */
#include "proto/http/http_call.h"

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
};

/* A descriptor that is being read. */
struct reading {
    struct http_call *call;
    struct descriptor *descriptor;
};

void http_call_clear(struct http_call *call)
{
    call->n_entries = 0;
    call->request = (struct request){.cost = 1};
}

void http_call_deinit(struct http_call *call)
{
    http_json_deinit(&call->json);
    rls_arena_deinit(&call->metadata);
}

/* ---- Entries and descriptors ----------------------------------------------------------------- */

static int read_entry_key(void *state, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error)
{
    struct span *key = state;
    int code = http_json_text(value, place, key, error);
    if (code == 0 && key->len == 0)
        return http_json_fault(place, "expected a key that is not empty", error);
    return code;
}

static const struct http_member entry_members[] = {
    {"key", NULL, read_entry_key, offsetof(struct descriptor_entry, key)},
    {"value", NULL, http_json_text_member, offsetof(struct descriptor_entry, value)},
};

struct descriptor_entry *http_call_entry(struct http_call *call, struct descriptor *descriptor,
                                         const struct http_place *place, struct stint_error *error)
{
    if (descriptor->n_entries == ENTRIES_MAX) {
        http_json_fault(place, "more than 32 entries", error);
        return NULL;
    }
    struct descriptor_entry *entry = &call->entries[call->n_entries++];
    *entry = (struct descriptor_entry){0};
    if (descriptor->n_entries++ == 0)
        descriptor->entries = entry;
    return entry;
}

static int read_entries(void *state, const struct http_json_node *value,
                        const struct http_place *place, struct stint_error *error)
{
    struct reading *reading = state;
    uint32_t seen;
    int code = http_json_array(value, place, ENTRIES_MAX, "entries", error);
    if (code < 0)
        return code;
    const struct http_json_node *element = http_json_first(value);
    for (size_t i = 0; i < value->count; i++, element = http_json_after(element)) {
        struct http_place inner = {place, NULL, i};
        struct descriptor_entry *entry =
            http_call_entry(reading->call, reading->descriptor, &inner, error);
        if (entry == NULL)
            return STINT_E_SYNTAX;
        code = http_json_members(element, &inner, entry_members, 2, 3, &seen, entry, error);
        if (code < 0)
            return code;
        if ((seen & 1) == 0)
            return http_json_fault(&inner, "expected a member \"key\"", error);
    }
    return 0;
}

static int read_hits(void *state, const struct http_json_node *value,
                     const struct http_place *place, struct stint_error *error)
{
    struct reading *reading = state;
    reading->descriptor->has_hits = true;
    return http_json_u32(value, place, &reading->descriptor->hits, error);
}

static int read_is_refund(void *state, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error)
{
    struct reading *reading = state;
    return http_json_bool(value, place, &reading->descriptor->is_refund, error);
}

/* Reads and checks a SPEC. */
static int read_spec(struct stint_quota *quota, struct span spec, const struct http_place *place,
                     struct stint_error *error)
{
    char text[SPEC_MAX];
    struct stint_error fault;
    if (spec.len >= sizeof(text) || memchr(spec.ptr, '\0', spec.len) != NULL)
        return http_json_fault(place, "expected a quota like \"window 100/1m\"", error);
    memcpy(text, spec.ptr, spec.len);
    text[spec.len] = '\0';
    if (stint_quota_parse(quota, text, &fault) < 0)
        return http_json_fault(place, fault.message, error);
    return 0;
}

static int read_override(void *state, const struct http_json_node *value,
                         const struct http_place *place, struct stint_error *error)
{
    struct reading *reading = state;
    struct http_call *call = reading->call;
    struct stint_quota *override = &call->overrides[reading->descriptor - call->descriptors];
    struct span spec;
    int code = http_json_text(value, place, &spec, error);
    reading->descriptor->override = override;
    return code == 0 ? read_spec(override, spec, place, error) : code;
}

static const struct http_member descriptor_members[] = {
    {"entries", NULL, read_entries, 0},
    {"hits", NULL, read_hits, 0},
    {"is_refund", NULL, read_is_refund, 0},
    {"quota", NULL, read_override, 0},
};

static int read_descriptors(void *state, const struct http_json_node *value,
                            const struct http_place *place, struct stint_error *error)
{
    struct http_call *call = state;
    uint32_t seen;
    int code = http_json_array(value, place, DESCRIPTORS_MAX, "descriptors", error);
    if (code < 0)
        return code;
    const struct http_json_node *element = http_json_first(value);
    for (size_t i = 0; i < value->count; i++, element = http_json_after(element)) {
        struct http_place inner = {place, NULL, i};
        struct reading reading = {call, &call->descriptors[i]};
        *reading.descriptor = (struct descriptor){0};
        code =
            http_json_members(element, &inner, descriptor_members, 4, 15, &seen, &reading, error);
        if (code < 0)
            return code;
        if ((seen & 1) == 0)
            return http_json_fault(&inner, "expected a member \"entries\"", error);
    }
    call->request.descriptors = call->descriptors;
    call->request.n_descriptors = value->count;
    return 0;
}

/* ---- Items ----------------------------------------------------------------------------------- */

static int read_item_cost(void *state, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error)
{
    struct request_item *item = state;
    item->has_cost = true;
    return http_json_u32(value, place, &item->cost, error);
}

static const struct http_member item_members[] = {
    {"quota", NULL, http_json_text_member, offsetof(struct request_item, quota)},
    {"key", NULL, http_json_text_member, offsetof(struct request_item, key)},
    {"cost", NULL, read_item_cost, 0},
};

static int read_items(void *state, const struct http_json_node *value,
                      const struct http_place *place, struct stint_error *error)
{
    struct http_call *call = state;
    uint32_t seen;
    int code = http_json_array(value, place, STINT_ITEMS_MAX, "items", error);
    if (code < 0)
        return code;
    const struct http_json_node *element = http_json_first(value);
    for (size_t i = 0; i < value->count; i++, element = http_json_after(element)) {
        struct http_place inner = {place, NULL, i};
        call->items[i] = (struct request_item){0};
        code =
            http_json_members(element, &inner, item_members, 3, 7, &seen, &call->items[i], error);
        if (code < 0)
            return code;
        if ((seen & 3) != 3)
            return http_json_fault(&inner, "expected members \"quota\" and \"key\"", error);
    }
    call->request.items = call->items;
    call->request.n_items = value->count;
    return 0;
}

/* ---- The other members ----------------------------------------------------------------------- */

static int read_domain(void *state, const struct http_json_node *value,
                       const struct http_place *place, struct stint_error *error)
{
    struct span *domain = state;
    int code = http_json_text(value, place, domain, error);
    if (code == 0 && domain->len == 0)
        return http_json_fault(place, "expected one that is not empty", error);
    return code;
}

static int read_quota(void *state, const struct http_json_node *value,
                      const struct http_place *place, struct stint_error *error)
{
    struct span *quota = state;
    int code = http_json_text(value, place, quota, error);
    if (code == 0 && quota->len == 0)
        return http_json_fault(place, "expected a quota like \"window 100/1m\"", error);
    return code;
}

static int read_id(void *state, const struct http_json_node *value, const struct http_place *place,
                   struct stint_error *error)
{
    struct span *id = state;
    int code = http_json_text(value, place, id, error);
    if (code == 0 && (id->len == 0 || id->len > HTTP_ID_MAX))
        return http_json_fault(place, "expected 1 to 128 bytes", error);
    return code;
}

static int read_wait(void *wait_ns, const struct http_json_node *value,
                     const struct http_place *place, struct stint_error *error)
{
    return http_json_ms(value, place, HTTP_WAIT_MAX_MS, wait_ns, error);
}

/* lifetime_ms, max_wait_ms, for_ms: each verb has at most one of these times. */
static int read_lifetime(void *lifetime_ns, const struct http_json_node *value,
                         const struct http_place *place, struct stint_error *error)
{
    return http_json_ms(value, place, HTTP_LIFETIME_MAX_MS, lifetime_ns, error);
}

static int read_granted_at(void *state, const struct http_json_node *value,
                           const struct http_place *place, struct stint_error *error)
{
    struct request *request = state;
    request->has_granted_at = true;
    return http_json_stamp(value, place, STINT_NOW_MAX, &request->granted_at_ns, error);
}

static int read_ticket(void *request, const struct http_json_node *value,
                       const struct http_place *place, struct stint_error *error)
{
    struct span text;
    int code = http_json_text(value, place, &text, error);
    if (code == 0 && !ticket_text_read(text, request))
        return http_json_fault(place, "expected the \"ticket\" of a reply, 32 digits or more",
                               error);
    return code;
}

static int read_on_expiry(void *state, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error)
{
    struct request *request = state;
    request->has_on_expiry = true;
    bool is_word = value->kind == HTTP_JSON_STRING;
    if (is_word && span_equals(span_of(value->text, value->count), "keep"))
        request->kept_units = STINT_KEEP_ALL;
    else if (is_word && span_equals(span_of(value->text, value->count), "release"))
        request->kept_units = 0;
    else if (value->kind != HTTP_JSON_INTEGER || value->integer < 0 || value->integer > UINT32_MAX)
        return http_json_expected(
            place, "\"keep\", \"release\" or a whole number of units, 0 to 4294967295", value,
            error);
    else
        request->kept_units = (uint32_t)value->integer;
    return 0;
}

/* In the order of enum member_bit. */
#define AT(member) offsetof(struct http_call, request.member)
static const struct http_member call_members[] = {
    {"domain", NULL, read_domain, AT(domain)},
    {"descriptors", NULL, read_descriptors, 0},
    {"items", NULL, read_items, 0},
    {"quota", NULL, read_quota, AT(quota)},
    {"key", NULL, http_json_text_member, AT(key)},
    {"cost", NULL, http_json_u32_member, AT(cost)},
    {"request_id", NULL, read_id, AT(id)},
    {"wait_ms", NULL, read_wait, AT(wait_ns)},
    {"lifetime_ms", NULL, read_lifetime, AT(lifetime_ns)},
    {"max_wait_ms", NULL, read_lifetime, AT(lifetime_ns)},
    {"for_ms", NULL, read_lifetime, AT(lifetime_ns)},
    {"granted_at", NULL, read_granted_at, offsetof(struct http_call, request)},
    {"ticket", NULL, read_ticket, offsetof(struct http_call, request)},
    {"on_expiry", NULL, read_on_expiry, offsetof(struct http_call, request)},
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
    const struct verb_members *has = &verbs[verb];
    uint32_t seen;
    http_call_clear(call);
    call->request.verb = (uint8_t)verb;
    if (verb == REQUEST_RESERVE)
        call->request.lifetime_ns = HTTP_LIFETIME_DEFAULT_MS * NS_PER_MS;
    int code = http_json_parse(&call->json, body, error);
    if (code < 0)
        return code;
    code = http_json_members(call->json.nodes, NULL, call_members, N_CALL_MEMBERS, has->allowed,
                             &seen, call, error);
    if (code == 0)
        code = http_json_require(call_members, has->required & ~seen, error);
    if (code == 0 && (has->allowed & TARGET) == TARGET)
        code = check_target(call, seen, error);
    return code;
}

int http_call_query(struct http_call *call, int verb, struct span query, uint8_t *text,
                    struct stint_error *error)
{
    struct descriptor *descriptor = &call->descriptors[0];
    struct span name, value;
    http_call_clear(call);
    call->request.verb = (uint8_t)verb;
    *descriptor = (struct descriptor){0};
    while (http_target_next(&query, text, &name, &value)) {
        text += name.len + value.len;
        if (call->request.domain.ptr == NULL && span_equals(name, "domain")) {
            call->request.domain = value;
            continue;
        }
        struct descriptor_entry *entry = http_call_entry(call, descriptor, NULL, error);
        if (entry == NULL)
            return STINT_E_SYNTAX;
        *entry = (struct descriptor_entry){name, value};
    }
    if (call->request.domain.len == 0 || descriptor->n_entries == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "expected a query like ?domain=NAME&KEY=VALUE, one descriptor's entries in "
                       "their order");
    call->request.descriptors = call->descriptors;
    call->request.n_descriptors = 1;
    return 0;
}
