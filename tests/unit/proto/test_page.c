/* SPDX-License-Identifier: MIT */
/* A page grows to hold whatever is appended, byte for byte. */
#include "unit/test.h"

#include "proto/page.h"

TEST(test_bytes_come_out_as_they_went_in)
{
    struct page page = {0};
    page_add(&page, "");
    assert_int_equal(page.len, 0);
    page_add(&page, "one");
    page_add_span(&page, span_of("\0two", 4));
    page_print(&page, " %d%s", 3, "");
    assert_int_equal(page.len, 9);
    assert_memory_equal(page.text, "one\0two 3", 9);
    page_free(&page);
    assert_null(page.text);
    assert_int_equal(page.len, 0);
}

/* Each length in turn, so that a text ends before, at and behind every end of the memory. */
TEST(test_it_grows_at_any_length)
{
    struct page page = {0};
    size_t expected = 0;
    for (int width = 1; width < 300; width++) {
        page_print(&page, "%*d", width, width);
        expected += (size_t)width;
        assert_int_equal(page.len, expected);
        assert_int_equal(page.text[page.len - 1], '0' + width % 10);
    }
    assert_false(page.failed);
    page_free(&page);
}

TEST(test_too_much_fails_and_keeps_what_is_there)
{
    struct page page = {0};
    page_add(&page, "kept");
    page_add_span(&page, span_of(page.text, PAGE_MAX)); /* refused before it is read */
    assert_true(page.failed);
    page_add(&page, "more");
    page_print(&page, "%s", "more");
    assert_int_equal(page.len, 4);
    assert_memory_equal(page.text, "kept", 4);
    page_free(&page);
}
