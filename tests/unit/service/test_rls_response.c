/* SPDX-License-Identifier: MIT */
/*
 * What is answered over protobuf: responses to the byte, and field by field the same as /json
 * answers to the same request. Times are virtual.
 */
#include "unit/proto/rls_oracle.h"
#include "unit/test_protobuf.h"
#include "unit/test_server.h"

#include "proto/grpc/rls.h"
#include "proto/http/http_call.h"

#include "struct.pb-c.h"

#include <jansson.h>

static const char *const yaml =
    "domain: d\n"
    "descriptors:\n"
    "  - key: ip\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2, algorithm: fixed_window, name: per-ip}\n"
    "    metadata: {tier: free, nested: {a: 1, list: [x, true, null]}}\n"
    "  - key: free\n"
    "    rate_limit: {unlimited: true}\n"
    "    metadata: {unseen: 1}\n"
    "  - key: half\n"
    "    rate_limit: {period: 30s, requests_per_unit: 10, algorithm: gcra}\n"
    "    metadata: {tier: paid, nested: {b: 2}}\n"
    "  - key: five\n"
    "    rate_limit: {period: 5m, requests_per_unit: 3, algorithm: log}\n"
    "  - key: short\n"
    "    rate_limit: {period: 500ms, requests_per_unit: 3}\n"
    "  - key: month\n"
    "    rate_limit: {unit: month, requests_per_unit: 100}\n"
    "  - key: week\n"
    "    rate_limit: {unit: week, requests_per_unit: 7}\n"
    "  - key: places\n"
    "    rate_limit: {algorithm: concurrency, requests_per_unit: 2, lease: 30s}\n"
    "  - key: none\n"
    "    rate_limit: {unit: day, requests_per_unit: 0}\n"
    "  - key: shadow\n"
    "    shadow_mode: true\n"
    "    rate_limit: {unit: second, requests_per_unit: 1, algorithm: fixed_window}\n"
    "  - key: quota\n"
    "    quota_mode: true\n"
    "    rate_limit: {unit: hour, requests_per_unit: 1, algorithm: sliding_counter}\n"
    "  - key: better\n"
    "    rate_limit: {unit: minute, requests_per_unit: 50, replaces: [{name: per-ip}]}\n";

/* A service and a call of each kind. */
struct frontend {
    struct test_server s;
    struct rls_call *rls;
    struct http_call json;
    char text[65536];
};

static struct frontend grpc, json;
static struct rls_form form;

SETUP
{
    form = (struct rls_form){0};
    serve(&grpc.s, yaml);
    serve(&json.s, yaml);
    grpc.rls = rls_call_new();
    assert_false(grpc.rls == NULL);
}

TEARDOWN
{
    rls_call_free(grpc.rls);
    http_call_deinit(&json.json);
    server_close(&grpc.s);
    server_close(&json.s);
}

static struct span answer_to(const struct wire *wire)
{
    const struct request *request;
    struct stint_error error;
    if (rls_read(grpc.rls, wired(wire), &request, &error) != 0)
        fail_msg("%s", error.message);
    const struct reply *reply = ask(&grpc.s, request);
    if (reply->error != REPLY_DECIDED)
        fail_msg("%s", reply->message);
    struct span response = rls_write(grpc.rls, &form, request, reply);
    assert_non_null(response.ptr);
    const char *otherwise = rls_oracle_written(response, &form, reply);
    if (otherwise != NULL)
        fail_msg("protobuf-c: %s", otherwise);
    return response;
}

static struct span answer(const char *descriptors)
{
    struct wire wire = wire_request("d", descriptors);
    return answer_to(&wire);
}

/* ---- To the byte ----------------------------------------------------------------------------- */

static void assert_bytes(struct span answer, const void *bytes, size_t len)
{
    if (answer.len != len || memcmp(answer.ptr, bytes, len) != 0) {
        for (size_t i = 0; i < answer.len; i++)
            fprintf(stderr, "\\x%02x", answer.ptr[i]);
        fail_msg("%zu bytes, not %zu", answer.len, len);
    }
}

#define assert_answer(descriptors, bytes)                                                          \
    assert_bytes(answer(descriptors), bytes, sizeof(bytes) - 1)

