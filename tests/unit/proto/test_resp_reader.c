/* SPDX-License-Identifier: MIT */
/* Commands cut from bytes: whole, in pieces of any size, as lines, and what is no command. */
#include "unit/test_quota.h"

#include "proto/resp/resp_reader.h"

#define ARGUMENTS 16
#define SMALL_REQUEST 4096

static struct span args[ARGUMENTS];
static uint8_t space[RESP_LINE_MAX];
static struct resp_argv argv = {args, 0, space};
static const struct resp_bounds bounds = {SMALL_REQUEST, 1024, ARGUMENTS};

static long read_all(const char *bytes, size_t len)
{
    struct resp_reader reader = {0};
    return resp_reader_next(&reader, span_of(bytes, len), &bounds, &argv);
}

#define READ(literal) read_all(literal, sizeof(literal) - 1)

static void assert_arg(size_t at, const char *text)
{
    assert_true(at < argv.n);
    assert_int_equal(args[at].len, strlen(text));
    assert_memory_equal(args[at].ptr, text, strlen(text));
}

/* The same bytes, one more with each call, in memory that ends where they end. */
static long drip(const char *bytes, size_t len)
{
    struct resp_reader reader = {0};
    long read = 0;
    for (size_t n = 1; n <= len && read == 0; n++) {
        uint8_t *copy = malloc(n);
        memcpy(copy, bytes, n);
        read = resp_reader_next(&reader, span_of(copy, n), &bounds, &argv);
        free(copy);
        if (read > 0)
            assert_int_equal(read, n);
    }
    return read;
}

TEST(an_array_of_bulk_strings_is_a_command)
{
    assert_int_equal(READ("*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n"), 23);
    assert_int_equal(argv.n, 2);
    assert_arg(0, "ECHO");
    assert_arg(1, "a\r\n");
}

TEST(a_command_ends_where_the_next_begins)
{
    static const char two[] = "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n";
    struct resp_reader reader = {0};
    long first = resp_reader_next(&reader, span_of(two, sizeof(two) - 1), &bounds, &argv);
    assert_int_equal(first, 14);
    assert_arg(0, "PING");
    assert_int_equal(
        resp_reader_next(&reader, span_of(two + first, sizeof(two) - 1 - 14), &bounds, &argv), 14);
    assert_arg(0, "QUIT");
}

TEST(arguments_may_be_empty_and_hold_any_byte)
{
    assert_int_equal(READ("*3\r\n$1\r\n\0\r\n$0\r\n\r\n$2\r\n\xff\n\r\n"), 25);
    assert_int_equal(args[0].len, 1);
    assert_int_equal(args[0].ptr[0], 0);
    assert_int_equal(args[1].len, 0);
    assert_int_equal(args[2].ptr[0], 0xff);
}

TEST(empty_arrays_and_lines_are_no_command)
{
    assert_int_equal(READ("*0\r\n"), 4);
    assert_int_equal(argv.n, 0);
    assert_int_equal(READ("\r\n"), 2);
    assert_int_equal(argv.n, 0);
    assert_int_equal(READ("  \t \n"), 5);
    assert_int_equal(argv.n, 0);
}

TEST(any_pieces_give_the_same)
{
    static const char *const whole[] = {
        "*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n",
        "ECHO abc\r\n",
        "ECHO abc\n",
        "  ECHO \"abc\"  \r\n",
        "ECHO 'abc'\r\n",
    };
    for (size_t i = 0; i < N(whole); i++) {
        assert_int_equal(drip(whole[i], strlen(whole[i])), strlen(whole[i]));
        assert_int_equal(argv.n, 2);
        assert_int_equal(READ("*1\r\n$4\r\nPING\r\n"), 14); /* arguments are borrowed, not kept */
        assert_int_equal(read_all(whole[i], strlen(whole[i])), strlen(whole[i]));
        assert_arg(0, "ECHO");
        assert_arg(1, "abc");
    }
}

TEST(every_beginning_of_a_command_wants_more)
{
    static const char whole[] = "*3\r\n$4\r\nECHO\r\n$0\r\n\r\n$12\r\n123456789012\r\n";
    for (size_t n = 0; n < sizeof(whole) - 1; n++)
        assert_int_equal(read_all(whole, n), 0);
    assert_int_equal(READ(whole), sizeof(whole) - 1);
}

TEST(lines_are_split_as_people_mean_them)
{
    assert_int_equal(READ("SET \"a b\" '' \"\\x41\\n\\\"\\\\\\q\" 'it\\'s \\n'\r\n"), 40);
    assert_int_equal(argv.n, 5);
    assert_arg(1, "a b");
    assert_arg(2, "");
    assert_arg(3, "A\n\"\\q");
    assert_arg(4, "it's \\n");
    assert_int_equal(READ("a\"b c\"\n"), 7);
    assert_arg(0, "ab c");
}

