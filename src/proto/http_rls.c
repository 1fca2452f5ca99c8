/* SPDX-License-Identifier: MIT */
/* RateLimitRequest and RateLimitResponse in proto3's JSON. */
#include "proto/http_rls.h"

#include "base/ns.h"
#include "proto/http_fields.h"

#define HTTP_RLS_UNLIMITED UINT32_MAX /* limit_remaining where there is no limit */

struct rls_reading {
    struct http_call *call;
    struct descriptor *descriptor;
    struct descriptor_entry *entry;
    uint32_t requests_per_unit;
    int unit; /* enum rule_unit */
};

/* By enum rule_unit; what Envoy calls them. */
static const char *const unit_names[] = {"UNKNOWN", "SECOND", "MINUTE", "HOUR",
                                         "DAY",     "MONTH",  "YEAR",   "WEEK"};
#define N_UNITS (sizeof(unit_names) / sizeof(unit_names[0]))

/* ---- Reading --------------------------------------------------------------------------------- */

/* proto3's JSON has numbers also as strings, and null for a default. */
static int read_u32(const struct http_json_node *value, const struct http_place *place,
                    uint32_t *number, struct stint_error *error)
{
    uint64_t sum = 0;
    if (value->kind == HTTP_JSON_NULL)
        return 0;
    if (value->kind != HTTP_JSON_STRING)
        return http_json_u32(value, place, number, error);
    struct span text = span_of(value->text, value->count);
    for (size_t i = 0; i < text.len; i++) {
        bool is_digit = text.ptr[i] >= '0' && text.ptr[i] <= '9';
        sum = is_digit ? sum * 10 + (uint64_t)(text.ptr[i] - '0') : UINT64_MAX;
        if (sum > UINT32_MAX)
            break;
    }
    if (text.len == 0 || sum > UINT32_MAX)
        return http_json_fault(place, "expected a whole number of 0 to 4294967295", error);
    *number = (uint32_t)sum;
    return 0;
}

static int read_text(const struct http_json_node *value, const struct http_place *place,
                     struct span *text, struct stint_error *error)
{
    return value->kind == HTTP_JSON_NULL ? 0 : http_json_text(value, place, text, error);
}

static int read_entry_key(void *state, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    return read_text(value, place, &reading->entry->key, error);
}

static int read_entry_value(void *state, const struct http_json_node *value,
                            const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    return read_text(value, place, &reading->entry->value, error);
}

static const struct http_member entry_members[] = {
    {"key", NULL, read_entry_key},
    {"value", NULL, read_entry_value},
};

static int read_entries(void *state, const struct http_json_node *value,
                        const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    uint32_t seen;
    if (value->kind == HTTP_JSON_NULL)
        return 0;
    int code = http_json_array(value, place, ENTRIES_MAX, "entries", error);
    if (code < 0)
        return code;
    const struct http_json_node *element = http_json_first(value);
    for (size_t i = 0; i < value->count; i++, element = http_json_after(element)) {
        struct http_place inner = {place, NULL, i};
        reading->entry = http_call_entry(reading->call, reading->descriptor, &inner, error);
        if (reading->entry == NULL)
            return STINT_E_SYNTAX;
        code = http_json_members(element, &inner, entry_members, 2, 3, &seen, reading, error);
        if (code == 0 && reading->entry->key.len == 0)
            code = http_json_fault(&inner, "expected a key that is not empty", error);
        if (code < 0)
            return code;
    }
    return 0;
}

static int read_requests_per_unit(void *state, const struct http_json_node *value,
                                  const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    return read_u32(value, place, &reading->requests_per_unit, error);
}

/* RateLimitUnit, which has no WEEK, by name or number. */
static int read_unit(void *state, const struct http_json_node *value,
                     const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    if (value->kind == HTTP_JSON_INTEGER && value->integer > RULE_UNIT_NONE &&
        value->integer <= RULE_YEAR) {
        reading->unit = (int)value->integer;
        return 0;
    }
    for (int unit = RULE_SECOND; unit <= RULE_YEAR && value->kind == HTTP_JSON_STRING; unit++) {
        if (span_equals(span_of(value->text, value->count), unit_names[unit])) {
            reading->unit = unit;
            return 0;
        }
    }
    return http_json_fault(place, "expected SECOND, MINUTE, HOUR, DAY, MONTH or YEAR", error);
}

