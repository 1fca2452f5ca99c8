/* SPDX-License-Identifier: MIT */
/* Clocks of the system. */
#define _GNU_SOURCE
#include "table/clock.h"

#include "base/limits.h"
#include "base/siphash.h"
#include "table/region/system.h"

#include <string.h>
#include <sys/stat.h>

#define WALL_MAX_S (EPOCH_MAX_NS / (int64_t)NS_PER_S)

/* Whether the kernel computes its own clock from the counter: it has compared those of all cores.
 */
#define CLOCKSOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"

enum { USE_UNKNOWN, USE_NEVER, USE_LINES };

struct ticks clock_ticks;
static int counter_use;

static uint64_t kernel_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static bool kernel_trusts_counter(void)
{
    char name[4];
    int fd = open(CLOCKSOURCE, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, name, sizeof(name));
    close(fd);
    return n == sizeof(name) && memcmp(name, "tsc\n", sizeof(name)) == 0;
}

/* Asked once: a server may read no such file once it serves. */
static int find_use(void)
{
    /* relaxed: every thread finds the same. */
    int use = __atomic_load_n(&counter_use, __ATOMIC_RELAXED);
    if (use == USE_UNKNOWN) {
        use = counter_is_steady() && kernel_trusts_counter() ? USE_LINES : USE_NEVER;
        __atomic_store_n(&counter_use, use, __ATOMIC_RELAXED);
    }
    return use;
}

uint64_t clock_boot_read(void)
{
    if (!COUNTER_EXISTS || find_use() != USE_LINES || ticks_gave_up(&clock_ticks))
        return kernel_ns();
    struct ticks_reading reading = {.before = counter_read()};
    reading.ns = kernel_ns();
    reading.after = counter_read();
    return ticks_learn(&clock_ticks, &reading);
}

int64_t clock_wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t wall_s = t.tv_sec;
    if (wall_s >= WALL_MAX_S || wall_s <= -WALL_MAX_S)
        return wall_s < 0 ? -EPOCH_MAX_NS : EPOCH_MAX_NS;
    return wall_s * (int64_t)NS_PER_S + t.tv_nsec;
}

/* Hash of a short file of /proc together with a number; 0 where there is no such file. */
static uint64_t hash_of(const char *path, uint64_t number)
{
    static const uint64_t no_secret[2] = {0, 0};
    char text[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text));
    close(fd);
    return n > 0 ? siphash13_128(no_secret, number, text, (size_t)n).lo | 1 : 0;
}

uint64_t clock_boot_id(void)
{
    return hash_of("/proc/sys/kernel/random/boot_id", 0);
}

/* A new namespace may reuse the number of an old one: its offsets are hashed as well. */
uint64_t clock_space_id(void)
{
    struct stat status;
    if (stat("/proc/self/ns/time", &status) != 0)
        return 0;
    return hash_of("/proc/self/timens_offsets", (uint64_t)status.st_ino);
}
