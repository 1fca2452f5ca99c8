/* SPDX-License-Identifier: MIT */
/* `stint store`: whether a store can be that of several servers, and the scripts for it. */
#define _GNU_SOURCE
#include "cmd/store/store.h"
#include "backend/redis/cluster.h"
#include "backend/script/lua_script.h"
#include "backend/wire/memcached_conn.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/store/store_word.h"
#include "net/upstream/upstream.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* ---- stint store script: the scripts that servers load, as text for redis-cli ---------------- */

static void set_name(struct argp_state *state, void *input, char *word)
{
    const char **name = input;
    if (*name != NULL)
        argp_error(state, "expected one NAME, and found another word");
    *name = word;
}

#define SCRIPTS_MAX 64

static int store_script_main(int argc, char **argv)
{
    static const char *names[SCRIPTS_MAX + 1];
    static const struct args_command command = {
        .set = {.word = set_name},
        .arguments = "[NAME]",
        .words = names,
        .doc =
            "Prints the Lua script NAME as servers load it, such as rolling_window for "
            "redis-cli; without NAME, the names of all scripts.\vstint store script "
            "rolling_window > rolling_window.lua\n"
            "redis-cli --eval rolling_window.lua mail:alice , 100 10 60000000 5000000 0\n\n"
            "Exit codes: 0 done, 1 the output cannot be written, 2 bad usage. See stint-store(1)."};
    const char *name = NULL;
    struct args_hint hint;
    for (size_t i = 0; lua_scripts[i] != NULL; i++) {
        assert(i < SCRIPTS_MAX);
        names[i] = lua_scripts[i]->name;
    }
    args_parse(&command, argc, argv, &name);
    for (size_t i = 0; name == NULL && names[i] != NULL; i++)
        puts(names[i]);
    if (name == NULL)
        return CMD_DONE;
    for (size_t i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0) {
            fwrite(lua_scripts[i]->text.ptr, 1, lua_scripts[i]->text.len, stdout);
            return CMD_DONE;
        }
    args_hint(&hint, "", name, names);
    print_message("there is no script '%s'; %s%s `stint store script` lists all", name, hint.text,
                  hint.end);
    return CMD_BAD_USAGE;
}

/* ---- The results for Redis and Valkey -------------------------------------------------------- */

static const char *or_unknown(const char *text)
{
    return text[0] != '\0' ? text : "not known";
}

static double ms(uint64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

static void print_latency(const struct store_latency *latency)
{
    if (latency->n > 0)
        printf("  round trip   median %.3f ms, p90 %.3f ms, p99 %.3f ms, longest %.3f ms of %u\n",
               ms(latency->median_ns), ms(latency->p90_ns), ms(latency->p99_ns),
               ms(latency->max_ns), latency->n);
}

static void print_remarks(const struct store_findings *findings)
{
    for (unsigned i = 0; i < findings->n_remarks; i++)
        printf("%s: %s\n", findings->remarks[i].is_fault ? "fault" : "warning",
               findings->remarks[i].text);
}

static void print_text(const struct store_url *url, const struct store_findings *findings)
{
    char text[STORE_URL_TEXT_SIZE];
    struct formatted memory;
    printf("%s\n", store_url_text(url, text));
    printf("  server       %s %s, %s%s%s, at %s\n", findings->is_valkey ? "Valkey" : "Redis",
           findings->version, findings->mode, findings->role[0] != '\0' ? ", " : "", findings->role,
           findings->address);
    printf("  scripts      %s\n", findings->runs_scripts ? "run" : "do not run");
    printf("  eviction     %s, %s\n", or_unknown(findings->policy),
           findings->memory_max > 0 ? format_bytes(&memory, findings->memory_max)
                                    : "no limit of memory");
    printf("  persistence  append-only file %s, snapshots %s, %u replica%s\n",
           or_unknown(findings->append_only), or_unknown(findings->snapshots), findings->replicas,
           findings->replicas == 1 ? "" : "s");
    if (findings->cluster.masters > 0)
        printf("  cluster      %u masters, %u replicas, %u of %u slots served\n",
               findings->cluster.masters, findings->cluster.replicas,
               findings->cluster.slots_served, (unsigned)CLUSTER_SLOTS);
    if (findings->sentinels.sentinels > 0)
        printf("  sentinels    %u, %u of them decide that a master is down\n",
               findings->sentinels.sentinels, findings->sentinels.quorum);
    if (findings->has_time)
        printf("  clock        %.3f ms %s ours, give or take %.3f ms\n",
               ms((uint64_t)llabs(findings->ahead_ns)),
               findings->ahead_ns < 0 ? "behind" : "ahead of", ms(findings->ahead_error_ns));
    print_latency(&findings->latency);
    print_remarks(findings);
    printf("%s\n", store_is_fit(findings) ? "fit" : "not fit");
}

/* In JSON a value that is not known is null. */
static json_t *word(const char *text)
{
    return text[0] != '\0' ? json_text_key(span_of_text(text)) : json_null();
}

static json_t *remarks_json(const struct store_findings *findings, bool is_fault)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < findings->n_remarks; i++)
        if (findings->remarks[i].is_fault == is_fault)
            json_array_append_new(list, word(findings->remarks[i].text));
    return list;
}