static const struct http_member limit_members[] = {
    {"requestsPerUnit", "requests_per_unit", read_requests_per_unit},
    {"unit", NULL, read_unit},
};

/* Months and years of an override are of 30 and 365 days. */
static uint64_t unit_ns(int unit)
{
    static const uint64_t lengths[N_UNITS] = {
        [RULE_SECOND] = NS_PER_S,  [RULE_MINUTE] = NS_PER_MIN, [RULE_HOUR] = NS_PER_HOUR,
        [RULE_DAY] = NS_PER_DAY,   [RULE_WEEK] = NS_PER_WEEK,  [RULE_MONTH] = 30 * NS_PER_DAY,
        [RULE_YEAR] = NS_PER_YEAR,
    };
    return lengths[unit];
}

static int read_limit(void *state, const struct http_json_node *value,
                      const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    struct http_call *call = reading->call;
    struct stint_quota *quota = &call->overrides[reading->descriptor - call->descriptors];
    struct stint_error fault;
    uint32_t seen;
    if (value->kind == HTTP_JSON_NULL)
        return 0;
    reading->requests_per_unit = 0;
    reading->unit = RULE_UNIT_NONE;
    int code = http_json_members(value, place, limit_members, 2, 3, &seen, reading, error);
    if (code == 0 && reading->unit == RULE_UNIT_NONE)
        code = http_json_fault(place, "expected a unit: SECOND, MINUTE, HOUR, DAY, MONTH or YEAR",
                               error);
    if (code < 0)
        return code;
    *quota = (struct stint_quota){.limit = reading->requests_per_unit,
                                  .period_ns = unit_ns(reading->unit)};
    if (stint_quota_check(quota, &fault) < 0)
        return http_json_fault(place, fault.sentence, error);
    reading->descriptor->override = quota;
    return 0;
}

/* google.protobuf.UInt64Value: there or not, and 0 asks without taking. */
static int read_descriptor_hits(void *state, const struct http_json_node *value,
                                const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    reading->descriptor->has_hits = value->kind != HTTP_JSON_NULL;
    return read_u32(value, place, &reading->descriptor->hits, error);
}

static int read_is_negative(void *state, const struct http_json_node *value,
                            const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    if (value->kind == HTTP_JSON_NULL)
        return 0;
    return http_json_bool(value, place, &reading->descriptor->is_refund, error);
}

static const struct http_member descriptor_members[] = {
    {"entries", NULL, read_entries},
    {"limit", NULL, read_limit},
    {"hitsAddend", "hits_addend", read_descriptor_hits},
    {"isNegativeHits", "is_negative_hits", read_is_negative},
};

static int read_descriptors(void *state, const struct http_json_node *value,
                            const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    struct http_call *call = reading->call;
    uint32_t seen;
    int code = http_json_array(value, place, DESCRIPTORS_MAX, "descriptors", error);
    if (code < 0)
        return code;
    const struct http_json_node *element = http_json_first(value);
    for (size_t i = 0; i < value->count; i++, element = http_json_after(element)) {
        struct http_place inner = {place, NULL, i};
        reading->descriptor = &call->descriptors[i];
        *reading->descriptor = (struct descriptor){0};
        code = http_json_members(element, &inner, descriptor_members, 4, 15, &seen, reading, error);
        if (code == 0 && reading->descriptor->n_entries == 0)
            code = http_json_fault(&inner, "expected entries", error);
        if (code < 0)
            return code;
    }
    call->request.descriptors = call->descriptors;
    call->request.n_descriptors = value->count;
    return 0;
}

static int read_domain(void *state, const struct http_json_node *value,
                       const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    return read_text(value, place, &reading->call->request.domain, error);
}

/* Of the request: unset and 0 are 1. */
static int read_hits(void *state, const struct http_json_node *value,
                     const struct http_place *place, struct stint_error *error)
{
    struct rls_reading *reading = state;
    uint32_t hits = 0;
    int code = read_u32(value, place, &hits, error);
    reading->call->request.cost = hits == 0 ? 1 : hits;
    return code;
}

static const struct http_member request_members[] = {
    {"domain", NULL, read_domain},
    {"descriptors", NULL, read_descriptors},
    {"hitsAddend", "hits_addend", read_hits},
};

