/* SPDX-License-Identifier: MIT */
/* Queries a Redis or Valkey: what it is, what it can do, and which of its servers has a key. */
#define _GNU_SOURCE
#include "cmd/store/store.h"

#include "backend/redis/cluster.h"
#include "backend/redis/sentinel.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"
#include "cmd/lib/print.h"
#include "table/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- One server ------------------------------------------------------------------------------ */

#define SKEW_MAX_NS (500 * NS_PER_MS)
/* What every script needs: the time, and a state that is read, written and deleted. */
#define SCRIPT                                                                                     \
    "local before = redis.call('GET', KEYS[1]) "                                                   \
    "redis.call('SET', KEYS[1], '1', 'PX', 1000) "                                                 \
    "redis.call('DEL', KEYS[1]) "                                                                  \
    "return redis.call('TIME')"
#define SCRIPT_KEY "stint:{check}"

struct look {
    struct store_session *session;
    const struct store_url *url;
    struct store_findings *findings;
    struct stint_error *error;
};

static void add_remark(struct store_findings *findings, bool is_fault, const char *format,
                       va_list args) ERR_PRINTF(3, 0);

static void add_remark(struct store_findings *findings, bool is_fault, const char *format,
                       va_list args)
{
    if (findings->n_remarks == STORE_REMARKS_MAX)
        return;
    struct store_remark *remark = &findings->remarks[findings->n_remarks++];
    struct buf buf = buf_of(remark->text, sizeof(remark->text));
    remark->is_fault = is_fault;
    if (findings->node[0] != '\0')
        buf_add(&buf, "%s: ", findings->node);
    vsnprintf(remark->text + buf.len, sizeof(remark->text) - buf.len, format, args);
    hide_controls(remark->text);
}

void store_fault(struct store_findings *findings, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_remark(findings, true, format, args);
    va_end(args);
}

void store_warn(struct store_findings *findings, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_remark(findings, false, format, args);
    va_end(args);
}

bool store_is_fit(const struct store_findings *findings)
{
    for (unsigned i = 0; i < findings->n_remarks; i++)
        if (findings->remarks[i].is_fault)
            return false;
    return true;
}

static int ask(const struct look *look, void (*read)(void *, const struct redis_reply *), void *arg,
               const char *const *words)
{
    return store_session_ask(look->session, words, read, arg, look->error);
}

static int text_len(const struct redis_reply *reply)
{
    return reply->text.len < 200 ? (int)reply->text.len : 200;
}

/* ---- INFO ------------------------------------------------------------------------------------ */

