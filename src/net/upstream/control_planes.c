/* SPDX-License-Identifier: MIT */
/* What a connection reports goes to the log and the metrics; responses go to the owner. */
#define _GNU_SOURCE
#include "net/upstream/control_planes.h"

#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define CONNECT_NS (10 * NS_PER_S) /* name, socket, TLS and the first frame */
#define PROTOCOL "h2"
#define VERSION_SHOWN 64 /* bytes, in logs and metrics */

struct plane {
    struct control_planes *home;
    const struct control_plane_config *config;
    struct ads_client *client;
    struct upstream *upstream;
    bool is_connected, has_refused;
    unsigned losses;               /* as logged */
    char refusal[STINT_ERROR_MAX]; /* the last one, where has_refused */
};

struct control_planes {
    struct control_planes_options options;
    struct plane planes[XDS_SOURCES_MAX];
    size_t next; /* whose response is taken first, so that none waits for ever */
};

static size_t index_of(const struct plane *plane)
{
    return (size_t)(plane - plane->home->planes);
}

/* ---- What changes ---------------------------------------------------------------------------- */

static void on_changed(void *arg, uint64_t now_ns)
{
    struct plane *plane = arg;
    const struct control_planes_options *options = &plane->home->options;
    const struct link *link = ads_client_link(plane->client);
    unsigned losses = upstream_losses(plane->upstream);
    bool is_connected = link_is_ready(link);
    (void)now_ns;
    metrics_control_plane_connected(options->metrics, index_of(plane), is_connected);
    if (is_connected && !plane->is_connected)
        log_line(options->log, LOG_XDS_CONNECTED,
                 LOG_TEXT("control_plane", plane->config->url.text));
    else if (losses != plane->losses)
        log_line(options->log, LOG_XDS_LOST, LOG_TEXT("control_plane", plane->config->url.text),
                 LOG_TEXT("reason", link_fault(link)));
    plane->is_connected = is_connected;
    plane->losses = losses;
}

static void on_received(void *arg)
{
    const struct plane *plane = arg;
    plane->home->options.received(plane->home->options.arg);
}

/* ---- Responses ------------------------------------------------------------------------------- */

bool control_planes_take(struct control_planes *planes, size_t *index,
                         struct ads_response *response)
{
    for (size_t i = 0; i < planes->options.n_configs; i++) {
        *index = (planes->next + i) % planes->options.n_configs;
        if (!ads_client_take(planes->planes[*index].client, response))
            continue;
        planes->next = *index + 1;
        return true;
    }
    return false;
}

/* A control plane that sends the same again and again is logged once. */
static void log_answer(struct plane *plane, const char *version, const char *refusal)
{
    const struct control_planes_options *options = &plane->home->options;
    const char *url = plane->config->url.text;
    if (refusal == NULL) {
        log_line(options->log, LOG_XDS_ACCEPTED, LOG_TEXT("control_plane", url),
                 LOG_TEXT("version", version));
    } else if (!plane->has_refused || strcmp(plane->refusal, refusal) != 0) {
        log_line(options->log, LOG_XDS_REFUSED, LOG_TEXT("control_plane", url),
                 LOG_TEXT("version", version), LOG_TEXT("reason", refusal));
        snprintf(plane->refusal, sizeof(plane->refusal), "%s", refusal);
    }
    plane->has_refused = refusal != NULL;
}

void control_planes_answer(struct control_planes *planes, size_t index,
                           struct ads_response *response, const char *refusal)
{
    struct plane *plane = &planes->planes[index];
    const struct control_planes_options *options = &planes->options;
    char version[VERSION_SHOWN + 1];
    struct buf text = buf_of(version, sizeof(version));
    struct span sent = response->parts.version;
    buf_add(&text, "%.*s", (int)(sent.len < VERSION_SHOWN ? sent.len : VERSION_SHOWN),
            sent.len > 0 ? (const char *)sent.ptr : "");
    metrics_control_plane_answered(options->metrics, index, refusal == NULL, version,
                                   options->now(options->now_arg));
    log_answer(plane, version, refusal);
    ads_client_answer(plane->client, response, refusal, uv_hrtime());
    ads_response_free(response);
    upstream_asked(plane->upstream);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static struct ads_client *new_client(struct plane *plane, uint64_t seed)
{
    const struct control_plane_config *config = plane->config;
    return ads_client_new(&(struct ads_client_options){
        .link = {.connect_ns = CONNECT_NS,
                 .backoff_first_ns = config->backoff_first_ns,
                 .backoff_max_ns = config->backoff_max_ns,
                 .seed = seed},
        .authority = config->url.authority,
        .is_tls = config->url.is_tls,
        .node = {config->url.node, config->metadata, config->n_metadata},
        .headers = config->headers,
        .n_headers = config->n_headers,
        .received = on_received,
        .arg = plane,
    });
}

static bool open_plane(struct control_planes *planes, size_t index)
{
    const struct control_plane_config *config = &planes->options.configs[index];
    struct plane *plane = &planes->planes[index];
    plane->home = planes;
    plane->config = config;
    plane->client = new_client(plane, planes->options.seed + index);
    if (plane->client == NULL)
        return false;
    plane->upstream = upstream_new(&(struct upstream_options){
        .loop = planes->options.loop,
        .host = config->url.host,
        .tls_paths = config->url.is_tls ? &config->tls : NULL,
        .tls_name = config->tls_name,
        .protocol = PROTOCOL,
        .is_watched = true,
        .link = ads_client_link(plane->client),
        .changed = on_changed,
        .arg = plane,
    });
    if (plane->upstream != NULL)
        return true;
    link_free(ads_client_link(plane->client), 0);
    return false;
}

struct control_planes *control_planes_open(const struct control_planes_options *options)
{
    struct control_planes *planes = calloc(1, sizeof(*planes));
    if (planes == NULL)
        return NULL;
    assert(options->n_configs <= XDS_SOURCES_MAX);
    planes->options = *options;
    for (size_t i = 0; i < options->n_configs; i++)
        if (!open_plane(planes, i)) {
            control_planes_close(planes);
            return NULL;
        }
    return planes;
}

void control_planes_close(struct control_planes *planes)
{
    if (planes == NULL)
        return;
    for (size_t i = 0; i < planes->options.n_configs; i++)
        upstream_close(planes->planes[i].upstream);
    free(planes);
}
