/* SPDX-License-Identifier: MIT */
/*
 * Replies as maps of slots and words of sentinels: each is taken whole or leaves what was known as
 * it is, and a map's counts are those of its slots.
 */
#include "bytes.h"

#include "backend/redis/cluster.h"
#include "backend/redis/sentinel.h"

static void check(const struct cluster *cluster)
{
    unsigned served = 0;
    MUST(cluster->n_masters <= CLUSTER_MASTERS_MAX);
    for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
        MUST(cluster->of_slot[slot] <= cluster->n_masters);
        const struct store_host *master = cluster_master(cluster, slot);
        if (master == NULL)
            continue;
        served++;
        MUST(master->port > 0 && memchr(master->name, '\0', sizeof(master->name)) != NULL);
    }
    MUST(served == cluster->n_slots_served);
}

static void take(struct cluster *cluster, const struct redis_reply *reply)
{
    static const struct store_host asked = {"asked", 7000};
    struct redis_redirect redirect;
    struct store_host host = {"", 0};
    if (cluster_read(cluster, reply, &asked, NULL) < 0)
        MUST(cluster->n_slots_served == 0 && cluster->n_masters == 0);
    if (reply->type == REDIS_ERROR && redis_redirect_parse(reply->text, &redirect) &&
        cluster_move(cluster, &redirect, &asked))
        MUST(cluster_master(cluster, redirect.slot)->port == redirect.port);
    check(cluster);
    if (sentinel_read_master(&host, "m", reply, NULL) < 0)
        MUST(host.port == 0);
    else
        MUST(host.port > 0 && host.name[0] != '\0');
    (void)sentinel_read_switch(&host, "m", reply);
    if (reply->text.len > 0)
        MUST(cluster_slot_of(reply->text) < CLUSTER_SLOTS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct redis_reader *reader = redis_reader_new(1u << 20);
    struct cluster *cluster = calloc(1, sizeof(*cluster));
    const struct redis_reply *reply;
    MUST(reader != NULL && cluster != NULL);
    if (redis_reader_feed(reader, span_of(data, size), NULL) == 0)
        while (redis_reader_next(reader, &reply, NULL) > 0)
            take(cluster, reply);
    redis_reader_free(reader);
    free(cluster);
    return 0;
}
