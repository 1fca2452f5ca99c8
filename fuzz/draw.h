/* SPDX-License-Identifier: MIT */
/* Quotas, costs and steps of time out of the input: small ones, odd ones, and those at an edge. */
#ifndef STINT_FUZZ_DRAW_H
#define STINT_FUZZ_DRAW_H

#include "bytes.h"
#include "stint.h"

#include "base/limits.h"

static inline uint32_t draw_limit(struct span *bytes)
{
    uint8_t kind = bytes_u8(bytes);
    if (kind < 192)
        return kind % 32;
    return kind < 224 ? bytes_u8(bytes) : kind < 248 ? bytes_u16(bytes) : bytes_u32(bytes);
}

static inline uint64_t draw_period_ns(struct span *bytes)
{
    static const uint64_t usual[] = {
        1000,          1001,          NS_PER_MS,   1999999,    2000000,
        NS_PER_S,      60 * NS_PER_S, NS_PER_HOUR, NS_PER_DAY, 31 * NS_PER_DAY,
        PERIOD_MAX_NS, 1000003,       1 << 20,     48000,      24 * NS_PER_MS,
        4096};
    uint8_t kind = bytes_u8(bytes);
    if (kind < 128)
        return usual[kind % 16];
    return kind < 192   ? UINT64_C(1000) + bytes_u16(bytes)
           : kind < 224 ? 1000 + bytes_u32(bytes)
                        : 1000 + bytes_number(bytes, 7) % PERIOD_MAX_NS;
}

/* Fills in what belongs to the algorithm, and now and then what does not. */
static inline void draw_options(struct span *bytes, struct stint_quota *quota)
{
    uint8_t option = bytes_u8(bytes);
    switch (quota->algorithm) {
    case STINT_WINDOW:
        quota->resolution = option % 4 == 0 ? 0
                            : option < 128  ? 10 + option / 4 % 15
                                            : 25 + option / 4 % 32 * 88 / 32;
        break;
    case STINT_BUCKETS:
        if (option % 4 != 0)
            quota->time_slack_ns = quota->period_ns / (1 + option / 4) + (option & 1);
        if (option % 4 != 1)
            quota->count_slack = 1 + bytes_u8(bytes) % (1 + quota->limit % 512);
        break;
    case STINT_GCRA:
        quota->burst = option % 4 == 0 ? 0 : option % 4 == 1 ? draw_limit(bytes) : option / 4;
        quota->count_denied = option % 16 == 15;
        break;
    case STINT_FIXED_WINDOW:
        quota->align = option % (STINT_ALIGN_YEAR + 1);
        if (quota->align >= STINT_ALIGN_DAY)
            quota->period_ns = 0;
        if (quota->align >= STINT_ALIGN_DAY && option % 2 == 1)
            quota->utc_offset_s = (int32_t)bytes_u32(bytes) % 86400;
        if (option >= 128)
            quota->epoch_ns = (int64_t)bytes_number(bytes, 8) / 2;
        quota->count_denied = option % 32 >= 28;
        break;
    case STINT_SLIDING_COUNTER:
        quota->count_denied = option % 16 == 15;
        break;
    case STINT_CONCURRENCY:
        quota->lease_ns = quota->period_ns;
        quota->period_ns = 0;
        break;
    default:
        break;
    }
}

/* False: the quota was refused. */
static inline bool draw_quota(struct span *bytes, struct stint_quota *quota, int algorithm)
{
    memset(quota, 0, sizeof(*quota));
    quota->algorithm = (uint8_t)algorithm;
    quota->limit = draw_limit(bytes);
    quota->period_ns = draw_period_ns(bytes);
    draw_options(bytes, quota);
    return stint_quota_check(quota, NULL) == STINT_OK;
}

/* With FUZZ_SHOW in the environment a fuzzer tells the story of its input: for reading a finding.
 */
static inline bool draw_is_shown(void)
{
    static int shown = -1;
    if (shown < 0)
        shown = getenv("FUZZ_SHOW") != NULL;
    return shown == 1;
}

