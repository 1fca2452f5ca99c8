/* SPDX-License-Identifier: MIT */
/* Every type in RESP2 and RESP3 to the byte, and decisions in the layouts that clients rely on. */
#include "unit/test_quota.h"

#include "base/number.h"
#include "proto/resp/resp_reply.h"
#include "proto/ticket_text.h"

static struct resp_writer writer;

SETUP
{
    writer = (struct resp_writer){.version = 2};
}

TEARDOWN
{
    byte_queue_deinit(&writer.queue);
}

/* What was written since the last time. */
static void assert_written(const char *expected)
{
    if (writer.queue.end != strlen(expected) ||
        memcmp(writer.queue.bytes, expected, writer.queue.end) != 0)
        fail_msg("written: %.*s\nexpected: %s", (int)writer.queue.end,
                 (const char *)writer.queue.bytes, expected);
    assert_false(writer.failed);
    writer.queue.end = 0;
}

TEST(integers_are_written_in_full)
{
    resp_write_integer(&writer, 0);
    resp_write_integer(&writer, 9);
    resp_write_integer(&writer, 10);
    resp_write_integer(&writer, -1);
    resp_write_integer(&writer, INT64_MAX);
    resp_write_integer(&writer, INT64_MIN);
    assert_written(":0\r\n:9\r\n:10\r\n:-1\r\n:9223372036854775807\r\n:-9223372036854775808\r\n");
    resp_write_digits(&writer, UINT64_MAX);
    assert_written("$20\r\n18446744073709551615\r\n");
}

TEST(numbers_are_read_as_they_are_written)
{
    for (uint64_t power = 1, last = 0; power > last; last = power, power *= 10) {
        for (uint64_t number = power - 1; number <= power + 1; number++) {
            uint8_t text[RESP_DIGITS_MAX];
            char expected[32];
            uint64_t read = ~number;
            size_t len = (size_t)(resp_number_write(text, number) - text);
            assert_int_equal(len, sprintf(expected, "%llu", (unsigned long long)number));
            assert_memory_equal(text, expected, len);
            assert_true(resp_number_read(span_of(text, len), UINT64_MAX, &read));
            assert_int_equal(read, number);
            assert_true(resp_number_read(span_of(text, len), number, &read));
            if (number > 0)
                assert_false(resp_number_read(span_of(text, len), number - 1, &read));
        }
        if (power > UINT64_MAX / 10)
            break;
    }
}

TEST(what_is_no_number_is_not_read)
{
    static const char *const texts[] = {"",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "0x1",
                                        "1.0",
                                        "1e3",
                                        "18446744073709551616",
                                        "184467440737095516150",
                                        "99999999999999999999",
                                        "/",
                                        ":",
                                        "1\xb1"};
    for (size_t i = 0; i < N(texts); i++) {
        uint64_t number;
        assert_false(resp_number_read(span_of_text(texts[i]), UINT64_MAX, &number));
    }
    uint64_t most;
    assert_true(resp_number_read(span_of_text("18446744073709551615"), UINT64_MAX, &most));
    assert_int_equal(most, UINT64_MAX);
}

TEST(types_of_resp2)
{
    resp_write_array(&writer, 3);
    resp_write_map(&writer, 2);
    resp_write_bulk(&writer, span_of("a\0b", 3));
    assert_int_equal(writer.queue.end, 17);
    assert_memory_equal(writer.queue.bytes, "*3\r\n*4\r\n$3\r\na\0b\r\n", 17);
    writer.queue.end = 0;
    resp_write_text(&writer, "");
    resp_write_simple(&writer, "OK");
    resp_write_null(&writer);
    resp_write_double(&writer, 1.5);
    resp_write_verbatim(&writer, span_of_text("text"));
    assert_written("$0\r\n\r\n+OK\r\n$-1\r\n$5\r\n1.500\r\n$4\r\ntext\r\n");
}

TEST(types_of_resp3)
{
    writer.version = 3;
    resp_write_array(&writer, 3);
    resp_write_map(&writer, 2);
    resp_write_null(&writer);
    resp_write_double(&writer, -0.25);
    resp_write_verbatim(&writer, span_of_text("text"));
    assert_written("*3\r\n%2\r\n_\r\n,-0.250\r\n=8\r\ntxt:text\r\n");
}

TEST(an_error_stays_one_line)
{
    resp_write_error(&writer, "ERR", "bad '\r\n+OK\r\n\x7f'");
    assert_written("-ERR bad '  +OK   '\r\n");
}

TEST(what_is_large_makes_space)
{
    enum { LEN = 100000 };
    char *large = malloc(LEN);
    memset(large, 'x', LEN);
    resp_write_simple(&writer, "OK");
    resp_write_bulk(&writer, span_of(large, LEN));
    assert_int_equal(writer.queue.end, 5 + 9 + LEN + 2);
    assert_memory_equal(writer.queue.bytes, "+OK\r\n$100000\r\n", 14);
    assert_memory_equal(writer.queue.bytes + 14, large, LEN);
    assert_memory_equal(writer.queue.bytes + 14 + LEN, "\r\n", 2);
    free(large);
}

