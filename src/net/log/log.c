/* SPDX-License-Identifier: MIT */
/* Lines are assembled in one buffer and written whole, under a lock that is held briefly. */
#define _GNU_SOURCE
#include "net/log/log.h"

#include "base/buf.h"
#include "base/ns.h"
#include "base/utf8.h"
#include "service/server_state.h"
#include "service/service.h"
#include "table/table.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

/* ---- Output ---------------------------------------------------------------------------------- */

/*
 * The output of the log: a descriptor whose reader may be slow or stopped. A line is written whole
 * or not at all, without waiting. One thread at a time.
 */

#define LOG_LINE_MAX 2048

struct log_out {
    int fd;
    bool is_own; /* opened again, so that its flags are not shared */
    bool is_socket;
    char rest[LOG_LINE_MAX]; /* the rest of a partly written line */
    size_t rest_len;
};

/*
 * O_NONBLOCK belongs to the open file, which the shell and others share: a pipe or terminal is
 * opened again, and a socket gets a flag with each write. Other descriptors are polled for space.
 */

#define REST_MS 1000 /* for a slow reader, to read the rest of a line at the end */

static void log_out_init(struct log_out *out, int fd)
{
    struct stat status;
    char path[32];
    *out = (struct log_out){.fd = fd};
    if (fstat(fd, &status) != 0)
        return;
    out->is_socket = S_ISSOCK(status.st_mode);
    if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode))
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    out->is_own = own >= 0;
    if (out->is_own)
        out->fd = own;
}

/* Waits at most so long for space. */
static bool has_space(const struct log_out *out, int ms)
{
    struct pollfd asked = {.fd = out->fd, .events = POLLOUT};
    return poll(&asked, 1, ms) != 0;
}

static ssize_t write_now(const struct log_out *out, const char *text, size_t len)
{
    if (out->is_socket)
        return send(out->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!out->is_own && !has_space(out, 0)) {
        errno = EAGAIN;
        return -1;
    }
    return write(out->fd, text, len);
}

/* How many bytes were written; all of them if the reader is gone. */
static size_t write_some(const struct log_out *out, const char *text, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t written = write_now(out, text + done, len - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return done;
        if (written <= 0)
            return len;
        done += (size_t)written;
    }
    return done;
}

static bool write_rest(struct log_out *out)
{
    size_t done = write_some(out, out->rest, out->rest_len);
    memmove(out->rest, out->rest + done, out->rest_len - done);
    out->rest_len -= done;
    return out->rest_len == 0;
}

/* False if it cannot be written now: nothing of the line is written. At most LOG_LINE_MAX bytes. */
static bool log_out_write(struct log_out *out, const char *line, size_t len)
{
    if (!write_rest(out))
        return false;
    size_t done = write_some(out, line, len);
    if (done == 0)
        return false;
    out->rest_len = len - done;
    memcpy(out->rest, line + done, out->rest_len);
    return true;
}

/* Allows a partly written line one second. Does not close the caller's descriptor. */
static void log_out_deinit(struct log_out *out)
{
    if (out->rest_len > 0) {
        (void)has_space(out, REST_MS);
        write_rest(out);
    }
    if (out->is_own)
        close(out->fd);
}

/* ---- Lines ----------------------------------------------------------------------------------- */

#define LOG_FIELDS_MAX 16
#define END_MS 1000 /* for a slow reader, to report lost lines at the end */
/* A kind may write 20 lines at once, and one a second after that. */
#define LOG_QUOTA "gcra 60/1m burst=20"

struct log_of_kind {
    struct stint_cell8 lines;
    _Atomic uint64_t held_back; /* relaxed: an approximate count is enough */
};

struct log {
    struct stint_quota quota;
    struct log_of_kind kinds[LOG_KIND_COUNT];
    pthread_mutex_t lock; /* of what follows, up to the next blank line */
    struct log_out out;
    uint64_t lost; /* lines that could not be written, and were not reported yet */

    /* relaxed: a line that is written during a change has one format or the other. */
    _Atomic(enum log_format) format;
    _Atomic(enum log_level) least;
};

static const struct {
    enum log_level level;
    const char *name, *message;
} kinds[] = {
#define LOG_ROW(kind, level, name, message) {LOG_LEVEL_##level, name, message},
    LOG_KINDS(LOG_ROW)
#undef LOG_ROW
};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

struct log *log_new(int fd, enum log_format format, enum log_level least)
{
    struct log *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return NULL;
    if (pthread_mutex_init(&log->lock, NULL) != 0) {
        free(log);
        return NULL;
    }
    log_out_init(&log->out, fd);
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

/* Text comes from files and peers: none of its bytes may end the line, or control a terminal. */
static void add_escaped(struct buf *buf, const char *text)
{
    const uint8_t *c = (const uint8_t *)text;
    for (size_t len = strlen(text), n; len > 0; c += n, len -= n) {
        n = utf8_length(c, len);
        uint32_t code = n > 0 ? utf8_code_point(c, n) : 0xfffd;
        n = n > 0 ? n : 1;
        if (code == '"' || code == '\\')
            buf_add(buf, "\\%c", (char)code);
        else if (code == 0xfffd || (utf8_is_hidden(code) && code <= 0xffff))
            buf_add(buf, "\\u%04x", (unsigned)code);
        else if (utf8_is_hidden(code)) /* as JSON writes code points above 16 bits */
            buf_add(buf, "\\u%04x\\u%04x", 0xd800u + ((code - 0x10000) >> 10),
                    0xdc00u + ((code - 0x10000) & 0x3ff));
        else
            buf_add(buf, "%.*s", (int)n, (const char *)c);
    }
}

static bool is_word(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f || *c == '"' || *c == '=' ||
            *c == '\\')
            return false;
    return text[0] != '\0';
}

