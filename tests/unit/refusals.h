/* SPDX-License-Identifier: MIT */
/*
 * Functions of libc that refuse one call: the n-th of a kind. tests/meson.build links the calls of
 * a test's program to them (unit_wraps).
 */
#ifndef STINT_TESTS_REFUSALS_H
#define STINT_TESTS_REFUSALS_H

#include <errno.h>
#include <stdbool.h>

static struct {
    int kind;
    long left; /* calls of the kind until one is refused; below 0: none is */
} refusal = {.left = -1};

static inline void refuse(int kind, long n)
{
    refusal.kind = kind;
    refusal.left = n;
}

/* Whether there were so many calls. From here on none is refused. */
static inline bool refused(void)
{
    bool was_refused = refusal.left < 0;
    refusal.left = -1;
    return was_refused;
}

static inline bool is_refused(int kind, int code)
{
    if (kind != refusal.kind || refusal.left < 0 || refusal.left-- > 0)
        return false;
    errno = code;
    return true;
}

/* `type name params` in front of the real one; refused, it gives `failure` and sets errno. */
#define REFUSES(kind, code, type, name, failure, params, args)                                     \
    type __real_##name params;                                                                     \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params                                                                      \
    {                                                                                              \
        return is_refused(kind, code) ? (failure) : __real_##name args;                            \
    }

#endif
