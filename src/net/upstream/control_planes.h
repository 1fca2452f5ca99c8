/* SPDX-License-Identifier: MIT */
/*
 * The control planes that send rules: a connection to each, in the loop of the main thread. The
 * owner takes one response after the other, builds rules of it elsewhere, and answers.
 */
#ifndef STINT_NET_UPSTREAM_CONTROL_PLANES_H
#define STINT_NET_UPSTREAM_CONTROL_PLANES_H

#include "net/log/log.h"
#include "net/upstream/upstream.h"
#include "service/metrics/metrics.h"
#include "xds/ads_client.h"
#include "xds/xds_url.h"

/* Borrowed until control_planes_close(). */
struct control_plane_config {
    struct xds_url url;
    struct upstream_tls_paths tls; /* where url.is_tls; read anew for each connection */
    const char *tls_name;          /* in its certificate. NULL: the host */
    const char *const *metadata;   /* of the node: KEY=VALUE */
    size_t n_metadata;
    const char *const *headers; /* of each stream: NAME:VALUE */
    size_t n_headers;
    uint64_t backoff_first_ns, backoff_max_ns;
};

struct control_planes_options {
    struct uv_loop_s *loop;
    const struct control_plane_config *configs;
    size_t n_configs;           /* at most XDS_SOURCES_MAX */
    uint64_t seed;              /* of the jitter */
    struct metrics *metrics;    /* has each of them: metrics_add_control_plane() */
    uint64_t (*now)(void *arg); /* of the metrics */
    void *now_arg;
    struct log *log;
    /* There is a response to take. In the thread of the loop */
    void (*received)(void *arg);
    void *arg;
};

struct control_planes;

/* Connects in the next turn of the loop. NULL: no memory. */
struct control_planes *control_planes_open(const struct control_planes_options *options);
/* A response, and which of the control planes sent it. False: there is none. */
bool control_planes_take(struct control_planes *planes, size_t *index,
                         struct ads_response *response);
/* Accepts it, or refuses it for a reason, and frees it. */
void control_planes_answer(struct control_planes *planes, size_t index,
                           struct ads_response *response, const char *refusal);
/* Handles are freed in the next turns of the loop. NULL is allowed. */
void control_planes_close(struct control_planes *planes);

#endif
