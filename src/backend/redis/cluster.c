/* SPDX-License-Identifier: MIT */
/* Slots of keys, and the map of slots from replies of nodes. */
#include "backend/redis/cluster.h"

#include <assert.h>

/* ---- Keys ------------------------------------------------------------------------------------ */

/* CRC-16/XMODEM, four bits at a time: the polynomial x^16 + x^12 + x^5 + 1. */
static unsigned crc16(struct span bytes)
{
    static const uint16_t table[16] = {
        0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
        0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
    };
    unsigned crc = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        crc = (crc << 4 & 0xffff) ^ table[crc >> 12 ^ bytes.ptr[i] >> 4];
        crc = (crc << 4 & 0xffff) ^ table[crc >> 12 ^ (bytes.ptr[i] & 0xfu)];
    }
    return crc;
}

unsigned cluster_slot_of(struct span key)
{
    const uint8_t *open = key.len > 0 ? memchr(key.ptr, '{', key.len) : NULL;
    if (open != NULL) {
        const uint8_t *end = key.ptr + key.len;
        const uint8_t *close = memchr(open + 1, '}', (size_t)(end - open - 1));
        if (close != NULL && close > open + 1)
            key = span_of(open + 1, (size_t)(close - open - 1));
    }
    return crc16(key) % CLUSTER_SLOTS;
}

/* ---- Masters --------------------------------------------------------------------------------- */

const struct store_host *cluster_master(const struct cluster *cluster, unsigned slot)
{
    assert(slot < CLUSTER_SLOTS);
    unsigned place = cluster->of_slot[slot];
    return place == 0 ? NULL : &cluster->masters[place - 1];
}

bool cluster_has_master(const struct cluster *cluster, const struct store_host *host)
{
    for (unsigned i = 0; i < cluster->n_masters; i++)
        if (store_host_is_same(&cluster->masters[i], host))
            return true;
    return false;
}

/* The index of a master, which is added if it is new; 0: there is no space for it. */
static uint16_t place_of(struct cluster *cluster, const struct store_host *host)
{
    for (unsigned i = 0; i < cluster->n_masters; i++)
        if (store_host_is_same(&cluster->masters[i], host))
            return (uint16_t)(i + 1);
    if (cluster->n_masters == CLUSTER_MASTERS_MAX)
        return 0;
    cluster->masters[cluster->n_masters++] = *host;
    return (uint16_t)cluster->n_masters;
}

bool cluster_host(struct store_host *host, struct span name, uint16_t port,
                  const struct store_host *asked)
{
    if (name.len > 0 && !span_equals(name, "?"))
        return store_host_set(host, name, port);
    *host = *asked;
    host->port = port;
    return true;
}

bool cluster_move(struct cluster *cluster, const struct redis_redirect *redirect,
                  const struct store_host *asked)
{
    struct store_host host;
    assert(redirect->slot < CLUSTER_SLOTS);
    if (!cluster_host(&host, redirect->host, redirect->port, asked))
        return false;
    uint16_t place = place_of(cluster, &host);
    if (place == 0)
        return false;
    cluster->n_slots_served += cluster->of_slot[redirect->slot] == 0;
    cluster->of_slot[redirect->slot] = place;
    return true;
}

/* ---- CLUSTER SLOTS --------------------------------------------------------------------------- */

struct range {
    unsigned first, last;
    struct store_host master;
    unsigned replicas;
};

static bool is_number(const struct redis_reply *reply, int64_t min, int64_t max)
{
    return reply->type == REDIS_INTEGER && reply->number >= min && reply->number <= max;
}

/* [first, last, [host, port, id, ...], replicas...] */
static bool read_range(const struct redis_reply *reply, const struct store_host *asked,
                       struct range *range)
{
    if (reply->type != REDIS_ARRAY || reply->n_items < 3 ||
        !is_number(&reply->items[0], 0, CLUSTER_SLOTS - 1) ||
        !is_number(&reply->items[1], reply->items[0].number, CLUSTER_SLOTS - 1))
        return false;
    const struct redis_reply *node = &reply->items[2];
    if (node->type != REDIS_ARRAY || node->n_items < 2 ||
        !is_number(&node->items[1], 1, UINT16_MAX) ||
        (node->items[0].type != REDIS_TEXT && node->items[0].type != REDIS_NIL))
        return false;
    range->first = (unsigned)reply->items[0].number;
    range->last = (unsigned)reply->items[1].number;
    range->replicas = (unsigned)reply->n_items - 3;
    return cluster_host(&range->master, node->items[0].text, (uint16_t)node->items[1].number,
                        asked);
}

static void clear(struct cluster *cluster)
{
    cluster->n_masters = cluster->n_replicas = cluster->n_slots_served = 0;
    memset(cluster->of_slot, 0, sizeof(cluster->of_slot));
}

static int add_range(struct cluster *cluster, const struct range *range, struct stint_error *error)
{
    uint16_t place = place_of(cluster, &range->master);
    if (place == 0)
        return err_set(error, STINT_E_RANGE, "the cluster has more than %d masters",
                       CLUSTER_MASTERS_MAX);
    for (unsigned slot = range->first; slot <= range->last; slot++) {
        cluster->n_slots_served += cluster->of_slot[slot] == 0;
        cluster->of_slot[slot] = place;
    }
    cluster->n_replicas += range->replicas;
    return 0;
}

int cluster_read(struct cluster *cluster, const struct redis_reply *reply,
                 const struct store_host *asked, struct stint_error *error)
{
    struct range range = {.first = 0};
    int code = 0;
    clear(cluster);
    if (reply->n_items > CLUSTER_SLOTS)
        return err_set(error, STINT_E_RANGE,
                       "invalid reply to CLUSTER SLOTS: more ranges than slots");
    bool is_valid = reply->type == REDIS_ARRAY;
    for (size_t i = 0; i < reply->n_items && is_valid && code == 0; i++) {
        is_valid = read_range(&reply->items[i], asked, &range);
        if (is_valid)
            code = add_range(cluster, &range, error);
    }
    if (!is_valid)
        code = err_set(error, STINT_E_SYNTAX,
                       "invalid reply to CLUSTER SLOTS: expected ranges of slots with nodes");
    if (code != 0)
        clear(cluster);
    return code;
}
