/* SPDX-License-Identifier: MIT */
/* Stores of several servers: the masters of a cluster, and the master that sentinels watch. */
#define _GNU_SOURCE
#include "backend/redis/cluster.h"
#include "backend/redis/sentinel.h"
#include "base/buf.h"
#include "cmd/lib/print.h"
#include "cmd/store/store.h"

#include <stdio.h>
#include <stdlib.h>

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

int store_read_map(struct store_session *session, const struct store_host *asked,
                   struct cluster **map, struct stint_error *error)
{
    struct mapping mapping = {.cluster = cluster_new(), .asked = asked, .error = error};
    if (mapping.cluster == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a map of slots");
    int code = store_session_ask(session, (const char *[]){"CLUSTER", "SLOTS", NULL}, read_slots,
                                 &mapping, error);
    code = code != 0 ? code : mapping.code;
    if (code == 0)
        *map = mapping.cluster;
    else
        cluster_free(mapping.cluster);
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

int store_look_around(struct store_session *session, const struct store_session_options *options,
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
    cluster_free(map);
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

int store_find_master(struct store_session *session, const char *name, struct store_host *master,
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
