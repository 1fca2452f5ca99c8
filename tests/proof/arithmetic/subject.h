/* SPDX-License-Identifier: MIT */
/*
 * One algorithm under one quota: the algorithm's file as it is. Compiled once for each line of
 * `quotas`, with:
 *
 *   ALGORITHM   gcra, ...; ALGORITHM_FILE its file; FOR_gcra, ... defined
 *   QUOTA       initial values of fields of struct stint_quota
 *   STATE_WORDS words of its state
 */
#include ALGORITHM_FILE

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define ROW JOIN(algorithm_, ALGORITHM)

/* A message is not of interest here. */
int err_set(struct stint_error *error, int code, const char *format, ...)
{
    (void)error;
    (void)format;
    return code;
}

static struct stint_quota quota = {QUOTA};

/* The top 16 bits of a state of 16 bytes belong to the table. */
struct state {
    _Alignas(16) uint64_t word[STATE_WORDS];
};

static void check_quota(void)
{
    quota.derived.reciprocal = UINT64_MAX / quota.period_ns; /* as quota.c does */
    int code = ROW.check(&quota, NULL);
    assert(code == STINT_OK && quota.derived.state_size == 8 * STATE_WORDS);
}
