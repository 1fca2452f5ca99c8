/* SPDX-License-Identifier: MIT */
/*
 * All connections of an address share its slot. Slots are in a balanced tree (tsearch(3)): clients
 * cannot choose addresses that make it slow.
 */
#define _GNU_SOURCE
#include "net/listen/connection_limiter.h"

#include <netinet/in.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct connection_slot {
    uint64_t address; /* of IPv4 marked by its upper half; of IPv6 the /64 */
    bool is_v6, is_local;
    size_t connections;
};

struct connection_limiter {
    struct connection_limits limits;
    pthread_mutex_t lock;
    size_t connections;
    void *slots;
    struct connection_slot local; /* of all peers without an address */
};

struct connection_limiter *connection_limiter_new(const struct connection_limits *limits)
{
    struct connection_limiter *limiter = calloc(1, sizeof(*limiter));
    if (limiter == NULL)
        return NULL;
    limiter->limits = *limits;
    limiter->local.is_local = true;
    pthread_mutex_init(&limiter->lock, NULL);
    return limiter;
}

void connection_limiter_free(struct connection_limiter *limiter)
{
    if (limiter == NULL)
        return;
    tdestroy(limiter->slots, free);
    pthread_mutex_destroy(&limiter->lock);
    free(limiter);
}

/* False for a peer without an IP address. IPv4 over IPv6 counts as IPv4. */
static bool read_address(const struct sockaddr *peer, struct connection_slot *slot)
{
    if (peer->sa_family == AF_INET) {
        slot->address = ((const struct sockaddr_in *)(const void *)peer)->sin_addr.s_addr;
        return true;
    }
    if (peer->sa_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    slot->is_v6 = !IN6_IS_ADDR_V4MAPPED(v6);
    if (slot->is_v6)
        memcpy(&slot->address, v6->s6_addr, 8);
    else {
        uint32_t v4;
        memcpy(&v4, v6->s6_addr + 12, 4);
        slot->address = v4;
    }
    return true;
}

static int compare(const void *left, const void *right)
{
    const struct connection_slot *a = left, *b = right;
    return a->is_v6 != b->is_v6 ? a->is_v6 - b->is_v6
                                : (a->address > b->address) - (a->address < b->address);
}

/* The slot of the address, made if there is none; NULL: no memory. */
static struct connection_slot *find_slot(struct connection_limiter *limiter,
                                         const struct sockaddr *peer)
{
    struct connection_slot wanted = {0};
    if (!read_address(peer, &wanted))
        return &limiter->local;
    struct connection_slot *const *found = tfind(&wanted, &limiter->slots, compare);
    if (found != NULL)
        return *found;
    struct connection_slot *slot = malloc(sizeof(*slot));
    if (slot == NULL)
        return NULL;
    *slot = wanted;
    if (tsearch(slot, &limiter->slots, compare) != NULL)
        return slot;
    free(slot);
    return NULL;
}

enum connection_limiter_answer connection_limiter_enter(struct connection_limiter *limiter,
                                                        const struct sockaddr *peer,
                                                        struct connection_slot **slot)
{
    enum connection_limiter_answer answer = CONNECTION_LIMIT_TOTAL;
    pthread_mutex_lock(&limiter->lock);
    struct connection_slot *found =
        limiter->connections < limiter->limits.connections ? find_slot(limiter, peer) : NULL;
    if (found != NULL) {
        bool is_free = found->is_local || limiter->limits.per_address == 0 ||
                       found->connections < limiter->limits.per_address;
        answer = is_free ? CONNECTION_ADMITTED : CONNECTION_LIMIT_ADDRESS;
    }
    if (answer == CONNECTION_ADMITTED) {
        found->connections++;
        limiter->connections++;
        *slot = found;
    }
    pthread_mutex_unlock(&limiter->lock);
    return answer;
}

void connection_limiter_leave(struct connection_limiter *limiter, struct connection_slot *slot)
{
    pthread_mutex_lock(&limiter->lock);
    limiter->connections--;
    if (--slot->connections == 0 && !slot->is_local) {
        tdelete(slot, &limiter->slots, compare);
        free(slot);
    }
    pthread_mutex_unlock(&limiter->lock);
}

void connection_limiter_set_limits(struct connection_limiter *limiter,
                                   const struct connection_limits *limits)
{
    pthread_mutex_lock(&limiter->lock);
    limiter->limits = *limits;
    pthread_mutex_unlock(&limiter->lock);
}

size_t connection_limiter_connections(struct connection_limiter *limiter)
{
    pthread_mutex_lock(&limiter->lock);
    size_t connections = limiter->connections;
    pthread_mutex_unlock(&limiter->lock);
    return connections;
}
