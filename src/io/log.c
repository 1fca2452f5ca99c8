/* SPDX-License-Identifier: MIT */
/* Lines are made in one piece of memory and written by one call, so that threads do not mix. */
#define _GNU_SOURCE
#include "io/log.h"

#include "base/buf.h"
#include "base/ns.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 2048
/* A kind may say 20 lines at once, and one in a second after that. */
#define LOG_QUOTA "gcra 60/1m burst=20"

struct log_of_kind {
    struct stint_cell8 lines;
    _Atomic uint64_t
        held_back; /* relaxed: a figure for people, whom one line more or less misses */
};

struct log {
    struct stint_quota quota;
    struct log_of_kind kinds[LOG_KIND_COUNT];
    int fd;
    /* relaxed: of lines that are written while they change, each is of one format or the other. */
    _Atomic(enum log_format) format;
    _Atomic(enum log_level) least;
};

static const struct {
    enum log_level level;
    const char *name, *sentence;
} kinds[] = {
#define LOG_ROW(kind, level, name, sentence) {LOG_LEVEL_##level, name, sentence},
    LOG_KINDS(LOG_ROW)
#undef LOG_ROW
};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

struct log *log_new(int fd, enum log_format format, enum log_level least)
{
    struct log *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return NULL;
    log->fd = fd;
    log_set(log, format, least);
    if (stint_quota_parse(&log->quota, LOG_QUOTA, NULL) != 0)
        abort();
    for (size_t i = 0; i < LOG_KIND_COUNT; i++)
        stint_cell8_init(&log->quota, &log->kinds[i].lines, 0);
    return log;
}

void log_set(struct log *log, enum log_format format, enum log_level least)
{
    atomic_store_explicit(&log->format, format, memory_order_relaxed);
    atomic_store_explicit(&log->least, least, memory_order_relaxed);
}

void log_free(struct log *log)
{
    free(log);
}

/* Text comes from files and peers: no byte of it may end the line, or steer a terminal. */
static void add_escaped(struct buf *buf, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            buf_add(buf, "\\%c", *c);
        else if ((unsigned char)*c < 0x20 || *c == 0x7f)
            buf_add(buf, "\\u%04x", (unsigned char)*c);
        else
            buf_add(buf, "%c", *c);
    }
}

static bool is_word(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || *c == 0x7f || *c == '"' || *c == '=' || *c == '\\')
            return false;
    return text[0] != '\0';
}

static void add_field_text(struct buf *buf, const struct log_field *field)
{
    if (field->text == NULL)
        buf_add(buf, " %s=%" PRIu64, field->name, field->number);
    else if (is_word(field->text))
        buf_add(buf, " %s=%s", field->name, field->text);
    else {
        buf_add(buf, " %s=\"", field->name);
        add_escaped(buf, field->text);
        buf_add(buf, "\"");
    }
}

static void add_field_json(struct buf *buf, const struct log_field *field)
{
    if (field->text == NULL) {
        buf_add(buf, ",\"%s\":%" PRIu64, field->name, field->number);
        return;
    }
    buf_add(buf, ",\"%s\":\"", field->name);
    add_escaped(buf, field->text);
    buf_add(buf, "\"");
}

static void add_time(struct buf *buf, const struct timespec *wall)
{
    struct tm utc;
    gmtime_r(&wall->tv_sec, &utc);
    buf_add(buf, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", utc.tm_year + 1900, utc.tm_mon + 1,
            utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, wall->tv_nsec / (long)NS_PER_MS);
}

static void add_head(struct buf *buf, bool is_json, enum log_kind kind, const struct timespec *wall)
{
    buf_add(buf, is_json ? "{\"time\":\"" : "");
    add_time(buf, wall);
    buf_add(buf, is_json ? "\",\"level\":\"%s\",\"event\":\"%s\",\"message\":\"%s\"" : " %s %s: %s",
            level_names[kinds[kind].level], kinds[kind].name, kinds[kind].sentence);
}

static void write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, text, len);
        if (written <= 0)
            return; /* nobody is left to be told */
        text += written;
        len -= (size_t)written;
    }
}

/* Whether a line of this kind may be written now; counts it otherwise. */
static bool is_let_through(struct log *log, enum log_kind kind, uint64_t now_ns,
                           uint64_t *held_back)
{
    struct log_of_kind *of_kind = &log->kinds[kind];
    if (stint_cell8_take(&log->quota, &of_kind->lines, now_ns, 1).outcome != STINT_ALLOW) {
        atomic_fetch_add_explicit(&of_kind->held_back, 1, memory_order_relaxed);
        return false;
    }
    *held_back = atomic_exchange_explicit(&of_kind->held_back, 0, memory_order_relaxed);
    return true;
}

void log_write(struct log *log, enum log_kind kind, const struct log_field *fields, size_t n_fields)
{
    if (kinds[kind].level < atomic_load_explicit(&log->least, memory_order_relaxed))
        return;
    bool is_json = atomic_load_explicit(&log->format, memory_order_relaxed) == LOG_FORMAT_JSON;
    struct timespec wall, steady;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_MONOTONIC, &steady);
    uint64_t now_ns = (uint64_t)steady.tv_sec * NS_PER_S + (uint64_t)steady.tv_nsec, held_back = 0;
    if (!is_let_through(log, kind, now_ns, &held_back))
        return;

    char text[LOG_LINE_MAX];
    /* Room for what ends the line stays free, however long its fields are. */
    struct buf buf = buf_of(text, sizeof(text) - 8);
    add_head(&buf, is_json, kind, &wall);
    void (*add_field)(struct buf *, const struct log_field *) =
        is_json ? add_field_json : add_field_text;
    if (held_back > 0)
        add_field(&buf, &LOG_NUMBER("suppressed", held_back));
    for (size_t i = 0; i < n_fields; i++) {
        struct buf before = buf;
        add_field(&buf, &fields[i]);
        if (buf.len >= buf.size) { /* a field that does not fit is left out whole */
            buf = before;
            text[buf.len] = '\0';
        }
    }
    if (is_json)
        text[buf.len++] = '}';
    text[buf.len++] = '\n';
    write_all(log->fd, text, buf.len);
}