TEST(quotes_must_be_closed_and_followed_by_a_blank)
{
    assert_int_equal(READ("PING \"a\n"), RESP_ERROR_QUOTES);
    assert_int_equal(READ("PING 'a\r\n"), RESP_ERROR_QUOTES);
    assert_int_equal(READ("PING \"a\"b\n"), RESP_ERROR_QUOTES);
    assert_int_equal(READ("PING \"a\\\"\n"), RESP_ERROR_QUOTES);
    assert_int_equal(READ("PING \"\\x4\" \n"), 12);
    assert_arg(1, "x4");
}

TEST(what_is_no_command_is_refused_as_soon_as_it_shows)
{
    assert_int_equal(READ("*a"), RESP_ERROR_COUNT);
    assert_int_equal(READ("*-1\r\n"), RESP_ERROR_COUNT);
    assert_int_equal(READ("*\r\n"), RESP_ERROR_COUNT);
    assert_int_equal(READ("*1\rx"), RESP_ERROR_COUNT);
    assert_int_equal(READ("*1\n"), RESP_ERROR_COUNT);
    assert_int_equal(READ("*12345678901"), RESP_ERROR_COUNT);
    assert_int_equal(READ("*1\r\n:"), RESP_ERROR_NO_BULK);
    assert_int_equal(READ("*1\r\n$-1\r\n"), RESP_ERROR_LENGTH);
    assert_int_equal(READ("*1\r\n$99999999999"), RESP_ERROR_LENGTH);
    assert_int_equal(READ("*1\r\n$3\r\nabcde"), RESP_ERROR_NO_END);
    assert_int_equal(READ("*1\r\n$3\r\nabc\ra"), RESP_ERROR_NO_END);
}

TEST(limits_hold_before_the_bytes_come)
{
    assert_int_equal(READ("*16\r\n"), 0);
    assert_int_equal(READ("*17\r\n"), RESP_ERROR_COUNT);
    assert_int_equal(READ("*1\r\n$1024\r\n"), 0);
    assert_int_equal(READ("*1\r\n$1025\r\n"), RESP_ERROR_LENGTH);
    static char line[SMALL_REQUEST + 1];
    memset(line, 'x', sizeof(line));
    assert_int_equal(read_all(line, SMALL_REQUEST - 1), 0);
    assert_int_equal(read_all(line, SMALL_REQUEST), RESP_ERROR_TOO_LONG);
    assert_int_equal(READ("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"), RESP_ERROR_ARGUMENTS);
}

TEST(a_command_is_limited_as_a_whole)
{
    char bytes[8192];
    size_t len = (size_t)snprintf(bytes, sizeof(bytes), "*5\r\n");
    for (int i = 0; i < 4; i++)
        len += (size_t)snprintf(bytes + len, sizeof(bytes) - len, "$1020\r\n%01020d\r\n", 0);
    assert_int_equal(read_all(bytes, len), RESP_ERROR_TOO_LONG);
}

/* A page in a browser may post lines to this port, and commands in a body behind them. */
TEST(requests_of_browsers_end_the_stream)
{
    assert_int_equal(READ("POST / HTTP/1.1\r\n"), RESP_ERROR_HTTP);
    assert_int_equal(READ("GET /x HTTP/1.0\r\n"), RESP_ERROR_HTTP);
    assert_int_equal(READ("ECHO HTTP/1.1\r\n"), 15);
}

/* What was looked over is not looked over again: else this would take minutes. */
TEST(many_pieces_are_no_more_work)
{
    enum { N = 4000, LEN = 1 << 20 };
    static struct span many[N];
    struct resp_argv big = {many, 0, space};
    const struct resp_bounds wide = {2 * LEN, LEN, N};
    struct resp_reader reader = {0};
    uint8_t *bytes = malloc(LEN + 100);
    size_t len = (size_t)sprintf((char *)bytes, "*%d\r\n", N);
    for (int i = 0; i < N - 1; i++)
        len += (size_t)sprintf((char *)bytes + len, "$1\r\nx\r\n");
    size_t rest = LEN - len;
    len += (size_t)sprintf((char *)bytes + len, "$%zu\r\n", rest);
    memset(bytes + len, 'y', rest);
    memcpy(bytes + len + rest, "\r\n", 2);
    len += rest + 2;
    for (size_t n = 0; n < len; n++)
        assert_int_equal(resp_reader_next(&reader, span_of(bytes, n), &wide, &big), 0);
    assert_int_equal(resp_reader_next(&reader, span_of(bytes, len), &wide, &big), len);
    assert_int_equal(big.n, N);
    assert_int_equal(many[N - 1].len, rest);
    free(bytes);
}

TEST(every_fault_has_a_message)
{
    for (long fault = RESP_ERROR_ARGUMENTS; fault < 0; fault++)
        assert_string_not_equal(resp_error_message(fault), "unknown fault");
    assert_string_equal(resp_error_message(RESP_ERROR_ARGUMENTS - 1), "unknown fault");
    assert_string_equal(resp_error_message(0), "unknown fault");
}