/* Half a reply with another one behind it would be taken for something else. */
TEST(a_writer_without_memory_writes_no_more)
{
    resp_write_simple(&writer, "OK");
    assert_null(resp_writer_space(&writer, SIZE_MAX));
    assert_true(writer.failed);
    resp_write_simple(&writer, "OK");
    resp_write_integer(&writer, 1);
    resp_write_bulk(&writer, span_of("x", 1));
    resp_write_error(&writer, "ERR", "x");
    assert_int_equal(writer.queue.end, 5);
}

/* ---- CL.THROTTLE ----------------------------------------------------------------------------- */

static struct reply throttled(uint8_t outcome, uint64_t retry_after_ns, uint64_t reset_after_ns)
{
    return (struct reply){.decision = {.outcome = outcome,
                                       .limit = 16,
                                       .remaining = 11,
                                       .retry_after_ns = retry_after_ns,
                                       .reset_after_ns = reset_after_ns}};
}

/* limited, limit, remaining, retry_after, reset_after: each with a number of its own. */
TEST(throttle_has_its_five_numbers_in_order)
{
    struct reply reply = throttled(STINT_ALLOW, 0, 10 * S);
    resp_reply_throttle(&writer, &reply);
    assert_written("*5\r\n:0\r\n:16\r\n:11\r\n:-1\r\n:10\r\n");
    reply = throttled(STINT_DENY, 3 * S, 21 * S);
    resp_reply_throttle(&writer, &reply);
    assert_written("*5\r\n:1\r\n:16\r\n:11\r\n:3\r\n:21\r\n");
}

TEST(throttle_rounds_seconds_up)
{
    struct reply reply = throttled(STINT_DENY, 1, 10 * S + 1);
    resp_reply_throttle(&writer, &reply);
    assert_written("*5\r\n:1\r\n:16\r\n:11\r\n:1\r\n:11\r\n");
    reply = throttled(STINT_DENY, 2 * S, 10 * S - 1);
    resp_reply_throttle(&writer, &reply);
    assert_written("*5\r\n:1\r\n:16\r\n:11\r\n:2\r\n:10\r\n");
    reply = throttled(STINT_ALLOW, 0, 0);
    resp_reply_throttle(&writer, &reply);
    assert_written("*5\r\n:0\r\n:16\r\n:11\r\n:-1\r\n:0\r\n");
}

TEST(throttle_that_never_fits_has_no_time)
{
    struct reply reply = throttled(STINT_NEVER, STINT_NEVER_NS, 0);
    resp_reply_throttle(&writer, &reply);
    assert_written("*5\r\n:1\r\n:16\r\n:11\r\n:-1\r\n:0\r\n");
}

TEST(throttle_with_the_longest_numbers_has_space)
{
    struct reply reply = throttled(STINT_DENY, STINT_NEVER_NS - 1, STINT_NEVER_NS);
    reply.decision.limit = reply.decision.remaining = UINT32_MAX;
    resp_reply_throttle(&writer, &reply);
    assert_written("*5\r\n:1\r\n:4294967295\r\n:4294967295\r\n:18446744074\r\n:18446744074\r\n");
}

/* ---- Verbs ----------------------------------------------------------------------------------- */

static const struct stint_decision denied = {.outcome = STINT_DENY,
                                             .binding = 1,
                                             .limit = 100,
                                             .remaining = 3,
                                             .retry_after_ns = 1500 * MS + 1,
                                             .reset_after_ns = 2 * S};

#define DENIED_FIGURES                                                                             \
    "$7\r\noutcome\r\n$4\r\ndeny\r\n$7\r\ngranted\r\n:0\r\n$5\r\nlimit\r\n:100\r\n"                \
    "$9\r\nremaining\r\n:3\r\n$14\r\nretry_after_ms\r\n:1501\r\n$14\r\nreset_after_ms\r\n:"        \
    "2000\r\n"

TEST(a_verb_is_a_map_in_resp3_and_flat_in_resp2)
{
    const struct request request = {.verb = REQUEST_TAKE};
    const struct stint_quota quota = {0};
    const struct target status = {.quota = &quota};
    const struct reply reply = {
        .decision = denied, .at_ns = 77, .statuses = &status, .n_statuses = 1};
    resp_reply_verb(&writer, &request, &reply);
    assert_written("*16\r\n" DENIED_FIGURES "$7\r\nbinding\r\n:1\r\n$2\r\nat\r\n$2\r\n77\r\n");
    writer.version = 3;
    resp_reply_verb(&writer, &request, &reply);
    assert_written("%8\r\n" DENIED_FIGURES "$7\r\nbinding\r\n:1\r\n$2\r\nat\r\n$2\r\n77\r\n");
}