static json_t *latency_json(const struct store_latency *latency)
{
    if (latency->n == 0)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:i}", "median_ns", json_text_ns(latency->median_ns),
                     "p90_ns", json_text_ns(latency->p90_ns), "p99_ns",
                     json_text_ns(latency->p99_ns), "max_ns", json_text_ns(latency->max_ns),
                     "samples", (int)latency->n);
}

static json_t *cluster_of(const struct store_cluster *cluster)
{
    if (cluster->masters == 0)
        return json_null();
    return json_pack("{s:i, s:i, s:i}", "masters", (int)cluster->masters, "replicas",
                     (int)cluster->replicas, "slots_served", (int)cluster->slots_served);
}

static json_t *sentinels_of(const struct store_sentinels *sentinels)
{
    if (sentinels->sentinels == 0)
        return json_null();
    return json_pack("{s:i, s:i}", "sentinels", (int)sentinels->sentinels, "quorum",
                     (int)sentinels->quorum);
}

static int print_json(const struct store_url *url, const struct store_findings *findings)
{
    char text[STORE_URL_TEXT_SIZE];
    json_t *clock = findings->has_time
                        ? json_pack("{s:I, s:o}", "ahead_ns", (json_int_t)findings->ahead_ns,
                                    "error_ns", json_text_ns(findings->ahead_error_ns))
                        : json_null();
    json_t *object = json_pack(
        "{s:o, s:b, s:{s:s, s:o, s:o, s:o, s:o}, s:b, s:{s:o, s:I}, s:{s:o, s:o, s:i}, s:o, s:o, "
        "s:o, s:o, s:o, s:o}",
        "url", word(store_url_text(url, text)), "fit", store_is_fit(findings), "server", "name",
        findings->is_valkey ? "valkey" : "redis", "version", word(findings->version), "mode",
        word(findings->mode), "role", word(findings->role), "address", word(findings->address),
        "scripts", findings->runs_scripts, "eviction", "policy", word(findings->policy),
        "memory_max", (json_int_t)findings->memory_max, "persistence", "append_only",
        word(findings->append_only), "snapshots", word(findings->snapshots), "replicas",
        (int)findings->replicas, "clock", clock, "round_trip", latency_json(&findings->latency),
        "cluster", cluster_of(&findings->cluster), "sentinel", sentinels_of(&findings->sentinels),
        "faults", remarks_json(findings, true), "warnings", remarks_json(findings, false));
    return json_text_print(object, false);
}

static int report(const struct store_url *url, const struct store_findings *findings, bool is_json)
{
    if (is_json)
        return print_json(url, findings);
    print_text(url, findings);
    return ferror(stdout) != 0 ? -1 : 0;
}

/* ---- Servers of memcached -------------------------------------------------------------------- */

struct memcached_findings {
    /* Address, version, memory_max, latency and remarks; the rest is for Redis. */
    struct store_findings common;
    uint64_t memory_used, evictions, items, item_max, uptime_s;
    bool evicts;   /* if memory is full; else it refuses */
    bool compares; /* values have numbers, and a write with another number is refused */
};

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

static void stop(void *arg, uint64_t now_ns)
{
    struct asked *asked = arg;
    (void)now_ns;
    uv_stop(&asked->loop);
}

static int open_server(struct asked *asked, const struct store_check *check, unsigned server)
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
    stop(asked, now_ns);
}

static int ask_memcached(struct asked *asked, struct memcached_command command)
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
    int code = ask_memcached(
        asked, (struct memcached_command){.verb = MEMCACHED_STATS, .key = span_of_text(what)});
    if (code == 0 && asked->outcome == MEMCACHED_REFUSED)
        store_warn(&asked->findings->common, "it refuses to return its metrics (stats%s%s)",
                   what[0] != '\0' ? " " : "", what);
    return code;
}

/* ---- Swaps ----------------------------------------------------------------------------------- */

