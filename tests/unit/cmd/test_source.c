/* SPDX-License-Identifier: MIT */
/* Which format a line is in, also where it resembles two of them. */
#define _GNU_SOURCE
#include "unit/test.h"

#include "cmd/lib/input.h"
#include "cmd/lib/source.h"

#include <unistd.h>

#define DATE "[17/May/2015:10:05:03 +0000]"

TEST(test_lines_and_their_formats)
{
    static const struct {
        const char *line;
        enum source_format format;
    } rows[] = {
        {"0 a", SOURCE_TRACE},
        {"1.25\tuser:7 3 # late", SOURCE_TRACE},
        {"0 {\"key\":1}", SOURCE_TRACE},
        {"0 a 4294967296", SOURCE_TRACE}, /* which says what is wrong with it */
        {"192.0.2.1 - - " DATE " \"GET / HTTP/1.1\" 200 5", SOURCE_COMBINED},
        {"1 - - " DATE " \"GET / HTTP/1.1\" 200 5", SOURCE_COMBINED},
        {"2001:db8::1 - \"a b\" " DATE " \"\" 400 0 \"-\" \"\"", SOURCE_COMBINED},
        {"{}", SOURCE_JSONL},
        {"  {\"time\": 1, \"key\": \"a\"} ", SOURCE_JSONL},
        {"", SOURCE_ANY},
        {"# 0 a", SOURCE_ANY},
        {"[1]", SOURCE_ANY},
        {"{\"time\": 1,", SOURCE_ANY},
        {"192.0.2.1 - - " DATE " \"GET / HT", SOURCE_ANY},
        {"2026-03-14 09:00:05 started", SOURCE_ANY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(source_format_of(span_of_text(rows[i].line)), rows[i].format);
}

/* A path that cannot be read is named, with what to do where that is known. */
TEST(test_files_that_cannot_be_read)
{
    struct stint_error error = {.message = ""};
    struct input_stat found;
    struct input input;
    uint8_t some[16];
    assert_int_equal(input_stat("/none", &found, &error), STINT_E_SYSTEM);
    assert_non_null(strstr(error.message, "cannot open /none: "));
    assert_int_equal(input_stat("/tmp", &found, &error), STINT_E_SYSTEM);
    assert_non_null(strstr(error.message, "/tmp is a folder; expected a file"));
    assert_int_equal(input_open(&input, "/none", &error), STINT_E_SYSTEM);
    assert_non_null(strstr(error.message, "cannot open /none: "));
    assert_int_equal(input_open(&input, "/tmp", &error), STINT_E_SYSTEM);
    assert_non_null(strstr(error.message, "cannot read /tmp: "));

    char path[] = "/tmp/test_source.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "0 a\n", 4) == 4);
    close(fd);
    assert_int_equal(input_stat(path, &found, &error), 0);
    assert_true(found.is_regular && found.size == 4);
    assert_int_equal(input_open(&input, path, &error), 0);
    assert_int_equal(input_fill(&input, some, sizeof(some), &error), 4);
    input_close(&input);
    unlink(path);
}