TEST(a_ticket_and_a_replay_are_told_where_there_are)
{
    const struct request request = {.verb = REQUEST_RESERVE};
    const struct reply reply = {.decision = denied,
                                .at_ns = 0,
                                .has_ticket = true,
                                .replayed = true,
                                .ticket = {0x1f, 0xfedcba9876543210}};
    resp_reply_verb(&writer, &request, &reply);
    assert_written("*20\r\n" DENIED_FIGURES "$7\r\nbinding\r\n:1\r\n$2\r\nat\r\n$1\r\n0\r\n"
                   "$6\r\nticket\r\n$32\r\n000000000000001ffedcba9876543210\r\n"
                   "$8\r\nreplayed\r\n:1\r\n");
}

TEST(a_booking_says_when_it_starts)
{
    const struct request request = {.verb = REQUEST_BOOK};
    const struct reply reply = {
        .decision = {.outcome = STINT_ALLOW, .granted = 1, .limit = 5, .retry_after_ns = 250 * MS}};
    resp_reply_verb(&writer, &request, &reply);
    assert_written("*18\r\n$7\r\noutcome\r\n$5\r\nallow\r\n$7\r\ngranted\r\n:1\r\n"
                   "$5\r\nlimit\r\n:5\r\n$9\r\nremaining\r\n:0\r\n"
                   "$14\r\nretry_after_ms\r\n:0\r\n$14\r\nreset_after_ms\r\n:0\r\n"
                   "$7\r\nbinding\r\n:0\r\n$2\r\nat\r\n$1\r\n0\r\n"
                   "$15\r\nstarts_after_ms\r\n:250\r\n");
}

TEST(several_quotas_have_a_status_each)
{
    const struct request request = {.verb = REQUEST_TAKE, .n_descriptors = 2};
    const struct stint_quota quota = {0};
    const struct rule rule = {.path = "ip=*"};
    const struct target statuses[] = {{.rule = &rule, .quota = &quota, .decision = denied},
                                      {.decision = {.outcome = STINT_ALLOW}}};
    const struct reply reply = {.decision = denied, .statuses = statuses, .n_statuses = 2};
    writer.version = 3;
    resp_reply_verb(&writer, &request, &reply);
    assert_written("%9\r\n" DENIED_FIGURES "$7\r\nbinding\r\n:1\r\n$2\r\nat\r\n$1\r\n0\r\n"
                   "$8\r\nstatuses\r\n*2\r\n"
                   "%7\r\n" DENIED_FIGURES "$4\r\nrule\r\n$4\r\nip=*\r\n"
                   "%7\r\n$7\r\noutcome\r\n$5\r\nallow\r\n$7\r\ngranted\r\n:0\r\n"
                   "$5\r\nlimit\r\n:-1\r\n$9\r\nremaining\r\n:-1\r\n"
                   "$14\r\nretry_after_ms\r\n:0\r\n$14\r\nreset_after_ms\r\n:0\r\n"
                   "$4\r\nrule\r\n_\r\n");
}

TEST(never_is_minus_one)
{
    assert_int_equal(resp_reply_ms(STINT_NEVER_NS), -1);
    assert_int_equal(resp_reply_ms(0), 0);
    assert_int_equal(resp_reply_ms(1), 1);
    assert_int_equal(resp_reply_ms(MS), 1);
    assert_int_equal(resp_reply_ms(MS + 1), 2);
    assert_int_equal(resp_reply_ms(STINT_NEVER_NS - 1), 18446744073710);
}

TEST(administering_is_answered_with_ok)
{
    static const int verbs[] = {REQUEST_BLOCK, REQUEST_RESET, REQUEST_SET_QUOTA, REQUEST_RENEW};
    const struct reply reply = {0};
    for (size_t i = 0; i < N(verbs); i++) {
        const struct request request = {.verb = (uint8_t)verbs[i]};
        resp_reply_verb(&writer, &request, &reply);
        assert_written("+OK\r\n");
    }
}

TEST(every_error_has_its_word)
{
    static const char *const words[] = {
        [REPLY_BAD_REQUEST] = "-ERR why\r\n", [REPLY_FORBIDDEN] = "-NOPERM why\r\n",
        [REPLY_GONE] = "-GONE why\r\n",       [REPLY_CONFLICT] = "-CONFLICT why\r\n",
        [REPLY_FULL] = "-FULL why\r\n",       [REPLY_UNAVAILABLE] = "-UNAVAILABLE why\r\n"};
    const struct request request = {.verb = REQUEST_TAKE};
    for (int error = REPLY_BAD_REQUEST; error <= REPLY_UNAVAILABLE; error++) {
        const struct reply reply = {.error = (uint8_t)error, .message = "why"};
        resp_reply_verb(&writer, &request, &reply);
        assert_written(words[error]);
        resp_reply_throttle(&writer, &reply);
        assert_written(words[error]);
    }
}
