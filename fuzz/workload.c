/* SPDX-License-Identifier: MIT */
/*
 * Any text as a workload: refused with a message, or requests that come in order, to places that
 * there are, whatever the decisions that they are told.
 */
#include "sim/workload/workload.h"
#include "bytes.h"

#define TEXT_MAX 400
#define REQUESTS_MAX 300
#define PLACES_MAX 2000 /* memory for more is not what is looked for here */

static void check_refusal(int code, const struct stint_error *error)
{
    MUST(code == STINT_E_SYNTAX || code == STINT_E_RANGE || code == STINT_E_MISMATCH);
    MUST(error->code == code);
    MUST(error->message[0] != '\0');
    MUST(memchr(error->message, '\0', sizeof(error->message)) != NULL);
}

/* What a limiter may answer: allowed, denied for some time, or never. */
static struct stint_decision any_decision(struct span *bytes, const struct stint_quota *quota)
{
    struct stint_decision decision = {.stored = 1};
    decision.outcome = (uint8_t)(bytes_number(bytes, 1) % 3);
    if (decision.outcome == STINT_DENY)
        decision.retry_after_ns = 1 + bytes_number(bytes, 5) % (2 * quota->period_ns);
    else if (decision.outcome == STINT_NEVER)
        decision.retry_after_ns = STINT_NEVER_NS;
    return decision;
}

static void check_requests(struct workload *workload, const struct stint_quota *quota,
                           struct span bytes)
{
    struct sim_event event;
    uint64_t before_ns = 0;
    for (int i = 0; i < REQUESTS_MAX && workload_next(workload, &event); i++) {
        MUST(event.at_ns <= STINT_NOW_MAX);
        if (workload->spec.kind != WORKLOAD_CLOCK_STEPS) {
            MUST(event.at_ns >= before_ns && event.at_ns < workload->end_ns);
            before_ns = event.at_ns;
        }
        MUST(sim_event_place(&event) < workload_places(workload));
        MUST(event.cost >= 1 && event.cost <= workload->spec.cost_max);
        struct stint_decision decision = any_decision(&bytes, quota);
        if (workload_listens(workload))
            workload_tell(workload, &event, &decision);
    }
    MUST(workload->dropped == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const specs[] = {"100/60s",
                                        "window 3/1us",
                                        "gcra 7/1s burst=2",
                                        "fixed_window 5/1mo align=calendar",
                                        "buckets 20/10m time_slack=1m",
                                        "log 5/3650d"};
    struct span bytes = {data, size};
    struct stint_quota quota;
    struct stint_error error = {0};
    struct workload workload;
    char text[TEXT_MAX + 1];
    const char *spec = specs[bytes_number(&bytes, 1) % (sizeof(specs) / sizeof(*specs))];
    uint64_t seed = bytes_number(&bytes, 2);
    const uint8_t *end = bytes.len > 0 ? memchr(bytes.ptr, '\0', bytes.len) : NULL;
    size_t len = end != NULL ? (size_t)(end - bytes.ptr) : bytes.len;
    len = len < TEXT_MAX ? len : TEXT_MAX;
    if (len > 0)
        memcpy(text, bytes.ptr, len);
    text[len] = '\0';
    bytes = span_of(bytes.ptr + len, bytes.len - len);

    MUST(stint_quota_parse(&quota, spec, NULL) == 0);
    int code = workload_parse(&workload, text, &error);
    if (code != 0) {
        check_refusal(code, &error);
        return 0;
    }
    if (workload.spec.keys > PLACES_MAX || workload.spec.clients > PLACES_MAX)
        return 0;
    const struct workload_terms terms = {
        .quota = &quota, .seed = seed, .end_ns = seed % 2 == 0 ? STINT_NOW_MAX : quota.period_ns};
    code = workload_begin(&workload, &terms, &error);
    if (code != 0)
        check_refusal(code, &error);
    else
        check_requests(&workload, &quota, bytes);
    workload_end(&workload);
    return 0;
}
