/* SPDX-License-Identifier: MIT */
/*
 * Kuadrant's messages against bytes that are put together by hand: what a reservation and a commit
 * say, what is refused of them, and for whom a reservation_id is good.
 */
#include "unit/proto/rls_oracle.h"
#include "unit/test_protobuf.h"

#include "base/ns.h"

enum { DOMAIN = 1, DESCRIPTORS, AMOUNT, TTL, ID = 3, ACTUAL };

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

typedef int reader(struct rls_call *call, struct span bytes, const struct request **request,
                   struct stint_error *error);

/* From memory of just that size, so that a sanitizer sees a byte too many; and by protobuf-c. */
static int read_with(reader *read, const struct wire *wire)
{
    free(message);
    message = malloc(wire->len + (wire->len == 0));
    assert_non_null(message);
    memcpy(message, wire->bytes, wire->len);
    int code = read(call, span_of(message, wire->len), &request, &error);
    const char *otherwise = NULL;
    if (read == kuadrant_read_reserve)
        otherwise = rls_oracle_reserve(span_of(message, wire->len), code, request);
    else if (read == kuadrant_read_commit)
        otherwise = rls_oracle_commit(span_of(message, wire->len), code, request);
    if (otherwise != NULL)
        fail_msg("protobuf-c: %s", otherwise);
    return code;
}

static void assert_read(reader *read, const struct wire *wire)
{
    if (read_with(read, wire) != 0)
        fail_msg("%s", error.message);
}

static void assert_refused(reader *read, const struct wire *wire, int code, const char *reason)
{
    assert_int_equal(read_with(read, wire), code);
    assert_string_equal(error.message, reason);
}

static struct wire reserve_of(uint64_t amount, int64_t seconds, int64_t nanos)
{
    struct wire wire = wire_request("d", "a=1; b=2 c=3"), ttl = {.len = 0};
    wire_number(&wire, AMOUNT, amount);
    wire_number(&ttl, 1, (uint64_t)seconds);
    wire_number(&ttl, 2, (uint64_t)nanos);
    wire_message(&wire, TTL, &ttl);
    return wire;
}

/* ---- Reserve --------------------------------------------------------------------------------- */

TEST(test_a_reservation_is_read)
{
    struct wire wire = reserve_of(700, 30, 500000000);
    assert_read(kuadrant_read_reserve, &wire);
    assert_int_equal(request->verb, REQUEST_RESERVE);
    assert_int_equal(request->cost, 700);
    assert_int_equal(request->lifetime_ns, 30500 * NS_PER_MS);
    assert_int_equal(request->n_descriptors, 2);
    assert_int_equal(request->descriptors[1].n_entries, 2);
}

TEST(test_a_ttl_has_a_default_and_bounds)
{
    static const char bounds[] =
        "ttl: expected a duration of 0 to 31536000 s (365 days); none and 0 are 60 s";
    static const int64_t wrong[][2] = {{-1, 0},       {0, -1},       {0, 1000000000},
                                       {31536000, 1}, {31536001, 0}, {INT64_MAX, 0},
                                       {INT64_MIN, 0}};
    struct wire wire = wire_request("d", "a=1");
    wire_number(&wire, AMOUNT, 1);
    assert_read(kuadrant_read_reserve, &wire);
    assert_int_equal(request->lifetime_ns, 60 * NS_PER_S);
    wire = reserve_of(1, 0, 0);
    assert_read(kuadrant_read_reserve, &wire);
    assert_int_equal(request->lifetime_ns, 60 * NS_PER_S);
    wire = reserve_of(1, 31536000, 0);
    assert_read(kuadrant_read_reserve, &wire);
    assert_int_equal(request->lifetime_ns, 365 * NS_PER_DAY);
    for (size_t i = 0; i < N(wrong); i++) {
        wire = reserve_of(1, wrong[i][0], wrong[i][1]);
        assert_refused(kuadrant_read_reserve, &wire, STINT_E_RANGE, bounds);
    }
}

TEST(test_an_amount_has_32_bits)
{
#define TOO_MANY                                                                                   \
    "amount: expected a whole number of 0 to 4294967295 (count in larger units, such as "          \
    "thousands), not "
    static const uint64_t wrong[] = {UINT32_MAX + UINT64_C(1), UINT64_MAX};
    static const char *const messages[] = {"actual_" TOO_MANY "4294967296",
                                           "actual_" TOO_MANY "18446744073709551615"};
    struct wire wire = reserve_of(UINT32_MAX, 1, 0);
    assert_read(kuadrant_read_reserve, &wire);
    assert_int_equal(request->cost, UINT32_MAX);
    for (size_t i = 0; i < N(wrong); i++) {
        wire = reserve_of(wrong[i], 1, 0);
        assert_refused(kuadrant_read_reserve, &wire, STINT_E_RANGE,
                       messages[i] + strlen("actual_"));
        wire = wire_request("d", "a=1");
        wire_number(&wire, ACTUAL, wrong[i]);
        assert_refused(kuadrant_read_commit, &wire, STINT_E_RANGE, messages[i]);
    }
}

