/* SPDX-License-Identifier: MIT */
/* Which format a line is in, also where it resembles two of them. */
#include "unit/test.h"

#include "sim/input/log_format.h"

#define DATE "[17/May/2015:10:05:03 +0000]"

TEST(test_lines_and_their_formats)
{
    static const struct {
        const char *line;
        enum log_format format;
    } rows[] = {
        {"0 a", LOG_TRACE},
        {"1.25\tuser:7 3 # late", LOG_TRACE},
        {"0 {\"key\":1}", LOG_TRACE},
        {"0 a 4294967296", LOG_TRACE}, /* which says what is wrong with it */
        {"192.0.2.1 - - " DATE " \"GET / HTTP/1.1\" 200 5", LOG_COMBINED},
        {"1 - - " DATE " \"GET / HTTP/1.1\" 200 5", LOG_COMBINED},
        {"2001:db8::1 - \"a b\" " DATE " \"\" 400 0 \"-\" \"\"", LOG_COMBINED},
        {"{}", LOG_JSONL},
        {"  {\"time\": 1, \"key\": \"a\"} ", LOG_JSONL},
        {"", LOG_ANY},
        {"# 0 a", LOG_ANY},
        {"[1]", LOG_ANY},
        {"{\"time\": 1,", LOG_ANY},
        {"192.0.2.1 - - " DATE " \"GET / HT", LOG_ANY},
        {"2026-03-14 09:00:05 started", LOG_ANY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(log_format_of(span_of_text(rows[i].line)), rows[i].format);
}