static int ask_key(struct asked *asked, enum memcached_verb verb, uint64_t number)
{
    return ask_memcached(asked, (struct memcached_command){.verb = verb,
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

static void judge_memcached(struct memcached_findings *findings)
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

static int look_at_memcached(struct asked *asked, const struct store_check *check)
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

static int memcached_look(const struct store_check *check, struct memcached_findings *findings,
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
            code = look_at_memcached(&asked, check);
        if (code == 0)
            judge_memcached(&findings[i]);
        close_server(&asked);
    }
    return code;
}

static bool memcached_is_fit(const struct memcached_findings *findings, unsigned n_servers)
{
    for (unsigned i = 0; i < n_servers; i++)
        if (!store_is_fit(&findings[i].common))
            return false;
    return true;
}

/* ---- The results for memcached --------------------------------------------------------------- */

static void print_server(const struct memcached_findings *findings)
{
    const struct store_findings *common = &findings->common;
    struct formatted used, most;
    printf("  server       memcached %s, at %s\n", common->version, common->address);
    printf("  memory       %s of %s, %llu values of at most %llu bytes\n",
           format_bytes(&used, findings->memory_used), format_bytes(&most, common->memory_max),
           (unsigned long long)findings->items, (unsigned long long)findings->item_max);
    printf("  eviction     %s, %llu so far\n", findings->evicts ? "of the oldest" : "none",
           (unsigned long long)findings->evictions);
    printf("  swaps        %s\n", findings->compares ? "compare" : "do not compare");
    print_latency(&common->latency);
}

static void print_memcached_text(const struct store_url *url,
                                 const struct memcached_findings *findings)
{
    char text[STORE_URL_TEXT_SIZE];
    printf("%s\n", store_url_text(url, text));
    for (unsigned i = 0; i < url->n_hosts; i++)
        print_server(&findings[i]);
    printf("  persistence  none: a restart forgets all states\n");
    for (unsigned i = 0; i < url->n_hosts; i++)
        print_remarks(&findings[i].common);
    printf("%s\n", memcached_is_fit(findings, url->n_hosts) ? "fit" : "not fit");
}

static json_t *server_of(const struct memcached_findings *findings)
{
    const struct store_findings *common = &findings->common;
    return json_pack(
        "{s:s, s:o, s:s, s:{s:I, s:I, s:I, s:I}, s:{s:b, s:I}, s:b, s:o}", "name", "memcached",
        "version", json_text_key(span_of_text(common->version)), "address", common->address,
        "memory", "used", (json_int_t)findings->memory_used, "max", (json_int_t)common->memory_max,
        "items", (json_int_t)findings->items, "item_max", (json_int_t)findings->item_max,
        "eviction", "on", findings->evicts, "evicted", (json_int_t)findings->evictions, "swaps",
        findings->compares, "round_trip", latency_json(&common->latency));
}

static json_t *remarks_of(const struct store_url *url, const struct memcached_findings *findings,
                          bool is_fault)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < url->n_hosts; i++) {
        json_t *own = remarks_json(&findings[i].common, is_fault);
        json_array_extend(list, own);
        json_decref(own);
    }
    return list;
}

static int print_memcached_json(const struct store_url *url,
                                const struct memcached_findings *findings)
{
    char text[STORE_URL_TEXT_SIZE];
    json_t *servers = json_array();
    for (unsigned i = 0; i < url->n_hosts; i++)
        json_array_append_new(servers, server_of(&findings[i]));
    return json_text_print(json_pack("{s:o, s:b, s:o, s:o, s:o}", "url",
                                     json_text_key(span_of_text(store_url_text(url, text))), "fit",
                                     memcached_is_fit(findings, url->n_hosts), "servers", servers,
                                     "faults", remarks_of(url, findings, true), "warnings",
                                     remarks_of(url, findings, false)),
                           false);
}

static int memcached_report(const struct store_url *url, const struct memcached_findings *findings,
                            bool is_json)
{
    if (is_json)
        return print_memcached_json(url, findings);
    print_memcached_text(url, findings);
    return ferror(stdout) != 0 ? -1 : 0;
}

/* ---- stint store check ----------------------------------------------------------------------- */

#define SAMPLES_DEFAULT 100
#define TIMEOUT_NS_DEFAULT (2 * NS_PER_S)

struct check {
    const char *text; /* the URL */
    struct store_url url;
    struct upstream_tls_paths paths;
    struct upstream_tls *tls;
    unsigned samples;
    uint64_t timeout_ns;
    bool is_json, is_inherited; /* its URL is that of the environment */
};

