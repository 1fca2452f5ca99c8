/* SPDX-License-Identifier: MIT */
/*
 * Preloaded, it shows a process another time of day: ahead by as many nanoseconds as the 8 bytes of
 * the file in $WRONG_CLOCK say now, and by $WRONG_CLOCK_S seconds, which may be more than 292 years
 * of nanoseconds. Lengths of time stay as they are.
 *
 * The kernel is asked by its number, and nothing is allocated: allocators look at the clock before
 * anything else works, which is where libfaketime cannot go with Redis.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

static int64_t ahead_ns(void)
{
    static const int64_t none;
    static const int64_t *shown;
    const int64_t *from = __atomic_load_n(&shown, __ATOMIC_ACQUIRE); /* acquire: it is mapped */
    if (from == NULL) {
        const char *path = getenv("WRONG_CLOCK");
        int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *mapped = file >= 0 ? mmap(NULL, sizeof(*from), PROT_READ, MAP_SHARED, file, 0) : NULL;
        from = mapped != NULL && mapped != MAP_FAILED ? mapped : &none;
        if (file >= 0)
            close(file);
        __atomic_store_n(&shown, from, __ATOMIC_RELEASE); /* release: after mapping it */
    }
    return __atomic_load_n(from, __ATOMIC_RELAXED); /* relaxed: one number, at some time */
}

static time_t ahead_s(void)
{
    const char *seconds = getenv("WRONG_CLOCK_S");
    return seconds != NULL ? (time_t)strtoll(seconds, NULL, 10) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    if (code != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return code;
    int64_t all_ns = now->tv_sec * SECOND + now->tv_nsec + ahead_ns();
    now->tv_sec = all_ns / SECOND + ahead_s();
    now->tv_nsec = all_ns % SECOND;
    return 0;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict now,
                                                        void *restrict zone)
{
    struct timespec at;
    (void)zone;
    int code = clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return code;
}

__attribute__((visibility("default"))) time_t time(time_t *told)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (told != NULL)
        *told = at.tv_sec;
    return at.tv_sec;
}
