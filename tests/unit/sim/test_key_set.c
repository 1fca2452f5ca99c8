/* SPDX-License-Identifier: MIT */
/* Equal bytes have one number, different bytes different ones, over every growth of the set. */
#include "unit/test.h"

#include "sim/input/event.h"
#include "sim/judge/key_set.h"

static const uint64_t secret[2] = {1, 2};

TEST(test_numbers_keys_in_the_order_they_come)
{
    enum { KEYS = 100000 };
    struct key_set set;
    char name[32];
    uint32_t number;
    key_set_init(&set, secret);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < KEYS; i++) {
            snprintf(name, sizeof(name), "key %u", i);
            assert_int_equal(key_set_add(&set, span_of_text(name), &number, NULL), 0);
            assert_int_equal(number, i);
        }
    assert_int_equal(set.n_keys, KEYS);
    assert_true(span_equals(key_set_name(&set, 4711), "key 4711"));
    key_set_deinit(&set);
}

/* Empty keys, keys with NUL and keys longer than a chunk of the set's memory. */
TEST(test_keys_are_bytes_of_any_length)
{
    struct key_set set;
    uint32_t empty, one_nul, two_nuls, big, again;
    size_t big_len = 3 * 1024 * 1024;
    uint8_t *bytes = calloc(1, big_len);
    assert_non_null(bytes);
    key_set_init(&set, secret);
    assert_int_equal(key_set_add(&set, span_of(bytes, 0), &empty, NULL), 0);
    assert_int_equal(key_set_add(&set, span_of(bytes, 1), &one_nul, NULL), 0);
    assert_int_equal(key_set_add(&set, span_of(bytes, big_len), &big, NULL), 0);
    assert_int_equal(key_set_add(&set, span_of(bytes, 2), &two_nuls, NULL), 0);
    assert_int_equal(key_set_add(&set, span_of(bytes, big_len), &again, NULL), 0);
    assert_int_equal(empty, 0);
    assert_int_equal(one_nul, 1);
    assert_int_equal(big, 2);
    assert_int_equal(two_nuls, 3);
    assert_int_equal(again, big);
    assert_int_equal(key_set_name(&set, big).len, big_len);
    free(bytes);
    key_set_deinit(&set);
}

static void expect_joined(const char *a, const char *b, const char *expected)
{
    static struct joined_key joined;
    struct span parts[2] = {span_of_text(a), span_of_text(b)}, key;
    assert_int_equal(joined_key_make(&joined, &key, parts, 2, NULL), 0);
    assert_true(span_equals(key, expected));
}

/* B18: parts that hold the separator must not make the key of other parts. */
TEST(test_joined_parts_are_never_ambiguous)
{
    expect_joined("203.0.113.9", "/a", "203.0.113.9+/a");
    expect_joined("a+b", "c", "a\\+b+c");
    expect_joined("a", "b+c", "a+b\\+c");
    expect_joined("a\\", "+b", "a\\\\+\\+b");
    expect_joined("", "", "+");
    static struct joined_key joined;
    struct span single = span_of_text("a+b\\c"), key;
    assert_int_equal(joined_key_make(&joined, &key, &single, 1, NULL), 0);
    assert_true(span_equals(key, "a+b\\c"));
}

/* A key too long is refused, never cut. */
TEST(test_joined_keys_are_never_cut)
{
    static struct joined_key joined;
    static uint8_t bytes[STINT_KEY_MAX];
    struct span key, parts[2] = {{bytes, STINT_KEY_MAX - 2}, {bytes, 1}};
    assert_int_equal(joined_key_make(&joined, &key, parts, 2, NULL), 0);
    assert_int_equal(key.len, STINT_KEY_MAX);
    parts[1].len = 2;
    assert_int_equal(joined_key_make(&joined, &key, parts, 2, NULL), STINT_E_RANGE);
    parts[0] = span_of("+", 1);
    parts[1].len = STINT_KEY_MAX - 2;
    assert_int_equal(joined_key_make(&joined, &key, parts, 2, NULL), STINT_E_RANGE);
}
