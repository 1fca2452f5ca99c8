/* SPDX-License-Identifier: MIT */
/* Queries a store with one command after the other; the loop runs until the reply arrives. */
#define _GNU_SOURCE
#include "cmd/store/store.h"

#include "backend/redis/cluster.h"
#include "backend/redis/sentinel.h"
#include "backend/wire/memcached_conn.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"
#include "cmd/lib/print.h"
#include "table/clock.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define WORDS_MAX 16
#define CHECK_KEY "stint:{check}"

struct store_nodes {
    const struct store_given *given;
    struct upstream_tls *tls;
    /* The connection. */
    uv_loop_t loop;
    struct upstream *upstream;
    struct link *link;
    struct redis_conn *redis; /* either of both; the upstream's */
    struct memcached_conn *memcached;
    struct store_host host; /* no name: the Unix socket */
    char address[STORE_ADDRESS_SIZE];
    /* The last reply. */
    void (*read)(void *arg, const struct redis_reply *reply);
    void *arg;
    bool is_answered, has_reply, is_refused;
    enum memcached_code code;
    uint64_t number, took_ns;
    char sha[41]; /* of the script that was loaded */
    /* What is known. */
    struct store_findings *findings; /* NULL: nothing is looked for */
    bool is_cluster;
    struct cluster *map;       /* of a cluster */
    struct stint_error *error; /* of a reply */
    int code_read;
};

/* ---- Remarks --------------------------------------------------------------------------------- */

enum { WARNING, FAULT };

static ERR_PRINTF(3, 4) void remark(struct store_findings *findings, bool is_fault,
                                    const char *format, ...)
{
    va_list args;
    if (findings->n_remarks == STORE_REMARKS_MAX)
        return;
    struct store_remark *made = &findings->remarks[findings->n_remarks++];
    struct buf buf = buf_of(made->text, sizeof(made->text));
    made->is_fault = is_fault;
    if (findings->node[0] != '\0')
        buf_add(&buf, "%s: ", findings->node);
    va_start(args, format);
    vsnprintf(made->text + buf.len, sizeof(made->text) - buf.len, format, args);
    va_end(args);
    hide_controls(made->text);
}

/* ---- The connection -------------------------------------------------------------------------- */

static int gone(const struct store_nodes *nodes, struct stint_error *error)
{
    return err_set(error, STINT_E_GONE, "%s", link_fault(nodes->link));
}

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "no memory for a connection");
}

/* The loop must not wait for further events. */
static void stop(void *arg, uint64_t now_ns)
{
    struct store_nodes *nodes = arg;
    (void)now_ns;
    uv_stop(&nodes->loop);
}

static void disconnect(struct store_nodes *nodes)
{
    upstream_close(nodes->upstream);
    nodes->upstream = NULL;
    uv_run(&nodes->loop, UV_RUN_DEFAULT);
}

static void new_link(struct store_nodes *nodes, bool is_sentinel)
{
    const struct store_url *url = &nodes->given->url;
    const struct link_options link = {
        .user = url->user,
        .password = url->password,
        .connect_ns = nodes->given->timeout_ns,
        .reply_ns = nodes->given->timeout_ns,
        .commands_max = 4,
        .backoff_first_ns = NS_PER_HOUR, /* the first error is kept */
        .backoff_max_ns = NS_PER_HOUR,
    };
    nodes->link = NULL;
    if (url->kind == STORE_MEMCACHED) {
        nodes->memcached = memcached_conn_new(&link);
        if (nodes->memcached != NULL)
            nodes->link = memcached_conn_link(nodes->memcached);
        return;
    }
    nodes->redis = redis_conn_new(&(struct redis_conn_options){
        .link = link, .name = "stint-store-check", .database = is_sentinel ? 0 : url->database});
    if (nodes->redis != NULL)
        nodes->link = redis_conn_link(nodes->redis);
}