int http_rls_read(struct http_call *call, struct span body, struct stint_error *error)
{
    struct rls_reading reading = {.call = call};
    uint32_t seen;
    http_call_clear(call);
    call->request.verb = REQUEST_TAKE;
    int code = http_json_parse(&call->json, body, error);
    if (code < 0)
        return code;
    code = http_json_members(call->json.nodes, NULL, request_members, 3, 7, &seen, &reading, error);
    if (code == 0 && call->request.domain.len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected a domain that is not empty");
    if (code == 0 && call->request.n_descriptors == 0)
        return err_set(error, STINT_E_SYNTAX, "expected descriptors");
    return code;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* The unit that a quota's period is, for those that do not stand in a rule. */
static int unit_of(const struct stint_quota *quota)
{
    for (int unit = RULE_SECOND; unit < (int)N_UNITS; unit++)
        if (unit_ns(unit) == quota->period_ns)
            return unit;
    return RULE_UNIT_NONE;
}

/* A period that is no unit is told without one: no other number would be true. */
static void write_current_limit(struct http_text *out, const struct reply_status *status,
                                bool is_override)
{
    const struct rule *rule = status->rule;
    bool of_rule = rule != NULL && !is_override;
    uint32_t requests = of_rule ? rule->requests_per_unit : status->quota->limit;
    int unit = of_rule ? rule->unit : unit_of(status->quota);
    const char *before = "";
    http_text_add(out, ",\"currentLimit\":{");
    if (requests > 0) {
        http_text_add(out, "\"requestsPerUnit\":");
        http_text_u64(out, requests);
        before = ",";
    }
    if (unit != RULE_UNIT_NONE) {
        http_text_add_text(out, before);
        http_text_add(out, "\"unit\":\"");
        http_text_add_text(out, unit_names[unit]);
        http_text_add(out, "\"");
        before = ",";
    }
    if (rule != NULL && rule->name[0] != '\0') {
        http_text_add_text(out, before);
        http_text_add(out, "\"name\":");
        http_text_json(out, span_of_text(rule->name));
    }
    http_text_add(out, "}");
}

/* A google.protobuf.Duration: 0, 3, 6 or 9 decimals; ours are of ms, rounded up. */
static void write_duration(struct http_text *out, uint64_t ns)
{
    uint64_t ms = ns / NS_PER_MS + (ns % NS_PER_MS != 0);
    http_text_add(out, ",\"durationUntilReset\":\"");
    http_text_u64(out, ms / 1000);
    if (ms % 1000 != 0) {
        char decimals[4] = {'.', (char)('0' + ms % 1000 / 100), (char)('0' + ms % 100 / 10),
                            (char)('0' + ms % 10)};
        http_text_bytes(out, decimals, sizeof(decimals));
    }
    http_text_add(out, "s\"");
}

/* When more is there; where the figures do not tell, when all is. NEVER has no such time. */
static void write_reset(struct http_text *out, const struct reply_status *status)
{
    uint64_t after_ns = status->decision.reset_after_ns;
    if (status->decision.outcome == STINT_NEVER)
        return;
    (void)http_fields_grows_after(status, &after_ns);
    if (after_ns != 0 && after_ns != STINT_NEVER_NS)
        write_duration(out, after_ns);
}

static void write_remaining(struct http_text *out, uint32_t remaining)
{
    if (remaining == 0)
        return;
    http_text_add(out, ",\"limitRemaining\":");
    http_text_u64(out, remaining);
}

static void write_status(struct http_text *out, const struct reply_status *status, bool is_override)
{
    if (status->decision.outcome == STINT_ALLOW)
        http_text_add(out, "{\"code\":\"OK\"");
    else
        http_text_add(out, "{\"code\":\"OVER_LIMIT\"");
    if (status->quota != NULL) {
        write_current_limit(out, status, is_override);
        write_remaining(out, status->decision.remaining);
        write_reset(out, status);
    } else if (status->rule != NULL && status->rule->unlimited) {
        write_remaining(out, HTTP_RLS_UNLIMITED);
    }
    http_text_add(out, "}");
}

void http_rls_write(struct http_text *out, const struct request *request, const struct reply *reply)
{
    if (reply->decision.outcome == STINT_ALLOW)
        http_text_add(out, "{\"overallCode\":\"OK\",\"statuses\":[");
    else
        http_text_add(out, "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":[");
    for (size_t i = 0; i < reply->n_statuses; i++) {
        if (i > 0)
            http_text_add(out, ",");
        write_status(out, &reply->statuses[i], request->descriptors[i].override != NULL);
    }
    http_text_add(out, "]}");
}
