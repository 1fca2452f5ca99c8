/* SPDX-License-Identifier: MIT */
/* A hash table of addresses in chains; all connections of an address share its entry, the slot. */
#define _GNU_SOURCE
#include "net/listen/connection_limiter.h"

#include "base/siphash.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CONNECTION_LIMITER_CHAINS 4096

struct connection_slot {
    struct connection_slot *next;
    uint64_t address; /* of IPv4 marked by its upper half; of IPv6 the /64 */
    bool is_v6, is_local;
    size_t connections;
};

struct connection_limiter {
    struct connection_limits limits;
    pthread_mutex_t lock;
    size_t connections;
    uint64_t hash_key[2]; /* random: clients cannot choose addresses of one chain */
    struct connection_slot *chains[CONNECTION_LIMITER_CHAINS];
    struct connection_slot local; /* of all peers without an address */
};

struct connection_limiter *connection_limiter_new(const struct connection_limits *limits)
{
    struct connection_limiter *connection_limiter = calloc(1, sizeof(*connection_limiter));
    if (connection_limiter == NULL)
        return NULL;
    connection_limiter->limits = *limits;
    connection_limiter->local.is_local = true;
    if (getrandom(connection_limiter->hash_key, sizeof(connection_limiter->hash_key), 0) !=
            sizeof(connection_limiter->hash_key) ||
        pthread_mutex_init(&connection_limiter->lock, NULL) != 0) {
        free(connection_limiter);
        return NULL;
    }
    return connection_limiter;
}

void connection_limiter_free(struct connection_limiter *connection_limiter)
{
    if (connection_limiter == NULL)
        return;
    for (size_t i = 0; i < CONNECTION_LIMITER_CHAINS; i++)
        for (struct connection_slot *slot = connection_limiter->chains[i], *next; slot != NULL;
             slot = next) {
            next = slot->next;
            free(slot);
        }
    pthread_mutex_destroy(&connection_limiter->lock);
    free(connection_limiter);
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

static struct connection_slot **find_chain(struct connection_limiter *connection_limiter,
                                           const struct connection_slot *wanted)
{
    struct hash128 hash = siphash13_128(connection_limiter->hash_key, wanted->is_v6,
                                        &wanted->address, sizeof(wanted->address));
    return &connection_limiter->chains[hash.lo % CONNECTION_LIMITER_CHAINS];
}

/* The slot of the address, made if there is none; NULL: no memory. */
static struct connection_slot *find_slot(struct connection_limiter *connection_limiter,
                                         const struct sockaddr *peer)
{
    struct connection_slot wanted = {0};
    if (!read_address(peer, &wanted))
        return &connection_limiter->local;
    struct connection_slot **chain = find_chain(connection_limiter, &wanted);
    for (struct connection_slot *slot = *chain; slot != NULL; slot = slot->next)
        if (slot->address == wanted.address && slot->is_v6 == wanted.is_v6)
            return slot;
    struct connection_slot *slot = malloc(sizeof(*slot));
    if (slot == NULL)
        return NULL;
    *slot = wanted;
    slot->next = *chain;
    *chain = slot;
    return slot;
}

static void drop_slot(struct connection_limiter *connection_limiter, struct connection_slot *unused)
{
    struct connection_slot **at = find_chain(connection_limiter, unused);
    while (*at != unused)
        at = &(*at)->next;
    *at = unused->next;
    free(unused);
}

enum connection_limiter_answer
connection_limiter_enter(struct connection_limiter *connection_limiter, const struct sockaddr *peer,
                         struct connection_slot **slot)
{
    enum connection_limiter_answer answer = CONNECTION_LIMIT_TOTAL;
    pthread_mutex_lock(&connection_limiter->lock);
    struct connection_slot *found =
        connection_limiter->connections < connection_limiter->limits.connections
            ? find_slot(connection_limiter, peer)
            : NULL;
    if (found != NULL) {
        bool is_free = found->is_local || connection_limiter->limits.per_address == 0 ||
                       found->connections < connection_limiter->limits.per_address;
        answer = is_free ? CONNECTION_ADMITTED : CONNECTION_LIMIT_ADDRESS;
    }
    if (answer == CONNECTION_ADMITTED) {
        found->connections++;
        connection_limiter->connections++;
        *slot = found;
    }
    pthread_mutex_unlock(&connection_limiter->lock);
    return answer;
}

void connection_limiter_leave(struct connection_limiter *connection_limiter,
                              struct connection_slot *slot)
{
    pthread_mutex_lock(&connection_limiter->lock);
    connection_limiter->connections--;
    if (--slot->connections == 0 && !slot->is_local)
        drop_slot(connection_limiter, slot);
    pthread_mutex_unlock(&connection_limiter->lock);
}

void connection_limiter_set_limits(struct connection_limiter *connection_limiter,
                                   const struct connection_limits *limits)
{
    pthread_mutex_lock(&connection_limiter->lock);
    connection_limiter->limits = *limits;
    pthread_mutex_unlock(&connection_limiter->lock);
}

size_t connection_limiter_connections(struct connection_limiter *connection_limiter)
{
    pthread_mutex_lock(&connection_limiter->lock);
    size_t connections = connection_limiter->connections;
    pthread_mutex_unlock(&connection_limiter->lock);
    return connections;
}
