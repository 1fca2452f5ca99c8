/* SPDX-License-Identifier: MIT */
/* Lines are the same whatever the sizes of the pieces that the bytes come in. */
#include "unit/test.h"

#include "sim/input/reader.h"

/* Gives out `bytes` in pieces of at most `piece`, and fails at `fails_at` if that is not 0. */
struct source {
    const uint8_t *bytes;
    size_t len, at, piece, fails_at;
};

static long fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error)
{
    struct source *source = arg;
    if (source->fails_at != 0 && source->at >= source->fails_at)
        return err_set(error, STINT_E_SYSTEM, "the source failed");
    size_t n = source->len - source->at;
    n = n < size ? n : size;
    n = n < source->piece ? n : source->piece;
    memcpy(bytes, source->bytes + source->at, n);
    source->at += n;
    return (long)n;
}

/* The transcript of a whole input: lines in brackets, `!` for one too long. */
static void transcribe(char *text, size_t size, const void *bytes, size_t len, size_t piece)
{
    struct source source = {.bytes = bytes, .len = len, .piece = piece};
    struct reader reader;
    struct span line;
    int kind;
    size_t at = 0;
    assert_int_equal(reader_init(&reader, fill, &source, NULL), 0);
    text[0] = '\0';
    while ((kind = reader_next(&reader, &line, NULL)) > 0) {
        int n = kind == READER_TOO_LONG
                    ? snprintf(text + at, size - at, "%d!", (int)reader.line_number)
                    : snprintf(text + at, size - at, "%d[%.*s]", (int)reader.line_number,
                               (int)line.len, (const char *)line.ptr);
        at += (size_t)n;
        assert_true(at < size);
    }
    assert_int_equal(kind, READER_END);
    assert_int_equal(reader_next(&reader, &line, NULL), READER_END);
    reader_deinit(&reader);
}

static void expect(const char *input, const char *transcript)
{
    static const size_t pieces[] = {1, 2, 3, 7, 1 << 20};
    for (size_t i = 0; i < N(pieces); i++) {
        char text[1024];
        transcribe(text, sizeof(text), input, strlen(input), pieces[i]);
        assert_string_equal(text, transcript);
    }
}

TEST(test_cuts_lines)
{
    expect("", "");
    expect("a", "1[a]");
    expect("a\n", "1[a]");
    expect("\n", "1[]");
    expect("a\n\nbc\r\nlast", "1[a]2[]3[bc]4[last]");
    expect("\r\n\r", "1[]2[]");
}

/* A line of the greatest length is read, one byte more is left out, and the next is read again. */
TEST(test_leaves_out_lines_that_are_too_long)
{
    static const size_t longer[] = {0, 1, 2, READER_BLOCK, 3 * READER_BLOCK + 5};
    for (size_t i = 0; i < N(longer); i++) {
        size_t long_len = READER_LINE_MAX + longer[i], len = 2 + long_len + 3;
        uint8_t *input = malloc(len);
        assert_non_null(input);
        memset(input, 'x', len);
        memcpy(input, "a\n", 2);
        memcpy(input + len - 3, "\nb\n", 3);
        static const size_t pieces[] = {1000, 65537, 1 << 20};
        for (size_t j = 0; j < 3 && longer[i] > 0; j++) {
            char text[64];
            transcribe(text, sizeof(text), input, len, pieces[j]);
            assert_string_equal(text, "1[a]2!3[b]");
            transcribe(text, sizeof(text), input, len - 3, pieces[j]); /* not even a newline */
            assert_string_equal(text, "1[a]2!");
        }
        if (longer[i] == 0) {
            struct source source = {.bytes = input, .len = len, .piece = 4096};
            struct reader reader;
            struct span line;
            assert_int_equal(reader_init(&reader, fill, &source, NULL), 0);
            assert_int_equal(reader_next(&reader, &line, NULL), READER_LINE);
            assert_int_equal(reader_next(&reader, &line, NULL), READER_LINE);
            assert_int_equal(line.len, READER_LINE_MAX);
            reader_deinit(&reader);
        }
        free(input);
    }
}

/* Many lines over many blocks: every byte comes out once, in order. */
TEST(test_loses_nothing_at_the_edges_of_blocks)
{
    enum { LINES = 300000 };
    char *input = malloc(LINES * 24);
    assert_non_null(input);
    size_t len = 0;
    for (int i = 0; i < LINES; i++)
        len += (size_t)sprintf(input + len, "line %0*d\n", 1 + i % 15, i);
    assert_true(len > 2 * (size_t)READER_BLOCK);
    struct source source = {.bytes = (const uint8_t *)input, .len = len, .piece = 99991};
    struct reader reader;
    struct span line;
    assert_int_equal(reader_init(&reader, fill, &source, NULL), 0);
    for (int i = 0; i < LINES; i++) {
        char expected[32];
        snprintf(expected, sizeof(expected), "line %0*d", 1 + i % 15, i);
        assert_int_equal(reader_next(&reader, &line, NULL), READER_LINE);
        assert_true(span_equals(line, expected));
    }
    assert_int_equal(reader_next(&reader, &line, NULL), READER_END);
    reader_deinit(&reader);
    free(input);
}

/* A source that fails is reported, not taken for the end; whole lines before it were given out. */
TEST(test_reports_a_source_that_fails)
{
    struct source source = {(const uint8_t *)"a\nb", 3, 0, 3, 3};
    struct reader reader;
    struct span line;
    struct stint_error error;
    assert_int_equal(reader_init(&reader, fill, &source, NULL), 0);
    assert_int_equal(reader_next(&reader, &line, &error), READER_LINE);
    assert_int_equal(reader_next(&reader, &line, &error), STINT_E_SYSTEM);
    assert_string_equal(error.message, "the source failed");
    reader_deinit(&reader);
}
