/* SPDX-License-Identifier: MIT */
/* JSON into nodes: what is taken, what is refused and where, and that nothing is read past the end.
 */
#include "unit/test_quota.h"

#include "proto/http/http_json.h"

static struct http_json json;

/* In memory of its own length, so that a sanitizer sees a read past it. */
static int parse(const char *text, size_t len, struct stint_error *error)
{
    static uint8_t *bytes; /* nodes point into it until the next call */
    free(bytes);
    bytes = malloc(len > 0 ? len : 1);
    assert_non_null(bytes);
    if (len > 0)
        memcpy(bytes, text, len);
    int code = http_json_parse(&json, span_of(bytes, len), error);
    if (text[0] == '\0') {
        free(bytes);
        bytes = NULL;
    }
    return code;
}

static const struct http_json_node *value_of(const char *text)
{
    struct stint_error error;
    if (parse(text, strlen(text), &error) != 0)
        fail_msg("%s: %s", text, error.message);
    const struct http_json_node *name = http_json_first(json.nodes);
    return http_json_after(name);
}

TEARDOWN
{
    struct stint_error error;
    parse("", 0, &error);
    http_json_deinit(&json);
}

TEST(test_values_are_nodes_in_a_row)
{
    struct stint_error error;
    static const char text[] = " { \"a\" : [ 1 , -2 , { } , [ ] , \"x\" ] , \"b\" : null }\r\n\t ";
    static const struct {
        uint8_t kind;
        uint32_t count;
        uint16_t skip;
    } expected[] = {
        {HTTP_JSON_OBJECT, 2, 10}, {HTTP_JSON_STRING, 1, 1},  {HTTP_JSON_ARRAY, 5, 6},
        {HTTP_JSON_INTEGER, 0, 1}, {HTTP_JSON_INTEGER, 0, 1}, {HTTP_JSON_OBJECT, 0, 1},
        {HTTP_JSON_ARRAY, 0, 1},   {HTTP_JSON_STRING, 1, 1},  {HTTP_JSON_STRING, 1, 1},
        {HTTP_JSON_NULL, 0, 1},
    };
    assert_int_equal(parse(text, sizeof(text) - 1, &error), 0);
    assert_int_equal(json.n_nodes, N(expected));
    for (size_t i = 0; i < json.n_nodes; i++) {
        assert_int_equal(json.nodes[i].kind, expected[i].kind);
        assert_int_equal(json.nodes[i].count, expected[i].count);
        assert_int_equal(json.nodes[i].skip, expected[i].skip);
    }
    assert_int_equal(json.nodes[3].integer, 1);
    assert_int_equal(json.nodes[4].integer, -2);
}

