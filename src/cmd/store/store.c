/* SPDX-License-Identifier: MIT */
/* `stint store`: whether a store can be that of several servers, and the scripts for it. */
#define _GNU_SOURCE
#include "cmd/store/store.h"
#include "backend/redis/cluster.h"
#include "backend/script/lua_script.h"
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/store/store_word.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static bool is_fit(const struct store_findings *findings, unsigned n_servers)
{
    for (unsigned server = 0; server < n_servers; server++)
        for (unsigned i = 0; i < findings[server].n_remarks; i++)
            if (findings[server].remarks[i].is_fault)
                return false;
    return true;
}

/* The end of the output: remarks on all servers, and the verdict. */
static void print_remarks(const struct store_findings *findings, unsigned n_servers)
{
    for (unsigned server = 0; server < n_servers; server++)
        for (unsigned i = 0; i < findings[server].n_remarks; i++)
            printf("%s: %s\n", findings[server].remarks[i].is_fault ? "fault" : "warning",
                   findings[server].remarks[i].text);
    printf("%s\n", is_fit(findings, n_servers) ? "fit" : "not fit");
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
    print_remarks(findings, 1);
}

/* In JSON a value that is not known is null. */
static json_t *word(const char *text)
{
    return text[0] != '\0' ? json_text_key(span_of_text(text)) : json_null();
}

static json_t *remarks_json(const struct store_findings *findings, unsigned n_servers,
                            bool is_fault)
{
    json_t *list = json_array();
    for (unsigned server = 0; server < n_servers; server++)
        for (unsigned i = 0; i < findings[server].n_remarks; i++)
            if (findings[server].remarks[i].is_fault == is_fault)
                json_array_append_new(list, word(findings[server].remarks[i].text));
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
        "url", word(store_url_text(url, text)), "fit", is_fit(findings, 1), "server", "name",
        findings->is_valkey ? "valkey" : "redis", "version", word(findings->version), "mode",
        word(findings->mode), "role", word(findings->role), "address", word(findings->address),
        "scripts", findings->runs_scripts, "eviction", "policy", word(findings->policy),
        "memory_max", (json_int_t)findings->memory_max, "persistence", "append_only",
        word(findings->append_only), "snapshots", word(findings->snapshots), "replicas",
        (int)findings->replicas, "clock", clock, "round_trip", latency_json(&findings->latency),
        "cluster", cluster_of(&findings->cluster), "sentinel", sentinels_of(&findings->sentinels),
        "faults", remarks_json(findings, 1, true), "warnings", remarks_json(findings, 1, false));
    return json_text_print(object, false);
}

/* ---- The results for memcached --------------------------------------------------------------- */

static void print_server(const struct store_findings *findings)
{
    const struct store_memcached *memcached = &findings->memcached;
    struct formatted used, most;
    printf("  server       memcached %s, at %s\n", findings->version, findings->address);
    printf("  memory       %s of %s, %llu values of at most %llu bytes\n",
           format_bytes(&used, memcached->memory_used), format_bytes(&most, findings->memory_max),
           (unsigned long long)memcached->items, (unsigned long long)memcached->item_max);
    printf("  eviction     %s, %llu so far\n", memcached->evicts ? "of the oldest" : "none",
           (unsigned long long)memcached->evictions);
    printf("  swaps        %s\n", memcached->compares ? "compare" : "do not compare");
    print_latency(&findings->latency);
}

static void print_memcached_text(const struct store_url *url, const struct store_findings *findings)
{
    char text[STORE_URL_TEXT_SIZE];
    printf("%s\n", store_url_text(url, text));
    for (unsigned i = 0; i < url->n_hosts; i++)
        print_server(&findings[i]);
    printf("  persistence  none: a restart forgets all states\n");
    print_remarks(findings, url->n_hosts);
}

static json_t *server_of(const struct store_findings *findings)
{
    const struct store_memcached *memcached = &findings->memcached;
    return json_pack("{s:s, s:o, s:s, s:{s:I, s:I, s:I, s:I}, s:{s:b, s:I}, s:b, s:o}", "name",
                     "memcached", "version", json_text_key(span_of_text(findings->version)),
                     "address", findings->address, "memory", "used",
                     (json_int_t)memcached->memory_used, "max", (json_int_t)findings->memory_max,
                     "items", (json_int_t)memcached->items, "item_max",
                     (json_int_t)memcached->item_max, "eviction", "on", memcached->evicts,
                     "evicted", (json_int_t)memcached->evictions, "swaps", memcached->compares,
                     "round_trip", latency_json(&findings->latency));
}