/* STINT_E_GONE with a message that gives the reason why there is no connection. */
static int connect_to(struct store_nodes *nodes, const struct store_host *host, bool is_sentinel,
                      struct stint_error *error)
{
    disconnect(nodes);
    nodes->host = *host;
    struct buf address = buf_of(nodes->address, sizeof(nodes->address));
    if (host->name[0] == '\0')
        buf_add(&address, "%s", nodes->given->url.path);
    else
        store_host_add(&address, host);
    hide_controls(nodes->address); /* a server may have named it */
    new_link(nodes, is_sentinel);
    if (nodes->link == NULL)
        return no_memory(error);
    nodes->upstream = upstream_new(&(struct upstream_options){
        .loop = &nodes->loop,
        .host = *host,
        .path = nodes->given->url.path,
        .tls = nodes->tls,
        .link = nodes->link,
        .changed = stop,
        .arg = nodes,
    });
    if (nodes->upstream == NULL) {
        link_free(nodes->link, 0);
        return no_memory(error);
    }
    while (!link_is_ready(nodes->link)) {
        if (upstream_losses(nodes->upstream) > 0)
            return gone(nodes, error);
        uv_run(&nodes->loop, UV_RUN_ONCE);
    }
    return 0;
}

/* To the first of the URL's servers that answers; an error is that of the last one. */
static int connect_to_any(struct store_nodes *nodes, struct stint_error *error)
{
    static const struct store_host socket_host;
    const struct store_url *url = &nodes->given->url;
    bool is_sentinel = url->kind == STORE_REDIS_SENTINEL;
    int code = STINT_E_GONE;
    if (url->n_hosts == 0)
        return connect_to(nodes, &socket_host, is_sentinel, error);
    for (unsigned i = 0; i < url->n_hosts && code != 0; i++)
        code = connect_to(nodes, &url->hosts[i], is_sentinel, error);
    return code;
}

static int wait_for_reply(struct store_nodes *nodes, uint64_t begun_ns, struct stint_error *error)
{
    upstream_asked(nodes->upstream);
    while (!nodes->is_answered)
        uv_run(&nodes->loop, UV_RUN_ONCE);
    nodes->took_ns = uv_hrtime() - begun_ns;
    return nodes->has_reply ? 0 : gone(nodes, error);
}

static void end_command(struct store_nodes *nodes, bool has_reply)
{
    nodes->is_answered = true;
    nodes->has_reply = has_reply;
    stop(nodes, 0);
}

static void take_reply(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                       uint64_t now_ns)
{
    struct store_nodes *nodes = arg;
    (void)now_ns;
    end_command(nodes, outcome == LINK_DONE || outcome == LINK_REFUSED);
    if (reply != NULL)
        nodes->read(nodes->arg, reply);
}

int store_nodes_ask(struct store_nodes *nodes, const char *const *words,
                    void (*read)(void *arg, const struct redis_reply *reply), void *arg,
                    struct stint_error *error)
{
    struct span spans[WORDS_MAX];
    struct redis_command command = {.words = spans, .answered = take_reply, .arg = nodes};
    for (; words[command.n_words] != NULL; command.n_words++) {
        assert(command.n_words < WORDS_MAX);
        spans[command.n_words] = span_of_text(words[command.n_words]);
    }
    nodes->read = read;
    nodes->arg = arg;
    nodes->is_answered = false;
    uint64_t begun_ns = uv_hrtime();
    if (!redis_conn_ask(nodes->redis, &command, begun_ns))
        return link_is_ready(nodes->link)
                   ? err_set(error, STINT_E_SYSTEM, "no memory for a command")
                   : gone(nodes, error);
    return wait_for_reply(nodes, begun_ns, error);
}

static int text_len(const struct redis_reply *reply)
{
    return reply->text.len < 200 ? (int)reply->text.len : 200;
}

/* ---- INFO ------------------------------------------------------------------------------------ */

/* The value in a line "name:value"; false: there is none. */
static bool info_value(struct span info, const char *name, char *value, size_t size)
{
    char line[64];
    int line_len = snprintf(line, sizeof(line), "\n%s:", name);
    const char *at = memmem(info.ptr, info.len, line, (size_t)line_len);
    if (at == NULL)
        return false;
    size_t left = (size_t)((const char *)span_end(info) - (at += line_len)), len = 0;
    while (len < left && at[len] != '\r' && at[len] != '\n')
        len++;
    snprintf(value, size, "%.*s", (int)len, at);
    hide_controls(value);
    return true;
}

