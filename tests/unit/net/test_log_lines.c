/* SPDX-License-Identifier: MIT */
/*
 * Lines of the log: nothing in a field ends a line, and what comes too often is counted. Real time:
 * the log has a clock of its own, since every line tells the time.
 */
#define _GNU_SOURCE
#include "unit/test.h"

#include "base/splitmix.h"
#include "net/log/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <sys/socket.h>
#include <unistd.h>

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

TEST(test_a_line_of_text)
{
    struct written written;
    open_log(&written, LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    log_line(written.log, LOG_LISTENS, LOG_TEXT("frontend", "resp"), LOG_NUMBER("port", 7379));
    const char *text = close_log(&written);
    assert_string_equal(text + strlen("2026-01-01T00:00:00.000Z"),
                        " info listens: listening frontend=resp port=7379\n");
}

TEST(test_fields_cannot_forge_lines)
{
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

/* Seeded; no zero, which would end the text. */
static const char *any_bytes(char *text, size_t len, uint64_t *seed)
{
    for (size_t i = 0; i < len; i++) {
        text[i] = (char)(splitmix_next(seed) % 255 + 1);
    }
    text[len] = '\0';
    return text;
}

TEST(test_every_kind_is_one_json_object_with_any_bytes)
{
    struct written written;
    char text[64];
    uint64_t seed = 1;
    size_t n_lines = 0;
    open_log(&written, LOG_FORMAT_JSON, LOG_LEVEL_DEBUG);
    for (int turn = 0; turn < 4; turn++)
        for (int kind = 0; kind < LOG_KIND_COUNT; kind++)
            log_line(written.log, (enum log_kind)kind, LOG_NUMBER("kind", (uint64_t)kind),
                     LOG_TEXT("bytes", any_bytes(text, 8 + (size_t)turn * 16, &seed)));
    close_log(&written);
    for (char *line = strtok(written.text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (object == NULL)
            fail_msg("not JSON: %s", line);
        assert_int_equal(json_object_size(object), 6);
        assert_int_equal(json_integer_value(json_object_get(object, "kind")),
                         n_lines++ % LOG_KIND_COUNT);
        json_decref(object);
    }
    assert_int_equal(n_lines, 4 * LOG_KIND_COUNT);
}

TEST(test_lesser_levels_are_left_out)
{
    struct written written;
    open_log(&written, LOG_FORMAT_TEXT, LOG_LEVEL_ERROR);
    log_line(written.log, LOG_REFUSED, LOG_TEXT("reason", "warned"));
    log_line(written.log, LOG_RELOAD_FAILED, LOG_TEXT("reason", "failed"));
    const char *text = close_log(&written);
    assert_null(strstr(text, "warned"));
    assert_non_null(strstr(text, "failed"));
}

TEST(test_what_comes_too_often_is_held_back_and_counted)
{
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

TEST(test_a_field_that_does_not_fit_is_left_out_whole)
{
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

/* The numbers of a log of which every line has one, "turn=N", or says how many were lost. */
static void count_lines(const char *text, size_t *n_told, size_t *n_lost)
{
    for (const char *at = text; (at = strstr(at, " turn=")) != NULL; at++)
        ++*n_told;
    for (const char *at = text; (at = strstr(at, " lines=")) != NULL; at++)
        *n_lost += strtoul(at + strlen(" lines="), NULL, 10);
}

/* A line of each kind in turn: so none is held back for coming too often. */
static size_t write_lines(struct log *log, size_t n)
{
    static char filler[1500];
    memset(filler, 'x', sizeof(filler) - 1);
    for (size_t i = 0; i < n; i++)
        log_line(log, (enum log_kind)(i % LOG_LINES_LOST), LOG_NUMBER("turn", i),
                 LOG_TEXT("filler", filler));
    return n;
}

static size_t read_now(int fd, char *text, size_t size)
{
    ssize_t got = read(fd, text, size - 1);
    text[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* A writer that waited would wait for ever: nobody else reads. */
static void assert_nobody_waits(int fds[2])
{
    char text[65536];
    size_t n_told = 0, n_lost = 0, n_written;
    struct log *log = log_new(fds[1], LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    n_written = write_lines(log, 5 * LOG_LINES_LOST);
    assert_true(read_now(fds[0], text, sizeof(text)) > 0);
    count_lines(text, &n_told, &n_lost);
    assert_in_range(n_told, 1, n_written - 1);
    log_flush(log);
    n_written += write_lines(log, 3);
    char rest[65536];
    size_t len = 0;
    log_free(log);
    close(fds[1]);
    for (size_t got; (got = read_now(fds[0], rest + len, sizeof(rest) - len)) > 0; len += got)
        ;
    close(fds[0]);
    count_lines(rest, &n_told, &n_lost);
    assert_true(n_lost > 0);
    assert_int_equal(n_told + n_lost, n_written);
    assert_null(strstr(rest, "xx20")); /* no line stands within another */
}

TEST(test_a_pipe_that_nobody_reads)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_true(fcntl(fds[1], F_SETPIPE_SZ, 8192) >= 8192);
    assert_nobody_waits(fds);
}

TEST(test_a_socket_that_nobody_reads)
{
    int fds[2], size = 8192;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    assert_nobody_waits(fds);
}
