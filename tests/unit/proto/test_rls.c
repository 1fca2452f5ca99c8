/* SPDX-License-Identifier: MIT */
/*
 * Envoy's messages against bytes that are put together by hand, from the published numbers: what a
 * request says, what is refused of it, and what becomes of hostile ones.
 */
#include "unit/proto/rls_oracle.h"
#include "unit/test_protobuf.h"

#include "base/ns.h"
#include "proto/grpc/rls.h"

static struct rls_call *call;
static const struct request *request;
static struct stint_error error;
static uint8_t *message; /* that the request is in */

SETUP
{
    call = rls_call_new();
    assert_non_null(call);
}

TEARDOWN
{
    rls_call_free(call);
    free(message);
    message = NULL;
}

/* From memory of just that size, so that a sanitizer sees a byte too many; and by protobuf-c. */
static int read_bytes(const void *bytes, size_t len)
{
    free(message);
    message = malloc(len + (len == 0));
    assert_non_null(message);
    memcpy(message, bytes, len);
    int code = rls_read(call, span_of(message, len), &request, &error);
    const char *otherwise = rls_oracle_read(span_of(message, len), code, request);
    if (otherwise != NULL)
        fail_msg("protobuf-c: %s", otherwise);
    return code;
}

static int read_wire(const struct wire *wire)
{
    return read_bytes(wire->bytes, wire->len);
}

static void assert_read(const struct wire *wire)
{
    if (read_wire(wire) != 0)
        fail_msg("%s", error.message);
}

static void assert_refused(const struct wire *wire, int code, const char *reason)
{
    assert_int_equal(read_wire(wire), code);
    assert_string_equal(error.message, reason);
}

static void assert_span(struct span span, const void *bytes, size_t len)
{
    assert_int_equal(span.len, len);
    assert_memory_equal(span.ptr, bytes, len);
}

#define assert_text(span, text) assert_span(span, text, sizeof(text) - 1)

/* ---- What a request says --------------------------------------------------------------------- */

TEST(test_a_request_is_a_take)
{
    static const uint8_t bytes[] = "\x0a\x04shop"         /* domain */
                                   "\x12\x0a"             /* descriptors */
                                   "\x0a\x08"             /*   entries */
                                   "\x0a\x02ip\x12\x02::" /*     key, value */
                                   "\x12\x0e\x0a\x05\x0a\x01"
                                   "a\x12\x00\x0a\x05\x0a\x01"
                                   "b\x12\x00"
                                   "\x18\x07"; /* hits_addend */
    assert_int_equal(read_bytes(bytes, sizeof(bytes) - 1), 0);
    assert_int_equal(request->verb, REQUEST_TAKE);
    assert_text(request->domain, "shop");
    assert_int_equal(request->cost, 7);
    assert_int_equal(request->n_descriptors, 2);
    assert_int_equal(request->n_items, 0);
    assert_int_equal(request->id.len + request->wait_ns, 0);
    const struct descriptor *first = &request->descriptors[0], *second = first + 1;
    assert_int_equal(first->n_entries, 1);
    assert_text(first->entries[0].key, "ip");
    assert_text(first->entries[0].value, "::");
    assert_false(first->has_hits || first->is_refund);
    assert_null(first->override);
    assert_int_equal(second->n_entries, 2);
    assert_text(second->entries[1].key, "b");
    assert_text(second->entries[1].value, "");
}

TEST(test_no_hits_are_one)
{
    struct wire wire = wire_request("d", "a=1");
    assert_read(&wire);
    assert_int_equal(request->cost, 1);
    wire_number(&wire, 3, 0);
    assert_read(&wire);
    assert_int_equal(request->cost, 1);
    wire_number(&wire, 3, UINT32_MAX);
    assert_read(&wire);
    assert_int_equal(request->cost, UINT32_MAX);
}

