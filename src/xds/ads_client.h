/* SPDX-License-Identifier: MIT */
/*
 * The client of a control plane: envoy.service.discovery.v3.AggregatedDiscoveryService over HTTP/2,
 * as a link without a socket. It subscribes to rules, hands over each response, and sends what the
 * owner answers: accepted or refused. One response at a time: until it is answered, nothing more is
 * read than one window of bytes. What it sees of its peer is bounded: bytes, frames and time.
 */
#ifndef STINT_XDS_ADS_CLIENT_H
#define STINT_XDS_ADS_CLIENT_H

#include "rpc/grpc_link.h"
#include "xds/discovery.h"

#define ADS_MESSAGE_MAX (16 << 20)        /* bytes of a response, as of a file of rules */
#define ADS_WINDOW (1 << 20)              /* bytes beyond it that are received ahead */
#define ADS_MESSAGE_NS (60 * NS_PER_S)    /* from the first byte of a response to its last */
#define ADS_ACCEPTED_NS (100 * NS_PER_MS) /* before the next response, after one accepted */
#define ADS_REFUSED_NS (500 * NS_PER_MS)  /* the same, after one refused */
#define ADS_PING_NS (20 * NS_PER_S)       /* to answer a PING */
#define ADS_SILENCE_NS (310 * NS_PER_S)   /* before a PING: servers in Go allow one in 5 min */

struct ads_client_options {
    struct link_options link; /* its times and its seed */
    const char *authority;    /* HOST:PORT */
    bool is_tls;
    struct discovery_node node;
    const char *const *headers; /* NAME:VALUE, n_headers of them, NAME in lower case */
    size_t n_headers;
    /* There is a response to take. From within link_feed() or link_wake(). */
    void (*received)(void *arg);
    void *arg;
};

struct ads_client; /* its first member is a struct link */

/* Strings are borrowed. NULL: no memory. link_free() frees it. */
struct ads_client *ads_client_new(const struct ads_client_options *options);
static inline struct link *ads_client_link(struct ads_client *client)
{
    return (struct link *)(void *)client;
}

/* A response and its place in the protocol. It outlives the connection. */
struct ads_response {
    uint8_t *bytes;      /* owned: ads_response_free() */
    struct span message; /* a DiscoveryResponse */
    struct discovery_response parts;
    uint64_t stream; /* the stream that it came on, among all of the client */
};

/* Moves the response out; false: there is none. It must be answered. */
bool ads_client_take(struct ads_client *client, struct ads_response *response);
/*
 * Accepts it, or refuses it for a reason. Nothing is sent if its stream has ended. The link may
 * have output then.
 */
void ads_client_answer(struct ads_client *client, const struct ads_response *response,
                       const char *refusal, uint64_t now_ns);
void ads_response_free(struct ads_response *response);

#endif
