/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a state that memcached keeps: of a clock ahead and refused, or damaged and used up,
 * or decided by the algorithm, again and again, with tickets that are made and closed. A state that
 * was written is read again.
 */
#include "bytes.h"

#include "backend/memcached/memcached_state.h"
#include "base/ns.h"

static const char *const specs[] = {
    "window 100/1m",
    "window 7/10s resolution=10",
    "window 4294967295/10h",
    "window 101/1m resolution=100",
    "gcra 100/60s burst=20",
    "gcra 1000003/1s burst=1 count_denied=true",
    "fixed_window 10/90s align=first_use",
    "fixed_window 1000/1mo align=calendar utc_offset=+01:00",
    "fixed_window 5/10s",
    "sliding_counter 100/1m",
    "log 40/1m",
    "buckets 60/1m time_slack=10s count_slack=9",
    "buckets 5/10s time_slack=10s",
};
#define SPECS (sizeof(specs) / sizeof(specs[0]))

static const uint8_t ids[4][BACKEND_ID_LEN] = {{1}, {2}, {3}, {4}};
static const uint8_t closings[] = {REQUEST_SETTLE, REQUEST_CANCEL, REQUEST_EXPIRE, STINT_TAKE};

static struct memcached_step step_of(const struct stint_quota *quota, struct span *bytes,
                                     uint64_t now_ns)
{
    struct memcached_step step = {.quota = quota, .now_ns = now_ns};
    uint8_t what = bytes_u8(bytes);
    step.verb = what % (STINT_REFUND + 1);
    if (what >= 128) {
        step.verb = closings[what % 4];
        step.ticket.id = ids[what / 4 % 4];
        step.ticket.good_ns = bytes_u16(bytes) * NS_PER_S / 8;
        step.ticket.kept = what / 16 % 2 > 0 ? STINT_KEEP_ALL : what / 32 % 4;
    }
    step.cost = bytes_u16(bytes);
    step.at_ns = bytes_u8(bytes) % 2 == 0 ? STINT_NEVER_NS : now_ns - bytes_u16(bytes);
    return step;
}

static void check_decision(const struct stint_quota *quota, const struct memcached_step *step,
                           const struct stint_decision *decision)
{
    bool is_closing = step->verb >= REQUEST_SETTLE; /* under the limit that the state has */
    MUST(decision->limit == most_units(quota) || decision->limit == 0 || is_closing);
    MUST(decision->remaining <= decision->limit);
    MUST(decision->granted <= step->cost || is_closing);
    if (step->verb == STINT_TAKE || step->verb == STINT_TAKE_UPTO)
        MUST(decision->granted <= decision->limit);
    MUST(decision->retry_after_ns == STINT_NEVER_NS || decision->retry_after_ns % NS_PER_US == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span bytes = span_of(data, size);
    struct stint_quota quota;
    struct memcached_state state = {.len = 0};
    size_t which = bytes_u8(&bytes) % (SPECS + 1);
    bool is_counter = which == SPECS;
    if (is_counter)
        quota = counter_quota();
    else
        MUST(stint_quota_parse(&quota, specs[which], NULL) == 0);
    MUST(memcached_state_accepts(&quota, NULL) == 0);
    /* From 1978 to 2089. */
    uint64_t now_ns = 8 * NS_PER_YEAR + bytes_u32(&bytes) % (111 * 365 * 86400ull) * NS_PER_S;
    size_t len = bytes_u8(&bytes) % ((size_t)MEMCACHED_STATE_MAX + 2);
    len = len < bytes.len ? len : bytes.len;
    if (len > 0)
        memcached_state_read(&state, span_of(bytes.ptr, len));
    bytes = span_of(bytes.ptr + len, bytes.len - len);
    for (int i = 0; i < 64 && bytes.len > 0; i++) {
        struct memcached_state before = state;
        struct memcached_step step = step_of(&quota, &bytes, now_ns);
        struct stint_decision decision;
        int code = memcached_state_ask(&state, &step, &decision, NULL);
        if (code == STINT_E_GONE) {
            MUST(step.verb >= REQUEST_SETTLE);
        } else if (code != 0) {
            MUST(i == 0 && memcmp(&before, &state, sizeof(state)) == 0);
            return 0;
        }
        check_decision(&quota, &step, &decision);
        if (is_counter)
            MUST(state.count <= STINT_COUNT_MAX &&
                 (step.verb != STINT_CHARGE || state.count >= decision.granted));
        bool has_changed =
            before.len != state.len || memcmp(before.bytes, state.bytes, state.len) != 0;
        bool is_mended = state.was_damaged && !before.was_damaged;
        bool takes = step.verb == STINT_TAKE || step.verb == STINT_TAKE_UPTO;
        MUST(!is_mended || !takes || decision.granted == 0);
        MUST(!has_changed || is_mended || step.verb != STINT_PEEK);
        if (has_changed)
            MUST(memcached_state_ttl_s(&state, &step, 0) != 1);
        now_ns += bytes_u32(&bytes) * UINT64_C(1000003);
    }
    return 0;
}