static struct wire with_hits(uint64_t hits, bool is_negative)
{
    struct wire wire = {.len = 0}, descriptor = wire_descriptor("a=1");
    wire_text(&wire, 1, "d");
    wire_hits(&descriptor, hits);
    if (is_negative)
        wire_number(&descriptor, 4, 1);
    wire_message(&wire, 2, &descriptor);
    return wire;
}

TEST(test_a_descriptor_has_hits_of_its_own)
{
#define TOO_MANY                                                                                   \
    "descriptors[0].hits_addend: expected a whole number of 0 to 4294967295 (count in larger "     \
    "units, such as thousands), not "
    struct wire wire = with_hits(5, false);
    assert_read(&wire);
    assert_true(request->descriptors[0].has_hits);
    assert_int_equal(request->descriptors[0].hits, 5);
    wire = with_hits(0, false);
    assert_read(&wire);
    assert_true(request->descriptors[0].has_hits);
    assert_int_equal(request->descriptors[0].hits, 0);
    wire = with_hits(UINT32_MAX, true);
    assert_read(&wire);
    assert_int_equal(request->descriptors[0].hits, UINT32_MAX);
    assert_true(request->descriptors[0].is_refund);
    wire = with_hits(UINT32_MAX + UINT64_C(1), false);
    assert_refused(&wire, STINT_E_RANGE, TOO_MANY "4294967296");
    wire = with_hits(UINT64_MAX, true);
    assert_refused(&wire, STINT_E_RANGE, TOO_MANY "18446744073709551615");
}

/* An empty wrapper is one of 0. */
TEST(test_a_wrapper_without_a_value_is_there)
{
    struct wire wire = {.len = 0}, descriptor = wire_descriptor("a=1");
    wire_text(&wire, 1, "d");
    wire_text(&descriptor, 3, "");
    wire_message(&wire, 2, &descriptor);
    assert_read(&wire);
    assert_true(request->descriptors[0].has_hits);
    assert_int_equal(request->descriptors[0].hits, 0);
}

static struct wire with_limit(uint64_t requests, uint64_t unit, uint64_t multiplier)
{
    struct wire wire = {.len = 0}, descriptor = wire_descriptor("a=1");
    struct wire limit = {.len = 0}, value = {.len = 0};
    wire_text(&wire, 1, "d");
    wire_number(&limit, 1, requests);
    wire_number(&limit, 2, unit);
    wire_number(&value, 1, multiplier);
    if (multiplier != 1)
        wire_message(&limit, 3, &value);
    wire_message(&descriptor, 2, &limit);
    wire_message(&wire, 2, &descriptor);
    return wire;
}

TEST(test_an_override_is_a_quota)
{
    static const uint64_t lengths[] = {0,          NS_PER_S,        NS_PER_MIN, NS_PER_HOUR,
                                       NS_PER_DAY, 30 * NS_PER_DAY, NS_PER_YEAR};
    for (uint64_t unit = 1; unit < N(lengths); unit++) {
        struct wire wire = with_limit(9, unit, 1);
        assert_read(&wire);
        assert_int_equal(request->descriptors[0].override->limit, 9);
        assert_int_equal(request->descriptors[0].override->period_ns, lengths[unit]);
    }
    struct wire wire = with_limit(0, 1, 30);
    assert_read(&wire);
    assert_int_equal(request->descriptors[0].override->limit, 0);
    assert_int_equal(request->descriptors[0].override->period_ns, 30 * NS_PER_S);
}

TEST(test_an_override_that_cannot_be_kept_is_refused)
{
    static const char units[] =
        "descriptors[0].limit: expected a unit: SECOND, MINUTE, HOUR, DAY, MONTH or YEAR";
    static const uint64_t no_units[] = {0, 7, 8, 1000, UINT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < N(no_units); i++) {
        struct wire wire = with_limit(9, no_units[i], 1);
        assert_refused(&wire, STINT_E_SYNTAX, units);
    }
    struct wire wire = with_limit(9, 1, 0);
    assert_refused(&wire, STINT_E_RANGE,
                   "descriptors[0].limit: expected a unit_multiplier of 1 to 315360000 for SECOND, "
                   "not 0");
    wire = with_limit(9, 6, UINT64_MAX);
    assert_refused(&wire, STINT_E_RANGE,
                   "descriptors[0].limit: expected a unit_multiplier of 1 to 10 for YEAR, not "
                   "18446744073709551615");
}

