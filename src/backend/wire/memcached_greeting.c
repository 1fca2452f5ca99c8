/* SPDX-License-Identifier: MIT */
/* A password goes as the value of any key. Refused statistics are treated as unknown. */
#include "backend/wire/memcached_greeting.h"

#include "base/buf.h"
#include "base/number.h"

#include <assert.h>

#define GREETING_MAX 1024
/* The meta commands have their present form since then. */
#define OLDEST_MAJOR 1
#define OLDEST_MINOR 6
#define OLDEST_PATCH 10

static void write_password(struct redis_bytes *bytes, const char *user, const char *password)
{
    memcached_add_number(bytes, "set auth 0 0 ", strlen(user) + 1 + strlen(password));
    memcached_add_text(bytes, "\r\n");
    memcached_add_text(bytes, user);
    memcached_add_text(bytes, " ");
    memcached_add_text(bytes, password);
    memcached_add_text(bytes, "\r\n");
}

bool memcached_greeting_begin(struct memcached_greeting *greeting, const char *user,
                              const char *password)
{
    bool has_password = password != NULL && password[0] != '\0';
    size_t len = MEMCACHED_WORDS_MAX;
    user = user != NULL ? user : "";
    if (has_password)
        len += strlen(user) + strlen(password);
    memcached_greeting_deinit(greeting);
    greeting->is_let_in = !has_password;
    if (!redis_bytes_reserve(&greeting->bytes, len, GREETING_MAX))
        return false;
    if (has_password)
        write_password(&greeting->bytes, user, password);
    memcached_add_text(&greeting->bytes, "version\r\nstats\r\n");
    return true;
}

void memcached_greeting_deinit(struct memcached_greeting *greeting)
{
    if (greeting->bytes.ptr != NULL)
        memset(greeting->bytes.ptr, 0, greeting->bytes.len);
    redis_bytes_deinit(&greeting->bytes);
    *greeting = (struct memcached_greeting){.sent = 0};
}

struct span memcached_greeting_output(const struct memcached_greeting *greeting)
{
    return span_of(greeting->bytes.ptr + greeting->sent, greeting->bytes.len - greeting->sent);
}

void memcached_greeting_sent(struct memcached_greeting *greeting, size_t len)
{
    greeting->sent += len;
    assert(greeting->sent <= greeting->bytes.len);
}

/* "1.6.18": the first numbers, and any text after them. */
static bool is_new_enough(const char *version)
{
    static const unsigned oldest[] = {OLDEST_MAJOR, OLDEST_MINOR, OLDEST_PATCH};
    for (size_t i = 0; i < 3; i++) {
        unsigned number = 0;
        for (; *version >= '0' && *version <= '9' && number < 10000; version++)
            number = number * 10 + (unsigned)(*version - '0');
        if (number != oldest[i])
            return number > oldest[i];
        if (*version == '.')
            version++;
    }
    return true;
}

static int read_version(struct memcached_server *server, struct span version,
                        struct stint_error *error)
{
    struct buf buf = buf_of(server->version, sizeof(server->version));
    size_t most = sizeof(server->version) - 1;
    buf_add(&buf, "%.*s", version.len < most ? (int)version.len : (int)most,
            (const char *)version.ptr);
    if (!is_new_enough(server->version))
        return err_set(error, STINT_E_MISMATCH,
                       "memcached %s is too old: expected %d.%d.%d, which has meta commands",
                       server->version, OLDEST_MAJOR, OLDEST_MINOR, OLDEST_PATCH);
    return 0;
}

static int read_stat(struct memcached_server *server, const struct memcached_reply *reply)
{
    if (span_equals(reply->name, "pid"))
        (void)resp_number_read(reply->value, UINT32_MAX, &server->pid);
    else if (span_equals(reply->name, "uptime"))
        (void)resp_number_read(reply->value, UINT32_MAX, &server->uptime_s);
    return 0;
}

static int refuse(const struct memcached_greeting *greeting, struct span why,
                  struct stint_error *error)
{
    return err_set(error, STINT_E_MISMATCH, "memcached refuses %s: %.*s",
                   greeting->is_let_in ? "to report its version" : "the password",
                   why.len < 200 ? (int)why.len : 200, (const char *)why.ptr);
}

int memcached_greeting_take(struct memcached_greeting *greeting,
                            const struct memcached_reply *reply, struct stint_error *error)
{
    bool is_known = greeting->server.version[0] != '\0';
    if (reply->code == MEMCACHED_ERROR && !is_known)
        return refuse(greeting, reply->value, error);
    if (!greeting->is_let_in && reply->code == MEMCACHED_STORED) {
        greeting->is_let_in = true;
        return 0;
    }
    if (greeting->is_let_in && !is_known && reply->code == MEMCACHED_VERSION)
        return read_version(&greeting->server, reply->value, error);
    if (is_known && reply->code == MEMCACHED_STAT)
        return read_stat(&greeting->server, reply);
    if (is_known && (reply->code == MEMCACHED_END || reply->code == MEMCACHED_ERROR))
        return 1;
    return err_set(error, STINT_E_MISMATCH, "the server does not identify itself as memcached");
}
