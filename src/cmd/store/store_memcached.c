/* SPDX-License-Identifier: MIT */
/* One server after the other, and one command after the other: metrics, swaps, round trips. */
#define _GNU_SOURCE
#include "cmd/store/store_memcached.h"

#include "backend/wire/memcached_conn.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"
#include "cmd/lib/print.h"
#include "net/upstream/upstream.h"

#include <assert.h>
#include <stdlib.h>

#define CHECK_KEY "stint:{check}"
#define CHECK_TTL_S 10

/* A server, and its last reply. */
struct asked {
    uv_loop_t loop;
    struct memcached_conn *conn;
    struct upstream *upstream;
    struct memcached_findings *findings;
    struct stint_error *error;
    enum memcached_outcome outcome;
    enum memcached_code code;
    uint64_t number, took_ns;
    bool is_answered;
};

/* ---- A connection ---------------------------------------------------------------------------- */

static int gone(struct asked *asked)
{
    return err_set(asked->error, STINT_E_GONE, "%s", link_fault(memcached_conn_link(asked->conn)));
}

static void stop(void *arg)
{
    struct asked *asked = arg;
    uv_stop(&asked->loop);
}

static int open_server(struct asked *asked, const struct memcached_check *check, unsigned server)
{
    asked->conn = memcached_conn_new(&(struct pipeline_options){
        .user = check->url->user,
        .password = check->url->password,
        .connect_ns = check->timeout_ns,
        .reply_ns = check->timeout_ns,
        .commands_max = 4,
        .backoff_first_ns = NS_PER_HOUR, /* the first error is kept */
        .backoff_max_ns = NS_PER_HOUR,
    });
    if (asked->conn == NULL)
        return err_set(asked->error, STINT_E_SYSTEM, "no memory for a connection");
    asked->upstream = upstream_new(&(struct upstream_options){
        .loop = &asked->loop,
        .host = check->url->hosts[server],
        .tls = check->tls,
        .link = memcached_conn_link(asked->conn),
        .changed = stop,
        .arg = asked,
    });
    if (asked->upstream == NULL) {
        link_free(memcached_conn_link(asked->conn), 0);
        return err_set(asked->error, STINT_E_SYSTEM, "no memory for a connection");
    }
    while (!link_is_ready(memcached_conn_link(asked->conn))) {
        if (upstream_losses(asked->upstream) > 0)
            return gone(asked);
        uv_run(&asked->loop, UV_RUN_ONCE);
    }
    return 0;
}

static void close_server(struct asked *asked)
{
    upstream_close(asked->upstream);
    uv_run(&asked->loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&asked->loop);
    assert(left == 0);
    (void)left;
}

/* ---- Metrics --------------------------------------------------------------------------------- */

static void read_number(struct span value, uint64_t *number)
{
    (void)resp_number_read(value, INT64_MAX, number);
}

static void read_stat(struct memcached_findings *findings, const struct memcached_reply *stat)
{
    if (span_equals(stat->name, "limit_maxbytes"))
        read_number(stat->value, &findings->common.memory_max);
    else if (span_equals(stat->name, "bytes"))
        read_number(stat->value, &findings->memory_used);
    else if (span_equals(stat->name, "evictions")) {
        /* A number, or in the settings whether it is above 0. */
        read_number(stat->value, &findings->evictions);
        if (span_equals(stat->value, "off"))
            findings->evicts = false;
    } else if (span_equals(stat->name, "curr_items"))
        read_number(stat->value, &findings->items);
    else if (span_equals(stat->name, "item_size_max"))
        read_number(stat->value, &findings->item_max);
    else if (span_equals(stat->name, "uptime"))
        read_number(stat->value, &findings->uptime_s);
}

static void take_answer(void *arg, enum memcached_outcome outcome,
                        const struct memcached_reply *reply, uint64_t now_ns)
{
    struct asked *asked = arg;
    (void)now_ns;
    if (reply != NULL && reply->code == MEMCACHED_STAT) {
        read_stat(asked->findings, reply);
        return;
    }
    asked->outcome = outcome;
    asked->is_answered = true;
    if (reply != NULL) {
        asked->code = reply->code;
        asked->number = reply->number;
    }
    stop(asked);
}

static int ask(struct asked *asked, struct memcached_command command)
{
    uint64_t begin_ns = uv_hrtime();
    command.answered = take_answer;
    command.arg = asked;
    asked->is_answered = false;
    asked->number = 0;
    if (!memcached_conn_ask(asked->conn, &command, begin_ns))
        return gone(asked);
    upstream_asked(asked->upstream);
    while (!asked->is_answered)
        uv_run(&asked->loop, UV_RUN_ONCE);
    asked->took_ns = uv_hrtime() - begin_ns;
    bool has_reply = asked->outcome == MEMCACHED_DONE || asked->outcome == MEMCACHED_REFUSED;
    return has_reply ? 0 : gone(asked);
}