static inline void draw_show_quota(const struct stint_quota *quota)
{
    char text[STINT_ERROR_MAX];
    stint_quota_format(quota, text, sizeof(text));
    if (draw_is_shown())
        fprintf(stderr, "quota %s epoch %lld grain %llu\n", text, (long long)quota->epoch_ns,
                (unsigned long long)quota->derived.grain_ns);
}

static inline void draw_show(const char *what, const struct stint_ask *ask,
                             const struct stint_decision *decision)
{
    static const char *const verbs[] = {"take",   "upto", "peek",  "charge",
                                        "refund", "book", "unbook"};
    static const char *const outcomes[] = {"ALLOW", "DENY", "NEVER"};
    if (draw_is_shown())
        fprintf(stderr,
                "%s %s %u now %llu at %llu: %s granted %u remaining %u/%u retry %lld "
                "reset %llu\n",
                what, verbs[ask->verb], ask->cost, (unsigned long long)ask->now_ns,
                (unsigned long long)ask->at_ns, outcomes[decision->outcome], decision->granted,
                decision->remaining, decision->limit, (long long)decision->retry_after_ns,
                (unsigned long long)decision->reset_after_ns);
}

/* What a request may depend on. */
struct draw_hints {
    uint64_t now_ns;
    uint64_t free_at_ns; /* when a denied cost was promised to fit */
    uint64_t period_ns;
    uint32_t capacity, remaining;
};

static inline uint32_t draw_cost(struct span *bytes, const struct draw_hints *hints)
{
    uint8_t kind = bytes_u8(bytes);
    switch (kind % 16) {
    case 0:
        return kind / 16;
    case 1:
        return hints->remaining;
    case 2:
        return hints->remaining < UINT32_MAX ? hints->remaining + 1 : UINT32_MAX;
    case 3:
        return hints->capacity;
    case 4:
        return kind >= 128 && hints->capacity < UINT32_MAX ? hints->capacity + 1 : 1;
    case 5:
        return hints->capacity / 24 + 1;
    case 6:
        return hints->remaining / (1 + kind / 16);
    case 7:
        return bytes_u16(bytes);
    case 8:
        return bytes_u32(bytes);
    case 9:
        return hints->capacity / (1 + kind / 16);
    default:
        return 1;
    }
}

/* A time, mostly later than the last; *stale: the caller's clock is behind, time stays. */
static inline uint64_t draw_now(struct span *bytes, const struct draw_hints *hints, bool *stale)
{
    uint8_t kind = bytes_u8(bytes);
    uint64_t period_ns = hints->period_ns, step_ns = 0;
    *stale = false;
    switch (kind % 16) {
    case 0:
    case 1:
        break;
    case 2:
        step_ns = kind / 16;
        break;
    case 3:
        step_ns = bytes_u16(bytes);
        break;
    case 4:
    case 5:
        step_ns = period_ns / 256 * bytes_u8(bytes);
        break;
    case 6:
        step_ns = period_ns / (1 + kind / 16);
        break;
    case 7:
        step_ns = period_ns / 24 + kind / 16;
        break;
    case 8:
    case 9:
        step_ns = hints->free_at_ns > hints->now_ns ? hints->free_at_ns - hints->now_ns : 1;
        break;
    case 10:
        step_ns = hints->free_at_ns > hints->now_ns + 1 ? hints->free_at_ns - hints->now_ns - 1 : 0;
        break;
    case 11:
        step_ns = period_ns - 1 + kind / 16 % 3;
        break;
    case 12:
        step_ns = 2 * period_ns + kind / 16;
        break;
    case 13:
        step_ns = bytes_number(bytes, 5) % (period_ns * 4);
        break;
    default:
        *stale = true;
        step_ns = period_ns / 256 * bytes_u8(bytes) + kind / 16;
        return hints->now_ns > step_ns ? hints->now_ns - step_ns : 0;
    }
    return hints->now_ns + step_ns;
}

#endif