static uint64_t info_number(struct span info, const char *name)
{
    char text[STORE_WORD_MAX];
    return info_value(info, name, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

static void read_info(void *arg, const struct redis_reply *reply)
{
    struct store_findings *findings = arg;
    char text[STORE_WORD_MAX];
    if (reply->type != REDIS_TEXT) {
        remark(findings, WARNING,
               "INFO is refused, so eviction and persistence are not known, and after_failover "
               "has no effect: %.*s",
               text_len(reply), (const char *)reply->text.ptr);
        return;
    }
    struct span info = reply->text;
    if (info_value(info, "valkey_version", text, sizeof(text))) {
        findings->is_valkey = true;
        memcpy(findings->version, text, sizeof(text));
    }
    info_value(info, "role", findings->role, sizeof(findings->role));
    info_value(info, "maxmemory_policy", findings->policy, sizeof(findings->policy));
    findings->memory_max = info_number(info, "maxmemory");
    findings->replicas = (unsigned)info_number(info, "connected_slaves");
    if (info_value(info, "aof_enabled", text, sizeof(text)))
        snprintf(findings->append_only, sizeof(findings->append_only), "%s",
                 text[0] == '1' ? "on" : "off");
    if (info_number(info, "loading") != 0)
        remark(findings, WARNING, "it is reading its data, and answers nothing else until then");
    if (info_value(info, "rdb_last_bgsave_status", text, sizeof(text)) && strcmp(text, "ok") != 0)
        remark(findings, WARNING,
               "its last snapshot has failed: where stop-writes-on-bgsave-error is "
               "set it takes no writes");
    if (info_value(info, "aof_last_write_status", text, sizeof(text)) && strcmp(text, "ok") != 0)
        remark(findings, FAULT, "it cannot write its append-only file, and takes no writes");
}

/* CONFIG is disabled at many hosting providers, which is no error. */
static void read_save(void *arg, const struct redis_reply *reply)
{
    struct store_findings *findings = arg;
    const struct redis_reply *save = redis_reply_named(reply, "save");
    if (save != NULL)
        snprintf(findings->snapshots, sizeof(findings->snapshots), "%.*s",
                 save->text.len > 0 ? text_len(save) : 3,
                 save->text.len > 0 ? (const char *)save->text.ptr : "off");
    hide_controls(findings->snapshots);
}

static void judge_info(struct store_findings *findings)
{
    bool evicts = findings->policy[0] != '\0' && strcmp(findings->policy, "noeviction") != 0;
    if (evicts)
        remark(findings, WARNING,
               "maxmemory-policy is %s: where memory is full it drops keys, %s, and a limit "
               "whose key is gone admits everything anew; expected noeviction",
               findings->policy,
               strncmp(findings->policy, "allkeys", 7) == 0
                   ? "whichever they are"
                   : "those with a time to live, as all of ours have");
    if (strcmp(findings->append_only, "off") == 0 && strcmp(findings->snapshots, "off") == 0 &&
        findings->replicas == 0)
        remark(findings, WARNING,
               "nothing is kept over a restart: no append-only file, no snapshots, "
               "no replica; every limit then begins anew");
}

/* ---- Software -------------------------------------------------------------------------------- */

static void judge_server(const struct store_nodes *nodes)
{
    const struct redis_server *server = redis_conn_server(nodes->redis);
    struct store_findings *findings = nodes->findings;
    enum store_kind kind = nodes->given->url.kind;
    char *behind_major;
    unsigned long major = strtoul(server->version, &behind_major, 10);
    unsigned long minor = *behind_major == '.' ? strtoul(behind_major + 1, NULL, 10) : 0;
    findings->is_valkey = server->is_valkey;
    snprintf(findings->version, sizeof(findings->version), "%s", server->version);
    snprintf(findings->mode, sizeof(findings->mode), "%s", server->mode);
    hide_controls(findings->version);
    hide_controls(findings->mode);
    snprintf(findings->role, sizeof(findings->role), "%s", server->is_replica ? "replica" : "");
    /* Valkey begins with 7.2; a server that hides its version is accepted. */
    if (*behind_major == '.' && (major < 6 || (major == 6 && minor < 2)))
        remark(findings, FAULT, "it is of version %s: expected Redis 6.2 or later, or Valkey",
               server->version);
    if (strcmp(server->mode, "sentinel") == 0)
        remark(findings, FAULT,
               "it is a sentinel, not a store: expected redis-sentinel:// and "
               "/MASTER-NAME behind the hosts");
    bool is_cluster = strcmp(server->mode, "cluster") == 0;
    if (is_cluster && kind != STORE_REDIS_CLUSTER)
        remark(findings, FAULT, "it is a node of a cluster: expected redis-cluster://");
    if (!is_cluster && kind == STORE_REDIS_CLUSTER)
        remark(findings, FAULT, "it is no cluster: expected redis://");
}

static void judge_role(struct store_findings *findings)
{
    bool is_replica =
        strcmp(findings->role, "slave") == 0 || strcmp(findings->role, "replica") == 0;
    if (!is_replica)
        return;
    snprintf(findings->role, sizeof(findings->role), "replica");
    if (strcmp(findings->mode, "cluster") != 0) /* other nodes of a cluster are queried instead */
        remark(findings, FAULT, "it is a replica and takes no writes: expected the master");
}

/* ---- Scripts --------------------------------------------------------------------------------- */

/* What every script needs: the time, and a state that is read, written and deleted. */
#define SCRIPT                                                                                     \
    "local before = redis.call('GET', KEYS[1]) "                                                   \
    "redis.call('SET', KEYS[1], '1', 'PX', 1000) "                                                 \
    "redis.call('DEL', KEYS[1]) "                                                                  \
    "return redis.call('TIME')"

static void refuse_scripts(struct store_findings *findings, const struct redis_reply *reply,
                           const char *what)
{
    remark(findings, FAULT, "%s is refused: %.*s", what, text_len(reply),
           (const char *)reply->text.ptr);
}

static void read_sha(void *arg, const struct redis_reply *reply)
{
    struct store_nodes *nodes = arg;
    if (reply->type == REDIS_TEXT && reply->text.len == 40)
        snprintf(nodes->sha, sizeof(nodes->sha), "%.40s", (const char *)reply->text.ptr);
    else
        refuse_scripts(nodes->findings, reply, "SCRIPT LOAD");
}

static void read_run(void *arg, const struct redis_reply *reply)
{
    struct store_findings *findings = arg;
    findings->runs_scripts = reply->type == REDIS_ARRAY;
    if (!findings->runs_scripts)
        refuse_scripts(findings, reply, "a script that reads the time and writes a key " CHECK_KEY);
}

/* Loads a script and runs it with that key. */
static int try_scripts(struct store_nodes *nodes, const char *key, struct stint_error *error)
{
    nodes->sha[0] = '\0';
    nodes->findings->runs_scripts = false;
    int code = store_nodes_ask(nodes, (const char *[]){"SCRIPT", "LOAD", SCRIPT, NULL}, read_sha,
                               nodes, error);
    if (code == 0 && nodes->sha[0] != '\0')
        code = store_nodes_ask(nodes, (const char *[]){"EVALSHA", nodes->sha, "1", key, NULL},
                               read_run, nodes->findings, error);
    return code;
}

/* ---- Time ------------------------------------------------------------------------------------ */

#define SKEW_MAX_NS (500 * NS_PER_MS)

static void read_time(void *arg, const struct redis_reply *reply)
{
    uint64_t *time_ns = arg;
    uint64_t seconds, micros;
    if (reply->type == REDIS_ARRAY && reply->n_items == 2 &&
        resp_number_read(reply->items[0].text, INT64_MAX / NS_PER_S - 1, &seconds) &&
        resp_number_read(reply->items[1].text, 999999, &micros))
        *time_ns = seconds * NS_PER_S + micros * NS_PER_US;
}

/* Of some tries the fastest one: its time is known best. */
static int look_at_clock(struct store_nodes *nodes, struct stint_error *error)
{
    struct store_findings *findings = nodes->findings;
    uint64_t best_ns = STINT_NEVER_NS;
    for (int i = 0; i < 5; i++) {
        uint64_t before_ns = (uint64_t)clock_wall_ns(), time_ns = 0;
        int code =
            store_nodes_ask(nodes, (const char *[]){"TIME", NULL}, read_time, &time_ns, error);
        if (code != 0)
            return code;
        if (time_ns == 0 || nodes->took_ns >= best_ns)
            continue;
        best_ns = nodes->took_ns;
        findings->has_time = true;
        findings->ahead_ns = (int64_t)time_ns - (int64_t)(before_ns + best_ns / 2);
        findings->ahead_error_ns = best_ns / 2 + NS_PER_US;
    }
    if (findings->has_time &&
        (uint64_t)llabs(findings->ahead_ns) > SKEW_MAX_NS + findings->ahead_error_ns)
        remark(findings, WARNING, "its clock and ours differ by %lld ms: it decides by its own",
               (long long)llabs(findings->ahead_ns) / 1000000);
    return 0;
}

static void read_nothing(void *arg, const struct redis_reply *reply)
{
    (void)arg, (void)reply;
}

static int by_size(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* `ping` is the round trip. */
static int measure(struct store_nodes *nodes, unsigned samples,
                   int (*ping)(struct store_nodes *nodes, struct stint_error *error),
                   struct stint_error *error)
{
    uint64_t *took_ns = calloc(samples, sizeof(*took_ns));
    if (took_ns == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for %u round trips", samples);
    int code = 0;
    for (unsigned i = 0; i < samples && code == 0; i++) {
        code = ping(nodes, error);
        took_ns[i] = nodes->took_ns;
    }
    if (code == 0) {
        qsort(took_ns, samples, sizeof(*took_ns), by_size);
        nodes->findings->latency = (struct store_latency){
            .median_ns = took_ns[(samples - 1) / 2],
            .p90_ns = took_ns[(uint64_t)(samples - 1) * 90 / 100],
            .p99_ns = took_ns[(uint64_t)(samples - 1) * 99 / 100],
            .max_ns = took_ns[samples - 1],
            .n = samples,
        };
    }
    free(took_ns);
    return code;
}

static int ping_redis(struct store_nodes *nodes, struct stint_error *error)
{
    return store_nodes_ask(nodes, (const char *[]){"PING", NULL}, read_nothing, NULL, error);
}

/* STINT_E_GONE: the connection ended meanwhile. */
static int look_at_server(struct store_nodes *nodes, unsigned samples, struct stint_error *error)
{
    struct store_findings *findings = nodes->findings;
    judge_server(nodes);
    int code = store_nodes_ask(nodes, (const char *[]){"INFO", NULL}, read_info, findings, error);
    if (code == 0)
        code = store_nodes_ask(nodes, (const char *[]){"CONFIG", "GET", "save", NULL}, read_save,
                               findings, error);
    if (code != 0)
        return code;
    judge_role(findings);
    judge_info(findings);
    /* Scripts are not tried on a sentinel. */
    if (strcmp(findings->mode, "sentinel") == 0)
        return 0;
    if (strcmp(findings->role, "replica") != 0 && strcmp(findings->mode, "cluster") != 0)
        code = try_scripts(nodes, CHECK_KEY, error);
    if (code == 0)
        code = look_at_clock(nodes, error);
    return code != 0 ? code : measure(nodes, samples, ping_redis, error);
}

/* ---- Clusters -------------------------------------------------------------------------------- */

static void read_slots(void *arg, const struct redis_reply *reply)
{
    struct store_nodes *nodes = arg;
    if (reply->type == REDIS_ERROR)
        nodes->code_read = err_set(nodes->error, STINT_E_MISMATCH, "CLUSTER SLOTS is refused: %.*s",
                                   text_len(reply), (const char *)reply->text.ptr);
    else
        nodes->code_read = cluster_read(nodes->map, reply, &nodes->host, nodes->error);
}

/* Gets the owners of slots from a node of a cluster. */
static int read_map(struct store_nodes *nodes, struct stint_error *error)
{
    nodes->map = calloc(1, sizeof(struct cluster));
    nodes->error = error;
    if (nodes->map == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a map of slots");
    int code = store_nodes_ask(nodes, (const char *[]){"CLUSTER", "SLOTS", NULL}, read_slots, nodes,
                               error);
    return code != 0 ? code : nodes->code_read;
}

/* A key that access control lists with stint:* allow, in a slot of that master. */
static bool find_key(const struct cluster *cluster, const struct store_host *master, char *key,
                     size_t size)
{
    for (unsigned i = 0; i < 100 * CLUSTER_SLOTS; i++) {
        struct buf buf = buf_of(key, size);
        buf_add(&buf, "stint:{check%u}", i);
        if (cluster_master(cluster, cluster_slot_of(span_of_text(key))) == master)
            return true;
    }
    return false;
}

static int try_master(struct store_nodes *nodes, const struct store_host *master,
                      struct stint_error *error)
{
    struct store_findings *findings = nodes->findings;
    char key[64];
    if (!find_key(nodes->map, master, key, sizeof(key)))
        return 0; /* all its slots have moved to other masters */
    int code = connect_to(nodes, master, false, error);
    snprintf(findings->node, sizeof(findings->node), "%s", nodes->address);
    if (code == 0) {
        code = try_scripts(nodes, key, error);
    } else {
        remark(findings, FAULT, "this master cannot be asked: %s", error->message);
        findings->runs_scripts = false;
        code = 0;
    }
    findings->node[0] = '\0';
    return code;
}

/* Tries scripts on each master of a cluster. */
static int look_at_masters(struct store_nodes *nodes, struct stint_error *error)
{
    const struct cluster *cluster = nodes->map;
    struct store_findings *findings = nodes->findings;
    bool all_run = true;
    findings->cluster = (struct store_cluster){
        .masters = cluster->n_masters,
        .replicas = cluster->n_replicas,
        .slots_served = cluster->n_slots_served,
    };
    if (cluster->n_slots_served < CLUSTER_SLOTS)
        remark(findings, FAULT, "%u of %d slots have no master: the keys in them have no limits",
               CLUSTER_SLOTS - cluster->n_slots_served, CLUSTER_SLOTS);
    if (cluster->n_replicas == 0 && cluster->n_masters > 0)
        remark(findings, WARNING, "no master has a replica: what is lost with one stays lost");
    for (unsigned i = 0; i < cluster->n_masters; i++) {
        int code = try_master(nodes, &cluster->masters[i], error);
        if (code != 0)
            return code;
        all_run = all_run && findings->runs_scripts;
    }
    findings->runs_scripts = all_run && cluster->n_masters > 0;
    return 0;
}

/* ---- Sentinels ------------------------------------------------------------------------------- */

static void read_master(void *arg, const struct redis_reply *reply)
{
    struct store_nodes *nodes = arg;
    nodes->code_read =
        sentinel_read_master(&nodes->host, nodes->given->url.master, reply, nodes->error);
}

static unsigned number_of(const struct redis_reply *reply, const char *name)
{
    const struct redis_reply *value = redis_reply_named(reply, name);
    char text[16];
    if (value == NULL || value->text.len >= sizeof(text))
        return 0;
    snprintf(text, sizeof(text), "%.*s", (int)value->text.len, (const char *)value->text.ptr);
    return (unsigned)strtoul(text, NULL, 10);
}

static void read_sentinels(void *arg, const struct redis_reply *reply)
{
    struct store_findings *findings = arg;
    if (reply->type == REDIS_ARRAY)
        findings->sentinels = (struct store_sentinels){
            .sentinels = 1 + number_of(reply, "num-other-sentinels"),
            .quorum = number_of(reply, "quorum"),
        };
}

static void read_quorum(void *arg, const struct redis_reply *reply)
{
    struct store_findings *findings = arg;
    if (reply->type == REDIS_ERROR)
        remark(findings, WARNING, "no other master can be chosen now: %.*s", text_len(reply),
               (const char *)reply->text.ptr);
}

/* From a sentinel to the master that it watches. STINT_E_GONE: it knows none of that name. */
static int follow_sentinel(struct store_nodes *nodes, struct stint_error *error)
{
    const struct store_url *url = &nodes->given->url;
    const char *name = url->master;
    if (strcmp(redis_conn_server(nodes->redis)->mode, "sentinel") != 0)
        return err_set(error, STINT_E_MISMATCH, "%s is no sentinel: expected %s://", nodes->address,
                       url->is_tls ? "rediss" : "redis");
    nodes->error = error;
    int code =
        store_nodes_ask(nodes, (const char *[]){"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name, NULL},
                        read_master, nodes, error);
    code = code != 0 ? code : nodes->code_read;
    if (code == 0 && nodes->findings != NULL)
        code = store_nodes_ask(nodes, (const char *[]){"SENTINEL", "MASTER", name, NULL},
                               read_sentinels, nodes->findings, error);
    if (code == 0 && nodes->findings != NULL)
        code = store_nodes_ask(nodes, (const char *[]){"SENTINEL", "CKQUORUM", name, NULL},
                               read_quorum, nodes->findings, error);
    if (code != 0)
        return code;
    const struct store_host master = nodes->host;
    return connect_to(nodes, &master, false, error);
}

/* ---- memcached ------------------------------------------------------------------------------- */

#define CHECK_TTL_S 10

static void read_stat(struct store_findings *findings, const struct memcached_reply *stat)
{
    struct store_memcached *memcached = &findings->memcached;
    const struct {
        const char *name;
        uint64_t *number;
    } stats[] = {
        {"limit_maxbytes", &findings->memory_max}, {"bytes", &memcached->memory_used},
        {"evictions", &memcached->evictions},      {"curr_items", &memcached->items},
        {"item_size_max", &memcached->item_max},   {"uptime", &memcached->uptime_s},
    };
    for (size_t i = 0; i < sizeof(stats) / sizeof(*stats); i++)
        if (span_equals(stat->name, stats[i].name))
            (void)resp_number_read(stat->value, INT64_MAX, stats[i].number);
    /* A number, or in the settings whether it is above 0. */
    if (span_equals(stat->name, "evictions") && span_equals(stat->value, "off"))
        memcached->evicts = false;
}

static void take_memcached_reply(void *arg, enum link_outcome outcome,
                                 const struct memcached_reply *reply, uint64_t now_ns)
{
    struct store_nodes *nodes = arg;
    (void)now_ns;
    if (reply != NULL && reply->code == MEMCACHED_STAT) {
        read_stat(nodes->findings, reply);
        return;
    }
    end_command(nodes, outcome == LINK_DONE || outcome == LINK_REFUSED);
    nodes->is_refused = outcome == LINK_REFUSED;
    if (reply != NULL) {
        nodes->code = reply->code;
        nodes->number = reply->number;
    }
}

static int ask_memcached(struct store_nodes *nodes, struct memcached_command command,
                         struct stint_error *error)
{
    uint64_t begun_ns = uv_hrtime();
    command.answered = take_memcached_reply;
    command.arg = nodes;
    nodes->is_answered = false;
    nodes->number = 0;
    if (!memcached_conn_ask(nodes->memcached, &command, begun_ns))
        return gone(nodes, error);
    return wait_for_reply(nodes, begun_ns, error);
}

static int ask_stats(struct store_nodes *nodes, const char *what, struct stint_error *error)
{
    int code = ask_memcached(
        nodes, (struct memcached_command){.verb = MEMCACHED_STATS, .key = span_of_text(what)},
        error);
    if (code == 0 && nodes->is_refused)
        remark(nodes->findings, WARNING, "it refuses to return its metrics (stats%s%s)",
               what[0] != '\0' ? " " : "", what);
    return code;
}

static int ask_key(struct store_nodes *nodes, enum memcached_verb verb, uint64_t number,
                   struct stint_error *error)
{
    return ask_memcached(nodes,
                         (struct memcached_command){.verb = verb,
                                                    .key = span_of_text(CHECK_KEY),
                                                    .value = span_of_text("1"),
                                                    .number = number,
                                                    .ttl_s = CHECK_TTL_S},
                         error);
}

static int ping_memcached(struct store_nodes *nodes, struct stint_error *error)
{
    return ask_key(nodes, MEMCACHED_GET, 0, error);
}

/* A write with the number that was read succeeds, and a second one with the same number fails. */
static int try_swaps(struct store_nodes *nodes, struct stint_error *error)
{
    int code = ask_key(nodes, MEMCACHED_ADD, 0, error);
    if (code != 0)
        return code;
    if (nodes->code == MEMCACHED_ERROR) {
        remark(nodes->findings, FAULT, "it takes no writes");
        return 0;
    }
    code = ask_key(nodes, MEMCACHED_GET, 0, error);
    uint64_t number = nodes->number;
    if (code != 0 || number == 0)
        return code;
    code = ask_key(nodes, MEMCACHED_SWAP, number, error);
    bool is_done = nodes->code == MEMCACHED_STORED;
    if (code == 0)
        code = ask_key(nodes, MEMCACHED_SWAP, number, error);
    nodes->findings->memcached.compares = is_done && nodes->code == MEMCACHED_EXISTS;
    return code != 0 ? code : ask_key(nodes, MEMCACHED_DELETE, 0, error);
}

static void judge_memcached(struct store_findings *findings)
{
    const struct store_memcached *memcached = &findings->memcached;
    if (!memcached->compares)
        remark(findings, FAULT,
               "values have no numbers, without which states cannot be swapped: "
               "expected memcached without -C");
    if (!memcached->evicts)
        remark(findings, WARNING,
               "it refuses writes when its memory is full (-M), and then forgets the "
               "state that was to be written: as many units are free again");
    if (memcached->evictions > 0)
        remark(findings, WARNING,
               "%llu values were evicted in %llu s: an evicted state is free again; more "
               "memory (-m) would keep it",
               (unsigned long long)memcached->evictions, (unsigned long long)memcached->uptime_s);
}

static int look_at_memcached(struct store_nodes *nodes, const struct store_host *host,
                             unsigned samples, struct stint_error *error)
{
    struct store_findings *findings = nodes->findings;
    findings->memcached.evicts = true;
    int code = connect_to(nodes, host, false, error);
    if (code != 0)
        return code;
    snprintf(findings->address, sizeof(findings->address), "%s", nodes->address);
    if (nodes->given->url.n_hosts > 1)
        snprintf(findings->node, sizeof(findings->node), "%s", nodes->address);
    snprintf(findings->version, sizeof(findings->version), "%s",
             memcached_conn_version(nodes->memcached));
    hide_controls(findings->version);
    code = ask_stats(nodes, "", error);
    if (code == 0)
        code = ask_stats(nodes, "settings", error);
    if (code == 0)
        code = try_swaps(nodes, error);
    if (code == 0)
        code = measure(nodes, samples, ping_memcached, error);
    if (code == 0)
        judge_memcached(findings);
    return code;
}

/* ---- A whole store --------------------------------------------------------------------------- */

static int new_nodes(struct store_nodes **nodes, const struct store_given *given,
                     struct stint_error *error)
{
    struct store_nodes *made = calloc(1, sizeof(*made));
    if (made == NULL || uv_loop_init(&made->loop) != 0) {
        free(made);
        return no_memory(error);
    }
    *nodes = made;
    made->given = given;
    return store_given_tls(given, &made->tls, error);
}

/* To the server of the URL, or the master that its sentinels watch. */
static int reach(struct store_nodes *nodes, struct stint_error *error)
{
    int code = connect_to_any(nodes, error);
    if (code == 0 && nodes->given->url.kind == STORE_REDIS_SENTINEL)
        code = follow_sentinel(nodes, error);
    if (code == 0)
        nodes->is_cluster = strcmp(redis_conn_server(nodes->redis)->mode, "cluster") == 0;
    return code;
}

static int look_at_redis(struct store_nodes *nodes, unsigned samples, struct stint_error *error)
{
    struct store_findings *findings = nodes->findings;
    int code = reach(nodes, error);
    snprintf(findings->address, sizeof(findings->address), "%s", nodes->address);
    if (code == 0)
        code = look_at_server(nodes, samples, error);
    if (code != 0 || !nodes->is_cluster)
        return code;
    code = read_map(nodes, error);
    return code != 0 ? code : look_at_masters(nodes, error);
}

int store_look(const struct store_given *given, unsigned samples, struct store_findings *findings,
               struct stint_error *error)
{
    const struct store_url *url = &given->url;
    struct store_nodes *nodes = NULL;
    int code = new_nodes(&nodes, given, error);
    if (code == 0 && url->kind != STORE_MEMCACHED) {
        nodes->findings = findings;
        code = look_at_redis(nodes, samples, error);
    }
    for (unsigned i = 0; code == 0 && url->kind == STORE_MEMCACHED && i < url->n_hosts; i++) {
        nodes->findings = &findings[i];
        code = look_at_memcached(nodes, &url->hosts[i], samples, error);
    }
    store_nodes_close(nodes);
    return code;
}

/* ---- The server that has a key --------------------------------------------------------------- */

int store_nodes_open(struct store_nodes **nodes, const struct store_given *given,
                     struct stint_error *error)
{
    struct store_nodes *made = NULL;
    int code = new_nodes(&made, given, error);
    if (code == 0)
        code = reach(made, error);
    if (code == 0 && made->is_cluster)
        code = read_map(made, error);
    if (code == 0)
        *nodes = made;
    else
        store_nodes_close(made);
    return code;
}

void store_nodes_close(struct store_nodes *nodes)
{
    if (nodes == NULL)
        return;
    disconnect(nodes);
    int left = uv_loop_close(&nodes->loop);
    assert(left == 0);
    (void)left;
    free(nodes->map);
    upstream_tls_free(nodes->tls);
    free(nodes);
}

int store_nodes_find(struct store_nodes *nodes, struct span key, const char **address, int *slot,
                     struct stint_error *error)
{
    int code = 0;
    *slot = STORE_NODE_NO_SLOT;
    if (nodes->map != NULL) {
        *slot = (int)cluster_slot_of(key);
        const struct store_host *master = cluster_master(nodes->map, (unsigned)*slot);
        if (master == NULL)
            return err_set(error, STINT_E_GONE, "no master serves slot %d", *slot);
        if (master->port != nodes->host.port || strcmp(master->name, nodes->host.name) != 0)
            code = connect_to(nodes, master, false, error);
    }
    *address = nodes->address;
    return code;
}
