/* SPDX-License-Identifier: MIT */
/* INFO and CONFIG GET, which clients and benchmarks call first. */
#include "frontend/resp/resp_parts.h"

#include "proto/page.h"
#include "proto/resp/resp_about.h"

/* The version of Redis that COMMAND and HELLO follow: clients compare it. */
#define REDIS_VERSION "7.0.0"

enum section { SECTION_SERVER = 1, SECTION_RULES = 2, SECTION_TABLE = 4, SECTION_STORES = 8 };

static void add_server(const struct resp_call *call, struct page *page)
{
    bool is_virtual = call->conn->frontend->clock->is_virtual;
    page_add(page, "# Server\r\n"
                   "redis_version:" REDIS_VERSION "\r\n"
                   "stint_version:" STINT_VERSION "\r\n"
                   "redis_mode:standalone\r\n"
                   "role:master\r\n"
                   "loading:0\r\n");
    page_print(page, "clock:%s\r\n", is_virtual ? "virtual" : "real");
}

static void add_rules(const struct resp_call *call, struct page *page)
{
    struct server_state *server_state = service_server_state(call->conn->frontend->service);
    struct rules *rules = server_state_rules(server_state);
    page_print(page, "# Rules\r\nrules:%zu\r\ngeneration:%llu\r\n",
               rules != NULL ? rules_count(rules) : (size_t)0,
               (unsigned long long)server_state_generation(server_state));
    if (rules != NULL)
        rules_unref(rules);
}

static void add_table(const struct resp_call *call, struct page *page)
{
    struct stint_table_info info;
    stint_table_info(server_state_table(service_server_state(call->conn->frontend->service)),
                     call->now_ns, &info);
    page_print(page,
               "# Table\r\nbytes:%llu\r\nkeys8:%llu\r\nkeys16:%llu\r\nkeys_wide:%llu\r\n"
               "blocked:%llu\r\nquotas:%u\r\ntickets:%u\r\n",
               (unsigned long long)info.bytes, (unsigned long long)info.live[0],
               (unsigned long long)info.live[1], (unsigned long long)info.live[2],
               (unsigned long long)info.blocked, info.quotas, info.tickets);
    page_print(page,
               "evictions_lossless:%llu\r\nevictions_inherit:%llu\r\nevictions_evict:%llu\r\n"
               "forgotten_units:%llu\r\n",
               (unsigned long long)info.evictions_lossless,
               (unsigned long long)info.evictions_inherit, (unsigned long long)info.evictions_evict,
               (unsigned long long)info.forgotten_units);
}

static void add_stores(const struct resp_call *call, struct page *page)
{
    const struct metrics *metrics =
        server_state_metrics(service_server_state(call->conn->frontend->service));
    if (metrics != NULL)
        metrics_info_stores(metrics, call->io_now_ns, page);
}

static unsigned section_of(struct span name)
{
    if (resp_word_is(name, "all") || resp_word_is(name, "everything"))
        return SECTION_SERVER | SECTION_RULES | SECTION_TABLE | SECTION_STORES;
    if (resp_word_is(name, "default"))
        return SECTION_SERVER | SECTION_RULES;
    return resp_word_is(name, "server")   ? SECTION_SERVER
           : resp_word_is(name, "rules")  ? SECTION_RULES
           : resp_word_is(name, "table")  ? SECTION_TABLE
           : resp_word_is(name, "stores") ? SECTION_STORES
                                          : 0;
}

/* Scanning a table takes a while: only on request, for a caller that may read metrics. */
void resp_info(struct resp_call *call)
{
    unsigned sections = call->n_args == 1 ? SECTION_SERVER | SECTION_RULES : 0;
    struct page page = {0};
    for (size_t i = 1; i < call->n_args; i++)
        sections |= section_of(call->args[i]);
    if ((sections & (SECTION_TABLE | SECTION_STORES)) != 0 && !resp_call_may(call, ACCESS_METRICS))
        return;
    if ((sections & SECTION_SERVER) != 0)
        add_server(call, &page);
    if ((sections & SECTION_RULES) != 0)
        add_rules(call, &page);
    if ((sections & SECTION_TABLE) != 0)
        add_table(call, &page);
    if ((sections & SECTION_STORES) != 0)
        add_stores(call, &page);
    if (page.failed)
        resp_write_error(&call->conn->out, "FULL", "no memory for an answer");
    else
        resp_write_verbatim(&call->conn->out, span_of(page.text, page.len));
    page_free(&page);
}

/* ---- CONFIG GET ------------------------------------------------------------------------------ */

struct setting {
    const char *name, *value;
};

static const struct setting settings[] = {
    {"save", ""}, {"appendonly", "no"}, {"maxmemory", "0"}, {"databases", "1"}, {"timeout", "0"},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* '*' matches any run of bytes, '?' one; letters in any case. */
static bool matches(struct span pattern, const char *name)
{
    const char *retry = NULL;
    size_t at = 0, retry_at = 0;
    while (*name != '\0') {
        bool is_star = at < pattern.len && pattern.ptr[at] == '*';
        if (is_star) {
            retry = name;
            retry_at = ++at;
        } else if (at < pattern.len &&
                   (pattern.ptr[at] == '?' || (pattern.ptr[at] | 0x20) == (uint8_t)*name)) {
            at++;
            name++;
        } else if (retry != NULL) {
            name = ++retry;
            at = retry_at;
        } else {
            return false;
        }
    }
    while (at < pattern.len && pattern.ptr[at] == '*')
        at++;
    return at == pattern.len;
}

static bool is_wanted(const struct resp_call *call, const char *name)
{
    for (size_t i = 2; i < call->n_args; i++)
        if (matches(call->args[i], name))
            return true;
    return false;
}

void resp_config(struct resp_call *call)
{
    struct resp_writer *out = &call->conn->out;
    if (call->n_args < 3 || !resp_word_is(call->args[1], "GET")) {
        resp_about_subcommand(out, call->command, call->args[1]);
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < SETTINGS; i++)
        n += is_wanted(call, settings[i].name);
    resp_write_map(out, n);
    for (size_t i = 0; i < SETTINGS; i++) {
        if (!is_wanted(call, settings[i].name))
            continue;
        resp_write_text(out, settings[i].name);
        resp_write_text(out, settings[i].value);
    }
}