TEST(test_a_status_is_told_by_its_numbers)
{
    grpc.s.now_ns = START + 47500 * MS;
    assert_answer("ip=1", "\x08\x01"                         /* overall_code: OK */
                          "\x12\x1c"                         /* statuses */
                          "\x08\x01"                         /*   code: OK */
                          "\x12\x0c"                         /*   current_limit */
                          "\x08\x02\x10\x02\x1a\x06per-ip"   /*     2 per MINUTE, name */
                          "\x18\x01"                         /*   limit_remaining */
                          "\x22\x08"                         /*   duration_until_reset */
                          "\x08\x0c\x10\x80\xca\xb5\xee\x01" /*     12 s, 500,000,000 ns */
    );
}

TEST(test_nothing_is_told_of_what_nothing_limits)
{
    assert_answer("unknown=1; free=1; ip=1 more=2", "\x08\x01"
                                                    "\x12\x02\x08\x01"
                                                    "\x12\x08\x08\x01\x18\xff\xff\xff\xff\x0f"
                                                    "\x12\x02\x08\x01");
}

TEST(test_what_never_fits_has_no_reset)
{
    assert_answer("none=1", "\x08\x02\x12\x06\x08\x02\x12\x02\x10\x04");
}

/* 30 s are 30 of SECOND, 5 min are 5 of MINUTE. */
TEST(test_a_period_is_so_many_units)
{
    static const struct {
        const char *descriptors;
        uint64_t requests, unit, multiplier;
    } rows[] = {
        {"half=1", 10, RULE_SECOND, 30}, {"five=1", 3, RULE_MINUTE, 5},    {"short=1", 3, 0, 0},
        {"month=1", 100, RULE_MONTH, 0}, {"week=1", 7, RULE_WEEK, 0},      {"places=1", 2, 0, 0},
        {"none=1", 0, RULE_DAY, 0},      {"better=1", 50, RULE_MINUTE, 0},
    };
    for (size_t i = 0; i < N(rows); i++) {
        struct span limit = wire_bytes_of(wire_bytes_of(answer(rows[i].descriptors), 2, 0), 2, 0);
        assert_int_equal(wire_number_of(limit, 1), rows[i].requests);
        assert_int_equal(wire_number_of(limit, 2), rows[i].unit);
        assert_int_equal(wire_number_of(wire_bytes_of(limit, 4, 0), 1), rows[i].multiplier);
    }
}

/* A quota that was set for one key at run time stands in the place of the rule's. */
TEST(test_a_quota_of_a_key_is_told_as_it_is)
{
    struct asked asked;
    struct request *set = descriptors_of(&asked, "ip=vip");
    set->verb = REQUEST_SET_QUOTA;
    set->quota = span_of_text("gcra 900/15m");
    assert_int_equal(ask(&grpc.s, set)->error, REPLY_DECIDED);
    struct span limit = wire_bytes_of(wire_bytes_of(answer("ip=vip"), 2, 0), 2, 0);
    assert_int_equal(wire_number_of(limit, 1), 900);
    assert_int_equal(wire_number_of(limit, 2), RULE_MINUTE);
    assert_int_equal(wire_number_of(wire_bytes_of(limit, 4, 0), 1), 15);
    assert_memory_equal(wire_bytes_of(limit, 3, 0).ptr, "per-ip", 6);
}

/* ---- The same as /json ----------------------------------------------------------------------- */

/* One request in both tongues; what is for one descriptor is for the first. */
struct row {
    const char *descriptors;
    uint64_t after_ms; /* the row before */
    unsigned hits;     /* of the request. 0: unsaid */
    unsigned of_first; /* hits of the first descriptor, and one more. 0: unsaid */
    bool gives_back;
    unsigned limit, unit, multiplier;
};

static struct wire wire_of(const struct row *row)
{
    struct wire wire = {.len = 0};
    const char *text = row->descriptors;
    wire_text(&wire, 1, "d");
    for (bool is_first = true; *text != '\0'; is_first = false) {
        char one[64] = "";
        size_t len = strcspn(text, ";");
        assert_true(len < sizeof(one));
        memcpy(one, text, len);
        struct wire descriptor = wire_descriptor(one), limit = {.len = 0}, value = {.len = 0};
        if (is_first && row->of_first > 0)
            wire_hits(&descriptor, row->of_first - 1);
        if (is_first && row->gives_back)
            wire_number(&descriptor, 4, 1);
        if (is_first && row->unit > 0) {
            wire_number(&limit, 1, row->limit);
            wire_number(&limit, 2, row->unit);
            wire_number(&value, 1, row->multiplier);
            if (row->multiplier > 0)
                wire_message(&limit, 3, &value);
            wire_message(&descriptor, 2, &limit);
        }
        wire_message(&wire, 2, &descriptor);
        text += len;
        text += strspn(text, "; ");
    }
    if (row->hits > 0)
        wire_number(&wire, 3, row->hits);
    return wire;
}