static int print_memcached_json(const struct store_url *url, const struct store_findings *findings)
{
    char text[STORE_URL_TEXT_SIZE];
    json_t *servers = json_array();
    for (unsigned i = 0; i < url->n_hosts; i++)
        json_array_append_new(servers, server_of(&findings[i]));
    return json_text_print(json_pack("{s:o, s:b, s:o, s:o, s:o}", "url",
                                     json_text_key(span_of_text(store_url_text(url, text))), "fit",
                                     is_fit(findings, url->n_hosts), "servers", servers, "faults",
                                     remarks_json(findings, url->n_hosts, true), "warnings",
                                     remarks_json(findings, url->n_hosts, false)),
                           false);
}

/* ---- stint store check ----------------------------------------------------------------------- */

#define SAMPLES_DEFAULT 100
#define TIMEOUT_NS_DEFAULT (2 * NS_PER_S)

struct check {
    struct store_given given;
    unsigned samples;
    bool is_json, is_inherited; /* its URL is that of the environment */
};

static const struct args_option options_known[] = {
    {"samples", "N", 1, "Number of round trips to measure (default 100)",
     ARGS_NUMBER(struct check, samples, STORE_SAMPLES_MAX)},
    {"timeout", "DURATION", 1, "How long connecting, and then each answer, may take (default 2s)",
     ARGS_TIMEOUT(struct check, given.timeout_ns)},
    {"json", NULL, 2, "Print one JSON object", ARGS_FLAG(struct check, is_json)},
    {"ca-file", "FILE", 3,
     "CA certificates for the server's certificate (default: those of the system)",
     ARGS_TEXT(struct check, given.paths.ca_file)},
    {"cert-file", "FILE", 3, "Client certificate (PEM)",
     ARGS_TEXT(struct check, given.paths.cert_file)},
    {"key-file", "FILE", 3, "The key of --cert-file (PEM)",
     ARGS_TEXT(struct check, given.paths.key_file)},
    {0},
};

static void set_url(struct argp_state *state, void *input, char *word)
{
    struct store_given *given = &((struct check *)input)->given;
    if (given->text != NULL)
        argp_error(state, "expected one URL, and found another word");
    given->text = word;
}

static void check_usage(struct argp_state *state, void *input)
{
    struct check *check = input;
    struct store_given *given = &check->given;
    struct stint_error error;
    check->is_inherited = given->text == NULL;
    if (check->is_inherited)
        given->text = getenv("STINT_STORE");
    if (given->text == NULL)
        argp_error(state,
                   "expected the URL of a store, such as redis://127.0.0.1:6379, as an argument or "
                   "in STINT_STORE");
    if (store_word_url(&given->url, given->text, &error) != 0)
        argp_error(state, "%s", error.message);
    const struct upstream_tls_paths *paths = &given->paths;
    if (!given->url.is_tls && (paths->ca_file != NULL || paths->cert_file != NULL))
        argp_error(state,
                   "--ca-file and --cert-file go with rediss://, valkeys:// and memcacheds://");
    if (paths->key_file != NULL && paths->cert_file == NULL)
        argp_error(state, "--key-file goes with --cert-file");
}

static int report(const struct check *check, const struct store_findings *findings,
                  unsigned n_servers)
{
    const struct store_url *url = &check->given.url;
    bool is_memcached = url->kind == STORE_MEMCACHED;
    int code = 0;
    if (check->is_json)
        code = is_memcached ? print_memcached_json(url, findings) : print_json(url, findings);
    else if (is_memcached)
        print_memcached_text(url, findings);
    else
        print_text(url, findings);
    if (code != 0 || ferror(stdout) != 0)
        return CMD_BAD_INPUT;
    return is_fit(findings, n_servers) ? CMD_DONE : CMD_DENIED;
}

/* An error of the store itself comes with where its address is from, and what tests it. */
static int run(const struct check *check)
{
    static struct store_findings findings[STORE_HOSTS_MAX];
    struct stint_error error;
    bool is_memcached = check->given.url.kind == STORE_MEMCACHED;
    int code = store_look(&check->given, check->samples, findings, &error);
    if (code == 0)
        return report(check, findings, is_memcached ? check->given.url.n_hosts : 1);
    if (code != STINT_E_GONE)
        print_message("%s", error.message);
    else
        print_message("%s; the address is that of %s%s", error.message,
                      check->is_inherited ? "STINT_STORE" : "URL",
                      is_memcached ? "" : ", and `redis-cli -u URL ping` tests it");
    return CMD_BAD_INPUT;
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
    struct check check = {.samples = SAMPLES_DEFAULT, .given.timeout_ns = TIMEOUT_NS_DEFAULT};
    args_parse(&command, argc, argv, &check);
    return run(&check);
}

/* ---- stint store ----------------------------------------------------------------------------- */

const struct cmd store_commands[] = {
    {"check", "check whether a Redis, Valkey or memcached can be the store of several servers",
     .run = store_check_main},
    {"script", "print the Lua scripts of stores, for redis-cli", .run = store_script_main},
    {.name = NULL},
};
