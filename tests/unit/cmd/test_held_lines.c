/* SPDX-License-Identifier: MIT */
/* What `stint pace` has read and not released: nothing is lost, doubled or reordered. */
#include "unit/test.h"

#include "cmd/lib/held_lines.h"

static void add(struct held_lines *held, const char *bytes, size_t n)
{
    char *space = held_lines_space(held, n);
    assert_non_null(space);
    memcpy(space, bytes, n);
    held_lines_added(held, n);
}

/* A stream cut into pieces of every size, released in batches of every size, stays the same. */
TEST(test_lines_come_out_as_they_came_in)
{
    static const char text[] = "one\ntwo\n\nfour is longer\nfive\n\n\neight\nlast without newline";
    size_t len = sizeof(text) - 1;
    for (size_t piece = 1; piece <= len; piece++)
        for (size_t batch = 1; batch <= 9; batch++) {
            struct held_lines held = {0};
            char out[sizeof(text) + 1];
            size_t out_len = 0;
            for (size_t at = 0; at <= len; at += piece) {
                add(&held, text + at, len - at < piece ? len - at : piece);
                if (len - at < piece)
                    assert_true(held_lines_complete(&held));
                while (held.n_lines >= batch || (len - at < piece && held.n_lines > 0)) {
                    size_t n_lines = held.n_lines < batch ? held.n_lines : batch;
                    size_t n = held_lines_length(&held, n_lines);
                    memcpy(out + out_len, held.bytes + held.begin, n);
                    out_len += n;
                    held_lines_drop(&held, n_lines);
                }
            }
            assert_int_equal(out_len, len + 1);
            assert_memory_equal(out, text, len);
            assert_int_equal(out[len], '\n');
            assert_int_equal(held.n_partial, 0);
            held_lines_deinit(&held);
        }
}

/* Memory follows what is held, not what has passed. */
TEST(test_memory_does_not_grow_with_the_stream)
{
    struct held_lines held = {0};
    for (int i = 0; i < 100000; i++) {
        add(&held, "a line of some length\n", 22);
        held_lines_drop(&held, 1);
    }
    assert_true(held.size < 1024);
    held_lines_deinit(&held);
}

TEST(test_complete_adds_nothing_to_whole_lines)
{
    struct held_lines held = {0};
    assert_true(held_lines_complete(&held));
    assert_int_equal(held.n_lines, 0);
    add(&held, "a\n", 2);
    assert_true(held_lines_complete(&held));
    assert_int_equal(held.n_lines, 1);
    assert_int_equal(held_lines_length(&held, 1), 2);
    held_lines_deinit(&held);
}