/* What holds nothing asks whether anything is left. */
TEST(test_an_amount_of_0_is_a_peek_of_one_unit)
{
    struct wire wire = reserve_of(0, 30, 0);
    assert_read(kuadrant_read_reserve, &wire);
    assert_int_equal(request->verb, REQUEST_PEEK);
    assert_int_equal(request->cost, 1);
}

TEST(test_hits_of_descriptors_have_no_say)
{
    struct wire wire = {.len = 0}, descriptor = wire_descriptor("a=1");
    wire_hits(&descriptor, 99);
    wire_number(&descriptor, 4, 1);
    wire_text(&wire, DOMAIN, "d");
    wire_message(&wire, DESCRIPTORS, &descriptor);
    wire_number(&wire, AMOUNT, 7);
    assert_read(kuadrant_read_reserve, &wire);
    assert_false(request->descriptors[0].has_hits || request->descriptors[0].is_refund);
}

TEST(test_what_is_no_reservation_is_refused)
{
    struct wire wire = {.len = 0}, ttl = {.len = 0};
    assert_refused(kuadrant_read_reserve, &wire, STINT_E_SYNTAX,
                   "expected a domain that is not empty");
    wire_text(&wire, DOMAIN, "d");
    assert_refused(kuadrant_read_reserve, &wire, STINT_E_SYNTAX, "expected descriptors");
    wire = wire_request("d", "a=1");
    wire_text(&wire, AMOUNT, "7");
    assert_refused(kuadrant_read_reserve, &wire, STINT_E_SYNTAX,
                   "expected a ReserveRequest in protobuf");
    wire = wire_request("d", "a=1");
    wire_text(&ttl, 1, "60s");
    wire_message(&wire, TTL, &ttl);
    assert_refused(kuadrant_read_reserve, &wire, STINT_E_SYNTAX,
                   "expected a ReserveRequest in protobuf");
    wire.len = 0;
    wire_text(&wire, DOMAIN, "d");
    for (size_t i = 0; i <= DESCRIPTORS_MAX; i++) {
        struct wire descriptor = wire_descriptor("a=1");
        wire_message(&wire, DESCRIPTORS, &descriptor);
    }
    assert_refused(kuadrant_read_reserve, &wire, STINT_E_RANGE,
                   "descriptors: expected at most 32 descriptors");
}

/* A message cut at any byte is refused or read, alike by both. */
TEST(test_cut_messages_are_no_surprise)
{
    struct wire whole = reserve_of(700, 30, 7);
    for (size_t len = 0; len < whole.len; len++) {
        struct wire part = whole;
        part.len = len;
        read_with(kuadrant_read_reserve, &part);
        read_with(kuadrant_read_commit, &part);
    }
}

/* ---- reservation_id -------------------------------------------------------------------------- */

/* What Reserve answers to "a=1; b=2 c=3" in domain d: static memory. */
static const char *id_of(struct stint_ticket ticket, struct span ticket_text)
{
    static char id[256];
    struct wire wire = reserve_of(1, 1, 0);
    const struct reply reply = {.decision.outcome = STINT_ALLOW,
                                .has_ticket = true,
                                .ticket = ticket,
                                .ticket_text = ticket_text};
    assert_read(kuadrant_read_reserve, &wire);
    struct span answer = kuadrant_write_reserve(call, NULL, request, &reply);
    assert_non_null(answer.ptr);
    assert_int_equal(wire_number_of(answer, 1), 1);
    struct span text = wire_bytes_of(answer, 2, 0);
    assert_true(text.len < sizeof(id));
    memcpy(id, text.ptr, text.len);
    id[text.len] = '\0';
    return id;
}

static struct wire commit_of(const char *domain, const char *descriptors, const char *id)
{
    struct wire wire = {.len = 0};
    if (domain != NULL)
        wire = wire_request(domain, descriptors);
    wire_text(&wire, ID, id);
    wire_number(&wire, ACTUAL, 5);
    return wire;
}

