/* SPDX-License-Identifier: MIT */
/*
 * Lines of the log: nothing in a field ends a line, and what comes too often is counted. Real time:
 * the log has a clock of its own, since every line tells the time.
 */
#define _GNU_SOURCE
#include "io/log.h"

#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

struct written {
    struct log *log;
    int fds[2];
    char text[65536];
};

static void open_log(struct written *written, enum log_format format, enum log_level least)
{
    assert_int_equal(pipe(written->fds), 0);
    written->log = log_new(written->fds[1], format, least);
}

static const char *close_log(struct written *written)
{
    log_free(written->log);
    close(written->fds[1]);
    size_t len = 0;
    for (ssize_t got;
         (got = read(written->fds[0], written->text + len, sizeof(written->text) - 1 - len)) > 0;)
        len += (size_t)got;
    close(written->fds[0]);
    written->text[len] = '\0';
    return written->text;
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

static void test_a_line_of_text(void **state)
{
    (void)state;
    struct written written;
    open_log(&written, LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    log_line(written.log, LOG_LISTENS, LOG_TEXT("door", "resp"), LOG_NUMBER("port", 7379));
    const char *text = close_log(&written);
    assert_string_equal(text + strlen("2026-01-01T00:00:00.000Z"),
                        " info listens: listening door=resp port=7379\n");
}

static void test_fields_cannot_forge_lines(void **state)
{
    (void)state;
    static const char hostile[] = "a\nb=\"c\" \\ \x1b[31m\x7f";
    struct written written;
    open_log(&written, LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    log_line(written.log, LOG_LISTENS, LOG_TEXT("address", hostile));
    const char *text = close_log(&written);
    assert_int_equal(count(text, "\n"), 1);
    assert_int_equal(count(text, "\x1b"), 0);
    assert_non_null(strstr(text, "address=\"a\\u000ab=\\\"c\\\" \\\\ \\u001b[31m\\u007f\"\n"));

    open_log(&written, LOG_FORMAT_JSON, LOG_LEVEL_INFO);
    log_line(written.log, LOG_LISTENS, LOG_TEXT("address", hostile));
    json_t *line = json_loads(close_log(&written), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(line, "address")), hostile);
    assert_string_equal(json_string_value(json_object_get(line, "event")), "listens");
    json_decref(line);
}

static void test_lesser_levels_are_left_out(void **state)
{
    (void)state;
    struct written written;
    open_log(&written, LOG_FORMAT_TEXT, LOG_LEVEL_ERROR);
    log_line(written.log, LOG_REFUSED, LOG_TEXT("reason", "warned"));
    log_line(written.log, LOG_RELOAD_FAILED, LOG_TEXT("reason", "failed"));
    const char *text = close_log(&written);
    assert_null(strstr(text, "warned"));
    assert_non_null(strstr(text, "failed"));
}

static void test_what_comes_too_often_is_held_back_and_counted(void **state)
{
    (void)state;
    struct written written;
    open_log(&written, LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    for (int i = 0; i < 500; i++)
        log_line(written.log, LOG_REFUSED, LOG_NUMBER("turn", (uint64_t)i));
    log_line(written.log, LOG_STOPPED, LOG_NUMBER("pid", 1)); /* another kind has its own count */
    usleep(1100 * 1000);
    log_line(written.log, LOG_REFUSED, LOG_NUMBER("turn", 500));
    const char *text = close_log(&written);
    size_t n_lines = count(text, " refused: ");
    assert_true(n_lines >= 21 && n_lines <= 23);
    assert_int_equal(count(text, "stopped:"), 1);
    char told[64];
    snprintf(told, sizeof(told), "suppressed=%zu turn=500", 501 - n_lines);
    assert_non_null(strstr(text, told));
}

static void test_a_field_that_does_not_fit_is_left_out_whole(void **state)
{
    (void)state;
    static char longest[8192];
    memset(longest, 'x', sizeof(longest) - 1);
    struct written written;
    open_log(&written, LOG_FORMAT_JSON, LOG_LEVEL_INFO);
    log_line(written.log, LOG_LISTENS, LOG_TEXT("long", longest), LOG_TEXT("short", "kept"));
    json_t *line = json_loads(close_log(&written), 0, NULL);
    assert_null(json_object_get(line, "long"));
    assert_string_equal(json_string_value(json_object_get(line, "short")), "kept");
    json_decref(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_of_text),
        cmocka_unit_test(test_fields_cannot_forge_lines),
        cmocka_unit_test(test_lesser_levels_are_left_out),
        cmocka_unit_test(test_what_comes_too_often_is_held_back_and_counted),
        cmocka_unit_test(test_a_field_that_does_not_fit_is_left_out_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