TEST(test_escapes_are_followed)
{
    static const struct {
        const char *text;
        const char *value;
        size_t len;
    } strings[] = {
        {"{\"a\":\"\"}", "", 0},
        {"{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t", 8},
        {"{\"a\":\"x\\u0000y\"}", "x\0y", 3},
        {"{\"a\":\"\\u00e9\\u20AC\\uD83D\\ude00.\"}", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80.", 10},
        {"{\"a\":\"\xc3\xa9\xf4\x8f\xbf\xbf\"}", "\xc3\xa9\xf4\x8f\xbf\xbf", 6},
    };
    for (size_t i = 0; i < N(strings); i++) {
        const struct http_json_node *value = value_of(strings[i].text);
        assert_int_equal(value->kind, HTTP_JSON_STRING);
        assert_int_equal(value->count, strings[i].len);
        assert_memory_equal(value->text, strings[i].value, strings[i].len);
    }
    /* Two of them stand beside one another. */
    const struct http_json_node *value = value_of("{\"\\u0061\":\"\\u0062\",\"c\":\"\\u0064\"}");
    assert_memory_equal(json.nodes[1].text, "a", 1);
    assert_memory_equal(value->text, "b", 1);
    assert_memory_equal(json.nodes[4].text, "d", 1);
}

TEST(test_integers_are_exact_or_stay_text)
{
    assert_true(value_of("{\"a\":9223372036854775807}")->integer == INT64_MAX);
    assert_true(value_of("{\"a\":-9223372036854775808}")->integer == INT64_MIN);
    assert_true(value_of("{\"a\":-0}")->integer == 0);
    const struct http_json_node *value = value_of("{\"a\":-9223372036854775809}");
    assert_int_equal(value->kind, HTTP_JSON_REAL);
    assert_int_equal(value->count, 20);
    assert_memory_equal(value->text, "-9223372036854775809", 20);
}

/* What counts is the value, not how it is written. */
TEST(test_a_whole_number_is_one_in_any_spelling)
{
    static const struct {
        const char *text;
        int64_t value; /* -1: none */
    } numbers[] = {
        {"1.0", 1},
        {"1e0", 1},
        {"1E+0", 1},
        {"10e-1", 1},
        {"0.1e1", 1},
        {"100.00e-2", 1},
        {"1.50e1", 15},
        {"0.0", 0},
        {"-0.0", 0},
        {"0e99999999999999999999", 0},
        {"0e-7", 0},
        {"4294967295.000", UINT32_MAX},
        {"4.2e9", 4200000000},
        {"9223372036854775807.0", INT64_MAX},
        {"1000000000000000000000e-3", 1000000000000000000},
        {"1.5", -1},
        {"1e-1", -1},
        {"15e-1", -1},
        {"0.0001", -1},
        {"9223372036854775808", -1},
        {"9223372036854775808.0", -1},
        {"1e19", -1},
        {"1e99999999999999999999", -1},
        {"1e-99999999999999999999", -1},
    };
    for (size_t i = 0; i < N(numbers); i++) {
        char text[64];
        int64_t read = -1;
        snprintf(text, sizeof(text), "{\"a\":%s}", numbers[i].text);
        const struct http_json_node *value = value_of(text);
        bool is_whole = numbers[i].value >= 0;
        assert_int_equal(value->kind, is_whole ? HTTP_JSON_INTEGER : HTTP_JSON_REAL);
        if (is_whole)
            assert_true(value->integer == numbers[i].value);
        assert_true(http_json_number(span_of_text(numbers[i].text), &read) == is_whole);
        assert_true(read == numbers[i].value);
    }
    static const char *const none[] = {"",   "+1",  " 1", "1 ", "01", "1.",
                                       ".5", "0x1", "-",  "1e", "NaN"};
    for (size_t i = 0; i < N(none); i++) {
        int64_t read;
        assert_false(http_json_number(span_of_text(none[i]), &read));
    }
}

TEST(test_each_fault_is_told_where)
{
    static const char *const diagnostics[][2] = {
        {"[1]", "JSON, line 1, column 1: expected an object, {…}"},
        {" \n ", "JSON, line 2, column 2: expected an object, {…}"},
        {"{", "JSON, line 1, column 2: expected the name of a member in quotes"},
        {"{\"a\"", "JSON, line 1, column 5: expected ':'"},
        {"{\"a\":", "JSON, line 1, column 6: expected a value"},
        {"{\"a\":1", "JSON, line 1, column 7: expected ',' or '}'"},
        {"{\"a\":[1", "JSON, line 1, column 8: expected ',' or ']'"},
        {"{\"a\":[1,]}", "JSON, line 1, column 9: expected a value"},
        {"{\"a\":1,}", "JSON, line 1, column 8: expected the name of a member in quotes"},
        {"{\"a\":1 \"b\":2}", "JSON, line 1, column 8: expected ',' or '}'"},
        {"{\"a\":1}\n\n x", "JSON, line 3, column 2: extra text after the object"},
        {"{\"a\":\"x", "JSON, line 1, column 8: a string without an end"},
        {"{\"a\":\"\t\"}", "JSON, line 1, column 7: a control character in a string"},
        {"{\"a\":\"\xff\"}", "JSON, line 1, column 7: text that is not UTF-8"},
        {"{\"a\":\"\xc0\x80\"}", "JSON, line 1, column 7: text that is not UTF-8"},
        {"{\"a\":\"\xed\xa0\x80\"}", "JSON, line 1, column 7: text that is not UTF-8"},
        {"{\"a\":\"\\x\"}", "JSON, line 1, column 7: an unknown escape"},
        {"{\"a\":\"\\u12g4\"}",
         "JSON, line 1, column 7: expected four hexadecimal digits after \\u"},
        {"{\"a\":\"\\ud800\"}", "JSON, line 1, column 13: half of a pair of \\u escapes"},
        {"{\"a\":\"\\ud800\\u0041\"}", "JSON, line 1, column 19: half of a pair of \\u escapes"},
        {"{\"a\":\"\\udc00\"}", "JSON, line 1, column 13: half of a pair of \\u escapes"},
        {"{\"a\":01}", "JSON, line 1, column 8: expected a value"},
        {"{\"a\":-}", "JSON, line 1, column 7: expected a value"},
        {"{\"a\":1.}", "JSON, line 1, column 8: expected digits after the point"},
        {"{\"a\":1e}", "JSON, line 1, column 8: expected digits in the exponent"},
        {"{\"a\":tru}", "JSON, line 1, column 6: expected a value"},
        {"{\"a\":+1}", "JSON, line 1, column 6: expected a value"},
        {"{\"a\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}",
         "JSON, line 1, column 21: more than 16 levels"},
    };
    struct stint_error error;
    for (size_t i = 0; i < N(diagnostics); i++) {
        assert_int_equal(parse(diagnostics[i][0], strlen(diagnostics[i][0]), &error),
                         STINT_E_SYNTAX);
        assert_string_equal(error.message, diagnostics[i][1]);
    }
}

TEST(test_no_document_can_be_cut_short)
{
    static const char text[] =
        "{\"a\":[1,-2.5e+3,true,false,null,\"\\u00e9\\uD83D\\ude00\xc3\xa9\"],\"b\":{}}";
    struct stint_error error;
    for (size_t len = 0; len < sizeof(text) - 1; len++)
        assert_int_equal(parse(text, len, &error), STINT_E_SYNTAX);
    assert_int_equal(parse(text, sizeof(text) - 1, &error), 0);
}

TEST(test_a_request_of_the_largest_size_has_nodes_enough)
{
    struct stint_error error;
    static char text[200000];
    size_t len = (size_t)sprintf(text, "{\"domain\":\"d\",\"cost\":1,\"descriptors\":[");
    for (int i = 0; i < 32; i++) {
        len += (size_t)sprintf(text + len,
                               "%s{\"hits\":1,\"is_refund\":false,\"quota\":\"1/1s\","
                               "\"entries\":[",
                               i > 0 ? "," : "");
        for (int j = 0; j < 32; j++)
            len +=
                (size_t)sprintf(text + len, "%s{\"key\":\"k\",\"value\":\"v\"}", j > 0 ? "," : "");
        len += (size_t)sprintf(text + len, "]}");
    }
    len += (size_t)sprintf(text + len, "]}");
    assert_int_equal(parse(text, len, &error), 0);
    assert_true(json.n_nodes > 5000);
    len = (size_t)sprintf(text, "{\"a\":[");
    for (int i = 0; i < HTTP_JSON_NODES_MAX; i++)
        len += (size_t)sprintf(text + len, "1,");
    assert_int_equal(parse(text, len, &error), STINT_E_SYNTAX);
    assert_non_null(strstr(error.message, "more values than a request has"));
}