/* ---- Bytes of any kind ----------------------------------------------------------------------- */

TEST(test_keys_and_values_are_any_bytes)
{
    static const struct {
        const char *text;
        size_t len;
    } values[] = {
        {"a_b", 3}, {"", 0}, {"a\0b", 3}, {"\0", 1}, {"\xff\xfe", 2}, {"\xed\xa0\x80", 3},
    };
    for (size_t i = 0; i < N(values); i++) {
        struct wire wire = {.len = 0}, descriptor = {.len = 0}, entry = {.len = 0};
        wire_span(&wire, 1, span_of("d\0d", 3));
        wire_span(&entry, 1, span_of("k\0\xff", 3));
        wire_span(&entry, 2, span_of(values[i].text, values[i].len));
        wire_message(&descriptor, 1, &entry);
        wire_message(&wire, 2, &descriptor);
        assert_read(&wire);
        assert_span(request->domain, "d\0d", 3);
        assert_span(request->descriptors[0].entries[0].key, "k\0\xff", 3);
        assert_span(request->descriptors[0].entries[0].value, values[i].text, values[i].len);
    }
}

TEST(test_a_value_of_64_kib_is_whole)
{
    enum { LEN = 65536 };
    static uint8_t bytes[LEN + 64];
    static const uint8_t head[] = {0x0a, 1,    'd',  0x12, 0x8b, 0x80, 0x04, 0x0a, 0x87,
                                   0x80, 0x04, 0x0a, 1,    'k',  0x12, 0x80, 0x80, 0x04};
    memcpy(bytes, head, sizeof(head));
    memset(bytes + sizeof(head), 'x', LEN);
    assert_int_equal(read_bytes(bytes, sizeof(head) + LEN), 0);
    assert_int_equal(request->descriptors[0].entries[0].value.len, LEN);
    assert_int_equal(request->descriptors[0].entries[0].value.ptr[LEN - 1], 'x');
}

/* As in any proto3: the last one of a number counts, and lists go on … */
TEST(test_fields_that_come_twice_are_joined)
{
    struct wire wire = wire_request("first", "a=1");
    wire_text(&wire, 1, "last");
    wire_number(&wire, 3, 3);
    wire_number(&wire, 3, 4);
    assert_read(&wire);
    assert_text(request->domain, "last");
    assert_int_equal(request->cost, 4);
    assert_int_equal(request->n_descriptors, 1);
}

/* … and a message adds to the one before it, which protobuf-c does not do for its numbers. */
TEST(test_messages_that_come_twice_are_joined)
{
    struct wire wire = {.len = 0}, descriptor = wire_descriptor("a=1"), multiplier = {.len = 0};
    struct wire first = {.len = 0}, second = {.len = 0}, hits = {.len = 0};
    wire_number(&multiplier, 1, 5);
    wire_number(&first, 1, 9);
    wire_number(&first, 2, RULE_SECOND);
    wire_message(&first, 3, &multiplier);
    wire_number(&second, 2, RULE_MINUTE);
    wire_text(&second, 3, ""); /* a multiplier without a value */
    wire_number(&hits, 1, 7);
    wire_message(&descriptor, 2, &first);
    wire_message(&descriptor, 3, &hits);
    wire_message(&descriptor, 2, &second);
    wire_text(&descriptor, 3, "");
    wire_text(&wire, 1, "d");
    wire_message(&wire, 2, &descriptor);
    assert_read(&wire);
    assert_int_equal(request->descriptors[0].override->limit, 9);
    assert_int_equal(request->descriptors[0].override->period_ns, 5 * NS_PER_MIN);
    assert_int_equal(request->descriptors[0].hits, 7);
}

/* ---- What is no request ---------------------------------------------------------------------- */

