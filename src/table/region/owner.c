/* SPDX-License-Identifier: MIT */
/* Owner words: taking, taking over from ended processes, giving back. */
#define _GNU_SOURCE
#include "table/region/owner.h"

#include "base/siphash.h"
#include "table/clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define PID_BITS 22
#define SPINS 64

/*
 * Start time of a process: field 22 of its stat, counted after the name, which may hold spaces. 0:
 * it cannot be read.
 */
static uint64_t start_time(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

/* The hash of a start time that cannot be read is 0, which is that of no other. */
static uint64_t name_of(pid_t pid, uint64_t start)
{
    assert(pid > 0);
    static const uint64_t no_secret[2] = {0, 0};
    uint64_t hash = siphash13_128(no_secret, 0, &start, sizeof(start)).lo << PID_BITS;
    hash &= OWNER_PROCESS_MASK;
    if (hash == 0)
        hash = UINT64_C(1) << PID_BITS;
    return (start != 0 ? hash : 0) | ((uint64_t)pid & ((1u << PID_BITS) - 1));
}

uint64_t owner_self(void)
{
    return name_of(getpid(), start_time(getpid()));
}

void owner_pause(void)
{
    sched_yield();
}

bool owner_has_ended(uint64_t word)
{
    pid_t pid = (pid_t)(word & ((1u << PID_BITS) - 1));
    if (pid == 0 || (kill(pid, 0) != 0 && errno == ESRCH))
        return true;
    /*
     * If it cannot be read, as without a free descriptor, a live owner must not lose its lock; nor
     * if the owner could not read its own. Then any process of this id counts as the owner.
     */
    uint64_t name = word & OWNER_PROCESS_MASK;
    uint64_t start = name >> PID_BITS != 0 ? start_time(pid) : 0;
    return start != 0 && name_of(pid, start) != name;
}

static bool swap_word(uint64_t *word, uint64_t seen, uint64_t mine)
{
    /* acquire: the next owner sees what the last one wrote to the state. */
    return __atomic_compare_exchange_n(word, &seen, mine, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

static uint64_t next_word(uint64_t seen, uint64_t self)
{
    assert((self & ~OWNER_PROCESS_MASK) == 0);
    uint64_t next = ((seen & OWNER_SEQUENCE_MASK) + OWNER_SEQUENCE_ONE) & OWNER_SEQUENCE_MASK;
    return OWNER_HELD | next | self;
}

bool owner_try(uint64_t *word, uint64_t self, uint64_t *mine)
{
    assert(word != NULL && mine != NULL);
    uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    *mine = next_word(seen, self);
    return (seen & OWNER_HELD) == 0 && swap_word(word, seen, *mine);
}

enum owner_result owner_take(uint64_t *word, uint64_t self, uint64_t *mine)
{
    assert(word != NULL && mine != NULL);
    uint64_t watched = 0, since_ns = 0;
    for (unsigned tries = 0;; tries++) {
        uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
        *mine = next_word(seen, self);
        if ((seen & OWNER_HELD) == 0) {
            if (swap_word(word, seen, *mine))
                return OWNER_TAKEN;
            continue;
        }
        if (tries < SPINS)
            continue;
        if (seen != watched) {
            watched = seen;
            since_ns = clock_boot_ns();
        }
        uint64_t held_ns = clock_boot_ns() - since_ns;
        if (held_ns > OWNER_DOUBT_NS || (seen & OWNER_ABANDONED) != 0) {
            if (owner_has_ended(seen)) {
                if (swap_word(word, seen, *mine))
                    return OWNER_TAKEN_OVER;
                continue;
            }
            if ((seen & OWNER_ABANDONED) != 0)
                return OWNER_LEFT;
        }
        if (held_ns > OWNER_PATIENCE_NS) {
            *mine = seen;
            return OWNER_STUCK;
        }
        owner_pause();
    }
}

bool owner_give_back(uint64_t *word, uint64_t mine)
{
    uint64_t seen = mine;
    /* release: the next owner sees what was written. */
    return __atomic_compare_exchange_n(word, &seen, mine & OWNER_SEQUENCE_MASK, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
