/* SPDX-License-Identifier: MIT */
/* The results for each server, as lines for a person or one JSON object. */
#define _GNU_SOURCE
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/store/store_memcached.h"

#include <stdio.h>

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
    store_print_latency(&common->latency);
}

static void print_text(const struct store_url *url, const struct memcached_findings *findings)
{
    char text[STORE_URL_TEXT_SIZE];
    printf("%s\n", store_url_text(url, text));
    for (unsigned i = 0; i < url->n_hosts; i++)
        print_server(&findings[i]);
    printf("  persistence  none: a restart forgets all states\n");
    for (unsigned i = 0; i < url->n_hosts; i++)
        store_print_remarks(&findings[i].common);
    printf("%s\n", store_memcached_is_fit(findings, url->n_hosts) ? "fit" : "not fit");
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
        findings->compares, "round_trip", store_latency_json(&common->latency));
}

static json_t *remarks_of(const struct store_url *url, const struct memcached_findings *findings,
                          bool is_fault)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < url->n_hosts; i++) {
        json_t *own = store_remarks_json(&findings[i].common, is_fault);
        json_array_extend(list, own);
        json_decref(own);
    }
    return list;
}

static int print_json(const struct store_url *url, const struct memcached_findings *findings)
{
    char text[STORE_URL_TEXT_SIZE];
    json_t *servers = json_array();
    for (unsigned i = 0; i < url->n_hosts; i++)
        json_array_append_new(servers, server_of(&findings[i]));
    return json_text_print(json_pack("{s:o, s:b, s:o, s:o, s:o}", "url",
                                     json_text_key(span_of_text(store_url_text(url, text))), "fit",
                                     store_memcached_is_fit(findings, url->n_hosts), "servers",
                                     servers, "faults", remarks_of(url, findings, true), "warnings",
                                     remarks_of(url, findings, false)),
                           false);
}

int store_memcached_report(const struct store_url *url, const struct memcached_findings *findings,
                           bool is_json)
{
    if (is_json)
        return print_json(url, findings);
    print_text(url, findings);
    return ferror(stdout) != 0 ? -1 : 0;
}