TEST(test_what_lacks_something_is_refused)
{
    static const struct {
        const char *domain, *descriptors, *reason;
    } rows[] = {
        {"", "a=1", "expected a domain that is not empty"},
        {"d", "", "expected descriptors"},
        {"d", "a=1 =2", "descriptors[0].entries[1]: expected a key that is not empty"},
        {"d", "a=1; =", "descriptors[1].entries[0]: expected a key that is not empty"},
    };
    for (size_t i = 0; i < N(rows); i++) {
        struct wire wire = wire_request(rows[i].domain, rows[i].descriptors);
        assert_refused(&wire, STINT_E_SYNTAX, rows[i].reason);
    }
    struct wire wire = wire_request("d", "a=1");
    wire_text(&wire, 2, "");
    assert_refused(&wire, STINT_E_SYNTAX, "descriptors[1]: expected entries");
    wire.len = 0;
    assert_refused(&wire, STINT_E_SYNTAX, "expected a domain that is not empty");
}

TEST(test_more_than_there_may_be_is_refused)
{
    struct wire wire = {.len = 0}, one = wire_descriptor("a=1"), many = {.len = 0};
    wire_text(&wire, 1, "d");
    for (size_t i = 0; i < DESCRIPTORS_MAX; i++)
        wire_message(&wire, 2, &one);
    assert_read(&wire);
    wire_message(&wire, 2, &one);
    assert_refused(&wire, STINT_E_RANGE, "descriptors: expected at most 32 descriptors");
    for (size_t i = 0; i < ENTRIES_MAX; i++)
        wire_bytes(&many, wired(&one));
    wire.len = 0;
    wire_text(&wire, 1, "d");
    wire_message(&wire, 2, &many);
    assert_read(&wire);
    wire_bytes(&many, wired(&one));
    wire_message(&wire, 2, &many);
    assert_refused(&wire, STINT_E_RANGE, "descriptors[1].entries: expected at most 32 entries");
}

/* No more of them are looked at than a request may have. */
TEST(test_a_million_descriptors_are_refused)
{
    static const uint8_t one[] = {0x12, 5, 0x0a, 3, 0x0a, 1, 'a'};
    enum { LEN = sizeof(one) << 20 };
    uint8_t *bytes = malloc(LEN);
    assert_non_null(bytes);
    for (size_t i = 0; i < LEN; i += sizeof(one))
        memcpy(bytes + i, one, sizeof(one));
    assert_int_equal(rls_read(call, span_of(bytes, LEN), &request, &error), STINT_E_RANGE);
    assert_string_equal(error.message, "descriptors: expected at most 32 descriptors");
    free(bytes);
    struct wire wire = wire_request("d", "a=1");
    assert_read(&wire);
}

static void add_unknown(struct wire *wire)
{
    static const uint8_t fixed[] = {0xa5, 0x06, 1, 2, 3, 4, 0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8};
    wire_number(wire, 100, UINT64_MAX);
    wire_text(wire, 536870911, "text");
    wire_bytes(wire, span_of(fixed, sizeof(fixed)));
}

TEST(test_unknown_fields_are_skipped)
{
    struct wire wire = {.len = 0}, descriptor = {.len = 0}, entry = {.len = 0};
    struct wire limit = {.len = 0};
    add_unknown(&entry);
    wire_text(&entry, 1, "a");
    add_unknown(&entry);
    wire_text(&entry, 2, "1");
    add_unknown(&entry);
    wire_message(&descriptor, 1, &entry);
    add_unknown(&descriptor);
    wire_number(&limit, 1, 9);
    add_unknown(&limit);
    wire_number(&limit, 2, 2);
    wire_message(&descriptor, 2, &limit);
    add_unknown(&wire);
    wire_message(&wire, 2, &descriptor);
    wire_text(&wire, 1, "d");
    add_unknown(&wire);
    assert_read(&wire);
    assert_text(request->domain, "d");
    assert_text(request->descriptors[0].entries[0].key, "a");
    assert_text(request->descriptors[0].entries[0].value, "1");
    assert_int_equal(request->descriptors[0].override->limit, 9);
}

