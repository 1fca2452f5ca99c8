/* SPDX-License-Identifier: MIT */
/* Characters of UTF-8: all there are, each known by its length, and nothing else taken for one. */
#include "unit/test_quota.h"

#include "base/utf8.h"

/* The bytes that RFC 3629 gives a code point, surrogates included. */
static size_t encode(uint32_t code, uint8_t bytes[4])
{
    size_t len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t leads[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    for (size_t i = len - 1; i > 0; i--, code >>= 6)
        bytes[i] = (uint8_t)(0x80 | (code & 0x3f));
    bytes[0] = (uint8_t)(leads[len] | code);
    return len;
}

TEST(test_a_text_is_valid_as_a_whole)
{
    static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";
    static const bool ends[] = {1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1}; /* of a character, by length */
    for (size_t len = 0; len < sizeof(text); len++)
        assert_int_equal(utf8_is_valid((const uint8_t *)text, len), ends[len]);
    assert_false(utf8_is_valid((const uint8_t *)"a\xff"
                                                "b",
                               3));
}

TEST(test_every_code_point_is_known_and_no_part_of_it)
{
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        uint8_t bytes[4];
        size_t len = encode(code, bytes);
        bool is_surrogate = code >= 0xd800 && code < 0xe000;
        assert_int_equal(utf8_length(bytes, 4), is_surrogate ? 0 : len);
        for (size_t cut = 1; cut < len; cut++)
            assert_int_equal(utf8_length(bytes, cut), 0);
    }
    uint8_t beyond[4];
    encode(0x110000, beyond);
    assert_int_equal(utf8_length(beyond, 4), 0);
}

/* As many strings of two and of three bytes are characters as there are code points for them. */
TEST(test_nothing_else_is_taken_for_a_character)
{
    size_t n[5] = {0};
    for (uint32_t word = 0; word < 1u << 24; word++) {
        const uint8_t bytes[] = {(uint8_t)(word >> 16), (uint8_t)(word >> 8), (uint8_t)word};
        n[utf8_length(bytes, 3)]++;
    }
    assert_int_equal(n[1], 0x80u << 16);
    assert_int_equal(n[2], (0x800u - 0x80) << 8);
    assert_int_equal(n[3], 0x10000 - 0x800 - 0x800);
    assert_int_equal(n[4], 0);
}

TEST(test_no_four_bytes_are_taken_for_another_character)
{
    static const uint8_t edges[] = {0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    size_t n = 0;
    for (uint32_t word = 0; word < 1u << 16; word++)
        for (size_t third = 0; third < sizeof(edges); third++)
            for (size_t fourth = 0; fourth < sizeof(edges); fourth++) {
                const uint8_t bytes[] = {(uint8_t)(word >> 8), (uint8_t)word, edges[third],
                                         edges[fourth]};
                n += utf8_length(bytes, 4) == 4;
            }
    /* 2^20 characters, 64 of each third and fourth byte, of which two are tried. */
    assert_int_equal(n, (1u << 20) / 64 / 64 * 2 * 2);
}