static json_t *entries_of(const char *text, size_t len)
{
    json_t *entries = json_array();
    while (len > 0) {
        size_t word = strcspn(text, " ;"), key = strcspn(text, "=");
        if (word > len)
            word = len;
        json_array_append_new(entries, json_pack("{s:s%,s:s%}", "key", text, key, "value",
                                                 text + key + 1, word - key - 1));
        word += word < len;
        text += word;
        len -= word;
    }
    return entries;
}

static json_t *json_of(const struct row *row)
{
    json_t *descriptors = json_array();
    const char *text = row->descriptors;
    while (*text != '\0') {
        size_t len = strcspn(text, ";");
        json_array_append_new(descriptors, json_pack("{s:o}", "entries", entries_of(text, len)));
        text += len;
        text += strspn(text, "; ");
    }
    json_t *first = json_array_get(descriptors, 0);
    if (row->of_first > 0)
        json_object_set_new(first, "hitsAddend", json_integer(row->of_first - 1));
    if (row->gives_back)
        json_object_set_new(first, "isNegativeHits", json_true());
    if (row->unit > 0)
        json_object_set_new(
            first, "limit",
            json_pack("{s:i,s:i}", "requestsPerUnit", (int)row->limit, "unit", (int)row->unit));
    if (row->unit > 0 && row->multiplier > 0)
        json_object_set_new(json_object_get(first, "limit"), "unitMultiplier",
                            json_integer(row->multiplier));
    json_t *request = json_pack("{s:s,s:o}", "domain", "d", "descriptors", descriptors);
    if (row->hits > 0)
        json_object_set_new(request, "hitsAddend", json_integer(row->hits));
    return request;
}

/* Through the reader and writer of /json. */
static json_t *json_answer(const struct row *row)
{
    struct stint_error error;
    json_t *request = json_of(row);
    char *body = json_dumps(request, JSON_COMPACT);
    assert_non_null(body);
    if (http_rls_read(&json.json, span_of_text(body), &error) != 0)
        fail_msg("%s: %s", body, error.message);
    json.json.request.wants_growth = true;
    const struct reply *reply = ask(&json.s, &json.json.request);
    struct http_text text = http_text_at(json.text, sizeof(json.text));
    http_rls_write(&text, &json.json, &form, reply);
    assert_false(text.is_full);
    json_t *answer = json_loadb(json.text, text.len, 0, NULL);
    assert_non_null(answer);
    free(body);
    json_decref(request);
    return answer;
}

