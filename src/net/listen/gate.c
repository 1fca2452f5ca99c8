/* SPDX-License-Identifier: MIT */
/* A hash table of addresses in chains; a seat is the entry of its address, shared by all of it. */
#define _GNU_SOURCE
#include "net/listen/gate.h"

#include "base/siphash.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define GATE_CHAINS 4096

struct gate_seat {
    struct gate_seat *next;
    uint64_t address; /* of IPv4 marked by its upper half; of IPv6 the /64 */
    bool is_v6, is_local;
    size_t connections;
};

struct gate {
    struct gate_limits limits;
    pthread_mutex_t lock;
    size_t connections;
    uint64_t hash_key[2]; /* chance: nobody can aim at one chain */
    struct gate_seat *chains[GATE_CHAINS];
    struct gate_seat local; /* of everybody who has no address */
};

struct gate *gate_new(const struct gate_limits *limits)
{
    struct gate *gate = calloc(1, sizeof(*gate));
    if (gate == NULL)
        return NULL;
    gate->limits = *limits;
    gate->local.is_local = true;
    if (getrandom(gate->hash_key, sizeof(gate->hash_key), 0) != sizeof(gate->hash_key) ||
        pthread_mutex_init(&gate->lock, NULL) != 0) {
        free(gate);
        return NULL;
    }
    return gate;
}

void gate_free(struct gate *gate)
{
    if (gate == NULL)
        return;
    for (size_t i = 0; i < GATE_CHAINS; i++)
        for (struct gate_seat *seat = gate->chains[i], *next; seat != NULL; seat = next) {
            next = seat->next;
            free(seat);
        }
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

/* False for a peer without an address of IP. IPv4 counts as itself where it comes over IPv6. */
static bool read_address(const struct sockaddr *peer, struct gate_seat *seat)
{
    if (peer->sa_family == AF_INET) {
        seat->address = ((const struct sockaddr_in *)(const void *)peer)->sin_addr.s_addr;
        return true;
    }
    if (peer->sa_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    seat->is_v6 = !IN6_IS_ADDR_V4MAPPED(v6);
    if (seat->is_v6)
        memcpy(&seat->address, v6->s6_addr, 8);
    else {
        uint32_t v4;
        memcpy(&v4, v6->s6_addr + 12, 4);
        seat->address = v4;
    }
    return true;
}

static struct gate_seat **find_chain(struct gate *gate, const struct gate_seat *wanted)
{
    struct hash128 hash =
        siphash13_128(gate->hash_key, wanted->is_v6, &wanted->address, sizeof(wanted->address));
    return &gate->chains[hash.lo % GATE_CHAINS];
}

/* The seat of the address, made if there is none; NULL: no memory. */
static struct gate_seat *find_seat(struct gate *gate, const struct sockaddr *peer)
{
    struct gate_seat wanted = {0};
    if (!read_address(peer, &wanted))
        return &gate->local;
    struct gate_seat **chain = find_chain(gate, &wanted);
    for (struct gate_seat *seat = *chain; seat != NULL; seat = seat->next)
        if (seat->address == wanted.address && seat->is_v6 == wanted.is_v6)
            return seat;
    struct gate_seat *seat = malloc(sizeof(*seat));
    if (seat == NULL)
        return NULL;
    *seat = wanted;
    seat->next = *chain;
    *chain = seat;
    return seat;
}

static void drop_seat(struct gate *gate, struct gate_seat *unused)
{
    struct gate_seat **at = find_chain(gate, unused);
    while (*at != unused)
        at = &(*at)->next;
    *at = unused->next;
    free(unused);
}

enum gate_answer gate_enter(struct gate *gate, const struct sockaddr *peer, struct gate_seat **seat)
{
    enum gate_answer answer = GATE_FULL;
    pthread_mutex_lock(&gate->lock);
    struct gate_seat *found =
        gate->connections < gate->limits.connections ? find_seat(gate, peer) : NULL;
    if (found != NULL) {
        bool is_free = found->is_local || gate->limits.per_address == 0 ||
                       found->connections < gate->limits.per_address;
        answer = is_free ? GATE_OPEN : GATE_ADDRESS_FULL;
    }
    if (answer == GATE_OPEN) {
        found->connections++;
        gate->connections++;
        *seat = found;
    }
    pthread_mutex_unlock(&gate->lock);
    return answer;
}

void gate_leave(struct gate *gate, struct gate_seat *seat)
{
    pthread_mutex_lock(&gate->lock);
    gate->connections--;
    if (--seat->connections == 0 && !seat->is_local)
        drop_seat(gate, seat);
    pthread_mutex_unlock(&gate->lock);
}

void gate_set_limits(struct gate *gate, const struct gate_limits *limits)
{
    pthread_mutex_lock(&gate->lock);
    gate->limits = *limits;
    pthread_mutex_unlock(&gate->lock);
}

size_t gate_connections(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    size_t connections = gate->connections;
    pthread_mutex_unlock(&gate->lock);
    return connections;
}
