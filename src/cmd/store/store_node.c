/* SPDX-License-Identifier: MIT */
/* One session at a time: the command reads few keys. */
#define _GNU_SOURCE
#include "cmd/store/store_node.h"

#include "backend/redis/cluster.h"
#include "cmd/store/store.h"

#include <stdio.h>
#include <stdlib.h>

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
    int code =
        store_find_master(nodes->session, nodes->given->url.master, &master, findings, error);
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
    cluster_free(nodes->map);
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