static uint64_t number_in(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

static void assert_same_text(struct span bytes, const json_t *text)
{
    assert_int_equal(bytes.len, json_string_length(text));
    if (bytes.len > 0)
        assert_memory_equal(bytes.ptr, json_string_value(text), bytes.len);
}

static void assert_same_name(uint64_t number, const json_t *name, const char *const *names)
{
    assert_string_equal(names[number], name != NULL ? json_string_value(name) : names[0]);
}

static void assert_same_limit(struct span wire, bool is_there, const json_t *limit)
{
    assert_int_equal(is_there, limit != NULL);
    if (!is_there)
        return;
    assert_int_equal(wire_number_of(wire, 1), number_in(limit, "requestsPerUnit"));
    assert_same_name(wire_number_of(wire, 2), json_object_get(limit, "unit"), rls_unit_names);
    assert_same_text(wire_bytes_of(wire, 3, 0), json_object_get(limit, "name"));
    assert_int_equal(wire_number_of(wire_bytes_of(wire, 4, 0), 1),
                     number_in(limit, "unitMultiplier"));
}

static void assert_same_duration(struct span wire, bool is_there, const json_t *text)
{
    assert_int_equal(is_there, text != NULL);
    if (!is_there)
        return;
    char *end;
    uint64_t seconds = strtoull(json_string_value(text), &end, 10), ns = 0, unit = S;
    for (end += *end == '.'; *end >= '0' && *end <= '9'; end++)
        ns += (uint64_t)(*end - '0') * (unit /= 10);
    assert_string_equal(end, "s");
    assert_int_equal(wire_number_of(wire, 1), seconds);
    assert_int_equal(wire_number_of(wire, 2), ns);
}

static void assert_same_status(struct span wire, const json_t *status)
{
    static const char *const codes[] = {"UNKNOWN", "OK", "OVER_LIMIT"};
    struct wire_field found;
    assert_same_name(wire_number_of(wire, 1), json_object_get(status, "code"), codes);
    bool is_there = wire_has(wire, 2, 0, &found);
    assert_same_limit(found.bytes, is_there, json_object_get(status, "currentLimit"));
    assert_int_equal(wire_number_of(wire, 3), number_in(status, "limitRemaining"));
    is_there = wire_has(wire, 4, 0, &found);
    assert_same_duration(found.bytes, is_there, json_object_get(status, "durationUntilReset"));
}

static json_t *json_of_struct(const Pb__Struct *object);

static json_t *json_of_value(const Pb__Value *value)
{
    json_t *list;
    switch (value->kind_case) {
    case PB__VALUE__KIND_STRUCT_VALUE:
        return json_of_struct(value->struct_value);
    case PB__VALUE__KIND_LIST_VALUE:
        list = json_array();
        for (size_t i = 0; i < value->list_value->n_values; i++)
            json_array_append_new(list, json_of_value(value->list_value->values[i]));
        return list;
    case PB__VALUE__KIND_STRING_VALUE:
        return json_stringn((const char *)value->string_value.data, value->string_value.len);
    case PB__VALUE__KIND_NUMBER_VALUE:
        return json_integer((json_int_t)value->number_value); /* none has a fraction */
    case PB__VALUE__KIND_BOOL_VALUE:
        return json_boolean(value->bool_value);
    default:
        return json_null();
    }
}

static json_t *json_of_struct(const Pb__Struct *object)
{
    json_t *json_object_made = json_object();
    for (size_t i = 0; i < object->n_fields; i++)
        json_object_setn_new(json_object_made, (const char *)object->fields[i]->key.data,
                             object->fields[i]->key.len, json_of_value(object->fields[i]->value));
    return json_object_made;
}

/* Header fields, body and metadata of both answers. */
static void assert_same_rest(struct span wire, const json_t *answer)
{
    const json_t *fields = json_object_get(answer, "responseHeadersToAdd");
    assert_int_equal(wire_count(wire, 3), json_array_size(fields));
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const json_t *field = json_array_get(fields, i);
        struct span header = wire_bytes_of(wire, 3, i);
        assert_same_text(wire_bytes_of(header, 1, 0), json_object_get(field, "key"));
        assert_same_text(wire_bytes_of(header, 2, 0), json_object_get(field, "value"));
    }
    const json_t *body = json_object_get(answer, "rawBody");
    assert_int_equal(wire_count(wire, 5), body != NULL);
    if (body != NULL)
        assert_string_equal(json_string_value(body), "c2xvdyBkb3du"); /* "slow down" */
    json_t *metadata = json_object_get(answer, "dynamicMetadata");
    assert_int_equal(wire_count(wire, 6), metadata != NULL);
    if (metadata == NULL)
        return;
    struct span packed = wire_bytes_of(wire, 6, 0);
    Pb__Struct *object = pb__struct__unpack(NULL, packed.len, packed.ptr);
    json_t *expected = json_of_struct(object);
    char *texts[] = {json_dumps(expected, JSON_SORT_KEYS), json_dumps(metadata, JSON_SORT_KEYS)};
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    json_decref(expected);
    pb__struct__free_unpacked(object, NULL);
}

static const struct row rows[] = {
    {.descriptors = "ip=1"},
    {.descriptors = "ip=1", .after_ms = 1},
    {.descriptors = "ip=1", .after_ms = 20500},
    {.descriptors = "ip=1; ip=2; unknown=1"},
    {.descriptors = "ip=2", .hits = 3},
    {.descriptors = "ip=2", .hits = 2},
    {.descriptors = "ip=1", .of_first = 1},
    {.descriptors = "ip=1", .of_first = 2, .gives_back = true},
    {.descriptors = "ip=1", .after_ms = 100},
    {.descriptors = "free=1; free=2"},
    {.descriptors = "half=1", .hits = 7},
    {.descriptors = "half=1", .hits = 7, .after_ms = 1},
    {.descriptors = "half=1", .hits = 11, .after_ms = 1},
    {.descriptors = "five=1; short=1; month=1; week=1; places=1"},
    {.descriptors = "five=1; short=1; month=1; week=1; places=1", .after_ms = 333},
    {.descriptors = "five=1; short=1; month=1; week=1; places=1", .after_ms = 333},
    {.descriptors = "five=1; short=2", .of_first = 4},
    {.descriptors = "none=1"},
    {.descriptors = "none=1", .of_first = 1},
    {.descriptors = "shadow=1", .hits = 2},
    {.descriptors = "shadow=1"},
    {.descriptors = "quota=1; ip=3"},
    {.descriptors = "quota=1; ip=3", .after_ms = 1},
    {.descriptors = "quota=1", .after_ms = 1},
    {.descriptors = "better=1; ip=4"},
    {.descriptors = "better=1; ip=4", .hits = 40},
    {.descriptors = "better=1; ip=4", .hits = 40},
    {.descriptors = "ip=5", .limit = 7, .unit = RULE_HOUR},
    {.descriptors = "ip=5", .limit = 7, .unit = RULE_HOUR, .hits = 7},
    {.descriptors = "ip=6", .limit = 9, .unit = RULE_SECOND, .multiplier = 30},
    {.descriptors = "ip=6", .limit = 9, .unit = RULE_SECOND, .multiplier = 60},
    {.descriptors = "ip=7", .limit = 0, .unit = RULE_YEAR},
    {.descriptors = "unknown=1", .limit = 5, .unit = RULE_MINUTE},
};

