/* SPDX-License-Identifier: MIT */
/* Clocks of the system. */
#define _GNU_SOURCE
#include "store/clock.h"

#include "base/limits.h"
#include "base/siphash.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define WALL_MAX_S (EPOCH_MAX_NS / (int64_t)NS_PER_S)

uint64_t clock_boot_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

int64_t clock_wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (t.tv_sec >= WALL_MAX_S || t.tv_sec <= -WALL_MAX_S)
        return t.tv_sec < 0 ? -EPOCH_MAX_NS : EPOCH_MAX_NS;
    return (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
}

uint64_t clock_boot_id(void)
{
    static const uint64_t no_secret[2] = {0, 0};
    char text[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text));
    close(fd);
    return n > 0 ? siphash13_128(no_secret, 0, text, (size_t)n).lo | 1 : 0;
}