TEST(test_a_commit_settles_the_ticket_of_its_id)
{
    static const char *const same[][2] = {
        {NULL, NULL}, {"d", "a=1; b=2 c=3"}, {"d", "b=2 c=3; a=1"}};
    const char *id = id_of((struct stint_ticket){77, 0x123456789abcdef0}, span_of(NULL, 0));
    assert_int_equal(strlen(id), 48);
    for (size_t i = 0; i < N(same); i++) {
        struct wire wire = commit_of(same[i][0], same[i][1], id);
        assert_read(kuadrant_read_commit, &wire);
        assert_int_equal(request->verb, REQUEST_SETTLE);
        assert_int_equal(request->cost, 5);
        assert_int_equal(request->ticket.slot, 77);
        assert_int_equal(request->ticket.nonce, 0x123456789abcdef0);
        assert_int_equal(request->n_descriptors + request->domain.len, 0);
    }
    id = id_of((struct stint_ticket){0, 0}, span_of_text("of a store, which knows what it says"));
    struct wire wire = commit_of("d", "a=1; b=2 c=3", id);
    assert_read(kuadrant_read_commit, &wire);
    assert_true(span_equals(request->ticket_text, "of a store, which knows what it says"));
}

TEST(test_a_commit_of_other_descriptors_is_refused)
{
    static const char *const others[][2] = {
        {"e", "a=1; b=2 c=3"}, {"d", "a=1"},           {"d", "a=2; b=2 c=3"},
        {"d", "a=1; b=2c=3"},  {"d", "a=1; b=2; c=3"}, {"d", "a=1; a=1; b=2 c=3"},
        {"d", "a=1; c=3 b=2"},
    };
    const char *id = id_of((struct stint_ticket){77, 1}, span_of(NULL, 0));
    for (size_t i = 0; i < N(others); i++) {
        struct wire wire = commit_of(others[i][0], others[i][1], id);
        assert_refused(kuadrant_read_commit, &wire, STINT_E_SYNTAX,
                       "reservation_id: it was made for another domain or other descriptors; the "
                       "reservation stands");
    }
    struct wire half = commit_of("d", "", id);
    assert_refused(kuadrant_read_commit, &half, STINT_E_SYNTAX, "expected descriptors");
}

TEST(test_what_is_no_id_is_refused)
{
    static const char *const wrong[] = {"x", "0123456789abcdef",
                                        "0123456789abcdef0123456789abcdef0123456789abcde",
                                        "0123456789abcdeg0123456789abcdef0123456789abcdef",
                                        "0123456789abcdef0123456789abcdef0123456789abcdeg"};
    for (size_t i = 0; i < N(wrong); i++) {
        struct wire wire = commit_of(NULL, NULL, wrong[i]);
        assert_refused(kuadrant_read_commit, &wire, STINT_E_SYNTAX,
                       "reservation_id: expected one that Reserve has answered");
    }
}

TEST(test_a_commit_without_an_id_is_a_charge)
{
    struct wire wire = commit_of("d", "a=1", "");
    assert_read(kuadrant_read_commit, &wire);
    assert_int_equal(request->verb, REQUEST_CHARGE);
    assert_int_equal(request->cost, 5);
    assert_int_equal(request->n_descriptors, 1);
    wire = commit_of(NULL, NULL, "");
    assert_refused(kuadrant_read_commit, &wire, STINT_E_SYNTAX,
                   "expected a domain that is not empty");
}

/* ---- Answers, and Envoy's messages ----------------------------------------------------------- */

TEST(test_answers_leave_out_what_is_not_there)
{
    const struct reply over = {.decision.outcome = STINT_DENY};
    const struct request settle = {.verb = REQUEST_SETTLE}, charge = {.verb = REQUEST_CHARGE};
    struct span answer = kuadrant_write_reserve(call, NULL, &settle, &over);
    assert_int_equal(answer.len, 2);
    assert_memory_equal(answer.ptr, "\x08\x02", 2);
    answer = kuadrant_write_commit(call, NULL, &settle, NULL);
    assert_int_equal(answer.len, 2);
    assert_memory_equal(answer.ptr, "\x08\x01", 2);
    answer = kuadrant_write_commit(call, NULL, &charge, NULL);
    assert_non_null(answer.ptr);
    assert_int_equal(answer.len, 0);
}

TEST(test_check_is_a_peek_and_report_a_charge)
{
    struct wire wire = wire_request("d", "a=1"), descriptor = wire_descriptor("b=1");
    wire_hits(&descriptor, 0);
    wire_message(&wire, DESCRIPTORS, &descriptor);
    assert_read(kuadrant_read_check, &wire);
    assert_int_equal(request->verb, REQUEST_PEEK);
    assert_int_equal(request->cost, 1);
    assert_true(request->has_envoy_hits && request->descriptors[1].has_hits);
    wire_number(&wire, 3, 9);
    assert_read(kuadrant_read_report, &wire);
    assert_int_equal(request->verb, REQUEST_CHARGE);
    assert_int_equal(request->cost, 9);
    assert_int_equal(request->descriptors[1].hits, 0);
}
