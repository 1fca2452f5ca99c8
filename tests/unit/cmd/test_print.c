/* SPDX-License-Identifier: MIT */
/* What others wrote is shown on a terminal so that it is seen, and steers nothing. */
#define _GNU_SOURCE
#include "unit/test.h"

#include "cmd/lib/print.h"

static const struct shown_as {
    const char *text;
    size_t len;
    const char *shown, *plain;
} cases[] = {
    {"key", 3, "key", "key"},
    {"gr\xc3\xbc\xc3\x9f dich \xe2\x82\xac \xf0\x9f\x9a\xa6", 20,
     "gr\xc3\xbc\xc3\x9f dich \xe2\x82\xac \xf0\x9f\x9a\xa6",
     "gr\xc3\xbc\xc3\x9f dich \xe2\x82\xac \xf0\x9f\x9a\xa6"},
    {"a\0b", 3, "a\\x00b", NULL},
    {"\x1b[31m\t\n\x7f", 8, "\\x1b[31m\\x09\\x0a\\x7f", "?[31m???"},
    {"\xc2\x9b"
     "31m",
     5, "\\u{9b}31m", "?31m"}, /* CSI in C1 */
    {"\x9b"
     "31m",
     4, "\\x9b31m", "?31m"}, /* the same, not UTF-8 */
    {"a\xe2\x80\xae"
     "b",
     5, "a\\u{202e}b", "a?b"}, /* right-to-left override */
    {"\xe2\x80\xaa\xe2\x81\xa6\xe2\x81\xa9", 9, "\\u{202a}\\u{2066}\\u{2069}", "???"},
    {"\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c", 8, "\\u{200e}\\u{200f}\\u{61c}", "???"},
    {"a\xe2\x80\x8b\xef\xbb\xbf", 7, "a\\u{200b}\\u{feff}", "a??"}, /* without width */
    {"\xe2\x80\xa8\xe2\x80\xa9", 6, "\\u{2028}\\u{2029}", "??"},    /* separators */
    {"\xf3\xa0\x81\x81", 4, "\\u{e0041}", "?"},                     /* a tag */
    {"\xe2\x80", 2, "\\xe2\\x80", "??"},                            /* cut */
};
#define N_CASES (N(cases))

static struct span text_of(const struct shown_as *one)
{
    return span_of(one->text, one->len);
}

TEST(test_hidden_characters_are_shown)
{
    char shown[128];
    for (size_t i = 0; i < N_CASES; i++)
        assert_string_equal(format_text(shown, sizeof(shown), text_of(&cases[i])), cases[i].shown);
}

TEST(test_a_key_is_printed_as_it_is_shown)
{
    for (size_t i = 0; i < N_CASES; i++) {
        char *printed = NULL;
        size_t len = 0;
        FILE *out = open_memstream(&printed, &len);
        assert_non_null(out);
        print_escaped(out, text_of(&cases[i]));
        fclose(out);
        assert_string_equal(printed, cases[i].shown);
        free(printed);
    }
}

TEST(test_a_text_is_made_plain_in_its_place)
{
    char text[64];
    for (size_t i = 0; i < N_CASES; i++) {
        if (cases[i].plain == NULL)
            continue;
        memcpy(text, cases[i].text, cases[i].len + 1);
        hide_controls(text);
        assert_string_equal(text, cases[i].plain);
    }
}

/* Never in the middle of an escape or of a character. */
TEST(test_what_does_not_fit_is_cut_before_it)
{
    char shown[16];
    const struct span text = span_of_text("ab\xe2\x80\xae\xc3\xbc");
    assert_string_equal(format_text(shown, 1, text), "");
    assert_string_equal(format_text(shown, 10, text), "ab");
    assert_string_equal(format_text(shown, 11, text), "ab\\u{202e}");
    assert_string_equal(format_text(shown, 12, text), "ab\\u{202e}");
    assert_string_equal(format_text(shown, 13, text), "ab\\u{202e}\xc3\xbc");
}