static void add_field(struct buf *buf, const struct log_field *field, bool is_json)
{
    buf_add(buf, "%s%s%s", is_json ? ",\"" : " ", field->name, is_json ? "\":" : "=");
    if (field->text == NULL)
        buf_add(buf, "%" PRIu64, field->number);
    else if (!is_json && is_word(field->text))
        buf_add(buf, "%s", field->text);
    else {
        buf_add(buf, "\"");
        add_escaped(buf, field->text);
        buf_add(buf, "\"");
    }
}

static void add_head(struct buf *buf, bool is_json, enum log_kind kind)
{
    struct timespec wall;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &wall);
    gmtime_r(&wall.tv_sec, &utc);
    buf_add(buf, "%s%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", is_json ? "{\"time\":\"" : "",
            utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
            wall.tv_nsec / (long)NS_PER_MS);
    buf_add(buf, is_json ? "\",\"level\":\"%s\",\"event\":\"%s\",\"message\":\"%s\"" : " %s %s: %s",
            level_names[kinds[kind].level], kinds[kind].name, kinds[kind].message);
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

/* A line of at most LOG_LINE_MAX bytes; its length. */
static size_t make_line(const struct log *log, char *text, enum log_kind kind,
                        const struct log_field *fields, size_t n_fields)
{
    bool is_json = atomic_load_explicit(&log->format, memory_order_relaxed) == LOG_FORMAT_JSON;
    /* Bytes for the end of the line stay free, however long its fields are. */
    struct buf buf = buf_of(text, LOG_LINE_MAX - 8);
    add_head(&buf, is_json, kind);
    for (size_t i = 0; i < n_fields; i++) {
        struct buf before = buf;
        add_field(&buf, &fields[i], is_json);
        if (buf.len >= buf.size) { /* a field that does not fit is left out whole */
            buf = before;
            text[buf.len] = '\0';
        }
    }
    if (is_json)
        text[buf.len++] = '}';
    text[buf.len++] = '\n';
    return buf.len;
}

/* The lock is held. False while not even the count of lost lines can be written. */
static bool tell_lost(struct log *log)
{
    char text[LOG_LINE_MAX];
    if (log->lost == 0)
        return true;
    size_t len = make_line(log, text, LOG_LINES_LOST, &LOG_NUMBER("lines", log->lost), 1);
    if (!log_out_write(&log->out, text, len))
        return false;
    log->lost = 0;
    return true;
}

void log_flush(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    tell_lost(log);
    pthread_mutex_unlock(&log->lock);
}

void log_free(struct log *log)
{
    if (log == NULL)
        return;
    if (log->lost > 0) {
        (void)has_space(&log->out, END_MS);
        tell_lost(log);
    }
    log_out_deinit(&log->out);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

void log_write(struct log *log, enum log_kind kind, const struct log_field *fields, size_t n_fields)
{
    char text[LOG_LINE_MAX];
    struct log_field all[LOG_FIELDS_MAX + 1];
    uint64_t held_back = 0;
    size_t n = 0;
    if (kinds[kind].level < atomic_load_explicit(&log->least, memory_order_relaxed) ||
        !is_let_through(log, kind, uv_hrtime(), &held_back))
        return;
    assert(n_fields <= LOG_FIELDS_MAX);
    if (held_back > 0)
        all[n++] = LOG_NUMBER("suppressed", held_back);
    memcpy(&all[n], fields, n_fields * sizeof(*fields));
    size_t len = make_line(log, text, kind, all, n + n_fields);
    pthread_mutex_lock(&log->lock);
    if (!tell_lost(log) || !log_out_write(&log->out, text, len))
        log->lost++;
    pthread_mutex_unlock(&log->lock);
}

/* ---- Reports --------------------------------------------------------------------------------- */

#define AND_OTHERS "others are only counted in the metrics until a reload"

void eviction_report_init(struct eviction_report *report, const struct stint_table *table)
{
    const struct region_counters *counters = table_counters(table);
    /* relaxed: one may include more evictions than the other; the next line has them. */
    report->evictions = __atomic_load_n(&counters->evictions_evict, __ATOMIC_RELAXED);
    report->units = __atomic_load_n(&counters->forgotten_units, __ATOMIC_RELAXED);
    report->next_ns = 0;
}

void eviction_report(struct eviction_report *report, const struct stint_table *table,
                     uint64_t now_ns, struct log *log)
{
    struct eviction_report so_far;
    eviction_report_init(&so_far, table);
    if (now_ns < report->next_ns || so_far.evictions == report->evictions)
        return;
    log_line(log, LOG_TABLE_FULL, LOG_NUMBER("evictions", so_far.evictions - report->evictions),
             LOG_NUMBER("units", so_far.units - report->units));
    *report = so_far;
    report->next_ns = now_ns + NS_PER_MIN;
}

void unmatched_report(struct server_state *server_state, struct log *log)
{
    struct unmatched_name name;
    while (unmatched_next(server_state_unmatched(server_state),
                          server_state_generation(server_state), &name)) {
        bool is_domain = name.kind == UNMATCHED_DOMAIN;
        struct log_field fields[3];
        size_t n = 0;
        fields[n++] = LOG_TEXT("domain", name.domain);
        if (!is_domain)
            fields[n++] = LOG_TEXT("keys", name.keys);
        if (name.is_last)
            fields[n++] = LOG_TEXT("note", AND_OTHERS);
        log_write(log, is_domain ? LOG_DOMAIN_UNKNOWN : LOG_UNMATCHED, fields, n);
    }
}