static int ask_stats(struct asked *asked, const char *what)
{
    int code =
        ask(asked, (struct memcached_command){.verb = MEMCACHED_STATS, .key = span_of_text(what)});
    if (code == 0 && asked->outcome == MEMCACHED_REFUSED)
        store_warn(&asked->findings->common, "it refuses to return its metrics (stats%s%s)",
                   what[0] != '\0' ? " " : "", what);
    return code;
}

/* ---- Swaps ----------------------------------------------------------------------------------- */

static int ask_key(struct asked *asked, enum memcached_verb verb, uint64_t number)
{
    return ask(asked, (struct memcached_command){.verb = verb,
                                                 .key = span_of_text(CHECK_KEY),
                                                 .value = span_of_text("1"),
                                                 .number = number,
                                                 .ttl_s = CHECK_TTL_S});
}

/* A write with the number that was read succeeds, and a second one with the same number fails. */
static int try_swaps(struct asked *asked)
{
    int code = ask_key(asked, MEMCACHED_ADD, 0);
    if (code != 0)
        return code;
    if (asked->code == MEMCACHED_ERROR) {
        store_fault(&asked->findings->common, "it takes no writes");
        return 0;
    }
    code = ask_key(asked, MEMCACHED_GET, 0);
    uint64_t number = asked->number;
    if (code != 0 || number == 0)
        return code;
    code = ask_key(asked, MEMCACHED_SWAP, number);
    bool is_done = asked->code == MEMCACHED_STORED;
    if (code == 0)
        code = ask_key(asked, MEMCACHED_SWAP, number);
    asked->findings->compares = is_done && asked->code == MEMCACHED_EXISTS;
    return code != 0 ? code : ask_key(asked, MEMCACHED_DELETE, 0);
}

static int measure(struct asked *asked, unsigned samples)
{
    uint64_t *took_ns = calloc(samples, sizeof(*took_ns));
    int code = took_ns != NULL ? 0 : err_set(asked->error, STINT_E_SYSTEM, "no memory");
    for (unsigned i = 0; i < samples && code == 0; i++) {
        code = ask_key(asked, MEMCACHED_GET, 0);
        took_ns[i] = asked->took_ns;
    }
    if (code == 0)
        asked->findings->common.latency = store_latency_of(took_ns, samples);
    free(took_ns);
    return code;
}

static void judge(struct memcached_findings *findings)
{
    struct store_findings *common = &findings->common;
    if (!findings->compares)
        store_fault(common, "values have no numbers, without which states cannot be swapped: "
                            "expected memcached without -C");
    if (!findings->evicts)
        store_warn(common, "it refuses writes when its memory is full (-M), and then forgets the "
                           "state that was to be written: as many units are free again");
    if (findings->evictions > 0)
        store_warn(common,
                   "%llu values were evicted in %llu s: an evicted state is free again; more "
                   "memory (-m) would keep it",
                   (unsigned long long)findings->evictions, (unsigned long long)findings->uptime_s);
}

static int look(struct asked *asked, const struct memcached_check *check)
{
    struct buf version =
        buf_of(asked->findings->common.version, sizeof(asked->findings->common.version));
    buf_add(&version, "%s", memcached_conn_version(asked->conn));
    hide_controls(asked->findings->common.version);
    int code = ask_stats(asked, "");
    if (code == 0)
        code = ask_stats(asked, "settings");
    if (code == 0)
        code = try_swaps(asked);
    if (code == 0)
        code = measure(asked, check->samples);
    return code;
}

int store_memcached_look(const struct memcached_check *check, struct memcached_findings *findings,
                         struct stint_error *error)
{
    int code = 0;
    for (unsigned i = 0; i < check->url->n_hosts && code == 0; i++) {
        struct asked asked = {.findings = &findings[i], .error = error};
        struct store_findings *common = &findings[i].common;
        if (uv_loop_init(&asked.loop) != 0)
            return err_set(error, STINT_E_SYSTEM, "no memory for a connection");
        findings[i].evicts = true;
        store_address(&check->url->hosts[i], common->address, sizeof(common->address));
        if (check->url->n_hosts > 1)
            store_address(&check->url->hosts[i], common->node, sizeof(common->node));
        code = open_server(&asked, check, i);
        if (code == 0)
            code = look(&asked, check);
        if (code == 0)
            judge(&findings[i]);
        close_server(&asked);
    }
    return code;
}

bool store_memcached_is_fit(const struct memcached_findings *findings, unsigned n_servers)
{
    for (unsigned i = 0; i < n_servers; i++)
        if (!store_is_fit(&findings[i].common))
            return false;
    return true;
}