/* How many of the rows are over limit. */
static size_t compare_rows(void)
{
    static const char *const codes[] = {"UNKNOWN", "OK", "OVER_LIMIT"};
    size_t n_over = 0;
    for (size_t i = 0; i < N(rows); i++) {
        grpc.s.now_ns += rows[i].after_ms * MS;
        json.s.now_ns = grpc.s.now_ns;
        struct wire wire = wire_of(&rows[i]);
        struct span response = answer_to(&wire);
        json_t *other = json_answer(&rows[i]);
        const json_t *statuses = json_object_get(other, "statuses");
        assert_same_name(wire_number_of(response, 1), json_object_get(other, "overallCode"), codes);
        assert_int_equal(wire_count(response, 2), json_array_size(statuses));
        for (size_t k = 0; k < json_array_size(statuses); k++)
            assert_same_status(wire_bytes_of(response, 2, k), json_array_get(statuses, k));
        assert_same_rest(response, other);
        n_over += wire_number_of(response, 1) == 2;
        json_decref(other);
    }
    return n_over;
}

TEST(test_both_tongues_say_the_same)
{
    assert_int_equal(compare_rows(), 15); /* the rows reach both */
}

TEST(test_both_tongues_say_the_same_beside_the_statuses)
{
    form = (struct rls_form){.styles = HTTP_STYLE_DRAFT_11 | HTTP_STYLE_DRAFT_03,
                             .limit_field = "x-limit",
                             .has_metadata = true,
                             .denied_body = span_of_text("slow down")};
    assert_int_equal(compare_rows(), 15);
}

/* ---- Header fields, body, metadata ----------------------------------------------------------- */

static void assert_header(struct span response, size_t nth, const char *key, const char *value)
{
    struct span header = wire_bytes_of(response, 3, nth);
    struct span found_key = wire_bytes_of(header, 1, 0), found_value = wire_bytes_of(header, 2, 0);
    assert_int_equal(found_key.len, strlen(key));
    assert_memory_equal(found_key.ptr, key, found_key.len);
    assert_int_equal(found_value.len, strlen(value));
    assert_memory_equal(found_value.ptr, value, found_value.len);
}

TEST(test_header_fields_are_told_where_they_are_asked_for)
{
    assert_int_equal(wire_count(answer("ip=1"), 3), 0);
    form.styles = HTTP_STYLE_DRAFT_03;
    struct span response = answer("ip=2");
    assert_int_equal(wire_count(response, 3), 3);
    assert_header(response, 0, "RateLimit-Limit", "2");
    assert_header(response, 1, "RateLimit-Remaining", "1");
    assert_header(response, 2, "RateLimit-Reset", "60");
    form.limit_field = "x-ratelimit-limit";
    form.reset_field = "x-reset";
    answer("ip=2");
    response = answer("ip=2");
    assert_int_equal(wire_count(response, 3), 4);
    assert_header(response, 0, "x-ratelimit-limit", "2");
    assert_header(response, 1, "RateLimit-Remaining", "0");
    assert_header(response, 2, "x-reset", "60");
    assert_header(response, 3, "Retry-After", "60");
    assert_int_equal(wire_count(answer("free=1"), 3), 0);
    form.styles = HTTP_STYLE_DRAFT_11 | HTTP_STYLE_X_RATELIMIT;
    response = answer("ip=3");
    assert_int_equal(wire_count(response, 3), 5);
    assert_header(response, 0, "RateLimit-Policy", "\"per-ip\";q=2;w=60");
    assert_header(response, 1, "RateLimit", "\"per-ip\";r=1;t=60");
    assert_header(response, 2, "X-RateLimit-Limit", "2");
}

