/* SPDX-License-Identifier: MIT */
/*
 * Any bytes of a control plane: as what a connection receives, in pieces and over time, and as a
 * response whose resources are rules. A response is refused with a message, or gives a whole set
 * of rules, and the same again. The same bytes are read as what is kept over a restart.
 */
#include "link_steps.h"
#include "mutate_protobuf.h"

#include "rules/yaml/rules_load.h"
#include "xds/ads_client.h"
#include "xds/last_good.h"
#include "xds/rate_limit_config.h"

#define RESOURCES_MAX 64

/* ---- Responses ------------------------------------------------------------------------------- */

/* NULL: refused. */
static struct rules *rules_of(const struct rules_file *files, size_t n_files)
{
    struct rules_diagnostics diagnostics;
    struct rules *rules = rules_load(files, n_files, NULL, &diagnostics);
    MUST((rules == NULL) == (diagnostics.n_diagnostics > 0));
    for (size_t i = 0; i < diagnostics.n_diagnostics; i++)
        MUST(diagnostics.diagnostics[i].message[0] != '\0');
    rules_diagnostics_free(&diagnostics);
    return rules;
}

static void check_rules(const struct rules *rules, const struct rules *again)
{
    MUST(rules_count(rules) == rules_count(again));
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        struct stint_quota quota = rule->quota;
        MUST(rule->id == rules_at(again, i)->id);
        MUST(rules_has_domain(rules, span_of_text(rule->domain)));
        MUST(rule->line == 0 && rule->path[0] != '\0');
        MUST(rule->unlimited || stint_quota_check(&quota, NULL) == 0);
        MUST(rule->unlimited || rule->hits == RULE_HITS_CHARGE);
    }
}

static void build(const struct rules_file *files, size_t n_files)
{
    struct rules *rules = rules_of(files, n_files), *again = rules_of(files, n_files);
    MUST((rules == NULL) == (again == NULL));
    if (rules != NULL)
        check_rules(rules, again);
    rules_unref(rules);
    rules_unref(again);
}

static void read_response(struct span message)
{
    struct discovery_response parts;
    struct arena arena = {0};
    struct stint_error error;
    size_t n = discovery_count(message), n_files = 0;
    struct rules_file files[RESOURCES_MAX];
    int code = discovery_response_read(message, &parts, &error);
    MUST(code != STINT_E_SYNTAX || !discovery_is_same(message, message));
    if (n > RESOURCES_MAX)
        return;
    if (discovery_files(message, "xds://f:1", &arena, files, &n_files, &error) == 0) {
        MUST(n_files == n && code != STINT_E_SYNTAX);
        build(files, n_files);
    }
    arena_free(&arena);
}

static void read_config(struct span message)
{
    const struct rules_file file = {
        .path = "xds://f:1/one", .text = message, .read = rate_limit_config_read};
    (void)rate_limit_config_name(message);
    build(&file, 1);
}

static void read_kept(struct span content)
{
    struct last_good all[XDS_SOURCES_MAX];
    struct last_good_head head;
    struct stint_error error;
    size_t n = 0;
    if (content.len >= LAST_GOOD_HEAD && last_good_read_head(content.ptr, &head))
        (void)last_good_is_whole(content.ptr, span_after(content, LAST_GOOD_HEAD));
    (void)last_good_read(content, all, &n, &error);
    MUST(n <= XDS_SOURCES_MAX);
}

/* ---- A connection ---------------------------------------------------------------------------- */

struct session {
    struct link_steps steps;
    struct ads_client *client;
    bool is_offered; /* there is a response that was not taken */
};

static void on_received(void *arg)
{
    struct session *session = arg;
    MUST(!session->is_offered);
    session->is_offered = true;
}

/* A response of the last connection is dropped. */
static void connecting(void *arg)
{
    ((struct session *)arg)->is_offered = false;
}

static void take(void *arg, unsigned what)
{
    struct session *session = arg;
    struct ads_response response;
    if (!ads_client_take(session->client, &response))
        return;
    session->is_offered = false;
    MUST(response.message.len <= ADS_MESSAGE_MAX);
    read_response(response.message);
    ads_client_answer(session->client, &response, (what & 1) != 0 ? "no" : NULL,
                      session->steps.now_ns);
    ads_response_free(&response);
}

static void converse(struct span input)
{
    static const char *const metadata[] = {"a=b"};
    struct session session = {
        .steps = {.now_ns = NS_PER_HOUR, .connecting = connecting, .act = take, .arg = &session}};
    session.client = ads_client_new(&(struct ads_client_options){
        .link = {.connect_ns = 10 * NS_PER_S,
                 .backoff_first_ns = NS_PER_S,
                 .backoff_max_ns = 8 * NS_PER_S,
                 .seed = 1},
        .authority = "f:1",
        .node = {"node", metadata, 1},
        .received = on_received,
        .arg = &session,
    });
    MUST(session.client != NULL);
    session.steps.link = ads_client_link(session.client);
    while (input.len > 0)
        link_step(&session.steps, &input);
    link_free(session.steps.link, session.steps.now_ns);
}

MUTATES_PROTOBUF(1)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ways[])(struct span input) = {converse, read_response, read_config,
                                                      read_kept};
    bytes_choose(ways, sizeof(ways) / sizeof(ways[0]), span_of(data, size));
    return 0;
}
