/* SPDX-License-Identifier: MIT */
/* The results, as lines for a person or one JSON object. */
#define _GNU_SOURCE
#include "backend/redis/cluster.h"
#include "base/ns.h"
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/store/store.h"

#include <stdio.h>
#include <stdlib.h>

static const char *or_unknown(const char *text)
{
    return text[0] != '\0' ? text : "not known";
}

static double ms(uint64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

void store_print_latency(const struct store_latency *latency)
{
    if (latency->n > 0)
        printf("  round trip   median %.3f ms, p90 %.3f ms, p99 %.3f ms, longest %.3f ms of %u\n",
               ms(latency->median_ns), ms(latency->p90_ns), ms(latency->p99_ns),
               ms(latency->max_ns), latency->n);
}

void store_print_remarks(const struct store_findings *findings)
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
    store_print_latency(&findings->latency);
    store_print_remarks(findings);
    printf("%s\n", store_is_fit(findings) ? "fit" : "not fit");
}

/* In JSON a value that is not known is null. */
static json_t *word(const char *text)
{
    return text[0] != '\0' ? json_text_key(span_of_text(text)) : json_null();
}

json_t *store_remarks_json(const struct store_findings *findings, bool is_fault)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < findings->n_remarks; i++)
        if (findings->remarks[i].is_fault == is_fault)
            json_array_append_new(list, word(findings->remarks[i].text));
    return list;
}

json_t *store_latency_json(const struct store_latency *latency)
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
        (int)findings->replicas, "clock", clock, "round_trip",
        store_latency_json(&findings->latency), "cluster", cluster_of(&findings->cluster),
        "sentinel", sentinels_of(&findings->sentinels), "faults",
        store_remarks_json(findings, true), "warnings", store_remarks_json(findings, false));
    return json_text_print(object, false);
}

int store_report(const struct store_url *url, const struct store_findings *findings, bool is_json)
{
    if (is_json)
        return print_json(url, findings);
    print_text(url, findings);
    return ferror(stdout) != 0 ? -1 : 0;
}