static const struct args_option options_known[] = {
    {"samples", "N", 1, "Number of round trips to measure (default 100)",
     ARGS_NUMBER(struct check, samples, STORE_SAMPLES_MAX)},
    {"timeout", "DURATION", 1, "How long connecting, and then each answer, may take (default 2s)",
     ARGS_TIMEOUT(struct check, timeout_ns)},
    {"json", NULL, 2, "Print one JSON object", ARGS_FLAG(struct check, is_json)},
    {"ca-file", "FILE", 3,
     "CA certificates for the server's certificate (default: those of the system)",
     ARGS_TEXT(struct check, paths.ca_file)},
    {"cert-file", "FILE", 3, "Client certificate (PEM)", ARGS_TEXT(struct check, paths.cert_file)},
    {"key-file", "FILE", 3, "The key of --cert-file (PEM)",
     ARGS_TEXT(struct check, paths.key_file)},
    {0},
};

static void set_url(struct argp_state *state, void *input, char *word)
{
    struct check *check = input;
    if (check->text != NULL)
        argp_error(state, "expected one URL, and found another word");
    check->text = word;
}

static void check_usage(struct argp_state *state, void *input)
{
    struct check *check = input;
    struct stint_error error;
    check->is_inherited = check->text == NULL;
    if (check->is_inherited)
        check->text = getenv("STINT_STORE");
    if (check->text == NULL)
        argp_error(state,
                   "expected the URL of a store, such as redis://127.0.0.1:6379, as an argument or "
                   "in STINT_STORE");
    if (store_word_url(&check->url, check->text, &error) != 0)
        argp_error(state, "%s", error.message);
    const struct upstream_tls_paths *paths = &check->paths;
    if (!check->url.is_tls && (paths->ca_file != NULL || paths->cert_file != NULL))
        argp_error(state,
                   "--ca-file and --cert-file go with rediss://, valkeys:// and memcacheds://");
    if (paths->key_file != NULL && paths->cert_file == NULL)
        argp_error(state, "--key-file goes with --cert-file");
}

static int exit_of(int code, bool is_fit)
{
    return code != 0 ? CMD_BAD_INPUT : is_fit ? CMD_DONE : CMD_DENIED;
}

/* An error of the store itself comes with where its address is from, and what tests it. */
static int not_checked(const struct check *check, const struct stint_error *error)
{
    if (error->code != STINT_E_GONE)
        print_message("%s", error->message);
    else
        print_message(
            "%s; the address is that of %s%s", error->message,
            check->is_inherited ? "STINT_STORE" : "URL",
            check->url.kind == STORE_MEMCACHED ? "" : ", and `redis-cli -u URL ping` tests it");
    return CMD_BAD_INPUT;
}

static int check_redis(const struct check *check, const struct store_check *asked,
                       struct stint_error *error)
{
    static struct store_findings findings;
    if (store_look(asked, &findings, error) != 0)
        return not_checked(check, error);
    return exit_of(report(asked->url, &findings, check->is_json), store_is_fit(&findings));
}

static int check_memcached(const struct check *check, const struct store_check *asked,
                           struct stint_error *error)
{
    static struct memcached_findings findings[STORE_HOSTS_MAX];
    if (memcached_look(asked, findings, error) != 0)
        return not_checked(check, error);
    return exit_of(memcached_report(asked->url, findings, check->is_json),
                   memcached_is_fit(findings, asked->url->n_hosts));
}

static int run(struct check *check, struct stint_error *error)
{
    if (check->url.is_tls && upstream_tls_load(&check->tls, &check->paths, error) != 0) {
        print_message("%s", error->message);
        return CMD_BAD_INPUT;
    }
    const struct store_check asked = {
        .url = &check->url,
        .tls = check->tls,
        .timeout_ns = check->timeout_ns,
        .samples = check->samples,
    };
    int code = check->url.kind == STORE_MEMCACHED ? check_memcached(check, &asked, error)
                                                  : check_redis(check, &asked, error);
    upstream_tls_free(check->tls);
    return code;
}

static int store_check_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = set_url, .end = check_usage},
        .arguments = "[URL]",
        .doc = "Checks whether a Redis, Valkey or memcached can be the store of several servers, "
               "and its speed.\vURL is redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE] or "
               "valkey://, rediss:// with TLS, unix:/PATH, memcached://HOST[:PORT][,HOST...] "
               "(default: STINT_STORE of the environment, where other users of the machine do not "
               "see its password), or @FILE that has it in its first line.\n"
               "Exit codes: 0 fit, 3 not fit, 1 no answer, 2 bad usage. See stint-store(1)."};
    struct check check = {.samples = SAMPLES_DEFAULT, .timeout_ns = TIMEOUT_NS_DEFAULT};
    struct stint_error error;
    args_parse(&command, argc, argv, &check);
    return run(&check, &error);
}

/* ---- stint store ----------------------------------------------------------------------------- */

const struct cmd store_commands[] = {
    {"check", "check whether a Redis, Valkey or memcached can be the store of several servers",
     .run = store_check_main},
    {"script", "print the Lua scripts of stores, for redis-cli", .run = store_script_main},
    {.name = NULL},
};