TEST(test_a_field_of_another_type_is_refused)
{
    struct wire wire = wire_request("d", "a=1");
    wire_text(&wire, 3, "7"); /* a number as text */
    assert_refused(&wire, STINT_E_SYNTAX, "expected a RateLimitRequest in protobuf");
    struct wire descriptor = wire_descriptor("a=1");
    wire.len = 0;
    wire_text(&wire, 1, "d");
    wire_text(&descriptor, 4, "1"); /* a bool, in which protobuf-c takes any type */
    wire_message(&wire, 2, &descriptor);
    assert_refused(&wire, STINT_E_SYNTAX, "expected a RateLimitRequest in protobuf");
}

/* ---- Hostile bytes --------------------------------------------------------------------------- */

/* Whatever is cut off: a request that is whole by chance, or a message. */
TEST(test_every_prefix_is_taken_or_refused)
{
    struct wire wire = with_limit(300, 2, 300);
    struct wire more = wire_request("domain", "key=value path=/a; key=other");
    wire_bytes(&wire, wired(&more));
    wire_number(&wire, 3, 1000);
    assert_read(&wire);
    size_t n_refused = 0;
    for (size_t len = 0; len < wire.len; len++) {
        error.message[0] = '\0';
        int code = read_bytes(wire.bytes, len);
        n_refused += code != 0;
        assert_true(code == 0 || (code == STINT_E_SYNTAX && error.message[0] != '\0'));
    }
    assert_true(n_refused > wire.len / 2);
}

TEST(test_every_byte_may_be_another)
{
    struct wire wire = with_limit(300, 2, 300);
    wire_number(&wire, 3, 1000);
    for (size_t i = 0; i < wire.len; i++) {
        uint8_t right = wire.bytes[i];
        for (unsigned byte = 0; byte < 256; byte++) {
            wire.bytes[i] = (uint8_t)byte;
            error.message[0] = '\0';
            int code = read_wire(&wire);
            assert_true(code == 0 || error.message[0] != '\0');
            if (code == 0)
                assert_true(request->domain.len > 0 && request->n_descriptors > 0 &&
                            request->cost > 0);
        }
        wire.bytes[i] = right;
    }
}

TEST(test_lengths_that_lie_are_refused)
{
    static const struct {
        const char *bytes;
        size_t len;
    } rows[] = {
        {"\x0a\xff\xff\xff\xff\x07x", 7},                             /* 2 GiB */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fx", 11},            /* 2^63 */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", 12},        /* 2^64 */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},     /* a length without end */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13}, /* a tag without end */
        {"\x0a\x01", 2},
        {"\x12\x02\x0a\x01", 4},         /* an entry that ends within its descriptor */
        {"\x12\x04\x0a\x06\x0a\x01", 6}, /* … and one that reaches out of it */
        {"\x0b\x0b\x0b\x0c", 4},         /* groups */
        {"\x0e", 1},                     /* a type that is none */
        {"\x02\x01x", 3},                /* field 0 */
        {"\x82\x80\x00\x01x", 5},        /* the same in more bytes than it needs */
        {"\x18", 1},
        {"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
        {"\x25\x01\x02", 3}, /* half of 32 bits */
        {"\x21\x01\x02", 3},
    };
    for (size_t i = 0; i < N(rows); i++) {
        error.message[0] = '\0';
        int code = read_bytes(rows[i].bytes, rows[i].len);
        if (code == 0 || error.message[0] == '\0')
            fail_msg("row %zu: %d", i, code);
    }
}

/* A message cannot hold itself, so depth costs nothing: what is too deep is text or unknown. */
TEST(test_depth_costs_nothing)
{
    static uint8_t bytes[65536];
    for (size_t i = 0; i + 1 < sizeof(bytes); i += 2) {
        bytes[i] = 0x0a;
        bytes[i + 1] = 0x7e;
    }
    assert_int_equal(read_bytes(bytes, sizeof(bytes)), STINT_E_SYNTAX);
}