TEST(test_a_denial_has_a_body_if_there_is_one)
{
    form.denied_body = span_of_text("slow down");
    assert_int_equal(wire_count(answer("ip=1"), 5), 0);
    struct span body = wire_bytes_of(answer("none=1"), 5, 0);
    assert_int_equal(body.len, 9);
    assert_memory_equal(body.ptr, "slow down", 9);
}

/* The value of a member of a google.protobuf.Struct. */
static struct span member(struct span object, const char *name)
{
    struct span rest = object;
    struct wire_field entry;
    while (unwire(&rest, &entry)) {
        struct span key = wire_bytes_of(entry.bytes, 1, 0);
        if (entry.field == 1 && span_equals(key, name))
            return wire_bytes_of(entry.bytes, 2, 0);
    }
    return (struct span){NULL, 0};
}

static struct span element(struct span value, size_t nth)
{
    return wire_bytes_of(wire_bytes_of(value, 6, 0), 1, nth);
}

static double real_of(struct span value)
{
    struct wire_field found;
    assert_true(wire_has(value, 2, 0, &found));
    return found.real;
}

static void assert_string(struct span value, const char *text)
{
    struct span found = wire_bytes_of(value, 3, 0);
    assert_int_equal(found.len, strlen(text));
    assert_memory_equal(found.ptr, text, found.len);
}

TEST(test_metadata_tells_what_was_asked_and_what_rules_say)
{
    assert_int_equal(wire_count(answer("ip=0"), 6), 0);
    form.has_metadata = true;
    struct wire wire = wire_of(&(struct row){.descriptors = "ip=1 x=\xff; half=1; free=1",
                                             .hits = 2,
                                             .of_first = 4,
                                             .limit = 5,
                                             .unit = RULE_MINUTE,
                                             .multiplier = 7});
    struct span object = wire_bytes_of(answer_to(&wire), 6, 0);
    assert_string(member(object, "domain"), "d");
    assert_true(real_of(member(object, "hitsAddend")) == 2);
    struct span descriptors = member(object, "descriptors");
    struct span first = wire_bytes_of(element(descriptors, 0), 5, 0);
    assert_string(element(member(first, "entries"), 0), "ip=1");
    assert_string(element(member(first, "entries"), 1), "x=\xef\xbf\xbd");
    assert_string(member(first, "limit"),
                  "requests_per_unit:5 unit:MINUTE unit_multiplier:{value:7}");
    assert_true(real_of(member(first, "hitsAddend")) == 3);
    struct span second = wire_bytes_of(element(descriptors, 1), 5, 0);
    assert_null(member(second, "limit").ptr);
    assert_null(member(second, "hitsAddend").ptr);
    struct span metadata = wire_bytes_of(member(object, "metadata"), 5, 0);
    assert_string(member(metadata, "tier"), "paid"); /* "ip" has another depth: unmatched */
    assert_null(member(metadata, "unseen").ptr);
}

/* Of rules that let pass; the first has its way, and objects are merged. */
TEST(test_metadata_of_rules_is_merged)
{
    form.has_metadata = true;
    struct span object = wire_bytes_of(answer("ip=1; half=1"), 6, 0);
    assert_null(member(object, "hitsAddend").ptr);
    struct span metadata = wire_bytes_of(member(object, "metadata"), 5, 0);
    assert_string(member(metadata, "tier"), "free");
    struct span nested = wire_bytes_of(member(metadata, "nested"), 5, 0);
    assert_true(real_of(member(nested, "a")) == 1);
    assert_true(real_of(member(nested, "b")) == 2);
    assert_string(element(member(nested, "list"), 0), "x");
    assert_int_equal(wire_number_of(element(member(nested, "list"), 1), 4), 1);
    assert_int_equal(wire_count(element(member(nested, "list"), 2), 1), 1);
    answer("ip=1");
    metadata = wire_bytes_of(member(wire_bytes_of(answer("ip=1; half=1"), 6, 0), "metadata"), 5, 0);
    assert_string(member(metadata, "tier"), "paid"); /* ip is over its limit */
    assert_null(member(wire_bytes_of(answer("ip=1"), 6, 0), "metadata").ptr);
}
