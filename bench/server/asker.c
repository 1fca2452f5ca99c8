/* SPDX-License-Identifier: MIT */
/* Connections that send at once: a load program writes whole pipelines. */
#define _GNU_SOURCE
#include "asker.h"

#include "base/ns.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void asker_die(const char *what)
{
    perror(what);
    exit(1);
}

int asker_dial(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
        asker_die("connect");
    return fd;
}

uint64_t asker_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t asker_draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

void asker_times_add(struct asker_times *times, uint64_t ns)
{
    const uint64_t bucket = ns / ASKER_BUCKET_NS;
    times->buckets[bucket < ASKER_BUCKETS ? bucket : ASKER_BUCKETS - 1]++;
    times->n++;
}

double asker_times_us(const struct asker_times *times, double share)
{
    const uint64_t wanted = (uint64_t)((double)times->n * share);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < ASKER_BUCKETS; i++) {
        seen += times->buckets[i];
        if (seen > wanted)
            return (double)(i + 1) * ASKER_BUCKET_NS / 1000;
    }
    return (double)ASKER_BUCKETS * ASKER_BUCKET_NS / 1000;
}