/* The value in a line "name:value"; false: there is none. */
static bool info_value(struct span info, const char *name, char *value, size_t size)
{
    size_t len = strlen(name);
    const uint8_t *at = info.ptr, *end = info.ptr + info.len;
    while (at < end) {
        const uint8_t *eol = memchr(at, '\n', (size_t)(end - at));
        eol = eol != NULL ? eol : end;
        if ((size_t)(eol - at) > len && memcmp(at, name, len) == 0 && at[len] == ':') {
            size_t value_len = (size_t)(eol - at) - len - 1;
            if (value_len > 0 && at[len + value_len] == '\r')
                value_len--;
            snprintf(value, size, "%.*s", value_len < size ? (int)value_len : (int)size - 1,
                     (const char *)at + len + 1);
            hide_controls(value);
            return true;
        }
        at = eol + 1;
    }
    return false;
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
        store_warn(findings, "INFO is refused, so eviction and persistence are not known: %.*s",
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
        store_warn(findings, "it is reading its data, and answers nothing else until then");
    if (info_value(info, "rdb_last_bgsave_status", text, sizeof(text)) && strcmp(text, "ok") != 0)
        store_warn(findings, "its last snapshot has failed: where stop-writes-on-bgsave-error is "
                             "set it takes no writes");
    if (info_value(info, "aof_last_write_status", text, sizeof(text)) && strcmp(text, "ok") != 0)
        store_fault(findings, "it cannot write its append-only file, and takes no writes");
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
        store_warn(findings,
                   "maxmemory-policy is %s: where memory is full it drops keys, %s, and a limit "
                   "whose key is gone admits everything anew; expected noeviction",
                   findings->policy,
                   strncmp(findings->policy, "allkeys", 7) == 0
                       ? "whichever they are"
                       : "those with a time to live, as all of ours have");
    if (strcmp(findings->append_only, "off") == 0 && strcmp(findings->snapshots, "off") == 0 &&
        findings->replicas == 0)
        store_warn(findings, "nothing is kept over a restart: no append-only file, no snapshots, "
                             "no replica; every limit then begins anew");
}

/* ---- Software -------------------------------------------------------------------------------- */

static void judge_server(const struct look *look)
{
    const struct redis_server *server = store_session_server(look->session);
    struct store_findings *findings = look->findings;
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
        store_fault(findings, "it is of version %s: expected Redis 6.2 or later, or Valkey",
                    server->version);
    if (strcmp(server->mode, "sentinel") == 0)
        store_fault(findings, "it is a sentinel, not a store: expected redis-sentinel:// and "
                              "/MASTER-NAME behind the hosts");
    bool is_cluster = strcmp(server->mode, "cluster") == 0;
    if (is_cluster && look->url->kind != STORE_REDIS_CLUSTER)
        store_fault(findings, "it is a node of a cluster: expected redis-cluster://");
    if (!is_cluster && look->url->kind == STORE_REDIS_CLUSTER)
        store_fault(findings, "it is no cluster: expected redis://");
}

static void judge_role(struct store_findings *findings)
{
    bool is_replica =
        strcmp(findings->role, "slave") == 0 || strcmp(findings->role, "replica") == 0;
    if (!is_replica)
        return;
    snprintf(findings->role, sizeof(findings->role), "replica");
    if (strcmp(findings->mode, "cluster") != 0) /* other nodes of a cluster are queried instead */
        store_fault(findings, "it is a replica and takes no writes: expected the master");
}

/* ---- Scripts --------------------------------------------------------------------------------- */

struct loading {
    struct store_findings *findings;
    char sha[41];
    bool has_run;
    bool is_elsewhere; /* the key's slot is another node's */
};

static void refuse_scripts(struct store_findings *findings, const struct redis_reply *reply,
                           const char *what)
{
    store_fault(findings, "%s is refused: %.*s", what, text_len(reply),
                (const char *)reply->text.ptr);
}

static void read_sha(void *arg, const struct redis_reply *reply)
{
    struct loading *loading = arg;
    if (reply->type == REDIS_TEXT && reply->text.len == 40)
        snprintf(loading->sha, sizeof(loading->sha), "%.40s", (const char *)reply->text.ptr);
    else
        refuse_scripts(loading->findings, reply, "SCRIPT LOAD");
}

static void read_run(void *arg, const struct redis_reply *reply)
{
    struct loading *loading = arg;
    loading->has_run = reply->type == REDIS_ARRAY;
    if (!loading->has_run)
        refuse_scripts(loading->findings, reply,
                       "a script that reads the time and writes a key " SCRIPT_KEY);
}

/* Loads a script and runs it with that key. */
static int store_try_scripts(struct store_session *session, const char *key,
                             struct store_findings *findings, struct stint_error *error)
{
    struct loading loading = {.findings = findings};
    int code = store_session_ask(session, (const char *[]){"SCRIPT", "LOAD", SCRIPT, NULL},
                                 read_sha, &loading, error);
    if (code == 0 && loading.sha[0] != '\0')
        code = store_session_ask(session, (const char *[]){"EVALSHA", loading.sha, "1", key, NULL},
                                 read_run, &loading, error);
    findings->runs_scripts = loading.has_run;
    return code;
}

/* ---- Time ------------------------------------------------------------------------------------ */

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
static int look_at_clock(const struct look *look)
{
    struct store_findings *findings = look->findings;
    uint64_t best_ns = STINT_NEVER_NS;
    for (int i = 0; i < 5; i++) {
        uint64_t before_ns = (uint64_t)clock_wall_ns(), time_ns = 0;
        int code = ask(look, read_time, &time_ns, (const char *[]){"TIME", NULL});
        uint64_t took_ns = store_session_took_ns(look->session);
        if (code != 0)
            return code;
        if (time_ns == 0 || took_ns >= best_ns)
            continue;
        best_ns = took_ns;
        findings->has_time = true;
        findings->ahead_ns = (int64_t)time_ns - (int64_t)(before_ns + took_ns / 2);
        findings->ahead_error_ns = took_ns / 2 + NS_PER_US;
    }
    if (findings->has_time &&
        (uint64_t)llabs(findings->ahead_ns) > SKEW_MAX_NS + findings->ahead_error_ns)
        store_warn(findings, "its clock and ours differ by %lld ms: it decides by its own",
                   (long long)llabs(findings->ahead_ns) / 1000000);
    return 0;
}

static void read_nothing(void *arg, const struct redis_reply *reply)
{
    (void)arg;
    (void)reply;
}

static int by_size(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

struct store_latency store_latency_of(uint64_t *took_ns, unsigned samples)
{
    qsort(took_ns, samples, sizeof(*took_ns), by_size);
    return (struct store_latency){
        .median_ns = took_ns[(samples - 1) / 2],
        .p90_ns = took_ns[(uint64_t)(samples - 1) * 90 / 100],
        .p99_ns = took_ns[(uint64_t)(samples - 1) * 99 / 100],
        .max_ns = took_ns[samples - 1],
        .n = samples,
    };
}

static int look_at_latency(const struct look *look, unsigned samples)
{
    uint64_t *took_ns = calloc(samples, sizeof(*took_ns));
    if (took_ns == NULL)
        return err_set(look->error, STINT_E_SYSTEM, "no memory for %u round trips", samples);
    int code = 0;
    for (unsigned i = 0; i < samples && code == 0; i++) {
        code = ask(look, read_nothing, NULL, (const char *[]){"PING", NULL});
        took_ns[i] = store_session_took_ns(look->session);
    }
    if (code == 0)
        look->findings->latency = store_latency_of(took_ns, samples);
    free(took_ns);
    return code;
}

/* STINT_E_GONE: the connection ended meanwhile. */
static int look_at_server(struct store_session *session, const struct store_url *url,
                          unsigned samples, struct store_findings *findings,
                          struct stint_error *error)
{
    const struct look look = {session, url, findings, error};
    judge_server(&look);
    int code = ask(&look, read_info, findings, (const char *[]){"INFO", NULL});
    if (code == 0)
        code = ask(&look, read_save, findings, (const char *[]){"CONFIG", "GET", "save", NULL});
    if (code != 0)
        return code;
    judge_role(findings);
    judge_info(findings);
    /* Scripts are not tried on a sentinel. */
    if (strcmp(findings->mode, "sentinel") == 0)
        return 0;
    if (strcmp(findings->role, "replica") != 0 && strcmp(findings->mode, "cluster") != 0)
        code = store_try_scripts(session, SCRIPT_KEY, findings, error);
    if (code == 0)
        code = look_at_clock(&look);
    return code != 0 ? code : look_at_latency(&look, samples);
}

/* ---- The other servers ----------------------------------------------------------------------- */

const char *store_address(const struct store_host *host, char *text, size_t size)
{
    struct buf buf = buf_of(text, size);
    buf_add(&buf, strchr(host->name, ':') != NULL ? "[%s]:%u" : "%s:%u", host->name,
            (unsigned)host->port);
    hide_controls(text); /* a server has named it */
    return text;
}

/* ---- Clusters -------------------------------------------------------------------------------- */

struct mapping {
    struct cluster *cluster;
    const struct store_host *asked;
    struct stint_error *error;
    int code;
};

static void read_slots(void *arg, const struct redis_reply *reply)
{
    struct mapping *mapping = arg;
    int len = reply->text.len < 200 ? (int)reply->text.len : 200;
    if (reply->type == REDIS_ERROR)
        mapping->code = err_set(mapping->error, STINT_E_MISMATCH, "CLUSTER SLOTS is refused: %.*s",
                                len, (const char *)reply->text.ptr);
    else
        mapping->code = cluster_read(mapping->cluster, reply, mapping->asked, mapping->error);
}

/* Gets the owners of slots from the node `asked` of a cluster; for free(). */
static int store_read_map(struct store_session *session, const struct store_host *asked,
                          struct cluster **map, struct stint_error *error)
{
    struct mapping mapping = {
        .cluster = calloc(1, sizeof(struct cluster)), .asked = asked, .error = error};
    if (mapping.cluster == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a map of slots");
    int code = store_session_ask(session, (const char *[]){"CLUSTER", "SLOTS", NULL}, read_slots,
                                 &mapping, error);
    code = code != 0 ? code : mapping.code;
    if (code == 0)
        *map = mapping.cluster;
    else
        free(mapping.cluster);
    return code;
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

static int try_master(const struct cluster *cluster, const struct store_host *master,
                      const struct store_session_options *options, struct store_findings *findings,
                      struct stint_error *error)
{
    struct store_session_options there = *options;
    struct store_session *session = NULL;
    char key[64];
    if (!find_key(cluster, master, key, sizeof(key)))
        return 0; /* all its slots have moved to other masters */
    there.host = master;
    store_address(master, findings->node, sizeof(findings->node));
    int code = store_session_open(&session, &there, error);
    if (code == 0)
        code = store_try_scripts(session, key, findings, error);
    else {
        store_fault(findings, "this master cannot be asked: %s", error->message);
        findings->runs_scripts = false;
        code = 0;
    }
    store_session_close(session);
    findings->node[0] = '\0';
    return code;
}

static int look_at_masters(const struct cluster *cluster,
                           const struct store_session_options *options,
                           struct store_findings *findings, struct stint_error *error)
{
    bool all_run = true;
    findings->cluster = (struct store_cluster){
        .masters = cluster->n_masters,
        .replicas = cluster->n_replicas,
        .slots_served = cluster->n_slots_served,
    };
    if (cluster->n_slots_served < CLUSTER_SLOTS)
        store_fault(findings, "%u of %d slots have no master: the keys in them have no limits",
                    CLUSTER_SLOTS - cluster->n_slots_served, CLUSTER_SLOTS);
    if (cluster->n_replicas == 0 && cluster->n_masters > 0)
        store_warn(findings, "no master has a replica: what is lost with one stays lost");
    for (unsigned i = 0; i < cluster->n_masters; i++) {
        int code = try_master(cluster, &cluster->masters[i], options, findings, error);
        if (code != 0)
            return code;
        all_run = all_run && findings->runs_scripts;
    }
    findings->runs_scripts = all_run && cluster->n_masters > 0;
    return 0;
}

/* Gets the other nodes from a node of a cluster, and tries scripts on each of its masters. */
static int look_around(struct store_session *session, const struct store_session_options *options,
                       struct store_findings *findings, struct stint_error *error)
{
    static const struct store_host nowhere;
    const struct store_host *asked = options->url->n_hosts > 0 ? &options->url->hosts[0] : &nowhere;
    for (unsigned i = 0; i < options->url->n_hosts; i++) {
        char text[sizeof(findings->address)];
        if (strcmp(store_address(&options->url->hosts[i], text, sizeof(text)), findings->address) ==
            0)
            asked = &options->url->hosts[i];
    }
    struct cluster *map = NULL;
    int code = store_read_map(session, asked, &map, error);
    if (code == 0)
        code = look_at_masters(map, options, findings, error);
    free(map);
    return code;
}

/* ---- Sentinels ------------------------------------------------------------------------------- */

struct watched {
    const char *name;
    struct store_host *master;
    struct store_findings *findings;
    struct stint_error *error;
    int code;
};

static void read_master(void *arg, const struct redis_reply *reply)
{
    struct watched *watched = arg;
    watched->code = sentinel_read_master(watched->master, watched->name, reply, watched->error);
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
    struct watched *watched = arg;
    if (reply->type == REDIS_ARRAY)
        watched->findings->sentinels = (struct store_sentinels){
            .sentinels = 1 + number_of(reply, "num-other-sentinels"),
            .quorum = number_of(reply, "quorum"),
        };
}

static void read_quorum(void *arg, const struct redis_reply *reply)
{
    struct watched *watched = arg;
    if (reply->type == REDIS_ERROR)
        store_warn(watched->findings, "no other master can be chosen now: %.*s",
                   reply->text.len < 200 ? (int)reply->text.len : 200,
                   (const char *)reply->text.ptr);
}

/* Gets the master from a sentinel. STINT_E_GONE: it knows none of that name. */
static int find_master(struct store_session *session, const char *name, struct store_host *master,
                       struct store_findings *findings, struct stint_error *error)
{
    struct watched watched = {name, master, findings, error, 0};
    int code = store_session_ask(
        session, (const char *[]){"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name, NULL}, read_master,
        &watched, error);
    code = code != 0 ? code : watched.code;
    if (code == 0)
        code = store_session_ask(session, (const char *[]){"SENTINEL", "MASTER", name, NULL},
                                 read_sentinels, &watched, error);
    if (code == 0)
        code = store_session_ask(session, (const char *[]){"SENTINEL", "CKQUORUM", name, NULL},
                                 read_quorum, &watched, error);
    return code;
}

/* ---- A whole store --------------------------------------------------------------------------- */

static struct store_session_options options_of(const struct store_check *check)
{
    return (struct store_session_options){
        .url = check->url,
        .database = check->url->database,
        .tls = check->tls,
        .timeout_ns = check->timeout_ns,
    };
}

/* Connects to the first of the URL's servers that answers; an error is that of the last one. */
static int open_any(const struct store_check *check, struct store_session **session,
                    struct store_findings *findings, struct stint_error *error)
{
    struct store_session_options options = options_of(check);
    int code = STINT_E_GONE;
    if (check->url->kind == STORE_REDIS_SENTINEL)
        options.database = 0;
    if (check->url->n_hosts == 0) {
        snprintf(findings->address, sizeof(findings->address), "%s", check->url->path);
        return store_session_open(session, &options, error);
    }
    for (unsigned i = 0; i < check->url->n_hosts && code != 0; i++) {
        options.host = &check->url->hosts[i];
        store_address(options.host, findings->address, sizeof(findings->address));
        code = store_session_open(session, &options, error);
    }
    return code;
}

/* From a sentinel to the master that it watches. */
static int follow_sentinel(const struct store_check *check, struct store_session **session,
                           struct store_findings *findings, struct stint_error *error)
{
    struct store_host master;
    struct store_session_options options = options_of(check);
    options.host = &master;
    if (strcmp(store_session_server(*session)->mode, "sentinel") != 0)
        return err_set(error, STINT_E_MISMATCH, "%s is no sentinel: expected %s://",
                       findings->address, check->url->is_tls ? "rediss" : "redis");
    int code = find_master(*session, check->url->master, &master, findings, error);
    if (code != 0)
        return code;
    store_session_close(*session);
    *session = NULL;
    store_address(&master, findings->address, sizeof(findings->address));
    return store_session_open(session, &options, error);
}

static int look(const struct store_check *check, struct store_session **session,
                struct store_findings *findings, struct stint_error *error)
{
    const struct store_session_options options = options_of(check);
    int code = open_any(check, session, findings, error);
    if (code == 0 && check->url->kind == STORE_REDIS_SENTINEL)
        code = follow_sentinel(check, session, findings, error);
    if (code == 0)
        code = look_at_server(*session, check->url, check->samples, findings, error);
    if (code == 0 && strcmp(findings->mode, "cluster") == 0)
        code = look_around(*session, &options, findings, error);
    return code;
}

int store_look(const struct store_check *check, struct store_findings *findings,
               struct stint_error *error)
{
    struct store_session *session = NULL;
    int code = look(check, &session, findings, error);
    store_session_close(session);
    return code;
}

/* ---- The server that has a key --------------------------------------------------------------- */

struct store_nodes {
    const struct store_given *given;
    struct upstream_tls *tls;
    struct store_session *session;
    struct cluster *map; /* NULL: it is no cluster */
    struct store_host host;
    char address[STORE_HOST_SIZE + 16];
    int slot;
};

static int go_to(struct store_nodes *nodes, const struct store_host *host,
                 struct stint_error *error)
{
    const struct store_url *url = &nodes->given->url;
    bool is_sentinel = url->kind == STORE_REDIS_SENTINEL && nodes->address[0] == '\0';
    const struct store_session_options options = {.url = url,
                                                  .host = host,
                                                  .database = is_sentinel ? 0 : url->database,
                                                  .tls = nodes->tls,
                                                  .timeout_ns = nodes->given->timeout_ns};
    store_session_close(nodes->session);
    nodes->session = NULL;
    if (host == NULL) {
        snprintf(nodes->address, sizeof(nodes->address), "%s", url->path);
    } else {
        nodes->host = *host;
        store_address(host, nodes->address, sizeof(nodes->address));
    }
    return store_session_open(&nodes->session, &options, error);
}

static int go_to_any(struct store_nodes *nodes, struct stint_error *error)
{
    const struct store_url *url = &nodes->given->url;
    int code = STINT_E_GONE;
    if (url->n_hosts == 0)
        return go_to(nodes, NULL, error);
    for (unsigned i = 0; i < url->n_hosts && code != 0; i++) {
        nodes->address[0] = '\0';
        code = go_to(nodes, &url->hosts[i], error);
    }
    return code;
}

static int go_to_master(struct store_nodes *nodes, struct stint_error *error)
{
    struct store_host master;
    struct store_findings *findings = calloc(1, sizeof(*findings)); /* not needed here */
    if (findings == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory to ask sentinels");
    int code = find_master(nodes->session, nodes->given->url.master, &master, findings, error);
    free(findings);
    return code != 0 ? code : go_to(nodes, &master, error);
}

int store_nodes_open(struct store_nodes **nodes, const struct store_given *given,
                     struct stint_error *error)
{
    struct store_nodes *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a connection");
    made->given = given;
    made->slot = STORE_NODE_NO_SLOT;
    int code = store_given_tls(given, &made->tls, error);
    if (code == 0)
        code = go_to_any(made, error);
    if (code == 0 && given->url.kind == STORE_REDIS_SENTINEL)
        code = go_to_master(made, error);
    if (code == 0 && strcmp(store_session_server(made->session)->mode, "cluster") == 0)
        code = store_read_map(made->session, &made->host, &made->map, error);
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
    store_session_close(nodes->session);
    free(nodes->map);
    upstream_tls_free(nodes->tls);
    free(nodes);
}

int store_nodes_find(struct store_nodes *nodes, struct span key, struct store_session **session,
                     struct stint_error *error)
{
    int code = 0;
    if (nodes->map != NULL) {
        unsigned slot = cluster_slot_of(key);
        const struct store_host *master = cluster_master(nodes->map, slot);
        if (master == NULL)
            return err_set(error, STINT_E_GONE, "no master serves slot %u", slot);
        nodes->slot = (int)slot;
        if (master->port != nodes->host.port || strcmp(master->name, nodes->host.name) != 0)
            code = go_to(nodes, master, error);
    }
    *session = nodes->session;
    return code;
}

const char *store_nodes_address(const struct store_nodes *nodes)
{
    return nodes->address;
}

int store_nodes_slot(const struct store_nodes *nodes)
{
    return nodes->slot;
}
